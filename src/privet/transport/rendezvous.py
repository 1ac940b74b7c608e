"""The rendezvous of a session's members, in any order, and the failure notices to them.

Of two members, the first one in the member list listens; the other connects, and retries until it
succeeds or a timeout passes. Both authenticate each other on every connection
(`transport.handshake`).

Two events end the waiting early. First, an authenticated member reports that it, or another member,
cannot join (`notify_failure`). It is believed, because it could just as well stay away. Second,
whatever answers at a member's address fails to authenticate as this member for several seconds.
Whoever controls the address can keep the member away in any case.

A refused caller never ends the waiting, because anybody can call under any name. But if it used the
name of a member, we probe the member's address. A member that has lost its keys answers there, and
fails to authenticate; an unauthenticated peer that calls from elsewhere does not answer there. The
probe counts only answers in the name of the member: the address of a caller may be closed to us, so
anything else can answer there.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from privet.errors import ParameterError, PeerFailedError, PeerLostError, UnavailableError
from privet.transport.connection import NO_RELATIVES, CauseRank, PeerConnection, Relatives
from privet.transport.frames import HEARTBEAT_FRAME, hash_name
from privet.transport.handshake import (
    HANDSHAKE_TIMEOUT_SECONDS,
    SESSION_ID_BYTES,
    FailureNotice,
    Handshake,
    HandshakeRefusedError,
    UnauthenticatedPeerError,
)
from privet.transport.tls import Identity

PEER_TIMEOUT_SECONDS = 10.0
"""A peer without a heartbeat for this long is lost."""
WaitCallback = Callable[[str, Sequence[str]], None]
"""Receives, while members are missing, a text with the reasons, and the members' names."""
_EXPLAINED_RANKS = (CauseRank.SELF_REPORTED, CauseRank.BLAMES_OTHER)
MAX_EARLY_BYTES = 1 << 24
"""Limit for the bytes that a peer can send before all members are connected."""


class AcceptedPeers:
    """The connections to peers that are connected while others are still missing.

    An accepted peer can fail or freeze, and connect again: its newest connection counts. The
    waiting can last for days, so peers exchange heartbeats every few seconds, and a frozen peer is
    noticed as soon as during a program. A peer that already has all its connections can send its
    first messages: they are kept for the program.
    """

    def __init__(
        self, names: Iterable[str], peer_timeout: float, relatives: Relatives = NO_RELATIVES
    ) -> None:
        self.connections: dict[str, PeerConnection] = {}
        self._names = {hash_name(name): name for name in names}
        self._peer_timeout = peer_timeout
        self._relatives = relatives
        self._last_heartbeat = time.monotonic()

    def add(self, peer: str, sock: socket.socket) -> None:
        """Add a connected peer; replace an earlier connection of the same peer."""
        self.disconnect(peer)
        sock.setblocking(False)
        self.connections[peer] = PeerConnection(
            peer, sock, MAX_EARLY_BYTES, self._names, self._relatives
        )

    def disconnect(self, *peers: str) -> None:
        """Close the connections of some peers."""
        for peer in peers:
            if peer in self.connections:
                self.connections.pop(peer).sock.close()

    def poll(self) -> dict[str, str]:
        """Send heartbeats, read from all peers, and return disconnected ones with the reasons."""
        now = time.monotonic()
        is_heartbeat_due = now - self._last_heartbeat > self._peer_timeout / 5
        if is_heartbeat_due:
            self._last_heartbeat = now
        disconnected = {}
        for peer, connection in list(self.connections.items()):
            if connection.inbox_bytes < MAX_EARLY_BYTES:
                connection.read()
            else:
                connection.last_heard = now  # we do not read from it: it is not silent
            if is_heartbeat_due and connection.error is None:
                connection.send_control(HEARTBEAT_FRAME)
            problem = self._find_problem(connection, now)
            if problem is not None:
                disconnected[peer] = f"was here, but {problem}"
                self.disconnect(peer)
        return disconnected

    def _find_problem(self, connection: PeerConnection, now: float) -> str | None:
        if connection.error is None:
            silent = now - connection.last_heard > self._peer_timeout
            return f"nothing was heard from it for {self._peer_timeout:g} s" if silent else None
        if (
            isinstance(connection.error, PeerLostError)
            and connection.cause_rank not in _EXPLAINED_RANKS
        ):
            return "hung up"
        return connection.error.problem


_RETRY_SECONDS = 0.1
# After a refusal somebody must fix the cause first, so we call less often, and not for long.
_REFUSED_RETRY_SECONDS = 1.0
_REFUSED_SECONDS = 3.0


@dataclass(frozen=True)
class Member:
    """A member of the session: its address, and the fingerprint that it must authenticate with."""

    name: str
    host: str
    port: int
    fingerprint: str | None = None


def listen(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """Return a listening socket."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=64)
    except OSError as error:
        problem = str(error.strerror).partition(" (while attempting")[0]
        raise UnavailableError(f"cannot listen on {host}:{port}: {problem}") from error


def connect_members(
    name: str,
    members: Sequence[Member],
    listener: socket.socket,
    *,
    session_id: bytes = bytes(SESSION_ID_BYTES),
    identity: Identity | None = None,
    peers: Sequence[str] | None = None,
    timeout: float = 60.0,
    peer_timeout: float = PEER_TIMEOUT_SECONDS,
    on_wait: WaitCallback | None = None,
    relatives: Relatives = NO_RELATIVES,
) -> dict[str, PeerConnection]:
    """Return connections to the named peers (by default to all other members).

    A connected peer is missing again if it disconnects, or sends nothing for `peer_timeout`
    seconds. Failure notices can name `relatives`, to which these members are not connected.
    Raises PeerLostError with all unreachable members, their addresses and the reasons, or
    PeerFailedError if a member cannot join. The listener stays open, for the caller to close.
    """
    if identity is None and any(member.fingerprint is not None for member in members):
        raise ParameterError("identity: members with fingerprints are met over TLS, with one's own")
    accepted = AcceptedPeers([member.name for member in members], peer_timeout, relatives)
    rendezvous = _Rendezvous(name, members, listener, session_id, identity, peers, accepted)
    return rendezvous.run(timeout, on_wait)


def accept_connections(
    listener: socket.socket, answer: Callable[[socket.socket], None], stopped: threading.Event
) -> None:
    """Answer every accepted connection in a separate thread, until `stopped` is set."""
    with contextlib.suppress(OSError):  # closed already, after an interruption
        listener.settimeout(_RETRY_SECONDS)
    while not stopped.is_set():
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        except OSError:  # the caller has disconnected, or too many at once
            stopped.wait(_RETRY_SECONDS)
            continue
        connection.settimeout(HANDSHAKE_TIMEOUT_SECONDS)
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


class _Rendezvous:
    def __init__(
        self,
        name: str,
        members: Sequence[Member],
        listener: socket.socket,
        session_id: bytes,
        identity: Identity | None,
        peers: Sequence[str] | None,
        accepted: AcceptedPeers,
    ) -> None:
        assert len(session_id) == SESSION_ID_BYTES
        self.members = {member.name: member for member in members}
        order = [member.name for member in members]
        wanted = [m for m in order if m != name] if peers is None else list(peers)
        self.listener = listener
        self.handshake = Handshake(
            name, {m.name: m.fingerprint for m in members}, session_id, identity
        )
        self.callers = {peer for peer in wanted if order.index(peer) > order.index(name)}
        self.callees = {peer for peer in wanted if order.index(peer) < order.index(name)}
        self.accepted = accepted
        self.connections = accepted.connections
        self.problems: dict[str, str] = {}
        self.unauthenticated: deque[str] = deque(
            maxlen=8
        )  # anybody can call: enough to find a cause
        self.probed: set[str] = set()
        self.failure: PeerFailedError | None = None
        self.changed = threading.Condition()
        self.stopped = threading.Event()

    def run(self, timeout: float, on_wait: WaitCallback | None) -> dict[str, PeerConnection]:
        answer_thread = threading.Thread(
            target=accept_connections,
            args=(self.listener, self._answer_call, self.stopped),
            daemon=True,
        )
        call_threads = [
            threading.Thread(target=self._call_peer, args=(peer,), daemon=True)
            for peer in self.callees
        ]
        try:
            for thread in (answer_thread, *call_threads):
                thread.start()
            self._wait(timeout, on_wait)
        except BaseException:
            self.accepted.disconnect(*self.connections)
            raise
        finally:
            self.stopped.set()
            if answer_thread.is_alive():
                answer_thread.join()
        for thread in call_threads:
            thread.join(HANDSHAKE_TIMEOUT_SECONDS + 1)
        return self.connections

    def _wait(self, timeout: float, on_wait: WaitCallback | None) -> None:
        """Return when all peers are connected; raise PeerLostError on a failure or timeout."""
        start = reported_at = time.monotonic()
        with self.changed:
            while missing := self._missing():
                if self.failure is not None:
                    raise self.failure
                now = time.monotonic()
                if now - start > timeout:
                    refused = ", ".join(tuple(self.unauthenticated))
                    raise PeerLostError(
                        missing[0],
                        f"not reached within {timeout:g} s: {self._explain(missing)}"
                        + (f"; refused: {refused}" if refused else ""),
                    )
                if on_wait is not None and now - reported_at >= 1.0:
                    reported_at = now
                    on_wait(f"waiting for {self._explain(missing)} ({now - start:.0f} s)", missing)
                self.changed.wait(0.1)
            self.stopped.set()  # before another connection could replace one of these

    def _missing(self) -> list[str]:
        """Return the peers that are not connected yet, or disconnected again."""
        self.problems |= self.accepted.poll()
        return sorted((self.callers | self.callees) - set(self.connections))

    def _explain(self, missing: Sequence[str]) -> str:
        return ", ".join(
            f"{peer} ({self.problems.get(peer, 'did not connect to us yet')})"
            if peer in self.callers
            else self._describe_address(peer)
            for peer in missing
        )

    def _describe_address(self, peer: str) -> str:
        member = self.members[peer]
        return f"{peer} at {member.host}:{member.port} ({self.problems.get(peer, 'no answer yet')})"

    def _call_peer(self, peer: str) -> None:
        """Call a peer until all peers are connected, or the handshake was refused for too long."""
        refused_since = math.inf
        while not self.stopped.is_set():
            pause = _RETRY_SECONDS
            try:
                self._call_once(peer)
                refused_since = math.inf
            except OSError as error:
                self.problems[peer] = str(error) or type(error).__name__
                refused_since = math.inf
            except HandshakeRefusedError as error:
                refused_since = self._give_up_if_refused(peer, error, refused_since)
                pause = _REFUSED_RETRY_SECONDS
            self.stopped.wait(pause)

    def _probe_address(self, peer: str) -> None:
        """Probe the address of a peer, after an unauthenticated caller used its name.

        The probe starts later than the caller's attempts, so that the caller gives up before us.
        """
        refused_since = math.inf
        while not self.stopped.wait(_REFUSED_RETRY_SECONDS):
            try:
                self._call_once(peer)
                refused_since = math.inf
            except UnauthenticatedPeerError as error:
                refused_since = self._give_up_if_refused(peer, error, refused_since)
            except (OSError, HandshakeRefusedError):
                refused_since = math.inf

    def _call_once(self, peer: str) -> None:
        if peer not in self.connections:
            address = self.members[peer].host, self.members[peer].port
            connection = socket.create_connection(address, timeout=HANDSHAKE_TIMEOUT_SECONDS)
            self._shake_hands(connection, {peer}, is_client=True)

    def _give_up_if_refused(self, peer: str, error: HandshakeRefusedError, since: float) -> float:
        """Fail if a peer was refused for too long; return the start of the refusals."""
        self.problems[peer] = str(error)
        now = time.monotonic()
        if now - since >= _REFUSED_SECONDS:
            problem = f"no agreement with what answers there: {self._describe_address(peer)}"
            self._fail(PeerFailedError(peer, problem))
        return min(since, now)

    def _fail(self, error: PeerFailedError) -> None:
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()

    def _answer_call(self, sock: socket.socket) -> None:
        try:
            self._shake_hands(sock, self.callers | self.callees, is_client=False)
        except (OSError, HandshakeRefusedError) as error:
            reason = str(error) or type(error).__name__
            peer = error.peer if isinstance(error, HandshakeRefusedError) else None
            if peer is None:
                self.unauthenticated.append(f"a caller that gave no name ({reason})")
            elif peer in self.callers:
                self.problems[peer] = reason
                if isinstance(error, UnauthenticatedPeerError):
                    self._start_probe(peer)
            else:
                self.unauthenticated.append(f"{peer!r} ({reason})")

    def _start_probe(self, peer: str) -> None:
        with self.changed:
            if peer in self.probed:
                return
            self.probed.add(peer)
        threading.Thread(target=self._probe_address, args=(peer,), daemon=True).start()

    def _shake_hands(self, sock: socket.socket, expected: set[str], *, is_client: bool) -> None:
        """Run the handshake; accept the peer if it continues, in the expected direction."""
        peer, sock, failure = self.handshake.run(sock, expected, is_client=is_client)
        with self.changed:
            if failure is not None:
                sock.close()
                self._fail(self._make_failure_error(peer, failure))
            elif peer not in (self.callees if is_client else self.callers):
                sock.close()
                raise HandshakeRefusedError("nobody expects it here", peer)
            elif self.stopped.is_set():
                sock.close()
                raise HandshakeRefusedError("it came too late", peer)
            else:
                self.accepted.add(peer, sock)
                self.changed.notify_all()

    def _make_failure_error(self, reporter: str, failure: FailureNotice) -> PeerFailedError:
        if failure.member == self.handshake.name:
            explanation = self._explain(self._missing())
            return PeerFailedError(
                reporter, f"found that there is no agreement with us: {explanation}"
            )
        problem = failure.describe(reporter)
        if failure.member in self.problems:  # a local observation says more than an exit code
            problem += f"; we saw {self._explain([failure.member])}"
        return PeerFailedError(failure.member, problem, failure.exit_code)


_ANY_SESSION = bytes(SESSION_ID_BYTES)
# Waiting members whose addresses are closed to us call us ten times a second.
_LISTEN_SECONDS = 0.3
# Limit for a call in either direction.
_CALL_SECONDS = 2.0
_QUIET_SECONDS = 2.0
_MAX_NOTIFY_SECONDS = 10.0


def notify_failure(
    failure: FailureNotice,
    name: str,
    members: Sequence[Member],
    listener: socket.socket | None,
    identity: Identity | None,
) -> tuple[list[str], list[str]]:
    """Send a failure notice, about the local member or another one, to all running members.

    We call all other members, and answer their calls for a moment, with the handshake of a
    rendezvous and the notice at its end. Only an authenticated member receives the notice, and
    members believe only an authenticated member. Without its keys, a member cannot send a notice.
    It shows that it has no certificate to its callers, until they have given it up; members that it
    should call find out by a probe of its address.

    Returns as soon as all running members have received the notice: almost at once without any.
    Returns the notified members, and the running members that have refused us as unauthenticated.
    """
    notifier = _FailureNotifier(failure, name, members, identity)
    notifier.run(listener)
    refused = set(notifier.refused_at) - notifier.notified - {failure.member}
    order = [member.name for member in members]
    return sorted(notifier.notified, key=order.index), sorted(refused, key=order.index)


def is_member_running_at(name: str, address: tuple[str, int], identity: Identity) -> bool:
    """Return whether a process with our name and certificate is running at an address."""
    handshake = Handshake(name, {name: identity.fingerprint}, _ANY_SESSION, identity)
    deadline = time.monotonic() + _CALL_SECONDS
    try:
        with socket.create_connection(address, timeout=_CALL_SECONDS) as connection:
            handshake.exchange_hellos(connection, {name}, deadline, is_client=True)
    except (OSError, HandshakeRefusedError):
        return False
    return True


class _FailureNotifier:
    def __init__(
        self,
        failure: FailureNotice,
        name: str,
        members: Sequence[Member],
        identity: Identity | None,
    ) -> None:
        order = [member.name for member in members]
        self.others = {member.name: member for member in members if member.name != name}
        self.callers = {peer for peer in self.others if order.index(peer) > order.index(name)}
        fingerprints = {member.name: member.fingerprint for member in members}
        self.failure = failure
        self.handshake = Handshake(name, fingerprints, _ANY_SESSION, identity, failure)
        self.notified: set[str] = set()
        self.attempted: set[str] = set()
        self.n_answering = 0
        self.refused_at: dict[str, float] = {}
        self.changed = threading.Condition()
        self.stopped = threading.Event()

    def run(self, listener: socket.socket | None) -> None:
        call_threads = [
            threading.Thread(target=self._call_peer, args=(peer,), daemon=True)
            for peer in self.others
        ]
        answer_threads = []
        if listener is not None:
            arguments = (listener, self._answer_call, self.stopped)
            answer_threads = [
                threading.Thread(target=accept_connections, args=arguments, daemon=True)
            ]
        for thread in (*answer_threads, *call_threads):
            thread.start()
        start = time.monotonic()
        try:
            with self.changed:
                while self._can_notify_more(start, listening=listener is not None):
                    self.changed.wait(0.05)
        finally:
            self.stopped.set()
            for thread in answer_threads:  # the caller closes the listener
                thread.join()

    def _can_notify_more(self, start: float, *, listening: bool) -> bool:
        """Return whether a member may still be reached."""
        now = time.monotonic()
        remaining = set(self.others) - self.notified
        if listening and self.callers & remaining and now - start < _LISTEN_SECONDS:
            return True
        if (self.n_answering or remaining - self.attempted) and now - start < _CALL_SECONDS:
            return bool(remaining)
        # Do not wait for the failed member, which may be running without its keys.
        remaining.discard(self.failure.member)
        running = {
            peer
            for peer in remaining
            if now - self.refused_at.get(peer, -math.inf) < _QUIET_SECONDS
        }
        return bool(running) and now - start < _MAX_NOTIFY_SECONDS

    def _call_peer(self, peer: str) -> None:
        address = self.others[peer].host, self.others[peer].port
        while not self.stopped.is_set() and peer not in self.notified:
            pause = _RETRY_SECONDS
            try:
                connection = socket.create_connection(address, timeout=_CALL_SECONDS)
                self._shake_hands(connection, {peer}, is_client=True)
            except HandshakeRefusedError:
                pause = _REFUSED_RETRY_SECONDS
            except OSError:  # nothing answers
                pass
            with self.changed:
                self.attempted.add(peer)
                self.changed.notify_all()
            self.stopped.wait(pause)

    def _answer_call(self, sock: socket.socket) -> None:
        self._count_answers(1)
        with contextlib.suppress(OSError, HandshakeRefusedError):
            self._shake_hands(sock, set(self.others), is_client=False)
        self._count_answers(-1)

    def _count_answers(self, more: int) -> None:
        with self.changed:
            self.n_answering += more
            self.changed.notify_all()

    def _shake_hands(self, sock: socket.socket, expected: set[str], *, is_client: bool) -> None:
        try:
            peer, sock, _ = self.handshake.run(sock, expected, is_client=is_client)
        except HandshakeRefusedError as error:
            if error.peer in expected:
                self.refused_at[error.peer] = time.monotonic()
            raise
        sock.close()
        with self.changed:
            self.notified.add(peer)
            self.changed.notify_all()
