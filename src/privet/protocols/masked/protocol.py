"""Our own protocol as a suite: labels and masked indicators at the start, then table by table."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from privet.arithmetic.exact_matmul import LimbMatrix
from privet.arithmetic.ring_lwe import Lattice, SmallProducts, degree_for
from privet.arithmetic.rings import Z64, RingArray
from privet.arithmetic.shares import Share
from privet.arrays import Indices
from privet.errors import ParameterError
from privet.gates.masked.functions import (
    HARMONICS,
    LARGEST_SCORE,
    coefficients,
    reciprocal_series,
    softplus_coefficients,
)
from privet.gates.masked.indicators import Published
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.value import AT_ONCE, mask_one, signed_lift
from privet.protocols.masked import inference
from privet.protocols.masked.argmax import stages
from privet.protocols.masked.bounds import Bounds, squares_room
from privet.protocols.masked.candidates import (
    RiseScale,
    candidate_features,
    handicaps,
    in_order,
    told_drop,
)
from privet.protocols.masked.inference import MaskedInference
from privet.protocols.masked.leaves import LeafScale, scaled, weight_check
from privet.protocols.masked.precision.scores import Scales
from privet.protocols.masked.row_masks import LASTING_SEED, settle_masks
from privet.protocols.masked.rows import OwnRows, Rows, TableRows, published_ring
from privet.protocols.masked.sharding import MaskedShardWorker, ShardedRows
from privet.protocols.masked.split_search import Cuts
from privet.protocols.masked.validation import LOSS_BITS, loss_of, mean_loss
from privet.protocols.protocol import Keep, OwnData, ShardWorker, TrainedTable
from privet.runtime.runtime import Runtime
from privet.runtime.workers import Head
from privet.spec.plan import Plan, Shard

_OF_A_MASK = 64
"""How many products take as long as the lattice masks of both derivatives of a row."""


class MaskedSuite(MaskedInference):
    """Training and inference on masked values."""

    has_loss = True
    has_weights = True
    has_constraints = True
    has_validation = True
    has_gain = True
    several_dealers = True
    publishes = True
    has_shards = True
    cuts = ("rounded", "exact", "hidden")

    def __init__(
        self, runtime: Runtime, plan: Plan, data: OwnData, workers: Sequence[Head] = ()
    ) -> None:
        super().__init__(runtime, plan, data, workers)
        self._scales = scales = Scales.of(plan)
        self._rows = _rows_of(runtime, plan, scales, data, workers)
        self._cuts = Cuts(runtime, plan, scales, data.min_gain)

    @classmethod
    def check(cls, plan: Plan) -> None:
        """Refuse what no scales fit, and a start that the sigmoid is not right for."""
        scales = Scales.of(plan)
        assert scales.largest_weight * scales.rate <= inference.LARGEST_LEAF
        if plan.weighted and plan.checks_squares:
            term = plan.raises_squares
            raise ParameterError(
                f"{term}: masked has no bound on sums of a regression's weighted residuals with "
                f"{term}: leave it out, or the weights"
            )
        start = plan.params.base_score or 0.0
        if not plan.objective.own_unit and abs(start) >= LARGEST_SCORE:
            raise ParameterError(
                f"base_score: masked computes with log-odds below {LARGEST_SCORE} in size, not "
                f"{start:g}: leave it out, or start nearer to 0"
            )

    @classmethod
    def with_masks(cls, plan: Plan, n_parties: int) -> Plan:
        """Return the plan with the masks that are less effort, unless its terms say which."""
        return settle_masks(cls, plan, n_parties)

    @classmethod
    def stretch(cls, plan: Plan) -> Fraction:
        """Return what makes sums of derivatives use all bits of their ring."""
        return Scales.of(plan).units.stretch

    @classmethod
    def published(cls, plan: Plan) -> Published:
        """Return the widest ring of rows, and a column for each, unless masks are lattice ones."""
        ring = published_ring(Scales.of(plan))
        if not plan.errors:
            return Published(ring, plan.n_samples)
        return Published(ring, degree_for(ring.bits), f"lattice {LASTING_SEED}")

    @classmethod
    def memory(cls, plan: Plan) -> int:
        """Return the indicators', and what the widest level and the update of scores take.

        Of every sample, what is kept of nodes; or, of some at a time, the sigmoid's dealt waves, as
        of every reciprocal of a level: with many classes and few samples these are more.
        """
        scales, cuts = Scales.of(plan), sum(candidate_features(plan)[0])
        if plan.errors:
            bits = cls.published(plan).ring.bits
            indicators = SmallProducts.memory(cuts, bits) + Lattice.memory(plan.n_samples, bits)
        else:
            indicators = LimbMatrix.memory(cuts, plan.n_samples)
            if plan.draws:  # those of a table, beside all
                indicators += LimbMatrix.memory(_drawn_cuts(plan), plan.n_drawn)
        outputs = plan.objective.outputs
        rows = (4 * outputs + 2) * plan.params.leaves * plan.n_rows
        if not plan.objective.unit_curvature:
            rows = max(rows, 4 * 2 * HARMONICS * outputs * min(plan.n_rows, AT_ONCE))
        waves = 3 * 2 * len(reciprocal_series(scales.ratio, scales.period).multiples)
        level = Z64.nbytes((waves, cuts * scales.sides))
        derived = inference.memory(plan) if plan.explains else 0
        return indicators + max(Z64.nbytes((rows,)) + level, derived)

    @classmethod
    def multiplications(cls, plan: Plan) -> int:
        """Return those of the indicators with the root's and all left children's derivatives."""
        cuts, vectors = _drawn_cuts(plan), plan.params.leaves * plan.objective.outputs
        if plan.errors:
            return (cuts * cls.published(plan).columns + _OF_A_MASK * plan.n_samples) * vectors
        return cuts * plan.n_drawn * vectors

    @classmethod
    def constants(cls, plan: Plan) -> dict[str, object]:
        """Return the scales, and what series, polynomials and comparisons are made of."""
        scales = Scales.of(plan)
        series = reciprocal_series(scales.ratio, scales.period)
        return {
            "the scales": scales.numbers(),
            "leaf values": [str(LeafScale.of(scales)), str(weight_check(scales))],
            "the sigmoid": coefficients(),
            "the reciprocal": [series.constant, series.sines, series.cosines],
            "ties": [scaled(handicaps(plan, first=first)).tolist() for first in (True, False)],
            "the tournament": stages(candidate_features(plan)[0]),
            **({"reasons": inference.constants(plan.params.depth)} if plan.explains else {}),
            **({"the order of sides": str(RiseScale.of(scales))} if plan.monotone else {}),
            "what tables draw": [_digest(part) for part in plan.draw(0) if plan.draws],
            **({"the loss": softplus_coefficients()} if plan.n_validation else {}),
            **({"gains": told_drop(scales)} if plan.reveal_gain else {}),
        }

    def setup(self) -> None:
        """Share labels and indicators, and divide by what is the same in all tables."""
        self._rows.setup()
        if self.plan.objective.unit_curvature and not self.plan.draws:
            self._cuts.keep_root(*self._rows.root_curvature())

    def train_table(self, number: int) -> TrainedTable:
        """Train a table: at each level sums go up to the cuts, and a test comes down."""
        runtime, plan = self.runtime, self.plan
        depth = plan.params.depth
        features = np.zeros(depth, dtype=np.intp)
        buckets = np.full(depth, -1, dtype=np.intp)
        bounds = Bounds(runtime)
        rows = self._rows.begin_table(number, bounds)
        loss = self._mean_square(rows) if plan.reveal_loss else None
        room = squares_room(runtime, plan, self._scales.units, rows.checked_squares())
        cuts = self._cuts.begin_table(bounds, plan.draw(number), first=number == 0)
        for level in range(depth):
            with runtime.step("level", level):
                test = cuts.best_test(rows.sums(level))
                features[level], buckets[level] = test
                with runtime.step("split"):
                    if level + 1 < depth:
                        rows.split(level, test)
                    else:
                        chosen, *residuals = rows.split_last(level, test, cuts.chosen(*test), *room)
        values = cuts.leaf_values(chosen, residuals)
        if plan.monotone:
            with runtime.step("order"):
                signs = np.array(plan.monotone)[features]
                signs[buckets == plan.params.candidates] = 0  # where nothing is tested
                values = in_order(runtime, values, signs.tolist())
        with runtime.step("update"):
            rows.add_leaves(values)
            leaves = signed_lift(runtime, values).share(runtime)
        told = plan.reveal_gain and runtime.index == plan.ownership.active
        return TrainedTable(features, buckets, leaves, loss, cuts.gains.found() if told else None)

    def _mean_square(self, rows: TableRows) -> Share:
        """Return the mean square of residuals, as LOSS_BITS fraction bits of one number.

        Rounded before it is revealed: its low bits would say more than anybody agreed to.

        Cost: one opening of one element.
        """
        runtime, units, n_samples = self.runtime, self._scales.units, self.plan.n_drawn
        fraction = units.unweighted[0][0] if self.plan.weighted else units.g_bits
        with runtime.step("loss"):
            # The sum, divided by a power of two near N, and later by what is left.
            bits = fraction + units.g_bits + n_samples.bit_length() - LOSS_BITS
            total = mask_one(runtime, rows.squared_residuals())
            return polynomial(runtime, [signed_lift(runtime, total, shift=bits)], [(1, (0,))])

    def loss_of(self, revealed: RingArray) -> float:
        """Return a mean from a sum over N divided by a power of two, in the label's own unit."""
        n_samples, stretch = self.plan.n_drawn, float(self._scales.units.stretch)
        scale = (1 << n_samples.bit_length()) / (n_samples << LOSS_BITS)
        return float(revealed[0]) * scale / stretch**2

    def validation_loss(self) -> Share:
        """Return the mean loss on validation rows.

        1. Mask what the loss is a function of, row by row; the sum follows without an opening.
        2. Mask the sum, and compare what must lie within bounds.
        3. All learn that it does, or training ends. Divide the sum by a power of two, exactly.

        Cost: three openings, of 4 bytes a score and, in the others, of ten bits or so.
        """
        with self.runtime.step("validation"):
            bounds = Bounds(self.runtime)
            total, bits = self._rows.validation_total(bounds)
            return mean_loss(self.runtime, self.plan, bounds, total, bits)

    def validation_loss_of(self, revealed: RingArray) -> float:
        """Return the mean that it stands for."""
        return loss_of(self.plan, revealed)

    def keep_scores(self) -> npt.NDArray[np.uint64]:
        """Return our share of the scores, unless workers keep them."""
        return self._rows.keep_scores()

    def resume(self, scores: npt.NDArray[np.uint64]) -> None:
        """Go on with the scores that an earlier training ended with; workers have their own."""
        if isinstance(self._rows, OwnRows):
            self._rows.resume(scores)

    @classmethod
    def worker(
        cls, runtime: Runtime, plan: Plan, shard: Shard, data: OwnData, keep: Keep | None
    ) -> ShardWorker:
        """Return whoever works on the rows of one shard."""
        return MaskedShardWorker(runtime, plan, shard, data, keep)


def _rows_of(
    runtime: Runtime, plan: Plan, scales: Scales, data: OwnData, workers: Sequence[Head]
) -> Rows:
    """Return rows that are worked on here, or by workers, if they are in shards."""
    if plan.shards > 1:
        return ShardedRows(runtime, plan, workers)
    (shard,) = plan.cut()
    return OwnRows(runtime, plan, shard, scales, data)


def _drawn_cuts(plan: Plan) -> int:
    """Return about how many cuts a table chooses among."""
    return math.ceil(plan.params.colsample * sum(plan.cuts))


def _digest(drawn: Indices) -> str:
    """Return what tells draws apart."""
    if isinstance(drawn, slice):
        return "all"
    return hashlib.blake2b(drawn.astype("<u8").tobytes(), digest_size=16).hexdigest()
