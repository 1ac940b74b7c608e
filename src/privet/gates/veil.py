"""Veils: uniform numbers over what must not be read, and nothing over what may be.

A comparison decides, without anybody knowing it, which of two numbers is to stay hidden.
"""

from __future__ import annotations

import numpy as np

from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import Share
from privet.gates.comparison import Answers, Comparison
from privet.gates.gate import Gate
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party
from privet.runtime.recipes import Half, Recipe
from privet.runtime.runtime import Shape


class Veil(Gate):
    """Return uniform numbers where a value does not reach a threshold, and where it does.

    Each is zero elsewhere: (2, rows, *values). Whatever they are added to can be read where they
    are zero, and is uniform where they are not.

    1. The dealer draws [rho], and derives its products with every dealt bit.
    2. Participants take those of the bit that the answer is.

    Cost: no opening; corrections of 2^(L-1) elements each. Reveals: nothing. Error: none.
    """

    name = "veil"

    def deal(self, dealer: Dealer, reached: Comparison, *, rows: int, ring: Ring) -> Share:
        """Deal products of the bits with uniform numbers."""
        rho = dealer.uniform((2, rows, *reached.shape), ring)
        dealer.derive(_Veiled(reached, ring), ring, *reached.masks, rho)
        return Share.unknown(rho.shape, ring)

    def run(self, party: Party, reached: Comparison, *, rows: int, ring: Ring) -> Share:
        """Take the products of the right bits."""
        assert reached.which is not None
        assert reached.straight is not None
        rho = party.uniform((2, rows, *reached.shape), ring).part
        dealt = party.derived((reached.options, *rho.shape), ring).part
        found = np.take_along_axis(dealt, reached.which[None, None, None], axis=0)[0]
        # The first is to be there where the answer is 0, the second where it is 1.
        kept = np.stack([~reached.straight, reached.straight])[:, None]
        return Share(np.where(kept, found, ring.subtract(rho, found)), ring)

    def count(self, counter: Counter, reached: Comparison, *, rows: int, ring: Ring) -> Share:
        """Count the products."""
        rho = Share.unknown((2, rows, *reached.shape), ring)
        counter.derive(_Veiled(reached, ring), ring, *reached.masks, rho)
        return rho


class _Veiled(Recipe):
    """The bits of a comparison times uniform numbers: (options, 2, rows, *values)."""

    def __init__(self, reached: Comparison, ring: Ring) -> None:
        self._bits, self._ring = Answers(reached), ring
        self._options = reached.options

    def shape(self, *masks: Shape) -> Shape:
        """Return one for every bit."""
        return (self._options, *masks[2])

    def shared(self, ring: Ring, *masks: Shape) -> list[tuple[Ring, Shape]]:
        """Return the products, and the bits."""
        return [(ring, self.shape(*masks)), (ring, (self._options, *masks[2][2:]))]

    def client(self, *s: RingArray) -> list[RingArray]:
        """Multiply what follows from S."""
        bits = self._bits.of_s(*s[:2]).astype(self._ring.dtype)
        return [bits[:, None, None] * s[2], bits]

    def server(self, half: Half) -> RingArray:
        """Move the bits by T, and multiply out."""
        of_s = np.moveaxis(half.shared[0], 0, 2)
        moved, inverted = self._bits.moved(of_s, *half.t[:2])
        bits, _ = self._bits.moved(half.shared[1], *half.t[:2])
        moved = moved + bits * half.t[2][:, :, None]
        whole = half.whole(2)[:, :, None]
        return np.moveaxis(np.where(inverted, whole - moved, moved), 2, 0)


veil = Veil()
