"""Picking one of many masked values, by a masked vector that is 1 there and 0 elsewhere."""

from __future__ import annotations

from privet.arithmetic.rings import RingArray
from privet.arithmetic.shares import Share
from privet.gates.gate import Gate
from privet.gates.masked import Masked
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party
from privet.runtime.recipes import Product


class Pick(Gate):
    """Return the sum of masked values, (C, ...), each times an element of a masked vector, (C,).

    With v = c - r and x = d - s: the sum of c x - r d + r s.

    1. The dealer derives the sum of [r s].

    Cost: no opening; corrections of the result's size. Reveals: nothing. Error: none.
    """

    name = "pick"

    def deal(self, dealer: Dealer, v: Masked, x: Masked) -> Share:
        """Derive the sum of products of masks."""
        dealer.derive(_picked(x), x.ring, v.mask, x.mask)
        return Share.unknown(x.shape[1:], x.ring)

    def run(self, party: Party, v: Masked, x: Masked) -> Share:
        """Add up what is public times shares."""
        dealt = party.derived(x.shape[1:], x.ring).part
        part = _contract(v.public.array, x.share(party).part)
        return Share(part - _contract(v.mask.array, x.public.array) + dealt, x.ring)

    def count(self, counter: Counter, v: Masked, x: Masked) -> Share:
        """Count the products."""
        counter.derive(_picked(x), x.ring, v.mask, x.mask)
        return Share.unknown(x.shape[1:], x.ring)


def _picked(x: Masked) -> Product:
    return Product(x.ring, _contract, lambda _, masks: masks[1:])


def _contract(v: RingArray, x: RingArray) -> RingArray:
    """Return the sum over the first axis of products."""
    weights = v.reshape(-1, *[1] * (x.ndim - 1))
    total: RingArray = (weights * x).sum(axis=0, dtype=x.dtype)
    return total


pick = Pick()
