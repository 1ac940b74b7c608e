"""Truncation of shares to a smaller ring, and exact rounding of revealed values.

Rounding by a mask (`shrink`, `lift`) goes up or down at random, more often to the nearer side. That
is right for values that stay shared. Of a value that is revealed, it would tell the low bits to
whoever asks often enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privet.arithmetic.rings import Z8, Z64, Ring, RingArray, integers_modulo
from privet.arithmetic.shares import Elements, Share
from privet.gates.gate import Gate, Later, Opening, OpeningGate, alone
from privet.gates.masked.comparison import Comparison, compare, one, step, usual_digits
from privet.gates.masked.value import (
    Masked,
    Meanwhile,
    derive_quotient,
    lift,
    mask_one,
    unknown_masked,
)
from privet.runtime.correlations.correlation import Half, Recipe
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import Counter
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime


class RoundOff(Gate):
    """Round shared values, (N,), to the nearest multiple of 2^bits, halves up; bits <= 8.

    1. The dealer draws [rho] over Z8 and derives, for every c below 2^bits, [(c - rho) mod 2^bits].
    2. Add 2^(bits-1). Open the low bits of that, [x] + [rho] over Z8.
    3. x mod 2^bits is what was dealt for that c: subtract it.

    Cost: one opening of a byte a value; corrections of 2^bits elements. Reveals: nothing. Error:
    none: the result is a function of x alone.
    """

    name = "round off"

    def deal(self, dealer: Dealer, x: Share, *, bits: int) -> Share:
        """Deal the remainder for every number that may be opened."""
        rho = dealer.uniform(x.shape, Z8)
        dealer.derive(_Remainders(x.ring, bits), x.ring, rho)
        return x

    def run(self, party: Party, x: Share, *, bits: int) -> Share:
        """Open the low bits, and subtract them."""
        assert bits <= Z8.bits
        ring = x.ring
        rho = party.uniform(x.shape, Z8)
        remainders = party.derived((1 << bits, *x.shape), ring).part
        half = ring.array(np.full(x.shape, 1 << (bits - 1)))
        raised = x + party.public(half, ring)
        (c,) = party.open(raised.to_ring(Z8) + rho)
        position = (c & np.uint8((1 << bits) - 1)).astype(np.intp)
        return raised - Share(remainders[position, np.arange(x.size)], ring)

    def count(self, counter: Counter, x: Share, *, bits: int) -> Share:
        """Count the opening of low bits, and the remainders."""
        counter.open(x.to_ring(Z8))
        counter.derive(_Remainders(x.ring, bits), x.ring, x)
        return x


class _Remainders(Recipe):
    """(c - rho) mod 2^bits for every c: that of c - T and S, where rho = S + T."""

    def __init__(self, ring: Ring, bits: int) -> None:
        self._ring = ring
        self._bits = bits

    def shape(self, *masks: tuple[int, ...]) -> tuple[int, ...]:
        """Return one for every c."""
        return (1 << self._bits, *masks[0])

    def client(self, *s: RingArray) -> list[RingArray]:
        """Subtract S from every c."""
        c = np.arange(1 << self._bits).reshape(-1, 1)
        return [((c - s[0]) & ((1 << self._bits) - 1)).astype(self._ring.dtype)]

    def server(self, half: Half) -> RingArray:
        """Take what is there for c - T."""
        c = np.arange(1 << self._bits).reshape(-1, 1)
        return np.take_along_axis(half.shared[0], (c - half.t[0]) & ((1 << self._bits) - 1), axis=0)


round_off = RoundOff()


def borrowing(x: Masked, bits: int) -> Later[Comparison]:
    """Return the comparison that `exact_quotient` needs, to be opened: L bits a value.

    Whether the low bits of what is public reach those of the mask: both are numbers of one bit
    more, whose difference has a sign.
    """
    return compare.later(
        x.low_bits(bits), thresholds=(0,), width=bits + 1, digits=usual_digits(bits + 1)
    )


def exact_quotient(
    runtime: Runtime, x: Masked, bits: int, reached: Comparison, ring: Ring = Z64
) -> Share:
    """Return a masked value 0 <= x < 2^(w-1) divided by 2^bits and rounded down.

    `lift` divides what is public and the mask, each rounded down; where the low bits of the one do
    not reach those of the other (`borrowing`), that is one too many.

    Cost: no opening. Reveals: nothing. Error: none: the result is a function of x alone.
    """
    parts = lift(runtime, x, shift=bits, ring=ring)
    borrowed = step(runtime, reached, one(runtime, x.shape, parts.ring), factors=(-1, 0))
    return parts.share(runtime) + borrowed


def divide_exactly(runtime: Runtime, x: Share, bits: int, ring: Ring) -> Share:
    """Divide shared values by 2^bits, rounded to the nearest, halves up, into a smaller ring.

    Equal values stay equal, and no two change their order: the result is a function of x alone.

    Cost: two openings. Reveals: nothing. Error: none.
    """
    if not bits:
        return x.to_ring(ring)
    wide = integers_modulo(ring.bits + bits)
    masked = mask_one(runtime, x.to_ring(wide)) + (1 << (bits - 1))
    return exact_quotient(runtime, masked, bits, alone(runtime, borrowing(masked, bits)), ring)


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
