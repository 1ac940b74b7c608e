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
    EXIT_CODE_INTERRUPTED,
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
from privet.transport.frames import hash_name
from privet.transport.tls import (
    Identity,
    authenticate_chain,
    compute_chain_fingerprint,
    describe_tls_error,
)

HANDSHAKE_TIMEOUT_SECONDS = 5.0
"""How long a greeting may take."""
SESSION_ID_BYTES = 32
_MAGIC = b"PVHELLO2"
_NOTICE_STRUCT = struct.Struct("<BI")
_NO_FAILURE = _NOTICE_STRUCT.pack(0, 0)
_FAILURE_REASONS = {
    PrivetError.exit_code: "an error that nobody expected",
    ParameterError.exit_code: "a parameter of its cannot be used",
    DataError.exit_code: "its table cannot be read or used",
    ModelError.exit_code: "its model cannot be read or used",
    UnavailableError.exit_code: "it cannot have something that it needs: a file, a port, a disk",
    PeerError.exit_code: "no agreement with what answers at its address",
    CorrelationError.exit_code: "its correlations cannot be used",
    DisagreementError.exit_code: "it was not asked to do the same",
    EXIT_CODE_INTERRUPTED: "it was interrupted",
}


@dataclass(frozen=True)
class FailureNotice:
    """Who cannot take part, and in which of the kinds that exit codes tell apart."""

    member: str
    exit_code: int

    @classmethod
    def from_error(cls, error: BaseException, name: str) -> FailureNotice:
        """Return what is told of an error that keeps the member of that name from taking part."""
        if isinstance(error, PeerFailedError):
            return cls(error.peer or name, error.peer_exit_code)
        code = getattr(error, "exit_code", PrivetError.exit_code)
        if isinstance(error, KeyboardInterrupt):
            code = EXIT_CODE_INTERRUPTED
        return cls(name, code if code in _FAILURE_REASONS else PrivetError.exit_code)

    def describe(self, reporter: str) -> str:
        """Say what became of it, and what to do next, to one who was told so."""
        source = "" if reporter == self.member else f", says {reporter}"
        return (
            f"cannot take part{source}: {_FAILURE_REASONS[self.exit_code]} (exit code "
            f"{self.exit_code}); once that is mended there, start all again"
        )


class HandshakeRefusedError(Exception):
    """A connection that we do not go on with, and why; and whose it says it is, if it does."""

    def __init__(self, reason: str, peer: str | None = None) -> None:
        super().__init__(reason)
        self.peer = peer


class UnauthenticatedPeerError(HandshakeRefusedError):
    """Somebody who says that it is a member, with another certificate than was agreed, or none."""


@dataclass(frozen=True)
class Handshake:
    """What a member says on every connection, and what it wants to hear."""

    name: str
    fingerprints: Mapping[str, str | None]
    """Of all members."""
    session: bytes
    identity: Identity | None
    """None of whoever has lost its keys, too: it is not believed, and tells nobody anything."""
    failure: FailureNotice | None = None
    """That we do not go on, and why."""

    def run(
        self, sock: socket.socket, expected_names: Collection[str], *, is_client: bool
    ) -> tuple[str, socket.socket, FailureNotice | None]:
        """Return which of those who are expected is there, the connection, and what it says.

        Raises HandshakeRefusedError, or the OSError of the connection, which is closed then.
        """
        until = time.monotonic() + HANDSHAKE_TIMEOUT_SECONDS
        try:
            peer, session, certificate, hellos = self.exchange_hellos(
                sock, expected_names, until, is_client=is_client
            )
            # The hellos went in the clear: both make sure that what arrived is what was sent.
            digest = hashlib.sha256(hellos).digest()
            try:
                if self.identity is not None:
                    sock = self.identity.wrap_tls(sock, certificate, server=not is_client)
                sock.sendall(digest + self._pack_notice())
                answer = _read_exactly(sock, len(digest) + _NOTICE_STRUCT.size, until)
            except OSError as error:
                if self.identity is None or (reason := describe_tls_error(error)) is None:
                    raise
                raise HandshakeRefusedError(reason, peer) from None
            if answer[: len(digest)] != digest:
                raise HandshakeRefusedError("its greeting was changed on the way", peer)
            failure = self._unpack_notice(peer, answer[len(digest) :])
            # A failure is told in whatever session: who has failed may not know yet in which it is.
            if failure is None and self.failure is None and session != self.session:
                raise HandshakeRefusedError(
                    "it runs another job or version, or has its correlations another way", peer
                )
        except BaseException:
            sock.close()
            raise
        return peer, sock, failure

    def _pack_notice(self) -> bytes:
        if self.failure is None:
            return _NO_FAILURE
        return _NOTICE_STRUCT.pack(self.failure.exit_code, hash_name(self.failure.member))

    def _unpack_notice(self, peer: str, content: bytes) -> FailureNotice | None:
        code, tag = _NOTICE_STRUCT.unpack(content)
        who = {hash_name(name): name for name in self.fingerprints}.get(tag)
        if content == _NO_FAILURE:
            return None
        if who is None or code not in _FAILURE_REASONS:
            raise HandshakeRefusedError("it tells of a failure that cannot be", peer)
        return FailureNotice(who, code)

    def exchange_hellos(
        self,
        sock: socket.socket,
        expected_names: Collection[str],
        deadline: float,
        *,
        is_client: bool,
    ) -> tuple[str, bytes, bytes, bytes]:
        """Return the name, session and certificate of whoever is there, if it is who should be.

        Also both hellos, the caller's first, as we sent one and received the other.
        """
        certificate = self.identity.certificate_chain if self.identity else b""
        ours = (
            _MAGIC
            + self.session
            + _add_length_prefix(self.name.encode())
            + _add_length_prefix(certificate)
        )
        sock.sendall(ours)
        if any(_read_exactly(sock, 1, deadline)[0] != byte for byte in _MAGIC):
            raise HandshakeRefusedError("does not speak this protocol")
        session = _read_exactly(sock, SESSION_ID_BYTES, deadline)
        name = _read_length_prefixed(sock, deadline)
        theirs = _read_length_prefixed(sock, deadline)
        peer = name.decode(errors="replace")
        hello = _MAGIC + session + _add_length_prefix(name) + _add_length_prefix(theirs)
        if peer not in expected_names:
            raise HandshakeRefusedError("nobody expects it here", peer)
        agreed = self.fingerprints[peer]
        current = None if agreed is None else authenticate_chain(theirs, agreed)
        if self.identity is None and agreed is not None:
            raise HandshakeRefusedError("we have no keys to go on with", peer)
        if self.identity is not None and not theirs:
            raise UnauthenticatedPeerError(
                "it has no certificate: its keys cannot be used there", peer
            )
        if self.identity is not None and current is None:
            found, agreed = compute_chain_fingerprint(theirs), agreed or "none"
            raise UnauthenticatedPeerError(
                f"its certificate has the fingerprint {found[:16]}…, agreed is {agreed[:16]}…"
                + (", and it does not belong to the key of that" if found == agreed else ""),
                peer,
            )
        return peer, session, current or theirs, ours + hello if is_client else hello + ours


def _add_length_prefix(content: bytes) -> bytes:
    return struct.pack("<H", len(content)) + content


def _read_length_prefixed(sock: socket.socket, deadline: float) -> bytes:
    return _read_exactly(sock, struct.unpack("<H", _read_exactly(sock, 2, deadline))[0], deadline)


def _read_exactly(sock: socket.socket, count: int, deadline: float) -> bytes:
    """Return so many bytes, or give up at a time: a trickle must not keep us."""
    content = b""
    while len(content) < count:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = sock.recv(count - len(content))
        if not chunk:
            raise ConnectionError("hung up in the middle of a greeting")
        content += chunk
    return content
