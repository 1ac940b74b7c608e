"""Vectors as messages: all that participants and the dealer send each other is a letter.

An opening, a publication, a share and a correction are coded alike (`arithmetic.wire`): one vector
as it is, several as their bytes in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.wire import decode, encode
from privet.transport.channel import Array, Expected

ANNOUNCED = Expected(np.dtype(np.uint32), (1,))
"""A small number, as it is announced."""


@dataclass(frozen=True)
class Letter:
    """Vectors of known rings and lengths as one message."""

    rings: Sequence[Ring]
    lengths: Sequence[int]

    @classmethod
    def of(cls, ring: Ring, shape: tuple[int, ...]) -> Letter:
        """Return the letter that carries one array."""
        return cls([ring], [prod(shape)])

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        if len(self.rings) == 1:
            return self.rings[0].wire_bytes(self.lengths[0])
        return sum(r.wire_bytes(length) for r, length in zip(self.rings, self.lengths, strict=True))

    @property
    def kind(self) -> Expected:
        """The type and shape of the message."""
        if len(self.rings) == 1 and self.rings[0].is_word:
            return Expected(self.rings[0].dtype, (self.lengths[0],))
        return Expected(np.dtype(np.uint8), (self.nbytes,))

    def write(self, arrays: Sequence[RingArray]) -> Array:
        """Return the message."""
        if len(arrays) == 1:
            return encode(self.rings[0], arrays[0].reshape(-1))
        parts = [encode(r, a.reshape(-1)) for r, a in zip(self.rings, arrays, strict=True)]
        raw = [np.ascontiguousarray(part).view(np.uint8) for part in parts]
        return np.concatenate(raw) if raw else np.empty(0, dtype=np.uint8)

    def read(self, message: Array) -> list[RingArray]:
        """Return the vectors of a message."""
        if len(self.rings) == 1:
            return [decode(self.rings[0], message, self.lengths[0])]
        vectors, start = [], 0
        for ring, length in zip(self.rings, self.lengths, strict=True):
            end = start + ring.wire_bytes(length)
            part = message[start:end]
            if ring.is_word:  # a copy, since a view could be of numbers that are not aligned
                part = part.copy().view(ring.dtype)
            vectors.append(decode(ring, part, length))
            start = end
        return vectors
