"""What sums of second derivatives, H, are compared with, and what follows from the answers.

Bounds between the classes of y = H + l2, and, where there is one, the least H that counts
(`min_child_weight`). All are compared at once; a sum that does not count is multiplied by 0 where
others are multiplied by the P of their class.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from privet.arithmetic.exact import nearest
from privet.errors import ParameterError
from privet.gates.threshold import usual_digits
from privet.suites.masked.units import Units
from privet.terms.plan import Plan

_FEW_BITS = 6
"""A unit of 1/32 of l2 is fine enough for classes: reciprocals are right a little beyond them."""
_LEAST_BITS = 5
"""But the least that counts is told to an eighth of itself, or better where that costs nothing."""
_TWO_DIGITS, _THREE_DIGITS = 19, 28
"""Up to these widths so many digits do, and every threshold takes as many bits."""


@dataclass(frozen=True)
class Thresholds:
    """Rising thresholds of H without its lowest bits, and factors by how many H reaches."""

    values: tuple[int, ...]
    width: int
    """On how many bits to compare."""
    drop: int
    """How many low bits H loses before."""
    normalising: tuple[int, ...]
    """P of every class: R^(E-e)."""
    factors: tuple[int, ...]
    """The same, and 0 below the least that counts."""
    noisy: bool = False
    """Whether H is off by what lattice masks leave in: counts are wide, then, too."""

    @property
    def digits(self) -> int:
        """How many digits to compare by: few, but for the widest, whose tables would be large."""
        if self.width <= _TWO_DIGITS:
            return 2
        if (self.noisy or self.factors != self.normalising) and self.width <= _THREE_DIGITS:
            return 3
        return usual_digits(self.width)

    @classmethod
    def of(
        cls,
        *,
        h_limit: int,
        counts: bool,
        l2: int,
        y_bits: int,
        ratio: int,
        classes: int,
        least: int,
        noisy: bool = False,
    ) -> Thresholds:
        """Return those of E bounds l2 (R^e - 1), l2 in units of 2^-y_bits, and of the least.

        Counts are compared exactly with the least. Other sums that reach it pass, and so may some
        that do not, by less than two units of what is compared.
        """
        bits = h_limit.bit_length()
        drop = min(bits - 1, max(0, (l2 >> y_bits).bit_length() - _FEW_BITS))
        if least:
            fine = min(bits + 1 - _TWO_DIGITS, least.bit_length() - _LEAST_BITS)
            drop = 0 if counts else min(drop, max(0, fine))
        rising = [l2 * (ratio**e - 1) for e in range(1, classes + 1)]
        values = [max(1, -(-t // (1 << y_bits)) >> drop) for t in rising]
        normalising = [ratio ** (classes - e) for e in range(classes + 1)]
        factors = normalising
        if least:
            reached = least >> drop
            place = bisect_left(values, reached)
            values.insert(place, reached)
            factors = [0] * (place + 1) + normalising[place:]
            normalising = normalising[: place + 1] + normalising[place:]
        width = bits + 1 - drop
        return cls(tuple(values), width, drop, tuple(normalising), tuple(factors), noisy)


def l2_in_units(l2: Fraction, h_limit: int, largest_y: int) -> tuple[int, int]:
    """Return how many fraction bits y has beyond h's, and l2 in its units: exactly, if possible."""
    best = (0, max(1, nearest(l2)))
    for bits in range(29):
        value = l2 * (1 << bits)
        if (h_limit << bits) + value >= largest_y:
            break
        best = (bits, max(1, nearest(value)))
        if value == best[1]:
            break
    return best


def least_in_units(plan: Plan, units: Units) -> int:
    """Return the least sum that counts: what rounding makes of one that does is no less."""
    weight = Fraction(plan.params.min_child_weight)
    most = plan.objective.largest_curvature * plan.n_samples
    if weight > most:
        raise ParameterError(
            f"min_child_weight: {float(weight):g} is more than {plan.n_samples} rows add up to, "
            f"{float(most):g} at most: use less"
        )
    return max(0, ceil(weight * (1 << units.h_bits)) - units.h_slack)
