"""Shrinking: from a share to a masked value over a smaller ring, with fewer bits."""

from __future__ import annotations

from collections.abc import Sequence

from privet.arithmetic.rings import Ring, RingArray, integers_modulo
from privet.arithmetic.shares import Elements, Share
from privet.gates.gate import Opening, OpeningGate
from privet.gates.mask_bits import derive_quotient
from privet.gates.masked import Masked, Meanwhile, unknown_masked
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party


class Shrink(OpeningGate):
    """Divide shared values by 2^bits into masked values over smaller rings.

    1. The dealer draws [r] over a ring of so many bits more than the result's, and derives
       [r >> bits].
    2. Open c = [x] + [r] over it. Then x >> bits = (c >> bits) - (r >> bits) in the result's ring:
       if x + r wraps around, it is off by that ring's size.

    Cost: one opening of the bits that matter; corrections of one element. Reveals: nothing. Error:
    rounded down or up at random, to the right value on average: what is not negative stays so.
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
            r = dealer.uniform(x.shape, _opened_ring(drop, ring))
            kept.append(derive_quotient(dealer, r, drop, ring))
        return [Masked(Elements.unknown(r.shape, r.ring), r) for r in kept]

    def run(
        self,
        party: Party,
        *values: Share,
        bits: Sequence[int],
        rings: Sequence[Ring],
        meanwhile: Meanwhile | None = None,
    ) -> Opening[list[Masked]]:
        """Open, and drop bits."""
        masked: list[Share] = []
        kept: list[Elements] = []
        for x, drop, ring in zip(values, bits, rings, strict=True):
            wide = _opened_ring(drop, ring)
            masked.append(x.to_ring(wide) + party.uniform(x.shape, wide))
            kept.append(party.derived(x.shape, ring))
        if meanwhile is not None:
            meanwhile(kept)
        opened = yield masked
        return [
            Masked(Elements(_shortened(c, x.ring, r.ring), r.ring), r)
            for c, x, r in zip(opened, masked, kept, strict=True)
        ]

    def count(
        self,
        counter: Counter,
        *values: Share,
        bits: Sequence[int],
        rings: Sequence[Ring],
        meanwhile: Meanwhile | None = None,
    ) -> tuple[Sequence[Share], list[Masked]]:
        """Count the opening, and what is left of the masks."""
        shapes = [(x.shape, drop, ring) for x, drop, ring in zip(values, bits, rings, strict=True)]
        opened = [Share.unknown(s, _opened_ring(drop, ring)) for s, drop, ring in shapes]
        for r, (_, drop, ring) in zip(opened, shapes, strict=True):
            derive_quotient(counter, r, drop, ring)
        return opened, [unknown_masked(shape, ring) for shape, _, ring in shapes]


def _opened_ring(drop: int, ring: Ring) -> Ring:
    return integers_modulo(ring.bits + drop)


def _shortened(x: RingArray, wide: Ring, ring: Ring) -> RingArray:
    short: RingArray = wide.reduce(x) >> wide.dtype.type(wide.bits - ring.bits)
    return short.astype(ring.dtype)


shrink = Shrink()
