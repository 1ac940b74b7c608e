"""What is done cut by cut: scores, the best test of a level, leaf values.

This half of a level sees sums, whatever the number of samples, and no row. Its other half is
`samples`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from privet.arithmetic.exact import ceil_log2, nearest
from privet.arithmetic.rings import Z36, Z64, RingArray
from privet.arithmetic.shares import Share, stack
from privet.gates.masked import Masked, combine, mask, mask_one, signed_lift
from privet.gates.polynomial import polynomial
from privet.gates.sigmoid_series import LARGEST_SCORE, SCORE_BITS
from privet.gates.truncate import drop_bits
from privet.runtime.runtime import Runtime
from privet.suites.masked.bounds import Bounds
from privet.suites.masked.quotient import quotient, unit, whole
from privet.suites.masked.samples import Sums, siblings
from privet.suites.masked.scales import Scales
from privet.suites.masked.tournament import best
from privet.terms.plan import Plan

WEIGHT_SHIFT = 31
"""A quotient, below 2^62, loses this many bits before it is multiplied with G again."""
_DROPPED = 28
"""Most of these are dropped from the shares, for less to open."""
GAIN_SHIFT = 2
"""And G so many: it has more to spare than a small weight."""
HANDICAP_BITS = 20
"""The last feature's scores are lowered by 2^-20 of themselves. Rounding makes about as much of
equal ones; a larger handicap would be wrong more often where scores nearly agree."""
FIRST_HANDICAP_BITS = 19
MOST_HANDICAP_BITS = 15
"""But where an objective starts even, many candidates of the first table are equal rather than
nearly so: 2^-19 for every feature before, which rounding rarely makes up for, and 2^-15 in all, at
most."""


class Cuts:
    """The cuts of one table, level by level."""

    def __init__(self, runtime: Runtime, plan: Plan, scales: Scales, *, first: bool) -> None:
        self._runtime = runtime
        self._plan = plan
        self._scales = scales
        self._handicap = handicaps(plan, scales, first=first)
        self._masked: list[Masked] = []
        """Of the level before: sums left of every cut and in all, of g and h."""

    def best_test(self, sums: Sums) -> tuple[int, int]:
        """Return the feature and, to its owner, the bucket of the best test; -1 to the others.

        1. Mask the sums left of every cut, and the nodes' totals; what is right follows.
        2. The score of a cut is the sum over outputs, nodes and sides of G / (H + l2) times G
           (`quotient`, then one more opening).
        3. The best of all cuts of all features (`tournament`).

        Reveals: the feature to all, its bucket to its owner.
        """
        runtime, owners = self._runtime, self._plan.ownership.features
        with runtime.step("scores"):
            scores = self._scores(sums)
        n_features, cuts = scores.shape
        carried = np.zeros((1 + runtime.n_parties, n_features, cuts), dtype=np.int64)
        carried[0] = np.arange(n_features)[:, None]
        carried[1 + np.array(owners), np.arange(n_features)] = np.arange(cuts) + 1
        choice = best(runtime, scores.reshape(-1), carried.reshape(len(carried), -1))
        with runtime.step("reveal"):
            what = ("split feature", "split bucket")
            found = runtime.reveal_choice(choice, owners, cuts, what)
        return (0, -1) if found is None else found

    def _scores(self, sums: Sums) -> Share:
        runtime = self._runtime
        with runtime.step("sums"):
            masked = mask(runtime, sums.g, sums.h, sums.total_g, sums.total_h)
        if self._masked:
            masked = [
                siblings(parent, left, axis=len(left.shape) - 1)
                for parent, left in zip(self._masked, masked, strict=True)
            ]
        self._masked = masked
        left_g, left_h, total_g, total_h = masked
        g, h = _both_sides(left_g, total_g), _both_sides(left_h, total_h)
        weight = quotient(runtime, self._scales, g, h, self._handicap.reshape(1, -1, 1, 1, 1)).value
        with runtime.step("gain"):
            few = mask_one(runtime, drop_bits(runtime, weight, _DROPPED, Z36))
            w = signed_lift(runtime, few, shift=WEIGHT_SHIFT - _DROPPED)
            gain = polynomial(
                runtime, [w, signed_lift(runtime, g, shift=GAIN_SHIFT)], [(1, (0, 1))]
            )
        return gain.sum((0, 3, 4))


def _both_sides(left: Masked, total: Masked) -> Masked:
    """Return what is left and right of every cut: (2, features, cuts, outputs, nodes)."""
    right = total.map(lambda a: a.broadcast_to(left.shape)) - left
    return combine(stack, left, right)


def handicaps(plan: Plan, scales: Scales, *, first: bool) -> RingArray:
    """Return by how much the quotients of each feature are lowered, in parts of `whole`.

    In proportion to its number, so that equal scores tend to go to the lowest, as in the reference.
    """
    last = plan.n_features << HANDICAP_BITS
    if first and plan.objective.even_start:
        last = max(1 << FIRST_HANDICAP_BITS, plan.n_features << MOST_HANDICAP_BITS)
    return Z64.array([whole(scales) * j // last for j in range(plan.n_features)])


class Leaves(NamedTuple):
    """The leaves of a table."""

    values: Share
    """In the units of scores, (K, 2^D)."""
    numerators: Masked
    """What they are quotients of: `check_leaves`."""


def leaf_values(runtime: Runtime, plan: Plan, scales: Scales, g: Share, h: Share) -> Leaves:
    """Return the values of leaves from their sums, (K, 2^D).

    -G / (H + l2), times the learning rate and the unit, rounded at random.
    """
    with runtime.step("leaves"):
        masked_g, masked_h = mask(runtime, g, h)
        weight = quotient(runtime, scales, masked_g, masked_h, ring=scales.wide_ring)
        w = signed_lift(runtime, mask_one(runtime, weight.value), shift=WEIGHT_SHIFT)
        factor, bits = leaf_factor(plan, scales)
        scaled = mask_one(runtime, polynomial(runtime, [w], [(-factor, (0,))]))
        values = polynomial(runtime, [signed_lift(runtime, scaled, shift=bits)], [(1, (0,))])
        return Leaves(values, weight.numerator)


def leaf_factor(plan: Plan, scales: Scales) -> tuple[int, int]:
    """Return what turns a quotient into a leaf value, and how many fraction bits that has.

    The learning rate and the quotient's unit, in as many bits as the product with 2^30 leaves.
    """
    rate = Fraction(plan.params.learning_rate)
    value = rate * unit(scales) * (1 << (WEIGHT_SHIFT + SCORE_BITS))
    bits = min(32, 30 - max(0, ceil_log2(value)))
    return nearest(value, bits), bits


def largest_leaf(plan: Plan) -> Fraction:
    """Return what no leaf value passes: what the largest weight gives, or moves a score too far."""
    return min(plan.largest_leaf, Fraction(LARGEST_SCORE))


def check_leaves(
    bounds: Bounds, plan: Plan, scales: Scales, leaves: Leaves, values: Masked
) -> None:
    """Compare what leaf values are quotients of, and the values, with their bounds.

    No quotient beyond twice the largest weight passes, and so none whose value has wrapped around.
    A value moves a score by no more than what the sigmoid is right for.
    """
    largest = largest_leaf(plan)
    what = f"leaf values of {float(largest):g} and more in size"
    bounds.check_sizes(
        (leaves.numerators, scales.largest_numerator, what),
        (values, nearest(largest, SCORE_BITS), what),
    )
