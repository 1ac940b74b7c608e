"""The rendezvous of a session's members in any order, and the failure notices to them.

Of two members the one that stands first in the list listens and the other connects, again and again
until it succeeds or time is up. On every connection both greet and prove who they are
(`transport.greeting`).

Until all are there, whoever was found may die or freeze (`transport.arrivals`), and come again: its
newest connection counts.

Two things end the waiting before its time. One is a member that proves who it is and says that it,
or another one, cannot take part (`transport.farewell`). It could as well stay away, so it is
believed. The other is somebody at the address of a member who cannot prove to be that member, for
as long as we have patience. Whoever controls that address can keep the member from us anyway.

Whoever calls us and is refused never ends our waiting: anybody may call, under any name. But if it
came under the name of a member, we look who is at that member's address. A member that has lost its
keys answers there, and cannot prove anything, either; a stranger who calls from elsewhere does not.
There we only mind those who say that they are the member. The address of one that calls us may not
be open to us, so anything else may be there.

Waiting may last for days. Whoever has come shows every few seconds that it is still there, so one
that froze, or whose machine lost its power, is noticed as soon as in the middle of a program.

One that has met everybody already may have sent its first words: they are kept for the program.

Whoever fails before all have met calls all others, and is there to be called by them, for a moment:
it greets as at any meeting, and says what failed instead of going on. Only who proves to be a
member is told, and only who proves to be one is believed.

Without its keys a member cannot tell anything. It shows that it has none, where it is called, until
the others have given it up; those that it should call find that out where it should be reached
(`transport.mesh`).

It ends as soon as everybody was told who is there. Where nobody is, that is almost at once.
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
"""Without a sign of life for so long, a peer is given up."""
WaitCallback = Callable[[str, Sequence[str]], None]
"""Is told, while others are missing, for whom we wait and why, and their names."""
_EXPLAINED_RANKS = (CauseRank.SELF_REPORTED, CauseRank.BLAMES_OTHER)
MAX_EARLY_BYTES = 1 << 24
"""How many bytes anybody may send before all others are there."""


class AcceptedPeers:
    """The connections to those who have come."""

    def __init__(
        self, names: Iterable[str], peer_timeout: float, relatives: Relatives = NO_RELATIVES
    ) -> None:
        self.connections: dict[str, PeerConnection] = {}
        self._names = {hash_name(name): name for name in names}
        self._peer_timeout = peer_timeout
        self._relatives = relatives
        self._last_heartbeat = time.monotonic()

    def add(self, peer: str, sock: socket.socket) -> None:
        """Take note that somebody has come; of one that came before, the newest counts."""
        self.disconnect(peer)
        sock.setblocking(False)
        self.connections[peer] = PeerConnection(
            peer, sock, MAX_EARLY_BYTES, self._names, self._relatives
        )

    def disconnect(self, *peers: str) -> None:
        """Hang up on some of them."""
        for peer in peers:
            if peer in self.connections:
                self.connections.pop(peer).sock.close()

    def poll(self) -> dict[str, str]:
        """Show life to all, and see whether they live; return who is gone again, and how."""
        now = time.monotonic()
        showing = now - self._last_heartbeat > self._peer_timeout / 5
        if showing:
            self._last_heartbeat = now
        gone = {}
        for peer, link in list(self.connections.items()):
            if link.inbox_bytes < MAX_EARLY_BYTES:
                link.read()
            else:
                link.last_heard = now  # it is we who do not listen
            if showing and link.error is None:
                link.send_control(HEARTBEAT_FRAME)
            trouble = self._find_problem(link, now)
            if trouble is not None:
                gone[peer] = f"was here, but {trouble}"
                self.disconnect(peer)
        return gone

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
# After a refusal there is something to be mended first, so we call less often, and not for long.
_REFUSED_RETRY_SECONDS = 1.0
_REFUSED_SECONDS = 3.0


@dataclass(frozen=True)
class Member:
    """Where a member of the session is reached, and who it must prove to be."""

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

    Who has come is missing again if it hangs up, or shows no life for `peer_timeout` seconds. Of
    its kin, whom each has beside these, the others may hear that one was lost.
    Raises PeerLostError that names everyone who could not be reached, where, and why; it is a
    PeerFailedError if somebody cannot take part. The listener stays open, for the caller to close.
    """
    if identity is None and any(member.fingerprint is not None for member in members):
        raise ParameterError("identity: members with fingerprints are met over TLS, with one's own")
    arrivals = AcceptedPeers([member.name for member in members], peer_timeout, relatives)
    meeting = _Rendezvous(name, members, listener, session_id, identity, peers, arrivals)
    return meeting.run(timeout, on_wait)


def accept_connections(
    listener: socket.socket, answer: Callable[[socket.socket], None], stopped: threading.Event
) -> None:
    """Hand every connection that comes to a thread of its own, until it is over."""
    with contextlib.suppress(OSError):  # closed already, by who was interrupted
        listener.settimeout(_RETRY_SECONDS)
    while not stopped.is_set():
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        except OSError:  # a caller that is gone already, or too many at once
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
        arrivals: AcceptedPeers,
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
        self.accepted = arrivals
        self.connections = arrivals.connections
        self.problems: dict[str, str] = {}
        self.unauthenticated: deque[str] = deque(
            maxlen=8
        )  # anybody may call: enough to find a cause
        self.probed: set[str] = set()
        self.failure: PeerFailedError | None = None
        self.changed = threading.Condition()
        self.stopped = threading.Event()

    def run(self, timeout: float, on_wait: WaitCallback | None) -> dict[str, PeerConnection]:
        answering = threading.Thread(
            target=accept_connections,
            args=(self.listener, self._answer_call, self.stopped),
            daemon=True,
        )
        calling = [
            threading.Thread(target=self._call_peer, args=(p,), daemon=True) for p in self.callees
        ]
        try:
            for thread in (answering, *calling):
                thread.start()
            self._wait(timeout, on_wait)
        except BaseException:
            self.accepted.disconnect(*self.connections)
            raise
        finally:
            self.stopped.set()
            if answering.is_alive():
                answering.join()
        for thread in calling:
            thread.join(HANDSHAKE_TIMEOUT_SECONDS + 1)
        return self.connections

    def _wait(self, timeout: float, on_wait: WaitCallback | None) -> None:
        """Return when all are found; raise PeerLostError when they will not be, or time is up."""
        start = told = time.monotonic()
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
                if on_wait is not None and now - told >= 1.0:
                    told = now
                    on_wait(f"waiting for {self._explain(missing)} ({now - start:.0f} s)", missing)
                self.changed.wait(0.1)
            self.stopped.set()  # before anybody else could come, and take a place that is filled

    def _missing(self) -> list[str]:
        """Return who has not come yet, or has gone again."""
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
        """Call a peer until all are there, or what answers has refused us for too long."""
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

    def _look_for(self, peer: str) -> None:
        """See who is at the address of one that should call us, once a caller was not that one.

        We begin later than it did, so that it gives up before us: there is something to be mended.
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
        """Give a peer up if it was refused for too long; return since when it is."""
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
        threading.Thread(target=self._look_for, args=(peer,), daemon=True).start()

    def _shake_hands(self, sock: socket.socket, expected: set[str], *, is_client: bool) -> None:
        """Greet whoever is there. It is found if it goes on, and we meet at this end."""
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
            seen = self._explain(self._missing())
            return PeerFailedError(reporter, f"found that there is no agreement with us: {seen}")
        told = failure.describe(reporter)
        if failure.member in self.problems:  # what we saw ourselves tells more than a code
            told += f"; we saw {self._explain([failure.member])}"
        return PeerFailedError(failure.member, told, failure.exit_code)


_ANY_SESSION = bytes(SESSION_ID_BYTES)
# Those who wait and whose address is not open to us call us ten times a second.
_LISTEN_SECONDS = 0.3
# How long a call may take, ours or theirs.
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
    """Tell all members who are there of a failure, ours or another's.

    Returns who was told, and who is there and was not, as we could not prove who we are.
    """
    farewell = _FailureNotifier(failure, name, members, identity)
    farewell.run(listener)
    refused = set(farewell.refused_at) - farewell.notified - {failure.member}
    order = [member.name for member in members]
    return sorted(farewell.notified, key=order.index), sorted(refused, key=order.index)


def is_member_running_at(name: str, address: tuple[str, int], identity: Identity) -> bool:
    """Tell whether somebody of our name and certificate is at an address: a process of ours."""
    greeter = Handshake(name, {name: identity.fingerprint}, _ANY_SESSION, identity)
    until = time.monotonic() + _CALL_SECONDS
    try:
        with socket.create_connection(address, timeout=_CALL_SECONDS) as connection:
            greeter.exchange_hellos(connection, {name}, until, is_client=True)
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
        calls = [
            threading.Thread(target=self._call_peer, args=(p,), daemon=True) for p in self.others
        ]
        answers = []
        if listener is not None:
            given = (listener, self._answer_call, self.stopped)
            answers = [threading.Thread(target=accept_connections, args=given, daemon=True)]
        for thread in (*answers, *calls):
            thread.start()
        start = time.monotonic()
        try:
            with self.changed:
                while self._can_notify_more(start, listening=listener is not None):
                    self.changed.wait(0.05)
        finally:
            self.stopped.set()
            for thread in answers:  # the listener is not ours to close
                thread.join()

    def _can_notify_more(self, start: float, *, listening: bool) -> bool:
        """Tell whether somebody may still be told."""
        now = time.monotonic()
        left = set(self.others) - self.notified
        if listening and self.callers & left and now - start < _LISTEN_SECONDS:
            return True
        if (self.n_answering or left - self.attempted) and now - start < _CALL_SECONDS:
            return bool(left)
        # Whose failure it is may be there as well, without its keys: that need not be waited for.
        left.discard(self.failure.member)
        there = {
            peer for peer in left if now - self.refused_at.get(peer, -math.inf) < _QUIET_SECONDS
        }
        return bool(there) and now - start < _MAX_NOTIFY_SECONDS

    def _call_peer(self, peer: str) -> None:
        address = self.others[peer].host, self.others[peer].port
        while not self.stopped.is_set() and peer not in self.notified:
            pause = _RETRY_SECONDS
            try:
                connection = socket.create_connection(address, timeout=_CALL_SECONDS)
                self._shake_hands(connection, {peer}, is_client=True)
            except HandshakeRefusedError:
                pause = _REFUSED_RETRY_SECONDS
            except OSError:  # it is not there
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
