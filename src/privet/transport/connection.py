"""A peer's connection: its buffers, its heartbeat, and its delay.

A member that loses a peer disconnects from all others, so one failure ends many connections. Before
it disconnects, it sends a failure notice with the lost peer. The recipients look for the first
failure, not for the nearest one.

A failure notice can also name a *relative*, to which the recipients have no connection: a worker of
the sender, or its coordinator.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from privet.errors import PeerError, PeerLostError, PeerMisbehavedError
from privet.transport.channel import Array
from privet.transport.frames import (
    FAILURE_FRAME,
    GOODBYE,
    HEADER_BYTES,
    HEARTBEAT_FRAME,
    FrameError,
    FrameReader,
    Header,
    hash_name,
    pack_array_header,
    pack_control_header,
)

_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# Memory of a frame besides its elements, so that empty frames count, too.
FRAME_OVERHEAD_BYTES = 512
# Up to this many bytes of elements are written together with their header: one full TLS record.
_MAX_BYTES_WITH_HEADER = (1 << 14) - HEADER_BYTES
# While a thread waits for its stream, arrays of other streams are read, too: an honest peer never
# sends more than this many bytes ahead.
MAX_READ_AHEAD_BYTES = 1 << 32
# Bytes that are read from one peer before the other peers get their turn.
_READ_QUOTA = 1 << 22
INTERRUPT_HASH = hash_name("a signal")
"""The cause hash of an interrupted member: no name contains a space."""


class CauseRank(IntEnum):
    """How likely it is that a peer failed only because another one did."""

    UNEXPLAINED = 0
    """It disconnected without a notice, was silent or misbehaved."""
    SELF_REPORTED = 1
    """It sent a notice of its own failure."""
    BROKEN_OFF = 2
    """Its connection ended with an error or within a frame: a notice may have been lost."""
    AFTER_GOODBYE = 3
    """It sent a goodbye and disconnected before we did, as after the loss of another peer."""
    BLAMES_OTHER = 4
    """It sent a notice that it lost another peer."""


Relatives = Mapping[int, tuple[str, CauseRank]]
"""Members' relatives by hash: a description, and the rank of a member that lost the relative."""
NO_RELATIVES: Relatives = {}


class PeerConnection:
    """The connection to one peer: its socket, its queue for sending and its inbox."""

    def __init__(
        self,
        peer: str,
        sock: socket.socket,
        limit: int,
        names: Mapping[int, str],
        relatives: Relatives = NO_RELATIVES,
    ) -> None:
        self.peer = peer
        self.names_by_hash = names
        self.relatives = relatives
        self.sock = sock
        self.reader = FrameReader(limit)
        self.outgoing: deque[memoryview] = deque()
        self.outgoing_bytes = 0
        self.inbox: dict[int, deque[tuple[Header, Array]]] = defaultdict(deque)
        """Received arrays, by stream."""
        self.inbox_bytes = 0
        self.n_sent_by_stream: dict[int, int] = defaultdict(int)
        self.n_received_by_stream: dict[int, int] = defaultdict(int)
        """Number of arrays, by stream."""
        self.n_waiting_threads = 0
        """Number of threads that wait for an array that has not arrived."""
        self.last_heard = time.monotonic()
        self.bytes_sent = self.bytes_received = 0
        """Total bytes, including headers and heartbeats."""
        self.said_goodbye = False
        self.error: PeerError | None = None
        self.cause_rank = CauseRank.UNEXPLAINED
        self.cause_hash = 0  # of the peer that its notice names
        self.poll_events = select.POLLIN
        self.has_unread = False  # the quota stopped reading

    def enqueue(self, content: memoryview) -> None:
        """Append bytes to the queue for sending."""
        self.outgoing.append(content)
        self.outgoing_bytes += len(content)

    def enqueue_array(self, array: Array, tag: int, stream: int) -> None:
        """Append an array to the queue for sending."""
        if not array.flags.c_contiguous:
            array = array.copy(order="C")
        header = pack_array_header(array, self.n_sent_by_stream[stream], tag, stream)
        self.n_sent_by_stream[stream] = (self.n_sent_by_stream[stream] + 1) & 0xFFFFFFFF
        elements = array.reshape(-1).view(np.uint8).data
        self.enqueue(memoryview(b"".join((header, elements[:_MAX_BYTES_WITH_HEADER]))))
        if array.nbytes > _MAX_BYTES_WITH_HEADER:
            self.enqueue(elements[_MAX_BYTES_WITH_HEADER:])

    def write(self) -> None:
        """Send as many bytes as the socket accepts without waiting."""
        try:
            while self.outgoing:
                view = self.outgoing[0]
                count = self.sock.send(view)
                self.bytes_sent += count
                self.outgoing_bytes -= count
                if count == len(view):
                    self.outgoing.popleft()
                else:
                    self.outgoing[0] = view[count:]
        except _WOULD_BLOCK:
            pass
        except OSError as error:
            self.mark_disconnected(error)
            self.read()  # a failure notice may have arrived

    def send_control(self, kind: int, tag: int = 0) -> None:
        """Send a control frame, as far as the socket accepts it without waiting."""
        self.enqueue(memoryview(pack_control_header(kind, tag)))
        self.write()

    def send_heartbeat(self, now: float, leaving: bool) -> None:
        """Send a heartbeat, unless queued frames show that we are alive."""
        if not self.poll_events & select.POLLIN:
            self.last_heard = now  # we do not read from it: it is not silent
        if not leaving and self.error is None and not self.outgoing:
            self.send_control(HEARTBEAT_FRAME)

    def read(self) -> None:
        """Read the bytes that have arrived."""
        quota = _READ_QUOTA
        self.has_unread = False
        try:
            while quota > 0:
                target = self.reader.get_buffer()
                count = self.sock.recv_into(target, len(target))
                if count == 0:
                    self.mark_disconnected(None)
                    return
                self.last_heard = time.monotonic()
                self.bytes_received += count
                for header, array in self.reader.advance(count):
                    self.handle_frame(header, array)
                quota -= count
                drained = self.reader.is_idle and count < len(target) and not _pending(self.sock)
                if drained and self.error is None:
                    return
            self.has_unread = self.error is None and _pending(self.sock)
        except _WOULD_BLOCK:
            pass
        except FrameError as error:
            self.error = PeerMisbehavedError(self.peer, f"sent {error}")
            self.cause_rank, self.cause_hash = CauseRank.UNEXPLAINED, 0
        except OSError as error:
            self.mark_disconnected(error)

    def handle_frame(self, header: Header, array: Array) -> None:
        """Process a received frame."""
        if header.kind == FAILURE_FRAME:
            self.handle_failure_notice(header.tag)
        elif self.said_goodbye:
            raise FrameError(f"{header.describe()} after its goodbye")
        elif header.kind == GOODBYE:
            self.said_goodbye = True
        elif header.kind != HEARTBEAT_FRAME:
            self.inbox[header.stream].append((header, array))
            self.inbox_bytes += array.nbytes + FRAME_OVERHEAD_BYTES
            if self.inbox_bytes > MAX_READ_AHEAD_BYTES:
                raise FrameError(f"{self.inbox_bytes} bytes that nobody waits for")

    def pop_array(self, stream: int) -> Array:
        """Return the first array in the inbox of a stream."""
        _, array = self.inbox[stream].popleft()
        self.inbox_bytes -= array.nbytes + FRAME_OVERHEAD_BYTES
        self.n_received_by_stream[stream] = (self.n_received_by_stream[stream] + 1) & 0xFFFFFFFF
        return array

    def is_alive(self, peer_timeout: float) -> bool:
        """Return whether the peer is connected, and its goodbye or our queued bytes are pending."""
        if self.error is not None or time.monotonic() - self.last_heard > peer_timeout:
            return False
        return bool(self.outgoing) or not self.said_goodbye

    def choose_poll_events(self, inbox_limit: int) -> int:
        """Return the poll events: writing if bytes are queued, reading unless the inbox is full.

        A full inbox is still read while a thread waits, because its array may follow arrays of
        other threads.
        """
        if self.error is not None:
            return -1  # not even its disconnection, which is known
        events = select.POLLOUT if self.outgoing else 0
        if self.n_waiting_threads or self.inbox_bytes < inbox_limit:
            events |= select.POLLIN
        return events

    def handle_failure_notice(self, cause_hash: int) -> None:
        """Record that the peer ends, and the cause that it reports."""
        self.cause_hash = (
            cause_hash if cause_hash in self.names_by_hash else 0
        )  # the peer may have invented an unknown member
        self.cause_rank = CauseRank.BLAMES_OTHER if self.cause_hash else CauseRank.SELF_REPORTED
        cause = self.names_by_hash.get(cause_hash, "one whom we do not know")
        if cause_hash in self.relatives:
            cause, self.cause_rank = self.relatives[cause_hash]
        problem = (
            f"gave up, having lost {cause}" if cause_hash else "ended with an error of its own"
        )
        if cause_hash == INTERRUPT_HASH:
            problem = "was interrupted"
        self.error = PeerLostError(self.peer, problem)

    def mark_disconnected(self, error: OSError | None) -> None:
        """Record that the connection is lost."""
        self.outgoing.clear()
        self.outgoing_bytes = 0
        reason = f" ({error})" if error is not None and str(error) else ""
        if self.error is None:
            self.error = PeerLostError(self.peer, f"the connection was lost{reason}")
            is_broken_off = error is not None or not self.reader.is_idle
            self.cause_rank = (
                CauseRank.AFTER_GOODBYE
                if self.said_goodbye
                else CauseRank.BROKEN_OFF
                if is_broken_off
                else CauseRank.UNEXPLAINED
            )


def _pending(sock: socket.socket) -> bool:
    """Return whether TLS has buffered bytes, which the operating system does not report."""
    return isinstance(sock, ssl.SSLSocket) and sock.pending() > 0


def map_relatives(names: Iterable[str], cause_rank: CauseRank) -> Relatives:
    """Return relatives by hash, with the rank of a member that has lost one of them."""
    return {hash_relative(name): (f"its {name}", cause_rank) for name in names}


def hash_relative(name: str) -> int:
    """Return the hash of a member's relative, which differs from that of a peer of this name."""
    return hash_name(f"its {name}")


_RTT = struct.Struct("=148xI")
"""The shortest round trip of the last minutes in Linux's `struct tcp_info`, in microseconds. The
average would include the time that the other end takes to acknowledge."""

_UNKNOWN = 0xFFFFFFFF


class ConnectionState(NamedTuple):
    """The state of one connection."""

    sent: int
    received: int
    """Bytes, including headers and heartbeats."""
    silent_seconds: float
    """Seconds since the last received byte."""
    delay_ms: float | None
    """Round-trip time in milliseconds, as measured by the operating system; None if unknown."""

    @classmethod
    def from_connection(cls, connection: PeerConnection) -> ConnectionState:
        """Return the state of a connection, which another thread may be using."""
        silent = time.monotonic() - connection.last_heard
        return cls(
            connection.bytes_sent,
            connection.bytes_received,
            silent,
            _measure_delay_ms(connection.sock),
        )


def _measure_delay_ms(sock: socket.socket) -> float | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT.size)
    except OSError:  # the socket is closed
        return None
    if len(info) < _RTT.size:  # an old kernel
        return None
    (microseconds,) = _RTT.unpack(info)
    return None if microseconds == _UNKNOWN else float(microseconds) / 1000
