"""When one participant fails, all others name it, and not those that failed because of it."""

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
def meeting(
    kind: str, deadline: float = 5.0, names: tuple[str, ...] = NAMES
) -> Iterator[dict[str, SocketChannel]]:
    with TemporaryDirectory() as folder, mesh(kind, Path(folder), deadline, names) as connected:
        channels = {n: c for n, c in connected.items() if isinstance(c, SocketChannel)}
        yield channels
        for channel in channels.values():
            channel.abort()


def die(channel: SocketChannel) -> None:
    """End as a process does that is killed: without a word."""
    with channel._lock:
        channel._disconnect()


def cut(channel: SocketChannel, peer: str) -> None:
    """End one connection, as the network would: TLS does not get to say anything."""
    socket.socket.shutdown(channel._connections[peer].sock, socket.SHUT_RDWR)


class Failing:
    """Does something in a thread that must end with a PeerError."""

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
def test_all_name_the_one_that_died(kind: str) -> None:
    """Both wait for each other, and learn of ann's death from two sides at once."""
    for turn in range(20):
        with meeting(kind) as channels:
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
def test_whoever_reacts_late_names_it_too(kind: str, busy: bool) -> None:
    for _ in range(5):
        with meeting(kind) as channels:
            ann, bob, cid = channels.values()
            with cid._lock:  # neither reads nor writes
                if busy:
                    bob.send("ann", LARGE)
                die(ann)
                assert receiving(bob, "ann").result().peer == "ann"
                time.sleep(0.2)
                if busy:  # comes back as a reset, which must not hide bob's last words
                    cid._connections["bob"].enqueue(LARGE.data.cast("B"))
                    cid._connections["bob"].write()
            error = receiving(cid, "bob").result()
            assert str(error).startswith("ann: the connection was lost")
            assert "bob" not in str(error)


def test_last_words_are_read_though_writing_failed() -> None:
    with meeting("tls") as channels:
        ann, bob, cid = channels.values()
        with cid._lock:
            bob._closed.set()  # so that its other thread reads nothing more
            bob._ticker.join()
            cid._connections["bob"].sock.send(b"unread, so that hanging up is a reset")
            time.sleep(0.1)
            bob._connections["cid"].send_control(HEARTBEAT_FRAME)
            bob._connections["cid"].send_control(FAILURE_FRAME, hash_name("ann"))
            with bob._lock:
                bob._disconnect()
            link = cid._connections["bob"]
            link.enqueue(memoryview(bytes(100)))
            time.sleep(0.1)
            link.write()
            assert str(link.error) == "bob: gave up, having lost ann"
        die(ann)
        assert receiving(cid, "bob").result().peer == "ann"


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_only_one_connection_is_cut(kind: str) -> None:
    for _ in range(5):
        with meeting(kind) as channels:
            ann, bob, cid = channels.values()
            waiting = [receiving(ann, "bob"), receiving(bob, "ann"), receiving(cid, "bob")]
            cut(ann, "bob")
            one, two, three = (str(failing.result()) for failing in waiting)
            assert one.startswith("bob: the connection was lost")
            assert two.startswith("ann: the connection was lost")
            assert re.search("ann: gave up, having lost bob|bob: gave up, having lost ann", three)


def test_hearsay_is_checked_for_a_moment() -> None:
    """Word of ann's failure comes well before its connection shows it."""
    with meeting("tls") as channels:
        ann, bob, cid = channels.values()
        waiting = receiving(cid, "bob")
        cut(ann, "bob")
        assert receiving(bob, "ann").result().peer == "ann"
        time.sleep(_ATTRIBUTION_SECONDS / 3)
        die(ann)
        assert str(waiting.result()).startswith("ann: the connection was lost")


def test_hearsay_is_checked_when_sending_too() -> None:
    with meeting("tls") as channels:
        ann, bob, cid = channels.values()
        cut(ann, "bob")
        assert receiving(bob, "ann").result().peer == "ann"
        time.sleep(0.1)
        sending = Failing(lambda: cid.send("bob", np.zeros(5, dtype=np.uint64)))
        time.sleep(_ATTRIBUTION_SECONDS / 3)
        die(ann)
        assert sending.result().peer == "ann"


def test_hearsay_is_believed_after_that() -> None:
    with meeting("tls") as channels:
        ann, bob, cid = channels.values()
        waiting = receiving(cid, "bob")
        with ann._lock:  # alive, but it does not notice
            cut(bob, "ann")
            assert receiving(bob, "ann").result().peer == "ann"
            error = waiting.result()
        assert isinstance(error, PeerLostError)
        assert str(error).startswith("bob: gave up, having lost ann")
        assert waiting.seconds < _ATTRIBUTION_SECONDS + 1.0
        # And ann, which cid tells of bob's word, names bob.
        assert receiving(ann, "cid").result().peer == "bob"


def test_a_silent_peer_is_named_by_those_that_do_not_wait_for_it() -> None:
    with meeting("tcp", deadline=1.0) as channels:
        ann, bob, cid = channels.values()
        with ann._lock:
            one, two = receiving(bob, "ann"), receiving(cid, "bob")
            assert isinstance(one.result(), PeerSilentError)
            assert str(two.result()).startswith("bob: gave up, having lost ann")


@pytest.mark.parametrize("late", [False, True])
def test_a_failure_in_the_middle_of_a_large_array(late: bool) -> None:
    """Bob's word of ann's death waits behind an array that cid does not read: cid waits a bit."""
    with meeting("tcp") as channels:
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


def test_nobody_else_to_doubt() -> None:
    """With two participants nothing can clear up, so nothing is waited for."""
    with meeting("tcp", names=("ann", "bob")) as channels:
        ann, bob = channels.values()
        with bob._lock:
            ann.send("bob", LARGE)
            die(ann)
        waiting = receiving(bob, "ann")
        assert waiting.result().peer == "ann"
        assert waiting.seconds < _ATTRIBUTION_SECONDS


def test_a_failure_of_its_own() -> None:
    with meeting("tls") as channels:
        ann, bob, cid = channels.values()
        waiting = [receiving(bob, "cid"), receiving(cid, "bob")]
        with pytest.raises(ZeroDivisionError), ann:
            raise ZeroDivisionError
        for failing in waiting:
            assert str(failing.result()).startswith("ann: ended with an error of its own")


def test_an_interruption_is_no_error() -> None:
    with meeting("tls") as channels:
        ann, bob, _ = channels.values()
        waiting = receiving(bob, "cid")
        with pytest.raises(KeyboardInterrupt), ann:
            raise KeyboardInterrupt
        assert str(waiting.result()) == "ann: was interrupted"


@pytest.mark.parametrize("doubt", [CauseRank.SELF_REPORTED, CauseRank.BLAMES_OTHER])
def test_who_has_lost_one_of_its_kin_says_so(doubt: CauseRank) -> None:
    """Beside one that failed by itself, it is to blame if its kin was its own to keep."""
    with meeting("tls") as channels:
        ann, bob, cid = channels.values()
        for channel in channels.values():
            for link in channel._connections.values():
                link.relatives = map_relatives(["helper"], doubt)
        with cid._lock:  # it hears of both at once
            with pytest.raises(ZeroDivisionError), bob:
                raise ZeroDivisionError
            with pytest.raises(PeerLostError), ann:
                raise PeerLostError("helper", "the connection was lost")
            time.sleep(0.1)
        said = receiving(cid, "bob").result()
        assert "bob: ended with an error of its own" in str(said)
        blamed = "ann: gave up, having lost its helper" in str(said)
        assert blamed == (doubt == CauseRank.SELF_REPORTED)
        assert said.cause_rank == CauseRank.SELF_REPORTED


def test_a_complaint_of_the_program_names_its_culprit() -> None:
    """A peer may break rules that only the program knows."""
    with meeting("tls") as channels:
        ann, bob, cid = channels.values()
        waiting = receiving(cid, "ann")
        with pytest.raises(PeerMisbehavedError), ann:
            raise PeerMisbehavedError("bob", "sent no permutation")
        assert "ann: gave up, having lost bob" in str(waiting.result())
        assert receiving(bob, "ann").result().peer == "ann"


def test_a_failure_while_others_have_ended() -> None:
    """Ann has said goodbye and loses bob: cid, which goes on, names bob, and so does ann."""
    with meeting("tls") as channels:
        ann, bob, cid = channels.values()
        ending = Failing(ann.close)
        time.sleep(0.1)
        waiting = receiving(cid, "bob")
        die(bob)
        assert waiting.result().peer == "bob"
        assert str(ending.result()).startswith("bob: the connection was lost before its goodbye")


def test_who_breaks_off_is_named_before_who_has_left() -> None:
    """Bob's last words are lost in an array that it did not end, and ann goes for that."""
    with meeting("tls") as channels:
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


def test_a_failure_after_a_goodbye_is_heard() -> None:
    with meeting("tcp") as channels:
        ann, _, cid = channels.values()
        with ann._lock:
            ann._connections["cid"].said_goodbye = cid._connections["ann"].said_goodbye = True
        with pytest.raises(ZeroDivisionError), ann:
            raise ZeroDivisionError
        assert "ann: ended with an error of its own" in str(receiving(cid, "bob").result())


def test_a_channel_that_is_closed_is_nobodys_fault() -> None:
    with meeting("tcp") as channels:
        ann = channels["ann"]
        ann.abort()
        error = receiving(ann, "bob").result()
        assert (error.peer, str(error)) == (None, "this channel is closed")


def test_the_step_is_that_of_any_error_that_ends_a_channel() -> None:
    with meeting("tcp") as channels:
        channels["ann"].current_step = lambda: "leaves"
        with pytest.raises(ResultError) as caught, channels["ann"]:
            raise ResultError("leaf values of 1000 and more in size")
        assert (caught.value.peer, caught.value.step) == (None, "leaves")


def test_several_that_died_are_all_named() -> None:
    with meeting("tcp") as channels:
        ann, bob, cid = channels.values()
        with cid._lock:
            die(ann)
            die(bob)
        error = str(receiving(cid, "bob").result())
        assert {error[:3], error.partition("; also ")[2][:3]} == {"ann", "bob"}


@pytest.mark.parametrize(
    ("tag", "culprit"),
    [(hash_name("cid"), "cid"), (hash_name("ann"), "ann"), (12345, "one whom we do not know")],
    ids=["ourselves", "a peer", "unknown"],
)
def test_whom_a_peer_may_blame(tag: int, culprit: str) -> None:
    with meeting("tcp") as channels:
        ann, bob, cid = channels.values()
        waiting = receiving(cid, "bob")
        with bob._lock:
            bob._connections["cid"].send_control(FAILURE_FRAME, tag)
            assert str(waiting.result()).startswith(f"bob: gave up, having lost {culprit}")
            assert (waiting.seconds >= _ATTRIBUTION_SECONDS - 0.1) == (culprit == "ann")
            # We are there, ann is, and the third may be made up: to ann, bob is to blame.
            assert "cid: gave up, having lost bob" in str(receiving(ann, "cid").result())


def test_a_chain_of_failures_names_its_origin(channels: dict[str, Channel]) -> None:
    """Of every kind of channel: cid waits for bob, bob for ann."""
    waiting = [receiving(channels["bob"], "ann"), receiving(channels["cid"], "bob")]
    time.sleep(0.1)
    channels["ann"].abort()
    for failing in waiting:
        assert "ann" in str(failing.result())


@pytest.mark.parametrize("both", [False, True])
def test_a_loss_on_another_channel_of_ours(both: bool) -> None:
    """Who waits here hears of it; but one that is lost here, too, comes first."""
    with (
        meeting("tcp", names=("head", "worker")) as to_workers,
        meeting("tcp", names=("head", "other")) as to_heads,
    ):
        waiting = to_workers["head"]
        waiting.linked_channel = to_heads["head"]
        die(to_heads["other"])
        if both:
            die(to_workers["worker"])
        time.sleep(0.2)
        error = receiving(waiting, "worker").result()
    assert error.peer == ("worker" if both else "other")
