"""Failure notices of members that cannot join: recipients, authentication and duration."""

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
from tests.transport.test_rendezvous import (
    NAMES,
    Connections,
    MemberGroup,
    answer_calls,
    connect_all,
)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[MemberGroup]:
    group = MemberGroup(tmp_path)
    yield group
    for connection in group.sockets:
        connection.close()


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_REFUSED_SECONDS", 1.0)
    monkeypatch.setattr(rendezvous, "_REFUSED_RETRY_SECONDS", 0.4)
    monkeypatch.setattr(rendezvous, "_QUIET_SECONDS", 0.6)
    monkeypatch.setattr(rendezvous, "_MAX_NOTIFY_SECONDS", 3.0)


@pytest.fixture
def other_identity(tmp_path: Path) -> Identity:
    (tmp_path / "stranger").mkdir()
    return create_identity("cid", tmp_path / "stranger")


def members(group: MemberGroup, **ports: int) -> list[Member]:
    """Return all members, some of them with other ports."""
    ports_by_name = {**group.ports, **ports}
    return [Member(name, "127.0.0.1", ports_by_name[name], group.pinned[name]) for name in NAMES]


def close(group: MemberGroup, *names: str) -> None:
    """Close the listeners of members that are not running."""
    for name in names:
        group.listeners[name].close()


def start_late(group: MemberGroup, name: str) -> None:
    group.listeners[name] = listen("127.0.0.1", group.ports[name])
    group.sockets.append(group.listeners[name])


def notify(
    group: MemberGroup,
    name: str,
    failure: FailureNotice | None = None,
    identity: Identity | None = None,
) -> list[str]:
    """Send a notice that a member has failed; return the notified members."""
    notified, _ = notify_failure(
        failure or FailureNotice(name, 4),
        name,
        members(group),
        group.listeners[name],
        identity or group.identities[name],
    )
    return notified


def failure_of(result: Callable[[], Connections]) -> PeerFailedError:
    with pytest.raises(PeerFailedError) as caught:
        result()
    return caught.value


@pytest.mark.parametrize("name", NAMES)
def test_all_waiting_members_are_notified(group: MemberGroup, name: str) -> None:
    others = [other for other in NAMES if other != name]
    waiting = {other: group.connect(other) for other in others}
    time.sleep(0.5)
    start = time.monotonic()
    assert notify(group, name) == others
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
def test_a_connected_member_can_still_fail(group: MemberGroup, name: str) -> None:
    """For example by an interruption, while all wait for the last member."""
    close(group, "cid")
    (other,) = {"ann", "bob"} - {name}
    waiting = group.connect(other)
    [old] = group.connect(name, other)().values()
    old.sock.close()
    assert notify(group, name, FailureNotice(name, 130)) == [other]
    assert "it was interrupted (exit code 130)" in str(failure_of(waiting))


def test_a_notified_member_passes_the_notice_on(group: MemberGroup) -> None:
    """Cid cannot reach ann, but bob can."""
    ann, bob = group.connect("ann"), group.connect("bob")
    time.sleep(0.5)
    with listen() as listener:
        closed = listener.getsockname()[1]
    notified, _ = notify_failure(
        FailureNotice("cid", 4),
        "cid",
        members(group, ann=closed),
        None,
        group.identities["cid"],
    )
    assert notified == ["bob"]
    received = failure_of(bob)
    assert notify(group, "bob", FailureNotice.from_error(received, "bob")) == ["ann"]
    error = failure_of(ann)
    assert (error.peer, error.peer_exit_code) == ("cid", 4)
    assert str(error).startswith("cid: cannot take part, says bob: its table cannot")


@pytest.mark.usefixtures("short_timeouts")
def test_two_members_with_different_sessions_both_fail(group: MemberGroup) -> None:
    """Ann waits for calls. After bob has given up, ann reports what it has seen of bob."""
    close(group, "cid")
    ann = group.connect("ann")
    bob = group.connect("bob", session=bytes(31) + b"\x01")
    received = failure_of(bob)
    assert str(received).startswith("ann: no agreement with what answers there")
    assert notify(group, "bob", FailureNotice.from_error(received, "bob")) == ["ann"]
    error = failure_of(ann)
    assert (error.peer, error.peer_exit_code) == ("bob", 7)
    assert "no agreement with us: bob (it runs another job or version" in str(error)


def test_an_unreachable_member_is_notified_when_it_calls(
    group: MemberGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bob's address is closed, because only cid needs it."""
    monkeypatch.setattr(rendezvous, "_LISTEN_SECONDS", 3.0)
    close(group, "cid")
    with listen() as listener:
        closed = listener.getsockname()[1]
    results: list[Callable[[], Connections]] = []
    threading.Timer(0.5, lambda: results.append(group.connect("bob"))).start()
    notified, _ = notify_failure(
        FailureNotice("ann", 6),
        "ann",
        members(group, bob=closed),
        group.listeners["ann"],
        group.identities["ann"],
    )
    assert notified == ["bob"]
    assert "it cannot have something that it needs" in str(failure_of(results[0]))


@pytest.mark.parametrize("name", ["ann", "cid"])
def test_a_member_that_cannot_listen_still_notifies(group: MemberGroup, name: str) -> None:
    close(group, name)
    bob = group.connect("bob")
    time.sleep(0.3)
    notified, _ = notify_failure(
        FailureNotice(name, 6), name, members(group), None, group.identities[name]
    )
    assert "bob" in notified
    assert failure_of(bob).peer == name


def test_a_notice_is_valid_in_any_session(group: MemberGroup) -> None:
    """The failed member may not know yet whether its preprocessing is offline."""
    bob = group.connect("bob", "ann", session=b"correlations dealt ahead".ljust(32))
    time.sleep(0.3)
    assert "bob" in notify(group, "ann")
    assert failure_of(bob).peer == "ann"


@pytest.mark.usefixtures("short_timeouts")
def test_an_unauthenticated_notice_does_not_end_the_waiting(
    group: MemberGroup, other_identity: Identity
) -> None:
    """It claims that cid has failed, in the name of each other member."""
    close(group, "cid")
    ann, bob = group.connect("ann"), group.connect("bob")
    time.sleep(0.3)
    for name in ("bob", "cid"):
        with listen() as listener:
            host, port = listener.getsockname()[:2]
            impostor = Member(name, host, port, other_identity.fingerprint)
            known_members = [impostor if m.name == name else m for m in members(group)]
            notified, _ = notify_failure(
                FailureNotice("cid", 4), name, known_members, listener, other_identity
            )
            assert notified == []
    start_late(group, "cid")
    connect_all(group, ann, bob)


@pytest.mark.usefixtures("short_timeouts")
@pytest.mark.parametrize("reply", [b"HTTP/1.1 400\r\n", b""], ids=["http", "relay"])
def test_another_service_at_the_address_of_a_caller(
    group: MemberGroup, other_identity: Identity, reply: bytes
) -> None:
    """No member calls cid, so another service can be at its address: that is not a failure."""
    ann = group.connect("ann", "cid", timeout=4.0)
    handshake = Handshake("cid", dict(group.pinned), bytes(32), other_identity)
    with answer_calls(group.listeners["cid"], reply) as calls:
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            connection = socket.create_connection(group.listeners["ann"].getsockname())
            with contextlib.suppress(OSError, HandshakeRefusedError):
                handshake.run(connection, {"ann"}, is_client=True)
            time.sleep(0.05)
    assert 2 <= len(calls) <= 8  # the address was probed, but not for every call
    with pytest.raises(errors.PeerLostError, match=r"not reached within 4 s: cid \(its cert"):
        ann()


@pytest.mark.usefixtures("short_timeouts")
@pytest.mark.parametrize("keys", ["none", "others"])
@pytest.mark.parametrize("name", NAMES)
def test_a_member_without_its_keys_is_given_up(
    group: MemberGroup, other_identity: Identity, name: str, keys: str
) -> None:
    """By its callers, and by members that it should call: it answers at its address."""
    others = [other for other in NAMES if other != name]
    waiting = {other: group.connect(other, name) for other in others}
    time.sleep(0.3)
    start = time.monotonic()
    identity = None if keys == "none" else other_identity
    listener = group.listeners[name]
    notified, refused = notify_failure(
        FailureNotice(name, 6), name, members(group), listener, identity
    )
    assert (notified, refused) == ([], others)
    for other in others:
        error = failure_of(waiting[other])
        assert error.peer == name
        assert "no agreement with what answers there" in str(error)
        reason = (
            "it has no certificate" if keys == "none" else "its certificate has the fingerprint"
        )
        assert f"{name} at 127.0.0.1:{group.ports[name]} ({reason}" in str(error)
    assert time.monotonic() - start < 8.0


@pytest.mark.parametrize("keys", ["valid", "none"])
def test_an_unauthenticated_caller_gets_no_notice(
    group: MemberGroup, other_identity: Identity, keys: str
) -> None:
    """A caller that cannot authenticate as a member gets only a hello."""
    close(group, "bob", "cid")
    identity = group.identities["ann"] if keys == "valid" else None
    notifying = threading.Thread(
        target=notify_failure,
        args=(FailureNotice("ann", 4), "ann", members(group), group.listeners["ann"], identity),
    )
    notifying.start()
    certificate = b"" if identity is None else identity.certificate
    hello = b"PVHELLO2" + bytes(32) + b"\x03\x00ann" + struct.pack("<H", len(certificate))
    for certificate_shown in (other_identity.certificate, b""):
        with socket.create_connection(group.listeners["ann"].getsockname()) as connection:
            connection.settimeout(5)
            prefixed = struct.pack("<H", len(certificate_shown)) + certificate_shown
            connection.sendall(b"PVHELLO2" + bytes(32) + b"\x03\x00bob" + prefixed)
            received = b""
            with contextlib.suppress(ConnectionError):
                while chunk := connection.recv(10_000):
                    received += chunk
        assert received == hello + certificate
    notifying.join()


@settings(max_examples=500)
@given(st.integers(0, 255), st.one_of(st.integers(0, 2**32 - 1), st.sampled_from(NAMES)))
def test_invalid_notices_are_refused(code: int, member: int | str) -> None:
    handshake = Handshake("ann", dict.fromkeys(NAMES), bytes(32), None)
    content = struct.pack("<BI", code, hash_name(member) if isinstance(member, str) else member)
    if content == bytes(5):
        assert handshake._unpack_notice("bob", content) is None
    elif isinstance(member, str) and code in (1, 3, 4, 5, 6, 7, 8, 9, 130):
        assert handshake._unpack_notice("bob", content) == FailureNotice(member, code)
    else:
        with pytest.raises(HandshakeRefusedError, match="a failure that cannot be"):
            handshake._unpack_notice("bob", content)


def test_invalid_notices_do_not_end_the_waiting(
    group: MemberGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bob authenticates, and then sends invalid notices."""
    ann = group.connect("ann")
    for notice in (b"\xff" * 5, b"\x04" + bytes(4), b"\x00" + struct.pack("<I", hash_name("cid"))):
        with monkeypatch.context() as patch:
            patch.setattr(Handshake, "_pack_notice", lambda _, notice=notice: notice)
            connection = socket.create_connection(group.listeners["ann"].getsockname())
            handshake = Handshake("bob", dict(group.pinned), bytes(32), group.identities["bob"])
            with contextlib.suppress(HandshakeRefusedError):  # ann runs the same patched code
                _, connection, _ = handshake.run(connection, {"ann"}, is_client=True)
            connection.close()
        time.sleep(0.2)
    connect_all(group, ann, group.connect("bob"))


def test_without_running_members_it_ends_at_once(group: MemberGroup) -> None:
    for name in NAMES:
        with listen() as listener:
            close(group, *NAMES)
            start = time.monotonic()
            notified, _ = notify_failure(
                FailureNotice(name, 4), name, members(group), listener, group.identities[name]
            )
            assert notified == []
            assert time.monotonic() - start < 1.0


def test_the_wait_for_unresponsive_members_is_short(group: MemberGroup) -> None:
    """A listener that accepts no connection is like an address that drops all packets."""
    start = time.monotonic()
    assert notify(group, "bob") == []
    assert time.monotonic() - start < rendezvous._CALL_SECONDS + 1.0


@pytest.mark.usefixtures("short_timeouts")
def test_detecting_a_running_process_of_the_same_member(
    group: MemberGroup, other_identity: Identity
) -> None:
    address = group.listeners["ann"].getsockname()[:2]
    ann = group.connect("ann")
    assert is_member_running_at("ann", address, group.identities["ann"])
    assert not is_member_running_at("ann", address, other_identity)
    assert not is_member_running_at("bob", address, group.identities["bob"])
    connect_all(group, ann, group.connect("bob"))
    close(group, "ann")
    assert not is_member_running_at("ann", address, group.identities["ann"])


def test_notices_contain_only_exit_codes() -> None:
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
