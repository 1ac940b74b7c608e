"""Seeds with three dealers: who draws them, who has them, and what a participant refuses."""

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
"""What becomes of what one dealer sends to one participant as they start."""


class _Tampering(ReplicatedSender):
    """A dealer's streams to participants, one message of which is not what it should be."""

    def __init__(self, channel: Channel, others: DealerPeers, tamper: Tamper) -> None:
        super().__init__(channel, PARTIES, others)
        self._tamper = partial(tamper, others.dealer_index)

    def send(self, party: int, array: Array, tag: int) -> None:
        super().send(party, self._tamper(party, array), tag)


def start(
    tamper: Tamper = lambda dealer, party, start: start,
) -> tuple[dict[int, ReplicatedDealer], dict[int, Party]]:
    """Let three dealers and two participants draw seeds; raise what a participant raises."""
    channels = create_memory_channels([*DEALERS, *PARTIES], peer_timeout=10)
    dealers: dict[int, ReplicatedDealer] = {}
    participants: dict[int, Party] = {}
    failures: list[BaseException] = []

    def dealer(number: int) -> None:
        channel = channels[DEALERS[number]]
        others = DealerPeers(number, DEALERS, channel)
        sink = _Tampering(channel, others, tamper)
        dealers[number] = ReplicatedDealer(len(PARTIES), sink, others)

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


def seeds_of(participant: Party) -> list[bytes]:
    return [stream.seed for stream in participant._share_prg.prgs]


def test_a_dealer_knows_two_of_three_seeds_of_each_participant() -> None:
    """Those that it should, and not the third; and nobody has one that another one has."""
    dealers, participants = start()
    for index, participant in participants.items():
        ours = seeds_of(participant)
        assert len(ours) == N_HOLDERS
        for number, dealer in dealers.items():
            known = [part.prgs[index].seed for part in dealer._share_prgs]
            assert known == [ours[number], ours[(number + 1) % N_HOLDERS]]
            private = [part[index].seed for part in dealer._private_prgs]
            has = [stream.seed for stream in participant._private_prg.prgs]
            assert private == [has[number], has[(number + 1) % N_HOLDERS]]
    every = [
        stream.seed
        for participant in participants.values()
        for streams in (participant._share_prg.prgs, participant._private_prg.prgs)
        for stream in streams
    ]
    every += [
        dealers[k]._dealer_peers.get_pair_prg((k + 1) % N_HOLDERS).seed for k in range(N_HOLDERS)
    ]
    assert len(set(every)) == len(every) == 2 * N_HOLDERS * len(PARTIES) + N_HOLDERS


def test_two_dealers_have_a_stream_that_the_third_has_not() -> None:
    dealers, _ = start()
    streams = {
        (k, other): dealers[k]._dealer_peers.get_pair_prg(other).seed
        for k in range(N_HOLDERS)
        for other in range(N_HOLDERS)
        if other != k
    }
    for (k, other), seed in streams.items():
        assert [pair for pair, its in streams.items() if its == seed] in (
            [(k, other), (other, k)],
            [(other, k), (k, other)],
        )
        with pytest.raises(KeyError):
            dealers[k]._dealer_peers.get_pair_prg(k)


def test_a_part_of_a_seed_goes_to_one_other_dealer(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the one before it, in what it is told; nothing like it goes to the next one."""
    told: dict[tuple[int, int], bytes] = {}
    tell = DealerPeers._send_bytes

    def noted(self: DealerPeers, other: int, content: bytes) -> None:
        told[self.dealer_index, other] = content
        tell(self, other, content)

    monkeypatch.setattr(DealerPeers, "_send_bytes", noted)
    starts: dict[tuple[int, int], bytes] = {}

    def note(dealer: int, party: int, start: Array) -> Array:
        starts[dealer, party] = start.tobytes()
        return start

    start(note)
    for number in range(N_HOLDERS):
        after, before = (number + 1) % N_HOLDERS, (number + 2) % N_HOLDERS
        assert len(told[number, after]) == RANDOMNESS_ID_BYTES + SEED_BYTES
        assert len(told[number, before]) == RANDOMNESS_ID_BYTES + SEED_BYTES * (1 + len(PARTIES))
        for party in range(len(PARTIES)):
            part = starts[number, party][RANDOMNESS_ID_BYTES + 4 :][:SEED_BYTES]
            assert part in told[number, before]
            assert [pair for pair, content in told.items() if part in content] == [(number, before)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dealer", range(N_HOLDERS))
def test_copies_of_a_seed_that_differ_are_refused(dealer: int, seed: int) -> None:
    """With the names of both dealers that should have it."""

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
def test_two_dealings_do_not_meet(dealer: int) -> None:
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
    """As from a dealer that sends what it sent before: what it deals would not fit."""

    def tamper(number: int, party: int, start: Array) -> Array:
        changed = start.copy()
        if (number, party) == (1, 0):
            changed[RANDOMNESS_ID_BYTES + 4 + 2 * SEED_BYTES + 16 * seed] ^= 1
        return changed

    with pytest.raises(CorrelationError, match=r"dealer2.*another nonce than ours"):
        start(tamper)


def test_what_is_for_another_participant_is_refused() -> None:
    def tamper(number: int, party: int, start: Array) -> Array:
        changed = start.copy()
        if number == 2:
            changed[RANDOMNESS_ID_BYTES] ^= 1
        return changed

    with pytest.raises(CorrelationError, match="is for participant"):
        start(tamper)


def test_a_dealing_has_a_name_of_its_own() -> None:
    """The same at everybody, and another one the next time."""
    names: list[bytes] = []

    def note(dealer: int, party: int, start: Array) -> Array:
        names.append(start[:RANDOMNESS_ID_BYTES].tobytes())
        return start

    for _ in range(2):
        start(note)
    each = N_HOLDERS * len(PARTIES)
    assert [names.count(name) for name in names] == [each] * (2 * each)


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what sets all dealers back to an earlier state: they draw again what they drew."""
    drawn: Counter[str] = Counter()

    def seed() -> bytes:
        name = threading.current_thread().name
        drawn[name] += 1
        return hashlib.sha256(f"{name} {drawn[name]}".encode()).digest()

    monkeypatch.setattr(replicated, "fresh_seed", seed)
    return drawn.clear


def test_dealers_that_repeat_themselves_repeat_no_mask(restored: Callable[[], None]) -> None:
    """Participants draw nonces, as with one dealer."""
    _, first = start()
    restored()
    _, second = start()
    for index in range(len(PARTIES)):
        assert not {*seeds_of(first[index])} & {*seeds_of(second[index])}


def test_dealers_that_repeat_themselves_repeat_no_stream(restored: Callable[[], None]) -> None:
    """Else a dealer hears two things hidden by one draw, so their difference."""
    first, _ = start()
    restored()
    second, _ = start()
    for number in range(N_HOLDERS):
        other = (number + 1) % N_HOLDERS
        before, after = (
            each[number]._dealer_peers.get_pair_prg(other).seed for each in (first, second)
        )
        assert before != after


def masks(runtime: Runtime, data: Any) -> Any:
    """Reveal a mask."""
    share: Any = runtime.uniform((9,), Z64)  # type: ignore[attr-defined]
    return runtime.reveal(share, range(2), "a mask")


def test_no_mask_is_drawn_twice() -> None:
    """By the same program, with dealers that are there."""
    first, second = (simulate(masks, 2, dealers=3).results for _ in range(2))
    np.testing.assert_array_equal(first[0], first[1])
    assert not np.isin(first[0], second[0]).any()
