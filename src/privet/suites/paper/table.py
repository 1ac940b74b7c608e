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
from privet.gates.beaver import Multiply, multiply
from privet.gates.bits import less, less_cost
from privet.gates.gate import Cost, revealing_cost
from privet.gates.permute import Permutation
from privet.gates.truncate import Truncate, multiply_fixed, multiply_fixed_cost, truncate
from privet.runtime.runtime import Runtime
from privet.suites.paper.argmin import argmin, argmin_cost
from privet.suites.paper.discretize import (
    discretize,
    discretize_cost,
    nearest_cuts,
    sort_order,
)
from privet.suites.paper.division import FIXED, divide, divide_cost
from privet.suites.paper.sigmoid import sigmoid, sigmoid_cost
from privet.suites.paper.split import split, split_cost
from privet.suites.plan import OwnData, Plan, TrainedTable


@dataclass(frozen=True)
class SortedColumns:
    """One participant's own features as SecTable uses them, by their index in the plan."""

    buckets: dict[int, BucketArray]
    orders: dict[int, Permutation]
    cuts: dict[int, IndexArray]

    @classmethod
    def of(cls, plan: Plan, participant: int, data: OwnData | None) -> SortedColumns:
        """Sort the features that a participant owns; the dealer owns none."""
        own = (
            {}
            if data is None
            else dict(zip(plan.features_of(participant), data.buckets, strict=True))
        )
        return cls(
            own,
            {j: sort_order(bucket) for j, bucket in own.items()},
            {j: nearest_cuts(bucket, plan.buckets) for j, bucket in own.items()},
        )

    def passes(self, feature: int, cut: int) -> BoolArray | None:
        """Return which samples pass a test, if it is one of ours."""
        if feature not in self.buckets:
            return None
        result: BoolArray = self.buckets[feature] <= self.cuts[feature][cut]
        return result


def gradients(runtime: Runtime, plan: Plan, label: Share, score: Share) -> Share:
    """Return the first and second derivatives of the loss: (2, N).

    Regression: [g] = [score] - [y], h = 1. Classification: [p] = SecSigmoid([score]),
    [g] = [p] - [y], [h] = [p](1 - [p]).

    Cost: `gradients_cost`.
    """
    one = runtime.public(FIXED.encode(np.ones(plan.n_samples)), Z64)
    if plan.task == "regression":
        return stack([score - label, one])
    with runtime.step("gradients"):
        p = sigmoid(runtime, score)
        h = multiply_fixed(runtime, p, one - p, bits=FIXED.fraction_bits)
        return stack([p - label, h])


def gradients_cost(plan: Plan, n_parties: int) -> Cost:
    """Return the cost of `gradients`."""
    if plan.task == "regression":
        return Cost()
    shape = (plan.n_samples,)
    return sigmoid_cost(shape, n_parties) + multiply_fixed_cost(shape, shape, n_parties)


def train_table(
    runtime: Runtime, plan: Plan, columns: SortedColumns, label: Share, score: Share
) -> TrainedTable:
    """Train one table.

    1. Derive the loss at the current scores.
    2. At each level, choose the best test of all features (`best_test`), and split all nodes by it
       (SecSplit).
    3. A leaf's value is -G / (H + l2), times the learning rate.

    Cost: `table_cost`. Reveals: as `best_test`, at each level, and `check_leaves`.
    """
    nodes = gradients(runtime, plan, label, score).reshape(2, 1, plan.n_samples)
    features = np.zeros(plan.depth, dtype=np.intp)
    buckets = np.full(plan.depth, -1, dtype=np.intp)
    for level in range(plan.depth):
        with runtime.step("level"):
            feature, cut = best_test(runtime, plan, columns.orders, nodes)
            features[level] = feature
            if feature in columns.cuts:
                buckets[level] = columns.cuts[feature][cut]
            passes = columns.passes(feature, cut)
            nodes = split(runtime, nodes, passes, plan.owners[feature])
    with runtime.step("leaves"):
        leaves = leaf_values(runtime, plan, nodes)
        check_leaves(runtime, plan, leaves)
        return TrainedTable(features, buckets, leaves)


def best_test(
    runtime: Runtime, plan: Plan, orders: dict[int, Permutation], nodes: Share
) -> tuple[int, int]:
    """Return the feature and the cut of the best test for nodes (2, K, N): 0 and 0 to the dealer.

    1. Sums of g and h by feature, node and bucket (SecDisc); left and right of every cut.
    2. [delta] = -sum over nodes and both sides of ([G] / ([H] + l2)) [G], at 40 fraction bits: for
       comparing, they need no truncation; and no factor 1/2. Never [G]^2, which would overflow.
    3. Reveal to all every feature's best cut, then the best feature (SecArgmin).

    Cost: `best_test_cost`. Reveals: the best cut of every feature, the best feature; to all.
    """
    kinds, n_nodes, n_samples = nodes.shape
    n_features = plan.n_features
    by_feature: Sequence[Permutation | None] = [orders.get(j) for j in range(n_features)]
    vectors = nodes.reshape(kinds * n_nodes, n_samples)
    sums = discretize(runtime, vectors, by_feature, plan.owners, plan.buckets)
    sums = sums.reshape(n_features, kinds, n_nodes, plan.buckets)
    with runtime.step("scores"):
        left = sums.cumsum(3)[..., :-1]
        right = sums.sum(3).reshape(n_features, kinds, n_nodes, 1) - left
        sides = stack([left, right])
        g, h = sides[:, :, 0], sides[:, :, 1]
        weight = divide(runtime, g, _add_l2(runtime, plan, h), least=plan.l2)
        delta = -multiply(runtime, weight, g).sum((0, 2))
    with runtime.step("best bucket"):
        cuts = argmin(runtime, delta, "best bucket of every feature")
    with runtime.step("best feature"):
        best = delta[np.arange(n_features), cuts]
        (feature,) = argmin(runtime, best.reshape(1, n_features), "split feature")
    return int(feature), int(cuts[feature])


def best_test_cost(plan: Plan, n_nodes: int, n_parties: int) -> Cost:
    """Return the cost of `best_test`."""
    shape = (2, plan.n_features, n_nodes, plan.candidates)
    return (
        discretize_cost(plan.n_features, (2 * n_nodes, plan.n_samples), n_parties)
        + divide_cost(shape, n_parties)
        + Multiply.cost(shape, shape, Z64, n_parties)
        + argmin_cost((plan.n_features, plan.candidates), n_parties)
        + argmin_cost((1, plan.n_features), n_parties)
    )


def leaf_values(runtime: Runtime, plan: Plan, leaves: Share) -> Share:
    """Return the values of leaves from the gradients of their samples, (2, 2^D, N).

    Cost: `leaf_values_cost`.
    """
    totals = leaves.sum(2)
    value = -divide(runtime, totals[0], _add_l2(runtime, plan, totals[1]), least=plan.l2)
    if plan.learning_rate == 1.0:
        return value
    rate = int(FIXED.encode(plan.learning_rate))
    scaled: Share = truncate(runtime, value * rate, bits=FIXED.fraction_bits)
    return scaled


def check_leaves(runtime: Runtime, plan: Plan, leaves: Share) -> None:
    """Raise ResultError if a leaf value is larger in size than can be right.

    Cost: `check_cost`. Reveals: that all leaf values are within the bound, or how many are not.
    """
    sides = stack([leaves, -leaves])
    bound = runtime.public(FIXED.encode(float(plan.largest_leaf) + FIXED.unit), Z64)
    with runtime.step("check"):
        within = less(runtime, sides, bound.broadcast_to(sides.shape)).sum().reshape(1)
        found = runtime.reveal(within, range(runtime.n_parties), "leaf values within bounds")
    if found is not None and found[0] != sides.size:
        raise ResultError(f"leaf values of {float(plan.largest_leaf):g} and more in size")


def check_cost(plan: Plan, n_parties: int) -> Cost:
    """Return the cost of `check_leaves`."""
    revealed = revealing_cost(Z64.nbytes((1,)), n_parties, n_parties)
    return less_cost((2, plan.leaves), Z64, n_parties) + revealed


def leaf_values_cost(plan: Plan, n_parties: int) -> Cost:
    """Return the cost of `leaf_values`."""
    cost = divide_cost((plan.leaves,), n_parties)
    if plan.learning_rate != 1.0:
        cost += Truncate.cost((plan.leaves,), n_parties)
    return cost


def table_cost(plan: Plan, n_parties: int) -> Cost:
    """Return the cost of `train_table`."""
    cost = gradients_cost(plan, n_parties)
    for level in range(plan.depth):
        cost += best_test_cost(plan, 1 << level, n_parties)
        cost += split_cost((2, 1 << level, plan.n_samples), n_parties)
    return cost + leaf_values_cost(plan, n_parties) + check_cost(plan, n_parties)


def _add_l2(runtime: Runtime, plan: Plan, h: Share) -> Share:
    return h + runtime.public(FIXED.encode(plan.l2), Z64).broadcast_to(h.shape)
