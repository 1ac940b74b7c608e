"""The state of a connection, as read by another thread."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from privet.transport.channel import Expected
from privet.transport.frames import HEADER_BYTES
from privet.transport.sockets import SocketChannel
from tests.transport.conftest import mesh


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_byte_counts_and_delay(kind: str, tmp_path: Path) -> None:
    array = np.arange(1000, dtype=np.uint64)
    with mesh(kind, tmp_path, deadline=60.0, names=("ann", "bob")) as channels:
        ann, bob = channels["ann"], channels["bob"]
        assert isinstance(ann, SocketChannel)
        assert isinstance(bob, SocketChannel)
        ann.send("bob", array)
        bob.receive("ann", Expected(array.dtype, array.shape))
        size = array.nbytes + HEADER_BYTES
        assert ann.connection_states()["bob"].sent == size
        near = bob.connection_states()["ann"]
        assert (near.sent, near.received) == (0, size)
        time.sleep(0.2)
        later = bob.connection_states()["ann"]
        assert later.silent_seconds >= near.silent_seconds + 0.2
        if sys.platform.startswith("linux"):
            assert near.delay_ms is not None
            assert 0 < near.delay_ms < 1000  # far below 1 s on one machine, unless it is very busy
        ann.abort()
        assert ann.connection_states()["bob"].delay_ms is None
        bob.abort()
