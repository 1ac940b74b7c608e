"""The error that a coordinator raises if a worker fails while it waits for another worker."""

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


def _make_connection(peer: str, connection: socket.socket) -> PeerConnection:
    connection.setblocking(False)
    return PeerConnection(
        peer, connection, 1 << 20, {hash_name(name): name for name in (COORDINATOR_NAME, *NAMES)}
    )


@contextlib.contextmanager
def connected_workers() -> Iterator[tuple[list[WorkerHandle], list[SocketChannel]]]:
    """Yield a coordinator's handles of its workers, and the workers' channels."""
    connections, workers = {}, []
    for name in NAMES:
        local_end, remote_end = _socket_pair()
        connections[name] = _make_connection(name, local_end)
        workers.append(
            SocketChannel(name, {COORDINATOR_NAME: _make_connection(COORDINATOR_NAME, remote_end)})
        )
    channel = SocketChannel(COORDINATOR_NAME, connections)
    try:
        yield [WorkerHandle(channel, name, shard) for shard, name in enumerate(NAMES)], workers
    finally:
        for each in (channel, *workers):
            each.abort()


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        return one, listener.accept()[0]


def lost_peer(peer: str, rank: CauseRank) -> PeerLostError:
    error = PeerLostError(peer, "the connection was lost")
    error.cause_rank = rank
    return error


def raised_error(failures: Sequence[PrivetError | None]) -> PrivetError:
    """Return the error that these worker failures cause, starting with the last worker."""

    def fail(error: PrivetError, channel: SocketChannel) -> None:
        CommandLoop(channel, COORDINATOR_NAME).send_failure(error, "start")
        channel.close_best_effort()

    with connected_workers() as (handles, workers):
        threads = [
            threading.Thread(target=fail, args=each)
            for each in reversed(list(zip(failures, workers, strict=True)))
            if each[0] is not None
        ]
        for thread in threads:
            thread.start()
        with pytest.raises(PrivetError) as caught, _raise_first_failure(handles, ThreadExecutor()):
            handles[0].receive_response([])
        for thread in threads:
            thread.join()
    return caught.value


def test_reported_error_takes_precedence_over_a_disconnect() -> None:
    error = raised_error([None, DataError("row 7: 'x' is not a number"), None])
    assert isinstance(error, DataError)
    assert str(error) == "row 7: 'x' is not a number (our worker for shard 2)"


def test_peer_lost_by_a_worker_is_the_cause() -> None:
    error = raised_error([None, lost_peer("telecom", CauseRank.UNEXPLAINED), None])
    assert isinstance(error, PeerError)
    assert str(error) == "telecom: the connection was lost (its worker in shard 2)"


@pytest.mark.parametrize("first", [0, 1, 2])
def test_most_certain_cause_is_raised(first: int) -> None:
    """The order of arrival does not matter."""
    failures = [lost_peer("telecom", CauseRank.BLAMES_OTHER) for _ in NAMES]
    failures[first] = lost_peer("bank", CauseRank.BROKEN_OFF)
    error = raised_error(failures)
    assert str(error) == f"bank: the connection was lost (its worker in shard {first + 1})"


def test_killed_local_worker_is_named() -> None:
    with connected_workers() as (handles, workers):
        with workers[1]._lock:
            workers[1]._disconnect()
        with (
            pytest.raises(PeerLostError) as caught,
            _raise_first_failure(handles, ThreadExecutor()),
        ):
            handles[0].receive_response([])
    assert str(caught.value).startswith("our worker for shard 2, in threads of this process: the")
