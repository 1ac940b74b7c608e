"""Range checks on shared values; a failed check ends the training run.

Values are compared when they are computed. Once a table, the number of passed comparisons is
revealed. All of them pass, unless a share was corrupted or the data exceed the range in which the
protocol can compute.

A table never raises the squared error of the rows that it is trained on, unless constraints put its
leaf values in order. It can raise that of the rows that it leaves out. Therefore, with either, the
next table checks its rows: their squared gradients must add up to at most
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
    """The number of passed comparisons of each group, and the problem if one fails."""

    passed_counts: Share
    n_comparisons: int
    problem: str


class RangeChecks:
    """The range checks of one table."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.checks: list[RangeCheck] = []
        """All comparisons, of this runtime and of its workers."""

    def check(
        self, values: MaskedValue, width: int, problem: str, deferred: DeferredGate[_Opened]
    ) -> _Opened:
        """Check that masked values are at least zero, on the leading bits of their ring.

        The deferred gate runs in the same opening; its result is returned.
        """
        leading = _get_leading_bits(values, width)
        reached, result = run_together(self._runtime, _defer_comparison(leading, width), deferred)
        self._count(reached, leading, problem)
        return result

    def check_separately(self, values: MaskedValue, width: int, problem: str) -> None:
        """Check values in an opening without another gate."""
        leading = _get_leading_bits(values, width)
        self._count(
            run_deferred(self._runtime, _defer_comparison(leading, width)), leading, problem
        )

    def _count(self, comparison: MaskedComparison, leading: MaskedValue, problem: str) -> None:
        runtime = self._runtime
        within = multiply_by_step(
            runtime, comparison, make_lifted_one(runtime, leading.shape, Z8), factors=(0, 1)
        )
        ends = [*range(_GROUP_SIZE, within.size, _GROUP_SIZE), within.size]
        self.checks.append(RangeCheck(within.sum_slices(ends), within.size, problem))

    def reveal_and_require(self, deferred: DeferredGate[_Opened]) -> _Opened:
        """Reveal the results of all checks; raise ResultError if a number is out of range.

        The deferred gate runs in the same opening; its result is returned.

        Reveals: how many numbers are in range: all of them, or training ends here.
        """
        checks, self.checks = self.checks, []
        counts = concatenate([each.passed_counts for each in checks])
        revealing = reveal_to_all.defer(counts, disclosure="numbers within bounds")
        revealed, result = run_together(self._runtime, revealing, deferred)
        if revealed is None:
            return result
        start = 0
        for each in checks:
            end = start + len(each.passed_counts)
            if int(np.sum(revealed[start:end], dtype=np.int64)) != each.n_comparisons:
                raise ResultError(each.problem)
            start = end
        return result


def _get_leading_bits(values: MaskedValue, width: int) -> MaskedValue:
    return values.map(lambda a: a.reshape(-1)).drop_low_bits(values.ring.bits - width)


def _defer_comparison(leading: MaskedValue, width: int) -> DeferredGate[MaskedComparison]:
    return compare.defer(leading, thresholds=(0,), width=width, digits=choose_digit_count(width))


_FINE = 9
"""Fraction bits with which residuals are squared: rounding is a small part of the allowed sum."""


def sum_squared_residuals(
    runtime: Runtime, plan: Plan, units: GradientUnits, residuals: MaskedValue
) -> list[Share]:
    """Return the sums of squared residuals that must be in range, over Z64.

    The list is empty if the plan needs no check.

    Cost: no opening; corrections of a lifted value and its square for each row and bound.
    """
    sums = []
    for drop, _ in plan_residual_checks(plan, units):
        lifted = lift_signed(runtime, residuals, shift=drop + units.g_extra_bits)
        sums.append(polynomial(runtime, [lifted], [(1, (0, 0))]).sum())
    return sums


def compute_residual_headroom(
    runtime: Runtime, plan: Plan, units: GradientUnits, sums: list[Share]
) -> list[Share]:
    """Return the headroom of such sums below their limits, to be masked: none is negative.

    The list contains one array, or none if the plan needs no check.
    """
    headroom = [
        runtime.share_public(Z64.to_elements(limit), Z64) - total
        for (_, limit), total in zip(plan_residual_checks(plan, units), sums, strict=True)
    ]
    return [stack(headroom)] if headroom else []


def plan_residual_checks(plan: Plan, units: GradientUnits) -> list[tuple[int, int]]:
    """Return, for each check, the bits that residuals lose and the limit of the sum of squares.

    The error of a residual is at most one unit of its remaining bits. By Minkowski's inequality the
    error of the root of a sum of n squares is at most sqrt(n) units.

    With many rows the sum of such squares might not fit 64 bits, if residuals are as large as their
    ring allows. Then a first check on squares of fewer bits shows that residuals are smaller: if
    these squares add up to at most the allowed sum plus their error, those of more bits fit.
    """
    if not plan.must_check_residuals:
        return []
    largest = plan.objective.max_squared_gradients(plan.n_samples)
    assert largest is not None
    allowed = largest * units.label_stretch**2 * (1 << (2 * units.g_bits))
    n, fine = plan.n_sampled, units.g_bits - _FINE
    error = isqrt(n) + 1
    # A number beyond the signed numbers of a ring is lifted to at most three times their size.
    max_residual = 3 << (units.g_ring.bits - 2)
    drop = fine
    while n * ((max_residual >> drop) + 2) ** 2 >= 1 << 63:
        drop += 1
    checks = []
    while drop > fine:
        root = isqrt(int(allowed / (1 << (2 * drop)))) + 1 + error
        checks.append((drop, root**2))
        # A bound on the root of the sum of squares if the check passes, with its error once more.
        max_root = (root + 1 + error) << drop
        drop = fine
        while ((max_root >> drop) + 1 + error) ** 2 >= 1 << 63:
            drop += 1
    return [*checks, (fine, (isqrt(int(allowed / (1 << (2 * fine)))) - error) ** 2)]


SCORE_CHECK_BITS = 10
"""Bits on which scores are compared with the largest one: to a sixteenth."""
