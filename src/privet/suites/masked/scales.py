"""How numbers are scaled: rings, fraction bits and bounds, all derived from the plan.

Gradients are summed over Z36, so their fraction bits are what N samples leave. A sum of second
derivatives plus l2, y, is normalised by a power of two to m in [top / 2, top); quotients follow
from fixed bit budgets below 2^62 (docs/decisions/0014-quotients.md).

Everything here is computed in integers and fractions, and comes out the same at everybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from privet.arithmetic.exact import ceil_log2, floor_log2, nearest
from privet.arithmetic.rings import Z16, Z32, Z36, Ring, integers_modulo
from privet.errors import ParameterError
from privet.terms.plan import Plan

SUM_BITS = 33
"""Sums of gradients stay below 2^33 in size: their sign survives over Z36, and their products with
leaf values of 28 bits over Z64."""
LARGEST_Y = 1 << 33
LARGEST_H = (1 << 31) - (1 << 12)
"""Sums of second derivatives fit into Z32 without its top bit, and with some slack."""
GUESS_BITS = 10
"""Fraction bits of the first guess of a reciprocal."""
NEWTON_BITS = 20
"""About how many fraction bits the correction of that guess has."""
COARSE_BITS = 12
"""Bits of m that the first guess is a polynomial of."""
DEGREE = 4
WEIGHT_BITS = 30
"""Bits of a normalised G: of those that a quotient has, the most, since weights may be small."""
MOST_EXPONENTS = 31
COMPARED_BITS = 48
"""Bits that sizes are compared with bounds on: the leading ones, so that no damaged one is left
out."""


@dataclass(frozen=True)
class Scales:
    """The scales of one training."""

    g_bits: int
    """Fraction bits of first derivatives."""
    g_limit_bits: int
    """No sum of first derivatives is larger than 2 to that power, in their units."""
    h_bits: int
    """Fraction bits of second derivatives: 0 where they are 0 or 1."""
    h_ring: Ring
    y_bits: int
    """Further fraction bits of y."""
    l2: int
    """l2 in units of y."""
    exponents: int
    """How often l2 can be doubled without passing the largest y."""
    largest_weight: int
    """The largest leaf value in size that is computed rightly."""
    h_limit: int
    """No sum of second derivatives is larger, in their units."""
    h_slack: int
    """Nor less than minus this: those of certain samples are zero, give or take a rounding."""

    @classmethod
    def of(cls, plan: Plan) -> Scales:
        """Choose scales for a plan; raise ParameterError if none will do."""
        objective, n_samples, l2 = plan.objective, plan.n_samples, plan.params.l2
        room = objective.largest_gradient * n_samples
        g_bits = min(20, floor_log2((1 << SUM_BITS) / room))
        largest_h = objective.largest_curvature * n_samples
        counts = objective.unit_curvature
        h_bits = 0 if counts else min(20, floor_log2(LARGEST_H / largest_h))
        if g_bits < 12:
            raise ParameterError(
                f"protocol: masked sums gradients of at most {1 << 21} samples with 12 fraction "
                f"bits, not of {n_samples}: use fewer samples"
            )
        h_limit = int(largest_h * (1 << h_bits))
        y_bits, l2_units = _l2_in_units(Fraction(l2) * (1 << h_bits), h_limit)
        largest = (h_limit << y_bits) + l2_units
        exponents = floor_log2(Fraction(largest, l2_units))
        if largest >= LARGEST_Y or exponents > MOST_EXPONENTS:
            raise ParameterError(
                f"l2: {l2:g} with {n_samples} samples needs more than the "
                f"{SUM_BITS} bits that sums have; bring them closer together"
            )
        return cls(
            g_bits=g_bits,
            g_limit_bits=g_bits + ceil_log2(room),
            h_bits=h_bits,
            h_ring=Z16 if counts and n_samples < 1 << 15 else Z32,
            y_bits=y_bits,
            l2=l2_units,
            exponents=exponents,
            largest_weight=objective.largest_weight,
            h_limit=h_limit,
            h_slack=0 if counts else 1 << 10,
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
    def sigmoid_bits(self) -> int:
        """Fraction bits of the sigmoid, of which 28 can be dropped on the way to 36 bits."""
        return self.g_bits + 64 - Z36.bits

    @property
    def weight_bits(self) -> int:
        """How many bits G has when it is normalised along with y."""
        fraction = self.g_bits - self.h_bits - self.y_bits
        return ceil_log2(self.largest_weight * self.top) + fraction

    @property
    def narrowing(self) -> int:
        """How many low bits G loses before it is normalised, to stay below 2^34."""
        return max(0, self.weight_bits - 34)

    @property
    def wide_ring(self) -> Ring:
        """A ring that the normalised G fits, whatever the data.

        And no smaller than what it is compared with its bound on.
        """
        return integers_modulo(
            max(COMPARED_BITS, self.g_limit_bits - self.narrowing + self.exponents + 3)
        )

    @property
    def largest_numerator(self) -> int:
        """No normalised G of a quotient within the largest weight is larger in size."""
        return 1 << (self.weight_bits - self.narrowing)

    def thresholds(self) -> list[int]:
        """Return the sums of second derivatives from which y is l2 * 2^e, for e = 1, 2, ..."""
        step = 1 << self.y_bits
        return [-(-self.l2 * ((1 << e) - 1) // step) for e in range(1, self.exponents + 1)]

    def guess(self) -> tuple[list[int], int, int]:
        """Return the integer polynomial whose value at m >> shift is 2^scale * top / m, about.

        As coefficients, from the constant one up, the shift and the scale.
        """
        shift = max(0, (self.top - 1).bit_length() - COARSE_BITS)
        scale = 58
        coarse = Fraction(self.top, 1 << shift)
        return [nearest(a / coarse**k, scale) for k, a in enumerate(_reciprocal())], shift, scale


@lru_cache(maxsize=1)
def _reciprocal() -> tuple[Fraction, ...]:
    """Return the polynomial p that is 1 / x, about, on [0.47, 1.06]: that of least relative error.

    1 - x p(x) is 1 at 0; of all such polynomials Chebyshev's T, scaled to the interval, stays
    closest to 0 there: 1 - x p(x) = T(u(x)) / T(u(0)), with u from the interval to [-1, 1].
    """
    low, high = Fraction(47, 100), Fraction(106, 100)
    line = [-(high + low) / (high - low), 2 / (high - low)]  # u(x), from the constant up
    before, chebyshev = [Fraction(1)], line
    for _ in range(DEGREE):
        twice = [2 * a for a in _product(line, chebyshev)]
        before, chebyshev = chebyshev, _difference(twice, before)
    return tuple(-a / chebyshev[0] for a in chebyshev[1:])


def _product(p: list[Fraction], q: list[Fraction]) -> list[Fraction]:
    result = [Fraction(0)] * (len(p) + len(q) - 1)
    for i, a in enumerate(p):
        for j, b in enumerate(q):
            result[i + j] += a * b
    return result


def _difference(p: list[Fraction], q: list[Fraction]) -> list[Fraction]:
    return [a - (q[k] if k < len(q) else 0) for k, a in enumerate(p)]


def _l2_in_units(l2: Fraction, h_limit: int) -> tuple[int, int]:
    """Return how many fraction bits y has beyond h's, and l2 in its units: exactly, if possible."""
    best = (0, max(1, nearest(l2)))
    for bits in range(29):
        value = l2 * (1 << bits)
        if (h_limit << bits) + value >= LARGEST_Y:
            break
        best = (bits, max(1, nearest(value)))
        if value == best[1]:
            break
    return best
