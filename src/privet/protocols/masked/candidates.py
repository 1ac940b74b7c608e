"""Candidate splits: ties, monotone constraints, and the gain of each level.

Which features are constrained, all know; which cut of them wins, and in which order anything was,
nobody learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privet.arithmetic.fixed_point import ceil_log2, floor_log2
from privet.arithmetic.rings import Ring, get_integer_ring
from privet.arithmetic.shares import Elements, Share, concatenate, stack
from privet.arrays import FloatArray, IndexArray, IndexSelection
from privet.gates.arithmetic import truncate_locally
from privet.gates.gate import run_together
from privet.gates.masked.comparison import choose_digit_count, compare, multiply_by_step
from privet.gates.masked.functions import RECIPROCAL_HIGH
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.value import MaskedValue, lift_signed, mask, mask_value
from privet.protocols.masked.argmax import GroupSizes, plan_stages
from privet.protocols.masked.leaves import lift_regularised_hessian
from privet.protocols.masked.precision.scores import Scales
from privet.runtime.runtime import ArgmaxCandidates, Runtime
from privet.spec.plan import Plan

TIE_BREAK_BITS = 20
"""The last feature's scores are lowered by 2^-20 of themselves. Rounding makes about as much of
equal ones; a larger handicap would be wrong more often where scores nearly agree."""
FIRST_TABLE_TIE_BREAK_BITS = 19
TOTAL_TIE_BREAK_BITS = 15
"""But where an objective starts even, many candidates of the first table are equal rather than
nearly so: 2^-19 for every feature before, which rounding rarely makes up for, and 2^-15 in all, at
most."""


@dataclass(frozen=True, eq=False)
class CandidateSplits:
    """The cuts that a table chooses among."""

    feature: IndexArray
    """The feature of every cut: (C,)."""
    bucket: IndexArray
    """The last bucket that passes: (C,)."""
    argmax_stages: tuple[GroupSizes, ...]
    """Of their tournament."""
    carried_values: npt.NDArray[np.int64]
    """What they carry through it: for all, a feature; for its owner, the bucket."""
    constrained_splits: IndexArray
    """Which of the cuts are of constrained features: (M,)."""
    constrained_features: IndexArray
    """The constrained features: each is scored once more, as if it did not split nodes."""

    @classmethod
    def from_plan(cls, plan: Plan, features: IndexSelection, n_parties: int) -> CandidateSplits:
        """Return the cuts of some features, and to test nothing, if a test must gain something.

        To test nothing is the one cut of a feature beyond all, which goes to the first one's owner.
        """
        cuts, owners = list_cut_counts_and_owners(plan)
        chosen = np.arange(plan.n_features)[features]
        chosen = np.concatenate([chosen, np.arange(plan.n_features, len(cuts))])
        counts = tuple(cuts[j] for j in chosen)
        feature = np.repeat(chosen, counts)
        bucket = np.concatenate([np.arange(count) for count in counts])
        # Plus one, since zero is nothing.
        carried = np.zeros((1 + n_parties, len(feature)), dtype=np.int64)
        carried[0] = feature + 1
        owner = np.array(owners)[feature]
        carried[1 + owner, np.arange(len(owner))] = bucket + 1
        signs = np.array([*(plan.monotone or [0] * plan.n_features), 0])
        constrained = np.flatnonzero(signs[feature])
        whole = np.unique(feature[constrained])
        return cls(feature, bucket, plan_stages(counts), carried, constrained, whole)

    @property
    def scored_features(self) -> IndexArray:
        """The feature of everything that is scored: of all cuts, and of what does not split."""
        return np.concatenate([self.feature, self.constrained_features])

    @property
    def unsplit_positions(self) -> IndexArray:
        """Where constrained cuts find what is scored of nodes that they do not split: (M,)."""
        found = np.searchsorted(self.constrained_features, self.feature[self.constrained_splits])
        return len(self.feature) + found


def list_cut_counts_and_owners(plan: Plan) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many cuts features have, and who owns them: also of what tests nothing."""
    owners = plan.ownership.features
    if not plan.params.min_gain:
        return plan.cut_counts, owners
    return (*plan.cut_counts, 1), (*owners, owners[0])


def make_argmax_candidates(plan: Plan) -> ArgmaxCandidates:
    """Return what is chosen among at a level, and who learns what of the choice."""
    cuts, owners = list_cut_counts_and_owners(plan)
    receiver = plan.ownership.active if plan.reveal_gain else None
    return ArgmaxCandidates(
        owners, cuts, ("split feature", "split bucket"), receiver, "gain of a test"
    )


def compute_tie_break_factors(plan: Plan, *, is_first_table: bool) -> list[Fraction]:
    """Return what the scores of each feature are multiplied with: a little less than 1.

    Lowered in proportion to its number, so that equal scores tend to go to the lowest, as in the
    reference.
    """
    last = plan.n_features << TIE_BREAK_BITS
    if is_first_table and plan.objective.ties_in_first_table:
        last = max(1 << FIRST_TABLE_TIE_BREAK_BITS, plan.n_features << TOTAL_TIE_BREAK_BITS)
    found = [1 - Fraction(j, last) for j in range(plan.n_features)]
    return [*found, Fraction(1)] if plan.params.min_gain else found


def encode_min_gain(scales: Scales, gain: float) -> int:
    """Return what raises a score by twice a gain, or by more than any score has."""
    _, ring = scales.comparison_format
    return min(int(2 * Fraction(gain) * compute_score_units(scales)), 1 << (ring.bits - 2))


def compute_score_units(scales: Scales) -> Fraction:
    """Return what a sum of G^2 / y of 1 is among scores that are compared.

    Their unit is one of what y P is below, P being the largest factor's.
    """
    drop, _ = scales.comparison_format
    bits = (
        scales.square_fraction_bits
        - scales.square_dropped_bits
        + scales.opened_reciprocal_bits
        - drop
    )
    return (scales.max_normalised_hessian / RECIPROCAL_HIGH) * Fraction(2) ** bits


GAIN_BITS = 16
"""Bits of a score that are told, where it is as large as the first table's can be: later ones are
smaller, in the same unit."""
_SCORE_MARGIN = 4  # times what a classification starts from, scores are still computed with


def count_hidden_gain_bits(scales: Scales) -> int:
    """Return how many low bits of a score nobody is told."""
    largest = scales.max_score if scales.is_bound_proven else scales.max_score / _SCORE_MARGIN
    return max(1, floor_log2(largest * compute_score_units(scales)) - GAIN_BITS)


class LevelGains:
    """The gains of one table, level by level, as far as somebody is told the scores."""

    def __init__(self, scales: Scales) -> None:
        self._unit = float((1 << count_hidden_gain_bits(scales)) / compute_score_units(scales))
        # The score of the one node before the first test is taken as zero: tables start where first
        # derivatives add up to zero, or nearly so.
        self._scores = [0]

    def add(self, score: int | None) -> None:
        """Take the score of the next level; None, if it tests nothing: then nodes stay alike."""
        self._scores.append(self._scores[-1] if score is None else score)

    def found(self) -> FloatArray:
        """Return by how much each level lowers the loss, to second order: (depth,)."""
        return np.diff(np.array(self._scores)) * (self._unit / 2)


_FINE_BITS = 12
"""Differences are told apart to 2^-12 of those of a leaf with a derivative of 1 and no curvature
but l2..."""
_MAX_ORDER_BITS = 48
"""... unless they could be so large that this takes more bits."""
_GUARD_BITS = 4
"""What nodes gain is added up with so many bits more than scores are compared with."""


class SideOrderScale(NamedTuple):
    """How the sides of cuts are compared."""

    shift: int
    """How many bits G loses first."""
    dropped_bits: int
    """How many bits a difference loses."""
    ring: Ring
    """The ring that it is opened in then."""

    @classmethod
    def from_scales(cls, scales: Scales) -> SideOrderScale:
        """Choose it: a difference is at most the largest G times the largest y, and l2 more."""
        units = scales.units
        largest = units.max_gradient_sum * (
            (units.max_hessian_sum << scales.y_bits) + 2 * scales.l2
        )
        bits = ceil_log2(largest) + 2
        shift = max(0, bits - 64)
        bits -= shift
        unit = (scales.l2 << units.g_bits) >> (shift + _FINE_BITS)
        drop = max(bits - _MAX_ORDER_BITS, floor_log2(unit) if unit else 0, 0)
        return cls(shift, drop, get_integer_ring(bits - drop))

    @property
    def n_digits(self) -> int:
        """How many digits to compare by."""
        return choose_digit_count(self.ring.bits, factor_bits=96)


def compute_side_orders(
    runtime: Runtime,
    scales: Scales,
    signs: npt.NDArray[np.intp],
    g: tuple[MaskedValue, MaskedValue],
    h: tuple[MaskedValue, MaskedValue],
) -> Share:
    """Return what is negative in nodes whose sides are in the wrong order: (M, K, nodes).

    Of the sums left of M cuts, and in all; `signs` are the constraints of the cuts. The right
    side's Newton step less the left one's, -G / y each, has the sign of G_L y_R - G_R y_L, which
    is G_L (y_L + y_R) - (G_L + G_R) y_L. To be masked.
    """
    scale = SideOrderScale.from_scales(scales)
    ring = get_integer_ring(scale.ring.bits + scale.dropped_bits)
    left_g, total_g = (lift_signed(runtime, x, shift=scale.shift, ring=ring) for x in g)
    left_y, total_y = (lift_regularised_hessian(runtime, scales, x, ring) for x in h)
    values = [left_g, total_y + scales.l2, total_g, left_y]
    found = polynomial(runtime, values, [(1, (0, 1)), (-1, (2, 3))])
    found = found * signs.reshape(-1, 1, 1)
    return truncate_locally(runtime, found, scale.dropped_bits, scale.ring)


def compute_constrained_scores(
    runtime: Runtime,
    scales: Scales,
    candidates: CandidateSplits,
    by_node: Share,
    side_orders: MaskedValue,
) -> Share:
    """Return the scores of all cuts, (C,), from what nodes add to all that is scored.

    A constrained cut gains something in nodes whose sides are in order: what it adds there beyond
    what the node adds as a whole.

    Cost: one opening. Reveals: nothing.
    """
    drop, ring = scales.comparison_format
    finer = get_integer_ring(ring.bits + _GUARD_BITS)
    cuts, whole = candidates.constrained_splits, candidates.unsplit_positions
    gain = truncate_locally(runtime, by_node[cuts] - by_node[whole], drop - _GUARD_BITS, finer)
    scale = SideOrderScale.from_scales(scales)
    slack = (
        (runtime.n_parties + 1) // 2 if scale.dropped_bits else 0
    )  # what rounding may take from a tie
    comparing = compare.defer(
        side_orders + slack, thresholds=(0,), width=scale.ring.bits, digits=scale.n_digits
    )
    reached, (masked,) = run_together(runtime, comparing, mask.defer(gain))
    kept = multiply_by_step(runtime, reached, masked.to_lifted(), factors=(0, 1)).sum((1, 2))
    kept = truncate_locally(runtime, kept, _GUARD_BITS, ring)
    base, place = np.arange(len(candidates.feature)), np.zeros(len(candidates.feature), np.intp)
    base[cuts], place[cuts] = whole, 1 + np.arange(len(cuts))
    scores = truncate_locally(runtime, by_node[base].sum((1, 2)), drop, ring)
    return scores + concatenate([kept[:1] * 0, kept])[place]


def order_leaf_values(runtime: Runtime, values: MaskedValue, signs: Sequence[int]) -> MaskedValue:
    """Return leaf values, (K, 2^D), in the order that each level's test asks for.

    For each level: where of two leaves that differ in its outcome alone the values are in the wrong
    order, both take their mean. To be exact, all values are doubled at each level: the result is in
    a ring of D bits more, and in a unit of 2^-D.

    `signs` are those of the features that levels test. The dealer does not know them, so it deals
    for both orders, and every level takes the same messages.

    Cost: two openings a level. Reveals: nothing. Error: none.
    """
    shape = values.shape
    for level, sign in enumerate(signs):
        with runtime.step("level", level):
            pairs = values.map(partial(_pairs, level=level))
            wider = get_integer_ring(values.ring.bits + 1)
            lifted = lift_signed(runtime, pairs, ring=wider)
            rise = pairs.map(lambda a: a[:, :, 1] - a[:, :, 0])
            width = values.ring.bits
            reached = compare(
                runtime, rise, thresholds=(0,), width=width, digits=choose_digit_count(width)
            )
            difference = lifted.map(lambda a: a[:, :, 1]) - lifted.map(lambda a: a[:, :, 0])
            up = multiply_by_step(runtime, reached, difference, factors=(0, 1))
            down = difference.to_share(runtime) - up
            wrong = (down if sign > 0 else up) * abs(sign)
            share = lifted.to_share(runtime)
            sides = [share[:, :, 0] * 2 + wrong, share[:, :, 1] * 2 - wrong]
            values = mask_value(runtime, stack(sides, axis=2).reshape(*shape))
    return values


def _pairs(values: Elements, level: int) -> Elements:
    """Return leaf values by a level's outcome, on the third axis."""
    return values.reshape(len(values), 1 << level, 2, -1)
