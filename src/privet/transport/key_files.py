"""Keys and certificates in files, and in plain words what is wrong with them."""

from __future__ import annotations

import datetime
import shlex
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from privet.errors import UnavailableError

_MOST_BYTES = 1 << 20
# What reading a file and then its content raises; a TypeError is for a key with a password.
_UNREADABLE = (OSError, ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion)


def host_days_left(key_file: str | Path, certificate_file: str | Path) -> int:
    """Return for how many days a host's certificate is valid; those of its issuers follow it."""
    own, key = read_certificates(certificate_file)[0], read_key(key_file)
    if own.public_key() != key.public_key():
        raise UnavailableError(f"{key_file}: not the key of the certificate {certificate_file}")
    return days_left_of(own)


def days_left_of(certificate: x509.Certificate) -> int:
    """Return for how many days from now a certificate is valid; less than 0 if it is not."""
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.timezone.utc)
    return left.days


def renewal(key_file: Path, certificate_file: Path) -> str:
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
        return file.read(_MOST_BYTES)
