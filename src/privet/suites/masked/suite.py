"""Our own protocol as a suite: labels and masked indicators at the start, then table by table."""

from __future__ import annotations

import numpy as np

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.limbs import LimbMatrix
from privet.arithmetic.rings import Z64, RingArray
from privet.arithmetic.shares import Share
from privet.arrays import BucketArray
from privet.gates.choose import MaskedBits, leaf_lookup, present
from privet.gates.gate import Cost
from privet.gates.histogram import publish
from privet.gates.masked import mask
from privet.gates.waves import SCORE_BITS, coefficients
from privet.runtime.runtime import Runtime
from privet.suites.masked.costs import setup_cost, table_cost
from privet.suites.masked.division import exponent_thresholds, unit
from privet.suites.masked.scales import Scales
from privet.suites.masked.table import (
    LOSS_BITS,
    best_test,
    check_leaves,
    handicaps,
    leaf_factor,
    leaf_values,
    mask_children,
    root,
    split,
    squared_residuals,
    sum_nodes,
)
from privet.suites.masked.tournament import group_sizes
from privet.suites.plan import AppliedTests, OwnData, Plan, TrainedTable
from privet.suites.suite import Suite


class MaskedSuite(Suite):
    """Training and inference on masked values."""

    encoding = FixedPoint(SCORE_BITS)

    def __init__(self, runtime: Runtime, plan: Plan, data: OwnData | None) -> None:
        super().__init__(runtime, plan, data)
        self._scales = Scales.of(plan)

    @classmethod
    def check(cls, plan: Plan) -> None:
        """Refuse what no scales fit."""
        Scales.of(plan)

    @classmethod
    def cost(cls, plan: Plan, n_parties: int) -> tuple[Cost, Cost]:
        """Return what the label and the indicators cost, and each table."""
        return setup_cost(plan, n_parties), table_cost(plan, n_parties)

    @classmethod
    def memory(cls, plan: Plan) -> int:
        """Return the indicators', and what the widest level and the update of scores take."""
        indicators = LimbMatrix.memory(plan.n_features * plan.candidates, plan.n_samples)
        vectors = 8 * plan.leaves + 2 * plan.leaves
        return indicators + Z64.nbytes((vectors, plan.n_samples))

    @classmethod
    def multiplications(cls, plan: Plan) -> int:
        """Return those of the indicators with the root's and all left children's derivatives."""
        return plan.n_features * plan.candidates * plan.n_samples * plan.leaves

    @classmethod
    def constants(cls, plan: Plan) -> dict[str, object]:
        """Return the scales, and what series, polynomials and comparisons are made of."""
        scales = Scales.of(plan)
        return {
            "the scales": [getattr(value, "name", value) for value in vars(scales).values()],
            "the start": int(cls.encoding.encode(plan.initial_score)),
            "the sigmoid": coefficients(),
            "the reciprocal": scales.guess(),
            "quotients": [str(unit(scales)), exponent_thresholds(scales)],
            "ties": [handicaps(plan, scales, first=first).tolist() for first in (True, False)],
            "leaf values": leaf_factor(plan, scales),
            "the tournament": group_sizes(plan.n_features * plan.candidates),
        }

    def setup(self) -> None:
        """Share the label, and publish every feature's masked indicators."""
        plan, runtime, label = self.plan, self.runtime, None
        if self.data is not None and self.data.label is not None:
            label = self.encoding.encode(self.data.label)
        self._label = runtime.share(label, plan.active, (plan.n_samples,), Z64)
        start = self.encoding.encode(np.full(plan.n_samples, plan.initial_score))
        self.scores = runtime.public(start, Z64)
        buckets = None if self.data is None else self.data.buckets
        self._indicators = publish(
            runtime, plan.owners, buckets, cuts=plan.candidates, n_samples=plan.n_samples
        )

    def train_table(self, number: int) -> TrainedTable:
        """Train a table, level by level, and add its leaf values to the scores."""
        runtime, plan, scales = self.runtime, self.plan, self._scales
        features = np.zeros(plan.depth, dtype=np.intp)
        buckets = np.full(plan.depth, -1, dtype=np.intp)
        g, h = root(runtime, plan, scales, self._indicators, self._label, self.scores)
        loss = squared_residuals(runtime, scales, g) if plan.reveal_loss else None
        handicap = handicaps(plan, scales, first=number == 0)
        nodes, outcomes = None, []
        for level in range(plan.depth):
            with runtime.step("level"):
                nodes = sum_nodes(runtime, self._indicators, g, h, nodes)
                features[level], buckets[level] = best_test(runtime, plan, scales, nodes, handicap)
                fails = self._fails(int(features[level]), int(buckets[level]))
                bits, left = split(runtime, nodes, fails)
                outcomes.append(bits)
                if level + 1 < plan.depth:
                    g, h = mask_children(runtime, self._indicators, left)
        assert nodes is not None
        leaves = leaf_values(runtime, plan, scales, nodes, left)
        with runtime.step("update"):
            values = mask(runtime, leaves)
            check_leaves(runtime, plan, values)
            self.scores += leaf_lookup(runtime, _stacked(outcomes), values)
        return TrainedTable(features, buckets, leaves, loss)

    def loss_of(self, revealed: RingArray) -> float:
        """Return a mean from a sum over N divided by a power of two."""
        n_samples = self.plan.n_samples
        scale = (1 << n_samples.bit_length()) / (n_samples << LOSS_BITS)
        return float(revealed[0]) * scale

    def _fails(self, feature: int, bucket: int) -> BucketArray | None:
        """Return which samples fail a test, if it is one of ours."""
        if self.data is None or bucket < 0:
            return None
        row = self.plan.features_of(self.runtime.index).index(feature)
        fails: BucketArray = (self.data.buckets[row] > bucket).astype(np.uint8)
        return fails

    @classmethod
    def infer(cls, runtime: Runtime, tests: AppliedTests, leaf_values: Share) -> Share:
        """Return what tables add to the score of every sample: one round.

        1. Publish the outcomes of all tests and the leaf values of all tables, masked.
        2. Look every sample's leaf up in every table.
        """
        tables, _, n_samples = tests.shape
        ring = leaf_values.ring
        with runtime.step("infer"):
            outcomes, values = present(runtime, tests.fails, leaf_values, shape=tests.shape)
            total = Share.unknown((n_samples,), ring)
            if leaf_values.known:
                total = Share(ring.zeros((n_samples,)), ring)
            for table in range(tables):
                total += leaf_lookup(runtime, outcomes[table], values.map(lambda a, t=table: a[t]))
            return total


def _stacked(bits: list[MaskedBits]) -> MaskedBits:
    shape = (len(bits), *bits[0].shape)
    if bits[0].public is not None:
        return MaskedBits(shape, public=np.stack([b.public for b in bits if b.public is not None]))
    return MaskedBits(shape, mask=np.stack([b.mask for b in bits if b.mask is not None]))
