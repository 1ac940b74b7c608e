"""Packing of ring elements for messages: each element takes its ring's width in bits.

A width is a sum of powers of two, and an element is cut into chunks of these sizes. The largest
chunk comes first and holds the lowest bits: 36 = 32 + 4. A message holds all chunks of one size,
then those of the next. For chunks smaller than a byte, the vector is cut into as many runs as
chunks fit into a byte, and byte i holds the i-th chunk of every run, so that packing works on
contiguous memory.
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
"""For each chunk size below a byte: the bit offset of each run's chunk in a byte."""


def pack_elements(ring: Ring, vector: RingArray) -> RingArray:
    """Return a vector packed into bytes; elements that fill a word are returned unchanged."""
    if ring.is_word:
        return vector
    count = len(vector)
    message = np.empty(ring.count_packed_bytes(count), dtype=np.uint8)
    rest: ByteArray | None = None  # the bits of elements above their chunks of whole bytes
    for chunk, shift, span in _chunks(ring, count):
        if chunk >= 8:
            _shift_down(vector, shift, message[span].view(_WORDS[chunk]))
            continue
        if rest is None:
            rest = np.empty(count, dtype=np.uint8)
            _shift_down(vector, shift, rest)
        message[span] = _pack(rest, chunk)
        rest >>= np.uint8(chunk)
    return message


def unpack_elements(ring: Ring, message: RingArray, count: int) -> RingArray:
    """Return the vector that a message holds."""
    if ring.is_word:
        return message
    parts: list[tuple[RingArray, int]] = []
    rest: ByteArray | None = None
    for chunk, shift, span in _chunks(ring, count):
        if chunk >= 8:
            parts.append((message[span].view(_WORDS[chunk]), shift))
            continue
        found = _unpack(message[span], chunk, count)
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
    """Write elements without their `shift` lowest bits, truncated to the target's type."""

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
    """Return the chunks of elements packed by `_pack`."""
    rows = packed >> _SHIFTS[chunk]
    rows &= np.uint8((1 << chunk) - 1)
    return rows.reshape(-1)[:count]


def _chunks(ring: Ring, count: int) -> Iterator[tuple[int, int, slice]]:
    """Yield the bits of each chunk, its bit offset in an element, and its slice of a message."""
    shift = start = 0
    for chunk in ring.chunks:
        end = start + -(-count * chunk // 8)
        yield chunk, shift, slice(start, end)
        shift, start = shift + chunk, end
