"""Whether residuals of the rows that a table draws are as small as the units of sums assume.

A table never raises the squared error of the rows that it is trained on, unless constraints put its
leaves in order. It may raise that of the rows that it leaves out. So with either the next table
checks its own: the squares of their first derivatives must add up to no more than
`Objective.largest_squares`.
"""

from __future__ import annotations

from math import isqrt

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share, stack
from privet.gates.masked import Masked, signed_lift
from privet.gates.polynomial import polynomial
from privet.runtime.runtime import Runtime
from privet.suites.masked.units import Units
from privet.terms.plan import Plan

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
