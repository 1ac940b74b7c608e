"""Whether squares fit what they are opened in: sums of them that cannot wrap, whatever the data.

The squares G^2 P of a cut are opened in a ring that scores of sensible data fit. Where no fact says
so, they are added up once more, coarsely, in a ring that any data fit.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import NamedTuple

from privet.arithmetic.exact import ceil_log2, floor_log2
from privet.suites.masked.thresholds import Thresholds
from privet.suites.masked.units import Units

WORD = 64
_OF_LOW = Fraction(1, 8)
"""What part of all that is allowed is that of classes of small y, if these are checked apart."""


class CoarseSum(NamedTuple):
    """A sum over a cut's sides of G^2, coarsely, times what depends on the class of y."""

    factors: tuple[int, ...]
    """By the class of y, and whether it counts."""
    drop: int
    """The bits that G loses."""
    limit: int
    """What the sum must not pass."""
    bits: int
    """Of a ring that it cannot leave."""


def coarse_sums(
    units: Units,
    thresholds: Thresholds,
    allowed: Fraction,
    *,
    common: int,
    sides: int,
    outputs: int,
) -> tuple[CoarseSum, ...]:
    """Return sums of the squares of a cut that tell whether all of them add up to what is allowed.

    One sum of all classes, if a word has room for squares that are as large as they can be in a
    class of small y. With wide sums that need more, one of such classes, without a common factor of
    what these are multiplied with, and one of the others: few of all samples are in nodes of small
    y, so that an eighth of what is allowed is theirs.
    """
    factors, largest = thresholds.factors, thresholds.normalising[0]
    whole = _coarse_sum(units, factors, largest, allowed, sides, outputs)
    if not units.wide or whole.bits <= WORD:
        return (whole,)
    low = tuple(f // common if f > common else 0 for f in factors)
    high = tuple(f if f <= common else 0 for f in factors)
    of_low = _OF_LOW * allowed
    return (
        _coarse_sum(units, low, largest // common, of_low / common, sides, outputs),
        _coarse_sum(units, high, common, allowed - of_low, sides, outputs),
    )


def _coarse_sum(
    units: Units,
    factors: tuple[int, ...],
    largest_factor: int,
    allowed: Fraction,
    sides: int,
    outputs: int,
) -> CoarseSum:
    """Return a sum of squares times factors.

    Nodes share no sample, so that the squares of an output add up to no more than that of the
    largest sum; outputs have the same samples, so each may. G is off by up to one unit; by
    Minkowski's inequality the root of the sum is off by that of the factors', which is a quarter of
    it at most.
    """
    steps = sides * largest_factor
    wanted = floor_log2(allowed / steps) // 2 - 2
    drop = min(wanted + units.g_bits, units.g_ring.bits - 2)
    most = allowed * Fraction(4) ** (units.g_bits - drop)
    # The square of the difference of roots; twice their product to 2^-20, rounded up.
    twice = Fraction(isqrt(int(4 * most * steps * (1 << 40))) + 1, 1 << 20)
    largest = (Fraction(units.g_limit) / Fraction(2) ** drop + 1) ** 2
    bits = ceil_log2(max(most, outputs * largest * largest_factor)) + 2
    return CoarseSum(factors, drop, int(most + steps - twice), bits)
