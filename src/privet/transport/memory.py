"""Channels between threads of one process: for tests and experiments, as fast as copying."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from privet.errors import PeerError, PeerLostError, PeerSilentError
from privet.transport.channel import Array, Channel, Expected
from privet.transport.frames import ARRAY, Header


class _Hub:
    """The common state of one group of channels."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.changed = threading.Condition()
        self.inboxes: dict[tuple[str, str, int], deque[tuple[Header, Array]]] = defaultdict(deque)
        """Arrays from a sender to a recipient on a stream that are not received yet."""
        self.backlog_bytes: dict[tuple[str, str], int] = defaultdict(int)
        self.closed_by: dict[str, str | None] = {}
        """Disconnected members, and the lost peer that caused it, if any."""


class MemoryChannel(Channel):
    """One thread's end of its connections."""

    def __init__(self, name: str, hub: _Hub, peer_timeout: float) -> None:
        super().__init__(name, peer_timeout)
        self._hub = hub
        self._sent: dict[tuple[str, int], int] = defaultdict(int)
        self._received: dict[tuple[str, int], int] = defaultdict(int)

    @property
    def peers(self) -> tuple[str, ...]:
        """The names of the peers."""
        return tuple(name for name in self._hub.names if name != self.name)

    def send(self, peer: str, array: Array, tag: int = 0, stream: int = 0) -> None:
        """Put a copy of an array into a peer's inbox."""
        header = Header(ARRAY, array.dtype, array.shape, self._sent[peer, stream], tag, stream)
        self._sent[peer, stream] += 1
        with self._hub.changed:
            if self.name in self._hub.closed_by:
                raise PeerLostError(
                    peer, f"this channel is closed{self._describe_step()}", self.current_step()
                )
            self._hub.inboxes[self.name, peer, stream].append((header, np.array(array, order="C")))
            self._hub.backlog_bytes[self.name, peer] += array.nbytes
            self._hub.changed.notify_all()

    def receive(self, peer: str, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        """Take the next array out of the inbox."""
        end = None if self.peer_timeout == math.inf else time.monotonic() + self.peer_timeout
        with self._hub.changed:
            inbox = self._hub.inboxes[peer, self.name, stream]
            while not inbox:
                # A thread that ends closes its channel, and a running thread is not silent; the
                # timeout is for a thread that is blocked.
                if self.name in self._hub.closed_by:
                    raise PeerLostError(
                        peer, f"this channel is closed{self._describe_step()}", self.current_step()
                    )
                if peer in self._hub.closed_by:
                    self._raise_peer_disconnected(peer, self._describe_step())
                if not self._hub.changed.wait(None if end is None else end - time.monotonic()):
                    self._mark_closed(peer)
                    problem = f"silent for {self.peer_timeout:g} s"
                    raise PeerSilentError(
                        peer, problem + self._describe_step(), self.current_step()
                    )
            header, array = inbox.popleft()
            self._hub.backlog_bytes[peer, self.name] -= array.nbytes
            self._hub.changed.notify_all()
        try:
            self.check_header(peer, header, expected, self._received[peer, stream], tag)
        except PeerError:
            with self._hub.changed:
                self._mark_closed(peer)
            raise
        self._received[peer, stream] += 1
        return array

    def has_pending(self, peer: str, stream: int = 0) -> bool:
        """Return whether the inbox contains an array from a peer."""
        with self._hub.changed:
            return bool(self._hub.inboxes[peer, self.name, stream])

    def flush(self) -> None:
        """Do nothing: sent arrays are in the inbox at once."""

    def backlog(self, peer: str) -> int:
        """Return the bytes that the peer has not taken out of its inbox yet."""
        with self._hub.changed:
            return self._count_backlog(peer)

    def wait_for_backlog(self, limit: int, peers: Sequence[str]) -> None:
        """Wait until one of these peers has taken enough out of its inbox."""
        with self._hub.changed:
            while all(self._count_backlog(peer) > limit for peer in peers):
                for peer in peers:
                    if peer in self._hub.closed_by:
                        self._raise_peer_disconnected(peer, self._describe_step())
                self._hub.changed.wait()

    def _count_backlog(self, peer: str) -> int:
        return self._hub.backlog_bytes[self.name, peer]

    def close(self, timeout: float | None = None) -> None:
        """Disconnect: peers receive no more arrays."""
        with self._hub.changed:
            self._mark_closed(None)

    def abort(self) -> None:
        """Disconnect: peers receive no more arrays."""
        self.close()

    def _mark_closed(self, cause: str | None) -> None:
        self._hub.closed_by.setdefault(self.name, cause)
        self._hub.changed.notify_all()

    def _raise_peer_disconnected(self, peer: str, location: str) -> NoReturn:
        """Disconnect because a peer has, and pass on the cause that the peer reported."""
        cause = self._hub.closed_by[peer]
        self._mark_closed(cause or peer)
        reason = f"gave up, having lost {cause}" if cause else "has gone"
        raise PeerLostError(peer, reason + location, self.current_step())


def create_memory_channels(
    names: Sequence[str], peer_timeout: float = math.inf
) -> dict[str, MemoryChannel]:
    """Return connected channels, one for each name.

    There is no timeout by default: a running thread sends no heartbeats, and a thread that ends
    closes its channel.
    """
    hub = _Hub(names)
    return {name: MemoryChannel(name, hub, peer_timeout) for name in names}
