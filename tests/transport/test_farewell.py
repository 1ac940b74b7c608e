"""Members that cannot take part: who is told, who is believed, and how long it takes."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet import errors
from privet.errors import PeerFailedError
from privet.transport import rendezvous
from privet.transport.frames import hash_name
from privet.transport.handshake import FailureNotice, Handshake, HandshakeRefusedError
from privet.transport.rendezvous import Member, is_member_running_at, listen, notify_failure
from privet.transport.tls import Identity, create_identity
from tests.transport.test_meeting import NAMES, Links, Meeting, answering, complete


@pytest.fixture
def meeting(tmp_path: Path) -> Iterator[Meeting]:
    made = Meeting(tmp_path)
    yield made
    for connection in made.open:
        connection.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_REFUSED_SECONDS", 1.0)
    monkeypatch.setattr(rendezvous, "_REFUSED_RETRY_SECONDS", 0.4)
    monkeypatch.setattr(rendezvous, "_REFUSED_RETRY_SECONDS", 0.4)
    monkeypatch.setattr(rendezvous, "_QUIET_SECONDS", 0.6)
    monkeypatch.setattr(rendezvous, "_MAX_NOTIFY_SECONDS", 3.0)


@pytest.fixture
def stranger(tmp_path: Path) -> Identity:
    (tmp_path / "stranger").mkdir()
    return create_identity("cid", tmp_path / "stranger")


def members(meeting: Meeting, **ports: int) -> list[Member]:
    """Return all, some of them at other ports than they are."""
    found = {**meeting.ports, **ports}
    return [Member(name, "127.0.0.1", found[name], meeting.pinned[name]) for name in NAMES]


def close(meeting: Meeting, *names: str) -> None:
    """Leave nobody at the addresses of those who are not there."""
    for name in names:
        meeting.listeners[name].close()


def come_late(meeting: Meeting, name: str) -> None:
    meeting.listeners[name] = listen("127.0.0.1", meeting.ports[name])
    meeting.open.append(meeting.listeners[name])


def leave(
    meeting: Meeting,
    name: str,
    failure: FailureNotice | None = None,
    identity: Identity | None = None,
) -> list[str]:
    """Let somebody say that it has failed, or that another one has."""
    told, _ = notify_failure(
        failure or FailureNotice(name, 4),
        name,
        members(meeting),
        meeting.listeners[name],
        identity or meeting.identities[name],
    )
    return told


def failure_of(result: Callable[[], Links]) -> PeerFailedError:
    with pytest.raises(PeerFailedError) as caught:
        result()
    return caught.value


@pytest.mark.parametrize("name", NAMES)
def test_all_who_wait_are_told(meeting: Meeting, name: str) -> None:
    others = [other for other in NAMES if other != name]
    waiting = {other: meeting.come(other) for other in others}
    time.sleep(0.5)
    start = time.monotonic()
    assert leave(meeting, name) == others
    assert time.monotonic() - start < 2.0
    for other in others:
        error = failure_of(waiting[other])
        assert (error.peer, error.peer_exit_code, error.exit_code) == (name, 4, 7)
        assert str(error) == (
            f"{name}: cannot take part: its table cannot be read or used (exit code 4); "
            "once that is mended there, start all again"
        )
    assert time.monotonic() - start < 3.0


@pytest.mark.parametrize("name", ["ann", "bob"])
def test_one_that_was_found_already_can_still_fail(meeting: Meeting, name: str) -> None:
    """As it is interrupted while all wait for the last one."""
    close(meeting, "cid")
    (other,) = {"ann", "bob"} - {name}
    waiting = meeting.come(other)
    [old] = meeting.come(name, other)().values()
    old.sock.close()
    assert leave(meeting, name, FailureNotice(name, 130)) == [other]
    assert "it was interrupted (exit code 130)" in str(failure_of(waiting))


def test_what_one_was_told_it_passes_on(meeting: Meeting) -> None:
    """Cid does not get through to ann; bob does."""
    ann, bob = meeting.come("ann"), meeting.come("bob")
    time.sleep(0.5)
    with listen() as door:
        closed = door.getsockname()[1]
    told, _ = notify_failure(
        FailureNotice("cid", 4),
        "cid",
        members(meeting, ann=closed),
        None,
        meeting.identities["cid"],
    )
    assert told == ["bob"]
    heard = failure_of(bob)
    assert leave(meeting, "bob", FailureNotice.from_error(heard, "bob")) == ["ann"]
    error = failure_of(ann)
    assert (error.peer, error.peer_exit_code) == ("cid", 4)
    assert str(error).startswith("cid: cannot take part, says bob: its table cannot")


@pytest.mark.usefixtures("impatient")
def test_two_who_cannot_agree_both_end(meeting: Meeting) -> None:
    """Ann waits to be called. When bob has given her up, she says what she saw of him."""
    close(meeting, "cid")
    ann = meeting.come("ann")
    bob = meeting.come("bob", session=bytes(31) + b"\x01")
    heard = failure_of(bob)
    assert str(heard).startswith("ann: no agreement with what answers there")
    assert leave(meeting, "bob", FailureNotice.from_error(heard, "bob")) == ["ann"]
    error = failure_of(ann)
    assert (error.peer, error.peer_exit_code) == ("bob", 7)
    assert "no agreement with us: bob (it runs another job or version" in str(error)


def test_those_behind_a_wall_are_told_when_they_call(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bob's address is open to nobody, as nobody but cid needs it."""
    monkeypatch.setattr(rendezvous, "_LISTEN_SECONDS", 3.0)
    close(meeting, "cid")
    with listen() as door:
        closed = door.getsockname()[1]
    coming: list[Callable[[], Links]] = []
    threading.Timer(0.5, lambda: coming.append(meeting.come("bob"))).start()
    told, _ = notify_failure(
        FailureNotice("ann", 6),
        "ann",
        members(meeting, bob=closed),
        meeting.listeners["ann"],
        meeting.identities["ann"],
    )
    assert told == ["bob"]
    assert "it cannot have something that it needs" in str(failure_of(coming[0]))


@pytest.mark.parametrize("name", ["ann", "cid"])
def test_one_that_cannot_listen_still_tells(meeting: Meeting, name: str) -> None:
    close(meeting, name)
    bob = meeting.come("bob")
    time.sleep(0.3)
    told, _ = notify_failure(
        FailureNotice(name, 6), name, members(meeting), None, meeting.identities[name]
    )
    assert "bob" in told
    assert failure_of(bob).peer == name


def test_a_failure_is_told_in_any_session(meeting: Meeting) -> None:
    """Who failed may not have come to reading whether its correlations were dealt ahead."""
    bob = meeting.come("bob", "ann", session=b"correlations dealt ahead".ljust(32))
    time.sleep(0.3)
    assert "bob" in leave(meeting, "ann")
    assert failure_of(bob).peer == "ann"


@pytest.mark.usefixtures("impatient")
def test_a_stranger_does_not_end_the_waiting(meeting: Meeting, stranger: Identity) -> None:
    """It says that cid has failed, by every name that it may come under."""
    close(meeting, "cid")
    ann, bob = meeting.come("ann"), meeting.come("bob")
    time.sleep(0.3)
    for name in ("bob", "cid"):
        with listen() as door:
            host, port = door.getsockname()[:2]
            elsewhere = Member(name, host, port, stranger.fingerprint)
            known = [elsewhere if m.name == name else m for m in members(meeting)]
            told, _ = notify_failure(FailureNotice("cid", 4), name, known, door, stranger)
            assert told == []
    come_late(meeting, "cid")
    complete(meeting, ann, bob)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("reply", [b"HTTP/1.1 400\r\n", b""], ids=["http", "relay"])
def test_something_else_at_the_address_of_a_caller(
    meeting: Meeting, stranger: Identity, reply: bytes
) -> None:
    """Nobody calls cid, so its address may be anything: a stranger cannot make use of that."""
    ann = meeting.come("ann", "cid", timeout=4.0)
    greeter = Handshake("cid", dict(meeting.pinned), bytes(32), stranger)
    with answering(meeting.listeners["cid"], reply) as calls:
        stop = time.monotonic() + 2.5
        while time.monotonic() < stop:
            connection = socket.create_connection(meeting.listeners["ann"].getsockname())
            with contextlib.suppress(OSError, HandshakeRefusedError):
                greeter.run(connection, {"ann"}, is_client=True)
            time.sleep(0.05)
    assert 2 <= len(calls) <= 8  # it was looked for, and not for every call
    with pytest.raises(errors.PeerLostError, match=r"not reached within 4 s: cid \(its cert"):
        ann()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("keys", ["none", "others"])
@pytest.mark.parametrize("name", NAMES)
def test_one_without_its_keys_is_given_up(
    meeting: Meeting, stranger: Identity, name: str, keys: str
) -> None:
    """By those who call it, and by those whom it should call: it is where it should be."""
    others = [other for other in NAMES if other != name]
    waiting = {other: meeting.come(other, name) for other in others}
    time.sleep(0.3)
    start = time.monotonic()
    identity = None if keys == "none" else stranger
    door = meeting.listeners[name]
    told, refused = notify_failure(FailureNotice(name, 6), name, members(meeting), door, identity)
    assert (told, refused) == ([], others)
    for other in others:
        error = failure_of(waiting[other])
        assert error.peer == name
        assert "no agreement with what answers there" in str(error)
        why = "it has no certificate" if keys == "none" else "its certificate has the fingerprint"
        assert f"{name} at 127.0.0.1:{meeting.ports[name]} ({why}" in str(error)
    assert time.monotonic() - start < 8.0


@pytest.mark.parametrize("keys", ["own", "none"])
def test_a_stranger_is_not_told_what_failed(
    meeting: Meeting, stranger: Identity, keys: str
) -> None:
    """Whoever calls and cannot prove to be a member hears a hello, and nothing more."""
    close(meeting, "bob", "cid")
    identity = meeting.identities["ann"] if keys == "own" else None
    saying = threading.Thread(
        target=notify_failure,
        args=(FailureNotice("ann", 4), "ann", members(meeting), meeting.listeners["ann"], identity),
    )
    saying.start()
    certificate = b"" if identity is None else identity.certificate
    hello = b"PVHELLO2" + bytes(32) + b"\x03\x00ann" + struct.pack("<H", len(certificate))
    for shown in (stranger.certificate, b""):
        with socket.create_connection(meeting.listeners["ann"].getsockname()) as connection:
            connection.settimeout(5)
            counted = struct.pack("<H", len(shown)) + shown
            connection.sendall(b"PVHELLO2" + bytes(32) + b"\x03\x00bob" + counted)
            received = b""
            with contextlib.suppress(ConnectionError):
                while chunk := connection.recv(10_000):
                    received += chunk
        assert received == hello + certificate
    saying.join()


@settings(max_examples=500)
@given(st.integers(0, 255), st.one_of(st.integers(0, 2**32 - 1), st.sampled_from(NAMES)))
def test_notes_that_cannot_be_are_refused(code: int, who: int | str) -> None:
    greeter = Handshake("ann", dict.fromkeys(NAMES), bytes(32), None)
    content = struct.pack("<BI", code, hash_name(who) if isinstance(who, str) else who)
    if content == bytes(5):
        assert greeter._unpack_notice("bob", content) is None
    elif isinstance(who, str) and code in (1, 3, 4, 5, 6, 7, 8, 9, 130):
        assert greeter._unpack_notice("bob", content) == FailureNotice(who, code)
    else:
        with pytest.raises(HandshakeRefusedError, match="a failure that cannot be"):
            greeter._unpack_notice("bob", content)


def test_members_that_say_nonsense_do_not_end_the_waiting(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bob proves who it is, and then tells of failures that cannot be."""
    ann = meeting.come("ann")
    for note in (b"\xff" * 5, b"\x04" + bytes(4), b"\x00" + struct.pack("<I", hash_name("cid"))):
        with monkeypatch.context() as patch:
            patch.setattr(Handshake, "_pack_notice", lambda _, note=note: note)
            connection = socket.create_connection(meeting.listeners["ann"].getsockname())
            greeter = Handshake("bob", dict(meeting.pinned), bytes(32), meeting.identities["bob"])
            with contextlib.suppress(HandshakeRefusedError):  # at ann it is the test that says so
                _, connection, _ = greeter.run(connection, {"ann"}, is_client=True)
            connection.close()
        time.sleep(0.2)
    complete(meeting, ann, meeting.come("bob"))


def test_nobody_is_there(meeting: Meeting) -> None:
    for name in NAMES:
        with listen() as door:
            close(meeting, *NAMES)
            start = time.monotonic()
            told, _ = notify_failure(
                FailureNotice(name, 4), name, members(meeting), door, meeting.identities[name]
            )
            assert told == []
            assert time.monotonic() - start < 1.0


def test_those_who_do_not_answer_are_not_waited_for_long(meeting: Meeting) -> None:
    """A door behind which nobody speaks is like an address that swallows everything."""
    start = time.monotonic()
    assert leave(meeting, "bob") == []
    assert time.monotonic() - start < rendezvous._CALL_SECONDS + 1.0


@pytest.mark.usefixtures("impatient")
def test_whether_a_process_of_ours_is_there(meeting: Meeting, stranger: Identity) -> None:
    address = meeting.listeners["ann"].getsockname()[:2]
    ann = meeting.come("ann")
    assert is_member_running_at("ann", address, meeting.identities["ann"])
    assert not is_member_running_at("ann", address, stranger)
    assert not is_member_running_at("bob", address, meeting.identities["bob"])
    complete(meeting, ann, meeting.come("bob"))
    close(meeting, "ann")
    assert not is_member_running_at("ann", address, meeting.identities["ann"])


def test_what_is_told_of_an_error() -> None:
    for error, code in (
        (errors.DataError("row 3: 'secret'"), 4),
        (errors.UnavailableError("/home/secret"), 6),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("secret"), 1),
        (errors.ResultError("never before all have met"), 1),
    ):
        assert FailureNotice.from_error(error, "ann") == FailureNotice("ann", code)
    assert FailureNotice.from_error(PeerFailedError("bob", "cannot", 4), "ann") == FailureNotice(
        "bob", 4
    )
    assert FailureNotice.from_error(PeerFailedError("bob", "no agreement"), "ann") == FailureNotice(
        "bob", 7
    )
