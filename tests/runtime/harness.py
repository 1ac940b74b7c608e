"""Runs programs, and records all messages and openings at each participant."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from privet.arithmetic.rings import RingArray
from privet.errors import PeerError
from privet.runtime.accounting import DisclosureLedger, Meter
from privet.runtime.correlations.source import LiveReceiver
from privet.runtime.cost import Cost, CostCounter
from privet.runtime.opening import NetworkModel
from privet.runtime.party import Party
from privet.runtime.run import DEALER_NAME, Program, run_dealer
from privet.transport.channel import Array, Channel, Expected
from privet.transport.memory import create_memory_channels


class Received(NamedTuple):
    """A message from another participant, and the step in which it was received."""

    peer: str
    tag: int
    step: str
    array: Array


class RecordingChannel(Channel):
    """A channel that records received arrays."""

    def __init__(self, inner: Channel) -> None:
        super().__init__(inner.name, inner.peer_timeout)
        self.inner = inner
        self.received: list[Received] = []
        self.corrections: list[Received] = []

    @property
    def peers(self) -> tuple[str, ...]:
        return self.inner.peers

    def send(self, peer: str, array: Array, tag: int = 0, stream: int = 0) -> None:
        self.inner.send(peer, array, tag, stream)

    def receive(self, peer: str, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        array = self.inner.receive(peer, expected, tag, stream)
        record = self.corrections if peer == DEALER_NAME else self.received
        record.append(Received(peer, tag, self.inner.current_step(), array.copy()))
        return array

    def has_pending(self, peer: str, stream: int = 0) -> bool:
        return self.inner.has_pending(peer, stream)

    def flush(self) -> None:
        self.inner.flush()

    def wait_for_backlog(self, limit: int, peers: Sequence[str]) -> None:
        self.inner.wait_for_backlog(limit, peers)

    def backlog(self, peer: str) -> int:
        return self.inner.backlog(peer)

    def close(self, timeout: float | None = None) -> None:
        self.inner.close(timeout)

    def abort(self) -> None:
        self.inner.abort()


@dataclass
class View:
    """One participant's view of a run."""

    result: Any = None
    meter: Meter = field(default_factory=Meter)
    ledger: DisclosureLedger = field(default_factory=DisclosureLedger)
    received: list[Received] = field(default_factory=list)
    corrections: list[Received] = field(default_factory=list)
    """Messages from the dealer."""
    opened: list[RingArray] = field(default_factory=list)

    def shapes(self) -> list[tuple[str, str, str, tuple[int, ...]]]:
        """Return peers, steps, types and shapes of messages; tags depend on the randomness id."""
        messages = self.received + self.corrections
        return [(r.peer, r.step, str(r.array.dtype), r.array.shape) for r in messages]


def play(
    program: Program,
    n_parties: int,
    inputs: Sequence[Any] | None = None,
    network: NetworkModel | None = None,
) -> list[View]:
    """Run a program in threads and return the view of each participant."""
    names = [f"party{index + 1}" for index in range(n_parties)]
    channels = create_memory_channels([*names, DEALER_NAME], peer_timeout=30)
    views = [View() for _ in names]
    failures: list[BaseException] = []

    def party(index: int) -> None:
        view, channel = views[index], RecordingChannel(channels[names[index]])
        with channel:
            runtime = Party(index, names, channel, LiveReceiver(channel, [DEALER_NAME]), network)
            channel.inner.current_step = lambda: runtime.step_name
            runtime.on_open = lambda _, __, value: view.opened.append(value.copy())
            view.meter, view.ledger = runtime.meter, runtime.ledger
            view.received, view.corrections = channel.received, channel.corrections
            try:
                view.result = program(runtime, None if inputs is None else inputs[index])
                runtime.finish()
            finally:
                runtime.shut_down()

    def guard(body: Any, *arguments: Any) -> None:
        try:
            body(*arguments)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=guard, args=(party, index)) for index in range(n_parties)]
    dealer = (run_dealer, program, names, channels[DEALER_NAME])
    threads.append(threading.Thread(target=guard, args=dealer))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in sorted(failures, key=lambda error: isinstance(error, PeerError)):
        raise failure
    return views


def measured(views: Sequence[View]) -> Cost:
    """Return the cost in the meters of all participants."""
    return sum(measured_steps(views).values(), start=Cost())


def measured_steps(views: Sequence[View]) -> dict[str, Cost]:
    """Return the cost of each step with a cost, from the meters of all participants."""
    return costs_by_step([view.meter for view in views])


def costs_by_step(meters: Sequence[Meter]) -> dict[str, Cost]:
    """Return the cost of each step with a cost, from the meters of all participants."""
    costs = {}
    for step in {step for meter in meters for step in (*meter.online, *meter.offline)}:
        online = [meter.online[step] for meter in meters]
        assert len({traffic.rounds for traffic in online}) == 1, step  # equal at all participants
        sent = sum(traffic.sent for traffic in online)
        assert sent == sum(traffic.received for traffic in online), step
        offline = sum(meter.offline[step].received for meter in meters)
        costs[step] = Cost(online[0].rounds, sent, offline)
    return {step: cost for step, cost in costs.items() if cost != Cost()}


def counted(
    program: Program, n_parties: int, network: NetworkModel | None = None
) -> dict[str, Cost]:
    """Return the cost of each step with a cost, from a counter."""
    counter = CostCounter(n_parties, network)
    program(counter, None)
    return {step: cost for step, cost in counter.cost_by_step.items() if cost != Cost()}


def check_count(
    program: Program, views: Sequence[View], network: NetworkModel | None = None
) -> dict[str, Cost]:
    """Check that a counter and the meters agree on the cost of each step; return the costs."""
    costs = measured_steps(views)
    assert counted(program, len(views), network) == costs
    return costs


FALSE_ALARM = 1e-9
"""The probability that one chi-square test rejects uniform bytes."""


def nonuniform(arrays: Sequence[Array]) -> list[str]:
    """Return where arrays, or differences of two arrays, differ from uniform bytes.

    For every byte position of the elements, a chi-square test compares the counts of the 256 values
    with equal counts. Two arrays under the same mask each look uniform; their difference does not.
    """
    problems = []
    groups: dict[str, list[Array]] = {}
    for array in arrays:
        groups.setdefault(str(array.dtype), []).append(array.reshape(-1))
    for dtype, members in groups.items():
        samples = {"values": np.concatenate(members)}
        pairs = [
            (a ^ b if a.dtype == np.uint8 else a - b)
            for i, a in enumerate(members)
            for b in members[:i]
            if a.size == b.size
        ]
        if pairs:
            samples["differences"] = np.concatenate(pairs)
        for kind, values in samples.items():
            columns = np.ascontiguousarray(values).view(np.uint8).reshape(-1, values.itemsize)
            for position, column in enumerate(columns.T):
                counts = np.bincount(column, minlength=256)
                expected = len(column) / 256
                if expected < 5:
                    continue  # too few for a chi-square test
                statistic = ((counts - expected) ** 2 / expected).sum()
                if statistic > chi2.isf(FALSE_ALARM, 255):
                    problems.append(f"{dtype} {kind}, byte {position}: {statistic:.0f}")
    return problems
