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
from privet.gates.masked.value import MaskedValue, mask, mask_value
from privet.protocols.masked.bounds import SCORE_CHECK_BITS, RangeCheck, RangeChecks
from privet.protocols.masked.precision.scores import Scales
from privet.protocols.masked.rows import LocalRows, LocalTableRows, Rows, RowSums, Split, TableRows
from privet.protocols.protocol import ProtocolInput, ScoresCallback, ShardWorker
from privet.runtime.cost import CostCounter
from privet.runtime.runtime import Runtime
from privet.runtime.workers import Command, WorkerGroup, WorkerHandle
from privet.spec.plan import Plan, Shard


class MaskedShardWorker(ShardWorker):
    """The rows of one shard, and whoever works on them."""

    def __init__(
        self,
        runtime: Runtime,
        plan: Plan,
        shard: Shard,
        data: ProtocolInput,
        on_scores: ScoresCallback | None = None,
    ) -> None:
        self._runtime = runtime
        self.rows = LocalRows(runtime, plan, shard, Scales.from_plan(plan), data)
        self._on_scores = on_scores
        self._table: LocalTableRows
        self._step = contextlib.ExitStack()
        """The step of the table that we are in."""
        self.range_checks = RangeChecks(runtime)
        """What was compared in the last order that compares."""
        self.loss_bits = 0
        """The fraction bits of the loss that was added up last."""

    def restore_scores(self, scores: npt.NDArray[np.uint64]) -> None:
        """Go on with the scores that an earlier training ended with."""
        self.rows.restore_scores(scores)

    def execute(self, command: Command) -> list[Share]:
        """Do something, and return the shares that were asked for."""
        found = _COMMANDS[command.name](self, *command.numbers, *command.shares)
        return found or []

    def end_table(self) -> None:
        """Leave the step of a table."""
        self._step.close()

    def _setup(self) -> None:
        with self._runtime.step("setup"):
            self.rows.setup()

    def _sum_root_hessians(self) -> list[Share]:
        with self._runtime.step("setup"):
            left, total = self.rows.sum_root_hessians()
        return [left] if total is None else [left, total]

    def _begin_table(self, number: int) -> list[Share]:
        self.end_table()
        self._step.enter_context(self._runtime.step("table", number))
        self.range_checks = RangeChecks(self._runtime)
        self._table = self.rows.begin_table(number, self.range_checks)
        return [each.passed_counts for each in self.range_checks.checks]

    def _squared_residuals(self) -> list[Share]:
        with self._runtime.step("loss"):
            return [self._table.sum_squared_residuals()]

    def _list_residual_checks(self) -> list[Share]:
        return self._table.list_residual_checks()

    def _sums(self, level: int) -> list[Share]:
        with self._runtime.step("level", level):
            sums = self._table.sum_gradients(level)
        return [*sums.g, *(sums.h or ())]

    def _split(self, level: int, feature: int, bucket: int) -> None:
        with self._runtime.step("level", level), self._runtime.step("split"):
            self._table.split_nodes(level, (feature, bucket))

    def _split_last(self, level: int, feature: int, bucket: int) -> None:
        with self._runtime.step("level", level), self._runtime.step("split"):
            self._table.split_last_level(level, (feature, bucket))

    def _add_leaf_values(self, values: Share) -> None:
        with self._runtime.step("update"):
            self._table.add_leaf_values(mask_value(self._runtime, values))

    def _validate(self) -> list[Share]:
        self.range_checks = RangeChecks(self._runtime)
        with self._runtime.step("validation"):
            total = self.rows.compute_validation_sum()
            self.range_checks.check_separately(total.range_checked, SCORE_CHECK_BITS, total.problem)
        self.loss_bits = total.loss.fraction_bits
        return [
            total.loss.share.reshape(1),
            *(each.passed_counts for each in self.range_checks.checks),
        ]

    def _snapshot_scores(self, tables: int) -> None:
        self.end_table()
        if self._on_scores is not None:
            self._on_scores(tables, self.rows.snapshot_scores())


_COMMANDS: dict[str, Callable[..., list[Share] | None]] = {
    "setup": MaskedShardWorker._setup,
    "root curvature": MaskedShardWorker._sum_root_hessians,
    "begin table": MaskedShardWorker._begin_table,
    "squared residuals": MaskedShardWorker._squared_residuals,
    "checked squares": MaskedShardWorker._list_residual_checks,
    "sums": MaskedShardWorker._sums,
    "split": MaskedShardWorker._split,
    "split last": MaskedShardWorker._split_last,
    "add leaves": MaskedShardWorker._add_leaf_values,
    "validate": MaskedShardWorker._validate,
    "keep scores": MaskedShardWorker._snapshot_scores,
}


def _create_worker_group(
    runtime: Runtime, plan: Plan, workers: Sequence[WorkerHandle]
) -> WorkerGroup[MaskedShardWorker]:
    """Return a worker for every shard."""
    shards = plan.split_into_shards()
    # Whose rows are drawn by a coin may have more than others to work on.
    alike = plan.n_sampled == plan.n_samples
    kinds = [(shard.n_samples, shard.n_validation) if alike else shard for shard in shards]

    def twin(counter: CostCounter, number: int) -> MaskedShardWorker:
        return MaskedShardWorker(counter, plan, shards[number], ProtocolInput())

    return WorkerGroup(runtime, workers, kinds, twin)


def _merge_range_checks(
    workers: WorkerGroup[MaskedShardWorker],
    range_checks: RangeChecks,
    counts: Sequence[Sequence[Share]],
) -> None:
    """Add what the shards have compared to what is to be settled."""
    for twin, found in zip(workers.shape_workers, counts, strict=True):
        range_checks.checks += [
            RangeCheck(share, each.n_comparisons, each.problem)
            for share, each in zip(found, twin.range_checks.checks, strict=True)
        ]


class ShardedRows(Rows):
    """All rows of a training, in shards."""

    def __init__(self, runtime: Runtime, plan: Plan, workers: Sequence[WorkerHandle]) -> None:
        self._workers = _create_worker_group(runtime, plan, workers)
        self._outputs = plan.objective.n_outputs
        self._tables = 0

    def setup(self) -> None:
        """Have every group share its labels and indicators."""
        self._workers.call("setup")

    def sum_root_hessians(self) -> tuple[Share, Share | None]:
        """Return the sums over all shards."""
        left, *total = self._workers.call_and_sum("root curvature")
        return left, total[0] if total else None

    def begin_table(self, number: int, range_checks: RangeChecks) -> ShardedTableRows:
        """Have every group begin a table."""
        self._tables = number + 1
        workers = self._workers
        _merge_range_checks(workers, range_checks, workers.call("begin table", number))
        return ShardedTableRows(workers)

    def sum_validation_loss(self, range_checks: RangeChecks) -> tuple[MaskedValue, int]:
        """Add the groups' losses up, and mask the sum."""
        workers = self._workers
        answers = workers.call("validate")
        _merge_range_checks(workers, range_checks, [counts for _, *counts in answers])
        total = reduce(add, (loss for loss, *_ in answers))
        return mask_value(workers.runtime, total), workers.shape_workers[0].loss_bits

    def snapshot_scores(self) -> npt.NDArray[np.uint64]:
        """Have every worker keep its own, and return none."""
        self._workers.call("keep scores", self._tables)
        return np.empty((self._outputs, 0), dtype=np.uint64)


class ShardedTableRows(TableRows):
    """All rows of a training, in shards, while a table is trained."""

    def __init__(self, workers: WorkerGroup[MaskedShardWorker]) -> None:
        self._workers = workers

    def sum_squared_residuals(self) -> Share:
        """Return the sum over all shards."""
        (total,) = self._workers.call_and_sum("squared residuals")
        return total

    def list_residual_checks(self) -> list[Share]:
        """Return the sums over all shards."""
        return self._workers.call_and_sum("checked squares")

    def sum_gradients(self, level: int) -> RowSums:
        """Return the sums over all shards."""
        left_g, total_g, *h = self._workers.call_and_sum("sums", level)
        return RowSums((left_g, total_g), (h[0], h[1]) if h else None)

    def split_nodes(self, level: int, split: Split) -> None:
        """Have every group split its rows."""
        self._workers.call("split", level, *split)

    def split_last_level(self, level: int, split: Split, *values: Share) -> list[MaskedValue]:
        """Have every group find its rows' leaves, while the heads mask something."""
        due = self._workers.send_command("split last", level, *split)
        others = mask(self._workers.runtime, *values)
        self._workers.receive_responses(due)
        return others

    def add_leaf_values(self, values: MaskedValue) -> None:
        """Have every group mask shares of the values for itself."""
        self._workers.call("add leaves", shares=[values.to_share(self._workers.runtime)])
