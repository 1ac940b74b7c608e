"""Range checks on shared values; a failed check ends the training run.

What is to be checked is compared as it comes, and revealed once a table: how many comparisons came
out as they must. All of them do, unless a share was damaged or the data ask for more than the
protocol can compute.

A table never raises the squared error of the rows that it is trained on, unless constraints put its
leaves in order. It may raise that of the rows that it leaves out. So with either the next table
checks its own: the squares of their first derivatives must add up to no more than
`Objective.largest_squares`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TypeVar

import numpy as np

from privet.arithmetic.rings import Z8, Z64
from privet.arithmetic.shares import Share, concatenate, stack
from privet.errors import ResultError
from privet.gates.arithmetic import tell_all
from privet.gates.gate import Later, alone, together
from privet.gates.masked.comparison import Comparison, compare, one, step, usual_digits
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.value import Masked, signed_lift
from privet.protocols.masked.precision.rows import Units
from privet.runtime.runtime import Runtime
from privet.spec.plan import Plan

_Opened = TypeVar("_Opened")
_GROUP = 128  # comparisons are counted over Z8


@dataclass(frozen=True)
class Counted:
    """How many comparisons of each group came out as they must, and what they were about."""

    counts: Share
    comparisons: int
    what: str


class Bounds:
    """What is checked in one table."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.counted: list[Counted] = []
        """Of all that was compared: by ourselves, or by those who worked for us."""

    def check(self, values: Masked, width: int, what: str, beside: Later[_Opened]) -> _Opened:
        """Compare masked values with zero, on the leading bits of their ring: none is below.

        With what else is opened then, which is returned.
        """
        leading = _leading(values, width)
        reached, others = together(self._runtime, _comparing(leading, width), beside)
        self._count(reached, leading, what)
        return others

    def check_alone(self, values: Masked, width: int, what: str) -> None:
        """Do the same with nothing else to be opened then."""
        leading = _leading(values, width)
        self._count(alone(self._runtime, _comparing(leading, width)), leading, what)

    def _count(self, reached: Comparison, leading: Masked, what: str) -> None:
        runtime = self._runtime
        within = step(runtime, reached, one(runtime, leading.shape, Z8), factors=(0, 1))
        ends = [*range(_GROUP, within.size, _GROUP), within.size]
        self.counted.append(Counted(within.sum_slices(ends), within.size, what))

    def settle(self, beside: Later[_Opened]) -> _Opened:
        """Reveal what was compared; raise ResultError if something is out of its bounds.

        With what else is opened then, which is returned.

        Reveals: how many numbers are within their bounds: all of them, or training ends here.
        """
        counted, self.counted = self.counted, []
        counts = concatenate([each.counts for each in counted])
        telling = tell_all.later(counts, what="numbers within bounds")
        found, others = together(self._runtime, telling, beside)
        if found is None:
            return others
        start = 0
        for each in counted:
            end = start + len(each.counts)
            if int(np.sum(found[start:end], dtype=np.int64)) != each.comparisons:
                raise ResultError(each.what)
            start = end
        return others


def _leading(values: Masked, width: int) -> Masked:
    return values.map(lambda a: a.reshape(-1)).high_bits(values.ring.bits - width)


def _comparing(leading: Masked, width: int) -> Later[Comparison]:
    return compare.later(leading, thresholds=(0,), width=width, digits=usual_digits(width))


_FINE = 9
"""Fraction bits that residuals are squared with: what they lose is a part of what is allowed."""


def sums_of_squares(runtime: Runtime, plan: Plan, units: Units, residuals: Masked) -> list[Share]:
    """Return the sums of squares of residuals that are to be within bounds, over Z64.

    None, where there is nothing to check.

    Cost: no opening; corrections of a lifted value and its square for each row and bound.
    """
    found = []
    for drop, _ in bounds_of_squares(plan, units):
        lifted = signed_lift(runtime, residuals, shift=drop + units.g_more)
        found.append(polynomial(runtime, [lifted], [(1, (0, 0))]).sum())
    return found


def squares_room(runtime: Runtime, plan: Plan, units: Units, sums: list[Share]) -> list[Share]:
    """Return by how much such sums are within their bounds, to be masked: none is negative.

    An array, or nothing where there is nothing to check.
    """
    rooms = [
        runtime.public(Z64.array(limit), Z64) - total
        for (_, limit), total in zip(bounds_of_squares(plan, units), sums, strict=True)
    ]
    return [stack(rooms)] if rooms else []


def bounds_of_squares(plan: Plan, units: Units) -> list[tuple[int, int]]:
    """Return how many bits residuals lose, and what their squares must not add up to more than.

    Residuals are off by up to one unit of what is left. By Minkowski's inequality the root of the
    sum of n squares is off by sqrt(n) units, at most.

    With many rows the sum of such squares might not fit 64 bits, if residuals are as large as their
    ring lets them be. Then they are first shown to be smaller, by squares of fewer bits: if these
    add up to no more than what is allowed, and what they may be off, those of more bits fit.
    """
    if not plan.checks_squares:
        return []
    largest = plan.objective.largest_squares(plan.n_samples)
    assert largest is not None
    allowed = largest * units.stretch**2 * (1 << (2 * units.g_bits))
    n, fine = plan.n_drawn, units.g_bits - _FINE
    off = isqrt(n) + 1
    # What is beyond the signed numbers of a ring is lifted to three times their size, at most.
    each = 3 << (units.g_ring.bits - 2)
    drop = fine
    while n * ((each >> drop) + 2) ** 2 >= 1 << 63:
        drop += 1
    found = []
    while drop > fine:
        root = isqrt(int(allowed / (1 << (2 * drop)))) + 1 + off
        found.append((drop, root**2))
        # What squares that pass are the squares of, at most; it is off by as much again.
        known = (root + 1 + off) << drop
        drop = fine
        while ((known >> drop) + 1 + off) ** 2 >= 1 << 63:
            drop += 1
    return [*found, (fine, (isqrt(int(allowed / (1 << (2 * fine)))) - off) ** 2)]


SCORE_WIDTH = 10
"""Bits on which scores are compared with the largest: to a sixteenth."""
