"""SecTable: training one decision table on shared gradients.

Reference: the paper's Section V.B.4, Algorithm 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share, stack
from privet.arrays import BoolArray, BucketArray, IndexArray
from privet.errors import ResultError
from privet.gates.beaver import multiply
from privet.gates.bits import less
from privet.gates.permute import Permutation
from privet.gates.truncate import multiply_fixed, truncate
from privet.runtime.runtime import Runtime
from privet.suites.paper.argmin import argmin
from privet.suites.paper.discretize import discretize, nearest_cuts, sort_order
from privet.suites.paper.division import FIXED, divide
from privet.suites.paper.sigmoid import sigmoid
from privet.suites.paper.split import split
from privet.suites.suite import TrainedTable
from privet.terms.objective import Functions, SharedReal
from privet.terms.plan import Plan


@dataclass(frozen=True)
class SortedColumns:
    """One participant's own features as SecTable uses them, by feature."""

    buckets: dict[int, BucketArray]
    orders: dict[int, Permutation]
    cuts: dict[int, IndexArray]

    @classmethod
    def of(cls, own: dict[int, BucketArray], buckets: int) -> SortedColumns:
        """Sort features."""
        return cls(
            own,
            {j: sort_order(bucket) for j, bucket in own.items()},
            {j: nearest_cuts(bucket, buckets) for j, bucket in own.items()},
        )

    def passes(self, feature: int, cut: int) -> BoolArray | None:
        """Return which samples pass a test, if it is one of ours."""
        if feature not in self.buckets:
            return None
        result: BoolArray = self.buckets[feature] <= self.cuts[feature][cut]
        return result


class PaperFunctions(Functions):
    """What the paper computes on shares."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def sigmoid(self, score: SharedReal) -> tuple[SharedReal, SharedReal]:
        """Return [p] = SecSigmoid([score]) and [p](1 - [p])."""
        bits = FIXED.fraction_bits
        p = sigmoid(self._runtime, score.share)
        one = self._runtime.public(np.broadcast_to(FIXED.encode(1.0), p.shape), Z64)
        slope = multiply_fixed(self._runtime, p, one - p, bits=bits)
        return SharedReal(p, bits), SharedReal(slope, bits)


def gradients(runtime: Runtime, plan: Plan, target: Share, score: Share) -> Share:
    """Return the first and second derivatives of the loss: (2, 1, N)."""
    bits = FIXED.fraction_bits
    with runtime.step("gradients"):
        g, h = plan.objective.derivatives_on_shares(
            PaperFunctions(runtime), SharedReal(score, bits), SharedReal(target, bits)
        )
        if h is None:
            ones = np.broadcast_to(FIXED.encode(1.0), score.shape)
            return stack([g.share, runtime.public(ones, Z64)])
        return stack([g.share, h.share])


def train_table(
    runtime: Runtime, plan: Plan, columns: SortedColumns, target: Share, score: Share
) -> TrainedTable:
    """Train one table.

    1. Derive the loss at the current scores.
    2. At each level, choose the best test of all features (`best_test`), and split all nodes by it
       (SecSplit).
    3. A leaf's value is -G / (H + l2), times the learning rate.

    Reveals: as `best_test`, at each level, and `check_leaves`.
    """
    nodes = gradients(runtime, plan, target, score)
    depth = plan.params.depth
    features = np.zeros(depth, dtype=np.intp)
    buckets = np.full(depth, -1, dtype=np.intp)
    for level in range(depth):
        with runtime.step("level", level):
            feature, cut = best_test(runtime, plan, columns.orders, nodes)
            features[level] = feature
            if feature in columns.cuts:
                buckets[level] = columns.cuts[feature][cut]
            passes = columns.passes(feature, cut)
            nodes = split(runtime, nodes, passes, plan.ownership.features[feature])
    with runtime.step("leaves"):
        leaves = leaf_values(runtime, plan, nodes)
        check_leaves(runtime, plan, leaves)
        return TrainedTable(features, buckets, leaves.reshape(1, -1))


def best_test(
    runtime: Runtime, plan: Plan, orders: dict[int, Permutation], nodes: Share
) -> tuple[int, int]:
    """Return the feature and the cut of the best test for nodes (2, K, N): 0 and 0 to the dealer.

    1. Sums of g and h by feature, node and bucket (SecDisc); left and right of every cut.
    2. [delta] = -sum over nodes and both sides of ([G] / ([H] + l2)) [G], at 40 fraction bits: for
       comparing, they need no truncation; and no factor 1/2. Never [G]^2, which would overflow.
    3. Reveal to all every feature's best cut, then the best feature (SecArgmin).

    Reveals: the best cut of every feature, the best feature; to all.
    """
    kinds, n_nodes, n_samples = nodes.shape
    n_features = plan.n_features
    by_feature: Sequence[Permutation | None] = [orders.get(j) for j in range(n_features)]
    vectors = nodes.reshape(kinds * n_nodes, n_samples)
    sums = discretize(runtime, vectors, by_feature, plan.ownership.features, plan.params.buckets)
    sums = sums.reshape(n_features, kinds, n_nodes, plan.params.buckets)
    with runtime.step("scores"):
        left = sums.cumsum(3)[..., :-1]
        right = sums.sum(3).reshape(n_features, kinds, n_nodes, 1) - left
        sides = stack([left, right])
        g, h = sides[:, :, 0], sides[:, :, 1]
        weight = divide(runtime, g, _add_l2(runtime, plan, h), least=plan.params.l2)
        delta = -multiply(runtime, weight, g).sum((0, 2))
    with runtime.step("best bucket"):
        cuts = argmin(runtime, delta, "best bucket of every feature")
    with runtime.step("best feature"):
        best = delta[np.arange(n_features), cuts]
        (feature,) = argmin(runtime, best.reshape(1, n_features), "split feature")
    return int(feature), int(cuts[feature])


def leaf_values(runtime: Runtime, plan: Plan, leaves: Share) -> Share:
    """Return the values of leaves from the gradients of their samples, (2, 2^D, N)."""
    totals = leaves.sum(2)
    value = -divide(runtime, totals[0], _add_l2(runtime, plan, totals[1]), least=plan.params.l2)
    if plan.params.learning_rate == 1.0:
        return value
    rate = int(FIXED.encode(plan.params.learning_rate))
    return truncate(runtime, value * rate, bits=FIXED.fraction_bits)


def check_leaves(runtime: Runtime, plan: Plan, leaves: Share) -> None:
    """Raise ResultError if a leaf value is larger in size than can be right.

    Reveals: that all leaf values are within the bound, or how many are not.
    """
    sides = stack([leaves, -leaves])
    largest = largest_leaf(plan)
    # Truncation is off by a few units, which matter where leaf values are tiny.
    bound = runtime.public(FIXED.encode(largest + runtime.n_parties * FIXED.unit), Z64)
    with runtime.step("check"):
        within = less(runtime, sides, bound.broadcast_to(sides.shape)).sum().reshape(1)
        found = runtime.reveal(within, range(runtime.n_parties), "numbers within bounds")
    if found is not None and found[0] != sides.size:
        raise ResultError(f"leaf values of {largest:g} and more in size")


def largest_leaf(plan: Plan) -> float:
    """Return what no leaf value passes: all gradients of all samples over l2, or fixed point."""
    gradients = plan.n_samples * plan.objective.largest_weight
    weight = min(gradients / plan.params.l2, FIXED.limit / 4)
    return plan.params.learning_rate * weight


def _add_l2(runtime: Runtime, plan: Plan, h: Share) -> Share:
    return h + runtime.public(FIXED.encode(plan.params.l2), Z64).broadcast_to(h.shape)
