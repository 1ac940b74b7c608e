"""The paper's protocol as a suite: labels shared at the start, then SecTable and SecInfer in turn.

Reference: the paper's Section V.A, Algorithm 2.
"""

from __future__ import annotations

import numpy as np

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share
from privet.errors import ParameterError
from privet.gates.gate import Cost, sharing_cost
from privet.runtime.runtime import Runtime
from privet.suites.paper import sigmoid
from privet.suites.paper.discretize import bucket_ends
from privet.suites.paper.division import FIXED, ITERATIONS, START_BITS, reciprocal_bits
from privet.suites.paper.infer import infer, infer_cost
from privet.suites.paper.table import SortedColumns, table_cost, train_table
from privet.suites.plan import AppliedTests, OwnData, Plan, TrainedTable
from privet.suites.suite import Suite


class PaperSuite(Suite):
    """Training and inference as the paper describes them."""

    encoding = FIXED

    def __init__(self, runtime: Runtime, plan: Plan, data: OwnData | None) -> None:
        super().__init__(runtime, plan, data)
        self._columns = SortedColumns.of(plan, runtime.index, data)

    @classmethod
    def check(cls, plan: Plan) -> None:
        """Refuse sums of second derivatives at which SDiv does not converge, and the loss."""
        if plan.reveal_loss:
            raise ParameterError("reveal_loss: the protocol paper has no loss; use masked")
        largest = plan.n_samples * (1.0 if plan.task == "regression" else 0.25) + plan.l2
        if largest > 1 << START_BITS:
            raise ParameterError(
                f"protocol: paper divides by values up to {1 << START_BITS}; {plan.n_samples} "
                f"samples with l2 = {plan.l2:g} can give {largest:g}: use fewer samples"
            )

    @classmethod
    def cost(cls, plan: Plan, n_parties: int) -> tuple[Cost, Cost]:
        """Return what the label costs, and SecTable and SecInfer."""
        samples = AppliedTests((1, plan.depth, plan.n_samples), None, None)
        label = sharing_cost(Z64.nbytes((plan.n_samples,)), n_parties)
        return label, table_cost(plan, n_parties) + infer_cost(samples, n_parties)

    @classmethod
    def memory(cls, plan: Plan) -> int:
        """Return six times the larger of SecPerm's vectors and SecInfer's indicators."""
        vectors = max(plan.n_features * plan.leaves, plan.depth * plan.leaves)
        return 6 * Z64.nbytes((vectors, plan.n_samples))

    @classmethod
    def constants(cls, plan: Plan) -> dict[str, object]:
        """Return what is added or multiplied in fixed point, and where the buckets end."""
        fixed = (plan.initial_score, plan.l2, plan.learning_rate)
        return {
            "fixed point": [int(FIXED.encode(value)) for value in fixed],
            "the reciprocal": [reciprocal_bits(plan.l2), ITERATIONS, START_BITS],
            "the sigmoid": [sigmoid.SQUARINGS, sigmoid.START_BITS],
            "buckets": bucket_ends(plan.n_samples, plan.buckets),
        }

    def setup(self) -> None:
        """Share the label."""
        plan, label = self.plan, None
        if self.data is not None and self.data.label is not None:
            label = FIXED.encode(self.data.label)
        self._label = self.runtime.share(label, plan.active, (plan.n_samples,), Z64)
        start = FIXED.encode(np.full(plan.n_samples, plan.initial_score))
        self.scores = self.runtime.public(start, Z64)

    def train_table(self, number: int) -> TrainedTable:
        """Train a table (SecTable) and add its leaf values to the scores (SecInfer)."""
        runtime, plan = self.runtime, self.plan
        table = train_table(runtime, plan, self._columns, self._label, self.scores)
        self.scores += infer(runtime, self._tests(table), table.leaf_values.reshape(1, -1))
        return table

    def _tests(self, table: TrainedTable) -> AppliedTests:
        """Return a table's tests as they come out for the samples of the training."""
        plan = self.plan
        shape = (1, plan.depth, plan.n_samples)
        if self.data is None:
            return AppliedTests(shape, None, None)
        fails = np.zeros(shape, dtype=np.uint8)
        for level, (feature, bucket) in enumerate(zip(table.features, table.buckets, strict=True)):
            if feature in self._columns.buckets:
                fails[0, level] = self._columns.buckets[feature] > bucket
        owners = np.array(plan.owners)[table.features].reshape(1, -1)
        return AppliedTests(shape, owners, fails)

    @classmethod
    def infer(cls, runtime: Runtime, tests: AppliedTests, leaf_values: Share) -> Share:
        """Return what tables add to the score of every sample (SecInfer)."""
        return infer(runtime, tests, leaf_values)
