"""Three dealers in threads; all messages to each of them and to participants are recorded."""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import N_HOLDERS
from privet.runtime.correlations import dealer as dealer_module
from privet.runtime.correlations import replicated
from privet.runtime.correlations.replicated import DealerPeers, ReplicatedDealer, _DealerRoleChannel
from privet.runtime.correlations.source import S_HOLDER, CorrelationSender
from privet.runtime.opening import Payload
from privet.transport.channel import Array, Channel, Expected
from privet.transport.memory import create_memory_channels

NAMES = ("dealer1", "dealer2", "dealer3")
SEED_EXCHANGE = "seed exchange"
"""The step in which dealers draw common seeds."""

_thread = threading.local()  # the dealer of this thread, and its last encoded array


class Message(NamedTuple):
    """A message to a dealer, or a correction to a participant."""

    sender: int
    step: str
    tag: int
    content: bytes


@dataclass
class Dealing:
    """The messages of three dealers in a preprocessing run."""

    received: dict[int, list[Message]] = field(default_factory=lambda: defaultdict(list))
    """The messages between dealers, by recipient."""
    vectors: dict[int, list[tuple[str, Ring, RingArray]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """The same as ring elements, without seeds."""
    corrections: dict[int, list[Message]] = field(default_factory=lambda: defaultdict(list))
    """The corrections to participants, by sender."""
    dealers: dict[int, Watched] = field(default_factory=dict)


class _RecordingPeers(DealerPeers):
    """The other two dealers; records all their messages."""

    def __init__(self, number: int, channel: Channel, dealing: Dealing) -> None:
        super().__init__(number, NAMES, channel)
        self.dealing = dealing
        self.step: Callable[[], str] = lambda: SEED_EXCHANGE

    def receive(self, other: int, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        array = super().receive(other, expected, tag, stream)
        message = Message(other, self.step(), tag, array.tobytes())
        self.dealing.received[self.dealer_index].append(message)
        return array


class _RecordingSender(CorrelationSender):
    """A sender without participants; records all corrections."""

    def __init__(self, peers: _RecordingPeers, n_parties: int) -> None:
        self._peers, self._n_parties = peers, n_parties
        self.dealer: Watched

    def distribute_seeds(self) -> tuple[str, list[list[bytes]]]:
        return self._peers.exchange_seeds(self._n_parties, b"")

    def send(self, party: int, array: Array, tag: int) -> None:
        sent = self.dealer.before_correction(array, *_thread.encoded)
        message = Message(self.dealer.number, self.dealer.step_name, tag, sent.tobytes())
        self._peers.dealing.corrections[self.dealer.number].append(message)

    def close(self, tag: int) -> None:
        pass


class Watched(ReplicatedDealer):
    """One of three dealers, with hooks for its messages, which do nothing here."""

    role = S_HOLDER
    """The current role."""

    def __init__(self, n_parties: int, number: int, channel: Channel, dealing: Dealing) -> None:
        peers = _RecordingPeers(number, channel, dealing)
        sender = _RecordingSender(peers, n_parties)
        super().__init__(n_parties, sender, peers)
        self.number, self.dealing = number, dealing
        peers.step = lambda: self.step_name
        sender.dealer = self
        dealing.dealers[number] = self

    def before_send(self, other: int, array: RingArray, ring: Ring) -> None:
        """Run before this dealer sends elements to another dealer."""

    def after_receive(self) -> None:
        """Run after this dealer has received elements from another dealer."""

    def before_correction(self, message: Array, array: RingArray, ring: Ring) -> Array:
        """Return the message to a participant, in place of one that encodes an array."""
        return message


class _HookedRoleChannel(_DealerRoleChannel):
    """The other two dealers by their roles; calls the hooks of the dealer."""

    _dealer: Watched

    def __init__(self, dealer: Watched) -> None:
        super().__init__(dealer)
        dealer.role = self.role

    def send(self, role: int, array: RingArray, ring: Ring) -> None:
        self._dealer.before_send(self._number(role), array, ring)
        super().send(role, array, ring)

    def receive(self, role: int, shape: tuple[int, ...], ring: Ring) -> RingArray:
        array = super().receive(role, shape, ring)
        vector = self._dealer.step_name, ring, array.copy()
        self._dealer.dealing.vectors[self._dealer.number].append(vector)
        self._dealer.after_receive()
        return array


class _RecordingPayload(Payload):
    """A payload that records its last array, since a message does not contain its ring."""

    def encode(self, arrays: Sequence[RingArray]) -> Array:
        _thread.encoded = arrays[0], self.rings[0]
        return super().encode(arrays)


def deal(
    program: Callable[[Any], Any],
    n_parties: int,
    kinds: Sequence[Callable[..., Watched]] = (Watched,) * N_HOLDERS,
    moved: Collection[tuple[int, int]] = (),
    failed: threading.Event | None = None,
) -> Dealing:
    """Run a program at three dealers of the given kinds, and return all messages.

    Dealers generate one table after the other, so that messages have a fixed order. Seeds are the
    same in every run, except the `moved` ones. A seed is identified by its dealer and the number of
    seeds that the dealer has drawn before.
    """
    channels = create_memory_channels(NAMES)
    dealing = Dealing()
    failures: list[BaseException] = []

    def seed() -> bytes:
        position = _thread.number, _thread.seeds
        _thread.seeds += 1
        return hashlib.sha256(f"{position} {position in moved}".encode()).digest()

    def body(number: int) -> None:
        _thread.number, _thread.seeds = number, 0
        try:
            with channels[NAMES[number]] as channel:
                program(kinds[number](n_parties, number, channel, dealing))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
            if failed is not None:
                failed.set()

    with (
        mock.patch.object(replicated, "fresh_seed", seed),
        mock.patch.object(dealer_module, "MAX_PARALLEL_TABLES", 1),
        mock.patch.object(replicated, "_DealerRoleChannel", _HookedRoleChannel),
        mock.patch.object(replicated, "Payload", _RecordingPayload),
    ):
        threads = [threading.Thread(target=partial(body, k), daemon=True) for k in range(N_HOLDERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return dealing
