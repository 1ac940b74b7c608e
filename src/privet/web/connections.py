"""Connections that cannot wear the endpoint out: slow ones, endless ones, too many of them.

A request must arrive within some seconds, its head in some kilobytes. When there are as many
connections as may be, the one that has kept us waiting longest for a request makes room. So a crowd
of slow clients never keeps anybody else from being answered.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import time
from collections import OrderedDict
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

RECEIVE_SECONDS = 15.0
"""How long a request may take to arrive."""
IDLE_SECONDS = 60
"""How long a connection may be kept without one, after the first."""
_MOST_HEAD_BYTES = 1 << 15


class Connections:
    """All connections of an endpoint; those that we wait for, longest first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.count = 0
        self._awaited: OrderedDict[Connection, float] = OrderedDict()

    def add(self, connection: Connection) -> None:
        """Take one in; another one makes room for it if there are too many."""
        self.count += 1
        if self.count > self.most:
            slowest = next(iter(self._awaited), connection)
            if slowest is connection:
                connection.hang_up(HTTPStatus.TOO_MANY_REQUESTS, "too many ask at once")
            else:
                self.has_come(slowest)
                slowest.hang_up(HTTPStatus.REQUEST_TIMEOUT, "others wait: send requests faster")
        self.wait_for(connection, RECEIVE_SECONDS)

    def remove(self, connection: Connection) -> None:
        """Forget one that is gone."""
        self.count -= 1
        self.has_come(connection)

    def wait_for(self, connection: Connection, seconds: float) -> None:
        """Note that a request is due from it, within so many seconds."""
        self._awaited[connection] = time.monotonic() + seconds
        self._awaited.move_to_end(connection)

    def has_come(self, connection: Connection) -> None:
        """Note that all of its request is there."""
        self._awaited.pop(connection, None)

    def hang_up_on_the_slow(self) -> None:
        """Give up whoever has kept us waiting for too long."""
        now = time.monotonic()
        for connection in [each for each, until in self._awaited.items() if until < now]:
            self.has_come(connection)
            connection.hang_up(HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive")


class Connection(HttpToolsProtocol):
    """One connection, watched."""

    def __init__(self, *arguments: Any, all_of_them: Connections, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._all = all_of_them
        self._head_bytes = 0
        self._in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Be connected."""
        # An answer is two writes, of which the second must not wait for the first to be heard of.
        line = transport.get_extra_info("socket")
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._all.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Be gone."""
        self._all.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless a head has no end."""
        if self.transport.is_closing():
            return
        if self._in_head and not self._head_bytes:
            self._all.wait_for(self, RECEIVE_SECONDS)
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > _MOST_HEAD_BYTES:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self.hang_up(status, f"headers of more than {_MOST_HEAD_BYTES:,} bytes")

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that nothing more is missing."""
        self._all.has_come(self)
        self._in_head, self._head_bytes = True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of one that was refused before."""
        super().on_response_complete()
        if not self.transport.is_closing():
            # One who is silent is hung up on by the base class, without a word.
            self._all.wait_for(self, math.inf if self._in_head else RECEIVE_SECONDS)

    def hang_up(self, status: HTTPStatus, text: str) -> None:
        """Say why, unless an answer has begun, and close the connection."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = json.dumps({"error": text}).encode() + b"\n"
            head = (
                f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()
