"""One connection, and a malicious or failed peer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import numpy as np
import pytest

from privet.errors import PeerLostError, PeerMisbehavedError
from privet.transport import connection as connection_module
from privet.transport.channel import Expected
from privet.transport.connection import PeerConnection
from privet.transport.frames import hash_name, pack_array_header
from privet.transport.sockets import SocketChannel

ONE = np.arange(8, dtype=np.uint64)


@pytest.fixture
def ends() -> Iterator[tuple[SocketChannel, socket.socket]]:
    """Return ann's channel to bob, and bob's socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer_socket = socket.create_connection(listener.getsockname())
        local_socket, _ = listener.accept()
    local_socket.setblocking(False)
    connection = PeerConnection("bob", local_socket, 1 << 20, {hash_name("bob"): "bob"})
    channel = SocketChannel("ann", {"bob": connection})
    yield channel, peer_socket
    channel.abort()
    peer_socket.close()


def frame(sequence: int, stream: int = 0) -> bytes:
    return pack_array_header(ONE, sequence, 0, stream) + ONE.tobytes()


def test_unread_streams_do_not_fill_the_memory(
    ends: tuple[SocketChannel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, peer_socket = ends
    monkeypatch.setattr(
        connection_module,
        "MAX_READ_AHEAD_BYTES",
        10 * (ONE.nbytes + connection_module.FRAME_OVERHEAD_BYTES),
    )
    peer_socket.sendall(b"".join(frame(number, stream=5) for number in range(100)))
    with pytest.raises(PeerMisbehavedError, match=r"^bob: sent \d+ bytes that nobody waits for"):
        channel.receive("bob", Expected(ONE.dtype, ONE.shape))


def test_a_known_loss_is_raised_at_once(
    ends: tuple[SocketChannel, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second array is expected after all of bob's bytes and its disconnection were read."""
    channel, peer_socket = ends
    peer_socket.sendall(frame(0))
    peer_socket.close()
    while channel._connections["bob"].error is None:
        time.sleep(0.01)
    expected = Expected(ONE.dtype, ONE.shape)
    channel.receive("bob", expected)
    timeouts: list[float] = []
    monkeypatch.setattr(channel, "_pump", timeouts.append)
    with pytest.raises(PeerLostError, match=r"^bob: the connection was lost"):
        channel.receive("bob", expected)
    assert set(timeouts) == {0}
