"""Conformance tests for every kind of channel."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.errors import PeerError, PeerLostError, PeerMisbehavedError, PeerSilentError
from privet.transport import frames
from privet.transport.channel import Channel, Expected
from privet.transport.frames import GOODBYE, pack_array_header, pack_control_header
from privet.transport.sockets import SocketChannel
from tests.transport.conftest import mesh

Channels = dict[str, Channel]


def together(channels: Channels, body: Callable[[Channel], Any]) -> dict[str, Any]:
    """Run a body at every channel in parallel; return the results, or raise a PeerError."""
    results: dict[str, Any] = {}

    def guard(channel: Channel) -> None:
        try:
            results[channel.name] = body(channel)
        except PeerError as error:
            results[channel.name] = error

    threads = [threading.Thread(target=guard, args=(c,)) for c in channels.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a channel hangs"
    for result in results.values():
        if isinstance(result, PeerError):
            raise result
    return results


def expected(array: np.ndarray) -> Expected:
    return Expected(array.dtype, array.shape)


def test_peers_are_all_other_participants(channels: Channels) -> None:
    assert channels["bob"].name == "bob"
    assert sorted(channels["bob"].peers) == ["ann", "cid"]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 4), (2, 0, 5), (2, 3, 4, 5)])
def test_arrays_arrive_as_they_were_sent(
    channels: Channels, dtype: Any, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        (a, b): rng.integers(0, 255, shape, dtype=dtype)
        for a in channels
        for b in channels
        if a != b
    }

    def body(channel: Channel) -> None:
        outgoing = {peer: arrays[channel.name, peer] for peer in channel.peers}
        due = {peer: expected(arrays[peer, channel.name]) for peer in channel.peers}
        for peer, array in channel.exchange(outgoing, due, tag=3).items():
            assert array.dtype == dtype
            assert array.shape == shape
            assert (array == arrays[peer, channel.name]).all()

    together(channels, body)


def test_order_is_kept(channels: Channels) -> None:
    def body(channel: Channel) -> None:
        for i in range(200):
            for peer in channel.peers:
                channel.send(peer, np.full(i % 7, i, dtype=np.uint32), tag=i)
        for i in range(200):
            for peer in channel.peers:
                array = channel.receive(peer, Expected(np.dtype(np.uint32), (i % 7,)), tag=i)
                assert (array == i).all()

    together(channels, body)


def test_sending_does_not_wait_for_the_receiver(channels: Channels) -> None:
    """All participants send more than any buffer can hold before any of them receives."""
    large = np.arange(1_000_000, dtype=np.uint64)

    def body(channel: Channel) -> None:
        for peer in channel.peers:
            channel.send(peer, large + np.uint64(1))
        for peer in channel.peers:
            assert (channel.receive(peer, expected(large)) == large + np.uint64(1)).all()
        channel.flush()
        channel.wait_for_backlog(0, channel.peers)
        channel.close()

    together(channels, body)


def test_pending_arrays_are_reported_without_waiting(channels: Channels) -> None:
    number = np.array([7], dtype=np.uint32)

    def body(channel: Channel) -> None:
        for peer in channel.peers:
            channel.send(peer, number)
        deadline = time.monotonic() + 10
        while not all(channel.has_pending(peer) for peer in channel.peers):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for peer in channel.peers:
            channel.receive(peer, expected(number))
        assert not any(channel.has_pending(peer) for peer in channel.peers)
        channel.close()

    together(channels, body)


def test_a_non_contiguous_view_is_sent_correctly(channels: Channels) -> None:
    array = np.arange(100_000, dtype=np.uint64).reshape(100, 1000)[::2, ::3].T

    def body(channel: Channel) -> None:
        peers = dict.fromkeys(channel.peers, array)
        for received in channel.exchange(peers, dict.fromkeys(peers, expected(array))).values():
            assert (received == array).all()

    together(channels, body)


def test_a_participant_can_end_early(channels: Channels) -> None:
    """Arrays sent before a goodbye arrive, even if they are received late."""
    array = np.arange(300_000, dtype=np.uint64)

    def body(channel: Channel) -> None:
        if channel.name == "ann":
            channel.send("bob", array)
        elif channel.name == "bob":
            time.sleep(1.0)
            assert (channel.receive("ann", expected(array)) == array).all()
            channel.send("cid", array)
        else:
            assert (channel.receive("bob", expected(array)) == array).all()
        channel.close()

    together(channels, body)


def test_a_disconnected_peer_is_named(channels: Channels) -> None:
    channels["bob"].current_step = lambda: "argmax"

    def body(channel: Channel) -> None:
        if channel.name == "ann":
            time.sleep(0.3)
            channel.abort()
        elif channel.name == "bob":
            start = time.monotonic()
            with pytest.raises(PeerLostError, match=r"^ann: .* at step 'argmax'"):
                channel.receive("ann", Expected(np.dtype(np.uint64), (5,)))
            assert time.monotonic() - start < 1.5
            with pytest.raises(PeerError):
                channel.receive("cid", Expected(np.dtype(np.uint64), (5,)))

    together(channels, body)


def test_a_goodbye_while_an_array_is_expected(channels: Channels) -> None:
    def body(channel: Channel) -> None:
        if channel.name == "ann":
            channel.close()
        elif channel.name == "bob":
            with pytest.raises(PeerLostError, match=r"^ann: "):
                channel.receive("ann", Expected(np.dtype(np.uint64), (5,)))
            with pytest.raises(PeerError):
                channel.send("ann", np.zeros(1, dtype=np.uint64))
        else:
            time.sleep(1.0)
            channel.abort()

    # Ann waits for bob's goodbye, and may find that bob has failed.
    with contextlib.suppress(PeerLostError):
        together(channels, body)


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_a_missing_goodbye_fails_the_close(kind: str, tmp_path: Path) -> None:
    with mesh(kind, tmp_path, deadline=2.0, names=("ann", "bob")) as channels:
        channels["ann"].send("bob", np.zeros(5_000_000, dtype=np.uint64))
        channels["bob"].abort()
        with pytest.raises(PeerLostError, match=r"^bob: .* before its goodbye"):
            channels["ann"].close()
        with pytest.raises(PeerLostError, match="this channel is closed"):
            channels["ann"].send("bob", np.zeros(1, dtype=np.uint64))


def test_heartbeats_do_not_keep_a_channel_open(tmp_path: Path) -> None:
    """Bob is alive and never sends a goodbye: the others still end soon."""
    with mesh("tls", tmp_path, deadline=2.0) as channels:
        start = time.monotonic()
        channels["ann"].close_best_effort()
        channels["cid"].goodbye_timeout = 1.0
        with pytest.raises(PeerSilentError, match=r"^bob: only signs of life .* its goodbye"):
            channels["cid"].close()
        assert time.monotonic() - start < 6
        channels["bob"].abort()


def test_an_unexpected_frame_is_refused_by_its_header(tmp_path: Path) -> None:
    """It announces a gigabyte that is never sent, while heartbeats continue."""
    with mesh("tls", tmp_path, deadline=2.0, names=("ann", "bob")) as channels:
        ann, bob = channels["ann"], channels["bob"]
        assert isinstance(ann, SocketChannel)
        huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (1 << 30,), (0,))
        ann._connections["bob"].enqueue(memoryview(pack_array_header(huge, 0, 0)))
        start = time.monotonic()
        with pytest.raises(
            PeerMisbehavedError, match=r"^ann: sent array 0 of uint8 \(1073741824,\)"
        ):
            bob.receive("ann", Expected(np.dtype(np.uint64), (5,)))
        assert time.monotonic() - start < 5
        ann.abort()


def test_large_arrays_are_split_into_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay in order with other arrays, and an array of another size is refused."""
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", 1000)
    rng = np.random.default_rng(1)
    sent = [
        rng.integers(0, 1 << 60, shape).astype(np.uint64)
        for shape in ((124,), (125,), (126,), (3, 200), (1,), (1250,))
    ]
    with mesh("tls", tmp_path, deadline=5.0, names=("ann", "bob")) as channels:
        ann, bob = channels["ann"], channels["bob"]
        for array in sent:
            ann.send("bob", array, 7)
        for array in sent:
            found = bob.receive("ann", Expected(array.dtype, array.shape), 7)
            assert found.shape == array.shape
            assert (found == array).all()
        ann.send("bob", np.zeros(2500, dtype=np.uint8))
        with pytest.raises(PeerMisbehavedError, match=r"of uint8 \(500,\).* \(501,\)"):
            bob.receive("ann", Expected(np.dtype(np.uint8), (2501,)))
        ann.abort()


def test_a_peer_can_end_while_another_one_is_still_receiving(
    tmp_path: Path,
) -> None:
    """Bob reads a large array slowly; cid has received it, and sends its goodbye."""
    large = np.zeros(6 << 20, dtype=np.uint64)
    with mesh("tcp", tmp_path, deadline=20.0, names=("ann", "bob", "cid")) as channels:
        ann, bob, cid = (channels[name] for name in ("ann", "bob", "cid"))

        def read_slowly() -> None:
            time.sleep(1.0)
            bob.receive("ann", Expected(large.dtype, large.shape))
            bob.close()

        def end() -> None:
            cid.receive("ann", Expected(large.dtype, large.shape))
            cid.close()

        threads = [threading.Thread(target=body) for body in (read_slowly, end)]
        ann.send("bob", large)
        ann.send("cid", large)
        for thread in threads:
            thread.start()
        ann.flush()
        ann.close()
        for thread in threads:
            thread.join()


def test_a_failure_ends_the_wait_for_goodbyes(tmp_path: Path) -> None:
    """Bob fails while ann waits for all goodbyes: ann reports it, although cid is alive."""
    with mesh("tls", tmp_path, deadline=2.0) as channels:
        channels["bob"].abort()
        start = time.monotonic()
        with pytest.raises(PeerLostError, match=r"^bob: .* before its goodbye$"):
            channels["ann"].close()
        assert time.monotonic() - start < 1.5
        channels["cid"].abort()


def test_an_array_out_of_order_is_refused(tmp_path: Path) -> None:
    one = np.zeros(1, dtype=np.uint64)
    with mesh("tcp", tmp_path, deadline=2.0, names=("ann", "bob")) as channels:
        ann, bob = channels["ann"], channels["bob"]
        assert isinstance(ann, SocketChannel)
        ann._connections["bob"].n_sent_by_stream[0] = 5
        ann.send("bob", one)
        with pytest.raises(PeerMisbehavedError, match=r"sent array 5 .* where array 0 .* is due"):
            bob.receive("ann", expected(one))
        ann.abort()


def test_streams_do_not_wait_for_each_other(channels: Channels) -> None:
    """Streams are received in reverse order, and each stream counts its own arrays."""

    def body(channel: Channel) -> None:
        for stream in range(4):
            for i in range(3):
                for peer in channel.peers:
                    channel.send(peer, np.array([stream, i], dtype=np.uint32), i, stream)
        for stream in reversed(range(4)):
            for i in range(3):
                for peer in channel.peers:
                    due = Expected(np.dtype(np.uint32), (2,))
                    assert channel.receive(peer, due, i, stream).tolist() == [stream, i]

    together(channels, body)


def test_threads_in_parallel(channels: Channels) -> None:
    """Eight threads at each participant: some wait for large arrays, some for many small ones."""

    def body(channel: Channel) -> None:
        def exchange(stream: int) -> int:
            size, rounds = (1 << 17, 4) if stream % 2 else (5, 60)
            for i in range(rounds):
                array = np.full(size, 1000 * stream + i, dtype=np.uint64)
                for peer in channel.peers:
                    channel.send(peer, array, i, stream)
                for peer in channel.peers:
                    assert (channel.receive(peer, expected(array), i, stream) == array).all()
            return rounds

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(exchange, range(8))) == [60, 4] * 4

    together(channels, body)


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_a_full_inbox_is_read_for_a_waiting_thread(kind: str, tmp_path: Path) -> None:
    with mesh(kind, tmp_path, deadline=5.0, names=("ann", "bob")) as channels:
        ann, bob = channels["ann"], channels["bob"]
        assert isinstance(bob, SocketChannel)
        bob._inbox_limit = 1 << 16
        many, one = np.zeros(1 << 20, dtype=np.uint64), np.ones(1, dtype=np.uint64)
        ann.send("bob", many, stream=1)
        ann.send("bob", one, stream=2)
        assert bob.receive("ann", expected(one), stream=2).tolist() == [1]
        assert (bob.receive("ann", expected(many), stream=1) == many).all()
        ann.abort()
        bob.abort()


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_a_failure_reaches_all_threads(kind: str, tmp_path: Path) -> None:
    with mesh(kind, tmp_path, deadline=20.0, names=("ann", "bob")) as channels:
        ann, bob = channels["ann"], channels["bob"]
        due = Expected(np.dtype(np.uint8), (1,))

        def wait(stream: int) -> str | None:
            with pytest.raises(PeerError) as caught:
                bob.receive("ann", due, stream=stream)
            return caught.value.peer

        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(wait, stream) for stream in range(4)]
            time.sleep(0.1)
            start = time.monotonic()
            ann.abort()
            found = [future.result() for future in waiting]
        assert time.monotonic() - start < 2
        assert {*found} <= {"ann", None}  # None: another thread has closed the channel
        assert "ann" in found


def test_an_array_after_a_goodbye_is_refused(tmp_path: Path) -> None:
    one = np.zeros(1, dtype=np.uint64)
    with mesh("tcp", tmp_path, deadline=2.0, names=("ann", "bob")) as channels:
        ann, bob = channels["ann"], channels["bob"]
        assert isinstance(ann, SocketChannel)
        connection = ann._connections["bob"]
        with ann._lock:
            connection.enqueue(
                memoryview(pack_control_header(GOODBYE) + pack_array_header(one, 0, 0) + bytes(8))
            )
            connection.write()
        with pytest.raises(PeerMisbehavedError, match="after its goodbye"):
            bob.receive("ann", expected(one))
        ann.abort()


def test_a_sender_does_not_wait_for_a_silent_peer(tmp_path: Path) -> None:
    with mesh("tcp", tmp_path, deadline=1.0, names=("ann", "bob")) as channels:
        ann, bob = channels["ann"], channels["bob"]
        assert isinstance(bob, SocketChannel)
        with bob._lock:  # bob neither reads nor sends heartbeats
            for _ in range(20):
                ann.send("bob", np.zeros(1 << 20, dtype=np.uint64))
            start = time.monotonic()
            with pytest.raises(PeerSilentError, match=r"^bob: "):
                ann.wait_for_backlog(1 << 20, ann.peers)
            assert time.monotonic() - start < 3
        bob.abort()


def test_empty_frames_fill_the_inbox_too(tmp_path: Path) -> None:
    with mesh("tcp", tmp_path, deadline=5.0, names=("ann", "bob")) as channels:
        ann, bob = channels["ann"], channels["bob"]
        assert isinstance(bob, SocketChannel)
        bob._inbox_limit = 1 << 16
        for _ in range(20_000):
            ann.send("bob", np.empty(0, dtype=np.uint8))
        time.sleep(0.3)
        assert len(bob._connections["ann"].inbox[0]) < 10_000
        ann.abort()
        bob.abort()


@pytest.mark.parametrize(
    ("array", "tag"),
    [
        (np.zeros(4, dtype=np.uint64), 7),
        (np.zeros(5, dtype=np.uint32), 7),
        (np.zeros((5, 1), dtype=np.uint64), 7),
        (np.zeros(5, dtype=np.uint64), 8),
    ],
    ids=["length", "type", "dimensions", "tag"],
)
def test_an_unexpected_array_is_refused(channels: Channels, array: Any, tag: int) -> None:
    def body(channel: Channel) -> None:
        if channel.name == "ann":
            channel.send("bob", array, tag)
        elif channel.name == "bob":
            with pytest.raises(PeerMisbehavedError, match=r"^ann: sent array 0 .* is due"):
                channel.receive("ann", Expected(np.dtype(np.uint64), (5,)), tag=7)

    together(channels, body)


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_a_silent_peer_is_named_but_a_slow_one_is_not(kind: str, tmp_path: Path) -> None:
    with mesh(kind, tmp_path, deadline=1.0) as channels:
        slow, waiting = channels["ann"], channels["bob"]
        one = np.zeros(1, dtype=np.uint64)

        def compute() -> None:
            time.sleep(2.5)  # longer than the timeout, with heartbeats
            slow.send("bob", one)

        thread = threading.Thread(target=compute)
        thread.start()
        assert waiting.receive("ann", expected(one)) == 0
        thread.join()

        assert isinstance(slow, SocketChannel)
        with slow._lock:  # the lock stops the heartbeats
            start = time.monotonic()
            with pytest.raises(PeerSilentError, match=r"^ann: nothing heard from it for 1 s"):
                waiting.receive("ann", expected(one))
            assert 0.9 < time.monotonic() - start < 2.5
        for channel in channels.values():
            channel.abort()


GARBAGE = [
    b"GET / HTTP/1.1\r\n\r\n" + bytes(100),
    bytes(64),
    os.urandom(64),
    pack_array_header(np.zeros(5, dtype=np.uint64), 0, 0)[:16] + b"\xff" * 16,
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=["http", "zeros", "noise", "huge"])
@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_a_peer_that_sends_garbage_is_named(kind: str, garbage: bytes, tmp_path: Path) -> None:
    with mesh(kind, tmp_path, deadline=2.0) as channels:
        sender = channels["ann"]
        assert isinstance(sender, SocketChannel)
        connection = sender._connections["bob"]
        with sender._lock:
            connection.enqueue(memoryview(garbage))
            connection.write()
        with pytest.raises(PeerMisbehavedError, match=r"^ann: sent "):
            channels["bob"].receive("ann", Expected(np.dtype(np.uint64), (5,)))
        for channel in channels.values():
            channel.abort()


def test_a_full_inbox_stops_reading(tmp_path: Path) -> None:
    """The backlog stays at the sender, and the receiver's memory stays bounded."""
    with mesh("tcp", tmp_path, deadline=5.0, names=("ann", "bob")) as channels:
        ann, bob = channels["ann"], channels["bob"]
        assert isinstance(bob, SocketChannel)
        bob._inbox_limit = 1 << 20
        piece = np.zeros(1 << 16, dtype=np.uint64)
        for _ in range(100):  # 50 MB
            ann.send("bob", piece)
        time.sleep(0.5)
        assert bob._connections["ann"].inbox_bytes < 8 << 20
        assert ann.backlog("bob") > 0
        for _ in range(100):
            bob.receive("ann", expected(piece))
        together(channels, lambda channel: channel.close())
