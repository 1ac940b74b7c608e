"""Connecting the members of a session with each other, in whatever order they start.

Of two members the one that stands first in the list listens and the other connects, again and again
until it succeeds or time is up. On every connection both greet and prove who they are
(`transport.greeting`).

Until all are there, whoever was found may die and come again: its newest connection counts. Whoever
calls us and is refused never ends our waiting, since anybody may call. But where we call, and are
answered by somebody with whom we cannot agree, waiting is soon of no use.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from privet.errors import ParameterError, PeerLostError, UnavailableError
from privet.transport.greeting import HELLO_SECONDS, SESSION_BYTES, Greeter, RefusedError
from privet.transport.identity import Identity
from privet.transport.link import has_hung_up

_RETRY_SECONDS = 0.1
# After a refusal there is something to be mended first, so we call less often, and not for long.
_REFUSED_RETRY_SECONDS = 1.0
_REFUSED_SECONDS = 5.0


@dataclass(frozen=True)
class Member:
    """Where a member of the session is reached, and who it must prove to be."""

    name: str
    host: str
    port: int
    fingerprint: str | None = None


def listen(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """Return a listening socket."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=64)
    except OSError as error:
        raise UnavailableError(f"cannot listen on {host}:{port}: {error.strerror}") from None


def connect(
    name: str,
    members: Sequence[Member],
    listener: socket.socket,
    *,
    session: bytes = bytes(SESSION_BYTES),
    identity: Identity | None = None,
    peers: Sequence[str] | None = None,
    timeout: float = 60.0,
    on_wait: Callable[[str], None] | None = None,
) -> dict[str, socket.socket]:
    """Return connections to the named peers (by default to all other members).

    Raises PeerLostError that names everyone who could not be reached, where, and why. The listener
    stays open, and is the caller's to close: once all are connected nobody is answered there.
    """
    if identity is None and any(member.fingerprint is not None for member in members):
        raise ParameterError("identity: members with fingerprints are met over TLS, with one's own")
    return _Meeting(name, members, listener, session, identity, peers).hold(timeout, on_wait)


class _Meeting:
    def __init__(
        self,
        name: str,
        members: Sequence[Member],
        listener: socket.socket,
        session: bytes,
        identity: Identity | None,
        peers: Sequence[str] | None,
    ) -> None:
        assert len(session) == SESSION_BYTES
        self.members = {member.name: member for member in members}
        order = [member.name for member in members]
        wanted = [m for m in order if m != name] if peers is None else list(peers)
        self.listener = listener
        fingerprints = {member.name: member.fingerprint for member in members}
        self.greeter = Greeter(name, fingerprints, session, identity)
        self.callers = {peer for peer in wanted if order.index(peer) > order.index(name)}
        self.called = {peer for peer in wanted if order.index(peer) < order.index(name)}
        self.found: dict[str, socket.socket] = {}
        self.trouble: dict[str, str] = {}
        self.strangers: deque[str] = deque(maxlen=8)  # anybody may call: enough to find a cause
        self.hopeless = ""
        self.changed = threading.Condition()
        self.over = threading.Event()

    def hold(
        self, timeout: float, on_wait: Callable[[str], None] | None
    ) -> dict[str, socket.socket]:
        threads = [threading.Thread(target=self._call, args=(p,), daemon=True) for p in self.called]
        threads.append(threading.Thread(target=self._answer, daemon=True))
        for thread in threads:
            thread.start()
        start = told = time.monotonic()
        with self.changed:
            try:
                while missing := self._missing():
                    now = time.monotonic()
                    if now - start > timeout or self.hopeless:
                        break
                    if on_wait is not None and now - told >= 1.0:
                        told = now
                        on_wait(f"waiting for {self._explain(missing)} ({now - start:.0f} s)")
                    self.changed.wait(0.1)
            finally:
                self.over.set()
        for thread in threads:
            thread.join(HELLO_SECONDS + 1)
        if missing:
            for connection in self.found.values():
                connection.close()
            if self.hopeless:
                raise PeerLostError(
                    self.hopeless,
                    f"no agreement with what answers there: {self._explain([self.hopeless])}",
                )
            strangers = ", ".join(tuple(self.strangers))
            raise PeerLostError(
                missing[0],
                f"not reached within {timeout:g} s: {self._explain(missing)}"
                + (f"; refused: {strangers}" if strangers else ""),
            )
        return self.found

    def _missing(self) -> list[str]:
        """Return who has not come yet, or has gone again."""
        for peer, connection in list(self.found.items()):
            if has_hung_up(connection):
                connection.close()
                del self.found[peer]
                self.trouble[peer] = "was here, but hung up"
        return sorted((self.callers | self.called) - set(self.found))

    def _explain(self, missing: Sequence[str]) -> str:
        return ", ".join(
            f"{peer} ({self.trouble.get(peer, 'did not connect to us yet')})"
            if peer in self.callers
            else f"{peer} at {self.members[peer].host}:{self.members[peer].port}"
            f" ({self.trouble.get(peer, 'no answer yet')})"
            for peer in missing
        )

    def _call(self, peer: str) -> None:
        address = self.members[peer].host, self.members[peer].port
        refused_since = math.inf
        while not self.over.is_set():
            pause = _RETRY_SECONDS
            try:
                if peer not in self.found:
                    connection = socket.create_connection(address, timeout=HELLO_SECONDS)
                    self._greet(connection, {peer}, calling=True)
                refused_since = math.inf
            except OSError as error:
                self.trouble[peer] = str(error) or type(error).__name__
                refused_since = math.inf
            except RefusedError as error:
                self.trouble[peer] = str(error)
                pause = _REFUSED_RETRY_SECONDS
                refused_since = min(refused_since, time.monotonic())
                if time.monotonic() - refused_since >= _REFUSED_SECONDS:
                    self.hopeless = peer
            self.over.wait(pause)

    def _answer(self) -> None:
        self.listener.settimeout(_RETRY_SECONDS)
        while self.callers and not self.over.is_set():
            try:
                connection, _ = self.listener.accept()
            except TimeoutError:
                continue
            except OSError:  # a caller that is gone already, or too many at once
                self.over.wait(_RETRY_SECONDS)
                continue
            threading.Thread(target=self._answer_one, args=(connection,), daemon=True).start()

    def _answer_one(self, connection: socket.socket) -> None:
        connection.settimeout(HELLO_SECONDS)
        try:
            self._greet(connection, self.callers, calling=False)
        except (OSError, RefusedError) as error:
            reason = str(error) or type(error).__name__
            peer = error.peer if isinstance(error, RefusedError) else None
            if peer is None:
                self.strangers.append(f"a caller that gave no name ({reason})")
            elif peer in self.callers:
                self.trouble[peer] = reason
            else:
                self.strangers.append(f"{peer!r} ({reason})")

    def _greet(self, connection: socket.socket, expected: set[str], *, calling: bool) -> None:
        peer, connection = self.greeter.greet(connection, expected, calling=calling)
        with self.changed:
            if self.over.is_set():
                connection.close()
                raise RefusedError("it came too late", peer)
            if peer in self.found:
                self.found[peer].close()
            self.found[peer] = connection
            self.changed.notify_all()
