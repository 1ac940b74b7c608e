"""Rows in shards, each worked on by a group of workers: what a head sees of them.

Whatever a training asks of its rows becomes an order to all workers. What they answer are shares of
sums over their own rows, which add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

import numpy as np
import numpy.typing as npt

from privet.arithmetic.shares import Share
from privet.gates.masked import Masked, mask, mask_one
from privet.runtime.counter import Counter
from privet.runtime.orders import Head
from privet.runtime.runtime import Runtime
from privet.runtime.workforce import Workforce
from privet.suites.masked.bounds import Bounds, Counted
from privet.suites.masked.rows import Rows, TableRows, Test
from privet.suites.masked.samples import Sums
from privet.suites.masked.worker import MaskedShardWorker
from privet.suites.suite import OwnData
from privet.terms.plan import Plan


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
