"""Ring elements as they travel: each takes its ring's width, whatever the width.

A width is a sum of powers of two, and an element is cut into chunks of these many bits, the largest
first and lowest: 36 = 32 + 4. A message holds all chunks of one size, then those of the next. Where
chunks are smaller than a byte, the vector is cut into as many runs as fit into one, and byte i
holds the i-th chunk of every run, so that packing works on contiguous memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from privet.arithmetic.rings import Ring, RingArray


def encode(ring: Ring, vector: RingArray) -> RingArray:
    """Return a vector as it is sent: as it is, or as bytes."""
    if ring.is_word:
        return vector
    count = len(vector)
    message = np.empty(ring.wire_bytes(count), dtype=np.uint8)
    for chunk, shift, where in _chunks(ring, count):
        part = vector >> vector.dtype.type(shift) if shift else vector
        if chunk >= 8:
            message[where].view(f"u{chunk // 8}")[:] = part  # keeps the low bits
            continue
        low = part.astype(np.uint8)
        low &= np.uint8((1 << chunk) - 1)
        packed = message[where]
        for run, place in enumerate(_runs(count, chunk)):
            piece = low[place]
            if run == 0:
                packed[:] = piece
            else:
                packed[: len(piece)] |= piece << np.uint8(run * chunk)
    return message


def decode(ring: Ring, message: RingArray, count: int) -> RingArray:
    """Return the vector that was sent."""
    if ring.is_word:
        return message
    vector: RingArray = np.empty(count, dtype=ring.dtype)
    for chunk, shift, where in _chunks(ring, count):
        packed = message[where]
        if chunk >= 8:
            if packed.ctypes.data % (chunk // 8):
                packed = packed.copy()
            _put(vector, packed.view(f"u{chunk // 8}"), shift)
            continue
        for run, place in enumerate(_runs(count, chunk)):
            piece = packed[: place.stop - place.start] >> np.uint8(run * chunk)
            _put(vector[place], piece & np.uint8((1 << chunk) - 1), shift)
    return vector


def _put(elements: RingArray, chunks: RingArray, shift: int) -> None:
    """Put chunks at their bits; those of the lowest come first."""
    if shift:
        elements |= chunks.astype(elements.dtype) << elements.dtype.type(shift)
    else:
        elements[:] = chunks


def _chunks(ring: Ring, count: int) -> Iterator[tuple[int, int, slice]]:
    """Yield the chunks of an element: their bits, where they start in it, and in a message."""
    shift = start = 0
    for chunk in ring.chunks:
        end = start + -(-count * chunk // 8)
        yield chunk, shift, slice(start, end)
        shift, start = shift + chunk, end


def _runs(count: int, chunk: int) -> list[slice]:
    """Return where the runs of a vector lie; the last may be shorter, or empty."""
    length = -(-count * chunk // 8)
    return [slice(min(count, r * length), min(count, (r + 1) * length)) for r in range(8 // chunk)]
