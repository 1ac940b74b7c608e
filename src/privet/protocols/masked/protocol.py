"""The `masked` protocol: labels and masked indicators at the start, then table by table."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from privet.arithmetic.exact_matmul import LimbMatrix
from privet.arithmetic.ring_lwe import RingLwe, SmallFactorMatrix, degree_for
from privet.arithmetic.rings import Z64, RingArray
from privet.arithmetic.shares import Share
from privet.arrays import IndexSelection
from privet.errors import ParameterError
from privet.gates.masked.functions import (
    MAX_SCORE,
    N_SIGMOID_HARMONICS,
    build_reciprocal_series,
    compute_sigmoid_coefficients,
    compute_softplus_coefficients,
)
from privet.gates.masked.indicators import PublicationFormat
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.value import BLOCK_ROWS, lift_signed, mask_value
from privet.protocols.masked import inference
from privet.protocols.masked.argmax import plan_stages
from privet.protocols.masked.bounds import RangeChecks, compute_residual_headroom
from privet.protocols.masked.candidates import (
    SideOrderScale,
    compute_tie_break_factors,
    count_hidden_gain_bits,
    list_cut_counts_and_owners,
    order_leaf_values,
)
from privet.protocols.masked.inference import MaskedInference
from privet.protocols.masked.leaves import LeafScale, encode_scale_factors, weight_check
from privet.protocols.masked.precision.scores import Scales
from privet.protocols.masked.row_masks import PERSISTENT_LATTICE_SEED, choose_masks
from privet.protocols.masked.rows import LocalRows, Rows, TableRows, published_ring
from privet.protocols.masked.sharding import MaskedShardWorker, ShardedRows
from privet.protocols.masked.split_search import SplitSearch
from privet.protocols.masked.validation import LOSS_BITS, compute_mean_loss, decode_mean_loss
from privet.protocols.protocol import ProtocolInput, ScoresCallback, ShardWorker, TrainedTable
from privet.runtime.runtime import Runtime
from privet.runtime.workers import WorkerHandle
from privet.spec.plan import Plan, Shard

_PRODUCTS_PER_MASK = 64
"""The multiplications that take as long as the lattice masks of a row's gradient and Hessian."""


class MaskedProtocol(MaskedInference):
    """Training and inference on masked values."""

    supports_training_loss = True
    supports_weights = True
    supports_monotone = True
    supports_validation = True
    supports_gain = True
    supports_replicated_dealers = True
    supports_cached_indicators = True
    supports_shards = True
    cut_disclosures = ("rounded", "exact", "hidden")

    def __init__(
        self,
        runtime: Runtime,
        plan: Plan,
        data: ProtocolInput,
        workers: Sequence[WorkerHandle] = (),
    ) -> None:
        super().__init__(runtime, plan, data, workers)
        self._scales = scales = Scales.from_plan(plan)
        self._rows = _create_rows(runtime, plan, scales, data, workers)
        self._split_search = SplitSearch(runtime, plan, scales, data.min_gain)

    @classmethod
    def check_plan(cls, plan: Plan) -> None:
        """Refuse a plan without scales, or with a base score outside the range of the sigmoid."""
        scales = Scales.from_plan(plan)
        assert scales.max_leaf_weight * scales.learning_rate <= inference.MAX_LEAF_VALUE
        if plan.is_weighted and plan.must_check_residuals:
            setting = plan.residual_check_reason
            raise ParameterError(
                f"{setting}: masked has no bound on sums of a regression's weighted residuals with "
                f"{setting}: leave it out, or the weights"
            )
        start = plan.params.base_score or 0.0
        if not plan.objective.normalised_label and abs(start) >= MAX_SCORE:
            raise ParameterError(
                f"base_score: masked computes with log-odds below {MAX_SCORE} in size, not "
                f"{start:g}: leave it out, or start nearer to 0"
            )

    @classmethod
    def choose_masks(cls, plan: Plan, n_parties: int) -> Plan:
        """Return the plan with its masks; if `masks = "auto"`, with the cheaper ones."""
        return choose_masks(cls, plan, n_parties)

    @classmethod
    def compute_label_stretch(cls, plan: Plan) -> Fraction:
        """Return the factor that makes sums of gradients use all bits of their ring."""
        return Scales.from_plan(plan).units.label_stretch

    @classmethod
    def choose_publication_format(cls, plan: Plan) -> PublicationFormat:
        """Return the widest ring of rows, and a column for each row or lattice coefficient."""
        ring = published_ring(Scales.from_plan(plan))
        if not plan.n_lattice_errors:
            return PublicationFormat(ring, plan.n_samples)
        return PublicationFormat(ring, degree_for(ring.bits), f"lattice {PERSISTENT_LATTICE_SEED}")

    @classmethod
    def estimate_memory(cls, plan: Plan) -> int:
        """Return the memory of the indicators, the widest level and the score update.

        For rows this is the larger of the nodes of all samples and the dealt sine and cosine terms
        of the sigmoid for a block of samples. A level has dealt terms for every reciprocal, which
        need more memory with many classes and few samples.
        """
        scales, cuts = Scales.from_plan(plan), sum(list_cut_counts_and_owners(plan)[0])
        if plan.n_lattice_errors:
            bits = cls.choose_publication_format(plan).ring.bits
            indicators = SmallFactorMatrix.estimate_memory(cuts, bits) + RingLwe.estimate_memory(
                plan.n_samples, bits
            )
        else:
            indicators = LimbMatrix.estimate_memory(cuts, plan.n_samples)
            if plan.is_sampled:  # those of a table, next to all
                indicators += LimbMatrix.estimate_memory(
                    _estimate_sampled_cuts(plan), plan.n_sampled
                )
        outputs = plan.objective.n_outputs
        rows = (4 * outputs + 2) * plan.params.n_leaves * plan.n_rows
        if not plan.objective.constant_hessian:
            rows = max(rows, 4 * 2 * N_SIGMOID_HARMONICS * outputs * min(plan.n_rows, BLOCK_ROWS))
        terms = 3 * 2 * len(build_reciprocal_series(scales.class_ratio, scales.period).harmonics)
        level = Z64.nbytes((terms, cuts * scales.n_sides))
        derived = inference.estimate_contribution_memory(plan) if plan.has_explanations else 0
        return indicators + max(Z64.nbytes((rows,)) + level, derived)

    @classmethod
    def count_multiplications(cls, plan: Plan) -> int:
        """Return the products of indicators with gradients and Hessians of root and left children.

        With lattice masks, also the multiplications that masking these takes.
        """
        cuts, vectors = (
            _estimate_sampled_cuts(plan),
            plan.params.n_leaves * plan.objective.n_outputs,
        )
        if plan.n_lattice_errors:
            return (
                cuts * cls.choose_publication_format(plan).n_columns
                + _PRODUCTS_PER_MASK * plan.n_samples
            ) * vectors
        return cuts * plan.n_sampled * vectors

    @classmethod
    def list_public_constants(cls, plan: Plan) -> dict[str, object]:
        """Return the scales, and the constants of series, polynomials and comparisons."""
        scales = Scales.from_plan(plan)
        series = build_reciprocal_series(scales.class_ratio, scales.period)
        return {
            "the scales": scales.list_public_constants(),
            "leaf values": [str(LeafScale.from_scales(scales)), str(weight_check(scales))],
            "the sigmoid": compute_sigmoid_coefficients(),
            "the reciprocal": [series.constant, series.sines, series.cosines],
            "ties": [
                encode_scale_factors(compute_tie_break_factors(plan, is_first_table=first)).tolist()
                for first in (True, False)
            ],
            "the tournament": plan_stages(list_cut_counts_and_owners(plan)[0]),
            **(
                {"reasons": inference.list_contribution_constants(plan.params.depth)}
                if plan.has_explanations
                else {}
            ),
            **(
                {"the order of sides": str(SideOrderScale.from_scales(scales))}
                if plan.monotone
                else {}
            ),
            "what tables draw": [_digest(part) for part in plan.sample_table(0) if plan.is_sampled],
            **({"the loss": compute_softplus_coefficients()} if plan.n_validation else {}),
            **({"gains": count_hidden_gain_bits(scales)} if plan.reveal_gain else {}),
        }

    def setup(self) -> None:
        """Share labels and indicators, and divide by Hessian sums that all tables share."""
        self._rows.setup()
        if self.plan.objective.constant_hessian and not self.plan.is_sampled:
            self._split_search.prepare_root(*self._rows.sum_root_hessians())

    def train_table(self, number: int) -> TrainedTable:
        """Train a table: at each level the split search chooses a split from the sums of rows."""
        runtime, plan = self.runtime, self.plan
        depth = plan.params.depth
        features = np.zeros(depth, dtype=np.intp)
        buckets = np.full(depth, -1, dtype=np.intp)
        range_checks = RangeChecks(runtime)
        rows = self._rows.begin_table(number, range_checks)
        loss = self._compute_mean_square(rows) if plan.reveal_loss else None
        headroom = compute_residual_headroom(
            runtime, plan, self._scales.units, rows.list_residual_checks()
        )
        split_search = self._split_search.begin_table(
            range_checks, plan.sample_table(number), is_first_table=number == 0
        )
        for level in range(depth):
            with runtime.step("level", level):
                split = split_search.find_best_split(rows.sum_gradients(level))
                features[level], buckets[level] = split
                with runtime.step("split"):
                    if level + 1 < depth:
                        rows.split_nodes(level, split)
                    else:
                        one_hot_split, *masked_headroom = rows.split_last_level(
                            level, split, split_search.share_one_hot_split(*split), *headroom
                        )
        values = split_search.compute_leaf_values(one_hot_split, masked_headroom)
        if plan.monotone:
            with runtime.step("order"):
                signs = np.array(plan.monotone)[features]
                signs[buckets == plan.params.max_cut_count] = 0  # levels that do not split
                values = order_leaf_values(runtime, values, signs.tolist())
        with runtime.step("update"):
            rows.add_leaf_values(values)
            leaves = lift_signed(runtime, values).to_share(runtime)
        receives_gains = plan.reveal_gain and runtime.index == plan.ownership.active
        gains = split_search.gains.compute_gains() if receives_gains else None
        return TrainedTable(features, buckets, leaves, loss, gains)

    def _compute_mean_square(self, rows: TableRows) -> Share:
        """Return the mean square of residuals, as one number with LOSS_BITS fraction bits.

        It is rounded before it is revealed: its low bits would reveal more than was agreed.

        Cost: one opening of one element.
        """
        runtime, units, n_samples = self.runtime, self._scales.units, self.plan.n_sampled
        fraction = units.unweighted_formats[0][0] if self.plan.is_weighted else units.g_bits
        with runtime.step("loss"):
            # The sum is divided by a power of two near N, and when it is decoded by the rest.
            bits = fraction + units.g_bits + n_samples.bit_length() - LOSS_BITS
            total = mask_value(runtime, rows.sum_squared_residuals())
            return polynomial(runtime, [lift_signed(runtime, total, shift=bits)], [(1, (0,))])

    def decode_loss(self, revealed: RingArray) -> float:
        """Decode a sum over N divided by a power of two: the mean in the label's unit."""
        n_samples, stretch = self.plan.n_sampled, float(self._scales.units.label_stretch)
        scale = (1 << n_samples.bit_length()) / (n_samples << LOSS_BITS)
        return float(revealed[0]) * scale / stretch**2

    def compute_validation_loss(self) -> Share:
        """Return the mean loss on validation rows.

        1. Mask the inputs of the loss, row by row; the sum of losses follows without an opening.
        2. Mask the sum, and compare the values that must be in range.
        3. Reveal that they are, or end training. Divide the sum by a power of two, exactly.

        Cost: three openings, one of 4 bytes a score and two of about ten bits a score.
        """
        with self.runtime.step("validation"):
            range_checks = RangeChecks(self.runtime)
            total, bits = self._rows.sum_validation_loss(range_checks)
            return compute_mean_loss(self.runtime, self.plan, range_checks, total, bits)

    def decode_validation_loss(self, revealed: RingArray) -> float:
        """Decode the mean loss."""
        return decode_mean_loss(self.plan, revealed)

    def snapshot_scores(self) -> npt.NDArray[np.uint64]:
        """Return the local share of the scores; none with shards, whose workers store them."""
        return self._rows.snapshot_scores()

    def restore_scores(self, scores: npt.NDArray[np.uint64]) -> None:
        """Resume from earlier scores; with shards, workers restore those of their rows."""
        if isinstance(self._rows, LocalRows):
            self._rows.restore_scores(scores)

    @classmethod
    def create_shard_worker(
        cls,
        runtime: Runtime,
        plan: Plan,
        shard: Shard,
        data: ProtocolInput,
        on_scores: ScoresCallback | None,
    ) -> ShardWorker:
        """Return the worker for one shard."""
        return MaskedShardWorker(runtime, plan, shard, data, on_scores)


def _create_rows(
    runtime: Runtime,
    plan: Plan,
    scales: Scales,
    data: ProtocolInput,
    workers: Sequence[WorkerHandle],
) -> Rows:
    """Return local rows, or rows in shards if the plan has several."""
    if plan.shards > 1:
        return ShardedRows(runtime, plan, workers)
    (shard,) = plan.split_into_shards()
    return LocalRows(runtime, plan, shard, scales, data)


def _estimate_sampled_cuts(plan: Plan) -> int:
    """Return an estimate of the number of cuts that a table chooses among."""
    return math.ceil(plan.params.colsample * sum(plan.cut_counts))


def _digest(selection: IndexSelection) -> str:
    """Return a digest of a selection of rows or features."""
    if isinstance(selection, slice):
        return "all"
    return hashlib.blake2b(selection.astype("<u8").tobytes(), digest_size=16).hexdigest()
