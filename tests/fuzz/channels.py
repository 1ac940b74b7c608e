"""Live channels that expect certain frames, and a peer that sends other bytes."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privet.errors import PeerError
from privet.transport import channel as messages
from privet.transport.channel import Expected
from privet.transport.connection import PeerConnection
from privet.transport.frames import GOODBYE, hash_name, pack_array_header, pack_control_header
from privet.transport.rendezvous import AcceptedPeers
from privet.transport.sockets import SocketChannel
from privet.transport.tls import Identity, create_identity
from tests.fuzz.lies import lying_frames

_LOCAL, _LIAR = "shop", "bank"
_NAMES = {hash_name(name): name for name in (_LOCAL, _LIAR, "dealer")}
_MAX_INBOX_BYTES = 1 << 22
"""Limit of an inbox: no case sends more bytes."""
_PEER_TIMEOUT_SECONDS = 0.05
"""Seconds without a heartbeat until the liar counts as lost, if it stays connected."""


@dataclass(frozen=True)
class Injection:
    """The bytes that a liar sends in a state, and whether it stays connected."""

    due: str
    content: str
    """In hexadecimal."""
    stays: bool = False
    secure: str = ""
    """Empty: without TLS; "tls": as TLS content; "raw": in place of TLS records."""

    def record(self) -> dict[str, Any]:
        """Return the record for the corpus."""
        return asdict(self)


def _frame(array: np.ndarray[Any, Any], sequence: int, tag: int = 0, stream: int = 0) -> bytes:
    return pack_array_header(array, sequence, tag, stream) + array.tobytes()


def _arrays(*kinds: tuple[str, tuple[int, ...], int, int]) -> list[bytes]:
    return [_frame(np.zeros(s, np.dtype(d)), 0, tag, stream) for d, s, tag, stream in kinds]


_CONTENT = b'{"a": 1}'
_MESSAGE = [
    _frame(np.array([len(_CONTENT)], np.uint64), 0, messages.MESSAGE_TAG),
    _frame(np.frombuffer(_CONTENT, np.uint8), 1, messages.MESSAGE_TAG),
]


def _receive(dtype: str, shape: tuple[int, ...], tag: int, stream: int) -> Any:
    def wait(channel: SocketChannel) -> None:
        expected = Expected(np.dtype(dtype), shape)
        array = channel.receive(_LIAR, expected, tag, stream)
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)

    return wait


def _receive_message(channel: SocketChannel) -> None:
    assert len(messages.receive_message(channel, _LIAR)) <= messages.MAX_MESSAGE_BYTES


def _compute(channel: SocketChannel) -> None:
    """Poll without waiting, like the thread that polls all connections."""
    with channel._lock:
        channel._pump(0)
    channel.has_pending(_LIAR)
    channel.raise_if_disconnected()
    channel.send(_LIAR, np.zeros(3, np.uint8))


Wait = Callable[[SocketChannel], None]
_SMALL, _LARGE = ("u8", (5,), 7, 0), ("u4", (100, 100), 1 << 31, 0)
STATES: Mapping[str, tuple[list[bytes], Wait]] = {
    "an array": (_arrays(_SMALL), _receive(*_SMALL)),
    "a large array": (_arrays(_LARGE), _receive(*_LARGE)),
    "an array of a stream": (
        _arrays(("u1", (2, 3), 5, 1), ("u2", (4,), 9, 3)),
        _receive("u2", (4,), 9, 3),
    ),
    "an empty array": (_arrays(("u1", (0,), 0, 0)), _receive("u1", (0,), 0, 0)),
    "a message": (_MESSAGE, _receive_message),
    "a goodbye": ([pack_control_header(GOODBYE)], lambda channel: channel.close(0.2)),
    "nothing": (_arrays(_SMALL), _compute),
    "somebody else": (_MESSAGE, lambda _: None),
}
"""By expected input: an honest peer's frames, and a function that waits for them."""
CONNECTING = "somebody else"
"""While other members are missing, there is no channel yet."""


class _Plain(socket.socket):
    """A Unix socket, which ignores TCP options."""

    def setsockopt(self, *arguments: Any) -> None:
        if arguments[0] != socket.IPPROTO_TCP:
            super().setsockopt(*arguments)


class Harness:
    """Makes connections, and sends injections on them."""

    def __init__(self, folder: Path) -> None:
        self._keys: dict[str, Identity] = {
            name: create_identity(name, folder) for name in (_LOCAL, _LIAR)
        }

    def draw(self, chance: random.Random) -> Injection:
        """Draw an injection; few stay connected or use TLS, which takes longer."""
        due = list(STATES)[int(len(STATES) * chance.random())]
        content = lying_frames(chance, STATES[due][0])
        secure = "" if chance.random() > 0.02 else chance.choice(["tls", "tls", "raw"])
        return Injection(due, content.hex(), chance.random() < 0.003, secure)

    def inject(self, injection: Injection) -> str | None:
        """Send an injection; return a description of the problem, if there is one."""
        threads = threading.active_count()
        local, remote, raw = self._pair(injection.secure)
        try:
            problem = self._listen(injection, local, remote, raw)
        finally:
            remote.close()
            local.close()
            if raw is not None:
                os.close(raw)
        if threading.active_count() > threads:
            return f"{threading.active_count() - threads} threads are left"
        return problem

    def _listen(
        self, injection: Injection, local: socket.socket, remote: socket.socket, raw: int | None
    ) -> str | None:
        content, wait = bytes.fromhex(injection.content), STATES[injection.due][1]
        try:
            if injection.secure == "raw" and raw is not None:
                os.write(raw, content)
            else:
                remote.sendall(content)
            if not injection.stays:
                remote.shutdown(socket.SHUT_WR)
        except OSError as error:  # the test itself failed to send
            return f"the liar cannot speak: {error!r}"
        if injection.due == CONNECTING:
            return _gather(local)
        local.setblocking(False)
        connection = PeerConnection(_LIAR, local, 1 << 20, _NAMES)
        timeout = _PEER_TIMEOUT_SECONDS if injection.stays else 10.0
        channel = SocketChannel(_LOCAL, {_LIAR: connection}, timeout, frame_limit=1 << 20)
        try:
            wait(channel)
        except PeerError as error:
            if error.peer != _LIAR:
                return f"does not name {_LIAR}: {error!r}"
        except Exception as error:  # noqa: BLE001
            return f"{error!r} is none of our errors"
        finally:
            channel.abort()
        if connection.inbox_bytes > _MAX_INBOX_BYTES:
            return f"{connection.inbox_bytes} bytes in its inbox"
        return "its thread is still running" if channel._ticker.is_alive() else None

    def _pair(self, secure: str) -> tuple[socket.socket, socket.socket, int | None]:
        if not secure:
            one, other = socket.socketpair()
            other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            other.settimeout(5)
            return _Plain(fileno=one.detach()), other, None
        with socket.create_server(("127.0.0.1", 0)) as listener:
            remote = socket.create_connection(listener.getsockname())
            local, _ = listener.accept()
        raw = os.dup(remote.fileno())
        wrapped: dict[str, socket.socket] = {}

        def handshake() -> None:
            certificate = self._keys[_LOCAL].certificate
            wrapped[_LIAR] = self._keys[_LIAR].wrap_tls(remote, certificate, server=False)

        thread = threading.Thread(target=handshake)
        thread.start()
        secured = self._keys[_LOCAL].wrap_tls(local, self._keys[_LIAR].certificate, server=True)
        thread.join()
        return secured, wrapped[_LIAR], raw


def _gather(local: socket.socket) -> str | None:
    """Poll a connected peer while other members are missing."""
    accepted = AcceptedPeers([_LOCAL, _LIAR, "dealer"], peer_timeout=10.0)
    accepted.add(_LIAR, local)
    connection = accepted.connections[_LIAR]
    deadline = time.monotonic() + 5
    try:
        while not (lost := accepted.poll()):
            if time.monotonic() > deadline or connection.has_unread:
                break
            if connection.said_goodbye or connection.inbox_bytes:
                break  # early arrays, which are kept for the program
    except Exception as error:  # noqa: BLE001
        return f"{error!r} while others are missing"
    finally:
        accepted.disconnect(*list(accepted.connections))
    if lost and list(lost) != [_LIAR]:
        return f"expected the loss of {_LIAR}, found {lost}"
    return (
        f"{connection.inbox_bytes} bytes in its inbox"
        if connection.inbox_bytes > _MAX_INBOX_BYTES
        else None
    )
