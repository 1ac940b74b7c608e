"""Rows in shards: the rows as the coordinator sees them, and the worker of one shard.

Every request to the rows becomes a command to all workers. A worker computes in a runtime of its
shard's group and returns shares of sums over its rows, which the coordinator adds up. It receives
the splits that its coordinator knows, and shares of leaf values, which the group masks itself.
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
    """The worker that computes on the rows of one shard."""

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
        """The step of the current table."""
        self.range_checks = RangeChecks(runtime)
        """The range checks of the last command that compares."""
        self.loss_bits = 0
        """The fraction bits of the last sum of losses."""

    def restore_scores(self, scores: npt.NDArray[np.uint64]) -> None:
        """Resume from the scores at the end of an earlier training run."""
        self.rows.restore_scores(scores)

    def execute(self, command: Command) -> list[Share]:
        """Execute a command and return the requested shares."""
        shares = _COMMANDS[command.name](self, *command.numbers, *command.shares)
        return shares or []

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

    def _sum_squared_residuals(self) -> list[Share]:
        with self._runtime.step("loss"):
            return [self._table.sum_squared_residuals()]

    def _list_residual_checks(self) -> list[Share]:
        return self._table.list_residual_checks()

    def _sum_gradients(self, level: int) -> list[Share]:
        with self._runtime.step("level", level):
            sums = self._table.sum_gradients(level)
        return [*sums.g, *(sums.h or ())]

    def _split_nodes(self, level: int, feature: int, bucket: int) -> None:
        with self._runtime.step("level", level), self._runtime.step("split"):
            self._table.split_nodes(level, (feature, bucket))

    def _split_last_level(self, level: int, feature: int, bucket: int) -> None:
        with self._runtime.step("level", level), self._runtime.step("split"):
            self._table.split_last_level(level, (feature, bucket))

    def _add_leaf_values(self, values: Share) -> None:
        with self._runtime.step("update"):
            self._table.add_leaf_values(mask_value(self._runtime, values))

    def _sum_validation_loss(self) -> list[Share]:
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
    "squared residuals": MaskedShardWorker._sum_squared_residuals,
    "checked squares": MaskedShardWorker._list_residual_checks,
    "sums": MaskedShardWorker._sum_gradients,
    "split": MaskedShardWorker._split_nodes,
    "split last": MaskedShardWorker._split_last_level,
    "add leaves": MaskedShardWorker._add_leaf_values,
    "validate": MaskedShardWorker._sum_validation_loss,
    "keep scores": MaskedShardWorker._snapshot_scores,
}


def _create_worker_group(
    runtime: Runtime, plan: Plan, workers: Sequence[WorkerHandle]
) -> WorkerGroup[MaskedShardWorker]:
    """Return the group of the workers of all shards."""
    shards = plan.split_into_shards()
    # If rows are sampled, shards of equal size can have different numbers of sampled rows.
    is_unsampled = plan.n_sampled == plan.n_samples
    kinds = [(shard.n_samples, shard.n_validation) if is_unsampled else shard for shard in shards]

    def create_shape_worker(counter: CostCounter, number: int) -> MaskedShardWorker:
        return MaskedShardWorker(counter, plan, shards[number], ProtocolInput())

    return WorkerGroup(runtime, workers, kinds, create_shape_worker)


def _merge_range_checks(
    workers: WorkerGroup[MaskedShardWorker],
    range_checks: RangeChecks,
    counts: Sequence[Sequence[Share]],
) -> None:
    """Add the range checks of the shards to those that are revealed together."""
    for worker, passed_counts in zip(workers.shape_workers, counts, strict=True):
        range_checks.checks += [
            RangeCheck(share, each.n_comparisons, each.problem)
            for share, each in zip(passed_counts, worker.range_checks.checks, strict=True)
        ]


class ShardedRows(Rows):
    """All rows of a training run, in shards."""

    def __init__(self, runtime: Runtime, plan: Plan, workers: Sequence[WorkerHandle]) -> None:
        self._workers = _create_worker_group(runtime, plan, workers)
        self._outputs = plan.objective.n_outputs
        self._tables = 0

    def setup(self) -> None:
        """Let every group share its labels and indicators."""
        self._workers.call("setup")

    def sum_root_hessians(self) -> tuple[Share, Share | None]:
        """Return the sums over all shards."""
        left, *total = self._workers.call_and_sum("root curvature")
        return left, total[0] if total else None

    def begin_table(self, number: int, range_checks: RangeChecks) -> ShardedTableRows:
        """Let every group begin a table."""
        self._tables = number + 1
        workers = self._workers
        _merge_range_checks(workers, range_checks, workers.call("begin table", number))
        return ShardedTableRows(workers)

    def sum_validation_loss(self, range_checks: RangeChecks) -> tuple[MaskedValue, int]:
        """Add up the losses of all groups, and mask the sum."""
        workers = self._workers
        responses = workers.call("validate")
        _merge_range_checks(workers, range_checks, [counts for _, *counts in responses])
        total = reduce(add, (loss for loss, *_ in responses))
        return mask_value(workers.runtime, total), workers.shape_workers[0].loss_bits

    def snapshot_scores(self) -> npt.NDArray[np.uint64]:
        """Let every worker store the scores of its rows, and return none."""
        self._workers.call("keep scores", self._tables)
        return np.empty((self._outputs, 0), dtype=np.uint64)


class ShardedTableRows(TableRows):
    """All rows of a training run, in shards, while a table is trained."""

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
        """Let every group split its rows."""
        self._workers.call("split", level, *split)

    def split_last_level(self, level: int, split: Split, *values: Share) -> list[MaskedValue]:
        """Let every group find its rows' leaves, while the coordinators mask `values`."""
        expected = self._workers.send_command("split last", level, *split)
        masked = mask(self._workers.runtime, *values)
        self._workers.receive_responses(expected)
        return masked

    def add_leaf_values(self, values: MaskedValue) -> None:
        """Let every group mask shares of the values itself."""
        self._workers.call("add leaves", shares=[values.to_share(self._workers.runtime)])
