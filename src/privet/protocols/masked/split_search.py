"""Split search: the scores of cuts, the best split of a level, and leaf values.

This module computes on sums, and never on rows, so its cost does not depend on the number of
samples. `rows` computes the sums.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import numpy as np

from privet.arithmetic.rings import get_integer_ring
from privet.arithmetic.shares import Share, concatenate, stack
from privet.gates.arithmetic import truncate_locally
from privet.gates.masked.comparison import MaskedComparison, multiply_by_step
from privet.gates.masked.fourier import Int64Array
from privet.gates.masked.polynomial import polynomial, square_lifted
from privet.gates.masked.routing import share_trivially
from privet.gates.masked.selection import select
from privet.gates.masked.value import (
    LiftedValue,
    MaskedValue,
    lift,
    lift_signed,
    map_together,
    mask,
    mask_constant,
    mask_value,
)
from privet.protocols.masked.argmax import run_argmax
from privet.protocols.masked.bounds import RangeChecks
from privet.protocols.masked.candidates import (
    CandidateSplits,
    LevelGains,
    compute_constrained_scores,
    compute_side_orders,
    compute_tie_break_factors,
    count_hidden_gain_bits,
    encode_min_gain,
    make_argmax_candidates,
)
from privet.protocols.masked.leaves import (
    classify_hessians,
    compute_leaf_values,
    compute_reciprocal,
    encode_scale_factors,
    normalise_hessian,
)
from privet.protocols.masked.precision.scores import OPENED_SQUARE_BITS, Scales
from privet.protocols.masked.row_masks import to_sum_units
from privet.protocols.masked.rows import RowSums, append_right_siblings
from privet.runtime.runtime import Runtime
from privet.spec.plan import Plan
from privet.spec.sampling import TableSample


class _Sums(NamedTuple):
    """Masked sums of a level's nodes: left of every cut, (C, K, nodes), and total, (K, nodes)."""

    left: MaskedValue
    total: MaskedValue

    @property
    def sides(self) -> MaskedValue:
        """The sums left and right of every cut: (2, C, K, nodes)."""
        right = self.total.map(lambda a: a.broadcast_to(self.left.shape)) - self.left
        return map_together(stack, self.left, right)

    def with_siblings(self, parents: _Sums) -> _Sums:
        """Return the sums of all nodes from those of left children and their parents."""
        left = append_right_siblings(parents.left, self.left, axis=2)
        return _Sums(left, append_right_siblings(parents.total, self.total, axis=1))


class _RootReciprocal(NamedTuple):
    """The root's Hessian sums, their classes and their reciprocals, if all tables have the same."""

    h: _Sums
    classes: MaskedComparison
    z: LiftedValue


class SplitSearch:
    """The split search of one training run, table by table and level by level."""

    def __init__(
        self,
        runtime: Runtime,
        plan: Plan,
        scales: Scales,
        min_gain: float | None = None,
    ) -> None:
        self._runtime = runtime
        self._min_gain = min_gain
        self._plan = plan
        self._scales = scales
        self._range_checks: RangeChecks
        """The range checks of the current table."""
        self._argmax_candidates = make_argmax_candidates(plan)
        self._score_drop = count_hidden_gain_bits(scales) if plan.reveal_gain else 0
        self.gains = LevelGains(scales)
        """The gains of the levels of a table, at the participant that learns their scores."""
        self._candidates = CandidateSplits.from_plan(plan, slice(None), runtime.n_parties)
        self._tie_break = self._make_tie_break(is_first_table=False)
        self._root: _RootReciprocal | None = None
        self._gradient_sums: _Sums | None = None
        self._hessian_sums: _Sums | None = None

    def prepare_root(self, left: Share, total: Share | None) -> None:
        """Divide by the root's counts or weights, (C, K, 1), once for all tables.

        If `total` is None, they are counts, and the total is the number of samples.
        """
        runtime, scales, n_samples = self._runtime, self._scales, self._plan.n_samples
        left = to_sum_units(runtime, scales.units, 1, left)
        total = None if total is None else to_sum_units(runtime, scales.units, 1, total)
        with runtime.step("root"):
            if total is None:
                count = n_samples << scales.units.h_bits
                counts = np.full(left.shape[1:], count).astype(left.ring.dtype)
                masked_counts = mask_constant(runtime, counts, left.ring)
                h = self._append_unsplit(mask_value(runtime, left), masked_counts)
            else:
                h = self._append_unsplit(*mask(runtime, left, total))
            classes = classify_hessians(runtime, scales, h.sides)
            m = mask_value(runtime, normalise_hessian(runtime, scales, classes, h.sides))
            z = mask_value(runtime, compute_reciprocal(runtime, scales, m, self._tie_break))
            self._root = _RootReciprocal(h, classes, lift(runtime, z))

    def begin_table(
        self, range_checks: RangeChecks, sample: TableSample, *, is_first_table: bool
    ) -> SplitSearch:
        """Return the search at the start of a table; several tables can be in progress at once."""
        search = copy(self)
        search._range_checks = range_checks
        if self._plan.is_sampled:
            search._candidates = CandidateSplits.from_plan(
                self._plan, sample.features, self._runtime.n_parties
            )
        search._tie_break = search._make_tie_break(is_first_table=is_first_table)
        search.gains = LevelGains(self._scales)
        return search

    def find_best_split(self, sums: RowSums) -> tuple[int, int]:
        """Return the feature and, at its owner, the bucket of the best split; -1 at the others.

        1. Mask the sums left of every cut, and the nodes' totals; sums on the right are their
           differences.
        2. The score of a cut is the sum over outputs, nodes and sides of G^2 / y: G^2 P times a
           reciprocal (`compute_reciprocal`).
        3. The best of all cuts of all features (`run_argmax`).

        Reveals: the feature to all participants, its bucket to its owner; with `reveal_gain` its
        rounded score to the label holder.
        """
        runtime = self._runtime
        with runtime.step("scores"):
            scores = self._compute_scores(sums)
        candidates = self._candidates
        stages, carried = candidates.argmax_stages, candidates.carried_values
        finalists = run_argmax(runtime, scores, stages, carried, self._score_drop)
        with runtime.step("reveal"):
            best = runtime.reveal_argmax(finalists, self._argmax_candidates)
        if best is None:
            return 0, -1
        if best.candidate == self._plan.n_features:  # the level does not split
            self.gains.add(None)
            return 0, self._plan.params.max_cut_count
        self.gains.add(best.receiver_value)
        return best.candidate, best.detail

    def _compute_scores(self, sums: RowSums) -> Share:
        """Return the scores of all cuts, (C,), to be compared."""
        runtime, scales = self._runtime, self._scales
        with runtime.step("sums"):
            self._mask_sums(sums)
        assert self._gradient_sums is not None
        assert self._hessian_sums is not None
        g = self._gradient_sums.sides
        side_orders = self._compute_side_orders()
        if sums.h is None:
            assert self._root is not None
            _, classes, z = self._root
            with runtime.step("squares"):
                squares, *masked_orders = mask(
                    runtime, self._compute_squares(classes, g), *side_orders
                )
        else:
            h = self._hessian_sums.sides
            with runtime.step("class"):
                classes = classify_hessians(runtime, scales, h)
            with runtime.step("squares"):
                m = normalise_hessian(runtime, scales, classes, h)
                shares = [m, self._compute_squares(classes, g), *side_orders]
                coarse_squares = self._compute_coarse_squares(classes, g)
                masked_m, squares, *rest = mask(runtime, *shares, *coarse_squares)
                masked_orders, coarse = rest[: len(side_orders)], rest[len(side_orders) :]
            with runtime.step("reciprocal"):
                z_share = compute_reciprocal(runtime, scales, masked_m, self._tie_break)
                masked_z = self._check_squares(coarse, z_share)
                z = lift(runtime, masked_z)
        lifted = lift_signed(runtime, squares)
        by_node = polynomial(runtime, [lifted, z], [(1, (0, 1))]).sum(0)
        if masked_orders:
            with runtime.step("order"):
                scores = compute_constrained_scores(
                    runtime, scales, self._candidates, by_node, masked_orders[0]
                )
        else:
            scores = truncate_locally(runtime, by_node.sum((1, 2)), *scales.comparison_format)
        return scores + self._share_min_gain(scores) if self._plan.params.min_gain else scores

    def _compute_side_orders(self) -> list[Share]:
        """Return numbers that are negative where constrained cuts violate their constraints."""
        cuts = self._candidates.constrained_splits
        if not len(cuts):
            return []
        signs = np.array(self._plan.monotone)[self._candidates.feature[cuts]]
        sums = [
            (x.left.map(lambda a: a[cuts]), x.total)
            for x in (self._gradient_sums, self._hessian_sums)
            if x
        ]
        return [compute_side_orders(self._runtime, self._scales, signs, *sums)]

    def _share_min_gain(self, scores: Share) -> Share:
        """Return a share of the increase of the last score, that of the level without a split.

        The label holder provides it. It is secret only in a regression, where it depends on the
        unit of the label. Scores are masked before they are compared.
        """
        ring, increase = scores.ring, None
        if self._min_gain is not None:
            increase = ring.zeros(scores.shape)
            increase[-1] = ring.to_elements(encode_min_gain(self._scales, self._min_gain))
        return share_trivially(self._runtime, increase, scores.shape, ring)

    def _mask_sums(self, sums: RowSums) -> None:
        """Mask the sums of left children, and derive the others; keep them for the next level."""
        runtime, scales, parents = (
            self._runtime,
            self._scales,
            (self._gradient_sums, self._hessian_sums),
        )
        g = [to_sum_units(runtime, scales.units, 0, x) for x in sums.g]
        if sums.h is None:
            assert self._root is not None
            self._gradient_sums, self._hessian_sums = (
                self._append_unsplit(*mask(runtime, *g)),
                self._root.h,
            )
            return
        h = [to_sum_units(runtime, scales.units, 1, x) for x in sums.h]
        left_g, total_g, left_h, total_h = mask(runtime, *g, *h)
        self._gradient_sums = self._append_unsplit(left_g, total_g)
        self._hessian_sums = self._append_unsplit(left_h, total_h)
        if parents[0] is not None and parents[1] is not None:
            self._gradient_sums = self._gradient_sums.with_siblings(parents[0])
            self._hessian_sums = self._hessian_sums.with_siblings(parents[1])

    def _append_unsplit(self, left: MaskedValue, total: MaskedValue) -> _Sums:
        """Return sums with those of unsplit nodes, once for each such score: all rows are left."""
        n_unsplit = len(self._candidates.scored_features) - len(left.mask)
        if n_unsplit:
            unsplit = total.map(lambda a: a.broadcast_to((n_unsplit, *a.shape)))
            left = map_together(concatenate, left, unsplit)
        return _Sums(left, total)

    def _compute_squares(self, classes: MaskedComparison, g: MaskedValue) -> Share:
        """Return G^2 P without its lowest bits, to be masked."""
        runtime, scales = self._runtime, self._scales
        lifted = square_lifted(runtime, lift_signed(runtime, g, shift=scales.gradient_dropped_bits))
        squares = multiply_by_step(
            runtime, classes, lifted, factors=scales.thresholds.counted_factors
        )
        return truncate_locally(
            runtime, squares, scales.square_dropped_bits, get_integer_ring(OPENED_SQUARE_BITS)
        )

    def _compute_coarse_squares(self, classes: MaskedComparison, g: MaskedValue) -> list[Share]:
        """Return coarse sums of G^2 P of every cut, (sums C,), in a ring that fits them.

        The list is empty if it is proven that G^2 P fits the ring it is opened in.
        """
        runtime, scales = self._runtime, self._scales
        coarse_sums: list[Share] = []
        if scales.is_bound_proven:
            return []
        ring, sums = scales.coarse_check
        for each in sums:
            lifted = square_lifted(
                runtime, lift_signed(runtime, g, shift=each.dropped_bits, ring=ring)
            )
            coarse_sums.append(
                multiply_by_step(runtime, classes, lifted, factors=each.factors).sum((0, 2, 3))
            )
        return [concatenate(coarse_sums)]

    def _check_squares(self, coarse: list[MaskedValue], z: Share) -> MaskedValue:
        """Check the range of squares, if it is not proven, and mask reciprocals."""
        if not coarse:
            return mask_value(self._runtime, z)
        ring, sums = self._scales.coarse_check
        limits = np.repeat([each.max_sum for each in sums], len(coarse[0].mask) // len(sums))
        headroom = coarse[0].map(lambda a: -a) + limits
        problem = "scores that do not fit"
        (masked,) = self._range_checks.check(headroom, ring.bits, problem, mask.defer(z))
        return masked

    def _make_tie_break(self, *, is_first_table: bool) -> Int64Array:
        """Return the tie-break factors on the scores of all cuts."""
        by_feature = encode_scale_factors(
            compute_tie_break_factors(self._plan, is_first_table=is_first_table)
        )
        return by_feature[self._candidates.scored_features].reshape(1, -1, 1, 1)

    def share_one_hot_split(self, feature: int, bucket: int) -> Share:
        """Return a share of 1 at the cut of a split, which its owner knows, and 0 elsewhere: (C,).

        The bucket is -1 at the other participants.
        """
        ring, one_hot, cuts = self._scales.units.g_ring, None, self._candidates
        if bucket == self._plan.params.max_cut_count:  # the level does not split, which is public
            feature, bucket = self._plan.n_features, 0
        if bucket >= 0 and self._argmax_candidates.owners[feature] == self._runtime.index:
            one_hot = ((cuts.feature == feature) & (cuts.bucket == bucket)).astype(ring.dtype)
        return share_trivially(self._runtime, one_hot, (len(cuts.feature),), ring)

    def compute_leaf_values(
        self, one_hot_split: MaskedValue, residuals: list[MaskedValue]
    ) -> MaskedValue:
        """Return leaf values, (K, 2^D), in the units of scores and over the ring of `LeafScale`.

        With constraints both have D bits fewer. The sums of left leaves are those of the last level
        at the chosen cut; those of right leaves are the sums of their parents less these.
        """
        assert self._gradient_sums is not None
        assert self._hessian_sums is not None
        with self._runtime.step("leaves"):
            h_ring = self._scales.units.h_ring
            reduced = one_hot_split.map(lambda a: a.reduce_to_ring(h_ring))
            g, h = (
                self._leaf_sums(one_hot_split, self._gradient_sums),
                self._leaf_sums(reduced, self._hessian_sums),
            )
            return compute_leaf_values(
                self._runtime, self._plan, self._scales, self._range_checks, g, h, residuals
            )

    def _leaf_sums(self, one_hot_split: MaskedValue, sums: _Sums) -> Share:
        left = select(self._runtime, one_hot_split, sums.left[: len(one_hot_split.mask)])
        right = sums.total.to_share(self._runtime) - left
        return stack([left, right], axis=2).reshape(len(left), -1)
