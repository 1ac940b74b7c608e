"""The paper's gates: bit decomposition and comparison, on packed bit planes.

A vector of N numbers becomes bit planes: an XOR-shared array of packed bits, (64, N / 8 bytes),
plane 0 the least significant. On planes a step of an adder computes only on the bits that it needs;
on words it would carry all 64 bits.

Reference: the paper's Section V.B.4, after ABY3 (Mohassel and Rindal, CCS 2018) and CrypTen.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import BIT_RING, Z64, Ring, RingArray
from privet.arithmetic.shares import Share, concatenate, stack
from privet.gates.beaver import multiply
from privet.gates.gate import Gate
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import CostCounter
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime

BitPlanes = npt.NDArray[np.uint8]

# Steps of the transposition of an 8 x 8 bit matrix held in a 64-bit word: swap the off-diagonal
# blocks of 1, 2, then 4 bits.
_SWAPS = (
    (np.uint64(7), np.uint64(0x00AA00AA00AA00AA)),
    (np.uint64(14), np.uint64(0x0000CCCC0000CCCC)),
    (np.uint64(28), np.uint64(0x00000000F0F0F0F0)),
)


def packed_length(count: int) -> int:
    """Return the number of bytes that pack `count` bits."""
    return (count + 7) // 8


def to_bit_planes(words: RingArray) -> BitPlanes:
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


def unpack_bits(plane: BitPlanes, count: int) -> npt.NDArray[np.uint8]:
    """Return the first `count` bits along the last axis as zeros and ones."""
    return np.unpackbits(plane, axis=-1, count=count, bitorder="little")


def pack_bits(bits: npt.NDArray[np.uint8]) -> BitPlanes:
    """Pack zeros and ones along the last axis."""
    return np.packbits(bits, axis=-1, bitorder="little")


WORD_BITS = 64
_CARRIES = WORD_BITS - 1  # positions that carry into a higher one


def decompose(runtime: Runtime, x: Share) -> list[Share]:
    """Return n XOR-shared numbers that add up to x: each participant's share of x, as bit planes.

    Local: a participant's number is shared as itself at this participant and zeros at the others.
    """
    assert x.ring is Z64
    shape = (WORD_BITS, packed_length(x.size))
    if not isinstance(runtime, Party):
        return [Share.unknown(shape, BIT_RING)] * runtime.n_parties
    planes, zeros = to_bit_planes(x.part.reshape(-1)), BIT_RING.zeros(shape)
    return [
        Share(planes if owner == runtime.index else zeros, BIT_RING)
        for owner in range(runtime.n_parties)
    ]


def add_carry_save(runtime: Runtime, addends: list[Share]) -> tuple[Share, Share]:
    """Reduce shared numbers to two with the same sum, three to two at a time.

    a + b + c = (a ^ b ^ c) + 2 maj(a, b, c), and maj(a, b, c) = ((a ^ c) & (b ^ c)) ^ c.

    Cost: an AND of 63 bits for each addend beyond two.
    """
    with runtime.step("carry save"):
        while len(addends) > 2:
            groups = [addends[i : i + 3] for i in range(0, len(addends) - 2, 3)]
            rest = addends[3 * len(groups) :]
            a, b, c = (stack([group[i] for group in groups]) for i in range(3))
            low_a, low_b, low_c = a[:, :_CARRIES], b[:, :_CARRIES], c[:, :_CARRIES]
            majority = multiply(runtime, low_a ^ low_c, low_b ^ low_c) ^ low_c
            zero = (a ^ a)[:, :1]
            sums, carries = a ^ b ^ c, concatenate([zero, majority], axis=1)
            addends = [part[i] for i in range(len(groups)) for part in (sums, carries)] + rest
        return addends[0], addends[1]


def extract_msb(runtime: Runtime, x: Share) -> Share:
    """Return the sign of a vector over Z64, as XOR-shared packed bits.

    1. Decompose [x] into n shared numbers and reduce them to two, a and b.
    2. A position generates a carry if g = a & b, and propagates one if p = a ^ b.
    3. Combine neighbours, (g, p) above (g', p') into (g ^ p g', p p'), in a tree over the 63 lower
       positions: the carry into the top.
    4. The sign is a ^ b ^ carry there.

    Reveals: nothing. Error: none.
    """
    a, b = add_carry_save(runtime, decompose(runtime, x))
    with runtime.step("carry"):
        propagate = (a ^ b)[:_CARRIES]
        generate = multiply(runtime, a[:_CARRIES], b[:_CARRIES])
        while len(generate) > 1:
            even = len(generate) // 2 * 2
            above, last = propagate[1:even:2], len(generate) <= 2
            below = [generate[0:even:2]] + ([] if last else [propagate[0:even:2]])
            products = multiply(runtime, above.reshape(1, *above.shape), stack(below))
            combined = generate[1:even:2] ^ products[0]
            generate = concatenate([combined, generate[even:]])
            if not last:
                propagate = concatenate([products[1], propagate[even:]])
        return (a ^ b)[_CARRIES] ^ generate[0]


class BitsToArithmetic(Gate):
    """Convert XOR-shared packed bits, `count` along the last axis, to numbers (B2A).

    1. The dealer draws bits [b] and also derives them over the ring.
    2. Open d = [x] ^ [b].
    3. [x] = d + (1 - 2d)[b], over the ring.

    Cost: one opening of a bit an element; corrections of a ring element. Reveals: nothing.
    Error: none.
    """

    name = "from bits"

    def deal(self, dealer: Dealer, x: Share, *, count: int, ring: Ring = Z64) -> Share:
        """Draw bits and share them over both rings."""
        bits = unpack_bits(dealer.uniform(x.shape, BIT_RING).array, count).astype(ring.dtype)
        dealer.distribute(bits, ring)
        return Share.unknown(bits.shape, ring)

    def run(self, party: Party, x: Share, *, count: int, ring: Ring = Z64) -> Share:
        """Open the bits under the random ones."""
        mask = party.uniform(x.shape, BIT_RING)
        bits = party.derived((*x.shape[:-1], count), ring)
        (opened,) = party.open(x ^ mask)
        d = unpack_bits(opened, count).astype(ring.dtype)
        part = bits.part - (d + d) * bits.part
        return Share(part + d if party.index == 0 else part, ring)

    def count(self, counter: CostCounter, x: Share, *, count: int, ring: Ring = Z64) -> Share:
        """Count the opening and the bits as numbers."""
        shape = (*x.shape[:-1], count)
        counter.count_opening(x)
        counter.count_corrections(ring, shape)
        return Share.unknown(shape, ring)


bits_to_arithmetic = BitsToArithmetic()


def less_than(runtime: Runtime, x: Share, y: Share, ring: Ring = Z64) -> Share:
    """Return 1 where x < y and 0 elsewhere, over a ring; |x - y| < 2^63.

    1. The sign of [x] - [y], as a shared bit.
    2. That bit as a shared number.

    Reveals: nothing. Error: none.
    """
    with runtime.step("less"):
        difference = x - y
        sign = extract_msb(runtime, difference.reshape(difference.size))
        result = bits_to_arithmetic(runtime, sign, count=difference.size, ring=ring)
        return result.reshape(*difference.shape)
