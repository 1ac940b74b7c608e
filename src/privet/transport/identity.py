"""Identities: a private key and a self-signed certificate, known to others by its fingerprint."""

from __future__ import annotations

import datetime
import hashlib
import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID

from privet.errors import UnavailableError

_VALID = datetime.timedelta(days=3650)


@dataclass(frozen=True)
class Identity:
    """The files of a key and its certificate, and the certificate's content."""

    key_file: Path
    certificate_file: Path
    certificate: bytes
    """The certificate in DER form, as it is sent to peers."""

    @property
    def fingerprint(self) -> str:
        """What the others pin: the SHA-256 of the certificate."""
        return fingerprint_of(self.certificate)


def fingerprint_of(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate in DER form, in hexadecimal."""
    return hashlib.sha256(certificate).hexdigest()


def create_identity(name: str, folder: str | Path) -> Identity:
    """Make a key and a certificate, `NAME.key` and `NAME.crt`, that only their owner can read."""
    key = ed25519.Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # for clocks that differ
        .not_valid_after(now + _VALID)
        .sign(key, algorithm=None)
    )
    key_file, certificate_file = Path(folder) / f"{name}.key", Path(folder) / f"{name}.crt"
    _write_private(
        key_file,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
    _write_private(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
    return load_identity(key_file, certificate_file)


def load_identity(key_file: str | Path, certificate_file: str | Path) -> Identity:
    """Read an identity; raise UnavailableError if its certificate is missing or is none."""
    try:
        pem = Path(certificate_file).read_text()
        certificate = ssl.PEM_cert_to_DER_cert(pem)
    except (OSError, ValueError) as error:
        raise UnavailableError(f"{certificate_file}: no certificate: {error}") from None
    return Identity(Path(key_file), Path(certificate_file), certificate)


def _write_private(path: Path, content: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UnavailableError(f"{path}: cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
