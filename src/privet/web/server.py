"""The endpoint at work: an ASGI server in a thread of its own, beside the protocol."""

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

from privet.config.party import Door, Endpoint
from privet.errors import ParameterError, UnavailableError
from privet.federation.monitoring.events import Event, Tell
from privet.federation.serving.request_queue import RequestQueue
from privet.transport.rendezvous import listen
from privet.web.app import Application
from privet.web.limits import IDLE_SECONDS, Connection, Connections
from privet.web.schema import Reader

_OTHER_FILES = 100
"""So many files and connections are left to everything but clients."""
_HANDSHAKES = 10
"""So many times as many clients may be about to agree on TLS, none of them for long."""
_HANDSHAKE_SECONDS = 5.0
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For clients that know TLS 1.2 alone; those of TLS 1.3 are all as good."""
_END_SECONDS = 5
"""How long answers may take to leave, at the end."""


@contextlib.contextmanager
def serving_http(
    endpoint: Endpoint, queue: RequestQueue, reader: Reader, about: dict[str, Any], tell: Tell
) -> Iterator[int]:
    """Answer HTTP requests through a queue while the context lasts; yield the port."""
    connections = Connections(_room_for(endpoint.most_connections))
    application = Application(endpoint, queue, reader, about, connections)
    with serving(endpoint, application.asgi(), connections, tell) as port:
        yield port


@contextlib.contextmanager
def serving(door: Door, app: ASGIApp, connections: Connections, tell: Tell) -> Iterator[int]:
    """Have an application answer while the context lasts; yield the port."""
    door.days_left()  # which says in plain words what is wrong with keys
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=_END_SECONDS,
        ssl_certfile=door.certificate,
        ssl_keyfile=door.key,
        ssl_ciphers=_CIPHERS,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ParameterError(
            f"endpoint.certificate, endpoint.key: {door.certificate} and {door.key} cannot be "
            f"used: {error.strerror or error}"
        ) from None
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    with _telling_errors(tell), _listen(door) as listener:
        port = int(listener.getsockname()[1])
        server = _Server(config, connections)

        async def run() -> None:
            asyncio.get_running_loop().set_exception_handler(_of_ours(tell))
            sweeping = asyncio.create_task(_sweep(connections))
            try:
                await server.serve([listener])
            finally:
                sweeping.cancel()

        thread = threading.Thread(target=asyncio.run, args=(run(),), name="http", daemon=True)
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join()


class _Server(uvicorn.Server):
    """A server whose connections are watched from the first moment."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""

        def connection() -> Connection:
            return Connection(
                config=self.config,
                server_state=self.server_state,
                app_state={},
                all_of_them=self._connections,
            )

        loop, context = asyncio.get_running_loop(), self.config.ssl
        patience = None if context is None else _HANDSHAKE_SECONDS
        self.servers = [
            await loop.create_server(
                connection,
                sock=listener,
                ssl=context,
                ssl_handshake_timeout=patience,
                backlog=self.config.backlog,
            )
            for listener in sockets or []
        ]
        self.started = True


def _listen(door: Door) -> socket.socket:
    try:
        return listen(door.host, door.port)
    except UnavailableError as error:
        raise UnavailableError(f"http: {error}") from None


async def _sweep(connections: Connections) -> None:
    while True:
        await asyncio.sleep(1.0)
        connections.hang_up_on_the_slow()


def _room_for(wanted: int) -> int:
    """Return how many connections this process can have, up to those that are wanted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = _HANDSHAKES * wanted + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < enough:
        soft = enough if hard == resource.RLIM_INFINITY else min(enough, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, min(wanted, soft - _OTHER_FILES))
    return wanted


def _of_ours(tell: Tell) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return what tells errors that are not a client's: that one hangs up, or speaks no TLS."""

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, (ssl.SSLError, ConnectionError, TimeoutError)):
            tell(Event("http-error", f"{context.get('message')}: {error!r}"))

    return handle


@contextlib.contextmanager
def _telling_errors(tell: Tell) -> Iterator[None]:
    """Have the server's own log say what is a bug, and nothing of what clients do."""

    class Telling(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(Event("http-error", self.format(record)))

    log, handler = logging.getLogger("uvicorn.error"), Telling(logging.ERROR)
    before = log.level, log.propagate
    log.setLevel(logging.ERROR)
    log.propagate = False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before
