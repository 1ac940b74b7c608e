"""How the dealer's randomness reaches the participants while all are there, and stays in step.

Uniform values cost nothing: the dealer shares a seed with each participant, who draws its own
shares from it. A derived value (a product of masks, say) is drawn the same way, and the difference
between what was drawn and what it should be, the *correction*, goes to one participant: whoever has
got the fewest bytes of the current table so far.

Both sides hash what they draw, its purpose, ring and shape, into a running *tag*, which every table
begins anew (`runtime.cursor`). A correction
carries the dealer's tag: if the participant's differs, they have not been running the same program,
and nothing is computed. The last thing sent is a closing tag, so nothing is left over unnoticed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from privet.arithmetic.prg import SEED_BYTES, fresh_seed
from privet.arithmetic.rings import RingArray
from privet.errors import CorrelationError, PeerMisbehavedError
from privet.runtime.letters import ANNOUNCED
from privet.runtime.seeds import (
    START_BYTES,
    START_OF_THREE_BYTES,
    Start,
    StartOfThree,
    draw_seeds,
    seeds_of_three,
)
from privet.transport.channel import Channel, Expected

CLOSING = Expected(np.dtype(np.uint8), (0,))
_START = Expected(np.dtype(np.uint8), (START_BYTES,))
_START_OF_THREE = Expected(np.dtype(np.uint8), (START_OF_THREE_BYTES,))
NONCE = Expected(np.dtype(np.uint8), (SEED_BYTES,))


class Sink(ABC):
    """Where the dealer puts what it sends: live connections, or a file for each participant."""

    @abstractmethod
    def start(self) -> tuple[str, Any]:
        """Share a seed with each participant; return the dealing's name, and all seeds."""

    @abstractmethod
    def send(self, party: int, array: RingArray, tag: int) -> None:
        """Send an array to one participant."""

    def hear(self, party: int, tag: int) -> int | None:
        """Return a number that a participant announces; None, if nobody is there."""
        return None

    @abstractmethod
    def close(self, tag: int) -> None:
        """Send the closing tag to all."""


class Source(ABC):
    """Where a participant gets what the dealer sent it."""

    dealers: tuple[str, ...] = ()
    """The names of dealers that are there."""

    @abstractmethod
    def start(self, index: int) -> tuple[str, list[bytes]]:
        """Return what comes first: the name of the dealing, and the seeds shared with dealers."""

    @abstractmethod
    def receive(self, expected: Expected, tag: int, step: str, dealer: int = 0) -> RingArray:
        """Return the next array of a dealer, which must be that one."""


def check_number(number: int, index: int) -> None:
    """Raise CorrelationError unless the dealer's randomness is for us."""
    if number != index:
        raise CorrelationError(
            f"the dealer's randomness is for participant {number + 1}, not {index + 1}"
        )


class Undealt(Source):
    """No randomness, and no dealer: for programs that reveal shares, and compute nothing."""

    def start(self, index: int) -> tuple[str, list[bytes]]:
        """Return a seed of our own, of which nothing is drawn."""
        return "none", [fresh_seed()]

    def receive(self, expected: Expected, tag: int, step: str, dealer: int = 0) -> RingArray:
        """Return the end of the program, which is all that comes."""
        if expected != CLOSING:
            raise CorrelationError(f"{step}: needs randomness, and there is no dealer")
        return np.empty(0, dtype=np.uint8)

    def close(self) -> None:
        """Do nothing, as there is nothing to close."""


class LiveSink(Sink):
    """A stream to each participant, which the dealer runs ahead on as far as memory allows."""

    def __init__(self, channel: Channel, parties: Sequence[str], ahead: int = 64 << 20) -> None:
        self._channel = channel
        self._parties = tuple(parties)
        self._ahead = ahead

    def start(self) -> tuple[str, Any]:
        """Wait for every participant's nonce, and send it our part of its seed."""
        nonces = [self._channel.receive(name, NONCE).tobytes() for name in self._parties]
        starts, seeds = draw_seeds(nonces)
        for start in starts:
            self.send(start.number, np.frombuffer(start.pack(), dtype=np.uint8), 0)
        return starts[0].dealing, seeds

    def send(self, party: int, array: RingArray, tag: int) -> None:
        """Send, and then wait while every participant has plenty to take.

        To wait for the *fullest* would deadlock: it may be waiting for another participant, who
        waits for us. The participants move in step, so none falls far behind the emptiest. Other
        dealers do not count: they take all in at once.
        """
        self._channel.send(self._parties[party], array, tag)
        self._channel.wait_for_room(self._ahead, self._parties)

    def hear(self, party: int, tag: int) -> int:
        """Wait for what a participant announces."""
        return int(self._channel.receive(self._parties[party], ANNOUNCED, tag)[0])

    def close(self, tag: int) -> None:
        """Send the closing tag to all, and wait until everything has left."""
        for name in self._parties:
            self._channel.send(name, np.empty(0, dtype=np.uint8), tag)
        self._channel.flush()


class LiveSource(Source):
    """The stream from the dealer, or one from each of three."""

    def __init__(self, channel: Channel, dealers: Sequence[str]) -> None:
        self._channel = channel
        self.dealers = tuple(dealers)

    def start(self, index: int) -> tuple[str, list[bytes]]:
        """Send a nonce, and make seeds of it and of what is answered."""
        nonce = fresh_seed()
        for dealer in self.dealers:
            self._channel.send(dealer, np.frombuffer(nonce, dtype=np.uint8))
        if len(self.dealers) > 1:
            starts = [
                StartOfThree.unpack(self.receive(_START_OF_THREE, 0, "start", k).tobytes())
                for k in range(len(self.dealers))
            ]
            for each in starts:
                check_number(each.number, index)
            return starts[0].dealing, seeds_of_three(starts, nonce, self.dealers)
        start = Start.unpack(self.receive(_START, 0, "start").tobytes())
        check_number(start.number, index)
        return start.dealing, [start.seed(nonce)]

    def receive(self, expected: Expected, tag: int, step: str, dealer: int = 0) -> RingArray:
        """Wait for the next array from a dealer."""
        try:
            return self._channel.receive(self.dealers[dealer], expected, tag)
        except PeerMisbehavedError as error:
            raise CorrelationError(str(error)) from None
