"""A relay for each listen address, so that connections can be cut between running processes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from privet.config.job import Job
from privet.config.members import parse_address
from privet.experiments.local_federation import LocalFederation
from privet.transport.handshake import SESSION_ID_BYTES
from privet.transport.rendezvous import listen

_NAME_AT = len(b"PVHELLO2") + SESSION_ID_BYTES
"""Offset of the caller's name in a hello, which starts with its length in two bytes."""


@dataclass
class _Pair:
    """A connection through a relay."""

    called: str
    near: socket.socket
    far: socket.socket
    caller: str = ""
    carrying: int = 2
    """Number of open directions."""

    def cut(self) -> None:
        """Shut down both directions; the carrying threads detect it."""
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Relays:
    """Relays to all members of a job, which replace the addresses in the job."""

    def __init__(self, local: LocalFederation) -> None:
        self._pairs: list[_Pair] = []
        self._listeners: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.listening: dict[str, str] = {}
        """Listen address of each member."""
        text = local.job_path.read_text()
        job = Job.read(local.job_path)
        for name in local.member_names:
            address = job.get_entry(name).address
            listener = listen()
            self._listeners.append(listener)
            self.listening[name] = address
            text = text.replace(f'"{address}"', f'"127.0.0.1:{listener.getsockname()[1]}"')
            self._begin(self._answer, name, listener)
        local.job_path.write_text(text)
        for name in local.party_names:
            party = local.folder / name / "party.toml"
            lines = party.read_text().replace(
                "\n[data]", f'listen = "{self.listening[name]}"\n\n[data]', 1
            )
            party.write_text(lines)

    def cut(self, names: Collection[str]) -> None:
        """Cut all connections from and to some members."""
        for pair in list(self._pairs):
            if pair.called in names or pair.caller in names:
                pair.cut()

    def close(self) -> None:
        """Cut all connections, and stop the relays."""
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for pair in list(self._pairs):
            pair.cut()
        for thread in self._threads:
            thread.join(5)

    def _answer(self, called: str, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(parse_address(self.listening[called]), timeout=5)
            except OSError:  # it has not started yet
                near.close()
                continue
            far.settimeout(None)
            pair = _Pair(called, near, far)
            self._pairs.append(pair)
            for ends in ((near, far), (far, near)):
                self._begin(self._carry, pair, *ends)

    def _begin(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _carry(self, pair: _Pair, source: socket.socket, target: socket.socket) -> None:
        first = b""
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                if source is pair.near and not pair.caller and len(first) < 1000:
                    first += content
                    pair.caller = _name_in(first)
                target.sendall(content)
        # Shut down only this direction: a failure notice may still travel in the other one.
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
        with self._lock:
            pair.carrying -= 1
            if not pair.carrying:
                pair.near.close()
                pair.far.close()
                self._pairs.remove(pair)


def _name_in(hello: bytes) -> str:
    """Return the name in a hello, or an empty text while it is incomplete."""
    start = _NAME_AT + 2
    size = int.from_bytes(hello[_NAME_AT:start], "little")
    name = hello[start : start + size]
    return name.decode(errors="replace") if size and len(name) == size else ""
