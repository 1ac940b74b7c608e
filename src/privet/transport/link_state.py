"""How a connection is: what passed, when its peer was last heard, how long the way there takes."""

from __future__ import annotations

import socket
import struct
import sys
import time
from typing import NamedTuple

from privet.transport.link import PeerLink

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
