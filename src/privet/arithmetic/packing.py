"""Ring elements as they travel: each takes its ring's width, whatever the width.

A width is a sum of powers of two, and an element is cut into chunks of these many bits, the largest
first and lowest: 36 = 32 + 4. A message holds all chunks of one size, then those of the next. Where
chunks are smaller than a byte, the vector is cut into as many runs as fit into one, and byte i
holds the i-th chunk of every run, so that packing works on contiguous memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from privet.arithmetic import large_arrays
from privet.arithmetic.rings import Ring, RingArray

ByteArray = npt.NDArray[np.uint8]

_WORDS = {8 * kind.itemsize: kind for kind in map(np.dtype, ("u1", "u2", "u4"))}
_SHIFTS = {chunk: np.arange(0, 8, chunk, dtype=np.uint8)[:, None] for chunk in (1, 2, 4)}
"""Of chunks smaller than a byte: where in a byte those of each run lie."""


def pack_elements(ring: Ring, vector: RingArray) -> RingArray:
    """Return a vector as it is sent: as it is, or as bytes."""
    if ring.is_word:
        return vector
    count = len(vector)
    message = np.empty(ring.count_packed_bytes(count), dtype=np.uint8)
    rest: ByteArray | None = None  # what is left of elements when whole bytes are gone
    for chunk, shift, where in _chunks(ring, count):
        if chunk >= 8:
            _shift_down(vector, shift, message[where].view(_WORDS[chunk]))
            continue
        if rest is None:
            rest = np.empty(count, dtype=np.uint8)
            _shift_down(vector, shift, rest)
        message[where] = _pack(rest, chunk)
        rest >>= np.uint8(chunk)
    return message


def unpack_elements(ring: Ring, message: RingArray, count: int) -> RingArray:
    """Return the vector that was sent."""
    if ring.is_word:
        return message
    parts: list[tuple[RingArray, int]] = []
    rest: ByteArray | None = None
    for chunk, shift, where in _chunks(ring, count):
        if chunk >= 8:
            parts.append((message[where].view(_WORDS[chunk]), shift))
            continue
        found = _unpack(message[where], chunk, count)
        if rest is None:
            rest = found
            parts.append((rest, shift))
        else:
            found <<= np.uint8(shift & 7)
            rest |= found
    vector = np.empty(count, dtype=ring.dtype)

    def join(block: slice) -> None:
        target = vector[block]
        target[...] = parts[0][0][block]
        for part, shift in parts[1:]:
            wide = part[block].astype(ring.dtype)
            wide <<= ring.dtype.type(shift)
            target |= wide

    large_arrays.run_blocks(join, large_arrays.split_into_blocks(count), count)
    return vector


def _shift_down(vector: RingArray, shift: int, target: RingArray) -> None:
    """Write elements without their lowest bits, as far as they fit."""

    def write(block: slice) -> None:
        part = vector[block]
        target[block] = part >> vector.dtype.type(shift) if shift else part

    large_arrays.run_blocks(write, large_arrays.split_into_blocks(len(vector)), len(vector))


def _pack(low: ByteArray, chunk: int) -> ByteArray:
    """Return the lowest bits of each element, several to a byte."""
    runs = 8 // chunk
    length = -(-len(low) // runs)
    pieces = np.zeros(runs * length, dtype=np.uint8)
    np.bitwise_and(low, np.uint8((1 << chunk) - 1), out=pieces[: len(low)])
    while runs > 1:
        # The later half of all runs goes above the earlier one.
        runs //= 2
        earlier, later = pieces[: runs * length], pieces[runs * length :]
        later <<= np.uint8(runs * chunk)
        earlier |= later
        pieces = earlier
    return pieces


def _unpack(packed: ByteArray, chunk: int, count: int) -> ByteArray:
    """Return chunks that were packed."""
    rows = packed >> _SHIFTS[chunk]
    rows &= np.uint8((1 << chunk) - 1)
    return rows.reshape(-1)[:count]


def _chunks(ring: Ring, count: int) -> Iterator[tuple[int, int, slice]]:
    """Yield the chunks of an element: their bits, where they start in it, and in a message."""
    shift = start = 0
    for chunk in ring.chunks:
        end = start + -(-count * chunk // 8)
        yield chunk, shift, slice(start, end)
        shift, start = shift + chunk, end
