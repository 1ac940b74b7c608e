"""One link, and what a peer that means ill can make of it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import numpy as np
import pytest

from privet.errors import PeerLostError, PeerMisbehavedError
from privet.transport import connection as links
from privet.transport.channel import Expected
from privet.transport.connection import PeerConnection
from privet.transport.frames import hash_name, pack_array_header
from privet.transport.sockets import SocketChannel

ONE = np.arange(8, dtype=np.uint64)


@pytest.fixture
def ends() -> Iterator[tuple[SocketChannel, socket.socket]]:
    """Ann's channel to bob, and bob's end of it."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        theirs = socket.create_connection(door.getsockname())
        ours, _ = door.accept()
    ours.setblocking(False)
    link = PeerConnection("bob", ours, 1 << 20, {hash_name("bob"): "bob"})
    channel = SocketChannel("ann", {"bob": link})
    yield channel, theirs
    channel.abort()
    theirs.close()


def frame(sequence: int, stream: int = 0) -> bytes:
    return pack_array_header(ONE, sequence, 0, stream) + ONE.tobytes()


def test_streams_that_nobody_waits_on_do_not_fill_our_memory(
    ends: tuple[SocketChannel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, theirs = ends
    monkeypatch.setattr(
        links, "MAX_READ_AHEAD_BYTES", 10 * (ONE.nbytes + links.FRAME_OVERHEAD_BYTES)
    )
    theirs.sendall(b"".join(frame(number, stream=5) for number in range(100)))
    with pytest.raises(PeerMisbehavedError, match=r"^bob: sent \d+ bytes that nobody waits for"):
        channel.receive("bob", Expected(ONE.dtype, ONE.shape))


def test_a_loss_that_is_known_is_not_waited_for(
    ends: tuple[SocketChannel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second array is due when all that came of bob is read, and that it has hung up."""
    channel, theirs = ends
    theirs.sendall(frame(0))
    theirs.close()
    while channel._connections["bob"].error is None:
        time.sleep(0.01)
    due = Expected(ONE.dtype, ONE.shape)
    channel.receive("bob", due)
    waited: list[float] = []
    monkeypatch.setattr(channel, "_pump", waited.append)
    with pytest.raises(PeerLostError, match=r"^bob: the connection was lost"):
        channel.receive("bob", due)
    assert set(waited) == {0}
