"""Trainings in shards, all roles and workers as threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from privet.boosting.sharding import dismiss, rows_of_shard, train_shard
from privet.boosting.training import Federation, PartyData, Trained, TrainingState, train
from privet.runtime.local.launcher import raise_first
from privet.runtime.run import Record, dealer_names, run_dealer, run_party
from privet.runtime.runtime import Runtime
from privet.runtime.workers import Head, Worker
from privet.spec.plan import Plan
from privet.transport.channel import Channel
from privet.transport.memory import memory_channels

Scores = dict[tuple[int, int, int], npt.NDArray[np.uint64]]
"""What was kept, by participant, shard and number of tables."""
After = Callable[[Runtime, Trained, PartyData | None, Sequence[Head]], Any]
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
    def trained(self) -> list[Trained]:
        records = [self.heads[role] for role in sorted(self.heads)]
        return [record.result for record in records if isinstance(record, Record)]


class _Stage:
    """One training: its channels, and what everybody does."""

    def __init__(
        self,
        federation: Federation,
        plan: Plan,
        inputs: Sequence[PartyData],
        dealers: int,
        earlier: tuple[Played, int] | None,
        after: After | None,
        wrap: Wrap,
    ) -> None:
        self.federation, self.plan, self.inputs = federation, plan, inputs
        self.earlier, self.after = earlier, after
        self.names, self.dealing = federation.parties, dealer_names(dealers)
        self.roles = (*self.names, *self.dealing)
        self.shards = plan.cut()
        numbers = range(len(self.shards))
        self.heads = memory_channels(self.roles)
        groups = [memory_channels(self.roles) for _ in numbers]
        self.groups = {(r, k): wrap(r, k, groups[k][r]) for r in self.roles for k in numbers}
        self.links = {key: memory_channels(["head", "worker"]) for key in self.groups}
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
        workers = [Head(self.links[role, k]["head"], "worker", k) for k in numbers]

        def keep(state: TrainingState) -> None:
            self.found.states[index, state.part.n_tables] = state

        def program(runtime: Runtime, data: PartyData | None) -> Trained:
            played, done = self.earlier or (Played(), 0)
            state = played.states.get((index, done))
            trained = train(
                runtime, self.federation, self.plan, data,
                done=done, state=state, on_state=keep, workers=workers,
            )  # fmt: skip
            if self.after is not None:
                self.found.after[role] = self.after(runtime, trained, data, workers)
            dismiss(workers)
            return trained

        data = self.inputs[index] if index >= 0 else None
        self.found.heads[role] = self.run(role, program, data, self.heads[role])

    def worker(self, role: str, k: int) -> None:
        index, shard = self.index(role), self.shards[k]
        orders = Worker(self.links[role, k]["worker"], "head")
        whole = self.inputs[index] if index >= 0 else None
        unit = None
        if whole is not None and whole.label is not None:
            label = whole.label[: self.plan.n_samples]
            unit = self.federation.label_unit(label, whole.weight, self.plan)

        def keep(tables: int, scores: npt.NDArray[np.uint64]) -> None:
            self.found.scores[index, k, tables] = scores

        def program(runtime: Runtime, data: PartyData | None) -> None:
            played, done = self.earlier or (Played(), 0)
            try:
                train_shard(
                    runtime, self.federation, self.plan, shard, data, unit, orders,
                    scores=played.scores.get((index, k, done)),
                    keep=None if data is None else keep,
                )  # fmt: skip
            except BaseException as error:
                orders.failed(error, runtime.step_name)
                raise

        data = None if whole is None else rows_of_shard(whole, self.plan, shard)
        self.found.workers[role, k] = self.run(role, program, data, self.groups[role, k])

    def abort(self) -> None:
        for ends in self.links.values():
            for channel in ends.values():
                channel.abort()


def play_in_shards(
    federation: Federation,
    plan: Plan,
    inputs: Sequence[PartyData],
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
    raise_first(failures)
    return stage.found
