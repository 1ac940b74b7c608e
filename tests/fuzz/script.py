"""A channel whose incoming arrays are scripted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from privet.errors import PeerLostError
from privet.transport import frames
from privet.transport.channel import Array, Channel, Expected
from privet.transport.frames import ARRAY, Header

_MAX_ZEROS_BYTES = 1 << 20
"""Limit of an array that is expected after the script; larger ones never arrive."""


class ScriptedChannel(Channel):
    """One member's channel: arrays come from a script, each checked against the expected one.

    After the script, small expected arrays are zeros: the content read so far determines the
    expected arrays, and a peer would send them.
    """

    def __init__(self, name: str, script: Mapping[str, Iterable[Array]]) -> None:
        super().__init__(name, 10.0)
        self._script = {peer: deque(arrays) for peer, arrays in script.items()}

    @property
    def peers(self) -> tuple[str, ...]:
        """The peers of the script."""
        return tuple(self._script)

    def receive(self, peer: str, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        """Return the next array, like a connection."""

        def receive(*layout: Any) -> Array:
            expected = Expected(*layout)
            rest = self._script[peer]
            if not rest and expected.nbytes > _MAX_ZEROS_BYTES:
                raise PeerLostError(peer, "has no more to say")
            array = rest.popleft() if rest else np.zeros(expected.shape, expected.dtype)
            header = Header(ARRAY, array.dtype, array.shape, 0, tag, stream)
            self.check_header(peer, header, expected, 0, tag)
            return array

        return frames.assemble_frames(*expected, receive)

    def send(self, peer: str, array: Array, tag: int = 0, stream: int = 0) -> None:
        """Send nothing."""

    def has_pending(self, peer: str, stream: int = 0) -> bool:
        """Return True."""
        return True

    def flush(self) -> None:
        """Do nothing."""

    def backlog(self, peer: str) -> int:
        """Return 0."""
        return 0

    def wait_for_backlog(self, limit: int, peers: Sequence[str]) -> None:
        """Do nothing."""

    def close(self, timeout: float | None = None) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """Do nothing."""


def message(content: bytes) -> list[Array]:
    """Return the arrays of a message."""
    return [np.array([len(content)], dtype=np.uint64), np.frombuffer(content, dtype=np.uint8)]
