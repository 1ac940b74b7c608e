"""A peer's connection: its buffers, its heartbeat, and its delay.

Whoever loses a peer hangs up on all others, so one failure ends many connections. Before it hangs
up it says whom it lost, and those who hear of it look for the first failure, not the nearest.

Some have lost one of their kin, whom their peers have no connection to: a head one of its workers,
or a worker its head. They say so.
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
# What a frame takes in memory beside its elements, so that empty ones count, too.
FRAME_OVERHEAD_BYTES = 512
# So many bytes of elements leave in one write with their header, which TLS makes one full record.
_WITH_HEADER = (1 << 14) - HEADER_BYTES
# While a thread waits for what comes on its stream, the others' are read, too: so many bytes are
# more than anybody sends ahead who means well.
MAX_READ_AHEAD_BYTES = 1 << 32
# How much is read from one peer before the others get their turn.
_READ_QUOTA = 1 << 22
INTERRUPT_HASH = hash_name("a signal")
"""What stands for one who was asked to end: no name has a space."""


class CauseRank(IntEnum):
    """How likely it is that a peer only failed because another one did."""

    UNEXPLAINED = 0
    """It hung up without a word, fell silent or misbehaved."""
    SELF_REPORTED = 1
    """It said that it ended by itself."""
    BROKEN_OFF = 2
    """Its connection broke off in the middle, where its last words may have been lost."""
    AFTER_GOODBYE = 3
    """It said goodbye, and hung up before we did: as one does who has lost somebody else."""
    BLAMES_OTHER = 4
    """It said that it lost somebody else."""


Relatives = Mapping[int, tuple[str, CauseRank]]
"""Whom each of us has beside its peers, by tag, and what is to be thought of one that lost it."""
NO_RELATIVES: Relatives = {}


class PeerConnection:
    """One peer: its socket, what waits to be sent to it and what came from it."""

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
        """What came, by stream."""
        self.inbox_bytes = 0
        self.n_sent_by_stream: dict[int, int] = defaultdict(int)
        self.n_received_by_stream: dict[int, int] = defaultdict(int)
        """How many arrays, by stream."""
        self.n_waiting_threads = 0
        """How many threads wait for an array that has not come."""
        self.last_heard = time.monotonic()
        self.bytes_sent = self.bytes_received = 0
        """All that passed, headers and signs of life included."""
        self.said_goodbye = False
        self.error: PeerError | None = None
        self.cause_rank = CauseRank.UNEXPLAINED
        self.blamed_hash = 0  # the tag of whom it said that it lost
        self.poll_events = select.POLLIN
        self.has_unread = False  # the quota cut reading short

    def enqueue(self, content: memoryview) -> None:
        """Put bytes behind those that wait to be sent."""
        self.outgoing.append(content)
        self.outgoing_bytes += len(content)

    def enqueue_array(self, array: Array, tag: int, stream: int) -> None:
        """Put an array behind what waits to be sent."""
        if not array.flags.c_contiguous:
            array = array.copy(order="C")
        header = pack_array_header(array, self.n_sent_by_stream[stream], tag, stream)
        self.n_sent_by_stream[stream] = (self.n_sent_by_stream[stream] + 1) & 0xFFFFFFFF
        elements = array.reshape(-1).view(np.uint8).data
        self.enqueue(memoryview(b"".join((header, elements[:_WITH_HEADER]))))
        if array.nbytes > _WITH_HEADER:
            self.enqueue(elements[_WITH_HEADER:])

    def write(self) -> None:
        """Send what the connection takes without waiting."""
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
            self.read()  # its last words may lie there

    def send_control(self, kind: int, tag: int = 0) -> None:
        """Send a frame without an array, as far as that goes without waiting."""
        self.enqueue(memoryview(pack_control_header(kind, tag)))
        self.write()

    def send_heartbeat(self, now: float, leaving: bool) -> None:
        """Show that we live, unless what waits to be sent does."""
        if not self.poll_events & select.POLLIN:
            self.last_heard = now  # it is we who do not listen
        if not leaving and self.error is None and not self.outgoing:
            self.send_control(HEARTBEAT_FRAME)

    def read(self) -> None:
        """Receive what has arrived."""
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
            self.cause_rank, self.blamed_hash = CauseRank.UNEXPLAINED, 0
        except OSError as error:
            self.mark_disconnected(error)

    def handle_frame(self, header: Header, array: Array) -> None:
        """Take note of a frame that came."""
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
        """Return the first array that came on a stream."""
        _, array = self.inbox[stream].popleft()
        self.inbox_bytes -= array.nbytes + FRAME_OVERHEAD_BYTES
        self.n_received_by_stream[stream] = (self.n_received_by_stream[stream] + 1) & 0xFFFFFFFF
        return array

    def is_alive(self, peer_timeout: float) -> bool:
        """Tell whether the peer is there, and has something to say or to be sent."""
        if self.error is not None or time.monotonic() - self.last_heard > peer_timeout:
            return False
        return bool(self.outgoing) or not self.said_goodbye

    def choose_poll_events(self, inbox_limit: int) -> int:
        """Return what to watch the connection for: room to write, bytes unless it has plenty.

        It has not, while a thread waits for what comes behind what others have not taken yet.
        """
        if self.error is not None:
            return -1  # not even that it hung up: we know
        interest = select.POLLOUT if self.outgoing else 0
        if self.n_waiting_threads or self.inbox_bytes < inbox_limit:
            interest |= select.POLLIN
        return interest

    def handle_failure_notice(self, cause_hash: int) -> None:
        """Take note that the peer ends, and whom it blames for that."""
        self.blamed_hash = (
            cause_hash if cause_hash in self.names_by_hash else 0
        )  # whom nobody knows it may have made up
        self.cause_rank = CauseRank.BLAMES_OTHER if self.blamed_hash else CauseRank.SELF_REPORTED
        lost = self.names_by_hash.get(cause_hash, "one whom we do not know")
        if cause_hash in self.relatives:
            lost, self.cause_rank = self.relatives[cause_hash]
        problem = f"gave up, having lost {lost}" if cause_hash else "ended with an error of its own"
        if cause_hash == INTERRUPT_HASH:
            problem = "was interrupted"
        self.error = PeerLostError(self.peer, problem)

    def mark_disconnected(self, error: OSError | None) -> None:
        """Take note that the connection is gone."""
        self.outgoing.clear()
        self.outgoing_bytes = 0
        reason = f" ({error})" if error is not None and str(error) else ""
        if self.error is None:
            self.error = PeerLostError(self.peer, f"the connection was lost{reason}")
            torn = error is not None or not self.reader.is_idle
            self.cause_rank = (
                CauseRank.AFTER_GOODBYE
                if self.said_goodbye
                else CauseRank.BROKEN_OFF
                if torn
                else CauseRank.UNEXPLAINED
            )


def _pending(sock: socket.socket) -> bool:
    """Tell whether TLS holds bytes that the operating system no longer shows as readable."""
    return isinstance(sock, ssl.SSLSocket) and sock.pending() > 0


def map_relatives(names: Iterable[str], cause_rank: CauseRank) -> Relatives:
    """Return kin by tag, to be told what is thought of one that has lost any of them."""
    return {hash_relative(name): (f"its {name}", cause_rank) for name in names}


def hash_relative(name: str) -> int:
    """Return the tag that stands for somebody's kin, who may be called as one of the peers."""
    return hash_name(f"its {name}")


_RTT = struct.Struct("=148xI")
"""Where Linux has the shortest round trip of the last minutes in `struct tcp_info`, in us. The
average would have the time in it that the other end takes before it acknowledges."""

_UNKNOWN = 0xFFFFFFFF


class ConnectionState(NamedTuple):
    """One connection at some moment."""

    sent: int
    received: int
    """Bytes, headers and signs of life included."""
    silent_seconds: float
    """Since something was heard."""
    delay_ms: float | None
    """From here to the other end of the connection and back, as the system measures it; None where
    it does not say."""

    @classmethod
    def from_connection(cls, connection: PeerConnection) -> ConnectionState:
        """Look at a connection, which another thread may be using."""
        silent = time.monotonic() - connection.last_heard
        return cls(
            connection.bytes_sent, connection.bytes_received, silent, _delay_ms(connection.sock)
        )


def _delay_ms(sock: socket.socket) -> float | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT.size)
    except OSError:  # it is closed
        return None
    if len(told) < _RTT.size:  # an old system
        return None
    (found,) = _RTT.unpack(told)
    return None if found == _UNKNOWN else float(found) / 1000
