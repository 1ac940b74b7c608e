"""Connecting the members of a session with each other, in whatever order they start.

Of two members the one that stands first in the list listens and the other connects, again and again
until it succeeds or time is up. On every connection both first say hello in the clear:

    "PVHELLO1", session (32 bytes), then name and certificate, each after its length (2 bytes)

Certificates are public, and pinned: a member goes on only if the other's has the fingerprint that
was agreed. Then TLS 1.3, where each side trusts that one certificate and the other must prove that
it has its key, and at last, inside TLS, a digest of both hellos, so that nobody can have changed
them. Without identities, which is for tests and experiments, there is no TLS and no proof.

Until all are there, whoever was found may die and come again: its newest connection counts. Whoever
calls us and is refused never ends our waiting, since anybody may call. But where we call, and are
answered by somebody with whom we cannot agree, waiting is soon of no use.
"""

from __future__ import annotations

import hashlib
import math
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from privet.errors import ParameterError, PeerLostError, UnavailableError
from privet.transport.identity import Identity, fingerprint_of, tls_problem
from privet.transport.link import has_hung_up

_MAGIC = b"PVHELLO1"
_HELLO_SECONDS = 5.0
_RETRY_SECONDS = 0.1
# After a refusal there is something to be mended first, so we call less often, and not for long.
_REFUSED_RETRY_SECONDS = 1.0
_REFUSED_SECONDS = 5.0
SESSION_BYTES = 32


@dataclass(frozen=True)
class Member:
    """Where a member of the session is reached, and who it must prove to be."""

    name: str
    host: str
    port: int
    fingerprint: str | None = None


class _RefusedError(Exception):
    """A connection that we do not go on with, and why; and whose it says it is, if it does."""

    def __init__(self, reason: str, peer: str | None = None) -> None:
        super().__init__(reason)
        self.peer = peer


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
        self.name = name
        self.members = {member.name: member for member in members}
        order = [member.name for member in members]
        wanted = [m for m in order if m != name] if peers is None else list(peers)
        self.listener = listener
        self.session = session
        self.identity = identity
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
            thread.join(_HELLO_SECONDS + 1)
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
                    connection = socket.create_connection(address, timeout=_HELLO_SECONDS)
                    self._greet(connection, calling=peer)
                refused_since = math.inf
            except OSError as error:
                self.trouble[peer] = str(error) or type(error).__name__
                refused_since = math.inf
            except _RefusedError as error:
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
        connection.settimeout(_HELLO_SECONDS)
        try:
            self._greet(connection, calling=None)
        except (OSError, _RefusedError) as error:
            reason = str(error) or type(error).__name__
            peer = error.peer if isinstance(error, _RefusedError) else None
            if peer is None:
                self.strangers.append(f"a caller that gave no name ({reason})")
            elif peer in self.callers:
                self.trouble[peer] = reason
            else:
                self.strangers.append(f"{peer!r} ({reason})")

    def _greet(self, connection: socket.socket, calling: str | None) -> None:
        """Exchange hellos, then TLS. On success the connection is found, else it is closed."""
        until = time.monotonic() + _HELLO_SECONDS
        try:
            peer, certificate, hellos = self._exchange_hellos(connection, calling, until)
            # The hellos went in the clear: both make sure that what arrived is what was sent.
            digest = hashlib.sha256(hellos).digest()
            try:
                if self.identity is not None:
                    server = calling is None
                    connection = self.identity.secure(connection, certificate, server=server)
                connection.sendall(digest)
                answer = _read(connection, len(digest), until)
            except OSError as error:
                if self.identity is None or (reason := tls_problem(error)) is None:
                    raise
                raise _RefusedError(reason, peer) from None
            if answer != digest:
                raise _RefusedError("its greeting was changed on the way", peer)
            with self.changed:
                if self.over.is_set():
                    raise _RefusedError("it came too late", peer)
                if peer in self.found:
                    self.found[peer].close()
                self.found[peer] = connection
                self.changed.notify_all()
        except BaseException:
            connection.close()
            raise

    def _exchange_hellos(
        self, connection: socket.socket, calling: str | None, until: float
    ) -> tuple[str, bytes, bytes]:
        """Return the name and certificate of whoever is there, if it is who should be.

        Also both hellos, the caller's first, as we sent one and received the other.
        """
        certificate = self.identity.certificate if self.identity else b""
        ours = _MAGIC + self.session + _counted(self.name.encode()) + _counted(certificate)
        connection.sendall(ours)
        if any(_read(connection, 1, until)[0] != byte for byte in _MAGIC):
            raise _RefusedError("does not speak this protocol")
        session = _read(connection, SESSION_BYTES, until)
        name = _read_counted(connection, until)
        theirs = _read_counted(connection, until)
        peer = name.decode(errors="replace")
        hello = _MAGIC + session + _counted(name) + _counted(theirs)
        if peer not in ({calling} if calling is not None else self.callers):
            raise _RefusedError("nobody expects it here", peer)
        if session != self.session:
            raise _RefusedError(
                "it runs another job or version, or has its correlations another way", peer
            )
        found, agreed = fingerprint_of(theirs), self.members[peer].fingerprint or "none"
        if self.identity is not None and found != agreed:
            raise _RefusedError(
                f"its certificate has the fingerprint {found[:16]}…, agreed is {agreed[:16]}…", peer
            )
        return peer, theirs, ours + hello if calling is not None else hello + ours


def _counted(content: bytes) -> bytes:
    return struct.pack("<H", len(content)) + content


def _read_counted(connection: socket.socket, until: float) -> bytes:
    return _read(connection, struct.unpack("<H", _read(connection, 2, until))[0], until)


def _read(connection: socket.socket, count: int, until: float) -> bytes:
    """Return so many bytes, or give up at a time: a trickle must not keep us."""
    content = b""
    while len(content) < count:
        connection.settimeout(max(0.001, until - time.monotonic()))
        chunk = connection.recv(count - len(content))
        if not chunk:
            raise ConnectionError("hung up in the middle of a greeting")
        content += chunk
    return content
