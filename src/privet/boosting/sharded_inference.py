"""Samples in shards: workers look leaves up and round what they find, heads reveal it.

Which samples fail which tests, workers know by themselves, if they have the rows and the model
(`federation.shard_rows`). Else their head tells them: the tests, as buckets of the rows that they
have, or what came of them, where they have no rows at all.

Reference: `boosting.inference`, which the heads run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privet.arithmetic.rings import Z1
from privet.arithmetic.shares import Share, concatenate
from privet.arrays import BucketArray, FloatArray
from privet.boosting.part import GUARD_BITS, ModelPart
from privet.boosting.samples import OwnSamples, Samples
from privet.gates.rounding import round_off
from privet.runtime.counter import Counter
from privet.runtime.orders import Head, Order
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime
from privet.runtime.workforce import Workforce
from privet.suites.suite import AppliedTests, Groups, Suite
from privet.terms.shards import cut_rows

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
