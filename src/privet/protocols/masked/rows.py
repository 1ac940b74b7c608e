"""The rows of a training run: gradients, histogram sums, routing and leaf updates.

This module computes on rows, and never on scores of cuts. It passes sums to `split_search` and
receives splits and leaf values. `LocalRows` use the runtime of the split search, so that both open
values together. With shards, worker groups compute on the rows, each with its own runtime
(`sharding`): the same calls, and the same numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.ring_lwe import RingLwe
from privet.arithmetic.rings import Z1, Z64, Ring
from privet.arithmetic.shares import Elements, Share, stack
from privet.arrays import IndexSelection
from privet.gates.gate import DeferredGate, run_deferred
from privet.gates.masked.functions import MAX_SCORE, SCORE_BITS, evaluate_sigmoid
from privet.gates.masked.histogram import IndicatorProducts, histogram
from privet.gates.masked.indicators import Indicators, publish_indicators
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.routing import look_up_leaves, route_rows, share_trivially
from privet.gates.masked.value import (
    MaskedValue,
    lift_signed,
    map_together,
    mask,
    mask_constant,
    mask_value,
)
from privet.objectives.base import SharedFixedPoint, SharedFunctions
from privet.protocols.masked.bounds import SCORE_CHECK_BITS, RangeChecks, sum_squared_residuals
from privet.protocols.masked.leaves import widen_leaf_values
from privet.protocols.masked.precision.scores import Scales
from privet.protocols.masked.row_masks import (
    RowMasker,
    SampleWeights,
    create_lattice,
    defer_uniform_mask,
    lift_gradients,
)
from privet.protocols.masked.validation import ValidationRows, ValidationSum, mask_and_check_sum
from privet.protocols.protocol import ProtocolInput, share_initial_scores, share_target
from privet.runtime.runtime import Runtime
from privet.spec.plan import Plan, Shard
from privet.spec.sampling import TableSample


class RowSums(NamedTuple):
    """Sums of gradients and Hessians: left of every cut, (C, K, nodes), and total, (K, nodes).

    They are those of the root, or of left children: the sums of a right child are those of its
    parent less those of its left sibling. They are over the rings of rows; `split_search` drops the
    extra bits.
    """

    g: tuple[Share, Share]
    h: tuple[Share, Share] | None
    """None at the root if all tables have the same: constant Hessians, and nothing is sampled."""


class _Nodes(NamedTuple):
    """The masked gradients and Hessians of the nodes of a level, (K, nodes, N) each."""

    g: MaskedValue
    h: MaskedValue


class TrainingRows(SharedFunctions):
    """The training rows of a run, or of a shard, table by table."""

    def __init__(
        self,
        runtime: Runtime,
        plan: Plan,
        shard: Shard,
        scales: Scales,
        data: ProtocolInput,
        indicators: Indicators,
        lattice: RingLwe | None,
    ) -> None:
        self._runtime = runtime
        self._masker = RowMasker(runtime, lattice)
        self._plan = plan
        self._shard = shard
        self._scales = scales
        self._data = data
        self._indicators = indicators
        self._range_checks: RangeChecks
        """The range checks of the current table."""
        self._sampled_indicators = indicators
        """The indicators of the rows and features that the current table is trained on."""
        self._rows: IndexSelection = slice(shard.n_samples)
        """The rows that are in the sums of the current table."""
        self._nodes: _Nodes | None = None
        self._outcomes: list[MaskedValue] = []
        self._masked: list[MaskedValue] = []
        self._residual: MaskedValue
        """Gradients without weights."""
        self._products = IndicatorProducts(runtime, indicators)
        """The products with indicators of the current table and level."""
        self._unchecked: MaskedValue | None = None
        """Scores whose sigmoid was computed, before their range check."""
        self._weights: SampleWeights | None = None
        self._constant_hessians: MaskedValue | None = None
        """The Hessians of all rows, (K, 1, N), if they are 1 or the weights."""
        if plan.objective.constant_hessian:
            self._constant_hessians = self._make_constant_hessians()

    def set_weights(self, weights: SampleWeights) -> None:
        """Weight the samples of all tables."""
        self._weights = weights
        if self._constant_hessians is not None:
            self._constant_hessians = weights.masked

    def begin_table(
        self, range_checks: RangeChecks, sample: TableSample, target: Share, score: Share
    ) -> TrainingRows:
        """Return the rows at the start of a table; several tables can be in progress at once."""
        rows = copy(self)
        rows._range_checks = range_checks
        rows._mask_gradients(sample, target, score)
        return rows

    def _mask_gradients(self, sample: TableSample, target: Share, score: Share) -> None:
        """Mask the gradients and Hessians of the sampled rows, (K, 1, N) each.

        Cost: one opening of 34 bits a sample if Hessians are 1; otherwise the opening of the
        sigmoid, and about twice as many bits. With weights one more such opening.
        """
        runtime, plan, units = self._runtime, self._plan, self._scales.units
        self._nodes, self._outcomes = None, []
        self._rows = rows = self._shard.select_sampled(sample.rows)
        if plan.is_sampled:
            self._sampled_indicators = self._indicators.select(rows, sample.features)
        self._products = IndicatorProducts(runtime, self._sampled_indicators)
        score, target = score[:, rows], target[:, rows]
        with runtime.step("gradients"):
            g_and_h = plan.objective.compute_shared_gradients(
                self, SharedFixedPoint(score, SCORE_BITS), SharedFixedPoint(target, SCORE_BITS)
            )
            gradients = [
                SharedFixedPoint(_as_one_node(x.share), x.fraction_bits)
                for x in g_and_h
                if x is not None
            ]
            if self._weights is None:
                if units.must_lift_rows:
                    finer = units.unweighted_formats
                    masked = self._run_with_score_check(
                        defer_uniform_mask(runtime, gradients, finer)
                    )
                    gradients = lift_gradients(runtime, masked, finer)
                opening = self._masker.defer_gradient_mask(
                    gradients, units.row_formats, self._products.start
                )
                self._masked = self._run_with_score_check(opening)
                self._residual = self._masked[0]
            else:
                finer = units.unweighted_formats
                masked = self._run_with_score_check(defer_uniform_mask(runtime, gradients, finer))
                self._residual = masked[0]
                with runtime.step("weights"):
                    weighted = [
                        self._weights.multiply(x, bits, self._rows)
                        for x, (bits, _) in zip(masked, finer, strict=False)
                    ]
                    opening = self._masker.defer_gradient_mask(
                        weighted, units.row_formats, self._products.start
                    )
                    self._masked = run_deferred(runtime, opening)
            if self._constant_hessians is not None:
                self._masked.append(self._constant_hessians.map(lambda a: a[:, :, rows]))

    def _run_with_score_check(self, deferred: DeferredGate[list[MaskedValue]]) -> list[MaskedValue]:
        """Run a deferred gate, together with the check of scores whose sigmoid was computed.

        With 16 added, scores below 16 in size are, as signed numbers modulo 64, not negative. They
        are compared on 10 bits, so the check can already fail at 16 less a sixteenth.
        """
        scores, self._unchecked = self._unchecked, None
        if scores is None:
            return run_deferred(self._runtime, deferred)
        problem = f"scores of {MAX_SCORE} and more in size"
        return self._range_checks.check(scores, SCORE_CHECK_BITS, problem, deferred)

    def _make_constant_hessians(self) -> MaskedValue:
        """Return the public Hessians, 1 in every row: (K, 1, N)."""
        (bits, ring), outputs = self._scales.units.row_formats[1], self._plan.objective.n_outputs
        ones = np.full((outputs, 1, self._shard.n_samples), 1 << bits, dtype=ring.dtype)
        return mask_constant(self._runtime, ones, ring)

    def sum_root_hessians(self) -> tuple[Share, Share | None]:
        """Return the root's sums of Hessians that are the same in all tables.

        The sums left of every cut, (C, K, 1), and the total, (K, 1); None if the total is public.
        """
        h = self._constant_hessians
        assert h is not None
        (left,) = histogram(self._runtime, self._products, h.map(lambda a: a[:, 0]))
        total = None if h.is_constant else h.to_share(self._runtime).sum(2)
        return left.reshape(*left.shape, 1), total

    def evaluate_sigmoid(
        self, score: SharedFixedPoint
    ) -> tuple[SharedFixedPoint, SharedFixedPoint]:
        """Return the sigmoid and its derivative, by a series: one opening of 4 bytes a score.

        The series is accurate for scores below 16 in size. The next opening checks them.
        """
        assert score.fraction_bits == SCORE_BITS
        bits = self._scales.units.sigmoid_bits
        masked = mask_value(self._runtime, score.share)
        self._unchecked = masked + (MAX_SCORE << SCORE_BITS)
        both = evaluate_sigmoid(self._runtime, masked, bits=bits)
        return SharedFixedPoint(both[0], bits), SharedFixedPoint(both[1], bits)

    def sum_squared_residuals(self) -> Share:
        """Return the sum of squared residuals, weighted if samples are, over Z64: (1,)."""
        runtime = self._runtime
        factors = [] if self._weights is None else [lift_signed(runtime, self._residual)]
        factors.append(lift_signed(runtime, self._masked[0], shift=self._scales.units.g_extra_bits))
        return polynomial(runtime, factors, [(1, (0, len(factors) - 1))]).sum().reshape(1)

    def list_residual_checks(self) -> list[Share]:
        """Return the sums of squared residuals that must be in range, if any."""
        return sum_squared_residuals(self._runtime, self._plan, self._scales.units, self._masked[0])

    def sum_gradients(self) -> RowSums:
        """Return the sums of the root, or of left children."""
        runtime, (g, h) = self._runtime, self._masked
        outputs, nodes, _ = g.shape
        has_root_hessians = (
            self._nodes is None
            and self._constant_hessians is not None
            and not self._plan.is_sampled
        )
        vectors = [g] if has_root_hessians else [g, h]
        with runtime.step("histogram"):
            flat = [x.map(lambda a: a.reshape(outputs * nodes, -1)) for x in vectors]
            left_sums = histogram(runtime, self._products, *flat)
        sums = [
            (
                left.reshape(len(left), outputs, nodes),
                x.map(lambda a: a.sum(2)).to_share(runtime),
            )
            for left, x in zip(left_sums, vectors, strict=True)
        ]
        return RowSums(sums[0], sums[1] if len(sums) == 2 else None)

    def share_outcomes(self, feature: int, bucket: int) -> Share:
        """Return a share of the outcomes of a split, (n_rows,), to be masked; its owner knows them.

        The bucket is -1 at the other participants. That of a level that does not split is public.
        """
        goes_right = None
        if bucket >= 0 and feature in self._data.buckets:
            goes_right = (self._data.buckets[feature] > bucket).astype(np.uint8)
        return share_trivially(self._runtime, goes_right, (self._shard.n_rows,), Z1)

    def split_nodes(self, outcomes: MaskedValue) -> None:
        """Split nodes by masked outcomes; mask left children, the only large opening of a level."""
        runtime, nodes = self._runtime, self._all_nodes()
        self._nodes, self._masked = nodes, []
        outputs, count, _ = nodes.g.shape
        flat = (x.map(lambda a: a.reshape(outputs * count, -1)) for x in nodes)
        left = route_rows(runtime, outcomes.map(lambda a: a[self._rows]), *flat)
        with runtime.step("children"):
            self._products = IndicatorProducts(runtime, self._sampled_indicators)
            masked = self._masker.mask_children(left, self._products.start)
        self._masked = [x.map(lambda a: a.reshape(outputs, count, -1)) for x in masked]

    def _all_nodes(self) -> _Nodes:
        """Return the nodes of a level: a right child is its parent less its left sibling."""
        if self._nodes is None:
            return _Nodes(*self._masked)
        pairs = zip(self._nodes, self._masked, strict=True)
        return _Nodes(*(append_right_siblings(parent, left, axis=1) for parent, left in pairs))

    def record_outcomes(self, outcomes: MaskedValue) -> None:
        """Keep the outcomes of a level for the leaf lookup."""
        self._outcomes.append(outcomes)

    def look_up_leaf_values(self, values: MaskedValue, ring: Ring) -> Share:
        """Return the values, (K, 2^D), of the leaves that rows reach: (K, n_rows), over a ring."""
        outcomes = map_together(stack, *self._outcomes)
        self._outcomes, self._nodes, self._masked = [], None, []  # free their memory first
        return look_up_leaves(
            self._runtime, outcomes, widen_leaf_values(self._runtime, values, ring)
        )


def _as_one_node(x: Share) -> Share:
    """Return values of samples, (K, N), as those of one node: (K, 1, N)."""
    return x.reshape(len(x), 1, -1)


def append_right_siblings(parent: MaskedValue, left: MaskedValue, axis: int) -> MaskedValue:
    """Return left and right children, interleaved along the axis of nodes."""

    def interleave(sides: list[Elements]) -> Elements:
        shape = list(left.shape)
        shape[axis] *= 2
        return stack(sides, axis=axis + 1).reshape(*shape)

    return map_together(interleave, left, parent - left)


_ENCODING = FixedPoint(SCORE_BITS)
Split = tuple[int, int]
"""A feature and, at its owner, the last bucket that goes left; -1 at the other participants."""


class Rows(ABC):
    """All rows of a training run, local or in shards."""

    @abstractmethod
    def setup(self) -> None:
        """Share the values that are the same for all tables."""

    @abstractmethod
    def sum_root_hessians(self) -> tuple[Share, Share | None]:
        """Return the sums of `TrainingRows.sum_root_hessians`."""

    @abstractmethod
    def begin_table(self, number: int, range_checks: RangeChecks) -> TableRows:
        """Return the rows at the start of a table, with the range checks of the table."""

    @abstractmethod
    def sum_validation_loss(self, range_checks: RangeChecks) -> tuple[MaskedValue, int]:
        """Return the masked sum of the losses of all validation rows, and its fraction bits."""

    @abstractmethod
    def snapshot_scores(self) -> npt.NDArray[np.uint64]:
        """Return the local share of the scores of all local rows: (K, rows).

        Workers store the scores of the rows of their shards.
        """


class TableRows(ABC):
    """All rows of a training run, while a table is trained."""

    @abstractmethod
    def sum_squared_residuals(self) -> Share:
        """Return the sum of `TrainingRows.sum_squared_residuals`."""

    @abstractmethod
    def list_residual_checks(self) -> list[Share]:
        """Return the sums of `TrainingRows.list_residual_checks`."""

    @abstractmethod
    def sum_gradients(self, level: int) -> RowSums:
        """Return the sums of a level: of the root, or of left children."""

    @abstractmethod
    def split_nodes(self, level: int, split: Split) -> None:
        """Split the nodes of a level, except the last one, by the outcomes of a split."""

    @abstractmethod
    def split_last_level(self, level: int, split: Split, *values: Share) -> list[MaskedValue]:
        """Find the leaves that rows reach; in the same opening, mask `values` and return them."""

    @abstractmethod
    def add_leaf_values(self, values: MaskedValue) -> None:
        """Add the values, (K, 2^D), of the leaves that rows reach to their scores."""


class LocalRows(Rows):
    """Rows that this runtime computes on: all rows, or those of a shard."""

    def __init__(
        self, runtime: Runtime, plan: Plan, shard: Shard, scales: Scales, data: ProtocolInput
    ) -> None:
        self._runtime = runtime
        self._plan = plan
        self._shard = shard
        self._scales = scales
        self._data = data
        shape = plan.objective.n_outputs, shard.n_rows
        self.scores = share_initial_scores(
            runtime, data.initial_scores, _ENCODING, shape, scales.score_ring
        )
        """The local share of the scores of all rows: (K, n_rows)."""
        self._validation: ValidationRows | None = None
        self._samples: TrainingRows

    def setup(self) -> None:
        """Share the label, and publish every feature's masked indicators."""
        runtime, plan, scales, shard = self._runtime, self._plan, self._scales, self._shard
        # The sigmoid's values have 64 bits, and targets are subtracted from them.
        target_ring = scales.score_ring if scales.is_bound_proven else Z64
        shape, active = (plan.objective.n_outputs, shard.n_samples), plan.ownership.active
        self._target = share_target(
            runtime, active, self._data.target, _ENCODING, shape, target_ring
        )
        ring = published_ring(scales)
        lattice = create_lattice(runtime, plan, shard.n_samples, ring)
        indicators = publish_indicators(
            runtime,
            {j: rows[: shard.n_samples] for j, rows in self._data.buckets.items()},
            plan.ownership.features,
            self._data.indicator_cache,
            cut_counts=plan.cut_counts,
            n_samples=shard.n_samples,
            ring=ring,
            cached_owners=plan.cached_owners,
            lattice=lattice,
        )
        self._samples = TrainingRows(runtime, plan, shard, scales, self._data, indicators, lattice)
        if plan.n_validation:
            self._validation = ValidationRows(runtime, plan, shard, self._data)
        if plan.is_weighted:
            with runtime.step("weights"):
                weights = SampleWeights(
                    runtime, scales.units, self._data.sample_weight, shard.n_samples
                )
                self._samples.set_weights(weights)

    def sum_root_hessians(self) -> tuple[Share, Share | None]:
        """Return the root's sums of Hessians that are the same in all tables."""
        return self._samples.sum_root_hessians()

    def begin_table(self, number: int, range_checks: RangeChecks) -> LocalTableRows:
        """Mask the gradients and Hessians of the sampled rows."""
        sample = self._plan.sample_table(number)
        samples = self._samples.begin_table(range_checks, sample, self._target, self.scores)
        return LocalTableRows(self._runtime, self, samples)

    def sum_validation_loss(self, range_checks: RangeChecks) -> tuple[MaskedValue, int]:
        """Mask the sum in the opening of the range checks of rows."""
        total = self.compute_validation_sum()
        return mask_and_check_sum(range_checks, total), total.loss.fraction_bits

    def compute_validation_sum(self) -> ValidationSum:
        """Return the sum of the losses of validation rows."""
        assert self._validation is not None
        return self._validation.sum_losses(self.scores[:, self._shard.n_samples :])

    def snapshot_scores(self) -> npt.NDArray[np.uint64]:
        """Return the local share of all scores."""
        return self.scores.part.astype(np.uint64)

    def restore_scores(self, scores: npt.NDArray[np.uint64]) -> None:
        """Resume from the scores at the end of an earlier training run."""
        ring = self.scores.ring
        assert scores.shape == self.scores.shape
        self.scores = Share(scores.astype(ring.dtype), ring)


class LocalTableRows(TableRows):
    """Rows that this runtime computes on, while a table is trained."""

    def __init__(self, runtime: Runtime, rows: LocalRows, samples: TrainingRows) -> None:
        self._runtime = runtime
        self._rows = rows
        self._samples = samples

    def sum_squared_residuals(self) -> Share:
        """Return the sum of squared residuals."""
        return self._samples.sum_squared_residuals()

    def list_residual_checks(self) -> list[Share]:
        """Return the sums of squared residuals that must be in range, if any."""
        return self._samples.list_residual_checks()

    def sum_gradients(self, level: int) -> RowSums:
        """Return the sums of the root, or of left children."""
        return self._samples.sum_gradients()

    def split_nodes(self, level: int, split: Split) -> None:
        """Mask the outcomes, and the left children."""
        outcomes = mask_value(self._runtime, self._samples.share_outcomes(*split))
        self._samples.split_nodes(outcomes)
        self._samples.record_outcomes(outcomes)

    def split_last_level(self, level: int, split: Split, *values: Share) -> list[MaskedValue]:
        """Mask the outcomes and the values in one opening."""
        outcomes, *masked = mask(self._runtime, self._samples.share_outcomes(*split), *values)
        self._samples.record_outcomes(outcomes)
        return masked

    def add_leaf_values(self, values: MaskedValue) -> None:
        """Look up every row's leaf."""
        ring = self._rows.scores.ring
        self._rows.scores = self._rows.scores + self._samples.look_up_leaf_values(values, ring)


def published_ring(scales: Scales) -> Ring:
    """Return the ring of published masked indicators: the widest one of rows."""
    return max((ring for _, ring in scales.units.row_formats), key=lambda ring: ring.bits)
