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
from privet.transport.connection import NO_KIN, Doubt, Kin, PeerLink
from privet.transport.frames import ALIVE, name_tag
from privet.transport.handshake import (
    HELLO_SECONDS,
    SESSION_BYTES,
    Failure,
    Greeter,
    RefusedError,
    UnprovenError,
)
from privet.transport.tls import Identity

SILENCE_SECONDS = 10.0
"""Without a sign of life for so long, a peer is given up."""
OnWait = Callable[[str, Sequence[str]], None]
"""Is told, while others are missing, for whom we wait and why, and their names."""
_SAID = (Doubt.ITS_OWN, Doubt.BLAMES)
FIRST_WORDS = 1 << 24
"""How many bytes anybody may send before all others are there."""


class Arrivals:
    """The connections to those who have come."""

    def __init__(self, names: Iterable[str], silence: float, kin: Kin = NO_KIN) -> None:
        self.links: dict[str, PeerLink] = {}
        self._names = {name_tag(name): name for name in names}
        self._silence = silence
        self._kin = kin
        self._showed_life = time.monotonic()

    def add(self, peer: str, connection: socket.socket) -> None:
        """Take note that somebody has come; of one that came before, the newest counts."""
        self.close(peer)
        connection.setblocking(False)
        self.links[peer] = PeerLink(peer, connection, FIRST_WORDS, self._names, self._kin)

    def close(self, *peers: str) -> None:
        """Hang up on some of them."""
        for peer in peers:
            if peer in self.links:
                self.links.pop(peer).socket.close()

    def look(self) -> dict[str, str]:
        """Show life to all, and see whether they live; return who is gone again, and how."""
        now = time.monotonic()
        showing = now - self._showed_life > self._silence / 5
        if showing:
            self._showed_life = now
        gone = {}
        for peer, link in list(self.links.items()):
            if link.inbox_bytes < FIRST_WORDS:
                link.read()
            else:
                link.heard = now  # it is we who do not listen
            if showing and link.error is None:
                link.say(ALIVE)
            trouble = self._trouble(link, now)
            if trouble is not None:
                gone[peer] = f"was here, but {trouble}"
                self.close(peer)
        return gone

    def _trouble(self, link: PeerLink, now: float) -> str | None:
        if link.error is None:
            silent = now - link.heard > self._silence
            return f"nothing was heard from it for {self._silence:g} s" if silent else None
        if isinstance(link.error, PeerLostError) and link.doubt not in _SAID:
            return "hung up"
        return link.error.problem


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


def connect(
    name: str,
    members: Sequence[Member],
    listener: socket.socket,
    *,
    session: bytes = bytes(SESSION_BYTES),
    identity: Identity | None = None,
    peers: Sequence[str] | None = None,
    timeout: float = 60.0,
    silence: float = SILENCE_SECONDS,
    on_wait: OnWait | None = None,
    kin: Kin = NO_KIN,
) -> dict[str, PeerLink]:
    """Return connections to the named peers (by default to all other members).

    Who has come is missing again if it hangs up, or shows no life for `silence` seconds. Of its
    kin, whom each has beside these, the others may hear that one was lost.
    Raises PeerLostError that names everyone who could not be reached, where, and why; it is a
    PeerFailedError if somebody cannot take part. The listener stays open, for the caller to close.
    """
    if identity is None and any(member.fingerprint is not None for member in members):
        raise ParameterError("identity: members with fingerprints are met over TLS, with one's own")
    arrivals = Arrivals([member.name for member in members], silence, kin)
    meeting = _Meeting(name, members, listener, session, identity, peers, arrivals)
    return meeting.hold(timeout, on_wait)


def answer_calls(
    listener: socket.socket, answer: Callable[[socket.socket], None], over: threading.Event
) -> None:
    """Hand every connection that comes to a thread of its own, until it is over."""
    with contextlib.suppress(OSError):  # closed already, by who was interrupted
        listener.settimeout(_RETRY_SECONDS)
    while not over.is_set():
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        except OSError:  # a caller that is gone already, or too many at once
            over.wait(_RETRY_SECONDS)
            continue
        connection.settimeout(HELLO_SECONDS)
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


class _Meeting:
    def __init__(
        self,
        name: str,
        members: Sequence[Member],
        listener: socket.socket,
        session: bytes,
        identity: Identity | None,
        peers: Sequence[str] | None,
        arrivals: Arrivals,
    ) -> None:
        assert len(session) == SESSION_BYTES
        self.members = {member.name: member for member in members}
        order = [member.name for member in members]
        wanted = [m for m in order if m != name] if peers is None else list(peers)
        self.listener = listener
        self.greeter = Greeter(name, {m.name: m.fingerprint for m in members}, session, identity)
        self.callers = {peer for peer in wanted if order.index(peer) > order.index(name)}
        self.called = {peer for peer in wanted if order.index(peer) < order.index(name)}
        self.arrivals = arrivals
        self.found = arrivals.links
        self.trouble: dict[str, str] = {}
        self.strangers: deque[str] = deque(maxlen=8)  # anybody may call: enough to find a cause
        self.doubted: set[str] = set()
        self.failed: PeerFailedError | None = None
        self.changed = threading.Condition()
        self.over = threading.Event()

    def hold(self, timeout: float, on_wait: OnWait | None) -> dict[str, PeerLink]:
        answering = threading.Thread(
            target=answer_calls, args=(self.listener, self._answer, self.over), daemon=True
        )
        calling = [threading.Thread(target=self._call, args=(p,), daemon=True) for p in self.called]
        try:
            for thread in (answering, *calling):
                thread.start()
            self._wait(timeout, on_wait)
        except BaseException:
            self.arrivals.close(*self.found)
            raise
        finally:
            self.over.set()
            if answering.is_alive():
                answering.join()
        for thread in calling:
            thread.join(HELLO_SECONDS + 1)
        return self.found

    def _wait(self, timeout: float, on_wait: OnWait | None) -> None:
        """Return when all are found; raise PeerLostError when they will not be, or time is up."""
        start = told = time.monotonic()
        with self.changed:
            while missing := self._missing():
                if self.failed is not None:
                    raise self.failed
                now = time.monotonic()
                if now - start > timeout:
                    refused = ", ".join(tuple(self.strangers))
                    raise PeerLostError(
                        missing[0],
                        f"not reached within {timeout:g} s: {self._explain(missing)}"
                        + (f"; refused: {refused}" if refused else ""),
                    )
                if on_wait is not None and now - told >= 1.0:
                    told = now
                    on_wait(f"waiting for {self._explain(missing)} ({now - start:.0f} s)", missing)
                self.changed.wait(0.1)
            self.over.set()  # before anybody else could come, and take a place that is filled

    def _missing(self) -> list[str]:
        """Return who has not come yet, or has gone again."""
        self.trouble |= self.arrivals.look()
        return sorted((self.callers | self.called) - set(self.found))

    def _explain(self, missing: Sequence[str]) -> str:
        return ", ".join(
            f"{peer} ({self.trouble.get(peer, 'did not connect to us yet')})"
            if peer in self.callers
            else self._place(peer)
            for peer in missing
        )

    def _place(self, peer: str) -> str:
        member = self.members[peer]
        return f"{peer} at {member.host}:{member.port} ({self.trouble.get(peer, 'no answer yet')})"

    def _call(self, peer: str) -> None:
        """Call a peer until all are there, or what answers has refused us for too long."""
        refused_since = math.inf
        while not self.over.is_set():
            pause = _RETRY_SECONDS
            try:
                self._call_once(peer)
                refused_since = math.inf
            except OSError as error:
                self.trouble[peer] = str(error) or type(error).__name__
                refused_since = math.inf
            except RefusedError as error:
                refused_since = self._lose_hope(peer, error, refused_since)
                pause = _REFUSED_RETRY_SECONDS
            self.over.wait(pause)

    def _look_for(self, peer: str) -> None:
        """See who is at the address of one that should call us, once a caller was not that one.

        We begin later than it did, so that it gives up before us: there is something to be mended.
        """
        refused_since = math.inf
        while not self.over.wait(_REFUSED_RETRY_SECONDS):
            try:
                self._call_once(peer)
                refused_since = math.inf
            except UnprovenError as error:
                refused_since = self._lose_hope(peer, error, refused_since)
            except (OSError, RefusedError):
                refused_since = math.inf

    def _call_once(self, peer: str) -> None:
        if peer not in self.found:
            address = self.members[peer].host, self.members[peer].port
            connection = socket.create_connection(address, timeout=HELLO_SECONDS)
            self._greet(connection, {peer}, calling=True)

    def _lose_hope(self, peer: str, error: RefusedError, since: float) -> float:
        """Give a peer up if it was refused for too long; return since when it is."""
        self.trouble[peer] = str(error)
        now = time.monotonic()
        if now - since >= _REFUSED_SECONDS:
            problem = f"no agreement with what answers there: {self._place(peer)}"
            self._fail(PeerFailedError(peer, problem))
        return min(since, now)

    def _fail(self, error: PeerFailedError) -> None:
        with self.changed:
            self.failed = self.failed or error
            self.changed.notify_all()

    def _answer(self, connection: socket.socket) -> None:
        try:
            self._greet(connection, self.callers | self.called, calling=False)
        except (OSError, RefusedError) as error:
            reason = str(error) or type(error).__name__
            peer = error.peer if isinstance(error, RefusedError) else None
            if peer is None:
                self.strangers.append(f"a caller that gave no name ({reason})")
            elif peer in self.callers:
                self.trouble[peer] = reason
                if isinstance(error, UnprovenError):
                    self._doubt(peer)
            else:
                self.strangers.append(f"{peer!r} ({reason})")

    def _doubt(self, peer: str) -> None:
        with self.changed:
            if peer in self.doubted:
                return
            self.doubted.add(peer)
        threading.Thread(target=self._look_for, args=(peer,), daemon=True).start()

    def _greet(self, connection: socket.socket, expected: set[str], *, calling: bool) -> None:
        """Greet whoever is there. It is found if it goes on, and we meet at this end."""
        peer, connection, failure = self.greeter.greet(connection, expected, calling=calling)
        with self.changed:
            if failure is not None:
                connection.close()
                self._fail(self._told(peer, failure))
            elif peer not in (self.called if calling else self.callers):
                connection.close()
                raise RefusedError("nobody expects it here", peer)
            elif self.over.is_set():
                connection.close()
                raise RefusedError("it came too late", peer)
            else:
                self.arrivals.add(peer, connection)
                self.changed.notify_all()

    def _told(self, teller: str, failure: Failure) -> PeerFailedError:
        if failure.who == self.greeter.name:
            seen = self._explain(self._missing())
            return PeerFailedError(teller, f"found that there is no agreement with us: {seen}")
        told = failure.told_by(teller)
        if failure.who in self.trouble:  # what we saw ourselves tells more than a code
            told += f"; we saw {self._explain([failure.who])}"
        return PeerFailedError(failure.who, told, failure.code)


_ANY_SESSION = bytes(SESSION_BYTES)
# Those who wait and whose address is not open to us call us ten times a second.
_LISTEN_SECONDS = 0.3
# How long a call may take, ours or theirs.
_CALL_SECONDS = 2.0
_QUIET_SECONDS = 2.0
_LONGEST_SECONDS = 10.0


def say_farewell(
    failure: Failure,
    name: str,
    members: Sequence[Member],
    listener: socket.socket | None,
    identity: Identity | None,
) -> tuple[list[str], list[str]]:
    """Tell all members who are there of a failure, ours or another's.

    Returns who was told, and who is there and was not, as we could not prove who we are.
    """
    farewell = _Farewell(failure, name, members, identity)
    farewell.hold(listener)
    refused = set(farewell.heard) - farewell.told - {failure.who}
    order = [member.name for member in members]
    return sorted(farewell.told, key=order.index), sorted(refused, key=order.index)


def answers_as(name: str, address: tuple[str, int], identity: Identity) -> bool:
    """Tell whether somebody of our name and certificate is at an address: a process of ours."""
    greeter = Greeter(name, {name: identity.fingerprint}, _ANY_SESSION, identity)
    until = time.monotonic() + _CALL_SECONDS
    try:
        with socket.create_connection(address, timeout=_CALL_SECONDS) as connection:
            greeter.say_hello(connection, {name}, until, calling=True)
    except (OSError, RefusedError):
        return False
    return True


class _Farewell:
    def __init__(
        self, failure: Failure, name: str, members: Sequence[Member], identity: Identity | None
    ) -> None:
        order = [member.name for member in members]
        self.others = {member.name: member for member in members if member.name != name}
        self.callers = {peer for peer in self.others if order.index(peer) > order.index(name)}
        fingerprints = {member.name: member.fingerprint for member in members}
        self.failure = failure
        self.greeter = Greeter(name, fingerprints, _ANY_SESSION, identity, failure)
        self.told: set[str] = set()
        self.tried: set[str] = set()
        self.answering = 0
        self.heard: dict[str, float] = {}
        self.changed = threading.Condition()
        self.over = threading.Event()

    def hold(self, listener: socket.socket | None) -> None:
        calls = [threading.Thread(target=self._call, args=(p,), daemon=True) for p in self.others]
        answers = []
        if listener is not None:
            given = (listener, self._answer, self.over)
            answers = [threading.Thread(target=answer_calls, args=given, daemon=True)]
        for thread in (*answers, *calls):
            thread.start()
        start = time.monotonic()
        try:
            with self.changed:
                while self._goes_on(start, listening=listener is not None):
                    self.changed.wait(0.05)
        finally:
            self.over.set()
            for thread in answers:  # the listener is not ours to close
                thread.join()

    def _goes_on(self, start: float, *, listening: bool) -> bool:
        """Tell whether somebody may still be told."""
        now = time.monotonic()
        left = set(self.others) - self.told
        if listening and self.callers & left and now - start < _LISTEN_SECONDS:
            return True
        if (self.answering or left - self.tried) and now - start < _CALL_SECONDS:
            return bool(left)
        # Whose failure it is may be there as well, without its keys: that need not be waited for.
        left.discard(self.failure.who)
        there = {peer for peer in left if now - self.heard.get(peer, -math.inf) < _QUIET_SECONDS}
        return bool(there) and now - start < _LONGEST_SECONDS

    def _call(self, peer: str) -> None:
        address = self.others[peer].host, self.others[peer].port
        while not self.over.is_set() and peer not in self.told:
            pause = _RETRY_SECONDS
            try:
                connection = socket.create_connection(address, timeout=_CALL_SECONDS)
                self._greet(connection, {peer}, calling=True)
            except RefusedError:
                pause = _REFUSED_RETRY_SECONDS
            except OSError:  # it is not there
                pass
            with self.changed:
                self.tried.add(peer)
                self.changed.notify_all()
            self.over.wait(pause)

    def _answer(self, connection: socket.socket) -> None:
        self._count_answers(1)
        with contextlib.suppress(OSError, RefusedError):
            self._greet(connection, set(self.others), calling=False)
        self._count_answers(-1)

    def _count_answers(self, more: int) -> None:
        with self.changed:
            self.answering += more
            self.changed.notify_all()

    def _greet(self, connection: socket.socket, expected: set[str], *, calling: bool) -> None:
        try:
            peer, connection, _ = self.greeter.greet(connection, expected, calling=calling)
        except RefusedError as error:
            if error.peer in expected:
                self.heard[error.peer] = time.monotonic()
            raise
        connection.close()
        with self.changed:
            self.told.add(peer)
            self.changed.notify_all()
