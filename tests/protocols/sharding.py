"""Training in shards, with all roles and workers as threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from privet.boosting.sharding import run_training_worker, select_shard, shut_down_workers
from privet.boosting.training import (
    TrainingData,
    TrainingOutput,
    TrainingSpec,
    TrainingState,
    train,
)
from privet.runtime.local.launcher import raise_root_cause
from privet.runtime.run import PartyResult, make_dealer_names, run_dealer, run_party
from privet.runtime.runtime import Runtime
from privet.runtime.workers import CommandLoop, WorkerHandle
from privet.spec.plan import Plan
from privet.transport.channel import Channel
from privet.transport.memory import create_memory_channels

Scores = dict[tuple[int, int, int], npt.NDArray[np.uint64]]
"""Stored shares of scores, by participant, shard and number of tables."""
After = Callable[[Runtime, TrainingOutput, TrainingData | None, Sequence[WorkerHandle]], Any]
"""A program that coordinators run with their workers after training."""
Wrap = Callable[[str, int, Channel], Channel]
"""Returns a replacement for the channel of a role's worker in its group."""


@dataclass
class ShardedRun:
    """The results of a training run in shards."""

    coordinators: dict[str, Any] = field(default_factory=dict)
    workers: dict[tuple[str, int], Any] = field(default_factory=dict)
    scores: Scores = field(default_factory=dict)
    states: dict[tuple[int, int], TrainingState] = field(default_factory=dict)
    """The states of coordinators, by participant and number of tables."""
    after: dict[str, Any] = field(default_factory=dict)
    """The results of `After`, by role."""

    @property
    def trained(self) -> list[TrainingOutput]:
        records = [self.coordinators[role] for role in sorted(self.coordinators)]
        return [record.result for record in records if isinstance(record, PartyResult)]


class _Session:
    """The channels of one training run, and the programs of all roles and workers."""

    def __init__(
        self,
        federation: TrainingSpec,
        plan: Plan,
        inputs: Sequence[TrainingData],
        dealers: int,
        earlier: tuple[ShardedRun, int] | None,
        after: After | None,
        wrap: Wrap,
    ) -> None:
        self.federation, self.plan, self.inputs = federation, plan, inputs
        self.earlier, self.after = earlier, after
        self.names, self.dealer_names = federation.parties, make_dealer_names(dealers)
        self.roles = (*self.names, *self.dealer_names)
        self.shards = plan.split_into_shards()
        numbers = range(len(self.shards))
        self.channels = create_memory_channels(self.roles)
        groups = [create_memory_channels(self.roles) for _ in numbers]
        self.groups = {(r, k): wrap(r, k, groups[k][r]) for r in self.roles for k in numbers}
        self.links = {key: create_memory_channels(["head", "worker"]) for key in self.groups}
        self.results = ShardedRun()

    def index(self, role: str) -> int:
        return self.names.index(role) if role in self.names else -1

    def run(self, role: str, program: Callable[..., Any], data: Any, channel: Channel) -> Any:
        if role in self.dealer_names:
            return run_dealer(program, self.names, channel, self.dealer_names)
        index = self.index(role)
        return run_party(program, index, self.names, data, channel, dealers=self.dealer_names)

    def run_coordinator(self, role: str) -> None:
        index, numbers = self.index(role), range(len(self.shards))
        workers = [WorkerHandle(self.links[role, k]["head"], "worker", k) for k in numbers]

        def store(state: TrainingState) -> None:
            self.results.states[index, state.part.n_tables] = state

        def program(runtime: Runtime, data: TrainingData | None) -> TrainingOutput:
            run, n_tables = self.earlier or (ShardedRun(), 0)
            state = run.states.get((index, n_tables))
            trained = train(
                runtime, self.federation, self.plan, data,
                n_trained_tables=n_tables, state=state, on_state=store, workers=workers,
            )  # fmt: skip
            if self.after is not None:
                self.results.after[role] = self.after(runtime, trained, data, workers)
            shut_down_workers(workers)
            return trained

        data = self.inputs[index] if index >= 0 else None
        self.results.coordinators[role] = self.run(role, program, data, self.channels[role])

    def run_worker(self, role: str, k: int) -> None:
        index, shard = self.index(role), self.shards[k]
        commands = CommandLoop(self.links[role, k]["worker"], "head")
        all_rows = self.inputs[index] if index >= 0 else None
        unit = None
        if all_rows is not None and all_rows.label is not None:
            label = all_rows.label[: self.plan.n_samples]
            unit = self.federation.find_label_unit(label, all_rows.sample_weight, self.plan)

        def store(tables: int, scores: npt.NDArray[np.uint64]) -> None:
            self.results.scores[index, k, tables] = scores

        def program(runtime: Runtime, data: TrainingData | None) -> None:
            run, n_tables = self.earlier or (ShardedRun(), 0)
            try:
                run_training_worker(
                    runtime, self.federation, self.plan, shard, data, unit, commands,
                    scores=run.scores.get((index, k, n_tables)),
                    on_scores=None if data is None else store,
                )  # fmt: skip
            except BaseException as error:
                commands.send_failure(error, runtime.step_name)
                raise

        data = None if all_rows is None else select_shard(all_rows, self.plan, shard)
        self.results.workers[role, k] = self.run(role, program, data, self.groups[role, k])

    def abort(self) -> None:
        for ends in self.links.values():
            for channel in ends.values():
                channel.abort()


def train_in_shards(
    federation: TrainingSpec,
    plan: Plan,
    inputs: Sequence[TrainingData],
    *,
    dealers: int = 1,
    earlier: tuple[ShardedRun, int] | None = None,
    after: After | None = None,
    wrap: Wrap = lambda role, shard, channel: channel,
) -> ShardedRun:
    """Train with a worker for each shard at every role.

    If `earlier` is set, resume after that number of tables of an earlier run.
    """
    session = _Session(federation, plan, inputs, dealers, earlier, after, wrap)
    failures: list[BaseException] = []

    def guard(body: Callable[..., None], *arguments: Any) -> None:
        try:
            body(*arguments)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
            session.abort()

    calls: list[tuple[Any, ...]] = [(session.run_coordinator, role) for role in session.roles]
    calls += [(session.run_worker, role, k) for role, k in session.groups]
    threads = [threading.Thread(target=guard, args=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    raise_root_cause(failures)
    return session.results
