"""Shrinking: from a share over Z64 to a masked value over Z32 with fewer fraction bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from privet.arithmetic.rings import Z32, Z64
from privet.arithmetic.shares import Share
from privet.gates.gate import Cost, Gate, opening_cost
from privet.gates.masked import Mask, Masked
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party


class Shrink(Gate):
    """Divide shared values over Z64 by 2^bits, bits <= 32, into masked values over Z32.

    1. The dealer draws [r] over Z64 and derives [r >> bits] over Z32.
    2. Open c = [x] + [r]. Then x >> bits = (c >> bits) - (r >> bits), modulo 2^32: if x + r wraps
       around, it is off by a multiple of 2^32.

    Cost: one opening of 8 bytes a value; corrections of 4. Reveals: nothing. Error: rounded down or
    up at random, to the right value on average.
    """

    name = "shrink"

    def deal(self, dealer: Dealer, *values: Share, bits: int | tuple[int, ...]) -> Any:
        """Draw masks, and derive what is left of them."""
        found = []
        for x, drop in zip(values, _each(bits, len(values)), strict=True):
            r = dealer.uniform(x.shape, Z64)
            kept = (r >> np.uint64(drop)).astype(np.uint32)
            dealer.derive(kept, Z32)
            found.append(Masked(Z32, Mask(x.shape, value=kept)))
        return found[0] if len(found) == 1 else found

    def run(self, party: Party, *values: Share, bits: int | tuple[int, ...]) -> Any:
        """Open, and drop bits."""
        masks, kept = [], []
        for x in values:
            masks.append(party.uniform(x.shape, Z64))
            kept.append(party.derived(x.shape, Z32))
        opened = party.open(*(x + r for x, r in zip(values, masks, strict=True)))
        drops = _each(bits, len(values))
        found = [
            Masked(Z32, Mask(share.shape, share=share), (c >> np.uint64(drop)).astype(np.uint32))
            for c, share, drop in zip(opened, kept, drops, strict=True)
        ]
        return found[0] if len(found) == 1 else found

    @staticmethod
    def cost(count: int, n_parties: int) -> Cost:
        """Return the cost for that many values, of all arrays together."""
        return opening_cost(8 * count, n_parties) + Cost(offline=4 * count)


def _each(bits: int | tuple[int, ...], count: int) -> tuple[int, ...]:
    return (bits,) * count if isinstance(bits, int) else bits


shrink = Shrink()
