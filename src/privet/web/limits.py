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

from privet.config.party import LOOPBACK_HOSTS, HttpServerConfig

PUBLIC_PATHS = ("/live", "/ready")
"""What is told to anybody: that we are there, and whether predictions are to be had."""
MAX_DISCARDED_BYTES = 1 << 26
"""So many bytes of a refused body are taken in: who still sends does not listen."""
_MAX_ADDRESSES = 10_000


def make_error_response(status: int, text: str, **headers: str) -> JSONResponse:
    """Return an answer that says why there is no other."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return JSONResponse({"error": text}, status, named)


class RateLimiter:
    """So many requests a second from the same address, on average; a second's worth at once."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, address: str) -> bool:
        """Count a request; tell whether it is one too many."""
        now = time.monotonic()
        left, since = self._left.pop(address, (float(self._per_second), now))
        left = min(self._per_second, left + self._per_second * (now - since))
        allowed = left >= 1
        self._left[address] = (left - allowed, now)
        if len(self._left) > _MAX_ADDRESSES:
            self._left.popitem(last=False)  # whoever has not asked for longest
        return allowed


class AccessControl:
    """An application behind all that is refused."""

    def __init__(
        self,
        app: ASGIApp,
        server_config: HttpServerConfig,
        token: bytes | None,
        *,
        public_paths: Container[str] = PUBLIC_PATHS,
        unauthorized_status: int = 401,
    ) -> None:
        self._app = app
        self._server_config = server_config
        self._token = token
        self._open_paths = public_paths
        self._unauthorized_status = unauthorized_status
        self._rate = RateLimiter(server_config.most_per_second)
        self._hosts = {host.lower() for host in (server_config.host, *server_config.hosts)}
        if server_config.is_local:
            self._hosts.update(LOOPBACK_HOSTS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = Headers(scope=scope)
        refused = self._check_host_and_origin(headers, scope)
        if refused is None and scope["path"] not in self._open_paths:
            refused = self._check_client(headers, scope)
        if refused is None:
            await self._app(scope, receive, send)
            return
        if not await discard_body(receive):
            refused.headers["Connection"] = "close"
        await refused(scope, receive, send)

    def _check_host_and_origin(self, headers: Headers, scope: Scope) -> Response | None:
        """Refuse what a page elsewhere makes a browser ask."""
        host = headers.get("host", "")
        if not self._is_allowed_host(host, scope):
            return make_error_response(
                403, f"{host!r} is no name of this host: list it under hosts"
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_allowed_origin(origin, host):
            return make_error_response(403, "pages elsewhere may not ask: list them under origins")
        return None

    def _check_client(self, headers: Headers, scope: Scope) -> Response | None:
        """Refuse whoever asks too often, may not ask, or asks for what is no JSON."""
        client = scope.get("client")
        if not self._rate.allow(client[0] if client else ""):
            most = self._server_config.most_per_second
            text = f"more than {most:,} requests a second from one address: ask less often"
            return make_error_response(429, text, Retry_After="1")
        if self._token is not None and not self._has_valid_token(headers.get("authorization", "")):
            text = "show the token: Authorization: Bearer TOKEN"
            return make_error_response(self._unauthorized_status, text, WWW_Authenticate="Bearer")
        if scope["method"] == "POST" and not _is_json(headers.get("content-type", "")):
            return make_error_response(415, "only JSON is taken: Content-Type: application/json")
        return None

    def _is_allowed_host(self, host: str, scope: Scope) -> bool:
        named = _strip_port(host)
        server = scope.get("server")
        return named in self._hosts or (server is not None and named == server[0])

    def _is_allowed_origin(self, origin: str, host: str) -> bool:
        try:
            return origin in self._server_config.origins or urlsplit(origin).netloc == host
        except ValueError:  # it is no address
            return False

    def _has_valid_token(self, authorization: str) -> bool:
        scheme, _, shown = authorization.partition(" ")
        assert self._token is not None
        right = hmac.compare_digest(shown.strip().encode(), self._token)
        return scheme.lower() == "bearer" and right


async def discard_body(receive: Receive) -> bool:
    """Take in a body of which nothing was read yet; tell whether that was all."""
    taken = 0
    while taken <= MAX_DISCARDED_BYTES:
        message = await receive()
        if message["type"] != "http.request":
            return True
        taken += len(message.get("body", b""))
        if not message.get("more_body", False):
            return True
    return False


def _strip_port(host: str) -> str:
    """Return the name in HOST or HOST:PORT."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


RECEIVE_TIMEOUT_SECONDS = 15.0
"""How long a request may take to arrive."""
IDLE_TIMEOUT_SECONDS = 60
"""How long a connection may be kept without one, after the first."""
_MAX_HEADER_BYTES = 1 << 15


class ConnectionLimiter:
    """All connections of an endpoint; those that we wait for, longest first."""

    def __init__(self, max_connections: int) -> None:
        self.max_connections = max_connections
        self.count = 0
        self._deadlines: OrderedDict[LimitedConnection, float] = OrderedDict()

    def add(self, connection: LimitedConnection) -> None:
        """Take one in; another one makes room for it if there are too many."""
        self.count += 1
        if self.count > self.max_connections:
            slowest = next(iter(self._deadlines), connection)
            if slowest is connection:
                connection.close_with_error(HTTPStatus.TOO_MANY_REQUESTS, "too many ask at once")
            else:
                self.clear_deadline(slowest)
                slowest.close_with_error(
                    HTTPStatus.REQUEST_TIMEOUT, "others wait: send requests faster"
                )
        self.expect_request(connection, RECEIVE_TIMEOUT_SECONDS)

    def remove(self, connection: LimitedConnection) -> None:
        """Forget one that is gone."""
        self.count -= 1
        self.clear_deadline(connection)

    def expect_request(self, connection: LimitedConnection, seconds: float) -> None:
        """Note that a request is due from it, within so many seconds."""
        self._deadlines[connection] = time.monotonic() + seconds
        self._deadlines.move_to_end(connection)

    def clear_deadline(self, connection: LimitedConnection) -> None:
        """Note that all of its request is there."""
        self._deadlines.pop(connection, None)

    def close_slow_connections(self) -> None:
        """Give up whoever has kept us waiting for too long."""
        now = time.monotonic()
        for connection in [each for each, until in self._deadlines.items() if until < now]:
            self.clear_deadline(connection)
            connection.close_with_error(
                HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive"
            )


class LimitedConnection(HttpToolsProtocol):
    """One connection, watched."""

    def __init__(self, *arguments: Any, limiter: ConnectionLimiter, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._limiter = limiter
        self._header_bytes = 0
        self._in_headers = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Be connected."""
        # An answer is two writes, of which the second must not wait for the first to be heard of.
        line = transport.get_extra_info("socket")
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._limiter.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Be gone."""
        self._limiter.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless a head has no end."""
        if self.transport.is_closing():
            return
        if self._in_headers and not self._header_bytes:
            self._limiter.expect_request(self, RECEIVE_TIMEOUT_SECONDS)
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > _MAX_HEADER_BYTES:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self.close_with_error(status, f"headers of more than {_MAX_HEADER_BYTES:,} bytes")

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._in_headers = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that nothing more is missing."""
        self._limiter.clear_deadline(self)
        self._in_headers, self._header_bytes = True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of one that was refused before."""
        super().on_response_complete()
        if not self.transport.is_closing():
            # One who is silent is hung up on by the base class, without a word.
            self._limiter.expect_request(
                self, math.inf if self._in_headers else RECEIVE_TIMEOUT_SECONDS
            )

    def close_with_error(self, status: HTTPStatus, text: str) -> None:
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
