"""Candidate splits: ties, monotone constraints, and the gain of each level.

The constrained features are public. No participant learns the order of the sides of any cut, nor
which cut of another participant's feature wins.
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
"""The last feature's scores are lowered by 2^-20 of themselves. Rounding separates equal scores by
about as much; a larger handicap would be wrong more often if scores are nearly equal."""
FIRST_TABLE_TIE_BREAK_BITS = 19
TOTAL_TIE_BREAK_BITS = 15
"""If the first gradients of an objective have few values, many candidates of the first table have
exactly equal scores. Then scores are lowered by 2^-19 for every earlier feature, which rounding
rarely compensates, and by at most 2^-15 in total."""


@dataclass(frozen=True, eq=False)
class CandidateSplits:
    """The cuts that a table chooses among."""

    feature: IndexArray
    """The feature of every cut: (C,)."""
    bucket: IndexArray
    """The last bucket that goes left: (C,)."""
    argmax_stages: tuple[GroupSizes, ...]
    """The stages of their argmax."""
    carried_values: npt.NDArray[np.int64]
    """The values that they carry through it: the feature for all participants, the bucket for its
    owner."""
    constrained_splits: IndexArray
    """The positions of cuts of constrained features: (M,)."""
    constrained_features: IndexArray
    """The constrained features: each has another score, that of unsplit nodes."""

    @classmethod
    def from_plan(cls, plan: Plan, features: IndexSelection, n_parties: int) -> CandidateSplits:
        """Return the cuts of some features and, with `min_gain`, the candidate without a split.

        The candidate without a split is the only cut of an additional last feature, which the owner
        of the first feature owns.
        """
        cuts, owners = list_cut_counts_and_owners(plan)
        chosen = np.arange(plan.n_features)[features]
        chosen = np.concatenate([chosen, np.arange(plan.n_features, len(cuts))])
        counts = tuple(cuts[j] for j in chosen)
        feature = np.repeat(chosen, counts)
        bucket = np.concatenate([np.arange(count) for count in counts])
        # Plus one, since zero means that there is no value.
        carried = np.zeros((1 + n_parties, len(feature)), dtype=np.int64)
        carried[0] = feature + 1
        owner = np.array(owners)[feature]
        carried[1 + owner, np.arange(len(owner))] = bucket + 1
        signs = np.array([*(plan.monotone or [0] * plan.n_features), 0])
        constrained = np.flatnonzero(signs[feature])
        constrained_features = np.unique(feature[constrained])
        return cls(feature, bucket, plan_stages(counts), carried, constrained, constrained_features)

    @property
    def scored_features(self) -> IndexArray:
        """The feature of every score: those of all cuts, and those of unsplit nodes."""
        return np.concatenate([self.feature, self.constrained_features])

    @property
    def unsplit_positions(self) -> IndexArray:
        """The positions of the scores of unsplit nodes, for each constrained cut: (M,)."""
        positions = np.searchsorted(
            self.constrained_features, self.feature[self.constrained_splits]
        )
        return len(self.feature) + positions


def list_cut_counts_and_owners(plan: Plan) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the cut counts and owners of features, also of the candidate without a split."""
    owners = plan.ownership.features
    if not plan.params.min_gain:
        return plan.cut_counts, owners
    return (*plan.cut_counts, 1), (*owners, owners[0])


def make_argmax_candidates(plan: Plan) -> ArgmaxCandidates:
    """Return the candidates of a level, and the recipients of each part of the result."""
    cuts, owners = list_cut_counts_and_owners(plan)
    receiver = plan.ownership.active if plan.reveal_gain else None
    return ArgmaxCandidates(
        owners, cuts, ("split feature", "split bucket"), receiver, "gain of a test"
    )


def compute_tie_break_factors(plan: Plan, *, is_first_table: bool) -> list[Fraction]:
    """Return the factors on the scores of each feature, slightly less than 1.

    They decrease with the number of the feature, so that ties usually go to the lowest feature, as
    in the reference.
    """
    denominator = plan.n_features << TIE_BREAK_BITS
    if is_first_table and plan.objective.ties_in_first_table:
        denominator = max(1 << FIRST_TABLE_TIE_BREAK_BITS, plan.n_features << TOTAL_TIE_BREAK_BITS)
    factors = [1 - Fraction(j, denominator) for j in range(plan.n_features)]
    return [*factors, Fraction(1)] if plan.params.min_gain else factors


def encode_min_gain(scales: Scales, gain: float) -> int:
    """Return twice a gain in units of compared scores, or a number above all scores."""
    _, ring = scales.comparison_format
    return min(int(2 * Fraction(gain) * compute_score_units(scales)), 1 << (ring.bits - 2))


def compute_score_units(scales: Scales) -> Fraction:
    """Return the units in a compared score that equal a sum of G^2 / y of 1.

    A unit is relative to the bound on y P with the largest P.
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
"""Bits of a revealed score that is as large as those of the first table can be. Later scores are
smaller, and in the same unit."""
_SCORE_MARGIN = 4  # the largest score of a classification in multiples of the first table's


def count_hidden_gain_bits(scales: Scales) -> int:
    """Return the number of low bits of a score that are never revealed."""
    largest = scales.max_score if scales.is_bound_proven else scales.max_score / _SCORE_MARGIN
    return max(1, floor_log2(largest * compute_score_units(scales)) - GAIN_BITS)


class LevelGains:
    """The gains of one table, level by level, at a participant that learns the scores."""

    def __init__(self, scales: Scales) -> None:
        self._unit = float((1 << count_hidden_gain_bits(scales)) / compute_score_units(scales))
        # The score of the root is taken as zero: gradients add up to zero at the start of a table,
        # or nearly so.
        self._scores = [0]

    def add(self, score: int | None) -> None:
        """Add the score of the next level; None if it does not split and the score is unchanged."""
        self._scores.append(self._scores[-1] if score is None else score)

    def compute_gains(self) -> FloatArray:
        """Return the decrease of the loss by each level, to second order: (depth,)."""
        return np.diff(np.array(self._scores)) * (self._unit / 2)


_FINE_BITS = 12
"""Differences are compared to 2^-12 of that of a leaf with a gradient of 1 and a Hessian of 0..."""
_MAX_ORDER_BITS = 48
"""... unless they could be so large that more bits are needed."""
_GUARD_BITS = 4
"""Additional bits with which the gains of nodes are added up before scores are compared."""


class SideOrderScale(NamedTuple):
    """The scale on which the sides of cuts are compared."""

    shift: int
    """The bits that G loses first."""
    dropped_bits: int
    """The bits that a difference loses."""
    ring: Ring
    """The ring in which it is then opened."""

    @classmethod
    def from_scales(cls, scales: Scales) -> SideOrderScale:
        """Choose the scale: a difference is at most the largest G times the largest y plus l2."""
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
        """The number of digits of a comparison."""
        return choose_digit_count(self.ring.bits, factor_bits=96)


def compute_side_orders(
    runtime: Runtime,
    scales: Scales,
    signs: npt.NDArray[np.intp],
    g: tuple[MaskedValue, MaskedValue],
    h: tuple[MaskedValue, MaskedValue],
) -> Share:
    """Return numbers that are negative in nodes whose sides are in the wrong order: (M, K, nodes).

    The inputs are sums left of M cuts, totals, and `signs`, the constraints of the cuts. The right
    side's Newton step less the left one's, -G / y each, has the sign of G_L y_R - G_R y_L, which
    is G_L (y_L + y_R) - (G_L + G_R) y_L. The result must be masked before it is opened.
    """
    scale = SideOrderScale.from_scales(scales)
    ring = get_integer_ring(scale.ring.bits + scale.dropped_bits)
    left_g, total_g = (lift_signed(runtime, x, shift=scale.shift, ring=ring) for x in g)
    left_y, total_y = (lift_regularised_hessian(runtime, scales, x, ring) for x in h)
    values = [left_g, total_y + scales.l2, total_g, left_y]
    difference = polynomial(runtime, values, [(1, (0, 1)), (-1, (2, 3))])
    difference = difference * signs.reshape(-1, 1, 1)
    return truncate_locally(runtime, difference, scale.dropped_bits, scale.ring)


def compute_constrained_scores(
    runtime: Runtime,
    scales: Scales,
    candidates: CandidateSplits,
    by_node: Share,
    side_orders: MaskedValue,
) -> Share:
    """Return the scores of all cuts, (C,), from the scores by node, (scored features, K, nodes).

    A constrained cut has a gain only in nodes whose sides are in the right order: its score there
    less that of the unsplit node.

    Cost: one opening. Reveals: nothing.
    """
    drop, ring = scales.comparison_format
    finer = get_integer_ring(ring.bits + _GUARD_BITS)
    cuts, unsplit = candidates.constrained_splits, candidates.unsplit_positions
    gain = truncate_locally(runtime, by_node[cuts] - by_node[unsplit], drop - _GUARD_BITS, finer)
    scale = SideOrderScale.from_scales(scales)
    # Rounding can take this from a tie.
    slack = (runtime.n_parties + 1) // 2 if scale.dropped_bits else 0
    comparison = compare.defer(
        side_orders + slack, thresholds=(0,), width=scale.ring.bits, digits=scale.n_digits
    )
    in_order, (masked,) = run_together(runtime, comparison, mask.defer(gain))
    added = multiply_by_step(runtime, in_order, masked.to_lifted(), factors=(0, 1)).sum((1, 2))
    added = truncate_locally(runtime, added, _GUARD_BITS, ring)
    base, position = np.arange(len(candidates.feature)), np.zeros(len(candidates.feature), np.intp)
    base[cuts], position[cuts] = unsplit, 1 + np.arange(len(cuts))
    scores = truncate_locally(runtime, by_node[base].sum((1, 2)), drop, ring)
    return scores + concatenate([added[:1] * 0, added])[position]


def order_leaf_values(runtime: Runtime, values: MaskedValue, signs: Sequence[int]) -> MaskedValue:
    """Return leaf values, (K, 2^D), in the order that the constraint of each level requires.

    At each level, if two leaves that differ only in its outcome have values in the wrong order,
    both get their mean. All values are doubled at each level, so that means are exact: the result
    is over a ring of D more bits, in a unit of 2^-D.

    `signs` are the constraints of the levels' features. The dealer does not know them, so it
    generates correlated randomness for both orders, and every level has the same messages.

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
            correction = (down if sign > 0 else up) * abs(sign)
            share = lifted.to_share(runtime)
            sides = [share[:, :, 0] * 2 + correction, share[:, :, 1] * 2 - correction]
            values = mask_value(runtime, stack(sides, axis=2).reshape(*shape))
    return values


def _pairs(values: Elements, level: int) -> Elements:
    """Return leaf values by a level's outcome, on the third axis."""
    return values.reshape(len(values), 1 << level, 2, -1)
