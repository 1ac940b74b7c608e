"""Veils: uniform numbers over what must not be read, and nothing over what may be.

A comparison decides, without anybody knowing it, which of two numbers is to stay hidden.
"""

from __future__ import annotations

import numpy as np

from privet.arithmetic.rings import Ring
from privet.arithmetic.shares import Share
from privet.gates.gate import Gate
from privet.gates.threshold import Comparison
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party


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
        assert reached.bits is not None
        rho = dealer.uniform((2, rows, *reached.shape), ring)
        dealer.deal(reached.bits.astype(ring.dtype)[:, None, None] * rho.array, ring)
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
        shape = (2, rows, *reached.shape)
        counter.derive(ring, (reached.options, *shape))
        return Share.unknown(shape, ring)


veil = Veil()
