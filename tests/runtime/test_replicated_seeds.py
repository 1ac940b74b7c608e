"""Seeds with three dealers: exchange, distribution, and checks by participants."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.prg import SEED_BYTES
from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import N_HOLDERS
from privet.errors import CorrelationError, PeerError
from privet.runtime.correlations import replicated
from privet.runtime.correlations.replicated import DealerPeers, ReplicatedDealer, ReplicatedSender
from privet.runtime.correlations.seeds import RANDOMNESS_ID_BYTES
from privet.runtime.correlations.source import LiveReceiver
from privet.runtime.local.launcher import simulate
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime
from privet.transport.channel import Array, Channel
from privet.transport.memory import create_memory_channels

DEALERS = ("dealer1", "dealer2", "dealer3")
PARTIES = ("party1", "party2")
Tamper = Callable[[int, int, Array], Array]
"""Changes the first message from one dealer to one participant."""


class _TamperingSender(ReplicatedSender):
    """A dealer's sender that changes a message to participants."""

    def __init__(self, channel: Channel, dealer_peers: DealerPeers, tamper: Tamper) -> None:
        super().__init__(channel, PARTIES, dealer_peers)
        self._tamper = partial(tamper, dealer_peers.dealer_index)

    def send(self, party: int, array: Array, tag: int) -> None:
        super().send(party, self._tamper(party, array), tag)


def start(
    tamper: Tamper = lambda dealer, party, start: start,
) -> tuple[dict[int, ReplicatedDealer], dict[int, Party]]:
    """Exchange seeds between three dealers and two participants; raise a participant's error."""
    channels = create_memory_channels([*DEALERS, *PARTIES], peer_timeout=10)
    dealers: dict[int, ReplicatedDealer] = {}
    participants: dict[int, Party] = {}
    failures: list[BaseException] = []

    def dealer(number: int) -> None:
        channel = channels[DEALERS[number]]
        dealer_peers = DealerPeers(number, DEALERS, channel)
        sender = _TamperingSender(channel, dealer_peers, tamper)
        dealers[number] = ReplicatedDealer(len(PARTIES), sender, dealer_peers)

    def participant(index: int) -> None:
        source = LiveReceiver(channels[PARTIES[index]], DEALERS)
        participants[index] = Party(index, PARTIES, channels[PARTIES[index]], source)

    def guard(body: Callable[[int], None], number: int, name: str) -> None:
        try:
            body(number)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
            channels[name].abort()

    threads = [
        threading.Thread(target=guard, args=(body, k, name), name=name, daemon=True)
        for body, names in ((dealer, DEALERS), (participant, PARTIES))
        for k, name in enumerate(names)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in sorted(failures, key=lambda error: isinstance(error, PeerError)):
        raise failure
    return dealers, participants


def get_share_seeds(participant: Party) -> list[bytes]:
    return [stream.seed for stream in participant._share_prg.prgs]


def test_each_dealer_has_two_of_three_seeds_of_each_participant() -> None:
    """It has the two expected seeds, and not the third; all seeds are different."""
    dealers, participants = start()
    for index, participant in participants.items():
        share_seeds = get_share_seeds(participant)
        assert len(share_seeds) == N_HOLDERS
        for number, dealer in dealers.items():
            known = [part.prgs[index].seed for part in dealer._share_prgs]
            assert known == [share_seeds[number], share_seeds[(number + 1) % N_HOLDERS]]
            private = [part[index].seed for part in dealer._private_prgs]
            private_seeds = [stream.seed for stream in participant._private_prg.prgs]
            assert private == [private_seeds[number], private_seeds[(number + 1) % N_HOLDERS]]
    all_seeds = [
        stream.seed
        for participant in participants.values()
        for streams in (participant._share_prg.prgs, participant._private_prg.prgs)
        for stream in streams
    ]
    all_seeds += [
        dealers[k]._dealer_peers.get_pair_prg((k + 1) % N_HOLDERS).seed for k in range(N_HOLDERS)
    ]
    assert len(set(all_seeds)) == len(all_seeds) == 2 * N_HOLDERS * len(PARTIES) + N_HOLDERS


def test_each_pair_of_dealers_has_a_separate_stream() -> None:
    dealers, _ = start()
    streams = {
        (k, other): dealers[k]._dealer_peers.get_pair_prg(other).seed
        for k in range(N_HOLDERS)
        for other in range(N_HOLDERS)
        if other != k
    }
    for (k, other), seed in streams.items():
        assert [pair for pair, other_seed in streams.items() if other_seed == seed] in (
            [(k, other), (other, k)],
            [(other, k), (k, other)],
        )
        with pytest.raises(KeyError):
            dealers[k]._dealer_peers.get_pair_prg(k)


def test_a_seed_part_is_sent_to_one_other_dealer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only messages to the previous dealer contain it."""
    sent: dict[tuple[int, int], bytes] = {}
    send_bytes = DealerPeers._send_bytes

    def record_sent(self: DealerPeers, other: int, content: bytes) -> None:
        sent[self.dealer_index, other] = content
        send_bytes(self, other, content)

    monkeypatch.setattr(DealerPeers, "_send_bytes", record_sent)
    starts: dict[tuple[int, int], bytes] = {}

    def record_start(dealer: int, party: int, start: Array) -> Array:
        starts[dealer, party] = start.tobytes()
        return start

    start(record_start)
    for number in range(N_HOLDERS):
        after, before = (number + 1) % N_HOLDERS, (number + 2) % N_HOLDERS
        assert len(sent[number, after]) == RANDOMNESS_ID_BYTES + SEED_BYTES
        assert len(sent[number, before]) == RANDOMNESS_ID_BYTES + SEED_BYTES * (1 + len(PARTIES))
        for party in range(len(PARTIES)):
            part = starts[number, party][RANDOMNESS_ID_BYTES + 4 :][:SEED_BYTES]
            assert part in sent[number, before]
            assert [pair for pair, content in sent.items() if part in content] == [(number, before)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dealer", range(N_HOLDERS))
def test_different_copies_of_a_seed_are_refused(dealer: int, seed: int) -> None:
    """The error names the two dealers that should have the seed."""

    def tamper(number: int, party: int, start: Array) -> Array:
        changed = start.copy()
        if (number, party) == (dealer, 1):
            changed[RANDOMNESS_ID_BYTES + 4 + seed * SEED_BYTES] ^= 1
        return changed

    other = (dealer + (1 if seed else -1)) % N_HOLDERS
    with pytest.raises(CorrelationError, match="should have the same seed for us") as caught:
        start(tamper)
    (innocent,) = {*DEALERS} - {DEALERS[dealer], DEALERS[other]}
    assert DEALERS[dealer] in str(caught.value)
    assert DEALERS[other] in str(caught.value)
    assert innocent not in str(caught.value)


@pytest.mark.parametrize("dealer", range(N_HOLDERS))
def test_different_randomness_ids_are_refused(dealer: int) -> None:
    def tamper(number: int, party: int, start: Array) -> Array:
        changed = start.copy()
        if (number, party) == (dealer, 0):
            changed[0] ^= 1
        return changed

    with pytest.raises(CorrelationError, match="take part in two dealings") as caught:
        start(tamper)
    assert DEALERS[dealer] in str(caught.value)


@pytest.mark.parametrize("seed", range(2))
def test_seeds_of_another_nonce_are_refused(seed: int) -> None:
    """For example from a dealer that repeats an earlier message."""

    def tamper(number: int, party: int, start: Array) -> Array:
        changed = start.copy()
        if (number, party) == (1, 0):
            changed[RANDOMNESS_ID_BYTES + 4 + 2 * SEED_BYTES + 16 * seed] ^= 1
        return changed

    with pytest.raises(CorrelationError, match=r"dealer2.*another nonce than ours"):
        start(tamper)


def test_seeds_for_another_participant_are_refused() -> None:
    def tamper(number: int, party: int, start: Array) -> Array:
        changed = start.copy()
        if number == 2:
            changed[RANDOMNESS_ID_BYTES] ^= 1
        return changed

    with pytest.raises(CorrelationError, match="is for participant"):
        start(tamper)


def test_each_run_has_a_new_randomness_id() -> None:
    """All participants receive the same id; the next run has another one."""
    ids: list[bytes] = []

    def record_start(dealer: int, party: int, start: Array) -> Array:
        ids.append(start[:RANDOMNESS_ID_BYTES].tobytes())
        return start

    for _ in range(2):
        start(record_start)
    n_messages = N_HOLDERS * len(PARTIES)
    assert [ids.count(randomness_id) for randomness_id in ids] == [n_messages] * (2 * n_messages)


@pytest.fixture
def reset_dealers(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that resets all dealers, so that they repeat their draws."""
    drawn: Counter[str] = Counter()

    def seed() -> bytes:
        name = threading.current_thread().name
        drawn[name] += 1
        return hashlib.sha256(f"{name} {drawn[name]}".encode()).digest()

    monkeypatch.setattr(replicated, "fresh_seed", seed)
    return drawn.clear


def test_reset_dealers_repeat_no_mask(reset_dealers: Callable[[], None]) -> None:
    """Participants draw nonces, as with a single dealer."""
    _, first = start()
    reset_dealers()
    _, second = start()
    for index in range(len(PARTIES)):
        assert not {*get_share_seeds(first[index])} & {*get_share_seeds(second[index])}


def test_reset_dealers_repeat_no_stream(reset_dealers: Callable[[], None]) -> None:
    """Otherwise, a dealer would receive two values under one mask, and learn their difference."""
    first, _ = start()
    reset_dealers()
    second, _ = start()
    for number in range(N_HOLDERS):
        other = (number + 1) % N_HOLDERS
        before, after = (
            dealers[number]._dealer_peers.get_pair_prg(other).seed for dealers in (first, second)
        )
        assert before != after


def masks(runtime: Runtime, data: Any) -> Any:
    """Reveal a mask."""
    share: Any = runtime.uniform((9,), Z64)  # type: ignore[attr-defined]
    return runtime.reveal(share, range(2), "a mask")


def test_no_mask_is_drawn_twice() -> None:
    """Two runs of the same program, with online dealers."""
    first, second = (simulate(masks, 2, dealers=3).results for _ in range(2))
    np.testing.assert_array_equal(first[0], first[1])
    assert not np.isin(first[0], second[0]).any()
