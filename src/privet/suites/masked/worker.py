"""What a worker does for its head: orders about the rows of one shard, by name.

It has a runtime of its own, in its shard's group. What goes up are shares of sums; what comes down
is a test, as its head knows it, and shares of leaf values, which the group masks for itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from privet.arithmetic.shares import Share
from privet.gates.masked import mask_one
from privet.runtime.orders import Order
from privet.runtime.runtime import Runtime
from privet.suites.masked.bounds import Bounds
from privet.suites.masked.rows import OwnRows, OwnTableRows
from privet.suites.masked.samples import SCORE_WIDTH
from privet.suites.masked.scales import Scales
from privet.suites.shard_worker import Keep, ShardWorker
from privet.suites.suite import OwnData
from privet.terms.plan import Plan
from privet.terms.shards import Shard


class MaskedShardWorker(ShardWorker):
    """The rows of one shard, and whoever works on them."""

    def __init__(
        self, runtime: Runtime, plan: Plan, shard: Shard, data: OwnData, keep: Keep | None = None
    ) -> None:
        self._runtime = runtime
        self.rows = OwnRows(runtime, plan, shard, Scales.of(plan), data)
        self._keep = keep
        self._table: OwnTableRows
        self._step = contextlib.ExitStack()
        """The step of the table that we are in."""
        self.bounds = Bounds(runtime)
        """What was compared in the last order that compares."""
        self.loss_bits = 0
        """The fraction bits of the loss that was added up last."""

    def resume(self, scores: npt.NDArray[np.uint64]) -> None:
        """Go on with the scores that an earlier training ended with."""
        self.rows.resume(scores)

    def carry_out(self, order: Order) -> list[Share]:
        """Do something, and return the shares that were asked for."""
        found = _ORDERS[order.name](self, *order.numbers, *order.shares)
        return found or []

    def leave_table(self) -> None:
        """Leave the step of a table."""
        self._step.close()

    def _setup(self) -> None:
        with self._runtime.step("setup"):
            self.rows.setup()

    def _root_curvature(self) -> list[Share]:
        with self._runtime.step("setup"):
            left, total = self.rows.root_curvature()
        return [left] if total is None else [left, total]

    def _begin_table(self, number: int) -> list[Share]:
        self.leave_table()
        self._step.enter_context(self._runtime.step("table", number))
        self.bounds = Bounds(self._runtime)
        self._table = self.rows.begin_table(number, self.bounds)
        return [each.counts for each in self.bounds.counted]

    def _squared_residuals(self) -> list[Share]:
        with self._runtime.step("loss"):
            return [self._table.squared_residuals()]

    def _checked_squares(self) -> list[Share]:
        return self._table.checked_squares()

    def _sums(self, level: int) -> list[Share]:
        with self._runtime.step("level", level):
            sums = self._table.sums(level)
        return [*sums.g, *(sums.h or ())]

    def _split(self, level: int, feature: int, bucket: int) -> None:
        with self._runtime.step("level", level), self._runtime.step("split"):
            self._table.split(level, (feature, bucket))

    def _split_last(self, level: int, feature: int, bucket: int) -> None:
        with self._runtime.step("level", level), self._runtime.step("split"):
            self._table.split_last(level, (feature, bucket))

    def _add_leaves(self, values: Share) -> None:
        with self._runtime.step("update"):
            self._table.add_leaves(mask_one(self._runtime, values))

    def _validate(self) -> list[Share]:
        self.bounds = Bounds(self._runtime)
        with self._runtime.step("validation"):
            total = self.rows.validated()
            self.bounds.check_alone(total.checked, SCORE_WIDTH, total.what)
        self.loss_bits = total.loss.bits
        return [total.loss.share.reshape(1), *(each.counts for each in self.bounds.counted)]

    def _keep_scores(self, tables: int) -> None:
        self.leave_table()
        if self._keep is not None:
            self._keep(tables, self.rows.keep_scores())


_ORDERS: dict[str, Callable[..., list[Share] | None]] = {
    "setup": MaskedShardWorker._setup,
    "root curvature": MaskedShardWorker._root_curvature,
    "begin table": MaskedShardWorker._begin_table,
    "squared residuals": MaskedShardWorker._squared_residuals,
    "checked squares": MaskedShardWorker._checked_squares,
    "sums": MaskedShardWorker._sums,
    "split": MaskedShardWorker._split,
    "split last": MaskedShardWorker._split_last,
    "add leaves": MaskedShardWorker._add_leaves,
    "validate": MaskedShardWorker._validate,
    "keep scores": MaskedShardWorker._keep_scores,
}
