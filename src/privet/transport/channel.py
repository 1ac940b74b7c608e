"""The interface of a channel, and messages of any length over it.

A channel belongs to one participant and reaches all its peers. Between two participants arrays
arrive whole, unchanged and in the order they were sent. Sending never waits for the peer to
receive, so two participants may send each other arrays of any size at the same time. Threads that
work side by side have a *stream* each: within it arrays are in order, and none waits for those of
another stream.

    send(peer, array, tag)               hand an array over, not to be changed before `flush`
    receive(peer, dtype, shape, tag)     wait for the next array of a peer, which must be that one
    has_come(peer)                       whether one waits to be received
    exchange(arrays, expected, tag)      send to some, then receive from some: one round
    flush()                              wait until all that was handed over has left
    wait_for_backlog(limit, peers)          wait until little enough waits for one of some peers
    close()                              say goodbye, and stay until the peers have said it, too
    leave()                              the same before an error that all find: soon over
    abort()                              hang up: peers find out at once

After any PeerError the channel is closed: its peers find out at once, and nothing more is carried.
They are told whom we lost, so that all name the one who failed, not those who followed.

    PeerLostError         the peer's connection closed while something was still due from it
    PeerSilentError       for `deadline` seconds nothing came from a peer that something is due from
    PeerMisbehavedError   no frame, or another one than is due: type, shape, order or tag differ

A slow peer is not a silent one: while its program computes, its channel sends signs of life.
"""

from __future__ import annotations

import contextlib
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

from privet.errors import PeerError, PeerMisbehavedError, PrivetError
from privet.transport.frames import Header

Array = npt.NDArray[Any]
# How long one that ends with an error of all stays for their goodbyes.
_LEAVING_SECONDS = 3.0


class Expected(NamedTuple):
    """The type and shape of an array that is due."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The size of the elements."""
        return self.dtype.itemsize * math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"


class Channel(ABC):
    """One participant's end of its connections to all its peers."""

    def __init__(self, name: str, peer_timeout: float) -> None:
        self.name = name
        self.peer_timeout = peer_timeout
        self.current_step: Callable[[], str] = lambda: ""
        """Says at which step of the program we are, for error messages."""
        self.goodbye_timeout = math.inf
        """How long to wait at the end for the goodbye of a peer that lives."""

    @property
    @abstractmethod
    def peers(self) -> tuple[str, ...]:
        """The names of the peers."""

    @abstractmethod
    def send(self, peer: str, array: Array, tag: int = 0, stream: int = 0) -> None:
        """Hand an array over to be carried to a peer."""

    @abstractmethod
    def receive(self, peer: str, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        """Wait for the next array from a peer on one stream."""

    @abstractmethod
    def has_pending(self, peer: str, stream: int = 0) -> bool:
        """Tell whether an array of a peer waits on a stream, or its loss is known."""

    @abstractmethod
    def flush(self) -> None:
        """Wait until everything handed over has left this process."""

    @abstractmethod
    def backlog(self, peer: str) -> int:
        """Return how many bytes are handed over for a peer and have not left yet."""

    @abstractmethod
    def wait_for_backlog(self, limit: int, peers: Sequence[str]) -> None:
        """Wait until the backlog of one of these peers, any of them, is at most `limit`."""

    @abstractmethod
    def close(self, timeout: float | None = None) -> None:
        """Say goodbye to all peers, wait for theirs, and free the connections.

        Raises PeerError if a peer ends without a goodbye, or has not said it after `timeout`
        seconds (by default `goodbye_timeout`), though it lives.
        """

    def close_best_effort(self) -> None:
        """Say goodbye, and stay a moment for those of the others, whatever becomes of them.

        For one who is about to raise what all find by themselves: that must be seen, not how a peer
        took it, and soon.
        """
        with contextlib.suppress(PeerError):
            self.close(_LEAVING_SECONDS)

    @abstractmethod
    def abort(self) -> None:
        """Free the connections at once, so that the peers find out that something failed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        """Close after success, abort after failure, which is told the step we were at."""
        if isinstance(error, PrivetError):
            error.set_step_if_unknown(self.current_step())
        if kind is None:
            self.close()
        else:
            self.abort()

    def exchange(
        self, arrays: Mapping[str, Array], expected: Mapping[str, Expected], tag: int = 0
    ) -> dict[str, Array]:
        """Send arrays to some peers and return what comes from some: one round."""
        for peer, array in arrays.items():
            self.send(peer, array, tag)
        return {peer: self.receive(peer, due, tag) for peer, due in expected.items()}

    def check_header(
        self, peer: str, header: Header, expected: Expected, sequence: int, tag: int
    ) -> None:
        """Raise PeerMisbehavedError unless a frame is the one that is due on its stream."""
        due = Header(header.kind, expected.dtype, expected.shape, sequence, tag, header.stream)
        if header != due:
            raise PeerMisbehavedError(
                peer,
                f"sent {header.describe()}{self._describe_step()}, where {due.describe()} is due: "
                "the two run different programs, or lost step",
                self.current_step(),
            )

    def _describe_step(self) -> str:
        step = self.current_step()
        return f" at step {step!r}" if step else ""


MESSAGE_TAG = zlib.crc32(b"message")
_SIZE = Expected(np.dtype(np.uint64), (1,))
MAX_MESSAGE_BYTES = 1 << 24


def send_message(channel: Channel, peers: Iterable[str], content: bytes, stream: int = 0) -> None:
    """Send a message to some peers."""
    for peer in peers:
        channel.send(peer, np.array([len(content)], dtype=np.uint64), MESSAGE_TAG, stream)
        channel.send(peer, np.frombuffer(content, dtype=np.uint8), MESSAGE_TAG, stream)


def receive_message(
    channel: Channel, peer: str, max_bytes: int = MAX_MESSAGE_BYTES, stream: int = 0
) -> bytes:
    """Wait for a message from a peer, of at most so many bytes."""
    size = int(channel.receive(peer, _SIZE, MESSAGE_TAG, stream)[0])
    if size > max_bytes:
        raise PeerMisbehavedError(peer, f"announced a message of {size} bytes: too many")
    return channel.receive(
        peer, Expected(np.dtype(np.uint8), (size,)), MESSAGE_TAG, stream
    ).tobytes()


def pack_texts(texts: Iterable[str]) -> bytes:
    """Return texts as one message: each in UTF-8, after its length."""
    return b"".join(
        len(content).to_bytes(4, "little") + content for content in (t.encode() for t in texts)
    )


def unpack_texts(message: bytes) -> list[str]:
    """Return the texts of a message; raise ValueError if it is not one of texts."""
    texts, start = [], 0
    while start < len(message):
        end = start + 4 + int.from_bytes(message[start : start + 4], "little")
        if end > len(message):
            raise ValueError("a text that is longer than its message")
        texts.append(message[start + 4 : end].decode())
        start = end
    return texts


def exchange_messages(channel: Channel, content: Mapping[str, bytes]) -> dict[str, bytes]:
    """Send everybody named something, and return what each of them sends."""
    for peer, message in content.items():
        send_message(channel, [peer], message)
    return {peer: receive_message(channel, peer) for peer in content}
