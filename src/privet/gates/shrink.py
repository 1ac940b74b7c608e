"""Shrinking: from a share over Z64 to a masked value over a smaller ring, with fewer bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from privet.arithmetic.rings import Z64, Ring
from privet.arithmetic.shares import Share
from privet.gates.gate import Cost, Gate, opening_cost
from privet.gates.masked import Mask, Masked
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party


class Shrink(Gate):
    """Divide shared values over Z64 by 2^bits into masked values over smaller rings.

    1. The dealer draws [r] over Z64 and derives [r >> bits] over a ring of at most 64 - bits bits.
    2. Open c = [x] + [r]. Then x >> bits = (c >> bits) - (r >> bits) in the ring: if x + r wraps
       around, it is off by 2^(64 - bits), which is zero there.

    Cost: one opening of 8 bytes a value; corrections of one element. Reveals: nothing. Error:
    rounded down or up at random, to the right value on average.
    """

    name = "shrink"

    def deal(
        self, dealer: Dealer, *values: Share, bits: tuple[int, ...], rings: tuple[Ring, ...]
    ) -> Any:
        """Draw masks, and derive what is left of them."""
        found = []
        for x, drop, ring in zip(values, bits, rings, strict=True):
            assert drop <= 64 - ring.bits
            r = dealer.uniform(x.shape, Z64)
            kept = (r >> np.uint64(drop)).astype(ring.dtype)
            dealer.derive(kept, ring)
            found.append(Masked(ring, Mask(x.shape, value=kept)))
        return found[0] if len(found) == 1 else found

    def run(
        self, party: Party, *values: Share, bits: tuple[int, ...], rings: tuple[Ring, ...]
    ) -> Any:
        """Open, and drop bits."""
        masks, kept = [], []
        for x, ring in zip(values, rings, strict=True):
            masks.append(party.uniform(x.shape, Z64))
            kept.append(party.derived(x.shape, ring))
        if party.on_masks is not None:
            party.on_masks(kept)
        opened = party.open(*(x + r for x, r in zip(values, masks, strict=True)))
        found = [
            Masked(ring, Mask(share.shape, share=share), (c >> np.uint64(drop)).astype(ring.dtype))
            for c, share, drop, ring in zip(opened, kept, bits, rings, strict=True)
        ]
        return found[0] if len(found) == 1 else found

    @staticmethod
    def cost(count: int, rings: Sequence[Ring], n_parties: int) -> Cost:
        """Return the cost for an array of that many values for each ring."""
        opened = opening_cost(8 * count * len(rings), n_parties)
        return opened + Cost(offline=sum(ring.nbytes((count,)) for ring in rings))


shrink = Shrink()
