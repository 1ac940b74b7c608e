"""ASGI server that runs in a thread next to the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from privet.config.party import EndpointConfig, HttpServerConfig
from privet.errors import ParameterError, UnavailableError
from privet.federation.monitoring.events import Event, EventHandler
from privet.federation.serving.request_queue import RequestQueue
from privet.transport.rendezvous import listen
from privet.web.app import EndpointApp
from privet.web.limits import IDLE_TIMEOUT_SECONDS, ConnectionLimiter, LimitedConnection
from privet.web.schema import RequestParser

_RESERVED_DESCRIPTORS = 100
"""File descriptors that are reserved for everything except clients."""
_DESCRIPTORS_PER_CLIENT = 10
"""Descriptors per client, since more connections can be in TLS handshakes, which are short."""
_HANDSHAKE_SECONDS = 5.0
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers for TLS 1.2; TLS 1.3 has only secure ones."""
_END_SECONDS = 5
"""Maximum time for pending responses at the end."""


@contextlib.contextmanager
def run_endpoint(
    endpoint: EndpointConfig,
    queue: RequestQueue,
    request_parser: RequestParser,
    job_info: dict[str, Any],
    emit: EventHandler,
) -> Iterator[int]:
    """Serve prediction requests through a queue while the context lasts; yield the port."""
    connections = ConnectionLimiter(_raise_descriptor_limit(endpoint.most_connections))
    application = EndpointApp(endpoint, queue, request_parser, job_info, connections)
    with run_http_server(endpoint, application.make_asgi_app(), connections, emit) as port:
        yield port


@contextlib.contextmanager
def run_http_server(
    server_config: HttpServerConfig, app: ASGIApp, limiter: ConnectionLimiter, emit: EventHandler
) -> Iterator[int]:
    """Serve an ASGI application while the context lasts; yield the port."""
    server_config.count_days_left()  # raises readable errors for invalid keys
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_TIMEOUT_SECONDS,
        timeout_graceful_shutdown=_END_SECONDS,
        ssl_certfile=server_config.certificate,
        ssl_keyfile=server_config.key,
        ssl_ciphers=_CIPHERS,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ParameterError(
            f"endpoint.certificate, endpoint.key: {server_config.certificate} and "
            f"{server_config.key} cannot be used: {error.strerror or error}"
        ) from None
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    with _forward_server_errors(emit), _open_listener(server_config) as listener:
        port = int(listener.getsockname()[1])
        server = _LimitedServer(config, limiter)

        async def run() -> None:
            asyncio.get_running_loop().set_exception_handler(_make_exception_handler(emit))
            sweeper = asyncio.create_task(_close_slow_periodically(limiter))
            try:
                await server.serve([listener])
            finally:
                sweeper.cancel()

        thread = threading.Thread(target=asyncio.run, args=(run(),), name="http", daemon=True)
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join()


class _LimitedServer(uvicorn.Server):
    """uvicorn server with limited connections and TLS handshake time."""

    def __init__(self, config: uvicorn.Config, limiter: ConnectionLimiter) -> None:
        super().__init__(config)
        self._connections = limiter

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen with limited connections."""

        def make_connection() -> LimitedConnection:
            return LimitedConnection(
                config=self.config,
                server_state=self.server_state,
                app_state={},
                limiter=self._connections,
            )

        loop, context = asyncio.get_running_loop(), self.config.ssl
        handshake_timeout = None if context is None else _HANDSHAKE_SECONDS
        self.servers = [
            await loop.create_server(
                make_connection,
                sock=listener,
                ssl=context,
                ssl_handshake_timeout=handshake_timeout,
                backlog=self.config.backlog,
            )
            for listener in sockets or []
        ]
        self.started = True


def _open_listener(server_config: HttpServerConfig) -> socket.socket:
    try:
        return listen(server_config.host, server_config.port)
    except UnavailableError as error:
        raise UnavailableError(f"http: {error}") from None


async def _close_slow_periodically(limiter: ConnectionLimiter) -> None:
    while True:
        await asyncio.sleep(1.0)
        limiter.close_slow_connections()


def _raise_descriptor_limit(max_connections: int) -> int:
    """Raise the limit of file descriptors; return the supported number of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    required = _DESCRIPTORS_PER_CLIENT * max_connections + _RESERVED_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < required:
        soft = required if hard == resource.RLIM_INFINITY else min(required, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, min(max_connections, soft - _RESERVED_DESCRIPTORS))
    return max_connections


def _make_exception_handler(
    emit: EventHandler,
) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return a handler that emits errors, except those that clients cause by TLS or hanging up."""

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, (ssl.SSLError, ConnectionError, TimeoutError)):
            emit(Event("http-error", f"{context.get('message')}: {error!r}"))

    return handle


@contextlib.contextmanager
def _forward_server_errors(emit_event: EventHandler) -> Iterator[None]:
    """Emit errors of uvicorn's log as events, and drop its other messages."""

    class EventLogHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            emit_event(Event("http-error", self.format(record)))

    logger, handler = logging.getLogger("uvicorn.error"), EventLogHandler(logging.ERROR)
    previous = logger.level, logger.propagate
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = previous
