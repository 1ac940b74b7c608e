"""The paper's protocol as a suite: labels shared at the start, then SecTable and SecInfer in turn.

Reference: the paper's Section V.A, Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share
from privet.errors import ParameterError
from privet.runtime.orders import Head
from privet.runtime.runtime import Runtime
from privet.suites.paper import sigmoid
from privet.suites.paper.discretize import bucket_ends
from privet.suites.paper.division import FIXED, ITERATIONS, START_BITS, reciprocal_bits
from privet.suites.paper.infer import infer
from privet.suites.paper.table import SortedColumns, largest_leaf, train_table
from privet.suites.start import start_share, target_share
from privet.suites.suite import (
    AppliedTests,
    OwnData,
    Suite,
    TrainedTable,
    refuse_lacks,
)
from privet.terms.plan import Plan


class PaperSuite(Suite):
    """Training and inference as the paper describes them."""

    encoding = FIXED
    one_output = True

    def __init__(
        self, runtime: Runtime, plan: Plan, data: OwnData, workers: Sequence[Head] = ()
    ) -> None:
        super().__init__(runtime, plan, data, workers)
        self._columns = SortedColumns.of(data.buckets, plan.params.buckets)

    @classmethod
    def check(cls, plan: Plan) -> None:
        """Refuse what the paper has not, and sums at which SDiv does not converge."""
        params = plan.params
        refuse_lacks(
            cls,
            "paper",
            {
                "reveal_loss": plan.reveal_loss,
                "validation": plan.n_validation,
                "reveal_gain": plan.reveal_gain,
                "weighted": plan.weighted,
                "explain": plan.explains,
                "monotone": plan.monotone,
                "shards": plan.shards > 1,
            },
        )
        some = "trains every table on all rows and features"
        for key, asked, lack in (
            ("subsample", params.subsample < 1, some),
            ("colsample", params.colsample < 1, some),
            ("min_child_weight", params.min_child_weight, "has no such bound"),
            ("min_gain", params.min_gain, "has no such bound"),
        ):
            if asked:
                raise ParameterError(f"{key}: the protocol paper {lack}; use masked")
        if plan.objective.outputs > 1:
            raise ParameterError(
                f"protocol: paper has one score a sample, and {plan.objective.outputs} are needed, "
                "one for each class; use masked"
            )
        l2 = params.l2
        if reciprocal_bits(l2) < START_BITS:
            raise ParameterError(f"l2: {l2:g} is too small for paper; use 1e-5 or more")
        start = params.base_score or 0.0
        if not plan.objective.own_unit and abs(start) > sigmoid.LARGEST:
            raise ParameterError(
                f"base_score: paper computes with log-odds up to {sigmoid.LARGEST} in size, not "
                f"{start:g}: leave it out, or start nearer to 0"
            )
        largest = float(plan.n_samples * plan.objective.largest_curvature) + l2
        if largest > 1 << START_BITS:
            raise ParameterError(
                f"protocol: paper divides by values up to {1 << START_BITS}; {plan.n_samples} "
                f"samples with l2 = {l2:g} can give {largest:g}: use fewer samples"
            )

    @classmethod
    def memory(cls, plan: Plan) -> int:
        """Return six times the larger of SecPerm's vectors and SecInfer's indicators."""
        vectors = max(plan.n_features, plan.params.depth) * plan.params.leaves
        return 6 * Z64.nbytes((vectors, plan.n_samples))

    @classmethod
    def constants(cls, plan: Plan) -> dict[str, object]:
        """Return what is added or multiplied in fixed point, and where the buckets end."""
        params = plan.params
        fixed = (params.l2, params.learning_rate)
        return {
            "fixed point": [int(FIXED.encode(value)) for value in fixed],
            "the reciprocal": [reciprocal_bits(params.l2), ITERATIONS, START_BITS],
            "the sigmoid": [sigmoid.SQUARINGS, sigmoid.START_BITS],
            "bounds": int(FIXED.encode(largest_leaf(plan))),
            "buckets": bucket_ends(plan.n_samples, params.buckets),
        }

    def setup(self) -> None:
        """Share the label."""
        plan, shape = self.plan, (self.plan.objective.outputs, self.plan.n_samples)
        self._target = target_share(
            self.runtime, plan.ownership.active, self.data.target, self.encoding, shape, Z64
        )
        self.scores = start_share(self.runtime, self.data.start, self.encoding, shape, Z64)

    def train_table(self, number: int) -> TrainedTable:
        """Train a table (SecTable) and add its leaf values to the scores (SecInfer)."""
        table = train_table(self.runtime, self.plan, self._columns, self._target, self.scores)
        added = infer(self.runtime, self._tests(table), table.leaf_values)
        self.scores += added.reshape(1, -1)
        return table

    def keep_scores(self) -> npt.NDArray[np.uint64]:
        """Return our share of the scores."""
        return self.scores.part

    def resume(self, scores: npt.NDArray[np.uint64]) -> None:
        """Go on with the scores that an earlier training ended with."""
        self.scores = Share(scores, Z64)

    def _tests(self, table: TrainedTable) -> AppliedTests:
        """Return a table's tests as they come out for the samples of the training."""
        plan = self.plan
        shape = (1, plan.params.depth, plan.n_samples)
        if self.runtime.index < 0:
            return AppliedTests(shape, None, None)
        fails = np.zeros(shape, dtype=np.uint8)
        for level, (feature, bucket) in enumerate(zip(table.features, table.buckets, strict=True)):
            if feature in self._columns.buckets:
                fails[0, level] = self._columns.buckets[feature] > bucket
        owners = np.array(plan.ownership.features)[table.features].reshape(1, -1)
        return AppliedTests(shape, owners, fails)

    @classmethod
    def infer(cls, runtime: Runtime, tests: AppliedTests, leaf_values: Share) -> Share:
        """Return what tables add to the score of every sample (SecInfer)."""
        tables, outputs, leaves = leaf_values.shape
        assert outputs == 1
        return infer(runtime, tests, leaf_values.reshape(tables, leaves)).reshape(1, -1)
