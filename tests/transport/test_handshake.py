from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privet.errors import ParameterError, PeerError, PeerLostError, UnavailableError
from privet.transport.rendezvous import Member, connect_members, listen
from privet.transport.tls import Identity, create_identity, renew_identity


class Pair:
    """Two members that connect; a test can change their settings first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.identity = {name: create_identity(name, folder) for name in ("ann", "bob")}
        self.listener = {name: listen() for name in ("ann", "bob")}
        self.pinned = {name: self.identity[name].fingerprint for name in ("ann", "bob")}
        self.session = dict.fromkeys(("ann", "bob"), bytes(32))
        self.timeout = 2.0

    def members(self) -> list[Member]:
        return [self.member(name) for name in ("ann", "bob")]

    def member(self, name: str) -> Member:
        host, port = self.listener[name].getsockname()[:2]
        return Member(name, host, port, self.pinned[name])

    def connect(self, *names: str) -> dict[str, Any]:
        results: dict[str, Any] = {}

        def run(name: str) -> None:
            try:
                results[name] = connect_members(
                    name,
                    self.members(),
                    self.listener[name],
                    session_id=self.session[name],
                    identity=self.identity[name],
                    timeout=self.timeout,
                )
            except PeerError as error:
                results[name] = error

        threads = [threading.Thread(target=run, args=(name,)) for name in names or ("ann", "bob")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair_ = Pair(tmp_path)
    yield pair_
    for listener in pair_.listener.values():
        listener.close()


def test_two_members_connect_over_tls(pair: Pair) -> None:
    found = pair.connect()
    one, two = found["ann"]["bob"].sock, found["bob"]["ann"].sock
    assert isinstance(one, ssl.SSLSocket)
    assert one.version() == two.version() == "TLSv1.3"
    assert one.getpeercert(binary_form=True) == pair.identity["bob"].certificate
    one.sendall(b"hello")
    assert two.recv(5) == b"hello"
    one.close()
    two.close()


def _check_refused(pair: Pair, at_ann: str, at_bob: str) -> None:
    """Check that both sides fail, name the other one and give a reason."""
    found = pair.connect()
    assert isinstance(found["ann"], PeerLostError), found
    assert isinstance(found["bob"], PeerLostError), found
    assert found["ann"].peer == "bob"
    assert found["bob"].peer == "ann"
    assert at_ann in str(found["ann"])
    assert at_bob in str(found["bob"])


def test_a_wrong_certificate_is_refused(pair: Pair) -> None:
    (pair.folder / "other").mkdir()
    pair.identity["bob"] = create_identity("bob", pair.folder / "other")
    shown, agreed = pair.identity["bob"].fingerprint[:16], pair.pinned["bob"][:16]
    _check_refused(
        pair,
        f"bob (its certificate has the fingerprint {shown}…, agreed is {agreed}…)",
        "(hung up during the TLS handshake: perhaps our certificate is not the one it expects",
    )


def test_a_certificate_without_its_key_is_refused(pair: Pair) -> None:
    """Certificates are public, so a copy of one must not be enough."""
    (pair.folder / "thief").mkdir()
    thief = create_identity("bob", pair.folder / "thief")
    stolen = pair.identity["bob"]
    pair.identity["bob"] = Identity(thief.key_file, thief.certificate_file, stolen.certificate)
    _check_refused(
        pair, "its certificate is not valid: self-signed certificate", "ann at 127.0.0.1:"
    )


@pytest.mark.parametrize("old", ["ann", "bob"])
def test_an_expired_certificate_is_refused(pair: Pair, old: str) -> None:
    (pair.folder / "old").mkdir()
    pair.identity[old] = create_identity(old, pair.folder / "old", valid_days=-1)
    pair.pinned[old] = pair.identity[old].fingerprint
    other = "bob" if old == "ann" else "ann"
    found = pair.connect()
    assert f"{old}: not reached" in str(found[other])
    assert "(its certificate is not valid: certificate has expired)" in str(found[other])
    assert f"{other}: not reached" in str(found[old])
    assert "expired" in str(found[old]).lower()


@pytest.mark.parametrize("who", [("ann",), ("bob",), ("ann", "bob")])
def test_a_renewed_certificate_is_accepted_by_the_first_fingerprint(
    pair: Pair, who: tuple[str, ...]
) -> None:
    """Even if the first certificate has expired."""
    for name in who:
        (pair.folder / f"{name}2").mkdir()
        old = create_identity(name, pair.folder / f"{name}2", valid_days=-1)
        pair.pinned[name] = old.fingerprint
        pair.identity[name] = renew_identity(old.key_file, old.certificate_file)
    found = pair.connect()
    one, two = found["ann"]["bob"].sock, found["bob"]["ann"].sock
    assert one.getpeercert(binary_form=True) == pair.identity["bob"].current
    assert two.getpeercert(binary_form=True) == pair.identity["ann"].current
    one.close()
    two.close()


def test_a_renewal_by_another_key_is_refused(pair: Pair) -> None:
    """A thief shows bob's certificate next to its own."""
    (pair.folder / "thief").mkdir()
    thief, stolen = create_identity("bob", pair.folder / "thief"), pair.identity["bob"]
    pair.identity["bob"] = replace(thief, certificate=stolen.certificate, renewed=thief.certificate)
    _check_refused(pair, "it does not belong to the key of that", "ann at 127.0.0.1:")


def test_another_session_is_refused(pair: Pair) -> None:
    pair.session["bob"] = bytes(31) + b"\x01"
    _check_refused(pair, "it runs another job or version", "it runs another job or version")


def test_a_callee_that_is_not_running_is_reported(pair: Pair) -> None:
    address = ":".join(map(str, pair.listener["ann"].getsockname()[:2]))
    pair.listener["ann"].close()
    members = [Member("ann", "127.0.0.1", int(address.split(":")[1]), "x"), pair.member("bob")]
    reports: list[str] = []
    with pytest.raises(PeerLostError, match=rf"ann: not reached.*ann at {address} \(.*refused"):
        connect_members(
            "bob",
            members,
            pair.listener["bob"],
            identity=pair.identity["bob"],
            timeout=1.5,
            on_wait=lambda text, _: reports.append(text),
        )
    assert reports
    assert reports[0].startswith(f"waiting for ann at {address} (")


def test_a_caller_that_is_not_running_is_reported(pair: Pair) -> None:
    found = pair.connect("ann")
    assert "bob: not reached within 2 s: bob (did not connect to us yet)" in str(found["ann"])


@pytest.mark.parametrize(
    "noise",
    [b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(500), b"PVHELLO2" + bytes(5)],
    ids=["silent", "http", "noise", "half a hello"],
)
def test_unauthenticated_callers_do_not_delay_members(pair: Pair, noise: bytes) -> None:
    address = pair.listener["ann"].getsockname()[:2]
    callers = []
    for _ in range(5):
        caller = socket.create_connection(address)
        caller.sendall(noise)
        callers.append(caller)
    pair.timeout = 10.0
    start = time.monotonic()
    results = pair.connect()
    assert isinstance(results["ann"], dict), results
    assert time.monotonic() - start < 3.0
    connections = results["ann"]["bob"], results["bob"]["ann"]
    for connection in (*callers, *(connection.sock for connection in connections)):
        connection.close()


def test_an_unknown_member_is_refused(pair: Pair) -> None:
    """It has an identity, but is not in the session."""
    (pair.folder / "eve").mkdir()
    eve = create_identity("eve", pair.folder / "eve")
    members = [*pair.members(), Member("eve", "127.0.0.1", 1, eve.fingerprint)]
    result: dict[str, Any] = {}

    def intrude() -> None:
        try:
            with listen() as listener:
                result["eve"] = connect_members(
                    "eve", members, listener, identity=eve, peers=["ann"], timeout=1.0
                )
        except PeerError as error:
            result["eve"] = error

    thread = threading.Thread(target=intrude)
    thread.start()
    found = pair.connect("ann")
    thread.join()
    assert isinstance(result["eve"], PeerLostError)
    assert "refused: 'eve' (nobody expects it here)" in str(found["ann"])


def test_a_port_in_use_is_reported() -> None:
    with listen() as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"cannot listen on 127.0.0.1:{port}"):
            listen("127.0.0.1", port)


def test_a_modified_hello_is_detected(pair: Pair) -> None:
    """A man in the middle makes each member believe that the other one is in its session."""
    pair.session["bob"] = bytes(31) + b"\x01"
    target = pair.listener["ann"].getsockname()[:2]
    stop = threading.Event()

    def forward(source: socket.socket, target: socket.socket, old: bytes, new: bytes) -> None:
        changed = False
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                if not changed:
                    changed, content = True, content.replace(b"PVHELLO2" + old, b"PVHELLO2" + new)
                target.sendall(content)

    def intercept(listener: socket.socket) -> None:
        listener.settimeout(0.2)
        while not stop.is_set():
            with contextlib.suppress(OSError):
                near, _ = listener.accept()
                far = socket.create_connection(target)
                sessions = pair.session["bob"], pair.session["ann"]
                for ends in ((near, far, *sessions), (far, near, *sessions[::-1])):
                    threading.Thread(target=forward, args=ends, daemon=True).start()
                connections.extend((near, far))

    connections: list[socket.socket] = []
    with listen() as listener:
        thread = threading.Thread(target=intercept, args=(listener,))
        thread.start()
        ann = pair.listener["ann"]
        host, port = listener.getsockname()[:2]
        members = [Member("ann", host, port, pair.pinned["ann"]), pair.member("bob")]
        pair.members = lambda: members  # type: ignore[method-assign]
        found = pair.connect()
        stop.set()
        thread.join()
        assert ann.fileno() >= 0
    for connection in connections:
        connection.close()
    assert isinstance(found["ann"], PeerLostError), found
    assert "its greeting was changed on the way" in str(found["ann"])


def test_members_with_fingerprints_require_tls(pair: Pair) -> None:
    with pytest.raises(ParameterError, match="identity"):
        connect_members("ann", pair.members(), pair.listener["ann"])
