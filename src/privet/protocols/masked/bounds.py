"""Range checks on shared values; a failed check ends the training run.

What is to be checked is compared as it comes, and revealed once a table: how many comparisons came
out as they must. All of them do, unless a share was damaged or the data ask for more than the
protocol can compute.

A table never raises the squared error of the rows that it is trained on, unless constraints put its
leaves in order. It may raise that of the rows that it leaves out. So with either the next table
checks its own: the squares of their first derivatives must add up to no more than
`Objective.max_squared_gradients`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TypeVar

import numpy as np

from privet.arithmetic.rings import Z8, Z64
from privet.arithmetic.shares import Share, concatenate, stack
from privet.errors import ResultError
from privet.gates.arithmetic import reveal_to_all
from privet.gates.gate import DeferredGate, run_deferred, run_together
from privet.gates.masked.comparison import (
    MaskedComparison,
    choose_digit_count,
    compare,
    make_lifted_one,
    multiply_by_step,
)
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.value import MaskedValue, lift_signed
from privet.protocols.masked.precision.rows import GradientUnits
from privet.runtime.runtime import Runtime
from privet.spec.plan import Plan

_Opened = TypeVar("_Opened")
_GROUP_SIZE = 128  # comparisons are counted over Z8


@dataclass(frozen=True)
class RangeCheck:
    """How many comparisons of each group came out as they must, and what they were about."""

    passed_counts: Share
    n_comparisons: int
    problem: str


class RangeChecks:
    """What is checked in one table."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.checks: list[RangeCheck] = []
        """Of all that was compared: by ourselves, or by those who worked for us."""

    def check(
        self, values: MaskedValue, width: int, problem: str, deferred: DeferredGate[_Opened]
    ) -> _Opened:
        """Compare masked values with zero, on the leading bits of their ring: none is below.

        With what else is opened then, which is returned.
        """
        leading = _leading(values, width)
        reached, others = run_together(self._runtime, _defer_comparison(leading, width), deferred)
        self._count(reached, leading, problem)
        return others

    def check_separately(self, values: MaskedValue, width: int, problem: str) -> None:
        """Do the same with nothing else to be opened then."""
        leading = _leading(values, width)
        self._count(
            run_deferred(self._runtime, _defer_comparison(leading, width)), leading, problem
        )

    def _count(self, comparison: MaskedComparison, leading: MaskedValue, what: str) -> None:
        runtime = self._runtime
        within = multiply_by_step(
            runtime, comparison, make_lifted_one(runtime, leading.shape, Z8), factors=(0, 1)
        )
        ends = [*range(_GROUP_SIZE, within.size, _GROUP_SIZE), within.size]
        self.checks.append(RangeCheck(within.sum_slices(ends), within.size, what))

    def reveal_and_require(self, deferred: DeferredGate[_Opened]) -> _Opened:
        """Reveal what was compared; raise ResultError if something is out of its bounds.

        With what else is opened then, which is returned.

        Reveals: how many numbers are within their bounds: all of them, or training ends here.
        """
        counted, self.checks = self.checks, []
        counts = concatenate([each.passed_counts for each in counted])
        telling = reveal_to_all.defer(counts, disclosure="numbers within bounds")
        found, others = run_together(self._runtime, telling, deferred)
        if found is None:
            return others
        start = 0
        for each in counted:
            end = start + len(each.passed_counts)
            if int(np.sum(found[start:end], dtype=np.int64)) != each.n_comparisons:
                raise ResultError(each.problem)
            start = end
        return others


def _leading(values: MaskedValue, width: int) -> MaskedValue:
    return values.map(lambda a: a.reshape(-1)).drop_low_bits(values.ring.bits - width)


def _defer_comparison(leading: MaskedValue, width: int) -> DeferredGate[MaskedComparison]:
    return compare.defer(leading, thresholds=(0,), width=width, digits=choose_digit_count(width))


_FINE = 9
"""Fraction bits that residuals are squared with: what they lose is a part of what is allowed."""


def sum_squared_residuals(
    runtime: Runtime, plan: Plan, units: GradientUnits, residuals: MaskedValue
) -> list[Share]:
    """Return the sums of squares of residuals that are to be within bounds, over Z64.

    None, where there is nothing to check.

    Cost: no opening; corrections of a lifted value and its square for each row and bound.
    """
    found = []
    for drop, _ in plan_residual_checks(plan, units):
        lifted = lift_signed(runtime, residuals, shift=drop + units.g_extra_bits)
        found.append(polynomial(runtime, [lifted], [(1, (0, 0))]).sum())
    return found


def compute_residual_headroom(
    runtime: Runtime, plan: Plan, units: GradientUnits, sums: list[Share]
) -> list[Share]:
    """Return by how much such sums are within their bounds, to be masked: none is negative.

    An array, or nothing where there is nothing to check.
    """
    rooms = [
        runtime.share_public(Z64.to_elements(limit), Z64) - total
        for (_, limit), total in zip(plan_residual_checks(plan, units), sums, strict=True)
    ]
    return [stack(rooms)] if rooms else []


def plan_residual_checks(plan: Plan, units: GradientUnits) -> list[tuple[int, int]]:
    """Return how many bits residuals lose, and what their squares must not add up to more than.

    Residuals are off by up to one unit of what is left. By Minkowski's inequality the root of the
    sum of n squares is off by sqrt(n) units, at most.

    With many rows the sum of such squares might not fit 64 bits, if residuals are as large as their
    ring lets them be. Then they are first shown to be smaller, by squares of fewer bits: if these
    add up to no more than what is allowed, and what they may be off, those of more bits fit.
    """
    if not plan.must_check_residuals:
        return []
    largest = plan.objective.max_squared_gradients(plan.n_samples)
    assert largest is not None
    allowed = largest * units.label_stretch**2 * (1 << (2 * units.g_bits))
    n, fine = plan.n_sampled, units.g_bits - _FINE
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


SCORE_CHECK_BITS = 10
"""Bits on which scores are compared with the largest: to a sixteenth."""
