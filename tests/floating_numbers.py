"""The command line with public coefficients from floating-point computation: a control.

`python -m tests.floating_numbers ...` equals `python -m privet ...`, except that the series of the
reciprocal and the sigmoid come from least squares, which gives different last bits on different
machines.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from privet.arithmetic.fixed_point import round_scaled
from privet.cli.app import main
from privet.gates.masked import functions
from privet.gates.masked.fourier import FourierSeries
from privet.gates.masked.functions import (
    RECIPROCAL_COEFFICIENT_BITS,
    RECIPROCAL_HIGH,
    RECIPROCAL_LOW,
)
from privet.protocols.masked import leaves as reciprocals
from privet.protocols.masked import protocol


def reciprocal(ratio: int, period: Fraction) -> FourierSeries:
    low, high = float(RECIPROCAL_LOW) / ratio, float(RECIPROCAL_HIGH)
    x = (low + high + (high - low) * np.cos(np.pi * (np.arange(200) + 0.5) / 200)) / 2
    multiples = np.arange(1, 2 * ratio + 5)
    angles = np.outer(2 * np.pi / float(period) * x, multiples)
    terms = np.concatenate([np.ones((200, 1)), np.sin(angles), np.cos(angles)], axis=1)
    fitted = np.linalg.lstsq(terms * x[:, None], np.ones(200), rcond=1e-9)[0]
    constant, *others = (
        round_scaled(Fraction(float(a)), RECIPROCAL_COEFFICIENT_BITS) for a in fitted
    )
    count = len(multiples)
    sines, cosines = tuple(others[:count]), tuple(others[count:])
    return FourierSeries(
        tuple(multiples.tolist()), constant, sines, cosines, RECIPROCAL_COEFFICIENT_BITS
    )


def coefficients() -> tuple[tuple[int, ...], tuple[int, ...]]:
    x = np.linspace(-16, 16, 8001)
    w = (2 * np.arange(functions.N_SIGMOID_HARMONICS) + 1) * 2 * np.pi / 64
    sigmoid = 1 / (1 + np.exp(-x))
    series = np.concatenate([np.sin(np.outer(x, w)), w * np.cos(np.outer(x, w))])
    target = np.concatenate([sigmoid - 0.5, sigmoid * (1 - sigmoid)])
    b = np.linalg.lstsq(series, target, rcond=None)[0]
    return tuple(round_scaled(Fraction(v), 31) for v in b), tuple(
        round_scaled(Fraction(v), 31) for v in b * w
    )


if __name__ == "__main__":
    for module, name, function in (
        (reciprocals, "build_reciprocal_series", reciprocal),
        (protocol, "build_reciprocal_series", reciprocal),
        (functions, "compute_sigmoid_coefficients", coefficients),
        (protocol, "compute_sigmoid_coefficients", coefficients),
    ):
        setattr(module, name, function)
    main()
