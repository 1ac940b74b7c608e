"""One peer's connection: what waits to be sent to it, and what came from it."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque

from privet.errors import PeerError, PeerLostError, PeerMisbehavedError
from privet.transport.channel import Array
from privet.transport.frames import ALIVE, GOODBYE, FrameError, FrameReader, Header

_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# What a frame takes in memory beside its elements, so that empty ones count, too.
OVERHEAD = 512
# How much is read from one peer before the others get their turn.
_READ_QUOTA = 1 << 22


class PeerLink:
    """One peer: its socket, what waits to be sent to it and what came from it."""

    def __init__(self, peer: str, connection: socket.socket, limit: int) -> None:
        self.peer = peer
        self.socket = connection
        self.reader = FrameReader(limit)
        self.outgoing: deque[memoryview] = deque()
        self.outgoing_bytes = 0
        self.inbox: deque[tuple[Header, Array]] = deque()
        self.inbox_bytes = 0
        self.sent = self.received = 0
        self.heard = time.monotonic()
        self.said_goodbye = False
        self.error: PeerError | None = None
        self.interest = select.POLLIN
        self.more = False  # the quota cut reading short

    def queue(self, content: memoryview) -> None:
        """Put bytes behind those that wait to be sent."""
        self.outgoing.append(content)
        self.outgoing_bytes += len(content)

    def write(self) -> None:
        """Send what the connection takes without waiting."""
        try:
            while self.outgoing:
                view = self.outgoing[0]
                count = self.socket.send(view)
                self.outgoing_bytes -= count
                if count == len(view):
                    self.outgoing.popleft()
                else:
                    self.outgoing[0] = view[count:]
        except _WOULD_BLOCK:
            pass
        except OSError as error:
            self.lose(error)

    def read(self) -> None:
        """Receive what has arrived."""
        quota = _READ_QUOTA
        self.more = False
        try:
            while True:
                target = self.reader.target()
                count = self.socket.recv_into(target)
                if count == 0:
                    self.lose(None)
                    return
                self.heard = time.monotonic()
                for header, array in self.reader.advance(count):
                    self.take(header, array)
                quota -= count
                if self.reader.idle and count < len(target) and not _pending(self.socket):
                    return
                if quota < 0:
                    self.more = _pending(self.socket)
                    return
        except _WOULD_BLOCK:
            pass
        except FrameError as error:
            self.error = PeerMisbehavedError(self.peer, f"sent {error}")
        except OSError as error:
            self.lose(error)

    def take(self, header: Header, array: Array) -> None:
        """Take note of a frame that came."""
        if self.said_goodbye:
            raise FrameError(f"{header.describe()} after its goodbye")
        if header.kind == GOODBYE:
            self.said_goodbye = True
        elif header.kind != ALIVE:
            self.inbox.append((header, array))
            self.inbox_bytes += array.nbytes + OVERHEAD

    def lose(self, error: OSError | None) -> None:
        """Take note that the connection is gone."""
        self.outgoing.clear()
        self.outgoing_bytes = 0
        reason = f" ({error})" if error is not None and str(error) else ""
        if self.error is None:
            self.error = PeerLostError(self.peer, f"the connection was lost{reason}")


def _pending(connection: socket.socket) -> bool:
    """Tell whether TLS holds bytes that the operating system no longer shows as readable."""
    return isinstance(connection, ssl.SSLSocket) and connection.pending() > 0
