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
from privet.transport.connection import (
    INTERRUPT_HASH,
    CauseRank,
    ConnectionState,
    PeerConnection,
    hash_relative,
)
from privet.transport.frames import FAILURE_FRAME, GOODBYE, MAX_FRAME_BYTES, Header, hash_name
from privet.transport.rendezvous import PEER_TIMEOUT_SECONDS


def find_likely_causes(connections: Collection[PeerConnection]) -> list[PeerConnection]:
    """Return those that failed, and of these those that are the least likely to have followed."""
    failed = [link for link in connections if link.error is not None]
    least = min((link.cause_rank for link in failed), default=CauseRank.UNEXPLAINED)
    return [link for link in failed if link.cause_rank == least]


def is_cause_uncertain(connections: Collection[PeerConnection]) -> bool:
    """Tell whether a peer that seems to be well may turn out to have failed first."""
    well = {hash_name(link.peer) for link in connections if link.error is None}
    return any(
        link.blamed_hash in well
        or (link.cause_rank in (CauseRank.BROKEN_OFF, CauseRank.AFTER_GOODBYE) and well)
        for link in find_likely_causes(connections)
    )


def attribute_failure(
    links: Sequence[PeerConnection], location: str, step: str | None = None
) -> PeerError:
    """Return the error of the first link, which mentions the others."""
    errors = [link.error for link in links if link.error is not None]
    also = "".join(f"; also {error}" for error in errors[1:])
    error = type(errors[0])(errors[0].peer, f"{errors[0].problem}{location}{also}", step)
    error.cause_rank = links[0].cause_rank
    return error


def require_goodbyes(connections: Collection[PeerConnection], peer_timeout: float) -> None:
    """Raise PeerError if somebody did not say goodbye, and blame who failed, if anybody did."""
    missed = [link for link in connections if not link.said_goodbye]
    failed = find_likely_causes(missed)
    for link in [] if failed else missed:
        heard = (
            "only signs of life" if time.monotonic() - link.last_heard < peer_timeout else "nothing"
        )
        link.error = PeerSilentError(link.peer, f"{heard} heard from it")
    if missed:
        raise attribute_failure(failed or missed, " before its goodbye")


def find_cause_hash(error: BaseException | None, connections: Mapping[str, PeerConnection]) -> int:
    """Return the tag of the one whose failure an error was, or 0: it was our own."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPT_HASH
    who = error.peer if isinstance(error, PeerError) else None
    if who is None:
        return 0
    if any(hash_relative(who) in link.relatives for link in connections.values()):
        return hash_relative(who)
    return hash_name(who) if who in connections else 0


def send_failure_notices(
    connections: Iterable[PeerConnection], cause_hash: int, reporter_hash: int
) -> None:
    """Tell the peers whom we lost; but the culprit itself, who told us so."""
    for link in connections:
        tag = hash_name(link.peer)
        reason = reporter_hash if tag == cause_hash else cause_hash
        if link.error is None and tag != reason:
            link.send_control(FAILURE_FRAME, reason)


def mark_missing_peers(
    awaited: Iterable[PeerConnection], started: float, peer_timeout: float, *, sending: bool
) -> None:
    """Note of peers whom we wait for since then that they have ended, or were silent for too long.

    If we wait for them to take what we send: of those who have not taken it all.
    """
    now = time.monotonic()
    for link in awaited:
        if link.error is not None or (sending and not link.outgoing):
            continue
        if link.said_goodbye:
            link.error = PeerLostError(link.peer, "has ended its part")
        elif now - max(link.last_heard, started) > peer_timeout:
            silence = f"nothing heard from it for {peer_timeout:g} s"
            link.error = PeerSilentError(link.peer, silence)


class Poller:
    """Connections, and what each of them is watched for."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._wake_sender, self._wake_receiver = socket.socketpair()
        for end in (self._wake_sender, self._wake_receiver):
            end.setblocking(False)
        self._poll.register(self._wake_receiver, select.POLLIN)
        self._is_waiting = self._closed = False

    def watch(self, sock: socket.socket, interest: int) -> None:
        """Watch a connection for something; for nothing at all, if that is negative."""
        if interest >= 0:
            self._poll.register(sock, interest)
        else:
            self._poll.unregister(sock)
        self.wake()

    def wait(self, seconds: float, lock: threading.Condition) -> list[tuple[int, int]]:
        """Return which connections are ready, and for what; wait for one so long.

        Whoever waits lets go of the lock, so that others can send, and watch for more.
        """
        self._is_waiting = seconds > 0
        if not self._is_waiting:
            found = self._poll.poll(0)
        else:
            lock.release()
            try:
                found = self._poll.poll(1000 * seconds)
            finally:
                lock.acquire()
                self._is_waiting = False
        if self._closed:
            self._wake_receiver.close()
            return []
        ear = self._wake_receiver.fileno()
        if any(descriptor == ear for descriptor, _ in found):
            with contextlib.suppress(BlockingIOError):
                self._wake_receiver.recv(1 << 12)
        return [(descriptor, event) for descriptor, event in found if descriptor != ear]

    def wake(self) -> None:
        """Have the thread that waits, if one does, look again at once."""
        if self._is_waiting:
            with contextlib.suppress(BlockingIOError):
                self._wake_sender.send(b"!")

    def close(self) -> None:
        """Free what ringing takes; whoever waits is woken, and frees the rest."""
        if self._closed:
            return
        self._closed = True
        self.wake()
        self._wake_sender.close()
        if not self._is_waiting:
            self._wake_receiver.close()


_TICK_SECONDS = 0.02
# How long the failure of one peer may take to show, once another one told us of it.
_ATTRIBUTION_SECONDS = 0.5


class SocketChannel(Channel):
    """One process's end of its connections."""

    def __init__(
        self,
        name: str,
        connections: Mapping[str, PeerConnection],
        peer_timeout: float = PEER_TIMEOUT_SECONDS,
        *,
        inbox_limit: int = 64 << 20,
        frame_limit: int = MAX_FRAME_BYTES,
    ) -> None:
        super().__init__(name, peer_timeout)
        self.linked_channel: SocketChannel | None = None
        """Another one of ours: who waits on this one wants to know whom that one has lost."""
        self._connections = dict(connections)
        self._by_descriptor = {link.sock.fileno(): link for link in self._connections.values()}
        self._inbox_limit = inbox_limit
        self._poller = Poller()
        self._lock = threading.Condition(threading.Lock())
        """Held by whoever looks at the links; all are told when something has moved."""
        self._pumping = False
        self._closed = threading.Event()
        self._failure: PeerError | None = None
        self._is_closing = False
        self._last_heartbeat = time.monotonic()
        for link in self._connections.values():
            link.reader.limit = frame_limit
            link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._poller.watch(link.sock, link.poll_events)
            self._watch(link)
        self._ticker = threading.Thread(target=self._tick, name=f"links of {name}", daemon=True)
        self._ticker.start()

    @property
    def peers(self) -> tuple[str, ...]:
        """The names of the peers."""
        return tuple(self._connections)

    def send(self, peer: str, array: Array, tag: int = 0, stream: int = 0) -> None:
        """Hand an array over; it must not be changed before `flush` returns."""
        with self._lock:
            for frame in frames.split_into_frames(array):
                self._send(self._connections[peer], frame, tag, stream)

    def receive(self, peer: str, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        """Wait for the next array from a peer on one stream."""

        def receive(*due: Any) -> Array:
            return self._receive(self._connections[peer], Expected(*due), tag, stream)

        with self._lock:
            return frames.assemble_frames(*expected, receive)

    def _send(self, connection: PeerConnection, array: Array, tag: int, stream: int = 0) -> None:
        if self._closed.is_set():
            self._raise_closed(connection.peer)
        if connection.error is not None:
            self._fail_if_disconnected()
        connection.enqueue_array(array, tag, stream)
        connection.write()
        self._watch(connection)

    def _receive(
        self, connection: PeerConnection, expected: Expected, tag: int, stream: int = 0
    ) -> Array:
        inbox = connection.inbox[stream]

        def check(header: Header) -> None:
            try:
                self.check_header(
                    connection.peer, header, expected, connection.n_received_by_stream[stream], tag
                )
            except PeerError as error:
                self._fail(error, connection)

        def has_come() -> bool:
            begun = connection.reader.partial_header
            if not inbox and begun is not None and begun.stream == stream:
                check(begun)  # or it could make us wait, and fill our memory
            return bool(inbox)

        if not inbox:
            connection.n_waiting_threads += 1
            self._watch(connection)
            self._wait(has_come, [connection])
            connection.n_waiting_threads -= 1
        check(inbox[0][0])
        array = connection.pop_array(stream)
        self._watch(connection)
        return array

    def has_pending(self, peer: str, stream: int = 0) -> bool:
        """Tell whether an array waits that the thread which looks in has taken in, or none will."""
        return (
            bool(self._connections[peer].inbox[stream]) or self._connections[peer].error is not None
        )

    def raise_if_disconnected(self) -> None:
        """Raise if a peer is lost, without waiting for any."""
        with self._lock:
            if self._failure is not None:
                self._raise_closed(None)
            if not self._closed.is_set():
                self._fail_if_disconnected()

    def flush(self) -> None:
        """Wait until everything handed over has left this process."""
        with self._lock:
            due = [link for link in self._connections.values() if link.outgoing]
            self._wait(lambda: not any(link.outgoing for link in due), due, sending=True)

    def wait_for_backlog(self, limit: int, peers: Sequence[str]) -> None:
        """Wait until the backlog of one of these peers is at most `limit`."""
        links = [self._connections[peer] for peer in peers]
        with self._lock:
            due = [link for link in links if link.outgoing]
            self._wait(lambda: any(one.outgoing_bytes <= limit for one in links), due, sending=True)

    def backlog(self, peer: str) -> int:
        """Return how many bytes are handed over for a peer and have not left yet."""
        return self._connections[peer].outgoing_bytes

    def connection_states(self) -> dict[str, ConnectionState]:
        """Return how the connection to each peer is; any thread may ask."""
        return {
            peer: ConnectionState.from_connection(link) for peer, link in self._connections.items()
        }

    def close(self, timeout: float | None = None) -> None:
        """Say goodbye, wait until the peers have said it, too, and hang up.

        To hang up on a peer that is still sending, if only signs of life, would make it lose what
        we sent and it has not read yet. So we stay while it lives, but not for ever.
        """
        with self._lock:
            if not self._closed.is_set():
                self._is_closing = True
                for link in self._connections.values():
                    link.send_control(GOODBYE)
                    self._watch(link)
                started, timeout = time.monotonic(), timeout or self.goodbye_timeout
                while any(link.is_alive(self.peer_timeout) for link in self._connections.values()):
                    self._pump(_TICK_SECONDS)
                    taken = time.monotonic() - started
                    if find_likely_causes(
                        [link for link in self._connections.values() if not link.said_goodbye]
                    ):
                        timeout = min(timeout, taken + _ATTRIBUTION_SECONDS)
                    if taken > timeout:
                        break
                self._disconnect()
                require_goodbyes(self._connections.values(), self.peer_timeout)
        self._ticker.join()

    def abort(self) -> None:
        """Hang up at once, with a word about whose failure it is: a peer's, or our own."""
        culprit = find_cause_hash(
            sys.exc_info()[1], self._connections
        )  # what made our caller abort
        with self._lock:
            if not self._closed.is_set():
                send_failure_notices(self._connections.values(), culprit, culprit)
            self._disconnect()
        self._ticker.join()

    def _wait(
        self, ready: Callable[[], bool], awaited: list[PeerConnection], *, sending: bool = False
    ) -> None:
        started, pause = time.monotonic(), min(1.0, self.peer_timeout / 5)
        while not ready():
            if self._closed.is_set():
                self._raise_closed(None)
            self._pump(0 if find_likely_causes(self._connections.values()) else pause)
            if ready():
                return
            mark_missing_peers(awaited, started, self.peer_timeout, sending=sending)
            self._fail_if_disconnected()
            if self.linked_channel is not None:
                self.linked_channel.raise_if_disconnected()

    def _fail_if_disconnected(self) -> None:
        """Fail if a peer has: for the one that did first, as far as that can be found out soon."""
        links = self._connections.values()
        if all(link.error is None for link in links):
            return
        until = time.monotonic() + _ATTRIBUTION_SECONDS
        while is_cause_uncertain(links) and (left := until - time.monotonic()) > 0:
            self._pump(left)
        first, *others = find_likely_causes(links)
        error = attribute_failure([first, *others], self._describe_step(), self.current_step())
        self._fail(error, first, first.blamed_hash)

    def _fail(self, error: PeerError, connection: PeerConnection, blamed: int = 0) -> NoReturn:
        teller, us = hash_name(connection.peer), hash_name(self.name)
        if not self._closed.is_set():
            self._failure = error
            send_failure_notices(
                self._connections.values(), teller if blamed in (0, us) else blamed, teller
            )
            self._disconnect()
        raise error from None

    def _raise_closed(self, peer: str | None) -> NoReturn:
        """Raise why nothing is carried any more: to every thread the same."""
        if self._failure is not None:
            raise copy.copy(self._failure)
        raise PeerLostError(
            peer, f"this channel is closed{self._describe_step()}", self.current_step()
        )

    def _disconnect(self) -> None:
        self._closed.set()
        for link in self._connections.values():
            with contextlib.suppress(OSError):
                link.sock.close()
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
        for link in self._connections.values():
            if link.has_unread:
                link.read()
                self._watch(link)
        unread = any(link.has_unread for link in self._connections.values())
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
        if now - self._last_heartbeat > self.peer_timeout / 5:
            self._last_heartbeat = now
            for link in self._connections.values():
                link.send_heartbeat(now, self._is_closing)
                self._watch(link)

    def _watch(self, connection: PeerConnection) -> None:
        """Ask to be told what the link can use."""
        interest = connection.choose_poll_events(self._inbox_limit)
        if interest != connection.poll_events and not self._closed.is_set():
            connection.poll_events = interest
            self._poller.watch(connection.sock, interest)

    def _tick(self) -> None:
        while not self._closed.wait(_TICK_SECONDS):
            if self._lock.acquire(blocking=False):
                try:
                    if not self._pumping:
                        self._pump(0)
                finally:
                    self._lock.release()
