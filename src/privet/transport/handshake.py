"""The handshake on a connection: authenticates both sides, and exchanges failure notices.

Both sides first send a hello in plaintext:

    "PVHELLO2", session (32 bytes), then name and certificate, each after its length (2 bytes)

Certificates are public, and pinned: a member continues only if the peer's certificate has the
agreed fingerprint, or is a later certificate of the same key (`transport.tls`). TLS 1.3 follows:
each side trusts only that certificate, and the peer must prove that it has the key. Finally, inside
TLS, each side sends:

    a digest of both hellos (32 bytes), which shows any change to them
    an exit code (1 byte): 0 to continue, otherwise the failure that ends the session
    the hash of the failed member's name (4 bytes), which can be another member than the sender

A failure notice contains an exit code and no text, because error messages quote cells, paths and
ids.

Without identities (for tests and experiments), there is no TLS and no authentication.
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
"""Limit for the duration of a handshake."""
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
    """A member that cannot join, and the kind of its failure, as an exit code."""

    member: str
    exit_code: int

    @classmethod
    def from_error(cls, error: BaseException, name: str) -> FailureNotice:
        """Return the notice of an error that prevents the member `name` from joining."""
        if isinstance(error, PeerFailedError):
            return cls(error.peer or name, error.peer_exit_code)
        code = getattr(error, "exit_code", PrivetError.exit_code)
        if isinstance(error, KeyboardInterrupt):
            code = EXIT_CODE_INTERRUPTED
        return cls(name, code if code in _FAILURE_REASONS else PrivetError.exit_code)

    def describe(self, reporter: str) -> str:
        """Return the error text for a member that `reporter` has sent this notice to."""
        source = "" if reporter == self.member else f", says {reporter}"
        return (
            f"cannot take part{source}: {_FAILURE_REASONS[self.exit_code]} (exit code "
            f"{self.exit_code}); once that is mended there, start all again"
        )


class HandshakeRefusedError(Exception):
    """A refused connection: the reason, and the name that the peer claims, if any."""

    def __init__(self, reason: str, peer: str | None = None) -> None:
        super().__init__(reason)
        self.peer = peer


class UnauthenticatedPeerError(HandshakeRefusedError):
    """A peer that claims to be a member, without the agreed certificate."""


@dataclass(frozen=True)
class Handshake:
    """A member's part of the handshake, the same on every connection."""

    name: str
    fingerprints: Mapping[str, str | None]
    """The fingerprints of all members."""
    session: bytes
    identity: Identity | None
    """None without TLS, or for a member without its keys, which peers do not believe."""
    failure: FailureNotice | None = None
    """The failure that ends the session, if any."""

    def run(
        self, sock: socket.socket, expected_names: Collection[str], *, is_client: bool
    ) -> tuple[str, socket.socket, FailureNotice | None]:
        """Return the peer's name, the connection, and the peer's failure notice, if any.

        Raises HandshakeRefusedError, or the OSError of the connection, after closing it.
        """
        deadline = time.monotonic() + HANDSHAKE_TIMEOUT_SECONDS
        try:
            peer, session, certificate, hellos = self.exchange_hellos(
                sock, expected_names, deadline, is_client=is_client
            )
            # The hellos were sent in plaintext: both sides check that they arrived unchanged.
            digest = hashlib.sha256(hellos).digest()
            try:
                if self.identity is not None:
                    sock = self.identity.wrap_tls(sock, certificate, server=not is_client)
                sock.sendall(digest + self._pack_notice())
                answer = _read_exactly(sock, len(digest) + _NOTICE_STRUCT.size, deadline)
            except OSError as error:
                if self.identity is None or (reason := describe_tls_error(error)) is None:
                    raise
                raise HandshakeRefusedError(reason, peer) from None
            if answer[: len(digest)] != digest:
                raise HandshakeRefusedError("its greeting was changed on the way", peer)
            failure = self._unpack_notice(peer, answer[len(digest) :])
            # A failure notice is valid in any session: the failed member may not know its own yet.
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
        code, name_hash = _NOTICE_STRUCT.unpack(content)
        member = {hash_name(name): name for name in self.fingerprints}.get(name_hash)
        if content == _NO_FAILURE:
            return None
        if member is None or code not in _FAILURE_REASONS:
            raise HandshakeRefusedError("it tells of a failure that cannot be", peer)
        return FailureNotice(member, code)

    def exchange_hellos(
        self,
        sock: socket.socket,
        expected_names: Collection[str],
        deadline: float,
        *,
        is_client: bool,
    ) -> tuple[str, bytes, bytes, bytes]:
        """Return the name, session and certificate of the peer, if it claims an expected name.

        Also returns the concatenation of both hellos, the caller's first.
        """
        certificate = self.identity.certificate_chain if self.identity else b""
        local_hello = (
            _MAGIC
            + self.session
            + _add_length_prefix(self.name.encode())
            + _add_length_prefix(certificate)
        )
        sock.sendall(local_hello)
        if any(_read_exactly(sock, 1, deadline)[0] != byte for byte in _MAGIC):
            raise HandshakeRefusedError("does not speak this protocol")
        session = _read_exactly(sock, SESSION_ID_BYTES, deadline)
        name = _read_length_prefixed(sock, deadline)
        chain = _read_length_prefixed(sock, deadline)
        peer = name.decode(errors="replace")
        peer_hello = _MAGIC + session + _add_length_prefix(name) + _add_length_prefix(chain)
        if peer not in expected_names:
            raise HandshakeRefusedError("nobody expects it here", peer)
        agreed = self.fingerprints[peer]
        current = None if agreed is None else authenticate_chain(chain, agreed)
        if self.identity is None and agreed is not None:
            raise HandshakeRefusedError("we have no keys to go on with", peer)
        if self.identity is not None and not chain:
            raise UnauthenticatedPeerError(
                "it has no certificate: its keys cannot be used there", peer
            )
        if self.identity is not None and current is None:
            fingerprint, agreed = compute_chain_fingerprint(chain), agreed or "none"
            raise UnauthenticatedPeerError(
                f"its certificate has the fingerprint {fingerprint[:16]}…, agreed is {agreed[:16]}…"
                + (", and it does not belong to the key of that" if fingerprint == agreed else ""),
                peer,
            )
        return (
            peer,
            session,
            current or chain,
            local_hello + peer_hello if is_client else peer_hello + local_hello,
        )


def _add_length_prefix(content: bytes) -> bytes:
    return struct.pack("<H", len(content)) + content


def _read_length_prefixed(sock: socket.socket, deadline: float) -> bytes:
    return _read_exactly(sock, struct.unpack("<H", _read_exactly(sock, 2, deadline))[0], deadline)


def _read_exactly(sock: socket.socket, count: int, deadline: float) -> bytes:
    """Return `count` bytes, or give up at the deadline: a slow sender must not block us."""
    content = b""
    while len(content) < count:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = sock.recv(count - len(content))
        if not chunk:
            raise ConnectionError("hung up in the middle of a greeting")
        content += chunk
    return content
