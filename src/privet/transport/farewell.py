"""Telling the other members of a session that one cannot take part, so that nobody waits in vain.

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
from collections.abc import Sequence

from privet.transport.greeting import SESSION_BYTES, Failure, Greeter, RefusedError
from privet.transport.identity import Identity
from privet.transport.mesh import Member, answer_calls

_ANY_SESSION = bytes(SESSION_BYTES)
_RETRY_SECONDS = 0.1
# Those who wait and whose address is not open to us call us ten times a second.
_LISTEN_SECONDS = 0.3
# How long a call may take, ours or theirs.
_CALL_SECONDS = 2.0
# One who is there and does not believe us calls once a second, until it has given us up: we stay
# until it is quiet, and longer than its patience lasts.
_REFUSED_RETRY_SECONDS = 1.0
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
