"""What a head raises when one of its workers fails, while it waits for another."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence

import pytest

from privet.errors import DataError, PeerError, PeerLostError, PrivetError
from privet.federation.cluster.executors import ThreadExecutor
from privet.federation.cluster.pool import _raise_first_failure
from privet.runtime.run import COORDINATOR_NAME, make_worker_names
from privet.runtime.workers import CommandLoop, WorkerHandle
from privet.transport.connection import CauseRank, PeerConnection
from privet.transport.frames import hash_name
from privet.transport.sockets import SocketChannel

NAMES = make_worker_names(3)


def _link(peer: str, connection: socket.socket) -> PeerConnection:
    connection.setblocking(False)
    return PeerConnection(
        peer, connection, 1 << 20, {hash_name(name): name for name in (COORDINATOR_NAME, *NAMES)}
    )


@contextlib.contextmanager
def crew() -> Iterator[tuple[list[WorkerHandle], list[SocketChannel]]]:
    """Yield a head's ends of the channels to its workers, and theirs."""
    links, workers = {}, []
    for name in NAMES:
        ours, theirs = _connected()
        links[name] = _link(name, ours)
        workers.append(SocketChannel(name, {COORDINATOR_NAME: _link(COORDINATOR_NAME, theirs)}))
    channel = SocketChannel(COORDINATOR_NAME, links)
    try:
        yield [WorkerHandle(channel, name, shard) for shard, name in enumerate(NAMES)], workers
    finally:
        for each in (channel, *workers):
            each.abort()


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        one = socket.create_connection(door.getsockname())
        return one, door.accept()[0]


def lost(peer: str, doubt: CauseRank) -> PeerLostError:
    error = PeerLostError(peer, "the connection was lost")
    error.cause_rank = doubt
    return error


def raised(failures: Sequence[PrivetError | None]) -> PrivetError:
    """Return what comes of workers that fail so, the last of them first."""

    def fail(error: PrivetError, channel: SocketChannel) -> None:
        CommandLoop(channel, COORDINATOR_NAME).send_failure(error, "start")
        channel.close_best_effort()

    with crew() as (heads, workers):
        threads = [
            threading.Thread(target=fail, args=each)
            for each in reversed(list(zip(failures, workers, strict=True)))
            if each[0] is not None
        ]
        for thread in threads:
            thread.start()
        with pytest.raises(PrivetError) as caught, _raise_first_failure(heads, ThreadExecutor()):
            heads[0].receive_response([])
        for thread in threads:
            thread.join()
    return caught.value


def test_what_a_worker_says_counts_and_not_that_it_went() -> None:
    error = raised([None, DataError("row 7: 'x' is not a number"), None])
    assert isinstance(error, DataError)
    assert str(error) == "row 7: 'x' is not a number (our worker for shard 2)"


def test_whom_a_worker_has_lost_is_blamed_and_not_the_worker() -> None:
    error = raised([None, lost("telecom", CauseRank.UNEXPLAINED), None])
    assert isinstance(error, PeerError)
    assert str(error) == "telecom: the connection was lost (its worker in shard 2)"


@pytest.mark.parametrize("first", [0, 1, 2])
def test_who_is_the_least_in_doubt_is_blamed(first: int) -> None:
    """Whatever is heard of before it."""
    failures = [lost("telecom", CauseRank.BLAMES_OTHER) for _ in NAMES]
    failures[first] = lost("bank", CauseRank.BROKEN_OFF)
    error = raised(failures)
    assert str(error) == f"bank: the connection was lost (its worker in shard {first + 1})"


def test_our_own_worker_that_is_killed() -> None:
    with crew() as (heads, workers):
        with workers[1]._lock:
            workers[1]._disconnect()
        with pytest.raises(PeerLostError) as caught, _raise_first_failure(heads, ThreadExecutor()):
            heads[0].receive_response([])
    assert str(caught.value).startswith("our worker for shard 2, in threads of this process: the")
