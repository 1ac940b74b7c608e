"""Waiting for connections to be ready, in one thread, while others change what is waited for."""

from __future__ import annotations

import contextlib
import select
import socket
import threading


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
