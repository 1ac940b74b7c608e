"""Rendezvous: members that fail and return while others are missing, and refused members."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from privet.errors import PeerError, PeerLostError
from privet.transport import rendezvous
from privet.transport.connection import PeerConnection
from privet.transport.frames import pack_array_header
from privet.transport.rendezvous import Member, connect_members, listen
from privet.transport.tls import Identity, create_identity

NAMES = ("ann", "bob", "cid")
Connections = dict[str, PeerConnection]


class MemberGroup:
    """Three members over TLS, which can connect repeatedly."""

    def __init__(self, folder: Path) -> None:
        self.listeners = {name: listen() for name in NAMES}
        self.identities: dict[str, Identity] = {n: create_identity(n, folder) for n in NAMES}
        self.ports = {name: self.listeners[name].getsockname()[1] for name in NAMES}
        self.pinned = {name: self.identities[name].fingerprint for name in NAMES}
        self.sockets: list[socket.socket] = list(self.listeners.values())

    def connect(
        self,
        name: str,
        *peers: str,
        timeout: float = 20.0,
        peer_timeout: float = 10.0,
        on_wait: Any = None,
        session: bytes = bytes(32),
    ) -> Callable[[], Connections]:
        """Connect in a thread; return a function that waits for the result."""
        results: list[Connections | PeerError] = []

        def run() -> None:
            members = [Member(n, "127.0.0.1", self.ports[n], self.pinned[n]) for n in NAMES]
            try:
                connections = connect_members(
                    name,
                    members,
                    self.listeners[name],
                    identity=self.identities[name],
                    peers=peers or None,
                    timeout=timeout,
                    peer_timeout=peer_timeout,
                    on_wait=on_wait,
                    session_id=session,
                )
                self.sockets += [connection.sock for connection in connections.values()]
                results.append(connections)
            except PeerError as error:
                results.append(error)

        thread = threading.Thread(target=run)
        thread.start()

        def result() -> Connections:
            thread.join(30)
            assert results, "it is still waiting"
            if isinstance(results[0], PeerError):
                raise results[0]
            return results[0]

        return result


@pytest.fixture
def group(tmp_path: Path) -> Iterator[MemberGroup]:
    group = MemberGroup(tmp_path)
    yield group
    for connection in group.sockets:
        connection.close()


def send(connection: PeerConnection, array: npt.NDArray[np.uint8]) -> None:
    connection.enqueue(memoryview(pack_array_header(array, 0, 0)))
    connection.enqueue(array.data)
    connection.write()


def receive(connection: PeerConnection) -> bytes | None:
    """Return the next array; None if the connection ends."""
    deadline = time.monotonic() + 5
    while not connection.inbox[0] and connection.error is None:
        connection.read()
        assert time.monotonic() < deadline, "no array arrives"
    return connection.inbox[0].popleft()[1].tobytes() if connection.inbox[0] else None


def assert_connected(one: PeerConnection, two: PeerConnection) -> None:
    for source, target in ((one, two), (two, one)):
        send(source, np.frombuffer(b"hello", dtype=np.uint8))
        assert receive(target) == b"hello"


def connect_all(
    group: MemberGroup, ann: Callable[[], Connections], bob: Callable[[], Connections]
) -> None:
    """Connect cid: then all members must be connected with each other."""
    connections = {"cid": group.connect("cid")(), "ann": ann(), "bob": bob()}
    for one, two in (("ann", "bob"), ("ann", "cid"), ("bob", "cid")):
        assert_connected(connections[one][two], connections[two][one])


@pytest.mark.parametrize("dead", [True, False], ids=["dead", "abandoned"])
def test_a_returning_caller_replaces_its_old_connection(group: MemberGroup, dead: bool) -> None:
    ann = group.connect("ann")
    [old] = group.connect("bob", "ann")().values()
    if dead:
        old.sock.close()
    bob = group.connect("bob")
    time.sleep(0.5)
    connect_all(group, ann, bob)
    if not dead:
        assert receive(old) is None


def test_a_member_with_all_callers_still_answers(group: MemberGroup) -> None:
    """All callers of bob are connected, and it is still calling ann."""
    bob = group.connect("bob")
    [old] = group.connect("cid", "bob")().values()
    time.sleep(0.3)
    cid = group.connect("cid")
    time.sleep(0.5)
    ann = group.connect("ann")
    assert_connected(bob()["cid"], cid()["bob"])
    assert receive(old) is None
    ann()


@pytest.mark.parametrize("last_bytes", [b"", b"last words"], ids=["empty", "partial frame"])
def test_a_failed_callee_is_called_again(group: MemberGroup, last_bytes: bytes) -> None:
    reports: list[str] = []
    bob = group.connect("bob", on_wait=lambda text, _: reports.append(text))
    [old] = group.connect("ann", "bob")().values()
    time.sleep(0.3)
    old.sock.sendall(last_bytes)
    old.sock.close()
    group.listeners["ann"].close()
    time.sleep(1.5)
    assert "ann at 127.0.0.1:" in reports[-1]
    group.listeners["ann"] = listen("127.0.0.1", group.ports["ann"])
    group.sockets.append(group.listeners["ann"])
    connect_all(group, group.connect("ann"), bob)


def test_a_failed_caller_is_missing_again(group: MemberGroup) -> None:
    reports: list[str] = []
    ann = group.connect("ann", timeout=3.0, on_wait=lambda text, _: reports.append(text))
    [old] = group.connect("bob", "ann")().values()
    time.sleep(1.2)
    assert "bob" not in reports[-1]
    old.sock.close()
    with pytest.raises(PeerLostError, match=r"bob \(was here, but hung up\), cid \(did not"):
        ann()
    assert "bob (was here, but hung up)" in reports[-1]


def test_early_messages_are_kept(group: MemberGroup) -> None:
    bob = group.connect("bob")
    [early] = group.connect("ann", "bob")().values()
    send(early, np.frombuffer(b"early", dtype=np.uint8))
    time.sleep(0.5)
    cid = group.connect("cid", "bob")
    assert receive(bob()["ann"]) == b"early"
    assert_connected(early, bob()["ann"])
    cid()


def test_a_frozen_peer_is_missing_again(group: MemberGroup) -> None:
    """It neither disconnects nor sends heartbeats, like a stopped process or after a power cut."""
    reports: list[str] = []
    ann = group.connect(
        "ann", timeout=5.0, peer_timeout=1.0, on_wait=lambda text, _: reports.append(text)
    )
    group.connect("bob", "ann")()  # and no heartbeats
    time.sleep(3.0)
    assert "bob (was here, but nothing was heard from it for 1 s)" in reports[-1]
    with pytest.raises(PeerLostError, match=r"bob \(was here, but nothing was heard"):
        ann()


def test_waiting_members_exchange_heartbeats(group: MemberGroup) -> None:
    reports: list[str] = []
    ann = group.connect("ann", peer_timeout=1.0, on_wait=lambda text, _: reports.append(text))
    bob = group.connect("bob", peer_timeout=1.0, on_wait=lambda text, _: reports.append(text))
    time.sleep(3.0)
    assert not any("was here" in text for text in reports)
    connect_all(group, ann, bob)


def test_early_messages_are_limited(group: MemberGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, a connected peer could fill our memory while we wait for others."""
    monkeypatch.setattr(rendezvous, "MAX_EARLY_BYTES", 1000)
    reports: list[str] = []
    ann = group.connect("ann", timeout=3.0, on_wait=lambda text, _: reports.append(text))
    [bob] = group.connect("bob", "ann")().values()
    send(bob, np.zeros(2000, dtype=np.uint8))
    with pytest.raises(PeerLostError, match=r"bob \(was here, but sent a frame of 2000 bytes"):
        ann()


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_REFUSED_SECONDS", 1.0)
    monkeypatch.setattr(rendezvous, "_REFUSED_RETRY_SECONDS", 0.4)


@pytest.mark.usefixtures("short_timeouts")
def test_a_callee_with_another_certificate_is_given_up(group: MemberGroup, tmp_path: Path) -> None:
    """Its callers give up; the callee itself goes on waiting, because anybody can call."""
    (tmp_path / "other").mkdir()
    group.identities["ann"] = create_identity("ann", tmp_path / "other")
    start = time.monotonic()
    ann = group.connect("ann", timeout=3.0)
    bob = group.connect("bob")
    shown, agreed = group.identities["ann"].fingerprint, group.pinned["ann"]
    with pytest.raises(
        PeerLostError,
        match=rf"^ann: no agreement .* ann at 127.0.0.1:{group.ports['ann']} \("
        rf"its certificate has the fingerprint {shown[:16]}…, agreed is {agreed[:16]}…\)$",
    ):
        bob()
    assert 0.9 < time.monotonic() - start < 10
    with pytest.raises(PeerLostError, match="not reached within 3 s"):
        ann()


@pytest.mark.usefixtures("short_timeouts")
def test_a_callee_that_refuses_our_certificate_is_given_up(
    group: MemberGroup, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    ann = group.connect("ann", timeout=3.0)
    group.identities["bob"] = create_identity("bob", tmp_path / "other")
    with pytest.raises(PeerLostError, match=r"^ann: no agreement .*\(hung up during the TLS"):
        group.connect("bob")()
    with pytest.raises(PeerLostError, match=r"bob \(its certificate has the fingerprint"):
        ann()


@pytest.mark.usefixtures("short_timeouts")
def test_a_callee_with_another_job_is_given_up(group: MemberGroup) -> None:
    ann = group.connect("ann", timeout=3.0)
    with pytest.raises(PeerLostError, match=r"^ann: no agreement .*\(it runs another job or"):
        group.connect("bob", session=bytes(31) + b"\x01")()
    with pytest.raises(PeerLostError, match=r"bob \(it runs another job or version"):
        ann()


@contextlib.contextmanager
def answer_calls(listener: socket.socket, reply: bytes) -> Iterator[list[float]]:
    """Answer every call with some bytes and disconnect; yield the times of the calls."""
    calls: list[float] = []
    stop = threading.Event()

    def serve() -> None:
        listener.settimeout(0.1)
        while not stop.is_set():
            with contextlib.suppress(OSError), listener.accept()[0] as connection:
                calls.append(time.monotonic())
                connection.sendall(reply)
                connection.shutdown(socket.SHUT_WR)
                time.sleep(0.02)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield calls
    finally:
        stop.set()
        thread.join()


@pytest.mark.usefixtures("short_timeouts")
@pytest.mark.parametrize(
    "reply",
    [b"SSH-2.0-OpenSSH_9.6\r\n", b"\x15\x03\x03\x00\x02\x02F", b"HTTP/1.1 400\r\n", b"PX"],
    ids=["ssh", "tls", "http", "short"],
)
def test_another_service_on_the_port_is_given_up(group: MemberGroup, reply: bytes) -> None:
    with (
        answer_calls(group.listeners["ann"], reply) as calls,
        pytest.raises(PeerLostError, match=r"^ann: no agreement .*\(does not speak this protocol"),
    ):
        group.connect("bob")()
    assert len(calls) <= 5  # refused calls are repeated less often


@pytest.mark.usefixtures("short_timeouts")
def test_a_connection_closed_at_once_is_retried(group: MemberGroup) -> None:
    """A relay whose target has not started also does this: it is not a refusal."""
    with answer_calls(group.listeners["ann"], b"") as calls:
        bob = group.connect("bob")
        time.sleep(1.5)
    assert len(calls) > 5
    connect_all(group, group.connect("ann"), bob)


@pytest.mark.usefixtures("short_timeouts")
def test_refused_callers_never_end_the_waiting(group: MemberGroup) -> None:
    ann = group.connect("ann")
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        for noise in (b"GET / HTTP/1.1\r\n\r\n", b"PVHELLO2" + bytes(32) + b"\x03\x00bob\x00\x00"):
            with socket.create_connection(group.listeners["ann"].getsockname()) as caller:
                caller.sendall(noise + os.urandom(10))
        time.sleep(0.1)
    connect_all(group, ann, group.connect("bob"))


def test_the_listener_stays_open(group: MemberGroup) -> None:
    ann, bob = group.connect("ann", "bob"), group.connect("bob", "ann")
    assert_connected(ann()["bob"], bob()["ann"])
    socket.create_connection(group.listeners["ann"].getsockname()).close()
