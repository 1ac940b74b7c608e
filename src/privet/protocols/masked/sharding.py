"""Rows in shards: the view of the coordinator, and the commands of a worker.

Whatever a training asks of its rows becomes an order to all workers. What they answer are shares of
sums over their own rows, which add up.

It has a runtime of its own, in its shard's group. What goes up are shares of sums; what comes down
is a test, as its head knows it, and shares of leaf values, which the group masks for itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

import numpy as np
import numpy.typing as npt

from privet.arithmetic.shares import Share
from privet.gates.masked.value import Masked, mask, mask_one
from privet.protocols.masked.bounds import SCORE_WIDTH, Bounds, Counted
from privet.protocols.masked.precision.scores import Scales
from privet.protocols.masked.rows import OwnRows, OwnTableRows, Rows, Sums, TableRows, Test
from privet.protocols.protocol import Keep, OwnData, ShardWorker
from privet.runtime.cost import Counter
from privet.runtime.runtime import Runtime
from privet.runtime.workers import Head, Order, Workforce
from privet.spec.plan import Plan, Shard


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


def _workforce(runtime: Runtime, plan: Plan, heads: Sequence[Head]) -> Workforce[MaskedShardWorker]:
    """Return a worker for every shard."""
    shards = plan.cut()
    # Whose rows are drawn by a coin may have more than others to work on.
    alike = plan.n_drawn == plan.n_samples
    kinds = [(shard.n_samples, shard.n_validation) if alike else shard for shard in shards]

    def twin(counter: Counter, number: int) -> MaskedShardWorker:
        return MaskedShardWorker(counter, plan, shards[number], OwnData())

    return Workforce(runtime, heads, kinds, twin)


def _take_over(
    workers: Workforce[MaskedShardWorker], bounds: Bounds, counts: Sequence[Sequence[Share]]
) -> None:
    """Add what the shards have compared to what is to be settled."""
    for twin, found in zip(workers.twins, counts, strict=True):
        bounds.counted += [
            Counted(share, each.comparisons, each.what)
            for share, each in zip(found, twin.bounds.counted, strict=True)
        ]


class ShardedRows(Rows):
    """All rows of a training, in shards."""

    def __init__(self, runtime: Runtime, plan: Plan, heads: Sequence[Head]) -> None:
        self._workers = _workforce(runtime, plan, heads)
        self._outputs = plan.objective.outputs
        self._tables = 0

    def setup(self) -> None:
        """Have every group share its labels and indicators."""
        self._workers.ask("setup")

    def root_curvature(self) -> tuple[Share, Share | None]:
        """Return the sums over all shards."""
        left, *total = self._workers.sums("root curvature")
        return left, total[0] if total else None

    def begin_table(self, number: int, bounds: Bounds) -> ShardedTableRows:
        """Have every group begin a table."""
        self._tables = number + 1
        workers = self._workers
        _take_over(workers, bounds, workers.ask("begin table", number))
        return ShardedTableRows(workers)

    def validation_total(self, bounds: Bounds) -> tuple[Masked, int]:
        """Add the groups' losses up, and mask the sum."""
        workers = self._workers
        answers = workers.ask("validate")
        _take_over(workers, bounds, [counts for _, *counts in answers])
        total = reduce(add, (loss for loss, *_ in answers))
        return mask_one(workers.runtime, total), workers.twins[0].loss_bits

    def keep_scores(self) -> npt.NDArray[np.uint64]:
        """Have every worker keep its own, and return none."""
        self._workers.ask("keep scores", self._tables)
        return np.empty((self._outputs, 0), dtype=np.uint64)


class ShardedTableRows(TableRows):
    """All rows of a training, in shards, while a table is trained."""

    def __init__(self, workers: Workforce[MaskedShardWorker]) -> None:
        self._workers = workers

    def squared_residuals(self) -> Share:
        """Return the sum over all shards."""
        (total,) = self._workers.sums("squared residuals")
        return total

    def checked_squares(self) -> list[Share]:
        """Return the sums over all shards."""
        return self._workers.sums("checked squares")

    def sums(self, level: int) -> Sums:
        """Return the sums over all shards."""
        left_g, total_g, *h = self._workers.sums("sums", level)
        return Sums((left_g, total_g), (h[0], h[1]) if h else None)

    def split(self, level: int, test: Test) -> None:
        """Have every group split its rows."""
        self._workers.ask("split", level, *test)

    def split_last(self, level: int, test: Test, *beside: Share) -> list[Masked]:
        """Have every group find its rows' leaves, while the heads mask something."""
        due = self._workers.give("split last", level, *test)
        others = mask(self._workers.runtime, *beside)
        self._workers.answers(due)
        return others

    def add_leaves(self, values: Masked) -> None:
        """Have every group mask shares of the values for itself."""
        self._workers.ask("add leaves", shares=[values.share(self._workers.runtime)])
