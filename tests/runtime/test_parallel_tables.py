"""Tables that dealers run in parallel: the output is in order, and equals a sequential run."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from functools import partial
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import Z64
from privet.errors import PeerError, PeerLostError, ResultError
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.value import LiftedValue, lift, mask_value
from privet.runtime.correlations import dealer as dealer_module
from privet.runtime.correlations import replicated
from privet.runtime.correlations.dealer import OrderedDelivery, run_ordered_pool
from privet.runtime.correlations.replicated import DealerPeers, ReplicatedDealer
from privet.runtime.correlations.source import CorrelationSender
from privet.runtime.local.launcher import simulate
from privet.runtime.runtime import Runtime
from privet.transport.channel import Array
from privet.transport.memory import create_memory_channels

NAMES = ("dealer1", "dealer2", "dealer3")


def test_outputs_are_delivered_in_order() -> None:
    delivered: list[tuple[int, int]] = []
    running: set[int] = set()
    max_running = 0

    def work(delivery: OrderedDelivery, number: int) -> None:
        nonlocal max_running
        running.add(number)
        max_running = max(max_running, len(running))
        for k in range(5):
            time.sleep(random.Random(10 * number + k).random() / 200)
            delivery.deliver(number, partial(delivered.append, (number, k)))
        running.discard(number)

    run_ordered_pool(range(7, 27), work, at_once=4)
    assert delivered == [(number, k) for number in range(7, 27) for k in range(5)]
    assert 2 <= max_running <= 4


def test_the_root_cause_is_raised() -> None:
    """One table loses a peer; the others find the channel closed."""
    failed = threading.Event()

    def work(delivery: OrderedDelivery, number: int) -> None:
        if number == 2:
            failed.set()
            time.sleep(0.1)
            raise PeerLostError("dealer2", "the connection was lost")
        failed.wait()
        if number == 3:
            raise PeerLostError(None, "this channel is closed")

    with pytest.raises(PeerLostError, match="dealer2"):
        run_ordered_pool(range(10), work, at_once=4)


def test_a_failure_releases_all_waiting_tables() -> None:
    delivered = threading.Event()

    def work(delivery: OrderedDelivery, number: int) -> None:
        if number == 0:
            time.sleep(0.05)
            raise ValueError("the first one fails")
        delivery.deliver(number, delivered.set)

    before = threading.active_count()
    with pytest.raises(ValueError, match="the first one fails"):
        run_ordered_pool(range(6), work, at_once=3)
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before
    assert not delivered.is_set()


def squares(runtime: Runtime, data: Any = None, tables: int = 9) -> list[Any]:
    """Square values in every table, with a mask that was drawn before all tables."""
    common = lift(runtime, mask_value(runtime, runtime.share_public(np.full(5, 3, np.uint64), Z64)))
    found: dict[int, Any] = {}

    def table(number: int) -> None:
        with runtime.step("table", number):
            found[number] = _square(runtime, number, common)
        runtime.report_progress(number + 1)

    runtime.map_tables(range(tables), table, 5)
    return [found[number] for number in range(tables)]


def _square(runtime: Runtime, number: int, common: LiftedValue) -> Any:
    values = runtime.share_public(np.arange(5, dtype=np.uint64) + number, Z64)
    lifted = lift(runtime, mask_value(runtime, values))
    product = polynomial(runtime, [lifted, common], [(1, (0, 0)), (1, (0, 1))])
    return runtime.reveal(product, range(runtime.n_parties), "products")


@pytest.mark.parametrize("network", ["memory", "loopback"])
def test_a_program_of_many_tables(network: str) -> None:
    outcome = simulate(squares, 3, network=network, dealers=3)
    for result in outcome.results:
        for number, values in enumerate(result):
            x = np.arange(5) + number
            np.testing.assert_array_equal(values, x * x + 3 * x)
    sequential = simulate(squares, 3, dealers=1)
    assert outcome.meters == sequential.meters


class _RecordingPeers(DealerPeers):
    """The other two dealers, with their messages recorded by stream."""

    def __init__(self, number: int, channel: Any, received: Any) -> None:
        super().__init__(number, NAMES, channel)
        self._received = received

    def receive(self, other: int, expected: Any, tag: int = 0, stream: int = 0) -> Array:
        array = super().receive(other, expected, tag, stream)
        self._received[self.dealer_index, other, stream].append((tag, array.tobytes()))
        return array


class _RecordingSender(CorrelationSender):
    """Records the messages to participants, in order."""

    def __init__(self, dealer_peers: DealerPeers, sent: list[Any]) -> None:
        self._dealer_peers, self._sent = dealer_peers, sent

    def distribute_seeds(self) -> tuple[str, list[list[bytes]]]:
        return self._dealer_peers.exchange_seeds(3, b"")

    def send(self, party: int, array: Array, tag: int) -> None:
        self._sent.append((party, tag, array.tobytes()))

    def close(self, tag: int) -> None:
        self._sent.append(tag)


def run_dealers(at_once: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Any]:
    """Return the received and sent messages and the progress of three dealers, with fixed seeds."""
    monkeypatch.setattr(dealer_module, "MAX_PARALLEL_TABLES", at_once)
    state = threading.local()

    def seed() -> bytes:
        state.count += 1
        return bytes([state.number, state.count] * 16)

    monkeypatch.setattr(replicated, "fresh_seed", seed)
    channels, received = create_memory_channels(NAMES), defaultdict[Any, list[Any]](list)
    sent: list[list[Any]] = [[], [], []]
    progress: list[list[int]] = [[], [], []]

    def body(number: int) -> None:
        state.number, state.count = number, 0
        with channels[NAMES[number]] as channel:
            dealer_peers = _RecordingPeers(number, channel, received)
            dealer = ReplicatedDealer(3, _RecordingSender(dealer_peers, sent[number]), dealer_peers)
            dealer.on_progress = progress[number].append
            squares(dealer)
            dealer.close()

    threads = [threading.Thread(target=body, args=(k,), daemon=True) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return dict(received), sent, progress


def test_parallel_tables_send_the_same_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    sequential, parallel = run_dealers(1, monkeypatch), run_dealers(4, monkeypatch)
    assert sequential == parallel
    assert len(sequential[0]) > 9  # streams of several tables
    assert sequential[2] == [list(range(1, 10))] * 3


def failing(runtime: Runtime, data: Any = None) -> None:
    """Fail at one dealer, in one of several tables."""

    def table(number: int) -> None:
        with runtime.step("table", number):
            common = lift(runtime, mask_value(runtime, runtime.share_public(np.ones(5, "u8"), Z64)))
            _square(runtime, number, common)
            if (
                number == 3
                and isinstance(runtime, ReplicatedDealer)
                and runtime._dealer_peers.dealer_index == 1
            ):
                raise ResultError("nothing goes any more")

    runtime.map_tables(range(20), table, 5)


@pytest.mark.parametrize("network", ["memory", "loopback"])
def test_a_failed_table_ends_the_run(network: str) -> None:
    start = time.monotonic()
    with pytest.raises((ResultError, PeerError), match=r"nothing goes any more|dealer2"):
        simulate(failing, 2, network=network, dealers=3)
    assert time.monotonic() - start < 20
