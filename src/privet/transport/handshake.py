"""The first words on a connection, after which both sides know who is there, and whether it stays.

Both first say hello in the clear:

    "PVHELLO2", session (32 bytes), then name and certificate, each after its length (2 bytes)

Certificates are public, and pinned: a member goes on only if the other's has the fingerprint that
was agreed, or is a later one of the same key (`transport.tls`). Then TLS 1.3, where each side
trusts that one certificate and the other must prove that it has its key, and at last, inside TLS:

    a digest of both hellos (32 bytes), so that nobody can have changed them
    an exit code (1 byte): 0 from one who goes on, else of a failure that ends the session
    whose failure it is (4 bytes): the hash of a member's name, not only the sender's own

A failure is an exit code and no words: those of an error quote cells, paths and ids.

Without identities, which is for tests and experiments, there is no TLS and no proof.
"""

from __future__ import annotations

import hashlib
import socket
import struct
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from privet.errors import (
    INTERRUPTED,
    CorrelationError,
    DataError,
    DisagreementError,
    ModelError,
    ParameterError,
    PeerError,
    PeerFailedError,
    PrivetError,
    UnavailableError,
)
from privet.transport.frames import name_tag
from privet.transport.tls import Identity, known_by, tls_problem, vouched_for

HELLO_SECONDS = 5.0
"""How long a greeting may take."""
SESSION_BYTES = 32
_MAGIC = b"PVHELLO2"
_NOTE = struct.Struct("<BI")
_GOES_ON = _NOTE.pack(0, 0)
_REASONS = {
    PrivetError.exit_code: "an error that nobody expected",
    ParameterError.exit_code: "a parameter of its cannot be used",
    DataError.exit_code: "its table cannot be read or used",
    ModelError.exit_code: "its model cannot be read or used",
    UnavailableError.exit_code: "it cannot have something that it needs: a file, a port, a disk",
    PeerError.exit_code: "no agreement with what answers at its address",
    CorrelationError.exit_code: "its correlations cannot be used",
    DisagreementError.exit_code: "it was not asked to do the same",
    INTERRUPTED: "it was interrupted",
}


@dataclass(frozen=True)
class Failure:
    """Who cannot take part, and in which of the kinds that exit codes tell apart."""

    who: str
    code: int

    @classmethod
    def of(cls, error: BaseException, name: str) -> Failure:
        """Return what is told of an error that keeps the member of that name from taking part."""
        if isinstance(error, PeerFailedError):
            return cls(error.peer or name, error.its_code)
        code = getattr(error, "exit_code", PrivetError.exit_code)
        if isinstance(error, KeyboardInterrupt):
            code = INTERRUPTED
        return cls(name, code if code in _REASONS else PrivetError.exit_code)

    def told_by(self, teller: str) -> str:
        """Say what became of it, and what to do next, to one who was told so."""
        source = "" if teller == self.who else f", says {teller}"
        return (
            f"cannot take part{source}: {_REASONS[self.code]} (exit code {self.code}); "
            "once that is mended there, start all again"
        )


class RefusedError(Exception):
    """A connection that we do not go on with, and why; and whose it says it is, if it does."""

    def __init__(self, reason: str, peer: str | None = None) -> None:
        super().__init__(reason)
        self.peer = peer


class UnprovenError(RefusedError):
    """Somebody who says that it is a member, with another certificate than was agreed, or none."""


@dataclass(frozen=True)
class Greeter:
    """What a member says on every connection, and what it wants to hear."""

    name: str
    fingerprints: Mapping[str, str | None]
    """Of all members."""
    session: bytes
    identity: Identity | None
    """None of whoever has lost its keys, too: it is not believed, and tells nobody anything."""
    failure: Failure | None = None
    """That we do not go on, and why."""

    def greet(
        self, connection: socket.socket, expected: Collection[str], *, calling: bool
    ) -> tuple[str, socket.socket, Failure | None]:
        """Return which of those who are expected is there, the connection, and what it says.

        Raises RefusedError, or the OSError of the connection, which is closed then.
        """
        until = time.monotonic() + HELLO_SECONDS
        try:
            peer, session, certificate, hellos = self.say_hello(
                connection, expected, until, calling=calling
            )
            # The hellos went in the clear: both make sure that what arrived is what was sent.
            digest = hashlib.sha256(hellos).digest()
            try:
                if self.identity is not None:
                    connection = self.identity.secure(connection, certificate, server=not calling)
                connection.sendall(digest + self._note())
                answer = _read(connection, len(digest) + _NOTE.size, until)
            except OSError as error:
                if self.identity is None or (reason := tls_problem(error)) is None:
                    raise
                raise RefusedError(reason, peer) from None
            if answer[: len(digest)] != digest:
                raise RefusedError("its greeting was changed on the way", peer)
            failure = self._read_note(peer, answer[len(digest) :])
            # A failure is told in whatever session: who has failed may not know yet in which it is.
            if failure is None and self.failure is None and session != self.session:
                raise RefusedError(
                    "it runs another job or version, or has its correlations another way", peer
                )
        except BaseException:
            connection.close()
            raise
        return peer, connection, failure

    def _note(self) -> bytes:
        if self.failure is None:
            return _GOES_ON
        return _NOTE.pack(self.failure.code, name_tag(self.failure.who))

    def _read_note(self, peer: str, content: bytes) -> Failure | None:
        code, tag = _NOTE.unpack(content)
        who = {name_tag(name): name for name in self.fingerprints}.get(tag)
        if content == _GOES_ON:
            return None
        if who is None or code not in _REASONS:
            raise RefusedError("it tells of a failure that cannot be", peer)
        return Failure(who, code)

    def say_hello(
        self, connection: socket.socket, expected: Collection[str], until: float, *, calling: bool
    ) -> tuple[str, bytes, bytes, bytes]:
        """Return the name, session and certificate of whoever is there, if it is who should be.

        Also both hellos, the caller's first, as we sent one and received the other.
        """
        certificate = self.identity.shown if self.identity else b""
        ours = _MAGIC + self.session + _counted(self.name.encode()) + _counted(certificate)
        connection.sendall(ours)
        if any(_read(connection, 1, until)[0] != byte for byte in _MAGIC):
            raise RefusedError("does not speak this protocol")
        session = _read(connection, SESSION_BYTES, until)
        name = _read_counted(connection, until)
        theirs = _read_counted(connection, until)
        peer = name.decode(errors="replace")
        hello = _MAGIC + session + _counted(name) + _counted(theirs)
        if peer not in expected:
            raise RefusedError("nobody expects it here", peer)
        agreed = self.fingerprints[peer]
        current = None if agreed is None else vouched_for(theirs, agreed)
        if self.identity is None and agreed is not None:
            raise RefusedError("we have no keys to go on with", peer)
        if self.identity is not None and not theirs:
            raise UnprovenError("it has no certificate: its keys cannot be used there", peer)
        if self.identity is not None and current is None:
            found, agreed = known_by(theirs), agreed or "none"
            raise UnprovenError(
                f"its certificate has the fingerprint {found[:16]}…, agreed is {agreed[:16]}…"
                + (", and it does not belong to the key of that" if found == agreed else ""),
                peer,
            )
        return peer, session, current or theirs, ours + hello if calling else hello + ours


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
