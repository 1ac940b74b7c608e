"""What a head raises when one of its workers fails, while it waits for another."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence

import pytest

from privet.errors import DataError, PeerError, PeerLostError, PrivetError
from privet.federation.cluster.executors import Threads
from privet.federation.cluster.pool import _first_failure
from privet.runtime.run import HEAD, worker_names
from privet.runtime.workers import Head, Worker
from privet.transport.connection import Doubt, PeerLink
from privet.transport.frames import name_tag
from privet.transport.sockets import SocketChannel

NAMES = worker_names(3)


def _link(peer: str, connection: socket.socket) -> PeerLink:
    connection.setblocking(False)
    return PeerLink(peer, connection, 1 << 20, {name_tag(name): name for name in (HEAD, *NAMES)})


@contextlib.contextmanager
def crew() -> Iterator[tuple[list[Head], list[SocketChannel]]]:
    """Yield a head's ends of the channels to its workers, and theirs."""
    links, workers = {}, []
    for name in NAMES:
        ours, theirs = _connected()
        links[name] = _link(name, ours)
        workers.append(SocketChannel(name, {HEAD: _link(HEAD, theirs)}))
    channel = SocketChannel(HEAD, links)
    try:
        yield [Head(channel, name, shard) for shard, name in enumerate(NAMES)], workers
    finally:
        for each in (channel, *workers):
            each.abort()


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        one = socket.create_connection(door.getsockname())
        return one, door.accept()[0]


def lost(peer: str, doubt: Doubt) -> PeerLostError:
    error = PeerLostError(peer, "the connection was lost")
    error.doubt = doubt
    return error


def raised(failures: Sequence[PrivetError | None]) -> PrivetError:
    """Return what comes of workers that fail so, the last of them first."""

    def fail(error: PrivetError, channel: SocketChannel) -> None:
        Worker(channel, HEAD).failed(error, "start")
        channel.leave()

    with crew() as (heads, workers):
        threads = [
            threading.Thread(target=fail, args=each)
            for each in reversed(list(zip(failures, workers, strict=True)))
            if each[0] is not None
        ]
        for thread in threads:
            thread.start()
        with pytest.raises(PrivetError) as caught, _first_failure(heads, Threads()):
            heads[0].answer([])
        for thread in threads:
            thread.join()
    return caught.value


def test_what_a_worker_says_counts_and_not_that_it_went() -> None:
    error = raised([None, DataError("row 7: 'x' is not a number"), None])
    assert isinstance(error, DataError)
    assert str(error) == "row 7: 'x' is not a number (our worker for shard 2)"


def test_whom_a_worker_has_lost_is_blamed_and_not_the_worker() -> None:
    error = raised([None, lost("telecom", Doubt.NONE), None])
    assert isinstance(error, PeerError)
    assert str(error) == "telecom: the connection was lost (its worker in shard 2)"


@pytest.mark.parametrize("first", [0, 1, 2])
def test_who_is_the_least_in_doubt_is_blamed(first: int) -> None:
    """Whatever is heard of before it."""
    failures = [lost("telecom", Doubt.BLAMES) for _ in NAMES]
    failures[first] = lost("bank", Doubt.TORN)
    error = raised(failures)
    assert str(error) == f"bank: the connection was lost (its worker in shard {first + 1})"


def test_our_own_worker_that_is_killed() -> None:
    with crew() as (heads, workers):
        with workers[1]._lock:
            workers[1]._hang_up()
        with pytest.raises(PeerLostError) as caught, _first_failure(heads, Threads()):
            heads[0].answer([])
    assert str(caught.value).startswith("our worker for shard 2, in threads of this process: the")
