"""Three dealers in threads, with all that each of them hears and sends to participants noted."""

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
from privet.runtime.correlations import (
    dealer as dealer_module,
)
from privet.runtime.correlations import (
    replicated,
)
from privet.runtime.correlations import (
    replicated as fellows_module,
)
from privet.runtime.correlations.replicated import DealerPeers, ReplicatedDealer, _DealerRoleChannel
from privet.runtime.correlations.source import S_HOLDER, CorrelationSender
from privet.runtime.opening import Payload
from privet.transport.channel import Array, Channel, Expected
from privet.transport.memory import create_memory_channels

NAMES = ("dealer1", "dealer2", "dealer3")
MEETING = "meeting"
"""The step in which dealers draw seeds together."""

_here = threading.local()  # which dealer this thread is, and what it did last


class Message(NamedTuple):
    """What a dealer heard, or a participant was sent."""

    sender: int
    step: str
    tag: int
    content: bytes


@dataclass
class Dealing:
    """What was said as three dealers dealt something."""

    heard: dict[int, list[Message]] = field(default_factory=lambda: defaultdict(list))
    """By whom it was heard."""
    letters: dict[int, list[tuple[str, Ring, RingArray]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """The same as elements, but for seeds."""
    corrections: dict[int, list[Message]] = field(default_factory=lambda: defaultdict(list))
    """By which dealer they were sent."""
    dealers: dict[int, Watched] = field(default_factory=dict)


class _Listening(DealerPeers):
    """The other two dealers, with all that they say noted."""

    def __init__(self, number: int, channel: Channel, dealing: Dealing) -> None:
        super().__init__(number, NAMES, channel)
        self.dealing = dealing
        self.step: Callable[[], str] = lambda: MEETING

    def receive(self, other: int, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        array = super().receive(other, expected, tag, stream)
        message = Message(other, self.step(), tag, array.tobytes())
        self.dealing.heard[self.dealer_index].append(message)
        return array


class _Corrections(CorrelationSender):
    """Participants who are not there, with all that they are sent noted."""

    def __init__(self, fellows: _Listening, n_parties: int) -> None:
        self._fellows, self._n_parties = fellows, n_parties
        self.dealer: Watched

    def distribute_seeds(self) -> tuple[str, list[list[bytes]]]:
        return self._fellows.exchange_seeds(self._n_parties, b"")

    def send(self, party: int, array: Array, tag: int) -> None:
        sent = self.dealer.corrects(array, *_here.written)
        message = Message(self.dealer.number, self.dealer.step_name, tag, sent.tobytes())
        self._fellows.dealing.corrections[self.dealer.number].append(message)

    def close(self, tag: int) -> None:
        pass


class Watched(ReplicatedDealer):
    """One of three dealers, that does something as it speaks and listens: here, nothing."""

    role = S_HOLDER
    """That of now."""

    def __init__(self, n_parties: int, number: int, channel: Channel, dealing: Dealing) -> None:
        fellows = _Listening(number, channel, dealing)
        sink = _Corrections(fellows, n_parties)
        super().__init__(n_parties, sink, fellows)
        self.number, self.dealing = number, dealing
        fellows.step = lambda: self.step_name
        sink.dealer = self
        dealing.dealers[number] = self

    def says(self, other: int, array: RingArray, ring: Ring) -> None:
        """Do something before it sends elements to another one."""

    def has_heard(self) -> None:
        """Do something after it has heard another one."""

    def corrects(self, message: Array, array: RingArray, ring: Ring) -> Array:
        """Return what goes to a participant, for a message made of an array."""
        return message


class _Talk(_DealerRoleChannel):
    """The other two dealers by their roles."""

    _dealer: Watched

    def __init__(self, dealer: Watched) -> None:
        super().__init__(dealer)
        dealer.role = self.role

    def send(self, role: int, array: RingArray, ring: Ring) -> None:
        self._dealer.says(self._number(role), array, ring)
        super().send(role, array, ring)

    def receive(self, role: int, shape: tuple[int, ...], ring: Ring) -> RingArray:
        array = super().receive(role, shape, ring)
        letter = self._dealer.step_name, ring, array.copy()
        self._dealer.dealing.letters[self._dealer.number].append(letter)
        self._dealer.has_heard()
        return array


class _Written(Payload):
    """A letter that is remembered, since a message does not say what it was made of."""

    def encode(self, arrays: Sequence[RingArray]) -> Array:
        _here.written = arrays[0], self.rings[0]
        return super().encode(arrays)


def deal(
    program: Callable[[Any], Any],
    n_parties: int,
    kinds: Sequence[Callable[..., Watched]] = (Watched,) * N_HOLDERS,
    moved: Collection[tuple[int, int]] = (),
    failed: threading.Event | None = None,
) -> Dealing:
    """Run a program at three dealers of some kinds, and return all that was said.

    They deal one table after the other: at once, the same is said in another order. Their seeds are
    the same every time, but for those that are moved: which dealer draws it, and how many it has
    drawn before.
    """
    channels = create_memory_channels(NAMES)
    dealing = Dealing()
    failures: list[BaseException] = []

    def seed() -> bytes:
        position = _here.number, _here.seeds
        _here.seeds += 1
        return hashlib.sha256(f"{position} {position in moved}".encode()).digest()

    def body(number: int) -> None:
        _here.number, _here.seeds = number, 0
        try:
            with channels[NAMES[number]] as channel:
                program(kinds[number](n_parties, number, channel, dealing))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
            if failed is not None:
                failed.set()

    with (
        mock.patch.object(fellows_module, "fresh_seed", seed),
        mock.patch.object(dealer_module, "MAX_PARALLEL_TABLES", 1),
        mock.patch.object(replicated, "_DealerRoleChannel", _Talk),
        mock.patch.object(replicated, "Payload", _Written),
    ):
        threads = [threading.Thread(target=partial(body, k), daemon=True) for k in range(N_HOLDERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return dealing
