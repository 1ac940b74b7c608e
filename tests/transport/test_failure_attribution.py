"""If one participant fails, all others name it, and not the ones that failed because of it."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from privet.errors import (
    PeerError,
    PeerLostError,
    PeerMisbehavedError,
    PeerSilentError,
    ResultError,
)
from privet.transport.channel import Channel, Expected
from privet.transport.connection import CauseRank, map_relatives
from privet.transport.frames import FAILURE_FRAME, HEARTBEAT_FRAME, hash_name, pack_array_header
from privet.transport.sockets import _ATTRIBUTION_SECONDS, SocketChannel
from tests.transport.conftest import NAMES, mesh

DUE = Expected(np.dtype(np.uint64), (5,))
LARGE = np.zeros(5_000_000, dtype=np.uint64)


@contextmanager
def connect_channels(
    kind: str, deadline: float = 5.0, names: tuple[str, ...] = NAMES
) -> Iterator[dict[str, SocketChannel]]:
    with TemporaryDirectory() as folder, mesh(kind, Path(folder), deadline, names) as connected:
        channels = {n: c for n, c in connected.items() if isinstance(c, SocketChannel)}
        yield channels
        for channel in channels.values():
            channel.abort()


def die(channel: SocketChannel) -> None:
    """End like a killed process: without a failure notice."""
    with channel._lock:
        channel._disconnect()


def cut(channel: SocketChannel, peer: str) -> None:
    """Break one connection as a network failure does, without a TLS alert."""
    socket.socket.shutdown(channel._connections[peer].sock, socket.SHUT_RDWR)


class Failing:
    """Runs an action in a thread, which must end with a PeerError."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, args=(action,))
        self._thread.start()

    def _run(self, action: Callable[[], object]) -> None:
        start = time.monotonic()
        try:
            action()
        except PeerError as error:
            self.error = error
        self.seconds = time.monotonic() - start

    def result(self) -> PeerError:
        self._thread.join(30)
        assert isinstance(self.error, PeerError)
        return self.error


def receiving(channel: Channel, peer: str, due: Expected = DUE) -> Failing:
    return Failing(lambda: channel.receive(peer, due))


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_all_name_the_killed_peer(kind: str) -> None:
    """Both wait for each other; each sees ann's failure and a notice of it at the same time."""
    for turn in range(20):
        with connect_channels(kind) as channels:
            channels["cid"].current_step = lambda: "argmax"
            one, two = receiving(channels["bob"], "cid"), receiving(channels["cid"], "bob")
            time.sleep(0.01 * (turn % 3))
            die(channels["ann"])
            for error in (one.result(), two.result()):
                assert isinstance(error, PeerLostError)
                assert str(error).startswith("ann: the connection was lost")
            assert "at step 'argmax'" in str(two.result())
            assert (one.result().step, two.result().step) == (None, "argmax")


@pytest.mark.parametrize("kind", ["tcp", "tls"])
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "sending"])
def test_a_late_reader_names_the_killed_peer(kind: str, busy: bool) -> None:
    for _ in range(5):
        with connect_channels(kind) as channels:
            ann, bob, cid = channels.values()
            with cid._lock:  # cid neither reads nor writes
                if busy:
                    bob.send("ann", LARGE)
                die(ann)
                assert receiving(bob, "ann").result().peer == "ann"
                time.sleep(0.2)
                if busy:  # causes a reset, which must not hide bob's notice
                    cid._connections["bob"].enqueue(LARGE.data.cast("B"))
                    cid._connections["bob"].write()
            error = receiving(cid, "bob").result()
            assert str(error).startswith("ann: the connection was lost")
            assert "bob" not in str(error)


def test_a_failure_notice_is_read_after_a_failed_write() -> None:
    with connect_channels("tls") as channels:
        ann, bob, cid = channels.values()
        with cid._lock:
            bob._closed.set()  # so that its ticker thread reads no more
            bob._ticker.join()
            cid._connections["bob"].sock.send(b"unread, so that hanging up is a reset")
            time.sleep(0.1)
            bob._connections["cid"].send_control(HEARTBEAT_FRAME)
            bob._connections["cid"].send_control(FAILURE_FRAME, hash_name("ann"))
            with bob._lock:
                bob._disconnect()
            connection = cid._connections["bob"]
            connection.enqueue(memoryview(bytes(100)))
            time.sleep(0.1)
            connection.write()
            assert str(connection.error) == "bob: gave up, having lost ann"
        die(ann)
        assert receiving(cid, "bob").result().peer == "ann"


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_a_broken_connection_between_two_peers(kind: str) -> None:
    for _ in range(5):
        with connect_channels(kind) as channels:
            ann, bob, cid = channels.values()
            waiting = [receiving(ann, "bob"), receiving(bob, "ann"), receiving(cid, "bob")]
            cut(ann, "bob")
            one, two, three = (str(failing.result()) for failing in waiting)
            assert one.startswith("bob: the connection was lost")
            assert two.startswith("ann: the connection was lost")
            assert re.search("ann: gave up, having lost bob|bob: gave up, having lost ann", three)


def test_a_notice_is_verified_briefly() -> None:
    """The notice of ann's failure arrives well before its own connection fails."""
    with connect_channels("tls") as channels:
        ann, bob, cid = channels.values()
        waiting = receiving(cid, "bob")
        cut(ann, "bob")
        assert receiving(bob, "ann").result().peer == "ann"
        time.sleep(_ATTRIBUTION_SECONDS / 3)
        die(ann)
        assert str(waiting.result()).startswith("ann: the connection was lost")


def test_a_notice_is_verified_when_sending() -> None:
    with connect_channels("tls") as channels:
        ann, bob, cid = channels.values()
        cut(ann, "bob")
        assert receiving(bob, "ann").result().peer == "ann"
        time.sleep(0.1)
        sending = Failing(lambda: cid.send("bob", np.zeros(5, dtype=np.uint64)))
        time.sleep(_ATTRIBUTION_SECONDS / 3)
        die(ann)
        assert sending.result().peer == "ann"


def test_an_unverified_notice_is_believed_after_that() -> None:
    with connect_channels("tls") as channels:
        ann, bob, cid = channels.values()
        waiting = receiving(cid, "bob")
        with ann._lock:  # ann is alive, but does not react
            cut(bob, "ann")
            assert receiving(bob, "ann").result().peer == "ann"
            error = waiting.result()
        assert isinstance(error, PeerLostError)
        assert str(error).startswith("bob: gave up, having lost ann")
        assert waiting.seconds < _ATTRIBUTION_SECONDS + 1.0
        # Ann gets the notice from cid, and names bob.
        assert receiving(ann, "cid").result().peer == "bob"


def test_a_silent_peer_is_named_by_peers_that_do_not_wait_for_it() -> None:
    with connect_channels("tcp", deadline=1.0) as channels:
        ann, bob, cid = channels.values()
        with ann._lock:
            one, two = receiving(bob, "ann"), receiving(cid, "bob")
            assert isinstance(one.result(), PeerSilentError)
            assert str(two.result()).startswith("bob: gave up, having lost ann")


@pytest.mark.parametrize("late", [False, True])
def test_a_failure_during_a_large_array(late: bool) -> None:
    """Bob's notice follows an array that cid does not read, so cid waits briefly."""
    with connect_channels("tcp") as channels:
        ann, bob, cid = channels.values()
        with cid._lock:
            for _ in range(3):
                bob.send("cid", LARGE)
            cut(ann, "bob")
            assert receiving(bob, "ann").result().peer == "ann"
            if not late:
                die(ann)
        waiting = receiving(cid, "bob", Expected(LARGE.dtype, LARGE.shape))
        if late:
            time.sleep(_ATTRIBUTION_SECONDS / 3)
            die(ann)
        assert waiting.result().peer == "ann"


def test_two_participants_do_not_wait_for_attribution() -> None:
    """With two participants, no other peer can be the cause."""
    with connect_channels("tcp", names=("ann", "bob")) as channels:
        ann, bob = channels.values()
        with bob._lock:
            ann.send("bob", LARGE)
            die(ann)
        waiting = receiving(bob, "ann")
        assert waiting.result().peer == "ann"
        assert waiting.seconds < _ATTRIBUTION_SECONDS


def test_a_local_failure_is_reported() -> None:
    with connect_channels("tls") as channels:
        ann, bob, cid = channels.values()
        waiting = [receiving(bob, "cid"), receiving(cid, "bob")]
        with pytest.raises(ZeroDivisionError), ann:
            raise ZeroDivisionError
        for failing in waiting:
            assert str(failing.result()).startswith("ann: ended with an error of its own")


def test_an_interruption_is_reported() -> None:
    with connect_channels("tls") as channels:
        ann, bob, _ = channels.values()
        waiting = receiving(bob, "cid")
        with pytest.raises(KeyboardInterrupt), ann:
            raise KeyboardInterrupt
        assert str(waiting.result()) == "ann: was interrupted"


@pytest.mark.parametrize("rank", [CauseRank.SELF_REPORTED, CauseRank.BLAMES_OTHER])
def test_the_loss_of_a_relative_is_reported(rank: CauseRank) -> None:
    """Next to another local failure, it is the cause only with the rank of a local failure."""
    with connect_channels("tls") as channels:
        ann, bob, cid = channels.values()
        for channel in channels.values():
            for connection in channel._connections.values():
                connection.relatives = map_relatives(["helper"], rank)
        with cid._lock:  # cid receives both notices at once
            with pytest.raises(ZeroDivisionError), bob:
                raise ZeroDivisionError
            with pytest.raises(PeerLostError), ann:
                raise PeerLostError("helper", "the connection was lost")
            time.sleep(0.1)
        error = receiving(cid, "bob").result()
        assert "bob: ended with an error of its own" in str(error)
        names_relative = "ann: gave up, having lost its helper" in str(error)
        assert names_relative == (rank == CauseRank.SELF_REPORTED)
        assert error.cause_rank == CauseRank.SELF_REPORTED


def test_misbehaviour_found_by_the_program_names_its_peer() -> None:
    """A peer can break rules that only the program checks."""
    with connect_channels("tls") as channels:
        ann, bob, cid = channels.values()
        waiting = receiving(cid, "ann")
        with pytest.raises(PeerMisbehavedError), ann:
            raise PeerMisbehavedError("bob", "sent no permutation")
        assert "ann: gave up, having lost bob" in str(waiting.result())
        assert receiving(bob, "ann").result().peer == "ann"


def test_a_failure_after_other_peers_have_ended() -> None:
    """Ann has sent its goodbye and loses bob: cid, which is running, and ann both name bob."""
    with connect_channels("tls") as channels:
        ann, bob, cid = channels.values()
        ending = Failing(ann.close)
        time.sleep(0.1)
        waiting = receiving(cid, "bob")
        die(bob)
        assert waiting.result().peer == "bob"
        assert str(ending.result()).startswith("bob: the connection was lost before its goodbye")


def test_a_broken_off_peer_is_named_before_one_that_has_ended() -> None:
    """Bob's notice is lost in an incomplete array, and ann disconnects because of it."""
    with connect_channels("tls") as channels:
        ann, bob, cid = channels.values()
        ending = Failing(ann.close)
        time.sleep(0.1)
        with bob._lock:
            bob._connections["cid"].enqueue(
                memoryview(pack_array_header(np.zeros(5, np.uint64), 0, 0) + b"?")
            )
            bob._connections["cid"].write()
        die(bob)
        assert ending.result().peer == "bob"
        time.sleep(0.1)
        assert receiving(cid, "bob").result().peer == "bob"


def test_a_failure_after_a_goodbye_is_reported() -> None:
    with connect_channels("tcp") as channels:
        ann, _, cid = channels.values()
        with ann._lock:
            ann._connections["cid"].said_goodbye = cid._connections["ann"].said_goodbye = True
        with pytest.raises(ZeroDivisionError), ann:
            raise ZeroDivisionError
        assert "ann: ended with an error of its own" in str(receiving(cid, "bob").result())


def test_a_closed_channel_names_no_peer() -> None:
    with connect_channels("tcp") as channels:
        ann = channels["ann"]
        ann.abort()
        error = receiving(ann, "bob").result()
        assert (error.peer, str(error)) == (None, "this channel is closed")


def test_any_error_that_ends_a_channel_has_a_step() -> None:
    with connect_channels("tcp") as channels:
        channels["ann"].current_step = lambda: "leaves"
        with pytest.raises(ResultError) as caught, channels["ann"]:
            raise ResultError("leaf values of 1000 and more in size")
        assert (caught.value.peer, caught.value.step) == (None, "leaves")


def test_several_killed_peers_are_all_named() -> None:
    with connect_channels("tcp") as channels:
        ann, bob, cid = channels.values()
        with cid._lock:
            die(ann)
            die(bob)
        error = str(receiving(cid, "bob").result())
        assert {error[:3], error.partition("; also ")[2][:3]} == {"ann", "bob"}


@pytest.mark.parametrize(
    ("cause_hash", "cause"),
    [(hash_name("cid"), "cid"), (hash_name("ann"), "ann"), (12345, "one whom we do not know")],
    ids=["ourselves", "a peer", "unknown"],
)
def test_causes_that_a_peer_can_report(cause_hash: int, cause: str) -> None:
    with connect_channels("tcp") as channels:
        ann, bob, cid = channels.values()
        waiting = receiving(cid, "bob")
        with bob._lock:
            bob._connections["cid"].send_control(FAILURE_FRAME, cause_hash)
            assert str(waiting.result()).startswith(f"bob: gave up, having lost {cause}")
            assert (waiting.seconds >= _ATTRIBUTION_SECONDS - 0.1) == (cause == "ann")
            # Neither we nor ann have failed, and the third name can be invented: ann names bob.
            assert "cid: gave up, having lost bob" in str(receiving(ann, "cid").result())


def test_a_chain_of_failures_names_its_root_cause(channels: dict[str, Channel]) -> None:
    """With every kind of channel: cid waits for bob, bob for ann."""
    waiting = [receiving(channels["bob"], "ann"), receiving(channels["cid"], "bob")]
    time.sleep(0.1)
    channels["ann"].abort()
    for failing in waiting:
        assert "ann" in str(failing.result())


@pytest.mark.parametrize("both", [False, True])
def test_a_loss_on_the_linked_channel(both: bool) -> None:
    """Waiting on this channel raises it; a loss on this channel comes first."""
    with (
        connect_channels("tcp", names=("coordinator", "worker")) as to_workers,
        connect_channels("tcp", names=("coordinator", "other")) as to_coordinators,
    ):
        waiting = to_workers["coordinator"]
        waiting.linked_channel = to_coordinators["coordinator"]
        die(to_coordinators["other"])
        if both:
            die(to_workers["worker"])
        time.sleep(0.2)
        error = receiving(waiting, "worker").result()
    assert error.peer == ("worker" if both else "other")
