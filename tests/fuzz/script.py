"""A channel on which peers have said everything already."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from privet.errors import PeerLostError
from privet.transport import frames
from privet.transport.channel import Array, Channel, Expected
from privet.transport.frames import ARRAY, Header

_MOST = 1 << 20
"""Bytes of an array that is due and not in the script: more than that never comes."""


class Scripted(Channel):
    """One member's end: arrays come from a script, each if it is the one that is due.

    When the script is over, everything small that is due comes as zeros: what was read decides what
    is due, and a peer would send that.
    """

    def __init__(self, name: str, script: Mapping[str, Iterable[Array]]) -> None:
        super().__init__(name, 10.0)
        self._script = {peer: deque(arrays) for peer, arrays in script.items()}

    @property
    def peers(self) -> tuple[str, ...]:
        """Those who are in the script."""
        return tuple(self._script)

    def receive(self, peer: str, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        """Return what comes next, as a connection would."""

        def receive(*due: Any) -> Array:
            expected = Expected(*due)
            rest = self._script[peer]
            if not rest and expected.nbytes > _MOST:
                raise PeerLostError(peer, "has no more to say")
            array = rest.popleft() if rest else np.zeros(expected.shape, expected.dtype)
            header = Header(ARRAY, array.dtype, array.shape, 0, tag, stream)
            self.check_header(peer, header, expected, 0, tag)
            return array

        return frames.assemble_frames(*expected, receive)

    def send(self, peer: str, array: Array, tag: int = 0, stream: int = 0) -> None:
        """Send nothing."""

    def has_pending(self, peer: str, stream: int = 0) -> bool:
        """Everything has."""
        return True

    def flush(self) -> None:
        """Do nothing."""

    def backlog(self, peer: str) -> int:
        """Nothing waits."""
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
