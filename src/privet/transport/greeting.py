"""The first words on a connection, after which both sides know who is there.

Both first say hello in the clear:

    "PVHELLO1", session (32 bytes), then name and certificate, each after its length (2 bytes)

Certificates are public, and pinned: a member goes on only if the other's has the fingerprint that
was agreed. Then TLS 1.3, where each side trusts that one certificate and the other must prove that
it has its key, and at last, inside TLS, a digest of both hellos, so that nobody can have changed
them. Without identities, which is for tests and experiments, there is no TLS and no proof.
"""

from __future__ import annotations

import hashlib
import socket
import struct
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from privet.transport.identity import Identity, fingerprint_of, tls_problem

HELLO_SECONDS = 5.0
"""How long a greeting may take."""
SESSION_BYTES = 32
_MAGIC = b"PVHELLO1"


class RefusedError(Exception):
    """A connection that we do not go on with, and why; and whose it says it is, if it does."""

    def __init__(self, reason: str, peer: str | None = None) -> None:
        super().__init__(reason)
        self.peer = peer


@dataclass(frozen=True)
class Greeter:
    """What a member says on every connection, and what it wants to hear."""

    name: str
    fingerprints: Mapping[str, str | None]
    """Of all members."""
    session: bytes
    identity: Identity | None

    def greet(
        self, connection: socket.socket, expected: Collection[str], *, calling: bool
    ) -> tuple[str, socket.socket]:
        """Return which of those who are expected is there, and the connection to go on with.

        Raises RefusedError, or the OSError of the connection, which is closed then.
        """
        until = time.monotonic() + HELLO_SECONDS
        try:
            peer, certificate, hellos = self._exchange_hellos(connection, expected, calling, until)
            # The hellos went in the clear: both make sure that what arrived is what was sent.
            digest = hashlib.sha256(hellos).digest()
            try:
                if self.identity is not None:
                    connection = self.identity.secure(connection, certificate, server=not calling)
                connection.sendall(digest)
                answer = _read(connection, len(digest), until)
            except OSError as error:
                if self.identity is None or (reason := tls_problem(error)) is None:
                    raise
                raise RefusedError(reason, peer) from None
            if answer != digest:
                raise RefusedError("its greeting was changed on the way", peer)
        except BaseException:
            connection.close()
            raise
        return peer, connection

    def _exchange_hellos(
        self, connection: socket.socket, expected: Collection[str], calling: bool, until: float
    ) -> tuple[str, bytes, bytes]:
        """Return the name and certificate of whoever is there, if it is who should be.

        Also both hellos, the caller's first, as we sent one and received the other.
        """
        certificate = self.identity.certificate if self.identity else b""
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
        if session != self.session:
            raise RefusedError(
                "it runs another job or version, or has its correlations another way", peer
            )
        found, agreed = fingerprint_of(theirs), self.fingerprints[peer] or "none"
        if self.identity is not None and found != agreed:
            raise RefusedError(
                f"its certificate has the fingerprint {found[:16]}…, agreed is {agreed[:16]}…", peer
            )
        return peer, theirs, ours + hello if calling else hello + ours


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
