"""Limits of the HTTP endpoint: tokens, hosts, request rates and slow connections.

Pages that a browser shows from elsewhere can make it ask, under a host name of theirs (DNS that
points to us) or across origins. Such requests are refused whatever they carry.

A request must arrive within some seconds, its head in some kilobytes. When there are as many
connections as may be, the one that has kept us waiting longest for a request makes room. So a crowd
of slow clients never keeps anybody else from being answered.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import socket
import time
from collections import OrderedDict
from collections.abc import Container
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from privet.config.party import LOCAL, Door

OPEN = ("/live", "/ready")
"""What is told to anybody: that we are there, and whether predictions are to be had."""
MOST_DISCARDED = 1 << 26
"""So many bytes of a refused body are taken in: who still sends does not listen."""
_MOST_ADDRESSES = 10_000


def refusal(status: int, text: str, **headers: str) -> JSONResponse:
    """Return an answer that says why there is no other."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return JSONResponse({"error": text}, status, named)


class Rate:
    """So many requests a second from the same address, on average; a second's worth at once."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, address: str) -> bool:
        """Count a request; tell whether it is one too many."""
        now = time.monotonic()
        left, since = self._left.pop(address, (float(self._per_second), now))
        left = min(self._per_second, left + self._per_second * (now - since))
        allowed = left >= 1
        self._left[address] = (left - allowed, now)
        if len(self._left) > _MOST_ADDRESSES:
            self._left.popitem(last=False)  # whoever has not asked for longest
        return allowed


class Guard:
    """An application behind all that is refused."""

    def __init__(
        self,
        app: ASGIApp,
        door: Door,
        token: bytes | None,
        *,
        open_paths: Container[str] = OPEN,
        no_token: int = 401,
    ) -> None:
        self._app = app
        self._door = door
        self._token = token
        self._open_paths = open_paths
        self._no_token = no_token
        self._rate = Rate(door.most_per_second)
        self._hosts = {host.lower() for host in (door.host, *door.hosts)}
        if door.is_local:
            self._hosts.update(LOCAL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = Headers(scope=scope)
        refused = self._refuse_page(headers, scope)
        if refused is None and scope["path"] not in self._open_paths:
            refused = self._refuse_client(headers, scope)
        if refused is None:
            await self._app(scope, receive, send)
            return
        if not await discard_body(receive):
            refused.headers["Connection"] = "close"
        await refused(scope, receive, send)

    def _refuse_page(self, headers: Headers, scope: Scope) -> Response | None:
        """Refuse what a page elsewhere makes a browser ask."""
        host = headers.get("host", "")
        if not self._is_ours(host, scope):
            return refusal(403, f"{host!r} is no name of this host: list it under hosts")
        origin = headers.get("origin")
        if origin is not None and not self._may_ask(origin, host):
            return refusal(403, "pages elsewhere may not ask: list them under origins")
        return None

    def _refuse_client(self, headers: Headers, scope: Scope) -> Response | None:
        """Refuse whoever asks too often, may not ask, or asks for what is no JSON."""
        client = scope.get("client")
        if not self._rate.allows(client[0] if client else ""):
            most = self._door.most_per_second
            text = f"more than {most:,} requests a second from one address: ask less often"
            return refusal(429, text, Retry_After="1")
        if self._token is not None and not self._shows_token(headers.get("authorization", "")):
            text = "show the token: Authorization: Bearer TOKEN"
            return refusal(self._no_token, text, WWW_Authenticate="Bearer")
        if scope["method"] == "POST" and not _is_json(headers.get("content-type", "")):
            return refusal(415, "only JSON is taken: Content-Type: application/json")
        return None

    def _is_ours(self, host: str, scope: Scope) -> bool:
        named = _name_of(host)
        server = scope.get("server")
        return named in self._hosts or (server is not None and named == server[0])

    def _may_ask(self, origin: str, host: str) -> bool:
        try:
            return origin in self._door.origins or urlsplit(origin).netloc == host
        except ValueError:  # it is no address
            return False

    def _shows_token(self, authorization: str) -> bool:
        scheme, _, shown = authorization.partition(" ")
        assert self._token is not None
        right = hmac.compare_digest(shown.strip().encode(), self._token)
        return scheme.lower() == "bearer" and right


async def discard_body(receive: Receive) -> bool:
    """Take in a body of which nothing was read yet; tell whether that was all."""
    taken = 0
    while taken <= MOST_DISCARDED:
        message = await receive()
        if message["type"] != "http.request":
            return True
        taken += len(message.get("body", b""))
        if not message.get("more_body", False):
            return True
    return False


def _name_of(host: str) -> str:
    """Return the name in HOST or HOST:PORT."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


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
