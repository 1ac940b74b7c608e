"""Trainings in shards, all roles and workers as threads of one process."""

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
"""What was kept, by participant, shard and number of tables."""
After = Callable[[Runtime, TrainingOutput, TrainingData | None, Sequence[WorkerHandle]], Any]
"""What heads do after the training, with their workers."""
Wrap = Callable[[str, int, Channel], Channel]
"""What stands in for the channel of somebody's worker in its group."""


@dataclass
class Played:
    """What came out."""

    heads: dict[str, Any] = field(default_factory=dict)
    workers: dict[tuple[str, int], Any] = field(default_factory=dict)
    scores: Scores = field(default_factory=dict)
    states: dict[tuple[int, int], TrainingState] = field(default_factory=dict)
    """Of heads, by participant and number of tables."""
    after: dict[str, Any] = field(default_factory=dict)
    """What heads did after the training."""

    @property
    def trained(self) -> list[TrainingOutput]:
        records = [self.heads[role] for role in sorted(self.heads)]
        return [record.result for record in records if isinstance(record, PartyResult)]


class _Stage:
    """One training: its channels, and what everybody does."""

    def __init__(
        self,
        federation: TrainingSpec,
        plan: Plan,
        inputs: Sequence[TrainingData],
        dealers: int,
        earlier: tuple[Played, int] | None,
        after: After | None,
        wrap: Wrap,
    ) -> None:
        self.federation, self.plan, self.inputs = federation, plan, inputs
        self.earlier, self.after = earlier, after
        self.names, self.dealing = federation.parties, make_dealer_names(dealers)
        self.roles = (*self.names, *self.dealing)
        self.shards = plan.split_into_shards()
        numbers = range(len(self.shards))
        self.heads = create_memory_channels(self.roles)
        groups = [create_memory_channels(self.roles) for _ in numbers]
        self.groups = {(r, k): wrap(r, k, groups[k][r]) for r in self.roles for k in numbers}
        self.links = {key: create_memory_channels(["head", "worker"]) for key in self.groups}
        self.found = Played()

    def index(self, role: str) -> int:
        return self.names.index(role) if role in self.names else -1

    def run(self, role: str, program: Callable[..., Any], data: Any, channel: Channel) -> Any:
        if role in self.dealing:
            return run_dealer(program, self.names, channel, self.dealing)
        index = self.index(role)
        return run_party(program, index, self.names, data, channel, dealers=self.dealing)

    def head(self, role: str) -> None:
        index, numbers = self.index(role), range(len(self.shards))
        workers = [WorkerHandle(self.links[role, k]["head"], "worker", k) for k in numbers]

        def keep(state: TrainingState) -> None:
            self.found.states[index, state.part.n_tables] = state

        def program(runtime: Runtime, data: TrainingData | None) -> TrainingOutput:
            played, done = self.earlier or (Played(), 0)
            state = played.states.get((index, done))
            trained = train(
                runtime, self.federation, self.plan, data,
                n_trained_tables=done, state=state, on_state=keep, workers=workers,
            )  # fmt: skip
            if self.after is not None:
                self.found.after[role] = self.after(runtime, trained, data, workers)
            shut_down_workers(workers)
            return trained

        data = self.inputs[index] if index >= 0 else None
        self.found.heads[role] = self.run(role, program, data, self.heads[role])

    def worker(self, role: str, k: int) -> None:
        index, shard = self.index(role), self.shards[k]
        orders = CommandLoop(self.links[role, k]["worker"], "head")
        whole = self.inputs[index] if index >= 0 else None
        unit = None
        if whole is not None and whole.label is not None:
            label = whole.label[: self.plan.n_samples]
            unit = self.federation.find_label_unit(label, whole.sample_weight, self.plan)

        def keep(tables: int, scores: npt.NDArray[np.uint64]) -> None:
            self.found.scores[index, k, tables] = scores

        def program(runtime: Runtime, data: TrainingData | None) -> None:
            played, done = self.earlier or (Played(), 0)
            try:
                run_training_worker(
                    runtime, self.federation, self.plan, shard, data, unit, orders,
                    scores=played.scores.get((index, k, done)),
                    on_scores=None if data is None else keep,
                )  # fmt: skip
            except BaseException as error:
                orders.send_failure(error, runtime.step_name)
                raise

        data = None if whole is None else select_shard(whole, self.plan, shard)
        self.found.workers[role, k] = self.run(role, program, data, self.groups[role, k])

    def abort(self) -> None:
        for ends in self.links.values():
            for channel in ends.values():
                channel.abort()


def play_in_shards(
    federation: TrainingSpec,
    plan: Plan,
    inputs: Sequence[TrainingData],
    *,
    dealers: int = 1,
    earlier: tuple[Played, int] | None = None,
    after: After | None = None,
    wrap: Wrap = lambda role, shard, channel: channel,
) -> Played:
    """Train with a worker for every shard at everybody.

    Or go on after so many tables of an `earlier` training.
    """
    stage = _Stage(federation, plan, inputs, dealers, earlier, after, wrap)
    failures: list[BaseException] = []

    def guard(body: Callable[..., None], *arguments: Any) -> None:
        try:
            body(*arguments)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
            stage.abort()

    calls: list[tuple[Any, ...]] = [(stage.head, role) for role in stage.roles]
    calls += [(stage.worker, role, k) for role, k in stage.groups]
    threads = [threading.Thread(target=guard, args=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    raise_root_cause(failures)
    return stage.found
