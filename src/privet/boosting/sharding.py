"""Samples to predict, in one process or in shards, and the programs of the workers.

Which samples fail which tests, workers know by themselves, if they have the rows and the model
(`federation.shard_rows`). Else their head tells them: the tests, as buckets of the rows that they
have, or what came of them, where they have no rows at all.

Reference: `boosting.inference`, which the heads run.

`LocalBatch` are worked on right here. In shards, workers do the same with theirs
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
from privet.boosting.training import TrainingData, TrainingSpec, make_protocol_input
from privet.gates.masked.truncation import round_exactly
from privet.protocols.protocol import AppliedSplits, ScoresCallback, SecureProtocol, SplitGroups
from privet.runtime.cost import CostCounter
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime
from privet.runtime.workers import (
    END_COMMAND,
    HEARTBEAT_COMMAND,
    METER_COMMAND,
    Command,
    CommandLoop,
    WorkerGroup,
    WorkerHandle,
)
from privet.spec.plan import Plan, Shard, split_into_shards


class PredictionBatch(ABC):
    """All samples of a batch, wherever they are."""

    @abstractmethod
    def compute_scores(self, leaf_values: Share, initial_scores: Share) -> Share:
        """Return shares of the scores, rounded: (K, N).

        `leaf_values` are the values of all tables, (tables, K, 2^depth), and scores start from
        `initial_scores`, (K, 1).
        """

    @abstractmethod
    def compute_explained(
        self,
        leaf_values: Share,
        initial_scores: Share,
        contributions: Share,
        groups: SplitGroups,
        base: Share,
    ) -> tuple[Share, Share, Share]:
        """Return shares of scores, (K, N), of what groups contribute, (G, K, N), and of the base.

        All of them are rounded; `contributions` are those of `SharedContributions`.
        """

    @abstractmethod
    def sum_absolute_contributions(
        self, leaf_values: Share, contributions: Share, groups: SplitGroups
    ) -> Share:
        """Return shares of the sums of absolute contributions: (G, K), over Z64."""


class LocalBatch(PredictionBatch):
    """Samples that are worked on here: all of them, or those of a shard."""

    def __init__(
        self, runtime: Runtime, protocol_type: type[SecureProtocol], splits: AppliedSplits
    ) -> None:
        self._runtime = runtime
        self._protocol_type = protocol_type
        self._splits = splits

    def compute_scores(self, leaf_values: Share, initial_scores: Share) -> Share:
        """Add up leaf values, and round the sums."""
        scores = (
            self._protocol_type.infer(self._runtime, self._splits, leaf_values) + initial_scores
        )
        rounded = round_exactly(self._runtime, scores.reshape(-1), dropped_bits=GUARD_BITS)
        return rounded.reshape(*scores.shape)

    def compute_explained(
        self,
        leaf_values: Share,
        initial_scores: Share,
        contributions: Share,
        groups: SplitGroups,
        base: Share,
    ) -> tuple[Share, Share, Share]:
        """Look contributions up beside leaf values, and round all of it at once."""
        scores, added = self._protocol_type.infer_with_contributions(
            self._runtime, self._splits, leaf_values, contributions, groups
        )
        every = concatenate([(scores + initial_scores).reshape(-1), added.reshape(-1), base])
        rounded = round_exactly(self._runtime, every, dropped_bits=GUARD_BITS)
        end = scores.size + added.size
        return (
            rounded[: scores.size].reshape(*scores.shape),
            rounded[scores.size : end].reshape(*added.shape),
            rounded[end:],
        )

    def sum_absolute_contributions(
        self, leaf_values: Share, contributions: Share, groups: SplitGroups
    ) -> Share:
        """Look contributions up, and add their sizes up."""
        _, added = self._protocol_type.infer_with_contributions(
            self._runtime, self._splits, leaf_values, contributions, groups
        )
        return self._protocol_type.sum_absolute_contributions(self._runtime, added)


MIN_SHARDED_ROWS = 1 << 16
"""Heads predict batches of fewer rows themselves: gathering workers would take longer."""

BatchShape = tuple[int, int, int]
"""(tables, depth, n_samples)."""


def uses_shards(shards: int, rows: int) -> bool:
    """Tell whether workers predict a batch of so many rows."""
    return shards > 1 and rows >= max(shards, MIN_SHARDED_ROWS)


@dataclass(frozen=True)
class BatchWorkers:
    """In how many shards samples are, and our workers; a counter has none."""

    n_shards: int
    workers: Sequence[WorkerHandle] = ()


class ShardedBatch(PredictionBatch):
    """All samples of a batch, in shards."""

    def __init__(
        self,
        runtime: Runtime,
        protocol_type: type[SecureProtocol],
        batch_workers: BatchWorkers,
        shape: BatchShape,
    ) -> None:
        tables, depth, n_samples = shape
        sizes = [shard.n_rows for shard in split_into_shards(n_samples, 0, batch_workers.n_shards)]

        def twin(counter: CostCounter, number: int) -> ShardInference:
            tests = AppliedSplits((tables, depth, sizes[number]), None, None)
            return ShardInference(counter, protocol_type, tests)

        self._runtime = runtime
        self._workers = WorkerGroup(runtime, batch_workers.workers, sizes, twin)

    def compute_scores(self, leaf_values: Share, initial_scores: Share) -> Share:
        """Have every group score its samples, under masks of its own."""
        answers = self._workers.call("scores", shares=[leaf_values, initial_scores])
        return concatenate([scores for (scores,) in answers], axis=1)

    def compute_explained(
        self,
        leaf_values: Share,
        initial_scores: Share,
        contributions: Share,
        groups: SplitGroups,
        base: Share,
    ) -> tuple[Share, Share, Share]:
        """Have every group explain its samples, while the heads round the base."""
        shares = [leaf_values, initial_scores, contributions]
        due = self._workers.send_command("explained", *_numbers(groups), shares=shares)
        rounded = round_exactly(self._runtime, base, dropped_bits=GUARD_BITS)
        answers = self._workers.receive_responses(due)
        scores = concatenate([scores for scores, _ in answers], axis=1)
        return scores, concatenate([added for _, added in answers], axis=2), rounded

    def sum_absolute_contributions(
        self, leaf_values: Share, contributions: Share, groups: SplitGroups
    ) -> Share:
        """Return the sums over all shards."""
        shares = [leaf_values, contributions]
        (total,) = self._workers.call_and_sum("absolute sums", *_numbers(groups), shares=shares)
        return total


def send_splits(
    runtime: Runtime, batch_workers: BatchWorkers, shape: BatchShape, part: ModelPart | None
) -> None:
    """Tell workers, who have the rows in buckets, what is tested; a dealer knows how much is."""
    numbers = list(shape[:2])
    if part is not None:
        numbers += [*part.feature.reshape(-1).tolist(), *part.bucket.reshape(-1).tolist()]
    for worker in batch_workers.workers:
        worker.send_command(Command("tests", tuple(numbers)))
    _await_workers(runtime, batch_workers)


def send_outcomes(
    runtime: Runtime,
    batch_workers: BatchWorkers,
    shape: BatchShape,
    part: ModelPart | None,
    columns: FloatArray | None,
) -> None:
    """Tell workers, who have no rows, which of their samples fail which tests of ours."""
    tables, depth, n_samples = shape
    for worker, shard in zip(
        batch_workers.workers, split_into_shards(n_samples, 0, batch_workers.n_shards), strict=True
    ):
        fails = Share.unknown((tables, depth, shard.n_rows), Z1)
        if part is not None and columns is not None:
            own = columns[:, shard.training_rows.start : shard.training_rows.stop]
            fails = Share(part.find_rows_going_right(own), Z1)
        worker.send_command(Command("outcomes", (), (fails,)))
    _await_workers(runtime, batch_workers)


def _await_workers(runtime: Runtime, batch_workers: BatchWorkers) -> None:
    """Wait until all workers have what they were told, if we are a participant."""
    if isinstance(runtime, Party):
        for worker in batch_workers.workers:
            worker.receive_response([])


class ShardInference:
    """What a worker does with trained tables, for its head."""

    def __init__(
        self,
        runtime: Runtime,
        protocol_type: type[SecureProtocol],
        splits: AppliedSplits | None = None,
        buckets: Mapping[int, BucketArray] | None = None,
        n_samples: int = 0,
    ) -> None:
        """Work on samples as tests come out for them, or on so many of which buckets are known.

        These are those of our own features, by feature. With neither, our head says both.
        """
        self._runtime = runtime
        self._protocol_type = protocol_type
        self._splits = splits
        self._buckets = buckets or {}
        self._n_samples = n_samples

    @staticmethod
    def handles_command(command: Command) -> bool:
        """Tell whether an order is one of these."""
        return command.name in _COMMANDS

    def execute(self, command: Command) -> list[Share]:
        """Do something, and return the shares that were asked for."""
        found = _COMMANDS[command.name](self, *command.numbers, *command.shares)
        self._runtime.forget_finished_draws()
        return found

    def _set_splits(self, tables: int, depth: int, *tests: int) -> list[Share]:
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
        self._splits = AppliedSplits(shape, None, fails)
        return []

    def _set_outcomes(self, goes_right: Share) -> list[Share]:
        tables, depth, n_samples = goes_right.shape
        known = goes_right.part if goes_right.known else None
        self._splits = AppliedSplits((tables, depth, n_samples), None, known)
        return []

    def _scores(self, leaves: Share, initial_scores: Share) -> list[Share]:
        with self._runtime.repeated_step("predict"):
            return [self._samples.compute_scores(leaves, initial_scores)]

    def _explained(self, *order: Any) -> list[Share]:
        *numbers, leaves, start, contributions = order
        nothing = leaves.reshape(-1)[:0]  # the base is the heads' to round
        with self._runtime.repeated_step("predict"):
            scores, added, _ = self._samples.compute_explained(
                leaves, start, contributions, self._groups(numbers), nothing
            )
        return [scores, added]

    def _absolute_sums(self, *order: Any) -> list[Share]:
        *numbers, leaves, contributions = order
        with self._runtime.repeated_step("predict"):
            return [
                self._samples.sum_absolute_contributions(
                    leaves, contributions, self._groups(numbers)
                )
            ]

    @property
    def _samples(self) -> LocalBatch:
        assert self._splits is not None, "our head has not said which tests fail"
        return LocalBatch(self._runtime, self._protocol_type, self._splits)

    def _groups(self, numbers: Sequence[int]) -> SplitGroups:
        """Return the groups of tests that `_numbers` stand for."""
        assert self._splits is not None
        count, *of_tests = numbers
        if not of_tests:
            return SplitGroups(count, None)
        return SplitGroups(count, np.array(of_tests).reshape(self._splits.shape[:2]))


def _numbers(groups: SplitGroups) -> list[int]:
    """Return groups as an order has them: how many, and of each test which; not at the dealer."""
    if groups.of_splits is None:
        return [groups.count]
    return [groups.count, *groups.of_splits.reshape(-1).tolist()]


_COMMANDS: dict[str, Callable[..., list[Share]]] = {
    "tests": ShardInference._set_splits,
    "outcomes": ShardInference._set_outcomes,
    "scores": ShardInference._scores,
    "explained": ShardInference._explained,
    "absolute sums": ShardInference._absolute_sums,
}


def select_shard(data: TrainingData, plan: Plan, shard: Shard) -> TrainingData:
    """Return what a participant brings along of the rows of one shard."""
    rows = shard.positions(plan.n_samples)
    return TrainingData(
        replace(data.columns, buckets=data.columns.buckets[:, rows]),
        None if data.label is None else data.label[rows],
        None if data.sample_weight is None else data.sample_weight[list(shard.training_rows)],
    )


def run_training_worker(
    runtime: Runtime,
    training_spec: TrainingSpec,
    plan: Plan,
    shard: Shard,
    data: TrainingData | None,
    unit: LabelUnit | None,
    command_loop: CommandLoop,
    *,
    scores: npt.NDArray[np.uint64] | None = None,
    on_scores: ScoresCallback | None = None,
) -> None:
    """Do what the head of a training says with the rows of one shard, until there is no more.

    That is training, and what is done with validation rows after the last table.

    Participants bring the rows' data, the label's holder its unit, and everybody the scores that an
    earlier training left, to go on from. What the rows come to is told to our head, in shares; the
    dealer's workers tell nothing.

    Reveals: nothing.
    """
    own = make_protocol_input(data, unit, plan, runtime.index)
    worker = training_spec.protocol_type.create_shard_worker(runtime, plan, shard, own, on_scores)
    if scores is not None:
        worker.restore_scores(scores)
    validated = {feature: rows[shard.n_samples :] for feature, rows in own.buckets.items()}
    inference = ShardInference(
        runtime, training_spec.protocol_type, None, validated, shard.n_validation
    )
    while (order := command_loop.receive_command()).name != END_COMMAND:
        if ShardInference.handles_command(order):
            worker.end_table()
            found = inference.execute(order)
        else:
            found = worker.execute(order)
        if isinstance(runtime, Party):
            command_loop.send_result(found, runtime.meter.summarise())
    worker.end_table()


def run_inference_worker(
    runtime: Runtime,
    protocol_type: type[SecureProtocol],
    splits: AppliedSplits | None,
    command_loop: CommandLoop,
) -> None:
    """Predict what the head of a prediction says, in one shard, until there is no more.

    Where a head goes on for long, it asks in between what was metered so far.

    Reveals: nothing.
    """
    inference = ShardInference(runtime, protocol_type, splits)
    while (order := command_loop.receive_command()).name != END_COMMAND:
        if order.name == METER_COMMAND:
            command_loop.send_meter(runtime.meter)
        elif order.name != HEARTBEAT_COMMAND:
            found = inference.execute(order)
            if isinstance(runtime, Party):
                command_loop.send_result(found, runtime.meter.summarise())


def shut_down_workers(workers: Sequence[WorkerHandle]) -> None:
    """Tell workers that there is no more to do."""
    for worker in workers:
        worker.send_command(Command(END_COMMAND))
