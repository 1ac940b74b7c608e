"""Identities: private keys, self-signed certificates, and their fingerprints.

The fingerprint is that of the first certificate of a key, and never changes. A renewal is another
certificate of the same key, which the owner shows together with the first one. A peer that knows
the fingerprint checks that both certificates have the same key, and that the key has signed both.
"""

from __future__ import annotations

import datetime
import errno
import hashlib
import os
import shlex
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import NameOID

from privet.errors import UnavailableError
from privet.schema import check_name

_MAX_FILE_BYTES = 1 << 20
# Errors of reading and parsing a file; a TypeError means a key with a password.
_READ_ERRORS = (OSError, ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion)


def count_host_days_left(key_file: str | Path, certificate_file: str | Path) -> int:
    """Return the remaining days of a host's certificate, the first one in its file."""
    certificate, key = read_certificates(certificate_file)[0], read_key(key_file)
    if certificate.public_key() != key.public_key():
        raise UnavailableError(f"{key_file}: not the key of the certificate {certificate_file}")
    return count_certificate_days_left(certificate)


def count_certificate_days_left(certificate: x509.Certificate) -> int:
    """Return the remaining days of a certificate; negative if it has expired."""
    remaining = certificate.not_valid_after_utc - datetime.datetime.now(datetime.timezone.utc)
    return remaining.days


def describe_renewal(key_file: Path, certificate_file: Path) -> str:
    """Return advice on how to renew a certificate, as text for an error message."""
    folder, name = certificate_file.parent, certificate_file.stem
    default_files = folder / f"{name}.key", folder / f"{name}.crt"
    if (key_file, certificate_file) != default_files:
        return f"as {name}.key and {name}.crt in one folder, renew it with `privet keys --renew`"
    option = "" if folder.resolve() == Path.cwd() else f" --folder {shlex.quote(str(folder))}"
    return f"renew it with `privet keys {name} --renew{option}`"


def read_certificates(path: str | Path) -> list[x509.Certificate]:
    """Read the certificates in a file; raise UnavailableError if it contains none."""
    try:
        certificates = x509.load_pem_x509_certificates(_read_limited(path))
        for certificate in certificates:
            certificate.public_key()
    except _READ_ERRORS as error:
        raise _make_read_error(path, "certificate", error) from None
    return certificates


def read_key(path: str | Path) -> PrivateKeyTypes:
    """Read a private key; raise UnavailableError if the file contains none."""
    try:
        return serialization.load_pem_private_key(_read_limited(path), password=None)
    except _READ_ERRORS as error:
        raise _make_read_error(path, "key", error) from None


def _make_read_error(path: str | Path, kind: str, error: Exception) -> UnavailableError:
    reason = "it holds none as PEM text that can be used; is it another file?"
    if isinstance(error, OSError):
        reason = str(error.strerror)
    elif isinstance(error, TypeError):
        reason = "it is encrypted: store it without a password"
    return UnavailableError(f"{path}: no {kind}: {reason}")


def _read_limited(path: str | Path) -> bytes:
    """Return the first bytes of a file; a longer file is not a key or certificate."""
    with Path(path).open("rb") as file:
        return file.read(_MAX_FILE_BYTES)


SIGNATURE_BYTES = 64
# Errors of an invalid certificate or signature of an unauthenticated peer.
_INVALID_CERTIFICATE_ERRORS = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    InvalidSignature,
    x509.InvalidVersion,
)


@dataclass(frozen=True)
class Identity:
    """The files of a key and its certificate, and the certificate's content."""

    key_file: Path
    certificate_file: Path
    certificate: bytes
    """The first certificate, in DER form: its fingerprint is pinned."""
    renewed: bytes = b""
    """The renewed certificate, if any."""

    @property
    def fingerprint(self) -> str:
        """The pinned fingerprint: SHA-256 of the first certificate."""
        return compute_fingerprint(self.certificate)

    @property
    def current(self) -> bytes:
        """The current certificate."""
        return self.renewed or self.certificate

    @property
    def certificate_chain(self) -> bytes:
        """The certificates for peers: the current one, then the first one if it differs."""
        return self.renewed + self.certificate

    def count_days_left(self) -> int:
        """Return the remaining days of the current certificate."""
        return count_certificate_days_left(x509.load_der_x509_certificate(self.current))

    @property
    def renewal_advice(self) -> str:
        """Advice on how to renew the certificate."""
        return describe_renewal(self.key_file, self.certificate_file)

    def sign(self, content: bytes) -> bytes:
        """Return our signature, of SIGNATURE_BYTES bytes."""
        key = serialization.load_pem_private_key(self.key_file.read_bytes(), password=None)
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise UnavailableError(
                f"{self.key_file}: signing takes an Ed25519 key: make one with `privet keys`"
            )
        return key.sign(content)

    def wrap_tls(self, sock: socket.socket, certificate: bytes, *, server: bool) -> ssl.SSLSocket:
        """Return a TLS 1.3 connection to the owner of exactly this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=certificate)
        context.load_cert_chain(self.certificate_file, self.key_file)
        secured = context.wrap_socket(sock, server_side=server, do_handshake_on_connect=False)
        try:
            secured.do_handshake()
            if secured.getpeercert(binary_form=True) != certificate:
                raise ssl.SSLError("its certificate in TLS is another one")
        except BaseException:
            secured.close()
            raise
        return secured


def compute_fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate in DER form, in hexadecimal."""
    return hashlib.sha256(certificate).hexdigest()


def compute_chain_fingerprint(chain: bytes) -> str:
    """Return the fingerprint that a chain claims, without any check."""
    return compute_fingerprint(_split(chain)[-1])


def authenticate_chain(chain: bytes, fingerprint: str) -> bytes | None:
    """Return the current certificate of a chain; None if it does not belong to the fingerprint.

    A valid current certificate has the fingerprint, or is another one of the same key, signed by
    that key.
    """
    current, *others = _split(chain)
    if compute_fingerprint((others or [current])[-1]) != fingerprint or len(others) > 1:
        return None
    if not others:
        return current
    try:
        renewed, first = (x509.load_der_x509_certificate(each) for each in (current, *others))
        if renewed.public_key() != first.public_key() or renewed.subject != first.subject:
            return None
        renewed.verify_directly_issued_by(renewed)
    except _INVALID_CERTIFICATE_ERRORS:
        return None
    return current


def _split(chain: bytes) -> list[bytes]:
    """Split concatenated certificates, by the length at the start of each."""
    certificates = []
    while chain[:2] in (b"\x30\x81", b"\x30\x82"):  # a sequence, with a length of one byte or two
        start = chain[1] - 0x80 + 2
        size = start + int.from_bytes(chain[2:start], "big")
        certificates.append(chain[:size])
        chain = chain[size:]
    return [*certificates, chain] if chain or not certificates else certificates


def is_signature_valid(certificate: bytes, signature: bytes, content: bytes) -> bool:
    """Return whether the owner of a certificate, in DER form, has signed the content."""
    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
        if not isinstance(key, ed25519.Ed25519PublicKey):
            return False
        key.verify(signature, content)
    except _INVALID_CERTIFICATE_ERRORS:
        return False
    return True


def describe_tls_error(error: OSError) -> str | None:
    """Describe why the peer failed a TLS handshake; None if the peer did not cause the error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, (ConnectionError, ssl.SSLEOFError)) or error.errno == errno.ENOTCONN:
        return (
            "hung up during the TLS handshake: "
            "perhaps our certificate is not the one it expects, or has expired"
        )
    return f"TLS failed: {error.reason or error}" if isinstance(error, ssl.SSLError) else None


def create_identity(name: str, folder: str | Path, *, valid_days: int = 3650) -> Identity:
    """Create a key and a certificate, `NAME.key` and `NAME.crt`, readable only by their owner.

    Raises UnavailableError, and leaves nothing behind, if one of them exists or cannot be written.
    """
    check_name(name)
    key = ed25519.Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = _certify(key, subject, valid_days)
    key_file, certificate_file = Path(folder) / f"{name}.key", Path(folder) / f"{name}.crt"
    _write_private(
        key_file,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
    try:
        _write_private(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
    except BaseException:
        key_file.unlink()  # useless without its certificate, and it would block the next attempt
        raise
    content = certificate.public_bytes(serialization.Encoding.DER)
    return Identity(key_file, certificate_file, content)


def renew_identity(
    key_file: str | Path, certificate_file: str | Path, *, valid_days: int = 3650
) -> Identity:
    """Replace a certificate by a new one of the same key; the fingerprint stays the same."""
    key, certificates = _read_key_and_certificates(key_file, certificate_file)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise UnavailableError(f"{key_file}: only an Ed25519 key's certificate is renewed")
    first = certificates[-1]
    renewed = _certify(key, first.subject, valid_days)
    pem, new_file = serialization.Encoding.PEM, Path(f"{certificate_file}.new")
    new_file.unlink(missing_ok=True)  # from an interrupted attempt
    _write_private(new_file, renewed.public_bytes(pem) + first.public_bytes(pem))
    os.replace(new_file, certificate_file)  # atomic
    return load_identity(key_file, certificate_file)


def _certify(
    key: ed25519.Ed25519PrivateKey, subject: x509.Name, valid_days: int
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.timezone.utc)
    end = now + datetime.timedelta(days=valid_days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - datetime.timedelta(minutes=5))  # for clocks that differ
        .not_valid_after(end)
        .sign(key, algorithm=None)
    )


def load_identity(key_file: str | Path, certificate_file: str | Path) -> Identity:
    """Read an identity; raise UnavailableError unless it can be used now."""
    _, certificates = _read_key_and_certificates(key_file, certificate_file)
    now = datetime.datetime.now(datetime.timezone.utc)
    start, end = certificates[0].not_valid_before_utc, certificates[0].not_valid_after_utc
    if now < start:
        raise UnavailableError(
            f"{certificate_file}: not valid before {start:%Y-%m-%d %H:%M} UTC: "
            "set this machine's clock, or make new keys with `privet keys`"
        )
    if now > end:
        raise UnavailableError(
            f"{certificate_file}: has expired on {end:%Y-%m-%d}: "
            f"{describe_renewal(Path(key_file), Path(certificate_file))}, which keeps the "
            "fingerprint"
        )
    current, *first = (each.public_bytes(serialization.Encoding.DER) for each in certificates)
    files = Path(key_file), Path(certificate_file)
    return Identity(*files, first[-1], current) if first else Identity(*files, current)


def _read_key_and_certificates(
    key_file: str | Path, certificate_file: str | Path
) -> tuple[PrivateKeyTypes, list[x509.Certificate]]:
    """Read a key and its certificates: the current one, then the first one if it differs."""
    certificates, key = read_certificates(certificate_file), read_key(key_file)
    if any(certificate.public_key() != key.public_key() for certificate in certificates):
        raise UnavailableError(f"{key_file}: not the key of the certificate {certificate_file}")
    return key, certificates


def _write_private(path: Path, content: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UnavailableError(f"{path}: exists already, and is never overwritten") from None
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        path.unlink()
        raise UnavailableError(f"{path}: cannot be written: {error.strerror}") from None
