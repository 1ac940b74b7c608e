"""Products of shared values by Beaver's triples.

Reference: D. Beaver, Efficient multiparty protocols using circuit randomization (CRYPTO 1991); the
paper's Section III.C.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import Share
from privet.gates.gate import Cost, Gate, opening_cost
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party


class _Product(Gate):
    """A product of two shared values: of elements, or of matrices.

    1. The dealer draws [a], [b] and derives [ab].
    2. Open e = [x] - [a] and f = [y] - [b].
    3. [xy] = [ab] + e[b] + [a]f + ef.

    Cost: one opening of x and y; corrections for xy. Reveals: nothing. Error: none.
    """

    @staticmethod
    @abstractmethod
    def product(ring: Ring, x: RingArray, y: RingArray) -> RingArray:
        """Return the product of public values."""

    @staticmethod
    @abstractmethod
    def shape(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the product of values of these shapes."""

    def deal(self, dealer: Dealer, x: Share, y: Share) -> Share:
        """Draw a triple."""
        a, b = dealer.uniform(x.shape, x.ring), dealer.uniform(y.shape, x.ring)
        ab = self.product(x.ring, a, b)
        dealer.derive(ab, x.ring)
        return Share.unknown(ab.shape, x.ring)

    def run(self, party: Party, x: Share, y: Share) -> Share:
        """Open both factors under their masks."""
        assert x.ring is y.ring
        ring = x.ring
        a, b = party.uniform(x.shape, ring), party.uniform(y.shape, ring)
        ab = party.derived(self.shape(x.shape, y.shape), ring)
        e, f = party.open(x - a, y - b)
        b_part = ring.add(b.part, f) if party.index == 0 else b.part
        result = self.product(ring, e, b_part)
        ring.accumulate(result, self.product(ring, a.part, f))
        ring.accumulate(result, ab.part)
        return Share(result, ring)

    @classmethod
    def cost(cls, x: tuple[int, ...], y: tuple[int, ...], ring: Ring, n_parties: int) -> Cost:
        """Return the cost for factors of these shapes."""
        corrections = Cost(offline=ring.nbytes(cls.shape(x, y)))
        return opening_cost(ring.nbytes(x) + ring.nbytes(y), n_parties) + corrections


class Multiply(_Product):
    """Multiply two shared values, element by element; for bits, AND.

    Shapes broadcast as in numpy, and a repeated operand is opened once.
    """

    name = "multiply"

    @staticmethod
    def product(ring: Ring, x: RingArray, y: RingArray) -> RingArray:
        """Return the product of elements."""
        return ring.multiply(x, y)

    @staticmethod
    def shape(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape that two broadcast to."""
        return np.broadcast_shapes(x, y)


class MatrixProduct(_Product):
    """Multiply two shared matrices."""

    name = "matrix product"

    @staticmethod
    def product(ring: Ring, x: RingArray, y: RingArray) -> RingArray:
        """Return the product of matrices."""
        return ring.matmul(x, y)

    @staticmethod
    def shape(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
        """Return rows of the first by columns of the second."""
        (rows, inner), (also_inner, columns) = x, y
        assert inner == also_inner
        return (rows, columns)


class Square(Gate):
    """Square a shared value, element by element.

    1. The dealer draws [a] and derives [a^2].
    2. Open e = [x] - [a].
    3. [x^2] = [a^2] + 2e[a] + e^2.

    Cost: one opening of x; corrections for x. Reveals: nothing. Error: none.
    """

    name = "square"

    def deal(self, dealer: Dealer, x: Share) -> Share:
        """Draw a mask and derive its square."""
        a = dealer.uniform(x.shape, x.ring)
        dealer.derive(x.ring.multiply(a, a), x.ring)
        return Share.unknown(x.shape, x.ring)

    def run(self, party: Party, x: Share) -> Share:
        """Open the value under its mask."""
        ring = x.ring
        a = party.uniform(x.shape, ring)
        squared = party.derived(x.shape, ring)
        (e,) = party.open(x - a)
        doubled = ring.add(a.part, a.part)
        if party.index == 0:
            doubled = ring.add(doubled, e)
        return Share(ring.add(ring.multiply(e, doubled), squared.part), ring)

    @staticmethod
    def cost(x: tuple[int, ...], ring: Ring, n_parties: int) -> Cost:
        """Return the cost for a value of this shape."""
        return opening_cost(ring.nbytes(x), n_parties) + Cost(offline=ring.nbytes(x))


multiply = Multiply()
square = Square()
matrix_product = MatrixProduct()
