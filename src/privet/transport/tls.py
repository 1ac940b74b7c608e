"""Identities: private keys, self-signed certificates, and their fingerprints.

The fingerprint is that of the first certificate, and stays: it stands for the key. A certificate is
renewed by another one of the same key, which is shown together with the first. Whoever knows the
first by its fingerprint sees that the key is the same, and that the key has signed both.
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
# What reading a file and then its content raises; a TypeError is for a key with a password.
_UNREADABLE = (OSError, ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion)


def count_host_days_left(key_file: str | Path, certificate_file: str | Path) -> int:
    """Return for how many days a host's certificate is valid; those of its issuers follow it."""
    own, key = read_certificates(certificate_file)[0], read_key(key_file)
    if own.public_key() != key.public_key():
        raise UnavailableError(f"{key_file}: not the key of the certificate {certificate_file}")
    return count_certificate_days_left(own)


def count_certificate_days_left(certificate: x509.Certificate) -> int:
    """Return for how many days from now a certificate is valid; less than 0 if it is not."""
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.timezone.utc)
    return left.days


def describe_renewal(key_file: Path, certificate_file: Path) -> str:
    """Return how a certificate is renewed: keys are found by a name and a folder."""
    folder, name = certificate_file.parent, certificate_file.stem
    usual = folder / f"{name}.key", folder / f"{name}.crt"
    if (key_file, certificate_file) != usual:
        return f"as {name}.key and {name}.crt in one folder, renew it with `privet keys --renew`"
    there = "" if folder.resolve() == Path.cwd() else f" --folder {shlex.quote(str(folder))}"
    return f"renew it with `privet keys {name} --renew{there}`"


def read_certificates(path: str | Path) -> list[x509.Certificate]:
    """Read the certificates of a file; raise UnavailableError unless it has some."""
    try:
        found = x509.load_pem_x509_certificates(_beginning(path))
        for certificate in found:
            certificate.public_key()
    except _UNREADABLE as error:
        raise _unreadable(path, "certificate", error) from None
    return found


def read_key(path: str | Path) -> PrivateKeyTypes:
    """Read a private key; raise UnavailableError if there is none."""
    try:
        return serialization.load_pem_private_key(_beginning(path), password=None)
    except _UNREADABLE as error:
        raise _unreadable(path, "key", error) from None


def _unreadable(path: str | Path, what: str, error: Exception) -> UnavailableError:
    why = "it holds none as PEM text that can be used; is it another file?"
    if isinstance(error, OSError):
        why = str(error.strerror)
    elif isinstance(error, TypeError):
        why = "it is encrypted: store it without a password"
    return UnavailableError(f"{path}: no {what}: {why}")


def _beginning(path: str | Path) -> bytes:
    """Return the content of a file, which is no key or certificate if it is long."""
    with Path(path).open("rb") as file:
        return file.read(_MAX_FILE_BYTES)


SIGNATURE_BYTES = 64
# What a certificate of a stranger raises that is none, or is not what it says.
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
    """The first certificate, in DER form: the one that others know us by."""
    renewed: bytes = b""
    """The one that has taken its place, if one has."""

    @property
    def fingerprint(self) -> str:
        """What the others pin: the SHA-256 of the first certificate."""
        return compute_fingerprint(self.certificate)

    @property
    def current(self) -> bytes:
        """The certificate that is used now."""
        return self.renewed or self.certificate

    @property
    def certificate_chain(self) -> bytes:
        """What peers are sent: the certificate that is used, then the first, if that is another."""
        return self.renewed + self.certificate

    def count_days_left(self) -> int:
        """Return for how many days from now the certificate is valid."""
        return count_certificate_days_left(x509.load_der_x509_certificate(self.current))

    @property
    def renewal_advice(self) -> str:
        """What to do before it expires."""
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
        """Return a connection over TLS 1.3 to whoever has the key of that one certificate."""
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
    """Return the fingerprint that somebody is known by, if what it shows is true."""
    return compute_fingerprint(_split(chain)[-1])


def authenticate_chain(chain: bytes, fingerprint: str) -> bytes | None:
    """Return the certificate that is used by the owner of a fingerprint; None if it is not its own.

    That is the one with the fingerprint, or another one of the same key, signed by that key.
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
    """Return certificates that follow each other, by the length that each begins with."""
    found = []
    while chain[:2] in (b"\x30\x81", b"\x30\x82"):  # a sequence, its length in one byte or two
        start = chain[1] - 0x80 + 2
        size = start + int.from_bytes(chain[2:start], "big")
        found.append(chain[:size])
        chain = chain[size:]
    return [*found, chain] if chain or not found else found


def is_signature_valid(certificate: bytes, signature: bytes, content: bytes) -> bool:
    """Tell whether the owner of a certificate, in DER form, has signed something."""
    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
        if not isinstance(key, ed25519.Ed25519PublicKey):
            return False
        key.verify(signature, content)
    except _INVALID_CERTIFICATE_ERRORS:
        return False
    return True


def describe_tls_error(error: OSError) -> str | None:
    """Say what the peer did that TLS with it failed; None if it is no doing of its."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, (ConnectionError, ssl.SSLEOFError)) or error.errno == errno.ENOTCONN:
        return (
            "hung up during the TLS handshake: "
            "perhaps our certificate is not the one it expects, or has expired"
        )
    return f"TLS failed: {error.reason or error}" if isinstance(error, ssl.SSLError) else None


def create_identity(name: str, folder: str | Path, *, valid_days: int = 3650) -> Identity:
    """Make a key and a certificate, `NAME.key` and `NAME.crt`, that only their owner can read.

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
        key_file.unlink()  # of no use without its certificate, and in the way of the next attempt
        raise
    content = certificate.public_bytes(serialization.Encoding.DER)
    return Identity(key_file, certificate_file, content)


def renew_identity(
    key_file: str | Path, certificate_file: str | Path, *, valid_days: int = 3650
) -> Identity:
    """Put another certificate of the same key in a certificate's place; the fingerprint stays."""
    key, certificates = _read_key_and_certificates(key_file, certificate_file)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise UnavailableError(f"{key_file}: only an Ed25519 key's certificate is renewed")
    first = certificates[-1]
    renewed = _certify(key, first.subject, valid_days)
    pem, beside = serialization.Encoding.PEM, Path(f"{certificate_file}.new")
    beside.unlink(missing_ok=True)  # of an attempt that was cut short
    _write_private(beside, renewed.public_bytes(pem) + first.public_bytes(pem))
    os.replace(beside, certificate_file)  # whole at every moment
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
    """Read a key and its certificates: the one that is used, then the first if that is another."""
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
