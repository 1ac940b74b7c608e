"""Words as bit planes: plane k packs the k-th bits of all words, eight to a byte.

On planes, a step of an adder works on just the bits that it needs, where on words it would carry
all 64 along.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import RingArray

Planes = npt.NDArray[np.uint8]

# Steps of the transposition of an 8 x 8 bit matrix held in a 64-bit word: swap the off-diagonal
# blocks of 1, 2, then 4 bits.
_SWAPS = (
    (np.uint64(7), np.uint64(0x00AA00AA00AA00AA)),
    (np.uint64(14), np.uint64(0x0000CCCC0000CCCC)),
    (np.uint64(28), np.uint64(0x00000000F0F0F0F0)),
)


def packed_length(count: int) -> int:
    """Return how many bytes pack that many bits."""
    return (count + 7) // 8


def to_planes(words: RingArray) -> Planes:
    """Return the bit planes of a vector of words, least significant first: (bits, bytes)."""
    width, count = words.dtype.itemsize, len(words)
    padded = np.zeros(8 * packed_length(count), dtype=words.dtype)
    padded[:count] = words
    # Byte i of eight words in a row becomes one 64-bit block: a matrix of words by bits.
    by_byte = np.ascontiguousarray(padded.view(np.uint8).reshape(-1, width).T)
    blocks = by_byte.view(np.uint64)
    for shift, mask in _SWAPS:
        difference = (blocks ^ (blocks >> shift)) & mask
        blocks ^= difference ^ (difference << shift)
    # Now a block is a matrix of bits by words, one byte a bit.
    planes = blocks.view(np.uint8).reshape(width, -1, 8).transpose(0, 2, 1)
    return np.ascontiguousarray(planes).reshape(8 * width, -1)


def unpack_bits(plane: Planes, count: int) -> npt.NDArray[np.uint8]:
    """Return the first `count` bits along the last axis as zeros and ones."""
    return np.unpackbits(plane, axis=-1, count=count, bitorder="little")


def pack_bits(bits: npt.NDArray[np.uint8]) -> Planes:
    """Pack zeros and ones along the last axis."""
    return np.packbits(bits, axis=-1, bitorder="little")
