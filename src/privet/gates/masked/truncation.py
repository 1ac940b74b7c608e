"""Truncation of shares to a smaller ring, and exact rounding of revealed values.

Rounding by a mask (`reduce_ring`, `lift`) goes up or down at random, more often to the nearer side.
That is right for values that stay shared. For a revealed value, it would leak the low bits to a
recipient that repeats the request often enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privet.arithmetic.rings import Z8, Z64, Ring, RingArray, get_integer_ring
from privet.arithmetic.shares import Elements, Share
from privet.gates.gate import DeferredGate, Gate, OpeningGate, OpeningSteps, run_deferred
from privet.gates.masked.comparison import (
    MaskedComparison,
    choose_digit_count,
    compare,
    make_lifted_one,
    multiply_by_step,
)
from privet.gates.masked.value import (
    MaskedValue,
    MasksCallback,
    derive_quotient,
    lift,
    mask_value,
    unknown_masked,
)
from privet.runtime.correlations.correlation import Correlation, THolderInput
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import CostCounter
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime


class RoundExactly(Gate):
    """Round shared values, (N,), to the nearest multiple of 2^bits, halves up; bits <= 8.

    1. The dealer draws [rho] over Z8 and derives, for every c below 2^bits, [(c - rho) mod 2^bits].
    2. Add 2^(bits-1). Open the low bits of that, [x] + [rho] over Z8.
    3. x mod 2^bits is the derived value for that c: subtract it.

    Cost: one opening of a byte a value; corrections of 2^bits elements. Reveals: nothing. Error:
    none: the result is a function of x alone.
    """

    name = "round off"

    def deal(self, dealer: Dealer, x: Share, *, dropped_bits: int) -> Share:
        """Derive the remainder for every number that can be opened."""
        rho = dealer.uniform(x.shape, Z8)
        dealer.derive(_Remainders(x.ring, dropped_bits), x.ring, rho)
        return x

    def run(self, party: Party, x: Share, *, dropped_bits: int) -> Share:
        """Open the low bits, and subtract them."""
        assert dropped_bits <= Z8.bits
        ring = x.ring
        rho = party.uniform(x.shape, Z8)
        remainders = party.derived((1 << dropped_bits, *x.shape), ring).part
        half = ring.to_elements(np.full(x.shape, 1 << (dropped_bits - 1)))
        raised = x + party.share_public(half, ring)
        (c,) = party.open(raised.reduce_to_ring(Z8) + rho)
        position = (c & np.uint8((1 << dropped_bits) - 1)).astype(np.intp)
        return raised - Share(remainders[position, np.arange(x.size)], ring)

    def count(self, counter: CostCounter, x: Share, *, dropped_bits: int) -> Share:
        """Count the opening of low bits, and the remainders."""
        counter.count_opening(x.reduce_to_ring(Z8))
        counter.derive(_Remainders(x.ring, dropped_bits), x.ring, x)
        return x


class _Remainders(Correlation):
    """(c - rho) mod 2^bits for every c: with rho = S + T, the S holder's entry at c - T."""

    def __init__(self, ring: Ring, bits: int) -> None:
        self._ring = ring
        self._bits = bits

    def shape(self, *masks: tuple[int, ...]) -> tuple[int, ...]:
        """Return one entry for every c."""
        return (1 << self._bits, *masks[0])

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Subtract S from every c."""
        c = np.arange(1 << self._bits).reshape(-1, 1)
        return [((c - s[0]) & ((1 << self._bits) - 1)).astype(self._ring.dtype)]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Return the entries at c - T."""
        c = np.arange(1 << self._bits).reshape(-1, 1)
        return np.take_along_axis(
            held.s_term_shares[0], (c - held.t_parts[0]) & ((1 << self._bits) - 1), axis=0
        )


round_exactly = RoundExactly()


def defer_borrow_comparison(x: MaskedValue, bits: int) -> DeferredGate[MaskedComparison]:
    """Defer the comparison that `divide_masked_exactly` needs: an opening of L bits a value.

    It compares the low bits of the public part with those of the mask, as numbers of one bit more,
    so that their difference has a sign.
    """
    return compare.defer(
        x.keep_low_bits(bits), thresholds=(0,), width=bits + 1, digits=choose_digit_count(bits + 1)
    )


def divide_masked_exactly(
    runtime: Runtime, x: MaskedValue, bits: int, borrows: MaskedComparison, ring: Ring = Z64
) -> Share:
    """Return a masked value 0 <= x < 2^(w-1) divided by 2^bits and rounded down.

    `lift` divides the public part and the mask, each rounded down. Where the low bits of the public
    part do not reach those of the mask (`defer_borrow_comparison`), the result is one too large.

    Cost: no opening. Reveals: nothing. Error: none: the result is a function of x alone.
    """
    lifted = lift(runtime, x, shift=bits, ring=ring)
    borrowed = multiply_by_step(
        runtime, borrows, make_lifted_one(runtime, x.shape, lifted.ring), factors=(-1, 0)
    )
    return lifted.to_share(runtime) + borrowed


def divide_exactly(runtime: Runtime, x: Share, bits: int, ring: Ring) -> Share:
    """Divide shared values by 2^bits, rounded to the nearest, halves up, into a smaller ring.

    Equal values stay equal, and no two change their order: the result is a function of x alone.

    Cost: two openings. Reveals: nothing. Error: none.
    """
    if not bits:
        return x.reduce_to_ring(ring)
    wide = get_integer_ring(ring.bits + bits)
    masked = mask_value(runtime, x.reduce_to_ring(wide)) + (1 << (bits - 1))
    return divide_masked_exactly(
        runtime, masked, bits, run_deferred(runtime, defer_borrow_comparison(masked, bits)), ring
    )


class ReduceRing(OpeningGate):
    """Divide shared values by 2^bits into masked values over smaller rings.

    1. The dealer draws [r] over a ring of `bits` more bits than the result's, and derives
       [r >> bits].
    2. Open c = [x] + [r] over it. Then x >> bits = (c >> bits) - (r >> bits) in the result's ring:
       if x + r wraps around, it is off by that ring's size.

    Cost: one opening of the bits that matter; corrections of one element. Reveals: nothing. Error:
    rounded down or up at random, unbiased; a value that is not negative stays so.
    """

    name = "shrink"

    def deal(
        self,
        dealer: Dealer,
        *values: Share,
        dropped_bits: Sequence[int],
        rings: Sequence[Ring],
        on_masks: MasksCallback | None = None,
    ) -> list[MaskedValue]:
        """Draw masks, and derive their quotients."""
        kept = []
        for x, drop, ring in zip(values, dropped_bits, rings, strict=True):
            r = dealer.uniform(x.shape, _opened_ring(drop, ring))
            kept.append(derive_quotient(dealer, r, drop, ring))
        return [MaskedValue(Elements.unknown(r.shape, r.ring), r) for r in kept]

    def run(
        self,
        party: Party,
        *values: Share,
        dropped_bits: Sequence[int],
        rings: Sequence[Ring],
        on_masks: MasksCallback | None = None,
    ) -> OpeningSteps[list[MaskedValue]]:
        """Open, and drop bits."""
        masked: list[Share] = []
        kept: list[Elements] = []
        for x, drop, ring in zip(values, dropped_bits, rings, strict=True):
            wide = _opened_ring(drop, ring)
            masked.append(x.reduce_to_ring(wide) + party.uniform(x.shape, wide))
            kept.append(party.derived(x.shape, ring))
        if on_masks is not None:
            on_masks(kept)
        opened = yield masked
        return [
            MaskedValue(Elements(_shortened(c, x.ring, r.ring), r.ring), r)
            for c, x, r in zip(opened, masked, kept, strict=True)
        ]

    def count(
        self,
        counter: CostCounter,
        *values: Share,
        dropped_bits: Sequence[int],
        rings: Sequence[Ring],
        on_masks: MasksCallback | None = None,
    ) -> tuple[Sequence[Share], list[MaskedValue]]:
        """Count the opening, and the quotients of the masks."""
        shapes = [
            (x.shape, drop, ring) for x, drop, ring in zip(values, dropped_bits, rings, strict=True)
        ]
        opened = [Share.unknown(s, _opened_ring(drop, ring)) for s, drop, ring in shapes]
        for r, (_, drop, ring) in zip(opened, shapes, strict=True):
            derive_quotient(counter, r, drop, ring)
        return opened, [unknown_masked(shape, ring) for shape, _, ring in shapes]


def _opened_ring(dropped_bits: int, ring: Ring) -> Ring:
    return get_integer_ring(ring.bits + dropped_bits)


def _shortened(x: RingArray, wide: Ring, ring: Ring) -> RingArray:
    short: RingArray = wide.reduce_modulus(x) >> wide.dtype.type(wide.bits - ring.bits)
    return short.astype(ring.dtype)


reduce_ring = ReduceRing()
