"""Rounding exactly: what is revealed of a value must not say anything about the bits below.

Rounding by a mask (`shrink`, `lift`) goes up or down at random, more often to the nearer side. That
is right for values that stay shared. Of a value that is revealed, it would tell the low bits to
whoever asks often enough.
"""

from __future__ import annotations

import numpy as np

from privet.arithmetic.rings import Z8
from privet.arithmetic.shares import Share
from privet.gates.gate import Cost, Gate, opening_cost
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party


class RoundOff(Gate):
    """Round shared values, (N,), to the nearest multiple of 2^bits, halves up; bits <= 8.

    1. The dealer draws [rho] over Z8 and derives, for every c below 2^bits, [(c - rho) mod 2^bits].
    2. Add 2^(bits-1). Open the low bits of that, [x] + [rho] over Z8.
    3. x mod 2^bits is what was dealt for that c: subtract it.

    Cost: one opening of a byte a value; corrections of 2^bits elements. Reveals: nothing. Error:
    none: the result is a function of x alone.
    """

    name = "round off"

    def deal(self, dealer: Dealer, x: Share, bits: int) -> Share:
        """Deal the remainder for every number that may be opened."""
        rho = dealer.uniform(x.shape, Z8)
        opened = np.arange(1 << bits).reshape(-1, 1)
        remainders = (opened - rho) & ((1 << bits) - 1)
        dealer.derive(remainders.astype(x.ring.dtype), x.ring)
        return Share.unknown(x.shape, x.ring)

    def run(self, party: Party, x: Share, bits: int) -> Share:
        """Open the low bits, and subtract them."""
        assert bits <= Z8.bits
        ring = x.ring
        rho = party.uniform(x.shape, Z8)
        remainders = party.derived((1 << bits, *x.shape), ring).part
        half = ring.array(np.full(x.shape, 1 << (bits - 1)))
        raised = x + party.public(half, ring)
        (c,) = party.open(Share(raised.part.astype(np.uint8), Z8) + rho)
        position = (c & np.uint8((1 << bits) - 1)).astype(np.intp)
        return raised - Share(remainders[position, np.arange(x.size)], ring)

    @staticmethod
    def cost(n_samples: int, bits: int, itemsize: int, n_parties: int) -> Cost:
        """Return the cost for that many values."""
        dealt = Cost(offline=(n_samples << bits) * itemsize)
        return opening_cost(Z8.nbytes((n_samples,)), n_parties) + dealt


round_off = RoundOff()
