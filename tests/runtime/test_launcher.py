from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import Z64
from privet.errors import DataError, ParameterError, PeerLostError
from privet.gates.beaver import multiply
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.local.launcher import simulate
from privet.runtime.local.network import NETWORKS, Network
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime


def dot(runtime: Runtime, vector: np.ndarray | None) -> Any:
    """The secure dot product of the developer documentation's quickstart."""
    x = runtime.share(vector, owner=0, shape=(1000,), ring=Z64)
    y = runtime.share(vector, owner=1, shape=(1000,), ring=Z64)
    return runtime.reveal(multiply(runtime, x, y).sum(), recipients=[0], disclosure="dot product")


VECTORS = [np.arange(1000, dtype=np.uint64), np.full(1000, 2, dtype=np.uint64), None, None]


@pytest.mark.parametrize("network", ["memory", "loopback", "1,1000", "paper-per-party"])
def test_results_do_not_depend_on_the_network(network: str) -> None:
    outcome = simulate(dot, 4, VECTORS, network=network)
    assert outcome.results == [999_000, None, None, None]
    assert outcome.ledgers[2].entries[0].disclosure == "dot product"
    assert len({meter.sum_traffic().rounds for meter in outcome.meters}) == 1


@pytest.mark.parametrize("network", ["memory", "loopback"])
def test_offline_preprocessing_gives_the_same_result(network: str) -> None:
    outcome = simulate(dot, 3, VECTORS[:3], network=network, ahead=True)
    assert outcome.results == [999_000, None, None]


def rounds(runtime: Runtime, _: object) -> float:
    x = runtime.share_public(np.zeros(1, dtype=np.uint64), Z64)
    start = time.monotonic()
    for _i in range(20):
        runtime.reveal(x, recipients=[0, 1], disclosure="nothing")
    return time.monotonic() - start


def test_an_emulated_network_delays_every_round() -> None:
    """20 rounds of 10 ms take at least 200 ms."""
    outcome = simulate(rounds, 2, network="10,100")
    assert min(outcome.results) >= 20 * 0.010 * 0.95


def transfers(runtime: Runtime, _: object) -> tuple[float, float]:
    """Return the times of 10 MB from the dealer, then 10 MB between the participants."""
    started, half = time.monotonic(), (625_000,)
    for _i in range(2):
        if isinstance(runtime, Party):
            runtime.derived(half, Z64)
        elif isinstance(runtime, Dealer):
            runtime.distribute(np.zeros(half, dtype=np.uint64), Z64)
    received_at = time.monotonic()
    runtime.reveal(
        runtime.share_public(np.zeros(half, dtype=np.uint64), Z64),
        recipients=[0, 1],
        disclosure="x",
    )
    return received_at - started, time.monotonic() - started


@pytest.mark.parametrize("dealer", ["ahead", "own", "shared", "none"])
def test_dealer_traffic_takes_time_only_on_a_link(dealer: str) -> None:
    """At 5 MB/s, the dealer's bytes take 2 s, and the participants' bytes 2 s.

    Each participant gets its half of the dealer's bytes in one message, the first one after one
    second. Therefore, on separate links, the participants' bytes overlap with the second half.
    """
    options: dict[str, Any] = {"ahead": True} if dealer == "ahead" else {"dealer_link": dealer}
    outcome = simulate(transfers, 2, network="1,40", **options)
    received_at, total = (max(times) for times in zip(*outcome.results, strict=True))
    on_a_link = dealer in ("own", "shared")
    assert (received_at > 1.5) == on_a_link
    assert total >= {"shared": 3.5, "own": 2.5}.get(dealer, 1.9)


def test_dealer_traffic_on_the_participants_links() -> None:
    outcome = simulate(dot, 3, VECTORS[:3], network="paper-per-party", dealer_link="shared")
    assert outcome.results == [999_000, None, None]


def test_offline_preprocessing_is_timed_separately() -> None:
    outcome = simulate(dot, 2, VECTORS[:2], ahead=True)
    assert outcome.ahead_seconds > 0
    assert simulate(dot, 2, VECTORS[:2]).ahead_seconds == 0


def fails(runtime: Runtime, _: object) -> None:
    if isinstance(runtime, Party) and runtime.index == 1:
        raise DataError("the table of party2 is empty")
    runtime.reveal(
        runtime.share_public(np.zeros(1, dtype=np.uint64), Z64), recipients=[0], disclosure="x"
    )


def dies(runtime: Runtime, _: object) -> None:
    if isinstance(runtime, Party) and runtime.index == 1:
        os._exit(9)
    runtime.reveal(
        runtime.share_public(np.zeros(1, dtype=np.uint64), Z64), recipients=[0], disclosure="x"
    )


@pytest.mark.parametrize("network", ["memory", "loopback"])
def test_the_root_cause_is_raised(network: str) -> None:
    start = time.monotonic()
    with pytest.raises(DataError, match="the table of party2 is empty"):
        simulate(fails, 3, network=network)
    assert time.monotonic() - start < 10


def test_a_killed_process_is_named_by_its_peers() -> None:
    start = time.monotonic()
    with pytest.raises((PeerLostError, RuntimeError), match="party2"):
        simulate(dies, 3, network="loopback")
    assert time.monotonic() - start < 10


def test_parsing_networks() -> None:
    assert NETWORKS == ("memory", "loopback", "lan", "paper", "paper-per-party")
    assert Network.parse("paper") == Network(delay_ms=5.0, mbit=100.0, shared=True)
    assert Network.parse("0.5,20") == Network(delay_ms=0.5, mbit=20.0, shared=True)
    for bad in ("moon", "5", "5,0", "-1,100", "5,x", "1,2,3", "nan,1", "inf,1", "1,inf"):
        with pytest.raises(ParameterError, match="network: "):
            Network.parse(bad)
    assert Network.parse("lan", "shared").dealer_link == "shared"
    with pytest.raises(ParameterError, match="dealer_link: 'moon' is none of own, shared, none"):
        Network.parse("lan", "moon")


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ParameterError, match="at least 2"):
        simulate(dot, 1)
    for names in (["bank", "bank"], ["bank", "dealer"], ["bank"]):
        with pytest.raises(ParameterError, match="names: 1 for 2 participants"):
            simulate(dot, 2, VECTORS[:2], names=names)
    with pytest.raises(ParameterError, match="2 for 3 participants"):
        simulate(dot, 3, VECTORS[:2])
