from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from privet.errors import ParameterError, UnavailableError
from privet.schema import check_name
from privet.transport.tls import (
    SIGNATURE_BYTES,
    authenticate_chain,
    compute_chain_fingerprint,
    create_identity,
    is_signature_valid,
    load_identity,
    renew_identity,
)


def test_keys_are_private(tmp_path: Path) -> None:
    made = create_identity("ann", tmp_path)
    assert made.key_file.stat().st_mode & 0o777 == 0o600
    assert made.certificate_file.stat().st_mode & 0o777 == 0o600
    assert load_identity(made.key_file, made.certificate_file) == made
    assert len(made.fingerprint) == 64


def test_signatures(tmp_path: Path) -> None:
    ann, bob = create_identity("ann", tmp_path), create_identity("bob", tmp_path)
    signature = ann.sign(b"words")
    assert len(signature) == SIGNATURE_BYTES
    assert is_signature_valid(ann.certificate, signature, b"words")
    assert not is_signature_valid(ann.certificate, signature, b"other words")
    assert not is_signature_valid(ann.certificate, signature[:-1], b"words")
    assert not is_signature_valid(bob.certificate, signature, b"words")
    assert not is_signature_valid(b"no certificate", signature, b"words")
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ann.key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    with pytest.raises(UnavailableError, match=r"ann\.key: signing takes an Ed25519 key"):
        ann.sign(b"words")


@pytest.mark.parametrize("taken", ["ann.key", "ann.crt"])
def test_existing_files_are_not_overwritten(taken: str, tmp_path: Path) -> None:
    (tmp_path / taken).write_text("precious")
    with pytest.raises(UnavailableError, match=rf"{taken}: exists already"):
        create_identity("ann", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [taken]
    assert (tmp_path / taken).read_text() == "precious"


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"ann\.key: cannot be written: No such file"):
        create_identity("ann", tmp_path / "none")


def test_a_full_disk_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def write(self, _: bytes) -> None:
            raise OSError(28, "No space left on device")

    def fdopen(descriptor: int, _: str) -> Full:
        os.close(descriptor)
        return Full()

    monkeypatch.setattr(os, "fdopen", fdopen)
    with pytest.raises(UnavailableError, match=r"ann\.key: cannot be written: No space left"):
        create_identity("ann", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "ann", "9", "Ann-2.north_side", "a" * 64])
def test_valid_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name", ["", "a" * 65, "../ann", "-ann", ".ann", "_ann", "ann ", "ann\n", "änn", "a/b", "a:b"]
)
def test_invalid_names_are_rejected(name: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"^name: "):
        check_name(name)
    with pytest.raises(ParameterError, match=r"^name: "):
        create_identity(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_missing_and_invalid_files_are_reported(tmp_path: Path) -> None:
    made = create_identity("ann", tmp_path)
    key, certificate = made.key_file, made.certificate_file
    with pytest.raises(UnavailableError, match=r"none\.crt: no certificate: .*No such file"):
        load_identity(key, tmp_path / "none.crt")
    with pytest.raises(UnavailableError, match=r"ann\.key: no certificate"):
        load_identity(key, key)
    with pytest.raises(UnavailableError, match=r"none\.key: no key: .*No such file"):
        load_identity(tmp_path / "none.key", certificate)
    with pytest.raises(UnavailableError, match=r"ann\.crt: no key"):
        load_identity(certificate, certificate)
    with pytest.raises(UnavailableError, match=r": no key: .*Is a directory"):
        load_identity(tmp_path, certificate)
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    with pytest.raises(UnavailableError, match="binary: no certificate"):
        load_identity(key, tmp_path / "binary")


def test_an_encrypted_key_is_refused(tmp_path: Path) -> None:
    made = create_identity("ann", tmp_path)
    key = serialization.load_pem_private_key(made.key_file.read_bytes(), None)
    made.key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(UnavailableError, match=r"ann\.key: no key: .*encrypted"):
        load_identity(made.key_file, made.certificate_file)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    ann, bob = (create_identity(name, tmp_path) for name in ("ann", "bob"))
    with pytest.raises(UnavailableError, match=r"ann\.key: not the key of .*bob\.crt"):
        load_identity(ann.key_file, bob.certificate_file)


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    old = create_identity("ann", tmp_path, valid_days=-1)
    yesterday = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    complaint = rf"ann\.crt: has expired on {yesterday:%Y-%m-%d}: renew it with `privet keys"
    with pytest.raises(UnavailableError, match=complaint):
        load_identity(old.key_file, old.certificate_file)


def test_a_certificate_from_the_future_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create_identity("ann", tmp_path)

    class Past(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Past:
            return cls(2001, 2, 3, tzinfo=tz)

    monkeypatch.setattr(datetime, "datetime", Past)
    with pytest.raises(UnavailableError, match=r"ann\.crt: not valid before 20.*`privet keys`"):
        load_identity(made.key_file, made.certificate_file)


def test_a_renewed_certificate_keeps_the_fingerprint(tmp_path: Path) -> None:
    """After repeated renewals, and after the first certificate has expired."""
    first = create_identity("ann", tmp_path, valid_days=-1)
    files = first.key_file, first.certificate_file
    seen = [first.certificate]
    for days in (10, 20):
        renewed = renew_identity(*files, valid_days=days)
        assert renewed == load_identity(*files)
        assert (
            renewed.fingerprint
            == first.fingerprint
            == compute_chain_fingerprint(renewed.certificate_chain)
        )
        assert renewed.count_days_left() == days - 1
        assert authenticate_chain(renewed.certificate_chain, first.fingerprint) == renewed.current
        assert renewed.certificate == first.certificate
        assert is_signature_valid(first.certificate, renewed.sign(b"words"), b"words")
        assert renewed.certificate_file.stat().st_mode & 0o777 == 0o600
        seen.append(renewed.current)
    assert len(set(seen)) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ann.crt", "ann.key"]


def test_only_the_same_key_can_renew(tmp_path: Path) -> None:
    ann = create_identity("ann", tmp_path)
    for folder in ("thief", "namesake"):
        (tmp_path / folder).mkdir()
    thief = create_identity("ann", tmp_path / "thief")
    assert authenticate_chain(ann.certificate_chain, ann.fingerprint) == ann.certificate
    assert authenticate_chain(thief.certificate + ann.certificate, ann.fingerprint) is None
    assert authenticate_chain(ann.certificate + thief.certificate, ann.fingerprint) is None
    assert authenticate_chain(thief.certificate, ann.fingerprint) is None
    # A certificate of the key with another name, and a modified certificate.
    other = create_identity("bob", tmp_path / "namesake")
    assert authenticate_chain(other.certificate + ann.certificate, ann.fingerprint) is None
    renewed = renew_identity(ann.key_file, ann.certificate_file)
    for position in range(0, len(renewed.current), 7):
        changed = bytearray(renewed.certificate_chain)
        changed[position] ^= 1
        assert authenticate_chain(bytes(changed), ann.fingerprint) is None
    # An invalid version, which raises a separate error.
    later = renewed.current.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x12", 1)
    assert later != renewed.current
    assert authenticate_chain(later + ann.certificate, ann.fingerprint) is None
    assert not is_signature_valid(later, bytes(SIGNATURE_BYTES), b"words")
    assert authenticate_chain(b"", ann.fingerprint) is None
    for garbage in (b"\x30", b"\x30\x82", b"\x30\x82\xff\xff", b"\x30\x81" * 9, bytes(300)):
        assert authenticate_chain(garbage, ann.fingerprint) is None
        assert authenticate_chain(garbage + ann.certificate, ann.fingerprint) is None
