"""Channels over connected sockets, and the attribution of failures to the peer at fault.

The thread that waits for an array reads and writes the sockets itself, so a round of small messages
needs no switch between threads; if several threads wait, one of them does it for all. While all
threads compute, a ticker thread moves bytes that are ready fifty times a second, so that transfers
continue, and sends heartbeats.

A channel that loses a peer sends a failure notice with the peer's name to its other peers, and then
disconnects from them. Therefore several peers can fail because of one, and report it. If another
peer's notice is the only evidence against a peer, the channel watches that peer briefly before it
repeats the report.
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
    """Return the failed peers that are least likely to have failed because of another one."""
    failed = [connection for connection in connections if connection.error is not None]
    lowest_rank = min(
        (connection.cause_rank for connection in failed), default=CauseRank.UNEXPLAINED
    )
    return [connection for connection in failed if connection.cause_rank == lowest_rank]


def is_cause_uncertain(connections: Collection[PeerConnection]) -> bool:
    """Return whether a peer without a known failure may turn out to have failed first."""
    well = {hash_name(connection.peer) for connection in connections if connection.error is None}
    return any(
        connection.cause_hash in well
        or (connection.cause_rank in (CauseRank.BROKEN_OFF, CauseRank.AFTER_GOODBYE) and well)
        for connection in find_likely_causes(connections)
    )


def attribute_failure(
    connections: Sequence[PeerConnection], location: str, step: str | None = None
) -> PeerError:
    """Return the error of the first connection, with the errors of the others in its text."""
    errors = [connection.error for connection in connections if connection.error is not None]
    further = "".join(f"; also {error}" for error in errors[1:])
    error = type(errors[0])(errors[0].peer, f"{errors[0].problem}{location}{further}", step)
    error.cause_rank = connections[0].cause_rank
    return error


def require_goodbyes(connections: Collection[PeerConnection], peer_timeout: float) -> None:
    """Raise PeerError if a peer sent no goodbye; name the failed peers, if any."""
    missing = [connection for connection in connections if not connection.said_goodbye]
    failed = find_likely_causes(missing)
    for connection in [] if failed else missing:
        received = (
            "only signs of life"
            if time.monotonic() - connection.last_heard < peer_timeout
            else "nothing"
        )
        connection.error = PeerSilentError(connection.peer, f"{received} heard from it")
    if missing:
        raise attribute_failure(failed or missing, " before its goodbye")


def find_cause_hash(error: BaseException | None, connections: Mapping[str, PeerConnection]) -> int:
    """Return the hash of the peer that caused an error, or 0 for our own failure."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPT_HASH
    peer = error.peer if isinstance(error, PeerError) else None
    if peer is None:
        return 0
    if any(hash_relative(peer) in connection.relatives for connection in connections.values()):
        return hash_relative(peer)
    return hash_name(peer) if peer in connections else 0


def send_failure_notices(
    connections: Iterable[PeerConnection], cause_hash: int, reporter_hash: int
) -> None:
    """Send the cause to all peers; the peer that is the cause gets the reporter's hash instead."""
    for connection in connections:
        peer_hash = hash_name(connection.peer)
        reason = reporter_hash if peer_hash == cause_hash else cause_hash
        if connection.error is None and peer_hash != reason:
            connection.send_control(FAILURE_FRAME, reason)


def mark_missing_peers(
    awaited: Iterable[PeerConnection], started: float, peer_timeout: float, *, sending: bool
) -> None:
    """Mark awaited peers as failed that have ended, or were silent for too long since `started`.

    With `sending`, mark only peers that have not received all queued bytes.
    """
    now = time.monotonic()
    for connection in awaited:
        if connection.error is not None or (sending and not connection.outgoing):
            continue
        if connection.said_goodbye:
            connection.error = PeerLostError(connection.peer, "has ended its part")
        elif now - max(connection.last_heard, started) > peer_timeout:
            problem = f"nothing heard from it for {peer_timeout:g} s"
            connection.error = PeerSilentError(connection.peer, problem)


class Poller:
    """Polls connections for their events; other threads can wake it."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._wake_sender, self._wake_receiver = socket.socketpair()
        for end in (self._wake_sender, self._wake_receiver):
            end.setblocking(False)
        self._poll.register(self._wake_receiver, select.POLLIN)
        self._is_waiting = self._closed = False

    def watch(self, sock: socket.socket, events: int) -> None:
        """Set the poll events of a connection; a negative value ends polling."""
        if events >= 0:
            self._poll.register(sock, events)
        else:
            self._poll.unregister(sock)
        self.wake()

    def wait(self, seconds: float, lock: threading.Condition) -> list[tuple[int, int]]:
        """Return the ready connections and their events; wait for `seconds` at most.

        Waiting releases the lock, so that other threads can send, and change the poll events.
        """
        self._is_waiting = seconds > 0
        if not self._is_waiting:
            events = self._poll.poll(0)
        else:
            lock.release()
            try:
                events = self._poll.poll(1000 * seconds)
            finally:
                lock.acquire()
                self._is_waiting = False
        if self._closed:
            self._wake_receiver.close()
            return []
        wake_descriptor = self._wake_receiver.fileno()
        if any(descriptor == wake_descriptor for descriptor, _ in events):
            with contextlib.suppress(BlockingIOError):
                self._wake_receiver.recv(1 << 12)
        return [
            (descriptor, event) for descriptor, event in events if descriptor != wake_descriptor
        ]

    def wake(self) -> None:
        """Wake the waiting thread, if any, to poll again."""
        if self._is_waiting:
            with contextlib.suppress(BlockingIOError):
                self._wake_sender.send(b"!")

    def close(self) -> None:
        """Close the wake sockets; a waiting thread is woken, and closes its end."""
        if self._closed:
            return
        self._closed = True
        self.wake()
        self._wake_sender.close()
        if not self._is_waiting:
            self._wake_receiver.close()


_TICK_SECONDS = 0.02
# Time for the failure of a peer to show, after a notice from another one.
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
        """Another local channel: waiting on this channel also raises its failures."""
        self._connections = dict(connections)
        self._by_descriptor = {
            connection.sock.fileno(): connection for connection in self._connections.values()
        }
        self._inbox_limit = inbox_limit
        self._poller = Poller()
        self._lock = threading.Condition(threading.Lock())
        """Held by the thread that uses the connections; notified after bytes have moved."""
        self._pumping = False
        self._closed = threading.Event()
        self._failure: PeerError | None = None
        self._is_closing = False
        self._last_heartbeat = time.monotonic()
        for connection in self._connections.values():
            connection.reader.limit = frame_limit
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._poller.watch(connection.sock, connection.poll_events)
            self._watch(connection)
        self._ticker = threading.Thread(
            target=self._tick, name=f"connections of {name}", daemon=True
        )
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

        def receive(*frame: Any) -> Array:
            return self._receive(self._connections[peer], Expected(*frame), tag, stream)

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

        def has_arrived() -> bool:
            partial_header = connection.reader.partial_header
            if not inbox and partial_header is not None and partial_header.stream == stream:
                check(partial_header)  # else the peer could block us, and fill our memory
            return bool(inbox)

        if not inbox:
            connection.n_waiting_threads += 1
            self._watch(connection)
            self._wait(has_arrived, [connection])
            connection.n_waiting_threads -= 1
        check(inbox[0][0])
        array = connection.pop_array(stream)
        self._watch(connection)
        return array

    def has_pending(self, peer: str, stream: int = 0) -> bool:
        """Return whether the inbox has an array on a stream, or the peer is lost; does not read."""
        return (
            bool(self._connections[peer].inbox[stream]) or self._connections[peer].error is not None
        )

    def raise_if_disconnected(self) -> None:
        """Raise if a peer is lost, without waiting."""
        with self._lock:
            if self._failure is not None:
                self._raise_closed(None)
            if not self._closed.is_set():
                self._fail_if_disconnected()

    def flush(self) -> None:
        """Wait until all arrays handed over have left this process."""
        with self._lock:
            awaited = [
                connection for connection in self._connections.values() if connection.outgoing
            ]
            self._wait(
                lambda: not any(connection.outgoing for connection in awaited),
                awaited,
                sending=True,
            )

    def wait_for_backlog(self, limit: int, peers: Sequence[str]) -> None:
        """Wait until the backlog of one of these peers is at most `limit`."""
        connections = [self._connections[peer] for peer in peers]
        with self._lock:
            awaited = [connection for connection in connections if connection.outgoing]
            self._wait(
                lambda: any(connection.outgoing_bytes <= limit for connection in connections),
                awaited,
                sending=True,
            )

    def backlog(self, peer: str) -> int:
        """Return the bytes handed over for a peer that have not left yet."""
        return self._connections[peer].outgoing_bytes

    def connection_states(self) -> dict[str, ConnectionState]:
        """Return the state of the connection to each peer; any thread can call this."""
        return {
            peer: ConnectionState.from_connection(connection)
            for peer, connection in self._connections.items()
        }

    def close(self, timeout: float | None = None) -> None:
        """Send a goodbye to all peers, wait for theirs, and disconnect.

        If we disconnected from a peer that is still sending, even heartbeats, it would lose bytes
        that it has not read yet. Therefore, we wait while it is alive, up to the timeout.
        """
        with self._lock:
            if not self._closed.is_set():
                self._is_closing = True
                for connection in self._connections.values():
                    connection.send_control(GOODBYE)
                    self._watch(connection)
                started, timeout = time.monotonic(), timeout or self.goodbye_timeout
                while any(
                    connection.is_alive(self.peer_timeout)
                    for connection in self._connections.values()
                ):
                    self._pump(_TICK_SECONDS)
                    elapsed = time.monotonic() - started
                    if find_likely_causes(
                        [
                            connection
                            for connection in self._connections.values()
                            if not connection.said_goodbye
                        ]
                    ):
                        timeout = min(timeout, elapsed + _ATTRIBUTION_SECONDS)
                    if elapsed > timeout:
                        break
                self._disconnect()
                require_goodbyes(self._connections.values(), self.peer_timeout)
        self._ticker.join()

    def abort(self) -> None:
        """Send failure notices with the cause, a peer or this member, and disconnect at once."""
        cause_hash = find_cause_hash(
            sys.exc_info()[1], self._connections
        )  # the error that the caller is handling
        with self._lock:
            if not self._closed.is_set():
                send_failure_notices(self._connections.values(), cause_hash, cause_hash)
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
        """Fail if a peer has failed; name the first one, as far as it can be found soon."""
        connections = self._connections.values()
        if all(connection.error is None for connection in connections):
            return
        deadline = time.monotonic() + _ATTRIBUTION_SECONDS
        while is_cause_uncertain(connections) and (seconds_left := deadline - time.monotonic()) > 0:
            self._pump(seconds_left)
        first, *others = find_likely_causes(connections)
        error = attribute_failure([first, *others], self._describe_step(), self.current_step())
        self._fail(error, first, first.cause_hash)

    def _fail(self, error: PeerError, connection: PeerConnection, cause_hash: int = 0) -> NoReturn:
        reporter_hash, local_hash = hash_name(connection.peer), hash_name(self.name)
        if not self._closed.is_set():
            self._failure = error
            send_failure_notices(
                self._connections.values(),
                reporter_hash if cause_hash in (0, local_hash) else cause_hash,
                reporter_hash,
            )
            self._disconnect()
        raise error from None

    def _raise_closed(self, peer: str | None) -> NoReturn:
        """Raise the failure that closed the channel, the same to every thread."""
        if self._failure is not None:
            raise copy.copy(self._failure)
        raise PeerLostError(
            peer, f"this channel is closed{self._describe_step()}", self.current_step()
        )

    def _disconnect(self) -> None:
        self._closed.set()
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.sock.close()
        self._poller.close()
        self._lock.notify_all()

    def _pump(self, timeout: float) -> None:
        """Move bytes, or let the thread that moves them; wait up to `timeout` seconds."""
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
        for connection in self._connections.values():
            if connection.has_unread:
                connection.read()
                self._watch(connection)
        unread = any(connection.has_unread for connection in self._connections.values())
        ready = self._poller.wait(0 if unread else timeout, self._lock)
        if self._closed.is_set():  # by another thread, meanwhile
            return
        for descriptor, event in ready:
            connection = self._by_descriptor[descriptor]
            if event & select.POLLOUT:
                connection.write()
            if event & ~select.POLLOUT:
                connection.read()
            self._watch(connection)
        now = time.monotonic()
        if now - self._last_heartbeat > self.peer_timeout / 5:
            self._last_heartbeat = now
            for connection in self._connections.values():
                connection.send_heartbeat(now, self._is_closing)
                self._watch(connection)

    def _watch(self, connection: PeerConnection) -> None:
        """Update the poll events of a connection."""
        events = connection.choose_poll_events(self._inbox_limit)
        if events != connection.poll_events and not self._closed.is_set():
            connection.poll_events = events
            self._poller.watch(connection.sock, events)

    def _tick(self) -> None:
        while not self._closed.wait(_TICK_SECONDS):
            if self._lock.acquire(blocking=False):
                try:
                    if not self._pumping:
                        self._pump(0)
                finally:
                    self._lock.release()
