"""Shrinking: from a share over Z64 to a masked value over a smaller ring, with fewer bits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from privet.arithmetic.rings import Z64, Ring, RingArray
from privet.arithmetic.shares import Elements, Share
from privet.gates.gate import Gate
from privet.gates.masked import Masked, Meanwhile, unknown_masked
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party
from privet.runtime.recipes import Linear


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
        self,
        dealer: Dealer,
        *values: Share,
        bits: Sequence[int],
        rings: Sequence[Ring],
        meanwhile: Meanwhile | None = None,
    ) -> list[Masked]:
        """Draw masks, and derive what is left of them."""
        kept = []
        for x, drop, ring in zip(values, bits, rings, strict=True):
            assert drop <= 64 - ring.bits
            r = dealer.uniform(x.shape, Z64)
            # Of two halves each is shortened by itself, which may be off by one more unit.
            recipe = Linear(ring, partial(_shortened, drop=drop, ring=ring))
            kept.append(dealer.derive(recipe, ring, r))
        if meanwhile is not None:
            meanwhile(kept)
        return [Masked(Elements.unknown(r.shape, r.ring), r) for r in kept]

    def run(
        self,
        party: Party,
        *values: Share,
        bits: Sequence[int],
        rings: Sequence[Ring],
        meanwhile: Meanwhile | None = None,
    ) -> list[Masked]:
        """Open, and drop bits."""
        masks: list[Share] = []
        kept: list[Elements] = []
        for x, ring in zip(values, rings, strict=True):
            masks.append(party.uniform(x.shape, Z64))
            kept.append(party.derived(x.shape, ring))
        if meanwhile is not None:
            meanwhile(kept)
        opened = party.open(*(x + r for x, r in zip(values, masks, strict=True)))
        return [
            Masked(Elements(_shortened(c, drop, r.ring), r.ring), r)
            for c, drop, r in zip(opened, bits, kept, strict=True)
        ]

    def count(
        self,
        counter: Counter,
        *values: Share,
        bits: Sequence[int],
        rings: Sequence[Ring],
        meanwhile: Meanwhile | None = None,
    ) -> list[Masked]:
        """Count the opening, and what is left of the masks."""
        counter.open(*values)
        for x, ring in zip(values, rings, strict=True):
            counter.derive(ring, x.shape)
        return [unknown_masked(x.shape, ring) for x, ring in zip(values, rings, strict=True)]


def _shortened(x: RingArray, drop: int, ring: Ring) -> RingArray:
    return (x >> np.uint64(drop)).astype(ring.dtype)


shrink = Shrink()
