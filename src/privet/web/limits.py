"""Limits of the HTTP endpoint: tokens, hosts, request rates and slow connections.

A web page from another site can make a browser send requests, under a host name of that site (DNS
rebinding) or across origins. Such requests are rejected, with or without a valid token.

A request must arrive within a time limit, and its headers within a size limit. When the maximum of
connections is reached, the connection that has waited longest for a request is closed. Therefore
slow clients cannot block the endpoint for others.
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
"""Paths that need no token: they reveal only liveness and readiness."""
MAX_DISCARDED_BYTES = 1 << 26
"""Bytes of a rejected body that are read, since a client that still sends does not read."""
_MAX_ADDRESSES = 10_000


def make_error_response(status: int, text: str, **headers: str) -> JSONResponse:
    """Return a response with an error message and headers."""
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return JSONResponse({"error": text}, status, header_fields)


class RateLimiter:
    """Token bucket by client address: a rate per second, with bursts of one second."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, address: str) -> bool:
        """Count a request; return whether it is within the rate."""
        now = time.monotonic()
        left, last_time = self._left.pop(address, (float(self._per_second), now))
        left = min(self._per_second, left + self._per_second * (now - last_time))
        allowed = left >= 1
        self._left[address] = (left - allowed, now)
        if len(self._left) > _MAX_ADDRESSES:
            self._left.popitem(last=False)  # the least recent address
        return allowed


class AccessControl:
    """ASGI application that rejects requests by host, origin, rate, token or content type."""

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
        rejection = self._check_host_and_origin(headers, scope)
        if rejection is None and scope["path"] not in self._open_paths:
            rejection = self._check_client(headers, scope)
        if rejection is None:
            await self._app(scope, receive, send)
            return
        if not await discard_body(receive):
            rejection.headers["Connection"] = "close"
        await rejection(scope, receive, send)

    def _check_host_and_origin(self, headers: Headers, scope: Scope) -> Response | None:
        """Reject requests that a web page from another site makes a browser send."""
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
        """Reject requests above the rate limit, without a valid token, or without JSON."""
        client = scope.get("client")
        if not self._rate.allow(client[0] if client else ""):
            max_rate = self._server_config.most_per_second
            text = f"more than {max_rate:,} requests a second from one address: ask less often"
            return make_error_response(429, text, Retry_After="1")
        if self._token is not None and not self._has_valid_token(headers.get("authorization", "")):
            text = "show the token: Authorization: Bearer TOKEN"
            return make_error_response(self._unauthorized_status, text, WWW_Authenticate="Bearer")
        if scope["method"] == "POST" and not _is_json(headers.get("content-type", "")):
            return make_error_response(415, "only JSON is taken: Content-Type: application/json")
        return None

    def _is_allowed_host(self, host: str, scope: Scope) -> bool:
        name = _strip_port(host)
        server = scope.get("server")
        return name in self._hosts or (server is not None and name == server[0])

    def _is_allowed_origin(self, origin: str, host: str) -> bool:
        try:
            return origin in self._server_config.origins or urlsplit(origin).netloc == host
        except ValueError:  # not a URL
            return False

    def _has_valid_token(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        assert self._token is not None
        is_equal = hmac.compare_digest(token.strip().encode(), self._token)
        return scheme.lower() == "bearer" and is_equal


async def discard_body(receive: Receive) -> bool:
    """Read and discard a body of which nothing was read yet; return whether it ended."""
    n_read = 0
    while n_read <= MAX_DISCARDED_BYTES:
        message = await receive()
        if message["type"] != "http.request":
            return True
        n_read += len(message.get("body", b""))
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
"""Maximum time for a request to arrive."""
IDLE_TIMEOUT_SECONDS = 60
"""Maximum idle time of a connection between requests."""
_MAX_HEADER_BYTES = 1 << 15


class ConnectionLimiter:
    """The connections of an endpoint, with deadlines of pending requests, earliest first."""

    def __init__(self, max_connections: int) -> None:
        self.max_connections = max_connections
        self.count = 0
        self._deadlines: OrderedDict[LimitedConnection, float] = OrderedDict()

    def add(self, connection: LimitedConnection) -> None:
        """Add a connection; above the maximum, close the one that has waited longest."""
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
        """Remove a closed connection."""
        self.count -= 1
        self.clear_deadline(connection)

    def expect_request(self, connection: LimitedConnection, seconds: float) -> None:
        """Set the deadline for the next request of a connection."""
        self._deadlines[connection] = time.monotonic() + seconds
        self._deadlines.move_to_end(connection)

    def clear_deadline(self, connection: LimitedConnection) -> None:
        """Clear the deadline of a connection whose request is complete."""
        self._deadlines.pop(connection, None)

    def close_slow_connections(self) -> None:
        """Close all connections whose deadline has passed."""
        now = time.monotonic()
        for connection in [each for each, deadline in self._deadlines.items() if deadline < now]:
            self.clear_deadline(connection)
            connection.close_with_error(
                HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive"
            )


class LimitedConnection(HttpToolsProtocol):
    """A connection that reports its state to a limiter and limits the header size."""

    def __init__(self, *arguments: Any, limiter: ConnectionLimiter, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._limiter = limiter
        self._header_bytes = 0
        self._in_headers = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Be connected."""
        # A response is two writes; the second must not wait for an acknowledgement of the first.
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._limiter.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Be gone."""
        self._limiter.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless the headers are too long."""
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
        """Clear the deadline: the request is complete."""
        self._limiter.clear_deadline(self)
        self._in_headers, self._header_bytes = True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of a rejected one."""
        super().on_response_complete()
        if not self.transport.is_closing():
            # The base class closes idle connections without a response.
            self._limiter.expect_request(
                self, math.inf if self._in_headers else RECEIVE_TIMEOUT_SECONDS
            )

    def close_with_error(self, status: HTTPStatus, text: str) -> None:
        """Send an error, unless a response has begun, and close the connection."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = json.dumps({"error": text}).encode() + b"\n"
            headers = (
                f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            self.transport.write(headers.encode() + body)
        self.transport.close()
