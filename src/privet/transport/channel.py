"""The interface of a channel, and messages of any length over it.

A channel belongs to one participant and connects it to all its peers. Arrays between two
participants arrive complete, unchanged and in the order of sending. Sending never waits for the
peer to receive, so two participants can send arrays of any size to each other at the same time.
Threads that run in parallel use one *stream* each: arrays of a stream are in order, and do not wait
for those of other streams.

After any PeerError the channel is closed. Its peers receive a failure notice that names the lost
peer, so that all participants report the peer that failed first, not those that failed because of
it.

    PeerLostError         the peer's connection closed while an array was expected from it
    PeerSilentError       nothing came for `peer_timeout` seconds while an array was expected
    PeerMisbehavedError   an invalid frame, or an unexpected one: type, shape, order or tag differ

A slow peer is not silent: while its program is running, its channel sends heartbeats.
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
# For the goodbyes of peers, when all of them end with the same error.
_LEAVING_SECONDS = 3.0


class Expected(NamedTuple):
    """The type and shape of an expected array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.dtype.itemsize * math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"


class Channel(ABC):
    """One participant's end of its connections to all its peers."""

    def __init__(self, name: str, peer_timeout: float) -> None:
        self.name = name
        self.peer_timeout = peer_timeout
        self.current_step: Callable[[], str] = lambda: ""
        """Returns the current step of the program, for error messages."""
        self.goodbye_timeout = math.inf
        """Seconds to wait in `close` for the goodbye of a connected peer."""

    @property
    @abstractmethod
    def peers(self) -> tuple[str, ...]:
        """The names of the peers."""

    @abstractmethod
    def send(self, peer: str, array: Array, tag: int = 0, stream: int = 0) -> None:
        """Hand an array over for a peer; it must not be changed before `flush` returns."""

    @abstractmethod
    def receive(self, peer: str, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        """Wait for the next array from a peer on one stream, which must be the expected one."""

    @abstractmethod
    def has_pending(self, peer: str, stream: int = 0) -> bool:
        """Return whether an array is ready on a peer's stream, or the peer is known to be lost."""

    @abstractmethod
    def flush(self) -> None:
        """Wait until all arrays handed over have left this process."""

    @abstractmethod
    def backlog(self, peer: str) -> int:
        """Return the bytes handed over for a peer that have not left yet."""

    @abstractmethod
    def wait_for_backlog(self, limit: int, peers: Sequence[str]) -> None:
        """Wait until the backlog of any of these peers is at most `limit`."""

    @abstractmethod
    def close(self, timeout: float | None = None) -> None:
        """Send a goodbye to all peers, wait for theirs, and close the connections.

        Raises PeerError if a peer ends without a goodbye, or is connected but has not sent one
        after `timeout` seconds (by default `goodbye_timeout`).
        """

    def close_best_effort(self) -> None:
        """Send a goodbye, and wait briefly for those of the peers; ignore their failures.

        For a caller that is about to raise an error that all participants find: it must raise that
        error soon, and not the failure of a peer because of it.
        """
        with contextlib.suppress(PeerError):
            self.close(_LEAVING_SECONDS)

    @abstractmethod
    def abort(self) -> None:
        """Close the connections at once, so that the peers notice the failure."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        """Close after success, abort after a failure; add the current step to its error."""
        if isinstance(error, PrivetError):
            error.set_step_if_unknown(self.current_step())
        if kind is None:
            self.close()
        else:
            self.abort()

    def exchange(
        self, arrays: Mapping[str, Array], expected: Mapping[str, Expected], tag: int = 0
    ) -> dict[str, Array]:
        """Send arrays to some peers, and return the expected arrays from some: one round."""
        for peer, array in arrays.items():
            self.send(peer, array, tag)
        return {
            peer: self.receive(peer, expected_array, tag)
            for peer, expected_array in expected.items()
        }

    def check_header(
        self, peer: str, header: Header, expected: Expected, sequence: int, tag: int
    ) -> None:
        """Raise PeerMisbehavedError unless a frame is the expected one on its stream."""
        expected_header = Header(
            header.kind, expected.dtype, expected.shape, sequence, tag, header.stream
        )
        if header != expected_header:
            raise PeerMisbehavedError(
                peer,
                f"sent {header.describe()}{self._describe_step()}, where "
                f"{expected_header.describe()} is due: "
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
    """Wait for a message of at most `max_bytes` bytes from a peer."""
    size = int(channel.receive(peer, _SIZE, MESSAGE_TAG, stream)[0])
    if size > max_bytes:
        raise PeerMisbehavedError(peer, f"announced a message of {size} bytes: too many")
    return channel.receive(
        peer, Expected(np.dtype(np.uint8), (size,)), MESSAGE_TAG, stream
    ).tobytes()


def pack_texts(texts: Iterable[str]) -> bytes:
    """Encode texts as one message: each in UTF-8, after its length (4 bytes)."""
    return b"".join(
        len(content).to_bytes(4, "little") + content for content in (t.encode() for t in texts)
    )


def unpack_texts(message: bytes) -> list[str]:
    """Decode the texts of a message; raise ValueError if it is invalid."""
    texts, start = [], 0
    while start < len(message):
        end = start + 4 + int.from_bytes(message[start : start + 4], "little")
        if end > len(message):
            raise ValueError("a text is longer than its message")
        texts.append(message[start + 4 : end].decode())
        start = end
    return texts


def exchange_messages(channel: Channel, content: Mapping[str, bytes]) -> dict[str, bytes]:
    """Send a message to each named peer, and return their messages."""
    for peer, message in content.items():
        send_message(channel, [peer], message)
    return {peer: receive_message(channel, peer) for peer in content}
