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
from privet.arithmetic.rings import Ring, integers_modulo
from privet.arithmetic.shares import Elements, Share, concatenate, stack
from privet.arrays import FloatArray, IndexArray, Indices
from privet.gates.arithmetic import drop_bits
from privet.gates.gate import together
from privet.gates.masked.comparison import compare, step, usual_digits
from privet.gates.masked.functions import HIGH
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.value import Masked, mask, mask_one, signed_lift
from privet.protocols.masked.argmax import Sizes, stages
from privet.protocols.masked.leaves import lifted_y
from privet.protocols.masked.precision.scores import Scales
from privet.runtime.runtime import Runtime, Things
from privet.spec.plan import Plan

HANDICAP_BITS = 20
"""The last feature's scores are lowered by 2^-20 of themselves. Rounding makes about as much of
equal ones; a larger handicap would be wrong more often where scores nearly agree."""
FIRST_HANDICAP_BITS = 19
MOST_HANDICAP_BITS = 15
"""But where an objective starts even, many candidates of the first table are equal rather than
nearly so: 2^-19 for every feature before, which rounding rarely makes up for, and 2^-15 in all, at
most."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The cuts that a table chooses among."""

    feature: IndexArray
    """The feature of every cut: (C,)."""
    bucket: IndexArray
    """The last bucket that passes: (C,)."""
    stages: tuple[Sizes, ...]
    """Of their tournament."""
    carried: npt.NDArray[np.int64]
    """What they carry through it: for all, a feature; for its owner, the bucket."""
    constrained: IndexArray
    """Which of the cuts are of constrained features: (M,)."""
    whole: IndexArray
    """The constrained features: each is scored once more, as if it did not split nodes."""

    @classmethod
    def of(cls, plan: Plan, features: Indices, n_parties: int) -> Candidates:
        """Return the cuts of some features, and to test nothing, if a test must gain something.

        To test nothing is the one cut of a feature beyond all, which goes to the first one's owner.
        """
        cuts, owners = candidate_features(plan)
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
        return cls(feature, bucket, stages(counts), carried, constrained, whole)

    @property
    def scored(self) -> IndexArray:
        """The feature of everything that is scored: of all cuts, and of what does not split."""
        return np.concatenate([self.feature, self.whole])

    @property
    def whole_of(self) -> IndexArray:
        """Where constrained cuts find what is scored of nodes that they do not split: (M,)."""
        found = np.searchsorted(self.whole, self.feature[self.constrained])
        return len(self.feature) + found


def candidate_features(plan: Plan) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many cuts features have, and who owns them: also of what tests nothing."""
    owners = plan.ownership.features
    if not plan.params.min_gain:
        return plan.cuts, owners
    return (*plan.cuts, 1), (*owners, owners[0])


def things_to_test(plan: Plan) -> Things:
    """Return what is chosen among at a level, and who learns what of the choice."""
    cuts, owners = candidate_features(plan)
    receiver = plan.ownership.active if plan.reveal_gain else None
    return Things(owners, cuts, ("split feature", "split bucket"), receiver, "gain of a test")


def handicaps(plan: Plan, *, first: bool) -> list[Fraction]:
    """Return what the scores of each feature are multiplied with: a little less than 1.

    Lowered in proportion to its number, so that equal scores tend to go to the lowest, as in the
    reference.
    """
    last = plan.n_features << HANDICAP_BITS
    if first and plan.objective.even_start:
        last = max(1 << FIRST_HANDICAP_BITS, plan.n_features << MOST_HANDICAP_BITS)
    found = [1 - Fraction(j, last) for j in range(plan.n_features)]
    return [*found, Fraction(1)] if plan.params.min_gain else found


def raised_by(scales: Scales, gain: float) -> int:
    """Return what raises a score by twice a gain, or by more than any score has."""
    _, ring = scales.compared
    return min(int(2 * Fraction(gain) * units_of_score(scales)), 1 << (ring.bits - 2))


def units_of_score(scales: Scales) -> Fraction:
    """Return what a sum of G^2 / y of 1 is among scores that are compared.

    Their unit is one of what y P is below, P being the largest factor's.
    """
    drop, _ = scales.compared
    bits = scales.square_bits - scales.square_drop + scales.z_bits - drop
    return (scales.product_limit / HIGH) * Fraction(2) ** bits


GAIN_BITS = 16
"""Bits of a score that are told, where it is as large as the first table's can be: later ones are
smaller, in the same unit."""
_BEYOND = 4  # times what a classification starts from, scores are still computed with


def told_drop(scales: Scales) -> int:
    """Return how many low bits of a score nobody is told."""
    largest = scales.score_limit if scales.proven else scales.score_limit / _BEYOND
    return max(1, floor_log2(largest * units_of_score(scales)) - GAIN_BITS)


class Gains:
    """The gains of one table, level by level, as far as somebody is told the scores."""

    def __init__(self, scales: Scales) -> None:
        self._unit = float((1 << told_drop(scales)) / units_of_score(scales))
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
_MOST_BITS = 48
"""... unless they could be so large that this takes more bits."""
_GUARD_BITS = 4
"""What nodes gain is added up with so many bits more than scores are compared with."""


class RiseScale(NamedTuple):
    """How the sides of cuts are compared."""

    shift: int
    """How many bits G loses first."""
    drop: int
    """How many bits a difference loses."""
    ring: Ring
    """The ring that it is opened in then."""

    @classmethod
    def of(cls, scales: Scales) -> RiseScale:
        """Choose it: a difference is at most the largest G times the largest y, and l2 more."""
        units = scales.units
        largest = units.g_limit * ((units.h_limit << scales.y_bits) + 2 * scales.l2)
        bits = ceil_log2(largest) + 2
        shift = max(0, bits - 64)
        bits -= shift
        unit = (scales.l2 << units.g_bits) >> (shift + _FINE_BITS)
        drop = max(bits - _MOST_BITS, floor_log2(unit) if unit else 0, 0)
        return cls(shift, drop, integers_modulo(bits - drop))

    @property
    def digits(self) -> int:
        """How many digits to compare by."""
        return usual_digits(self.ring.bits, factor_bits=96)


def rises(
    runtime: Runtime,
    scales: Scales,
    signs: npt.NDArray[np.intp],
    g: tuple[Masked, Masked],
    h: tuple[Masked, Masked],
) -> Share:
    """Return what is negative in nodes whose sides are in the wrong order: (M, K, nodes).

    Of the sums left of M cuts, and in all; `signs` are the constraints of the cuts. The right
    side's Newton step less the left one's, -G / y each, has the sign of G_L y_R - G_R y_L, which
    is G_L (y_L + y_R) - (G_L + G_R) y_L. To be masked.
    """
    scale = RiseScale.of(scales)
    ring = integers_modulo(scale.ring.bits + scale.drop)
    left_g, total_g = (signed_lift(runtime, x, shift=scale.shift, ring=ring) for x in g)
    left_y, total_y = (lifted_y(runtime, scales, x, ring) for x in h)
    values = [left_g, total_y + scales.l2, total_g, left_y]
    found = polynomial(runtime, values, [(1, (0, 1)), (-1, (2, 3))])
    found = found * signs.reshape(-1, 1, 1)
    return drop_bits(runtime, found, scale.drop, scale.ring)


def constrained_scores(
    runtime: Runtime, scales: Scales, candidates: Candidates, by_node: Share, rise: Masked
) -> Share:
    """Return the scores of all cuts, (C,), from what nodes add to all that is scored.

    A constrained cut gains something in nodes whose sides are in order: what it adds there beyond
    what the node adds as a whole.

    Cost: one opening. Reveals: nothing.
    """
    drop, ring = scales.compared
    finer = integers_modulo(ring.bits + _GUARD_BITS)
    cuts, whole = candidates.constrained, candidates.whole_of
    gain = drop_bits(runtime, by_node[cuts] - by_node[whole], drop - _GUARD_BITS, finer)
    scale = RiseScale.of(scales)
    slack = (runtime.n_parties + 1) // 2 if scale.drop else 0  # what rounding may take from a tie
    comparing = compare.later(
        rise + slack, thresholds=(0,), width=scale.ring.bits, digits=scale.digits
    )
    reached, (masked,) = together(runtime, comparing, mask.later(gain))
    kept = step(runtime, reached, masked.lifted(), factors=(0, 1)).sum((1, 2))
    kept = drop_bits(runtime, kept, _GUARD_BITS, ring)
    base, place = np.arange(len(candidates.feature)), np.zeros(len(candidates.feature), np.intp)
    base[cuts], place[cuts] = whole, 1 + np.arange(len(cuts))
    scores = drop_bits(runtime, by_node[base].sum((1, 2)), drop, ring)
    return scores + concatenate([kept[:1] * 0, kept])[place]


def in_order(runtime: Runtime, values: Masked, signs: Sequence[int]) -> Masked:
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
            wider = integers_modulo(values.ring.bits + 1)
            lifted = signed_lift(runtime, pairs, ring=wider)
            rise = pairs.map(lambda a: a[:, :, 1] - a[:, :, 0])
            width = values.ring.bits
            reached = compare(
                runtime, rise, thresholds=(0,), width=width, digits=usual_digits(width)
            )
            difference = lifted.map(lambda a: a[:, :, 1]) - lifted.map(lambda a: a[:, :, 0])
            up = step(runtime, reached, difference, factors=(0, 1))
            down = difference.share(runtime) - up
            wrong = (down if sign > 0 else up) * abs(sign)
            share = lifted.share(runtime)
            sides = [share[:, :, 0] * 2 + wrong, share[:, :, 1] * 2 - wrong]
            values = mask_one(runtime, stack(sides, axis=2).reshape(*shape))
    return values


def _pairs(values: Elements, level: int) -> Elements:
    """Return leaf values by a level's outcome, on the third axis."""
    return values.reshape(len(values), 1 << level, 2, -1)
