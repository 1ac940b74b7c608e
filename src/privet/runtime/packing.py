"""Vectors as messages: one as it is, several as their bytes in a row; and cut into even slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Ring, RingArray
from privet.transport.channel import Array, Expected


def add_up(ring: Ring, parts: Sequence[RingArray]) -> RingArray:
    """Return the sum of equally shaped arrays."""
    total = ring.add(parts[0], parts[1])
    for part in parts[2:]:
        ring.accumulate(total, part)
    return total


def even_slices(size: int, count: int) -> list[slice]:
    """Cut a range into `count` parts whose lengths differ by one at most."""
    return [slice(size * k // count, size * (k + 1) // count) for k in range(count)]


def as_bytes(array: Array | None) -> npt.NDArray[np.uint8]:
    """Return the bytes of an array."""
    assert array is not None
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def join(parts: Sequence[Array]) -> Array:
    """Return vectors as one message: as it is if there is one, as bytes if there are more."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([as_bytes(part) for part in parts])


def cut_bytes(message: Array, kinds: Sequence[Expected]) -> list[Array]:
    """Cut bytes in a row into arrays of these kinds."""
    parts, start = [], 0
    for kind in kinds:
        end = start + kind.nbytes
        # A copy, since a view could be of numbers that are not aligned.
        parts.append(message[start:end].copy().view(kind.dtype).reshape(kind.shape))
        start = end
    return parts


@dataclass(frozen=True)
class Letter:
    """Vectors of known rings and lengths as one message."""

    rings: Sequence[Ring]
    lengths: Sequence[int]

    @property
    def _kinds(self) -> list[Expected]:
        return [
            Expected(np.dtype(np.uint8), (ring.wire_bytes(length),))
            if ring.width
            else Expected(ring.dtype, (length,))
            for ring, length in zip(self.rings, self.lengths, strict=True)
        ]

    @property
    def kind(self) -> Expected:
        """The type and shape of the message."""
        kinds = self._kinds
        if len(kinds) == 1:
            return kinds[0]
        return Expected(np.dtype(np.uint8), (sum(kind.nbytes for kind in kinds),))

    def write(self, vectors: Sequence[RingArray]) -> Array:
        """Return the message."""
        return join([r.to_wire(vector) for r, vector in zip(self.rings, vectors, strict=True)])

    def read(self, message: Array) -> list[RingArray]:
        """Return the vectors of a message."""
        kinds = self._kinds
        parts = [message] if len(kinds) == 1 else cut_bytes(message, kinds)
        return [
            ring.from_wire(part, length)
            for ring, part, length in zip(self.rings, parts, self.lengths, strict=True)
        ]
