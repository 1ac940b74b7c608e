"""Samples to predict, in one process or in shards, and the programs of the workers.

A `LocalBatch` computes in this process. A `ShardedBatch` sends the same calls to workers, with the
same results. A worker with rows and the model applies the splits by itself. Otherwise its
coordinator sends the splits (`send_splits`), if the worker has bucketed rows, or their outcomes
(`send_outcomes`), if it has none.

Reference: `boosting.training.train` and `boosting.prediction`, which the coordinators run.
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
    """The samples of a batch, in this process or in shards."""

    @abstractmethod
    def compute_scores(self, leaf_values: Share, initial_scores: Share) -> Share:
        """Return shares of the scores, rounded: (K, N).

        `leaf_values` are the values of all tables, (tables, K, 2^depth); `initial_scores` are
        (K, 1).
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
        """Return shares of scores, (K, N), of the groups' contributions, (G, K, N), and the base.

        All of them are rounded; `contributions` are those of `SharedContributions`.
        """

    @abstractmethod
    def sum_absolute_contributions(
        self, leaf_values: Share, contributions: Share, groups: SplitGroups
    ) -> Share:
        """Return shares of the sums of absolute contributions: (G, K), over Z64."""


class LocalBatch(PredictionBatch):
    """Samples that this process computes on: all samples, or those of a shard."""

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
        """Look up contributions together with leaf values, and round all sums at once."""
        scores, added = self._protocol_type.infer_with_contributions(
            self._runtime, self._splits, leaf_values, contributions, groups
        )
        values = concatenate([(scores + initial_scores).reshape(-1), added.reshape(-1), base])
        rounded = round_exactly(self._runtime, values, dropped_bits=GUARD_BITS)
        end = scores.size + added.size
        return (
            rounded[: scores.size].reshape(*scores.shape),
            rounded[scores.size : end].reshape(*added.shape),
            rounded[end:],
        )

    def sum_absolute_contributions(
        self, leaf_values: Share, contributions: Share, groups: SplitGroups
    ) -> Share:
        """Look up contributions, and add up their absolute values."""
        _, added = self._protocol_type.infer_with_contributions(
            self._runtime, self._splits, leaf_values, contributions, groups
        )
        return self._protocol_type.sum_absolute_contributions(self._runtime, added)


MIN_SHARDED_ROWS = 1 << 16
"""Coordinators predict batches of fewer rows themselves: starting workers would take longer."""

BatchShape = tuple[int, int, int]
"""(tables, depth, n_samples)."""


def uses_shards(shards: int, rows: int) -> bool:
    """Return whether workers predict a batch of `rows` rows."""
    return shards > 1 and rows >= max(shards, MIN_SHARDED_ROWS)


@dataclass(frozen=True)
class BatchWorkers:
    """The number of shards, and the local workers; a counter has none."""

    n_shards: int
    workers: Sequence[WorkerHandle] = ()


class ShardedBatch(PredictionBatch):
    """The samples of a batch, in shards."""

    def __init__(
        self,
        runtime: Runtime,
        protocol_type: type[SecureProtocol],
        batch_workers: BatchWorkers,
        shape: BatchShape,
    ) -> None:
        tables, depth, n_samples = shape
        sizes = [shard.n_rows for shard in split_into_shards(n_samples, 0, batch_workers.n_shards)]

        def create_shape_worker(counter: CostCounter, number: int) -> ShardInference:
            splits = AppliedSplits((tables, depth, sizes[number]), None, None)
            return ShardInference(counter, protocol_type, splits)

        self._runtime = runtime
        self._workers = WorkerGroup(runtime, batch_workers.workers, sizes, create_shape_worker)

    def compute_scores(self, leaf_values: Share, initial_scores: Share) -> Share:
        """Compute the scores in every worker group, under separate masks."""
        responses = self._workers.call("scores", shares=[leaf_values, initial_scores])
        return concatenate([scores for (scores,) in responses], axis=1)

    def compute_explained(
        self,
        leaf_values: Share,
        initial_scores: Share,
        contributions: Share,
        groups: SplitGroups,
        base: Share,
    ) -> tuple[Share, Share, Share]:
        """Compute contributions in every worker group, while the coordinators round the base."""
        shares = [leaf_values, initial_scores, contributions]
        pending = self._workers.send_command("explained", *_encode_groups(groups), shares=shares)
        rounded = round_exactly(self._runtime, base, dropped_bits=GUARD_BITS)
        responses = self._workers.receive_responses(pending)
        scores = concatenate([scores for scores, _ in responses], axis=1)
        return scores, concatenate([added for _, added in responses], axis=2), rounded

    def sum_absolute_contributions(
        self, leaf_values: Share, contributions: Share, groups: SplitGroups
    ) -> Share:
        """Return the sums over all shards."""
        shares = [leaf_values, contributions]
        (total,) = self._workers.call_and_sum(
            "absolute sums", *_encode_groups(groups), shares=shares
        )
        return total


def send_splits(
    runtime: Runtime, batch_workers: BatchWorkers, shape: BatchShape, part: ModelPart | None
) -> None:
    """Send the splits to workers with bucketed rows; a dealer sends only the number of splits."""
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
    """Send the outcomes of the local splits to workers without rows."""
    tables, depth, n_samples = shape
    for worker, shard in zip(
        batch_workers.workers, split_into_shards(n_samples, 0, batch_workers.n_shards), strict=True
    ):
        goes_right = Share.unknown((tables, depth, shard.n_rows), Z1)
        if part is not None and columns is not None:
            shard_columns = columns[:, shard.training_rows.start : shard.training_rows.stop]
            goes_right = Share(part.find_rows_going_right(shard_columns), Z1)
        worker.send_command(Command("outcomes", (), (goes_right,)))
    _await_workers(runtime, batch_workers)


def _await_workers(runtime: Runtime, batch_workers: BatchWorkers) -> None:
    """Wait for a response of every worker, at a participant; dealers receive no responses."""
    if isinstance(runtime, Party):
        for worker in batch_workers.workers:
            worker.receive_response([])


class ShardInference:
    """The inference commands of a worker: prediction with trained tables."""

    def __init__(
        self,
        runtime: Runtime,
        protocol_type: type[SecureProtocol],
        splits: AppliedSplits | None = None,
        buckets: Mapping[int, BucketArray] | None = None,
        n_samples: int = 0,
    ) -> None:
        """Create it for samples with known outcomes, or for `n_samples` samples with known buckets.

        `buckets` are those of the local features, by feature. With neither, the coordinator sends
        the outcomes.
        """
        self._runtime = runtime
        self._protocol_type = protocol_type
        self._splits = splits
        self._buckets = buckets or {}
        self._n_samples = n_samples

    @staticmethod
    def handles_command(command: Command) -> bool:
        """Return whether a command is an inference command."""
        return command.name in _COMMANDS

    def execute(self, command: Command) -> list[Share]:
        """Execute a command, and return the shares of its response."""
        shares = _COMMANDS[command.name](self, *command.numbers, *command.shares)
        self._runtime.forget_finished_draws()
        return shares

    def _set_splits(self, tables: int, depth: int, *splits: int) -> list[Share]:
        """Apply splits to the local rows: all features, then the last buckets going left, or -1."""
        shape = (tables, depth, self._n_samples)
        goes_right = None
        if splits:
            goes_right = np.zeros(shape, dtype=np.uint8)
            features, buckets = np.array(splits).reshape(2, tables, depth)
            for index in np.ndindex(tables, depth):
                rows = self._buckets.get(int(features[index]))
                if rows is not None:
                    goes_right[index] = rows > buckets[index]
        self._splits = AppliedSplits(shape, None, goes_right)
        return []

    def _set_outcomes(self, goes_right: Share) -> list[Share]:
        tables, depth, n_samples = goes_right.shape
        known = goes_right.part if goes_right.known else None
        self._splits = AppliedSplits((tables, depth, n_samples), None, known)
        return []

    def _scores(self, leaves: Share, initial_scores: Share) -> list[Share]:
        with self._runtime.repeated_step("predict"):
            return [self._samples.compute_scores(leaves, initial_scores)]

    def _explained(self, *arguments: Any) -> list[Share]:
        *numbers, leaves, initial_scores, contributions = arguments
        no_base = leaves.reshape(-1)[:0]  # the coordinators round the base
        with self._runtime.repeated_step("predict"):
            scores, added, _ = self._samples.compute_explained(
                leaves, initial_scores, contributions, self._decode_groups(numbers), no_base
            )
        return [scores, added]

    def _absolute_sums(self, *arguments: Any) -> list[Share]:
        *numbers, leaves, contributions = arguments
        with self._runtime.repeated_step("predict"):
            return [
                self._samples.sum_absolute_contributions(
                    leaves, contributions, self._decode_groups(numbers)
                )
            ]

    @property
    def _samples(self) -> LocalBatch:
        assert self._splits is not None, "the coordinator has not sent the outcomes"
        return LocalBatch(self._runtime, self._protocol_type, self._splits)

    def _decode_groups(self, numbers: Sequence[int]) -> SplitGroups:
        """Return the groups of splits that `_encode_groups` encoded."""
        assert self._splits is not None
        count, *of_splits = numbers
        if not of_splits:
            return SplitGroups(count, None)
        return SplitGroups(count, np.array(of_splits).reshape(self._splits.shape[:2]))


def _encode_groups(groups: SplitGroups) -> list[int]:
    """Return the numbers of a command: the group count and, unless unknown, each split's group."""
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
    """Return a participant's input data for the rows of one shard."""
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
    """Execute the commands of a training run on the rows of one shard, until the end command.

    These are the commands for training and, after the last table, for validation rows.

    Participants pass the rows' data; the label holder also passes its unit. `scores` are those at
    the end of an earlier training run, to resume from. Workers send their results to the
    coordinator as shares; the dealer's workers send nothing.

    Reveals: nothing.
    """
    protocol_input = make_protocol_input(data, unit, plan, runtime.index)
    worker = training_spec.protocol_type.create_shard_worker(
        runtime, plan, shard, protocol_input, on_scores
    )
    if scores is not None:
        worker.restore_scores(scores)
    validation_buckets = {
        feature: rows[shard.n_samples :] for feature, rows in protocol_input.buckets.items()
    }
    inference = ShardInference(
        runtime, training_spec.protocol_type, None, validation_buckets, shard.n_validation
    )
    while (command := command_loop.receive_command()).name != END_COMMAND:
        if ShardInference.handles_command(command):
            worker.end_table()
            shares = inference.execute(command)
        else:
            shares = worker.execute(command)
        if isinstance(runtime, Party):
            command_loop.send_result(shares, runtime.meter.summarise())
    worker.end_table()


def run_inference_worker(
    runtime: Runtime,
    protocol_type: type[SecureProtocol],
    splits: AppliedSplits | None,
    command_loop: CommandLoop,
) -> None:
    """Execute the commands of a prediction on one shard, until the end command.

    A coordinator that runs for a long time requests the meter from time to time.

    Reveals: nothing.
    """
    inference = ShardInference(runtime, protocol_type, splits)
    while (command := command_loop.receive_command()).name != END_COMMAND:
        if command.name == METER_COMMAND:
            command_loop.send_meter(runtime.meter)
        elif command.name != HEARTBEAT_COMMAND:
            shares = inference.execute(command)
            if isinstance(runtime, Party):
                command_loop.send_result(shares, runtime.meter.summarise())


def shut_down_workers(workers: Sequence[WorkerHandle]) -> None:
    """Send the end command to all workers."""
    for worker in workers:
        worker.send_command(Command(END_COMMAND))
