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
    ALIVE,
    FAILED,
    GOODBYE,
    HEADER_BYTES,
    FrameError,
    FrameReader,
    Header,
    array_header,
    control_header,
    name_tag,
)

_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# What a frame takes in memory beside its elements, so that empty ones count, too.
OVERHEAD = 512
# So many bytes of elements leave in one write with their header, which TLS makes one full record.
_WITH_HEADER = (1 << 14) - HEADER_BYTES
# While a thread waits for what comes on its stream, the others' are read, too: so many bytes are
# more than anybody sends ahead who means well.
MOST_AHEAD = 1 << 32
# How much is read from one peer before the others get their turn.
_READ_QUOTA = 1 << 22
INTERRUPTED = name_tag("a signal")
"""What stands for one who was asked to end: no name has a space."""


class Doubt(IntEnum):
    """How likely it is that a peer only failed because another one did."""

    NONE = 0
    """It hung up without a word, fell silent or misbehaved."""
    ITS_OWN = 1
    """It said that it ended by itself."""
    TORN = 2
    """Its connection broke off in the middle, where its last words may have been lost."""
    LEFT = 3
    """It said goodbye, and hung up before we did: as one does who has lost somebody else."""
    BLAMES = 4
    """It said that it lost somebody else."""


Kin = Mapping[int, tuple[str, Doubt]]
"""Whom each of us has beside its peers, by tag, and what is to be thought of one that lost it."""
NO_KIN: Kin = {}


class PeerLink:
    """One peer: its socket, what waits to be sent to it and what came from it."""

    def __init__(
        self,
        peer: str,
        connection: socket.socket,
        limit: int,
        names: Mapping[int, str],
        kin: Kin = NO_KIN,
    ) -> None:
        self.peer = peer
        self.names = names
        self.kin = kin
        self.socket = connection
        self.reader = FrameReader(limit)
        self.outgoing: deque[memoryview] = deque()
        self.outgoing_bytes = 0
        self.inbox: dict[int, deque[tuple[Header, Array]]] = defaultdict(deque)
        """What came, by stream."""
        self.inbox_bytes = 0
        self.sent: dict[int, int] = defaultdict(int)
        self.received: dict[int, int] = defaultdict(int)
        """How many arrays, by stream."""
        self.awaited = 0
        """How many threads wait for an array that has not come."""
        self.heard = time.monotonic()
        self.bytes_sent = self.bytes_received = 0
        """All that passed, headers and signs of life included."""
        self.said_goodbye = False
        self.error: PeerError | None = None
        self.doubt = Doubt.NONE
        self.blamed = 0  # the tag of whom it said that it lost
        self.interest = select.POLLIN
        self.more = False  # the quota cut reading short

    def queue(self, content: memoryview) -> None:
        """Put bytes behind those that wait to be sent."""
        self.outgoing.append(content)
        self.outgoing_bytes += len(content)

    def queue_array(self, array: Array, tag: int, stream: int) -> None:
        """Put an array behind what waits to be sent."""
        if not array.flags.c_contiguous:
            array = array.copy(order="C")
        header = array_header(array, self.sent[stream], tag, stream)
        self.sent[stream] = (self.sent[stream] + 1) & 0xFFFFFFFF
        elements = array.reshape(-1).view(np.uint8).data
        self.queue(memoryview(b"".join((header, elements[:_WITH_HEADER]))))
        if array.nbytes > _WITH_HEADER:
            self.queue(elements[_WITH_HEADER:])

    def write(self) -> None:
        """Send what the connection takes without waiting."""
        try:
            while self.outgoing:
                view = self.outgoing[0]
                count = self.socket.send(view)
                self.bytes_sent += count
                self.outgoing_bytes -= count
                if count == len(view):
                    self.outgoing.popleft()
                else:
                    self.outgoing[0] = view[count:]
        except _WOULD_BLOCK:
            pass
        except OSError as error:
            self.lose(error)
            self.read()  # its last words may lie there

    def say(self, kind: int, tag: int = 0) -> None:
        """Send a frame without an array, as far as that goes without waiting."""
        self.queue(memoryview(control_header(kind, tag)))
        self.write()

    def show_life(self, now: float, leaving: bool) -> None:
        """Show that we live, unless what waits to be sent does."""
        if not self.interest & select.POLLIN:
            self.heard = now  # it is we who do not listen
        if not leaving and self.error is None and not self.outgoing:
            self.say(ALIVE)

    def read(self) -> None:
        """Receive what has arrived."""
        quota = _READ_QUOTA
        self.more = False
        try:
            while quota > 0:
                target = self.reader.target()
                count = self.socket.recv_into(target, len(target))
                if count == 0:
                    self.lose(None)
                    return
                self.heard = time.monotonic()
                self.bytes_received += count
                for header, array in self.reader.advance(count):
                    self.take(header, array)
                quota -= count
                drained = self.reader.idle and count < len(target) and not _pending(self.socket)
                if drained and self.error is None:
                    return
            self.more = self.error is None and _pending(self.socket)
        except _WOULD_BLOCK:
            pass
        except FrameError as error:
            self.error = PeerMisbehavedError(self.peer, f"sent {error}")
            self.doubt, self.blamed = Doubt.NONE, 0
        except OSError as error:
            self.lose(error)

    def take(self, header: Header, array: Array) -> None:
        """Take note of a frame that came."""
        if header.kind == FAILED:
            self.hear_of_failure(header.tag)
        elif self.said_goodbye:
            raise FrameError(f"{header.describe()} after its goodbye")
        elif header.kind == GOODBYE:
            self.said_goodbye = True
        elif header.kind != ALIVE:
            self.inbox[header.stream].append((header, array))
            self.inbox_bytes += array.nbytes + OVERHEAD
            if self.inbox_bytes > MOST_AHEAD:
                raise FrameError(f"{self.inbox_bytes} bytes that nobody waits for")

    def take_out(self, stream: int) -> Array:
        """Return the first array that came on a stream."""
        _, array = self.inbox[stream].popleft()
        self.inbox_bytes -= array.nbytes + OVERHEAD
        self.received[stream] = (self.received[stream] + 1) & 0xFFFFFFFF
        return array

    def lives(self, deadline: float) -> bool:
        """Tell whether the peer is there, and has something to say or to be sent."""
        if self.error is not None or time.monotonic() - self.heard > deadline:
            return False
        return bool(self.outgoing) or not self.said_goodbye

    def wanted(self, inbox_limit: int) -> int:
        """Return what to watch the connection for: room to write, bytes unless it has plenty.

        It has not, while a thread waits for what comes behind what others have not taken yet.
        """
        if self.error is not None:
            return -1  # not even that it hung up: we know
        interest = select.POLLOUT if self.outgoing else 0
        if self.awaited or self.inbox_bytes < inbox_limit:
            interest |= select.POLLIN
        return interest

    def hear_of_failure(self, tag: int) -> None:
        """Take note that the peer ends, and whom it blames for that."""
        self.blamed = tag if tag in self.names else 0  # whom nobody knows it may have made up
        self.doubt = Doubt.BLAMES if self.blamed else Doubt.ITS_OWN
        lost = self.names.get(tag, "one whom we do not know")
        if tag in self.kin:
            lost, self.doubt = self.kin[tag]
        problem = f"gave up, having lost {lost}" if tag else "ended with an error of its own"
        if tag == INTERRUPTED:
            problem = "was interrupted"
        self.error = PeerLostError(self.peer, problem)

    def lose(self, error: OSError | None) -> None:
        """Take note that the connection is gone."""
        self.outgoing.clear()
        self.outgoing_bytes = 0
        reason = f" ({error})" if error is not None and str(error) else ""
        if self.error is None:
            self.error = PeerLostError(self.peer, f"the connection was lost{reason}")
            torn = error is not None or not self.reader.idle
            self.doubt = Doubt.LEFT if self.said_goodbye else Doubt.TORN if torn else Doubt.NONE


def _pending(connection: socket.socket) -> bool:
    """Tell whether TLS holds bytes that the operating system no longer shows as readable."""
    return isinstance(connection, ssl.SSLSocket) and connection.pending() > 0


def kin_of(names: Iterable[str], doubt: Doubt) -> Kin:
    """Return kin by tag, to be told what is thought of one that has lost any of them."""
    return {kin_tag(name): (f"its {name}", doubt) for name in names}


def kin_tag(name: str) -> int:
    """Return the tag that stands for somebody's kin, who may be called as one of the peers."""
    return name_tag(f"its {name}")


_RTT = struct.Struct("=148xI")
"""Where Linux has the shortest round trip of the last minutes in `struct tcp_info`, in us. The
average would have the time in it that the other end takes before it acknowledges."""

_UNKNOWN = 0xFFFFFFFF


class LinkState(NamedTuple):
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
    def of(cls, link: PeerLink) -> LinkState:
        """Look at a connection, which another thread may be using."""
        silent = time.monotonic() - link.heard
        return cls(link.bytes_sent, link.bytes_received, silent, _delay_ms(link.socket))


def _delay_ms(connection: socket.socket) -> float | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT.size)
    except OSError:  # it is closed
        return None
    if len(told) < _RTT.size:  # an old system
        return None
    (found,) = _RTT.unpack(told)
    return None if found == _UNKNOWN else float(found) / 1000
