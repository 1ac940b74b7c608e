"""A relay at everybody's door, so that connections can be cut while both ends are well."""

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
"""Where in a hello the caller's name begins, after its length in two bytes."""


@dataclass
class _Pair:
    """A connection through a relay."""

    called: str
    near: socket.socket
    far: socket.socket
    caller: str = ""
    carrying: int = 2
    """In how many directions."""

    def cut(self) -> None:
        """End it both ways, which whoever carries it finds out."""
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Relays:
    """Relays to all members of a job, whose addresses become theirs."""

    def __init__(self, local: LocalFederation) -> None:
        self._pairs: list[_Pair] = []
        self._doors: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.listening: dict[str, str] = {}
        """Where each member itself listens."""
        text = local.job_path.read_text()
        job = Job.read(local.job_path)
        for name in local.member_names:
            member = job.get_entry(name).address
            door = listen()
            self._doors.append(door)
            self.listening[name] = member
            text = text.replace(f'"{member}"', f'"127.0.0.1:{door.getsockname()[1]}"')
            self._begin(self._answer, name, door)
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
        """Cut everything, and relay nothing more."""
        for door in self._doors:
            with contextlib.suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)
            door.close()
        for pair in list(self._pairs):
            pair.cut()
        for thread in self._threads:
            thread.join(5)

    def _answer(self, called: str, door: socket.socket) -> None:
        while True:
            try:
                near, _ = door.accept()
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
        # Whoever ends one way is let the other way end by itself: last words may be on it.
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
        with self._lock:
            pair.carrying -= 1
            if not pair.carrying:
                pair.near.close()
                pair.far.close()
                self._pairs.remove(pair)


def _name_in(hello: bytes) -> str:
    """Return the name that a hello has, or nothing as long as it is not there."""
    start = _NAME_AT + 2
    size = int.from_bytes(hello[_NAME_AT:start], "little")
    name = hello[start : start + size]
    return name.decode(errors="replace") if size and len(name) == size else ""
