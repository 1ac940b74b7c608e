"""Samples to predict, in one process or in shards, and the programs of the workers.

Which samples fail which tests, workers know by themselves, if they have the rows and the model
(`federation.shard_rows`). Else their head tells them: the tests, as buckets of the rows that they
have, or what came of them, where they have no rows at all.

Reference: `boosting.inference`, which the heads run.

`OwnSamples` are worked on right here. In shards, workers do the same with theirs
(`sharded_inference`): the same calls, and the same numbers.

Reference: `boosting.federation.train` and `boosting.inference`, which the heads run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Z1
from privet.arithmetic.shares import Share, concatenate
from privet.arrays import BucketArray, FloatArray
from privet.boosting.model_part import GUARD_BITS, LabelUnit, ModelPart
from privet.boosting.training import Federation, PartyData, own_data
from privet.gates.masked.truncation import round_off
from privet.protocols.protocol import AppliedTests, Groups, Keep, Suite
from privet.runtime.cost import Counter
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime
from privet.runtime.workers import END, METER, PULSE, Head, Order, Worker, Workforce
from privet.spec.plan import Plan, Shard, cut_rows


class Samples(ABC):
    """All samples of a batch, wherever they are."""

    @abstractmethod
    def scores(self, leaves: Share, start: Share) -> Share:
        """Return shares of the scores, rounded: (K, N).

        `leaves` are the values of all tables, (tables, K, 2^depth), and scores start from `start`,
        (K, 1).
        """

    @abstractmethod
    def explained(
        self, leaves: Share, start: Share, contributions: Share, groups: Groups, base: Share
    ) -> tuple[Share, Share, Share]:
        """Return shares of scores, (K, N), of what groups contribute, (G, K, N), and of the base.

        All of them are rounded; `contributions` are those of `Reasons`.
        """

    @abstractmethod
    def absolute_sums(self, leaves: Share, contributions: Share, groups: Groups) -> Share:
        """Return shares of the sums of absolute contributions: (G, K), over Z64."""


class OwnSamples(Samples):
    """Samples that are worked on here: all of them, or those of a shard."""

    def __init__(self, runtime: Runtime, suite: type[Suite], tests: AppliedTests) -> None:
        self._runtime = runtime
        self._suite = suite
        self._tests = tests

    def scores(self, leaves: Share, start: Share) -> Share:
        """Add up leaf values, and round the sums."""
        scores = self._suite.infer(self._runtime, self._tests, leaves) + start
        rounded = round_off(self._runtime, scores.reshape(-1), bits=GUARD_BITS)
        return rounded.reshape(*scores.shape)

    def explained(
        self, leaves: Share, start: Share, contributions: Share, groups: Groups, base: Share
    ) -> tuple[Share, Share, Share]:
        """Look contributions up beside leaf values, and round all of it at once."""
        scores, added = self._suite.infer_explained(
            self._runtime, self._tests, leaves, contributions, groups
        )
        every = concatenate([(scores + start).reshape(-1), added.reshape(-1), base])
        rounded = round_off(self._runtime, every, bits=GUARD_BITS)
        end = scores.size + added.size
        return (
            rounded[: scores.size].reshape(*scores.shape),
            rounded[scores.size : end].reshape(*added.shape),
            rounded[end:],
        )

    def absolute_sums(self, leaves: Share, contributions: Share, groups: Groups) -> Share:
        """Look contributions up, and add their sizes up."""
        _, added = self._suite.infer_explained(
            self._runtime, self._tests, leaves, contributions, groups
        )
        return self._suite.absolute_sums(self._runtime, added)


WORTHWHILE = 1 << 16
"""Heads predict batches of fewer rows themselves: gathering workers would take longer."""

Shape = tuple[int, int, int]
"""(tables, depth, n_samples)."""


def in_shards(shards: int, rows: int) -> bool:
    """Tell whether workers predict a batch of so many rows."""
    return shards > 1 and rows >= max(shards, WORTHWHILE)


@dataclass(frozen=True)
class Crowd:
    """In how many shards samples are, and our workers; a counter has none."""

    shards: int
    workers: Sequence[Head] = ()


class SamplesInShards(Samples):
    """All samples of a batch, in shards."""

    def __init__(self, runtime: Runtime, suite: type[Suite], crowd: Crowd, shape: Shape) -> None:
        tables, depth, n_samples = shape
        sizes = [shard.n_rows for shard in cut_rows(n_samples, 0, crowd.shards)]

        def twin(counter: Counter, number: int) -> ShardInference:
            tests = AppliedTests((tables, depth, sizes[number]), None, None)
            return ShardInference(counter, suite, tests)

        self._runtime = runtime
        self._workers = Workforce(runtime, crowd.workers, sizes, twin)

    def scores(self, leaves: Share, start: Share) -> Share:
        """Have every group score its samples, under masks of its own."""
        answers = self._workers.ask("scores", shares=[leaves, start])
        return concatenate([scores for (scores,) in answers], axis=1)

    def explained(
        self, leaves: Share, start: Share, contributions: Share, groups: Groups, base: Share
    ) -> tuple[Share, Share, Share]:
        """Have every group explain its samples, while the heads round the base."""
        shares = [leaves, start, contributions]
        due = self._workers.give("explained", *_numbers(groups), shares=shares)
        rounded = round_off(self._runtime, base, bits=GUARD_BITS)
        answers = self._workers.answers(due)
        scores = concatenate([scores for scores, _ in answers], axis=1)
        return scores, concatenate([added for _, added in answers], axis=2), rounded

    def absolute_sums(self, leaves: Share, contributions: Share, groups: Groups) -> Share:
        """Return the sums over all shards."""
        shares = [leaves, contributions]
        (total,) = self._workers.sums("absolute sums", *_numbers(groups), shares=shares)
        return total


def hand_out_tests(runtime: Runtime, crowd: Crowd, shape: Shape, part: ModelPart | None) -> None:
    """Tell workers, who have the rows in buckets, what is tested; a dealer knows how much is."""
    numbers = list(shape[:2])
    if part is not None:
        numbers += [*part.feature.reshape(-1).tolist(), *part.bucket.reshape(-1).tolist()]
    for worker in crowd.workers:
        worker.give(Order("tests", tuple(numbers)))
    _wait(runtime, crowd)


def hand_out_outcomes(
    runtime: Runtime, crowd: Crowd, shape: Shape, part: ModelPart | None, columns: FloatArray | None
) -> None:
    """Tell workers, who have no rows, which of their samples fail which tests of ours."""
    tables, depth, n_samples = shape
    for worker, shard in zip(crowd.workers, cut_rows(n_samples, 0, crowd.shards), strict=True):
        fails = Share.unknown((tables, depth, shard.n_rows), Z1)
        if part is not None and columns is not None:
            own = columns[:, shard.trained.start : shard.trained.stop]
            fails = Share(part.fails(own), Z1)
        worker.give(Order("outcomes", (), (fails,)))
    _wait(runtime, crowd)


def _wait(runtime: Runtime, crowd: Crowd) -> None:
    """Wait until all workers have what they were told, if we are a participant."""
    if isinstance(runtime, Party):
        for worker in crowd.workers:
            worker.answer([])


class ShardInference:
    """What a worker does with trained tables, for its head."""

    def __init__(
        self,
        runtime: Runtime,
        suite: type[Suite],
        tests: AppliedTests | None = None,
        buckets: Mapping[int, BucketArray] | None = None,
        n_samples: int = 0,
    ) -> None:
        """Work on samples as tests come out for them, or on so many of which buckets are known.

        These are those of our own features, by feature. With neither, our head says both.
        """
        self._runtime = runtime
        self._suite = suite
        self._tests = tests
        self._buckets = buckets or {}
        self._n_samples = n_samples

    @staticmethod
    def knows(order: Order) -> bool:
        """Tell whether an order is one of these."""
        return order.name in _ORDERS

    def carry_out(self, order: Order) -> list[Share]:
        """Do something, and return the shares that were asked for."""
        found = _ORDERS[order.name](self, *order.numbers, *order.shares)
        self._runtime.leave_for_good()
        return found

    def _hear_tests(self, tables: int, depth: int, *tests: int) -> list[Share]:
        """Apply tests to our rows: features, then the last buckets that pass; -1, to others."""
        shape = (tables, depth, self._n_samples)
        fails = None
        if tests:
            fails = np.zeros(shape, dtype=np.uint8)
            features, buckets = np.array(tests).reshape(2, tables, depth)
            for place in np.ndindex(tables, depth):
                own = self._buckets.get(int(features[place]))
                if own is not None:
                    fails[place] = own > buckets[place]
        self._tests = AppliedTests(shape, None, fails)
        return []

    def _hear_outcomes(self, fails: Share) -> list[Share]:
        tables, depth, n_samples = fails.shape
        known = fails.part if fails.known else None
        self._tests = AppliedTests((tables, depth, n_samples), None, known)
        return []

    def _scores(self, leaves: Share, start: Share) -> list[Share]:
        with self._runtime.step_again("predict"):
            return [self._samples.scores(leaves, start)]

    def _explained(self, *order: Any) -> list[Share]:
        *numbers, leaves, start, contributions = order
        nothing = leaves.reshape(-1)[:0]  # the base is the heads' to round
        with self._runtime.step_again("predict"):
            scores, added, _ = self._samples.explained(
                leaves, start, contributions, self._groups(numbers), nothing
            )
        return [scores, added]

    def _absolute_sums(self, *order: Any) -> list[Share]:
        *numbers, leaves, contributions = order
        with self._runtime.step_again("predict"):
            return [self._samples.absolute_sums(leaves, contributions, self._groups(numbers))]

    @property
    def _samples(self) -> OwnSamples:
        assert self._tests is not None, "our head has not said which tests fail"
        return OwnSamples(self._runtime, self._suite, self._tests)

    def _groups(self, numbers: Sequence[int]) -> Groups:
        """Return the groups of tests that `_numbers` stand for."""
        assert self._tests is not None
        count, *of_tests = numbers
        if not of_tests:
            return Groups(count, None)
        return Groups(count, np.array(of_tests).reshape(self._tests.shape[:2]))


def _numbers(groups: Groups) -> list[int]:
    """Return groups as an order has them: how many, and of each test which; not at the dealer."""
    if groups.of_tests is None:
        return [groups.count]
    return [groups.count, *groups.of_tests.reshape(-1).tolist()]


_ORDERS: dict[str, Callable[..., list[Share]]] = {
    "tests": ShardInference._hear_tests,
    "outcomes": ShardInference._hear_outcomes,
    "scores": ShardInference._scores,
    "explained": ShardInference._explained,
    "absolute sums": ShardInference._absolute_sums,
}


def rows_of_shard(data: PartyData, plan: Plan, shard: Shard) -> PartyData:
    """Return what a participant brings along of the rows of one shard."""
    rows = shard.positions(plan.n_samples)
    return PartyData(
        replace(data.columns, buckets=data.columns.buckets[:, rows]),
        None if data.label is None else data.label[rows],
        None if data.weight is None else data.weight[list(shard.trained)],
    )


def train_shard(
    runtime: Runtime,
    federation: Federation,
    plan: Plan,
    shard: Shard,
    data: PartyData | None,
    unit: LabelUnit | None,
    orders: Worker,
    *,
    scores: npt.NDArray[np.uint64] | None = None,
    keep: Keep | None = None,
) -> None:
    """Do what the head of a training says with the rows of one shard, until there is no more.

    That is training, and what is done with validation rows after the last table.

    Participants bring the rows' data, the label's holder its unit, and everybody the scores that an
    earlier training left, to go on from. What the rows come to is told to our head, in shares; the
    dealer's workers tell nothing.

    Reveals: nothing.
    """
    own = own_data(data, unit, plan, runtime.index)
    worker = federation.suite.worker(runtime, plan, shard, own, keep)
    if scores is not None:
        worker.resume(scores)
    validated = {feature: rows[shard.n_samples :] for feature, rows in own.buckets.items()}
    inference = ShardInference(runtime, federation.suite, None, validated, shard.n_validation)
    while (order := orders.next()).name != END:
        if ShardInference.knows(order):
            worker.leave_table()
            found = inference.carry_out(order)
        else:
            found = worker.carry_out(order)
        if isinstance(runtime, Party):
            orders.done(found, runtime.meter.figures())
    worker.leave_table()


def infer_shard(
    runtime: Runtime, suite: type[Suite], tests: AppliedTests | None, orders: Worker
) -> None:
    """Predict what the head of a prediction says, in one shard, until there is no more.

    Where a head goes on for long, it asks in between what was metered so far.

    Reveals: nothing.
    """
    inference = ShardInference(runtime, suite, tests)
    while (order := orders.next()).name != END:
        if order.name == METER:
            orders.metered(runtime.meter)
        elif order.name != PULSE:
            found = inference.carry_out(order)
            if isinstance(runtime, Party):
                orders.done(found, runtime.meter.figures())


def dismiss(workers: Sequence[Head]) -> None:
    """Tell workers that there is no more to do."""
    for worker in workers:
        worker.give(Order(END))
