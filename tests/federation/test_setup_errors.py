"""Setup errors: the message and exit code for wrong keys, unknown peers and invalid files."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from privet.config.job import Job
from privet.config.members import parse_address
from privet.errors import PrivetError
from privet.experiments.local_federation import LocalFederation
from privet.transport import rendezvous
from privet.transport.tls import create_identity
from tests.federation.harness import change, model_of, prepare, run


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_REFUSED_SECONDS", 0.5)


def expect(error: BaseException, code: int, complaint: str) -> None:
    assert isinstance(error, PrivetError), repr(error)
    assert error.exit_code == code
    assert re.search(complaint, str(error)), str(error)


def new_keys(local: LocalFederation, name: str, valid_days: int = 100) -> tuple[str, str]:
    """Replace a member's keys; return the old and the new fingerprint."""
    folder = local.folder / name
    for suffix in ("key", "crt"):
        (folder / f"{name}.{suffix}").unlink()
    old = Job.read(local.job_path).get_entry(name).fingerprint
    return old, create_identity(name, folder, valid_days=valid_days).fingerprint


def test_local_keys_differ_from_the_job(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    old, new = new_keys(local, "bank")
    found = run(local, "train", absent=("shop", "dealer"))
    expect(found.errors["bank"], 3, f"fingerprint {new}, and the job expects {old} of bank")


def test_peer_certificate_differs_from_the_job(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    other = tmp_path / "other.toml"
    other.write_bytes(local.job_path.read_bytes())
    old, new = new_keys(local, "bank")
    change(other, (old, new))
    found = run(local, "train", jobs={"bank": other}, wait=3.0)
    expect(found.errors["shop"], 7, f"bank at .*fingerprint {new[:16]}.*, agreed is {old[:16]}")
    expect(found.errors["bank"], 7, r"shop \(hung up .*perhaps our certificate is not")


def test_an_expired_certificate(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    old, new = new_keys(local, "bank", valid_days=-1)
    change(local.job_path, (old, new))
    found = run(local, "train", absent=("shop", "dealer"))
    expect(found.errors["bank"], 6, r"bank\.crt: .*expired .*privet keys")


def test_a_missing_key(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    (tmp_path / "bank" / "bank.key").unlink()
    found = run(local, "train", absent=("shop", "dealer"))
    expect(found.errors["bank"], 6, r"bank\.key")


def serve_garbage(address: tuple[str, int], content: bytes) -> Callable[[], None]:
    """Send the same bytes to every connection to an address; return a function that stops it."""
    server = socket.create_server(address)
    server.settimeout(0.1)
    stopped = threading.Event()

    def listen() -> None:
        while not stopped.is_set():
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            with connection:
                connection.sendall(content)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()

    def stop() -> None:
        stopped.set()
        thread.join()
        server.close()

    return stop


@pytest.mark.parametrize(
    "content",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20, b"\x15\x03\x03\x00\x02\x02\x46" * 50],
    ids=["plaintext", "bytes"],
)
def test_something_else_on_a_peers_port(tmp_path: Path, content: bytes) -> None:
    local = prepare(tmp_path)
    address = parse_address(Job.read(local.job_path).get_entry("bank").address)
    stop = serve_garbage(address, content)
    found = run(local, "train", absent=("bank",), wait=10.0)
    stop()
    for name in ("shop", "dealer"):
        # The member that detects it first notifies the other one.
        expect(found.errors[name], 7, "bank( at .*does not speak this protocol|.*what answers at)")


def test_unauthenticated_connections_do_not_disturb(tmp_path: Path) -> None:
    """Garbage arrives on the local port before and while the peers connect."""
    local = prepare(tmp_path, tables=1)
    address = parse_address(Job.read(local.job_path).get_entry("bank").address)
    stopped = threading.Event()

    def send_garbage() -> None:
        for number in range(10_000):
            if stopped.is_set():
                return
            try:
                with socket.create_connection(address, timeout=1) as connection:
                    connection.sendall(b"GET / HTTP/1.1\r\n\r\n" if number % 2 else b"\xff" * 500)
            except OSError:
                stopped.wait(0.01)

    thread = threading.Thread(target=send_garbage, daemon=True)
    thread.start()
    run(local, "train").checked()
    stopped.set()
    thread.join()
    assert model_of(local).n_tables == 1


def test_absent_peers(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    found = run(local, "train", absent=("bank", "dealer"), wait=1.5)
    expect(found.errors["shop"], 7, r"not reached within 1.5 s: bank at .*:\d+ \(.*refused")
    waiting = [event.text for event in found.events["shop"] if event.kind == "waiting"]
    assert any("waiting for bank at" in text and "dealer" in text for text in waiting)


def test_port_in_use(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    address = parse_address(Job.read(local.job_path).get_entry("bank").address)
    with socket.create_server(address):
        found = run(local, "train", absent=("shop", "dealer"))
    expect(found.errors["bank"], 6, f"cannot listen on 127.0.0.1:{address[1]}")


@pytest.mark.parametrize(
    ("file", "old", "new", "code", "complaint"),
    [
        ("party.toml", 'id = "id"', 'id = "key"', 4, "there is no column 'key'"),
        ("party.toml", 'id = "id"', 'id = "id"\ncolumns = ["a", "z"]', 4, "no column 'z'"),
        (
            "party.toml",
            'id = "id"',
            'id = "id"\nlabel = "a"',
            3,
            r"party\.toml: data\.label: bank is a passive participant",
        ),
        (
            "party.toml",
            'id = "id"',
            'id = ["id", "a"]',
            3,
            r"party\.toml: data\.id: names id, a, and an id of the job has 1 parts",
        ),
        (
            "party.toml",
            "[data]",
            'listen = "nowhere"\n[data]',
            3,
            r"party\.toml: listen: 'nowhere' is not HOST:PORT",
        ),
        ("party.toml", '"train.csv"', '"lost.csv"', 4, "lost.csv: No such file"),
        ("party.toml", 'name = "bank"', 'name = "moon"', 3, "'moon' takes no part in the job"),
        ("party.toml", "[data]", "[data]\ncolour = 1", 3, "data.colour: is not known"),
        ("train.csv", "1-0,", "1-1,", 4, "1 id is there more than once: '1-1'"),
        ("train.csv", "id,a", "id,b", 4, "the column 'b' is there twice"),
    ],
)
def test_invalid_input(
    tmp_path: Path, file: str, old: str, new: str, code: int, complaint: str
) -> None:
    local = prepare(tmp_path)
    change(tmp_path / "bank" / file, (old, new))
    found = run(local, "train", absent=("shop", "dealer"))
    expect(found.errors["bank"], code, complaint)


def test_model_folder_is_a_file(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    (tmp_path / "bank" / "models").write_text("a file where the folder should be")
    found = run(local, "train", absent=("shop", "dealer"))
    expect(found.errors["bank"], 6, "models: cannot be made: File exists")


def test_new_rows_without_a_column_of_the_model(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    change(tmp_path / "bank" / "new.csv", ("id,a,", "id,colour,"))
    found = run(local, "predict", absent=("shop", "dealer"))
    expect(found.errors["bank"], 4, r"new\.csv: there is no column 'a'")
