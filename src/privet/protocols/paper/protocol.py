"""The paper's protocol: SecTable for training and SecInfer for prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share, stack
from privet.arrays import BoolArray, BucketArray, IndexArray
from privet.errors import ParameterError, ResultError
from privet.gates.arithmetic import multiply_fixed_point, truncate
from privet.gates.beaver import multiply
from privet.gates.permute import Permutation
from privet.objectives.base import SharedFixedPoint, SharedFunctions
from privet.protocols.paper import algorithms
from privet.protocols.paper.algorithms import (
    FIXED_POINT,
    N_NEWTON_ITERATIONS,
    RECIPROCAL_START_BITS,
    bucket_ends,
    choose_reciprocal_bits,
    compute_sigmoid,
    divide,
    find_nearest_cuts,
    infer_scores,
    reveal_argmin,
    sort_feature,
    split_nodes,
    sum_by_bucket,
)
from privet.protocols.paper.gates import less_than
from privet.protocols.protocol import (
    AppliedSplits,
    ProtocolInput,
    SecureProtocol,
    TrainedTable,
    require_capabilities,
    share_initial_scores,
    share_target,
)
from privet.runtime.runtime import Runtime
from privet.runtime.workers import WorkerHandle
from privet.spec.plan import Plan


@dataclass(frozen=True)
class SortedColumns:
    """The local features as SecTable uses them, by feature."""

    buckets: dict[int, BucketArray]
    permutations: dict[int, Permutation]
    cuts: dict[int, IndexArray]

    @classmethod
    def sort(cls, local_buckets: dict[int, BucketArray], buckets: int) -> SortedColumns:
        """Sort features."""
        return cls(
            local_buckets,
            {j: sort_feature(bucket) for j, bucket in local_buckets.items()},
            {j: find_nearest_cuts(bucket, buckets) for j, bucket in local_buckets.items()},
        )

    def find_rows_going_left(self, feature: int, cut: int) -> BoolArray | None:
        """Return the samples that go left in a split, or None if the split is not local."""
        if feature not in self.buckets:
            return None
        result: BoolArray = self.buckets[feature] <= self.cuts[feature][cut]
        return result


class PaperFunctions(SharedFunctions):
    """The functions that the paper computes on shares."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def evaluate_sigmoid(
        self, score: SharedFixedPoint
    ) -> tuple[SharedFixedPoint, SharedFixedPoint]:
        """Return [p] = SecSigmoid([score]) and [p](1 - [p])."""
        bits = FIXED_POINT.fraction_bits
        p = compute_sigmoid(self._runtime, score.share)
        one = self._runtime.share_public(np.broadcast_to(FIXED_POINT.encode(1.0), p.shape), Z64)
        slope = multiply_fixed_point(self._runtime, p, one - p, bits=bits)
        return SharedFixedPoint(p, bits), SharedFixedPoint(slope, bits)


def compute_gradients(runtime: Runtime, plan: Plan, target: Share, score: Share) -> Share:
    """Return the gradients and Hessians of the loss: (2, 1, N)."""
    bits = FIXED_POINT.fraction_bits
    with runtime.step("gradients"):
        g, h = plan.objective.compute_shared_gradients(
            PaperFunctions(runtime), SharedFixedPoint(score, bits), SharedFixedPoint(target, bits)
        )
        if h is None:
            ones = np.broadcast_to(FIXED_POINT.encode(1.0), score.shape)
            return stack([g.share, runtime.share_public(ones, Z64)])
        return stack([g.share, h.share])


def train_table(
    runtime: Runtime, plan: Plan, columns: SortedColumns, target: Share, score: Share
) -> TrainedTable:
    """Train one table.

    1. Compute the gradients and Hessians of the loss at the current scores.
    2. At each level, choose the best split of all features (`find_best_split`), and split all nodes
       by it (SecSplit).
    3. A leaf's value is -G / (H + l2), times the learning rate.

    Reveals: as `find_best_split`, at each level, and `check_leaf_values`.

    Reference: the paper's Section V.B.4, Algorithm 6 (SecTable).
    """
    nodes = compute_gradients(runtime, plan, target, score)
    depth = plan.params.depth
    features = np.zeros(depth, dtype=np.intp)
    buckets = np.full(depth, -1, dtype=np.intp)
    for level in range(depth):
        with runtime.step("level", level):
            feature, cut = find_best_split(runtime, plan, columns.permutations, nodes)
            features[level] = feature
            if feature in columns.cuts:
                buckets[level] = columns.cuts[feature][cut]
            goes_left = columns.find_rows_going_left(feature, cut)
            nodes = split_nodes(runtime, nodes, goes_left, plan.ownership.features[feature])
    with runtime.step("leaves"):
        leaves = compute_leaf_values(runtime, plan, nodes)
        check_leaf_values(runtime, plan, leaves)
        return TrainedTable(features, buckets, leaves.reshape(1, -1))


def find_best_split(
    runtime: Runtime, plan: Plan, permutations: dict[int, Permutation], nodes: Share
) -> tuple[int, int]:
    """Return the feature and the cut of the best split of nodes (2, K, N); 0 and 0 at the dealer.

    1. Sums of g and h by feature, node and bucket (SecDisc); left and right of every cut.
    2. [delta] = -sum over nodes and both sides of ([G] / ([H] + l2)) [G], at 40 fraction bits. A
       comparison needs no truncation and no factor 1/2. [G]^2 would overflow.
    3. Reveal the best cut of every feature, then the best feature (SecArgmin).

    Reveals: the best cut of every feature, the best feature; to all participants.
    """
    kinds, n_nodes, n_samples = nodes.shape
    n_features = plan.n_features
    by_feature: Sequence[Permutation | None] = [permutations.get(j) for j in range(n_features)]
    vectors = nodes.reshape(kinds * n_nodes, n_samples)
    sums = sum_by_bucket(runtime, vectors, by_feature, plan.ownership.features, plan.params.buckets)
    sums = sums.reshape(n_features, kinds, n_nodes, plan.params.buckets)
    with runtime.step("scores"):
        left = sums.cumsum(3)[..., :-1]
        right = sums.sum(3).reshape(n_features, kinds, n_nodes, 1) - left
        sides = stack([left, right])
        g, h = sides[:, :, 0], sides[:, :, 1]
        weight = divide(runtime, g, _add_l2(runtime, plan, h), min_divisor=plan.params.l2)
        delta = -multiply(runtime, weight, g).sum((0, 2))
    with runtime.step("best bucket"):
        cuts = reveal_argmin(runtime, delta, "best bucket of every feature")
    with runtime.step("best feature"):
        best = delta[np.arange(n_features), cuts]
        (feature,) = reveal_argmin(runtime, best.reshape(1, n_features), "split feature")
    return int(feature), int(cuts[feature])


def compute_leaf_values(runtime: Runtime, plan: Plan, leaves: Share) -> Share:
    """Return the values of leaves from the gradients of their samples, (2, 2^D, N)."""
    totals = leaves.sum(2)
    value = -divide(
        runtime, totals[0], _add_l2(runtime, plan, totals[1]), min_divisor=plan.params.l2
    )
    if plan.params.learning_rate == 1.0:
        return value
    rate = int(FIXED_POINT.encode(plan.params.learning_rate))
    return truncate(runtime, value * rate, dropped_bits=FIXED_POINT.fraction_bits)


def check_leaf_values(runtime: Runtime, plan: Plan, leaves: Share) -> None:
    """Raise ResultError if a leaf value exceeds its bound in size.

    Reveals: that all leaf values are within the bound, or how many are not.
    """
    sides = stack([leaves, -leaves])
    largest = compute_max_leaf_value(plan)
    # Truncation is off by a few units, which matter where leaf values are tiny.
    bound = runtime.share_public(
        FIXED_POINT.encode(largest + runtime.n_parties * FIXED_POINT.resolution), Z64
    )
    with runtime.step("check"):
        within = less_than(runtime, sides, bound.broadcast_to(sides.shape)).sum().reshape(1)
        revealed = runtime.reveal(within, range(runtime.n_parties), "numbers within bounds")
    if revealed is not None and revealed[0] != sides.size:
        raise ResultError(f"leaf values of {largest:g} and more in size")


def compute_max_leaf_value(plan: Plan) -> float:
    """Return a bound on leaf values: the gradients of all samples over l2, or of fixed point."""
    gradients = plan.n_samples * plan.objective.max_leaf_weight
    weight = min(gradients / plan.params.l2, FIXED_POINT.limit / 4)
    return plan.params.learning_rate * weight


def _add_l2(runtime: Runtime, plan: Plan, h: Share) -> Share:
    return h + runtime.share_public(FIXED_POINT.encode(plan.params.l2), Z64).broadcast_to(h.shape)


class PaperProtocol(SecureProtocol):
    """Training and inference as the paper describes them.

    Reference: the paper's Section V.A, Algorithm 2.
    """

    encoding = FIXED_POINT
    has_single_output = True

    def __init__(
        self,
        runtime: Runtime,
        plan: Plan,
        data: ProtocolInput,
        workers: Sequence[WorkerHandle] = (),
    ) -> None:
        super().__init__(runtime, plan, data, workers)
        self._columns = SortedColumns.sort(data.buckets, plan.params.buckets)

    @classmethod
    def check_plan(cls, plan: Plan) -> None:
        """Refuse settings that the paper lacks, and sums for which SDiv does not converge."""
        params = plan.params
        require_capabilities(
            cls,
            "paper",
            {
                "reveal_loss": plan.reveal_loss,
                "validation": plan.n_validation,
                "reveal_gain": plan.reveal_gain,
                "weighted": plan.is_weighted,
                "explain": plan.has_explanations,
                "monotone": plan.monotone,
                "shards": plan.shards > 1,
            },
        )
        no_sampling = "trains every table on all rows and features"
        for key, is_requested, lack in (
            ("subsample", params.subsample < 1, no_sampling),
            ("colsample", params.colsample < 1, no_sampling),
            ("min_child_weight", params.min_child_weight, "has no such bound"),
            ("min_gain", params.min_gain, "has no such bound"),
        ):
            if is_requested:
                raise ParameterError(f"{key}: the protocol paper {lack}; use masked")
        if plan.objective.n_outputs > 1:
            raise ParameterError(
                f"protocol: paper has one score a sample, and {plan.objective.n_outputs} are "
                "needed, one for each class; use masked"
            )
        l2 = params.l2
        if choose_reciprocal_bits(l2) < RECIPROCAL_START_BITS:
            raise ParameterError(f"l2: {l2:g} is too small for paper; use 1e-5 or more")
        start = params.base_score or 0.0
        if not plan.objective.normalised_label and abs(start) > algorithms.MAX_SIGMOID_SCORE:
            raise ParameterError(
                f"base_score: paper computes with log-odds up to {algorithms.MAX_SIGMOID_SCORE} in "
                f"size, not {start:g}: leave it out, or start nearer to 0"
            )
        largest = float(plan.n_samples * plan.objective.max_hessian) + l2
        if largest > 1 << RECIPROCAL_START_BITS:
            raise ParameterError(
                f"protocol: paper divides by values up to {1 << RECIPROCAL_START_BITS}; "
                f"{plan.n_samples} samples with l2 = {l2:g} can give {largest:g}: use fewer samples"
            )

    @classmethod
    def estimate_memory(cls, plan: Plan) -> int:
        """Return six times the larger of SecPerm's vectors and SecInfer's indicators."""
        vectors = max(plan.n_features, plan.params.depth) * plan.params.n_leaves
        return 6 * Z64.nbytes((vectors, plan.n_samples))

    @classmethod
    def list_public_constants(cls, plan: Plan) -> dict[str, object]:
        """Return the constants in fixed point, and the bucket ends."""
        params = plan.params
        fixed = (params.l2, params.learning_rate)
        return {
            "fixed point": [int(FIXED_POINT.encode(value)) for value in fixed],
            "the reciprocal": [
                choose_reciprocal_bits(params.l2),
                N_NEWTON_ITERATIONS,
                RECIPROCAL_START_BITS,
            ],
            "the sigmoid": [algorithms.N_SIGMOID_SQUARINGS, algorithms.SIGMOID_START_BITS],
            "bounds": int(FIXED_POINT.encode(compute_max_leaf_value(plan))),
            "buckets": bucket_ends(plan.n_samples, params.buckets),
        }

    def setup(self) -> None:
        """Share the label."""
        plan, shape = self.plan, (self.plan.objective.n_outputs, self.plan.n_samples)
        self._target = share_target(
            self.runtime, plan.ownership.active, self.data.target, self.encoding, shape, Z64
        )
        self.scores = share_initial_scores(
            self.runtime, self.data.initial_scores, self.encoding, shape, Z64
        )

    def train_table(self, number: int) -> TrainedTable:
        """Train a table (SecTable) and add its leaf values to the scores (SecInfer)."""
        table = train_table(self.runtime, self.plan, self._columns, self._target, self.scores)
        added = infer_scores(self.runtime, self._apply_splits(table), table.leaf_values)
        self.scores += added.reshape(1, -1)
        return table

    def snapshot_scores(self) -> npt.NDArray[np.uint64]:
        """Return the local share of the scores."""
        return self.scores.part

    def restore_scores(self, scores: npt.NDArray[np.uint64]) -> None:
        """Resume from the scores at the end of an earlier training run."""
        self.scores = Share(scores, Z64)

    def _apply_splits(self, table: TrainedTable) -> AppliedSplits:
        """Return a table's splits applied to the training rows."""
        plan = self.plan
        shape = (1, plan.params.depth, plan.n_samples)
        if self.runtime.index < 0:
            return AppliedSplits(shape, None, None)
        goes_right = np.zeros(shape, dtype=np.uint8)
        for level, (feature, bucket) in enumerate(zip(table.features, table.buckets, strict=True)):
            if feature in self._columns.buckets:
                goes_right[0, level] = self._columns.buckets[feature] > bucket
        owners = np.array(plan.ownership.features)[table.features].reshape(1, -1)
        return AppliedSplits(shape, owners, goes_right)

    @classmethod
    def infer(cls, runtime: Runtime, splits: AppliedSplits, leaf_values: Share) -> Share:
        """Return the sum of leaf values that every sample reaches (SecInfer)."""
        tables, outputs, leaves = leaf_values.shape
        assert outputs == 1
        return infer_scores(runtime, splits, leaf_values.reshape(tables, leaves)).reshape(1, -1)
