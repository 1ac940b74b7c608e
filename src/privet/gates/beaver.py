"""Products of shared values by Beaver triples.

Reference: D. Beaver, Efficient multiparty protocols using circuit randomization (CRYPTO 1991); the
paper's Section III.C.
"""

from __future__ import annotations

import numpy as np

from privet.arithmetic.shares import Share
from privet.gates.gate import Gate
from privet.runtime.correlations.correlation import BilinearProduct
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import CostCounter
from privet.runtime.party import Party


class Multiply(Gate):
    """Multiply two shared values, element by element; for bits, AND.

    Shapes broadcast as in numpy, and a repeated operand is opened once.

    1. The dealer draws [a], [b] and derives [ab].
    2. Open e = [x] - [a] and f = [y] - [b].
    3. [xy] = [ab] + e[b] + [a]f + ef.

    Cost: one opening of x and y; corrections for xy. Reveals: nothing. Error: none.
    """

    name = "multiply"

    def deal(self, dealer: Dealer, x: Share, y: Share) -> Share:
        """Draw a triple."""
        ring = x.ring
        a, b = dealer.uniform(x.shape, ring), dealer.uniform(y.shape, ring)
        ab = dealer.derive(BilinearProduct(ring, ring.multiply), ring, a, b)
        return Share.unknown(ab.shape, ring)

    def run(self, party: Party, x: Share, y: Share) -> Share:
        """Open both factors under their masks."""
        assert x.ring is y.ring
        ring = x.ring
        a, b = party.uniform(x.shape, ring), party.uniform(y.shape, ring)
        ab = party.derived(np.broadcast_shapes(x.shape, y.shape), ring)
        e, f = party.open(x - a, y - b)
        b_part = ring.add(b.part, f) if party.index == 0 else b.part
        result = ring.multiply(e, b_part)
        ring.add_in_place(result, ring.multiply(a.part, f))
        ring.add_in_place(result, ab.part)
        return Share(result, ring)

    def count(self, counter: CostCounter, x: Share, y: Share) -> Share:
        """Count the opening and the product."""
        shape = np.broadcast_shapes(x.shape, y.shape)
        counter.count_opening(x, y)
        counter.count_corrections(x.ring, shape)
        return Share.unknown(shape, x.ring)


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
        dealer.derive(BilinearProduct(x.ring, x.ring.multiply), x.ring, a, a)
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

    def count(self, counter: CostCounter, x: Share) -> Share:
        """Count the opening and the square."""
        counter.count_opening(x)
        counter.count_corrections(x.ring, x.shape)
        return x


multiply = Multiply()
square = Square()
