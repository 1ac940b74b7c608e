"""What carries into bits of a sum S + T, where one of three has S and two others T.

The mask is cut into pieces of up to three bits. The client shares, of its piece of S and for every
piece that T may be, whether the two generate a carry and whether they pass one on: eight bits each.
Both servers look theirs up, and have bits of which each has a share. Pieces are joined in a tree: a
piece generates a carry if it does itself, or passes on what the one below it generates. These are
products of shared bits, for each of which the client deals two bits and their product.

At the end the servers open the carries, hidden by bits that the client has, too. So a carry is S ^
T again, with S at the client and T at the servers. Of one bit of the mask itself, S's and T's and
the carry into it, the same is done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import BITS, Ring, RingArray

CLIENT, FIRST, SECOND = range(3)
_LONGEST = 3  # bits of a piece, so that what is looked up is a byte

Bytes = npt.NDArray[np.uint8]


class Talk(ABC):
    """What one of three has with the other two, by their roles."""

    role: int

    @abstractmethod
    def drawn(self, role: int, shape: tuple[int, ...], ring: Ring) -> RingArray:
        """Return uniform elements that we have with another one, and nobody else has."""

    @abstractmethod
    def send(self, role: int, array: RingArray, ring: Ring) -> None:
        """Send elements to another one."""

    @abstractmethod
    def hear(self, role: int, shape: tuple[int, ...], ring: Ring) -> RingArray:
        """Wait for elements of another one."""


class Tree:
    """Which pieces are joined with which, one level after the other."""

    def __init__(self, wanted: Sequence[int], bit: int | None) -> None:
        self.bit = bit
        """Of which bit of the mask more than the carry is wanted."""
        places = sorted({*wanted, bit or 0} - {0})
        starts: list[int] = []
        for begin, end in zip([0, *places[:-1]], places, strict=True):
            starts += range(begin, end, _LONGEST)
        self.pieces = list(zip(starts, np.diff([*starts, places[-1]]).tolist(), strict=True))
        ends = [start + length for start, length in self.pieces]
        self.outputs = [ends.index(place) for place in [*wanted, *([bit] if bit else [])]]
        """Of which pieces, with all below, the carries are wanted; that into the bit comes last."""
        self.levels: list[list[tuple[int, int, bool]]] = []
        """Pieces, those below them, and whether what is passed on matters."""
        alive = set(self.outputs)
        for k in reversed(range((len(self.pieces) - 1).bit_length())):
            upper = [i for i in sorted(alive) if i >> k & 1]
            self.levels.insert(0, [(i, (i >> k << k) - 1, i >> (k + 1) > 0) for i in upper])
            alive |= {lower for _, lower, _ in self.levels[0]}

    def products(self, level: int) -> int:
        """Return how many products of bits a level takes."""
        return sum(1 + passes for _, _, passes in self.levels[level])

    def nbytes(self, count: int) -> int:
        """Return how many bytes finding the carries of so many masks takes, between all three."""
        plane = -(-count // 8)
        products = sum(self.products(level) for level in range(len(self.levels)))
        planes = 5 * products + 2 * len(self.outputs) + (self.bit is not None)
        return 2 * len(self.pieces) * count + planes * plane


@lru_cache(maxsize=256)
def tree(places: tuple[int, ...], bit: int | None = None) -> Tree:
    """Return how carries into these bits, which rise from 1 on, and one bit are found."""
    return Tree(places, bit)


def find_carries(talk: Talk, part: RingArray, how: Tree) -> tuple[Bytes, Bytes]:
    """Return our two parts of the carries into some bits, (places, N) each, from S or T, (N,)."""
    find = _as_client if talk.role == CLIENT else _as_server
    one, other = find(talk, part, how)
    return _unpacked(one, len(part)), _unpacked(other, len(part))


def _as_client(talk: Talk, s: RingArray, how: Tree) -> tuple[Bytes, Bytes]:
    made = np.empty((2, len(how.pieces), len(s)), dtype=np.uint8)
    for k, (start, length) in enumerate(how.pieces):
        digit = _digit(s, start, length)
        for row, table in zip(made[:, k], _tables(length), strict=True):
            np.take(table, digit, out=row)
    made ^= talk.drawn(FIRST, made.shape, BITS)
    talk.send(SECOND, made, BITS)
    plane = -(-len(s) // 8)
    for level in range(len(how.levels)):
        count = how.products(level)
        a, b, product = talk.drawn(FIRST, (3, count, plane), BITS)
        others = talk.drawn(SECOND, (2, count, plane), BITS)
        talk.send(SECOND, (a ^ others[0]) & (b ^ others[1]) ^ product, BITS)
    if how.bit is not None:
        bits = np.packbits(_digit(s, how.bit, 1).astype(np.uint8))
        talk.send(SECOND, bits ^ talk.drawn(FIRST, bits.shape, BITS), BITS)
    hidden = len(how.outputs), plane
    return talk.drawn(SECOND, hidden, BITS), talk.drawn(FIRST, hidden, BITS)


def _as_server(talk: Talk, t: RingArray, how: Tree) -> tuple[Bytes, Bytes]:
    first = talk.role == FIRST
    shape = 2, len(how.pieces), len(t)
    shared = talk.drawn(CLIENT, shape, BITS) if first else talk.hear(CLIENT, shape, BITS)
    planes = []
    for k, (start, length) in enumerate(how.pieces):
        digit = _digit(t, start, length).astype(np.uint8)
        planes.append(np.packbits(shared[:, k] >> digit & np.uint8(1), axis=-1))
    generates, passes = np.stack(planes, axis=1)
    for level, nodes in enumerate(how.levels):
        further = [(i, j) for i, j, matters in nodes if matters]
        x = passes[[*(i for i, _, _ in nodes), *(i for i, _ in further)]]
        y = np.concatenate([generates[[j for _, j, _ in nodes]], passes[[j for _, j in further]]])
        found = _multiply(talk, x, y)
        generates[[i for i, _, _ in nodes]] ^= found[: len(nodes)]
        passes[[i for i, _ in further]] = found[len(nodes) :]
        assert len(found) == how.products(level)
    wanted = generates[how.outputs]
    if how.bit is not None:
        bits = np.packbits(_digit(t, how.bit, 1).astype(np.uint8))
        if first:
            wanted[-1] ^= bits ^ talk.drawn(CLIENT, bits.shape, BITS)
        else:
            wanted[-1] ^= talk.hear(CLIENT, bits.shape, BITS)
    hiding = talk.drawn(CLIENT, wanted.shape, BITS)
    opened = _open(talk, wanted ^ hiding)
    return (hiding, opened) if first else (opened, hiding)


def _multiply(talk: Talk, x: Bytes, y: Bytes) -> Bytes:
    """Return a share of the product of shared bits, by a product that the client dealt."""
    if talk.role == FIRST:
        a, b, product = talk.drawn(CLIENT, (3, *x.shape), BITS)
    else:
        a, b = talk.drawn(CLIENT, (2, *x.shape), BITS)
    d, e = _open(talk, np.stack([x ^ a, y ^ b]))
    if talk.role == SECOND:
        product = talk.hear(CLIENT, x.shape, BITS)
    found: Bytes = product ^ d & b ^ e & a
    return found ^ d & e if talk.role == FIRST else found


def _open(talk: Talk, share: Bytes) -> Bytes:
    other = SECOND if talk.role == FIRST else FIRST
    talk.send(other, share, BITS)
    return np.asarray(share ^ talk.hear(other, share.shape, BITS))


def _digit(part: RingArray, start: int, length: int) -> RingArray:
    found: RingArray = part >> part.dtype.type(start) & part.dtype.type((1 << length) - 1)
    return found


@lru_cache(maxsize=8)
def _tables(length: int) -> Bytes:
    """Return, for a piece of S, at which pieces of T they generate a carry, and pass one on."""
    s, t = np.arange(1 << length)[:, None], np.arange(1 << length)
    top = (1 << length) - 1
    rows = np.stack([s + t > top, s + t == top])
    return np.packbits(rows, axis=-1, bitorder="little")[..., 0]


def _unpacked(planes: Bytes, count: int) -> Bytes:
    return np.unpackbits(planes, axis=-1, count=count)
