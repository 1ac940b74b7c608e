"""Live channels, in a state where something is due, and a peer that says something else."""

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
from tests.fuzz.lies import utterance

_US, _LIAR = "shop", "bank"
_NAMES = {hash_name(name): name for name in (_US, _LIAR, "dealer")}
_MOST_INBOX = 1 << 22
"""Bytes that may wait in an inbox: no case says more than that."""
_SILENCE = 0.05
"""Seconds without a sign of life after which the liar is given up, where it stays."""


@dataclass(frozen=True)
class Said:
    """What a liar says in a state, and whether it hangs up after it."""

    due: str
    content: str
    """In hexadecimal."""
    stays: bool = False
    secure: str = ""
    """Nothing: no TLS; "tls": inside it; "raw": past it, where its records should be."""

    def record(self) -> dict[str, Any]:
        """Return it as the corpus has it."""
        return asdict(self)


def _frame(array: np.ndarray[Any, Any], sequence: int, tag: int = 0, stream: int = 0) -> bytes:
    return pack_array_header(array, sequence, tag, stream) + array.tobytes()


def _arrays(*kinds: tuple[str, tuple[int, ...], int, int]) -> list[bytes]:
    return [_frame(np.zeros(s, np.dtype(d)), 0, tag, stream) for d, s, tag, stream in kinds]


_WORDS = b'{"a": 1}'
_TOLD = [
    _frame(np.array([len(_WORDS)], np.uint64), 0, messages.MESSAGE_TAG),
    _frame(np.frombuffer(_WORDS, np.uint8), 1, messages.MESSAGE_TAG),
]


def _receive(dtype: str, shape: tuple[int, ...], tag: int, stream: int) -> Any:
    def wait(channel: SocketChannel) -> None:
        expected = Expected(np.dtype(dtype), shape)
        found = channel.receive(_LIAR, expected, tag, stream)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)

    return wait


def _hear(channel: SocketChannel) -> None:
    assert len(messages.receive_message(channel, _LIAR)) <= messages.MAX_MESSAGE_BYTES


def _compute(channel: SocketChannel) -> None:
    """Wait for nothing, but look in, as the thread does that looks in for all."""
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
    "a message": (_TOLD, _hear),
    "a goodbye": ([pack_control_header(GOODBYE)], lambda channel: channel.close(0.2)),
    "nothing": (_arrays(_SMALL), _compute),
    "somebody else": (_TOLD, lambda _: None),
}
"""By what is due: what an honest peer says then, and how it is waited for."""
GATHERING = "somebody else"
"""While others are missing there is no channel yet."""


class _Plain(socket.socket):
    """An end of a pair of sockets, which have no options of TCP."""

    def setsockopt(self, *arguments: Any) -> None:
        if arguments[0] != socket.IPPROTO_TCP:
            super().setsockopt(*arguments)


class Harness:
    """Makes connections, and tries what is said on them."""

    def __init__(self, folder: Path) -> None:
        self._keys: dict[str, Identity] = {
            name: create_identity(name, folder) for name in (_US, _LIAR)
        }

    def draw(self, chance: random.Random) -> Said:
        """Return any; a few stay, and few are over TLS, as these take longer."""
        due = list(STATES)[int(len(STATES) * chance.random())]
        content = utterance(chance, STATES[due][0])
        secure = "" if chance.random() > 0.02 else chance.choice(["tls", "tls", "raw"])
        return Said(due, content.hex(), chance.random() < 0.003, secure)

    def suffer(self, said: Said) -> str | None:
        """Say it; return what should not have come of it, if anything did."""
        threads = threading.active_count()
        ours, theirs, raw = self._pair(said.secure)
        try:
            problem = self._listen(said, ours, theirs, raw)
        finally:
            theirs.close()
            ours.close()
            if raw is not None:
                os.close(raw)
        if threading.active_count() > threads:
            return f"{threading.active_count() - threads} threads are left"
        return problem

    def _listen(
        self, said: Said, ours: socket.socket, theirs: socket.socket, raw: int | None
    ) -> str | None:
        content, wait = bytes.fromhex(said.content), STATES[said.due][1]
        try:
            if said.secure == "raw" and raw is not None:
                os.write(raw, content)
            else:
                theirs.sendall(content)
            if not said.stays:
                theirs.shutdown(socket.SHUT_WR)
        except OSError as error:  # the socket is not at fault, and nothing was said
            return f"the liar cannot speak: {error!r}"
        if said.due == GATHERING:
            return _gather(ours)
        ours.setblocking(False)
        link = PeerConnection(_LIAR, ours, 1 << 20, _NAMES)
        deadline = _SILENCE if said.stays else 10.0
        channel = SocketChannel(_US, {_LIAR: link}, deadline, frame_limit=1 << 20)
        try:
            wait(channel)
        except PeerError as error:
            if error.peer != _LIAR:
                return f"does not name {_LIAR}: {error!r}"
        except Exception as error:  # noqa: BLE001
            return f"{error!r} is none of our errors"
        finally:
            channel.abort()
        if link.inbox_bytes > _MOST_INBOX:
            return f"{link.inbox_bytes} bytes in its inbox"
        return "its thread goes on" if channel._ticker.is_alive() else None

    def _pair(self, secure: str) -> tuple[socket.socket, socket.socket, int | None]:
        if not secure:
            one, other = socket.socketpair()
            other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            other.settimeout(5)
            return _Plain(fileno=one.detach()), other, None
        with socket.create_server(("127.0.0.1", 0)) as door:
            theirs = socket.create_connection(door.getsockname())
            ours, _ = door.accept()
        raw = os.dup(theirs.fileno())
        found: dict[str, socket.socket] = {}

        def greet() -> None:
            certificate = self._keys[_US].certificate
            found[_LIAR] = self._keys[_LIAR].wrap_tls(theirs, certificate, server=False)

        thread = threading.Thread(target=greet)
        thread.start()
        secured = self._keys[_US].wrap_tls(ours, self._keys[_LIAR].certificate, server=True)
        thread.join()
        return secured, found[_LIAR], raw


def _gather(ours: socket.socket) -> str | None:
    """Look after one that has come, while others are missing."""
    arrivals = AcceptedPeers([_US, _LIAR, "dealer"], peer_timeout=10.0)
    arrivals.add(_LIAR, ours)
    link = arrivals.connections[_LIAR]
    until = time.monotonic() + 5
    try:
        while not (gone := arrivals.poll()):
            if time.monotonic() > until or link.has_unread:
                break
            if link.said_goodbye or link.inbox_bytes:
                break  # first words, which are kept for the program
    except Exception as error:  # noqa: BLE001
        return f"{error!r} while others are missing"
    finally:
        arrivals.disconnect(*list(arrivals.connections))
    if gone and list(gone) != [_LIAR]:
        return f"not {_LIAR} is gone, but {gone}"
    return f"{link.inbox_bytes} bytes in its inbox" if link.inbox_bytes > _MOST_INBOX else None
