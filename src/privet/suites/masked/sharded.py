"""Rows in shards, each worked on by a group of workers: what a head sees of them.

Whatever a training asks of its rows becomes an order to all workers. What they answer are shares of
sums over their own rows, which add up. A head does not wait before it has something to do with an
answer; dealers get none, so their workers run ahead of them.

What an answer looks like follows from the plan: every kind of shard has a twin, which carries out
the same orders on shapes, and counts what they cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

import numpy as np
import numpy.typing as npt

from privet.arithmetic.shares import Share
from privet.gates.masked import Masked, mask, mask_one
from privet.runtime.counter import Cost, Counter
from privet.runtime.orders import Head, Order
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime
from privet.suites.masked.bounds import Bounds, Counted
from privet.suites.masked.rows import Rows, TableRows, Test
from privet.suites.masked.samples import Sums
from privet.suites.masked.worker import MaskedShardWorker
from privet.suites.suite import OwnData
from privet.terms.plan import Plan
from privet.terms.shards import Shard


class _Twin:
    """A shard's worker on shapes alone, which stands for all shards of its kind."""

    def __init__(self, counter: Counter, plan: Plan, shard: Shard) -> None:
        self._counter = counter
        self.worker = MaskedShardWorker(counter, plan, shard, OwnData())

    def carry_out(self, order: Order) -> tuple[list[Share], Cost]:
        """Return the shapes of what is asked for, and what it costs a group."""
        before = self._counter.total
        shares = self.worker.carry_out(order)
        return shares, self._counter.total - before


class _Workers:
    """All workers of one role."""

    def __init__(self, runtime: Runtime, plan: Plan, heads: Sequence[Head]) -> None:
        self.runtime = runtime
        self._heads = heads
        twins: dict[object, _Twin] = {}
        self.twins = []
        """Of every shard."""
        for shard in plan.cut():
            # Whose rows are drawn by a coin may have more than others to work on.
            kind = shard if plan.n_drawn < plan.n_samples else (shard.n_samples, shard.n_validation)
            if kind not in twins:
                twins[kind] = _Twin(_counter(runtime), plan, shard)
            self.twins.append(twins[kind])

    def give(self, name: str, *numbers: int, shares: Sequence[Share] = ()) -> list[list[Share]]:
        """Have something done in all shards; return what they will answer, as shapes."""
        order = Order(name, numbers, tuple(shares))
        for head in self._heads:
            head.give(order)
        blind = Order(name, numbers, tuple(Share.unknown(x.shape, x.ring) for x in shares))
        found = {twin: twin.carry_out(blind) for twin in dict.fromkeys(self.twins)}
        if isinstance(self.runtime, Counter):
            # Groups work side by side, so the delays of one are those of all.
            costs = [found[twin][1] for twin in self.twins]
            total = reduce(add, costs)
            self.runtime.add(total.with_rounds(max(cost.rounds for cost in costs)))
        return [found[twin][0] for twin in self.twins]

    def answers(self, due: list[list[Share]]) -> list[list[Share]]:
        """Wait for what all shards answer, if we are a participant."""
        if not isinstance(self.runtime, Party):
            return due
        return [head.answer(each) for head, each in zip(self._heads, due, strict=True)]

    def sums(self, name: str, *numbers: int) -> list[Share]:
        """Have something added up in all shards, and add that up."""
        answers = self.answers(self.give(name, *numbers))
        return [reduce(add, each) for each in zip(*answers, strict=True)]

    def do(self, name: str, *numbers: int, shares: Sequence[Share] = ()) -> None:
        """Have something done in all shards, and wait until it is."""
        self.answers(self.give(name, *numbers, shares=shares))

    def take_over(self, bounds: Bounds, counts: Sequence[Sequence[Share]]) -> None:
        """Add what the shards have compared to what is to be settled."""
        for twin, found in zip(self.twins, counts, strict=True):
            bounds.counted += [
                Counted(share, each.comparisons, each.what)
                for share, each in zip(found, twin.worker.bounds.counted, strict=True)
            ]


class ShardedRows(Rows):
    """All rows of a training, in shards."""

    def __init__(self, runtime: Runtime, plan: Plan, heads: Sequence[Head]) -> None:
        self._workers = _Workers(runtime, plan, heads)
        self._outputs = plan.objective.outputs
        self._tables = 0

    def setup(self) -> None:
        """Have every group share its labels and indicators."""
        self._workers.do("setup")

    def root_curvature(self) -> tuple[Share, Share | None]:
        """Return the sums over all shards."""
        left, *total = self._workers.sums("root curvature")
        return left, total[0] if total else None

    def begin_table(self, number: int, bounds: Bounds) -> ShardedTableRows:
        """Have every group begin a table."""
        self._tables = number + 1
        workers = self._workers
        workers.take_over(bounds, workers.answers(workers.give("begin table", number)))
        return ShardedTableRows(workers)

    def validation_total(self, bounds: Bounds) -> tuple[Masked, int]:
        """Add the groups' losses up, and mask the sum."""
        workers = self._workers
        answers = workers.answers(workers.give("validate"))
        workers.take_over(bounds, [counts for _, *counts in answers])
        total = reduce(add, (loss for loss, *_ in answers))
        return mask_one(workers.runtime, total), workers.twins[0].worker.loss_bits

    def keep_scores(self) -> npt.NDArray[np.uint64]:
        """Have every worker keep its own, and return none."""
        self._workers.do("keep scores", self._tables)
        return np.empty((self._outputs, 0), dtype=np.uint64)


class ShardedTableRows(TableRows):
    """All rows of a training, in shards, while a table is trained."""

    def __init__(self, workers: _Workers) -> None:
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
        self._workers.do("split", level, *test)

    def split_last(self, level: int, test: Test, *beside: Share) -> list[Masked]:
        """Have every group find its rows' leaves, while the heads mask something."""
        due = self._workers.give("split last", level, *test)
        others = mask(self._workers.runtime, *beside)
        self._workers.answers(due)
        return others

    def add_leaves(self, values: Masked) -> None:
        """Have every group mask shares of the values for itself."""
        self._workers.do("add leaves", shares=[values.share(self._workers.runtime)])


def _counter(runtime: Runtime) -> Counter:
    """Return a counter of what a group does, like one of what all heads do."""
    return runtime.twin() if isinstance(runtime, Counter) else Counter(runtime.n_parties)
