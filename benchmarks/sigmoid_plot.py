"""Plot of the error of the paper's sigmoid: docs/figures/sigmoid.svg.

    python benchmarks/sigmoid_plot.py

The power form is evaluated in floating point, with the paper's 20 Newton iterations;
tests/protocols/paper/test_components.py compares the protocol with the same curve.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from privet.arrays import FloatArray
from privet.experiments.plots import (
    DARK_INK,
    PROTOCOL_COLOURS,
    apply_style,
    put_legend_above,
    render_figure,
)

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "sigmoid.svg"


def reciprocal(y: FloatArray, start_bits: int) -> FloatArray:
    """Return the reciprocal after 20 Newton iterations."""
    z = np.full_like(y, 2.0**-start_bits)
    for _ in range(20):
        z = z * (2 - y * z)
    return z


def power(x: FloatArray, squarings: int) -> FloatArray:
    """Return (1 + x / 2^n)^(2^n) for exp(x)."""
    result: FloatArray = (1 + x / 2**squarings) ** (2**squarings)
    return result


def symmetric(x: FloatArray, squarings: int) -> FloatArray:
    """Return the function that SecSigmoid computes."""
    a, b = power(x / 2, squarings), power(-x / 2, squarings)
    return a * reciprocal(a + b, 12)


def main() -> None:
    """Draw the curves and their errors."""
    x = np.linspace(-24, 24, 4801)
    true = 1 / (1 + np.exp(-x))
    with np.errstate(all="ignore"):
        curves = {
            "true sigmoid": (true, DARK_INK, "-"),
            "as printed: 1/(1+exp(-x)), n = 2, z0 = 2^-20": (
                reciprocal(1 + power(-x, 2), 20),
                PROTOCOL_COLOURS["paper"],
                ":",
            ),
            "SecSigmoid, n = 2": (symmetric(x, 2), PROTOCOL_COLOURS["paper"], "--"),
            "SecSigmoid, n = 3": (symmetric(x, 3), PROTOCOL_COLOURS["paper"], "-"),
        }
    with apply_style():
        figure = Figure(figsize=(7, 6), layout="constrained")
        top, bottom = figure.subplots(2, 1, sharex=True)
        for name, (values, colour, line) in curves.items():
            top.plot(x, values, line, color=colour, label=name)
            if name != "true sigmoid":
                bottom.semilogy(x, np.maximum(np.abs(values - true), 1e-7), line, color=colour)
        top.set(ylabel="probability", ylim=(-0.05, 1.05))
        bottom.set(ylabel="absolute error", xlabel="score")
        for axes in (top, bottom):
            axes.grid()
        put_legend_above(top, columns=2)
        FIGURE.write_bytes(render_figure(figure))


if __name__ == "__main__":
    main()
