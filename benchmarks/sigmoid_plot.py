"""Draw where the paper's sigmoid leaves the true one: docs/figures/sigmoid.svg.

    python benchmarks/sigmoid_plot.py

The power form is evaluated in floating point, with the paper's 20 Newton iterations where it says
so; tests/suites/paper/test_components.py holds the protocol to the same curve.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from privet.arrays import FloatArray

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "sigmoid.svg"


def reciprocal(y: FloatArray, start_bits: int) -> FloatArray:
    """Newton's reciprocal after 20 iterations."""
    z = np.full_like(y, 2.0**-start_bits)
    for _ in range(20):
        z = z * (2 - y * z)
    return z


def power(x: FloatArray, squarings: int) -> FloatArray:
    """Return (1 + x / 2^n)^(2^n) for exp(x)."""
    result: FloatArray = (1 + x / 2**squarings) ** (2**squarings)
    return result


def symmetric(x: FloatArray, squarings: int) -> FloatArray:
    """Return what SecSigmoid computes."""
    a, b = power(x / 2, squarings), power(-x / 2, squarings)
    return a * reciprocal(a + b, 12)


def main() -> None:
    """Draw the curves and their errors."""
    x = np.linspace(-24, 24, 4801)
    true = 1 / (1 + np.exp(-x))
    with np.errstate(all="ignore"):
        curves = {
            "true sigmoid": (true, "#000000", "-"),
            "as printed: 1/(1+exp(-x)), n = 2, z0 = 2^-20": (
                reciprocal(1 + power(-x, 2), 20),
                "#d55e00",
                "--",
            ),
            "SecSigmoid, n = 2": (symmetric(x, 2), "#0072b2", "-"),
            "SecSigmoid, n = 3": (symmetric(x, 3), "#009e73", "-"),
        }
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 6), sharex=True)
    for name, (values, colour, style) in curves.items():
        top.plot(x, values, style, color=colour, label=name)
        if name != "true sigmoid":
            bottom.semilogy(x, np.maximum(np.abs(values - true), 1e-7), style, color=colour)
    top.set_ylabel("probability")
    top.set_ylim(-0.05, 1.05)
    top.legend(fontsize=8, loc="center right")
    bottom.set_ylabel("absolute error")
    bottom.set_xlabel("score")
    figure.tight_layout()
    plt.rcParams["svg.hashsalt"] = "privet"
    figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
