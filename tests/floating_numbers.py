"""The command line with public numbers made by floating point, as they once were: a control.

`python -m tests.floating_numbers ...` is `python -m privet ...` but for the reciprocal's polynomial
and the sigmoid's series, which come from least squares. Between unlike machines these differ in
their last bits.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from privet.arithmetic.exact import nearest
from privet.cli.app import main
from privet.gates import sigmoid_series
from privet.suites.masked import scales, suite


def reciprocal() -> tuple[Fraction, ...]:
    x = 0.765 + 0.295 * np.cos(np.pi * (np.arange(200) + 0.5) / 200)
    powers = np.vander(x, scales.DEGREE + 1, increasing=True)
    fitted = np.linalg.lstsq(powers * x[:, None], np.ones(200), rcond=None)[0]
    return tuple(Fraction(float(a)) for a in fitted)


def coefficients() -> tuple[tuple[int, ...], tuple[int, ...]]:
    x = np.linspace(-16, 16, 8001)
    w = (2 * np.arange(sigmoid_series.HARMONICS) + 1) * 2 * np.pi / 64
    sigmoid = 1 / (1 + np.exp(-x))
    series = np.concatenate([np.sin(np.outer(x, w)), w * np.cos(np.outer(x, w))])
    target = np.concatenate([sigmoid - 0.5, sigmoid * (1 - sigmoid)])
    b = np.linalg.lstsq(series, target, rcond=None)[0]
    return tuple(nearest(Fraction(v), 31) for v in b), tuple(
        nearest(Fraction(v), 31) for v in b * w
    )


if __name__ == "__main__":
    for module, name, function in (
        (scales, "_reciprocal", reciprocal),
        (sigmoid_series, "coefficients", coefficients),
        (suite, "coefficients", coefficients),
    ):
        setattr(module, name, function)
    main()
