"""Bits of masks over another ring, and what a power of two leaves of them.

A mask is S + T, modulo a ring of w bits. Its bits from k on are those of S and of T, added, and a
carry into bit k; what they add up to beyond the ring is a carry out of it. Carries are masks of one
bit each (`Dealer.carries`): S ^ T, which is S + T - 2ST.
"""

from __future__ import annotations

from collections.abc import Sequence

from privet.arithmetic.rings import Z1, Ring, RingArray
from privet.arithmetic.shares import Elements
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.recipes import Half, Recipe
from privet.runtime.runtime import Shape


class Quotient(Recipe):
    """A mask as an integer divided by 2^shift, rounded down, over some ring.

    Masks: the mask itself, and carries (k, ...) into the bit at `shift` and out of the mask's ring,
    as far as they matter.
    """

    def __init__(self, whole: Ring, shift: int, ring: Ring) -> None:
        self._whole, self._shift, self._ring = whole, shift, ring
        self.carries = [
            *([shift] if shift else []),
            *([whole.bits] if whole.bits - shift < ring.bits else []),
        ]
        """Into which bits they are needed."""

    def shape(self, *masks: Shape) -> Shape:
        """Return the mask's."""
        return masks[0]

    def shared(self, ring: Ring, *masks: Shape) -> list[tuple[Ring, Shape]]:
        """Return S, divided, and the carries."""
        return [(ring, masks[0])] * (1 + len(self.carries))

    def alone(self, *s: RingArray) -> RingArray:
        """Divide the mask."""
        short: RingArray = self._whole.reduce(s[0]) >> self._whole.dtype.type(self._shift)
        return short.astype(self._ring.dtype)

    def client(self, *s: RingArray) -> list[RingArray]:
        """Divide S, and take the carries' S."""
        return [self.alone(s[0]), *(bit.astype(self._ring.dtype) for bit in _bits(s[1]))]

    def server(self, half: Half) -> RingArray:
        """Add T, divided, and the carries."""
        total = half.shared[0] + self.alone(half.t[0]) if half.first else half.shared[0].copy()
        for place, shared, t in zip(self.carries, half.shared[1:], _bits(half.t[1]), strict=True):
            carry = _exclusive(shared, t, half.first, self._ring)
            if place == self._shift:
                total += carry
            else:
                total -= carry << self._ring.dtype.type(self._whole.bits - self._shift)
        return total


class Bit(Recipe):
    """A mask of one bit, S ^ T, over another ring."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.of_s: RingArray | None = None
        """A server's share of S, once it has it."""

    def shape(self, *masks: Shape) -> Shape:
        """Return the bit's."""
        return masks[0]

    def client(self, *s: RingArray) -> list[RingArray]:
        """Take S."""
        return [Z1.reduce(s[0]).astype(self._ring.dtype)]

    def server(self, half: Half) -> RingArray:
        """Multiply with 1 - 2T, and add T."""
        self.of_s = half.shared[0]
        return _exclusive(half.shared[0], Z1.reduce(half.t[0]), half.first, self._ring)


def _bits(carries: RingArray) -> Sequence[RingArray]:
    return list(Z1.reduce(carries))


def _exclusive(shared: RingArray, t: RingArray, first: bool, ring: Ring) -> RingArray:
    """Return a share of S ^ T, from one of S."""
    bit = t.astype(ring.dtype)
    result: RingArray = shared * (ring.array(1) - bit - bit)
    return result + bit if first else result


def derive_quotient(dealer: Dealer | Counter, mask: Elements, shift: int, ring: Ring) -> Elements:
    """Derive a mask divided by 2^shift, rounded down: a mask of its own."""
    recipe = Quotient(mask.ring, shift, ring)
    carries, _ = dealer.carries(mask, recipe.carries)
    return dealer.derive(recipe, ring, mask, carries, kept=True)


def derive_integer(
    dealer: Dealer | Counter, mask: Elements, shift: int, ring: Ring
) -> tuple[Elements, Elements]:
    """Derive a mask divided by 2^shift, rounded down, and its top bit: masks of their own."""
    recipe = Quotient(mask.ring, shift, ring)
    carries, top = dealer.carries(mask, recipe.carries, mask.ring.bits - 1)
    quotient = dealer.derive(recipe, ring, mask, carries, kept=True)
    return quotient, dealer.derive(Bit(ring), ring, top, kept=True)
