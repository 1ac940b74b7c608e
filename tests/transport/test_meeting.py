"""Members that die and come again while others are still missing, and such as never will do."""

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
Links = dict[str, PeerConnection]


class Meeting:
    """Three members over TLS, each of which can connect more than once."""

    def __init__(self, folder: Path) -> None:
        self.listeners = {name: listen() for name in NAMES}
        self.identities: dict[str, Identity] = {n: create_identity(n, folder) for n in NAMES}
        self.ports = {name: self.listeners[name].getsockname()[1] for name in NAMES}
        self.pinned = {name: self.identities[name].fingerprint for name in NAMES}
        self.open: list[socket.socket] = list(self.listeners.values())

    def come(
        self,
        name: str,
        *peers: str,
        timeout: float = 20.0,
        silence: float = 10.0,
        on_wait: Any = None,
        session: bytes = bytes(32),
    ) -> Callable[[], Links]:
        """Connect in a thread; what is returned waits for what came of it."""
        found: list[Links | PeerError] = []

        def go() -> None:
            members = [Member(n, "127.0.0.1", self.ports[n], self.pinned[n]) for n in NAMES]
            try:
                links = connect_members(
                    name,
                    members,
                    self.listeners[name],
                    identity=self.identities[name],
                    peers=peers or None,
                    timeout=timeout,
                    peer_timeout=silence,
                    on_wait=on_wait,
                    session_id=session,
                )
                self.open += [link.sock for link in links.values()]
                found.append(links)
            except PeerError as error:
                found.append(error)

        thread = threading.Thread(target=go)
        thread.start()

        def result() -> Links:
            thread.join(30)
            assert found, "it still waits"
            if isinstance(found[0], PeerError):
                raise found[0]
            return found[0]

        return result


@pytest.fixture
def meeting(tmp_path: Path) -> Iterator[Meeting]:
    made = Meeting(tmp_path)
    yield made
    for connection in made.open:
        connection.close()


def send(link: PeerConnection, array: npt.NDArray[np.uint8]) -> None:
    link.enqueue(memoryview(pack_array_header(array, 0, 0)))
    link.enqueue(array.data)
    link.write()


def await_word(link: PeerConnection) -> bytes | None:
    """Return the next array that comes; None when the connection ends."""
    until = time.monotonic() + 5
    while not link.inbox[0] and link.error is None:
        link.read()
        assert time.monotonic() < until, "nothing comes"
    return link.inbox[0].popleft()[1].tobytes() if link.inbox[0] else None


def assert_connected(one: PeerConnection, two: PeerConnection) -> None:
    for source, target in ((one, two), (two, one)):
        send(source, np.frombuffer(b"hello", dtype=np.uint8))
        assert await_word(target) == b"hello"


def complete(meeting: Meeting, ann: Callable[[], Links], bob: Callable[[], Links]) -> None:
    """Let cid come at last: then all must be connected with each other."""
    sockets = {"cid": meeting.come("cid")(), "ann": ann(), "bob": bob()}
    for one, two in (("ann", "bob"), ("ann", "cid"), ("bob", "cid")):
        assert_connected(sockets[one][two], sockets[two][one])


@pytest.mark.parametrize("dead", [True, False], ids=["dead", "abandoned"])
def test_a_caller_that_comes_again_replaces_its_old_connection(
    meeting: Meeting, dead: bool
) -> None:
    ann = meeting.come("ann")
    [old] = meeting.come("bob", "ann")().values()
    if dead:
        old.sock.close()
    bob = meeting.come("bob")
    time.sleep(0.5)
    complete(meeting, ann, bob)
    if not dead:
        assert await_word(old) is None


def test_callers_are_answered_until_the_end(meeting: Meeting) -> None:
    """Bob has heard from all who call it, and still waits for ann, which it calls."""
    bob = meeting.come("bob")
    [old] = meeting.come("cid", "bob")().values()
    time.sleep(0.3)
    cid = meeting.come("cid")
    time.sleep(0.5)
    ann = meeting.come("ann")
    assert_connected(bob()["cid"], cid()["bob"])
    assert await_word(old) is None
    ann()


@pytest.mark.parametrize("last_words", [b"", b"last words"], ids=["nothing", "something"])
def test_one_that_was_called_and_died_is_called_again(meeting: Meeting, last_words: bytes) -> None:
    told: list[str] = []
    bob = meeting.come("bob", on_wait=lambda text, _: told.append(text))
    [old] = meeting.come("ann", "bob")().values()
    time.sleep(0.3)
    old.sock.sendall(last_words)
    old.sock.close()
    meeting.listeners["ann"].close()
    time.sleep(1.5)
    assert "ann at 127.0.0.1:" in told[-1]
    meeting.listeners["ann"] = listen("127.0.0.1", meeting.ports["ann"])
    meeting.open.append(meeting.listeners["ann"])
    complete(meeting, meeting.come("ann"), bob)


def test_a_caller_that_died_is_missed_again(meeting: Meeting) -> None:
    told: list[str] = []
    ann = meeting.come("ann", timeout=3.0, on_wait=lambda text, _: told.append(text))
    [old] = meeting.come("bob", "ann")().values()
    time.sleep(1.2)
    assert "bob" not in told[-1]
    old.sock.close()
    with pytest.raises(PeerLostError, match=r"bob \(was here, but hung up\), cid \(did not"):
        ann()
    assert "bob (was here, but hung up)" in told[-1]


def test_what_a_peer_has_already_sent_is_kept(meeting: Meeting) -> None:
    bob = meeting.come("bob")
    [early] = meeting.come("ann", "bob")().values()
    send(early, np.frombuffer(b"early", dtype=np.uint8))
    time.sleep(0.5)
    cid = meeting.come("cid", "bob")
    assert await_word(bob()["ann"]) == b"early"
    assert_connected(early, bob()["ann"])
    cid()


def test_one_that_freezes_is_missed_again(meeting: Meeting) -> None:
    """It neither hangs up nor shows life: as a process that was stopped, or a power cut."""
    told: list[str] = []
    ann = meeting.come("ann", timeout=5.0, silence=1.0, on_wait=lambda text, _: told.append(text))
    meeting.come("bob", "ann")()  # and nothing more from it
    time.sleep(3.0)
    assert "bob (was here, but nothing was heard from it for 1 s)" in told[-1]
    with pytest.raises(PeerLostError, match=r"bob \(was here, but nothing was heard"):
        ann()


def test_those_who_wait_show_each_other_life(meeting: Meeting) -> None:
    told: list[str] = []
    ann = meeting.come("ann", silence=1.0, on_wait=lambda text, _: told.append(text))
    bob = meeting.come("bob", silence=1.0, on_wait=lambda text, _: told.append(text))
    time.sleep(3.0)
    assert not any("was here" in text for text in told)
    complete(meeting, ann, bob)


def test_first_words_may_not_be_many(meeting: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who is let in could otherwise fill our memory while we wait for others."""
    monkeypatch.setattr(rendezvous, "MAX_EARLY_BYTES", 1000)
    told: list[str] = []
    ann = meeting.come("ann", timeout=3.0, on_wait=lambda text, _: told.append(text))
    [bob] = meeting.come("bob", "ann")().values()
    send(bob, np.zeros(2000, dtype=np.uint8))
    with pytest.raises(PeerLostError, match=r"bob \(was here, but sent a frame of 2000 bytes"):
        ann()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_REFUSED_SECONDS", 1.0)
    monkeypatch.setattr(rendezvous, "_REFUSED_RETRY_SECONDS", 0.4)


@pytest.mark.usefixtures("impatient")
def test_one_with_another_certificate_is_soon_given_up(meeting: Meeting, tmp_path: Path) -> None:
    """By both who call it; but it, which is called, waits on: anybody may call."""
    (tmp_path / "other").mkdir()
    meeting.identities["ann"] = create_identity("ann", tmp_path / "other")
    start = time.monotonic()
    ann = meeting.come("ann", timeout=3.0)
    bob = meeting.come("bob")
    shown, agreed = meeting.identities["ann"].fingerprint, meeting.pinned["ann"]
    with pytest.raises(
        PeerLostError,
        match=rf"^ann: no agreement .* ann at 127.0.0.1:{meeting.ports['ann']} \("
        rf"its certificate has the fingerprint {shown[:16]}…, agreed is {agreed[:16]}…\)$",
    ):
        bob()
    assert 0.9 < time.monotonic() - start < 10
    with pytest.raises(PeerLostError, match="not reached within 3 s"):
        ann()


@pytest.mark.usefixtures("impatient")
def test_one_that_refuses_us_is_soon_given_up(meeting: Meeting, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    ann = meeting.come("ann", timeout=3.0)
    meeting.identities["bob"] = create_identity("bob", tmp_path / "other")
    with pytest.raises(PeerLostError, match=r"^ann: no agreement .*\(hung up during the TLS"):
        meeting.come("bob")()
    with pytest.raises(PeerLostError, match=r"bob \(its certificate has the fingerprint"):
        ann()


@pytest.mark.usefixtures("impatient")
def test_one_with_another_job_is_soon_given_up(meeting: Meeting) -> None:
    ann = meeting.come("ann", timeout=3.0)
    with pytest.raises(PeerLostError, match=r"^ann: no agreement .*\(it runs another job or"):
        meeting.come("bob", session=bytes(31) + b"\x01")()
    with pytest.raises(PeerLostError, match=r"bob \(it runs another job or version"):
        ann()


@contextlib.contextmanager
def answering(door: socket.socket, reply: bytes) -> Iterator[list[float]]:
    """Answer every call with some bytes and hang up; yields when calls came."""
    calls: list[float] = []
    stop = threading.Event()

    def serve() -> None:
        door.settimeout(0.1)
        while not stop.is_set():
            with contextlib.suppress(OSError), door.accept()[0] as connection:
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


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "reply",
    [b"SSH-2.0-OpenSSH_9.6\r\n", b"\x15\x03\x03\x00\x02\x02F", b"HTTP/1.1 400\r\n", b"PX"],
    ids=["ssh", "tls", "http", "short"],
)
def test_something_else_on_the_port_is_soon_given_up(meeting: Meeting, reply: bytes) -> None:
    with (
        answering(meeting.listeners["ann"], reply) as calls,
        pytest.raises(PeerLostError, match=r"^ann: no agreement .*\(does not speak this protocol"),
    ):
        meeting.come("bob")()
    assert len(calls) <= 5  # a refusal is not asked for ten times a second


@pytest.mark.usefixtures("impatient")
def test_a_door_that_closes_at_once_may_open_later(meeting: Meeting) -> None:
    """So does a relay whose target has not started: that is no refusal."""
    with answering(meeting.listeners["ann"], b"") as calls:
        bob = meeting.come("bob")
        time.sleep(1.5)
    assert len(calls) > 5
    complete(meeting, meeting.come("ann"), bob)


@pytest.mark.usefixtures("impatient")
def test_refused_callers_never_end_our_waiting(meeting: Meeting) -> None:
    ann = meeting.come("ann")
    stop = time.monotonic() + 1.5
    while time.monotonic() < stop:
        for noise in (b"GET / HTTP/1.1\r\n\r\n", b"PVHELLO2" + bytes(32) + b"\x03\x00bob\x00\x00"):
            with socket.create_connection(meeting.listeners["ann"].getsockname()) as stranger:
                stranger.sendall(noise + os.urandom(10))
        time.sleep(0.1)
    complete(meeting, ann, meeting.come("bob"))


def test_the_listener_stays_open(meeting: Meeting) -> None:
    ann, bob = meeting.come("ann", "bob"), meeting.come("bob", "ann")
    assert_connected(ann()["bob"], bob()["ann"])
    socket.create_connection(meeting.listeners["ann"].getsockname()).close()
