"""Channels over connected sockets, and the attribution of failures to the peer at fault.

The thread that waits for an array does the reading and writing itself, so a round of small
messages costs no hand-over between threads; if several wait, one of them does it for all. While all
compute, another thread looks in fifty times a second: it moves what is ready to be moved, so that
transfers go on, and sends signs of life.

When a peer fails, the others are told who it was before they are hung up on. When all that we know
is what one peer says of another, we look at that other one for a moment before we repeat it.

Whoever loses a peer tells the others whom, and hangs up on them. So of several who have failed,
some did because of others, and say so.
"""

from __future__ import annotations

import contextlib
import copy
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from privet.errors import PeerError, PeerLostError, PeerSilentError
from privet.transport import frames
from privet.transport.channel import Array, Channel, Expected
from privet.transport.connection import INTERRUPTED, Doubt, LinkState, PeerLink, kin_tag
from privet.transport.frames import FAILED, GOODBYE, MAX_FRAME_BYTES, Header, name_tag
from privet.transport.rendezvous import SILENCE_SECONDS


def suspects(links: Collection[PeerLink]) -> list[PeerLink]:
    """Return those that failed, and of these those that are the least likely to have followed."""
    failed = [link for link in links if link.error is not None]
    least = min((link.doubt for link in failed), default=Doubt.NONE)
    return [link for link in failed if link.doubt == least]


def may_clear_up(links: Collection[PeerLink]) -> bool:
    """Tell whether a peer that seems to be well may turn out to have failed first."""
    well = {name_tag(link.peer) for link in links if link.error is None}
    return any(
        link.blamed in well or (link.doubt in (Doubt.TORN, Doubt.LEFT) and well)
        for link in suspects(links)
    )


def accuse(links: Sequence[PeerLink], where: str, step: str | None = None) -> PeerError:
    """Return the error of the first link, which mentions the others."""
    errors = [link.error for link in links if link.error is not None]
    also = "".join(f"; also {error}" for error in errors[1:])
    error = type(errors[0])(errors[0].peer, f"{errors[0].problem}{where}{also}", step)
    error.doubt = links[0].doubt
    return error


def refuse_missed(links: Collection[PeerLink], deadline: float) -> None:
    """Raise PeerError if somebody did not say goodbye, and blame who failed, if anybody did."""
    missed = [link for link in links if not link.said_goodbye]
    failed = suspects(missed)
    for link in [] if failed else missed:
        heard = "only signs of life" if time.monotonic() - link.heard < deadline else "nothing"
        link.error = PeerSilentError(link.peer, f"{heard} heard from it")
    if missed:
        raise accuse(failed or missed, " before its goodbye")


def culprit_of(error: BaseException | None, links: Mapping[str, PeerLink]) -> int:
    """Return the tag of the one whose failure an error was, or 0: it was our own."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    who = error.peer if isinstance(error, PeerError) else None
    if who is None:
        return 0
    if any(kin_tag(who) in link.kin for link in links.values()):
        return kin_tag(who)
    return name_tag(who) if who in links else 0


def tell_failure(links: Iterable[PeerLink], culprit: int, teller: int) -> None:
    """Tell the peers whom we lost; but the culprit itself, who told us so."""
    for link in links:
        tag = name_tag(link.peer)
        reason = teller if tag == culprit else culprit
        if link.error is None and tag != reason:
            link.say(FAILED, reason)


def blame_missing(
    due: Iterable[PeerLink], started: float, deadline: float, *, sending: bool
) -> None:
    """Note of peers whom we wait for since then that they have ended, or were silent for too long.

    If we wait for them to take what we send: of those who have not taken it all.
    """
    now = time.monotonic()
    for link in due:
        if link.error is not None or (sending and not link.outgoing):
            continue
        if link.said_goodbye:
            link.error = PeerLostError(link.peer, "has ended its part")
        elif now - max(link.heard, started) > deadline:
            silence = f"nothing heard from it for {deadline:g} s"
            link.error = PeerSilentError(link.peer, silence)


class Poller:
    """Connections, and what each of them is watched for."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._bell, self._ear = socket.socketpair()
        for end in (self._bell, self._ear):
            end.setblocking(False)
        self._poll.register(self._ear, select.POLLIN)
        self._waits = self._closed = False

    def watch(self, connection: socket.socket, interest: int) -> None:
        """Watch a connection for something; for nothing at all, if that is negative."""
        if interest >= 0:
            self._poll.register(connection, interest)
        else:
            self._poll.unregister(connection)
        self.ring()

    def wait(self, seconds: float, lock: threading.Condition) -> list[tuple[int, int]]:
        """Return which connections are ready, and for what; wait for one so long.

        Whoever waits lets go of the lock, so that others can send, and watch for more.
        """
        self._waits = seconds > 0
        if not self._waits:
            found = self._poll.poll(0)
        else:
            lock.release()
            try:
                found = self._poll.poll(1000 * seconds)
            finally:
                lock.acquire()
                self._waits = False
        if self._closed:
            self._ear.close()
            return []
        ear = self._ear.fileno()
        if any(descriptor == ear for descriptor, _ in found):
            with contextlib.suppress(BlockingIOError):
                self._ear.recv(1 << 12)
        return [(descriptor, event) for descriptor, event in found if descriptor != ear]

    def ring(self) -> None:
        """Have the thread that waits, if one does, look again at once."""
        if self._waits:
            with contextlib.suppress(BlockingIOError):
                self._bell.send(b"!")

    def close(self) -> None:
        """Free what ringing takes; whoever waits is woken, and frees the rest."""
        if self._closed:
            return
        self._closed = True
        self.ring()
        self._bell.close()
        if not self._waits:
            self._ear.close()


_TICK = 0.02
# How long the failure of one peer may take to show, once another one told us of it.
_GRACE = 0.5


class SocketChannel(Channel):
    """One process's end of its connections."""

    def __init__(
        self,
        name: str,
        links: Mapping[str, PeerLink],
        deadline: float = SILENCE_SECONDS,
        *,
        inbox_limit: int = 64 << 20,
        frame_limit: int = MAX_FRAME_BYTES,
    ) -> None:
        super().__init__(name, deadline)
        self.beside: SocketChannel | None = None
        """Another one of ours: who waits on this one wants to know whom that one has lost."""
        self._links = dict(links)
        self._by_descriptor = {link.socket.fileno(): link for link in self._links.values()}
        self._inbox_limit = inbox_limit
        self._poller = Poller()
        self._lock = threading.Condition(threading.Lock())
        """Held by whoever looks at the links; all are told when something has moved."""
        self._pumping = False
        self._closed = threading.Event()
        self._failure: PeerError | None = None
        self._leaving = False
        self._showed_life = time.monotonic()
        for link in self._links.values():
            link.reader.limit = frame_limit
            link.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._poller.watch(link.socket, link.interest)
            self._watch(link)
        self._ticker = threading.Thread(target=self._tick, name=f"links of {name}", daemon=True)
        self._ticker.start()

    @property
    def peers(self) -> tuple[str, ...]:
        """The names of the peers."""
        return tuple(self._links)

    def send(self, peer: str, array: Array, tag: int = 0, stream: int = 0) -> None:
        """Hand an array over; it must not be changed before `flush` returns."""
        with self._lock:
            for frame in frames.in_frames(array):
                self._send(self._links[peer], frame, tag, stream)

    def receive(self, peer: str, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        """Wait for the next array from a peer on one stream."""

        def receive(*due: Any) -> Array:
            return self._receive(self._links[peer], Expected(*due), tag, stream)

        with self._lock:
            return frames.from_frames(*expected, receive)

    def _send(self, link: PeerLink, array: Array, tag: int, stream: int = 0) -> None:
        if self._closed.is_set():
            self._refuse(link.peer)
        if link.error is not None:
            self._give_up_lost()
        link.queue_array(array, tag, stream)
        link.write()
        self._watch(link)

    def _receive(self, link: PeerLink, expected: Expected, tag: int, stream: int = 0) -> Array:
        inbox = link.inbox[stream]

        def check(header: Header) -> None:
            try:
                self.check(link.peer, header, expected, link.received[stream], tag)
            except PeerError as error:
                self._fail(error, link)

        def has_come() -> bool:
            begun = link.reader.begun
            if not inbox and begun is not None and begun.stream == stream:
                check(begun)  # or it could make us wait, and fill our memory
            return bool(inbox)

        if not inbox:
            link.awaited += 1
            self._watch(link)
            self._wait(has_come, [link])
            link.awaited -= 1
        check(inbox[0][0])
        array = link.take_out(stream)
        self._watch(link)
        return array

    def has_come(self, peer: str, stream: int = 0) -> bool:
        """Tell whether an array waits that the thread which looks in has taken in, or none will."""
        return bool(self._links[peer].inbox[stream]) or self._links[peer].error is not None

    def refuse_lost(self) -> None:
        """Raise if a peer is lost, without waiting for any."""
        with self._lock:
            if self._failure is not None:
                self._refuse(None)
            if not self._closed.is_set():
                self._give_up_lost()

    def flush(self) -> None:
        """Wait until everything handed over has left this process."""
        with self._lock:
            due = [link for link in self._links.values() if link.outgoing]
            self._wait(lambda: not any(link.outgoing for link in due), due, sending=True)

    def wait_for_room(self, limit: int, peers: Sequence[str]) -> None:
        """Wait until the backlog of one of these peers is at most `limit`."""
        links = [self._links[peer] for peer in peers]
        with self._lock:
            due = [link for link in links if link.outgoing]
            self._wait(lambda: any(one.outgoing_bytes <= limit for one in links), due, sending=True)

    def backlog(self, peer: str) -> int:
        """Return how many bytes are handed over for a peer and have not left yet."""
        return self._links[peer].outgoing_bytes

    def states(self) -> dict[str, LinkState]:
        """Return how the connection to each peer is; any thread may ask."""
        return {peer: LinkState.of(link) for peer, link in self._links.items()}

    def close(self, longest: float | None = None) -> None:
        """Say goodbye, wait until the peers have said it, too, and hang up.

        To hang up on a peer that is still sending, if only signs of life, would make it lose what
        we sent and it has not read yet. So we stay while it lives, but not for ever.
        """
        with self._lock:
            if not self._closed.is_set():
                self._leaving = True
                for link in self._links.values():
                    link.say(GOODBYE)
                    self._watch(link)
                started, longest = time.monotonic(), longest or self.goodbye_seconds
                while any(link.lives(self.deadline) for link in self._links.values()):
                    self._pump(_TICK)
                    taken = time.monotonic() - started
                    if suspects([link for link in self._links.values() if not link.said_goodbye]):
                        longest = min(longest, taken + _GRACE)
                    if taken > longest:
                        break
                self._hang_up()
                refuse_missed(self._links.values(), self.deadline)
        self._ticker.join()

    def abort(self) -> None:
        """Hang up at once, with a word about whose failure it is: a peer's, or our own."""
        culprit = culprit_of(sys.exc_info()[1], self._links)  # what made our caller abort
        with self._lock:
            if not self._closed.is_set():
                tell_failure(self._links.values(), culprit, culprit)
            self._hang_up()
        self._ticker.join()

    def _wait(
        self, ready: Callable[[], bool], due: list[PeerLink], *, sending: bool = False
    ) -> None:
        started, pause = time.monotonic(), min(1.0, self.deadline / 5)
        while not ready():
            if self._closed.is_set():
                self._refuse(None)
            self._pump(0 if suspects(self._links.values()) else pause)
            if ready():
                return
            blame_missing(due, started, self.deadline, sending=sending)
            self._give_up_lost()
            if self.beside is not None:
                self.beside.refuse_lost()

    def _give_up_lost(self) -> None:
        """Fail if a peer has: for the one that did first, as far as that can be found out soon."""
        links = self._links.values()
        if all(link.error is None for link in links):
            return
        until = time.monotonic() + _GRACE
        while may_clear_up(links) and (left := until - time.monotonic()) > 0:
            self._pump(left)
        first, *others = suspects(links)
        error = accuse([first, *others], self._at(), self.where())
        self._fail(error, first, first.blamed)

    def _fail(self, error: PeerError, link: PeerLink, blamed: int = 0) -> NoReturn:
        teller, us = name_tag(link.peer), name_tag(self.name)
        if not self._closed.is_set():
            self._failure = error
            tell_failure(self._links.values(), teller if blamed in (0, us) else blamed, teller)
            self._hang_up()
        raise error from None

    def _refuse(self, peer: str | None) -> NoReturn:
        """Raise why nothing is carried any more: to every thread the same."""
        if self._failure is not None:
            raise copy.copy(self._failure)
        raise PeerLostError(peer, f"this channel is closed{self._at()}", self.where())

    def _hang_up(self) -> None:
        self._closed.set()
        for link in self._links.values():
            with contextlib.suppress(OSError):
                link.socket.close()
        self._poller.close()
        self._lock.notify_all()

    def _pump(self, timeout: float) -> None:
        """Move bytes, or have the thread that does so; wait up to `timeout` for some to move."""
        if self._pumping:
            self._lock.wait(timeout)
        elif not self._closed.is_set():
            self._pumping = True
            try:
                self._move(timeout)
            finally:
                self._pumping = False
                self._lock.notify_all()

    def _move(self, timeout: float) -> None:
        for link in self._links.values():
            if link.more:
                link.read()
                self._watch(link)
        unread = any(link.more for link in self._links.values())
        ready = self._poller.wait(0 if unread else timeout, self._lock)
        if self._closed.is_set():  # by another thread, meanwhile
            return
        for descriptor, event in ready:
            link = self._by_descriptor[descriptor]
            if event & select.POLLOUT:
                link.write()
            if event & ~select.POLLOUT:
                link.read()
            self._watch(link)
        now = time.monotonic()
        if now - self._showed_life > self.deadline / 5:
            self._showed_life = now
            for link in self._links.values():
                link.show_life(now, self._leaving)
                self._watch(link)

    def _watch(self, link: PeerLink) -> None:
        """Ask to be told what the link can use."""
        interest = link.wanted(self._inbox_limit)
        if interest != link.interest and not self._closed.is_set():
            link.interest = interest
            self._poller.watch(link.socket, interest)

    def _tick(self) -> None:
        while not self._closed.wait(_TICK):
            if self._lock.acquire(blocking=False):
                try:
                    if not self._pumping:
                        self._pump(0)
                finally:
                    self._lock.release()
