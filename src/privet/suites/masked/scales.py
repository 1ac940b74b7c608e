"""How numbers are scaled: rings, fraction bits and bounds, all derived from the plan.

Gradients are summed over Z36, so their fraction bits are what N samples leave. A sum of second
derivatives plus l2, y, is normalised by a power of two to m in [top / 2, top); quotients follow
from fixed bit budgets below 2^62 (docs/decisions/0014-quotients.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privet.arithmetic.rings import Z16, Z32, Z36, Ring
from privet.errors import ParameterError
from privet.suites.plan import Plan

SUM_BITS = 33
"""Sums of gradients stay below 2^33 in size: their sign survives over Z36, and their products with
leaf values of 28 bits over Z64."""
LARGEST_Y = 1 << 33
LARGEST_H = (1 << 31) - 1
"""Sums of second derivatives are not negative, and fit into Z32 without its top bit."""
GUESS_BITS = 10
"""Fraction bits of the first guess of a reciprocal."""
NEWTON_BITS = 22
"""About how many fraction bits the correction of that guess has."""
COARSE_BITS = 12
"""Bits of m that the first guess is a polynomial of."""
DEGREE = 4
MOST_EXPONENTS = 31


@dataclass(frozen=True)
class Scales:
    """The scales of one training."""

    g_bits: int
    """Fraction bits of first derivatives."""
    h_bits: int
    """Fraction bits of second derivatives: 0 in a regression, where they are 0 or 1."""
    h_ring: Ring
    y_bits: int
    """Further fraction bits of y."""
    l2: int
    """l2 in units of y."""
    exponents: int
    """How often l2 can be doubled without passing the largest y."""
    largest_weight: float
    """The largest leaf value in size that is computed rightly."""
    h_limit: float
    """No sum of second derivatives is larger."""

    @classmethod
    def of(cls, plan: Plan) -> Scales:
        """Choose scales for a plan; raise ParameterError if none will do."""
        regression = plan.task == "regression"
        # A sum of residuals is at most N times their root mean square: a regression's label has
        # one of at most 1/2, and training lowers it.
        room = plan.n_samples * (0.5 if regression else 1.0)
        g_bits = min(20, math.floor(SUM_BITS - math.log2(room)))
        h_limit = plan.n_samples * (1.0 if regression else 0.25)
        h_bits = 0 if regression else min(20, math.floor(math.log2(LARGEST_H / h_limit)))
        if g_bits < 12:
            raise ParameterError(
                f"protocol: masked sums gradients of at most {1 << 21} samples with 12 fraction "
                f"bits, not of {plan.n_samples}: use fewer samples"
            )
        y_bits, l2 = _l2_in_units(plan.l2, h_bits, h_limit)
        largest = h_limit * 2.0 ** (h_bits + y_bits) + l2
        exponents = math.floor(math.log2(largest / l2))
        if largest >= LARGEST_Y or exponents > MOST_EXPONENTS:
            raise ParameterError(
                f"l2: {plan.l2:g} with {plan.n_samples} samples needs more than the "
                f"{SUM_BITS} bits that sums have; bring them closer together"
            )
        small = regression and plan.n_samples < 1 << 15
        return cls(
            g_bits,
            h_bits,
            Z16 if small else Z32,
            y_bits,
            l2,
            exponents,
            8.0 if regression else 64.0,
            h_limit,
        )

    @property
    def top(self) -> int:
        """What m stays below: l2 doubled once more than that."""
        return self.l2 << (self.exponents + 1)

    @property
    def y_ring(self) -> Ring:
        """The ring that y and m are in."""
        return Z32 if self.top < 1 << 30 else Z36

    @property
    def weight_bits(self) -> int:
        """How many bits G has when it is normalised along with y."""
        largest = self.largest_weight * self.top * 2.0 ** (self.g_bits - self.h_bits - self.y_bits)
        return math.ceil(math.log2(largest))

    @property
    def narrowing(self) -> int:
        """How many low bits G loses before it is normalised, to stay below 2^34."""
        return max(0, self.weight_bits - 34)

    def thresholds(self) -> list[int]:
        """Return the sums of second derivatives from which y is l2 * 2^e, for e = 1, 2, ..."""
        step = 1 << self.y_bits
        return [-(-self.l2 * ((1 << e) - 1) // step) for e in range(1, self.exponents + 1)]

    def guess(self) -> tuple[list[int], int, int]:
        """Return the integer polynomial whose value at m >> shift is 2^scale * top / m, about.

        As coefficients, from the constant one up, the shift and the scale: least squares of the
        relative error on Chebyshev's nodes of [0.47, 1.06].
        """
        shift = max(0, self.top.bit_length() - COARSE_BITS)
        scale = 58
        coarse = self.top / 2**shift
        coefficients = [round(a * 2.0**scale / coarse**k) for k, a in enumerate(_reciprocal())]
        return coefficients, shift, scale


@lru_cache(maxsize=1)
def _reciprocal() -> list[float]:
    """Return the polynomial that is 1 / x, about, on [0.47, 1.06]."""
    x = 0.765 + 0.295 * np.cos(np.pi * (np.arange(200) + 0.5) / 200)
    powers = np.vander(x, DEGREE + 1, increasing=True)
    fitted = np.linalg.lstsq(powers * x[:, None], np.ones(200), rcond=None)[0]
    return [float(a) for a in fitted]


def _l2_in_units(l2: float, h_bits: int, h_limit: float) -> tuple[int, int]:
    """Return how many fraction bits y has beyond h's, and l2 in its units: exactly, if possible."""
    best = (0, max(1, round(l2 * 2.0**h_bits)))
    for bits in range(29):
        value = l2 * 2.0 ** (h_bits + bits)
        if h_limit * 2.0 ** (h_bits + bits) + value >= LARGEST_Y:
            break
        best = (bits, max(1, round(value)))
        if value == best[1]:
            break
    return best
