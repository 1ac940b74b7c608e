"""Polynomials of lifted values, evaluated without a message between participants."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import Share
from privet.gates.gate import Gate
from privet.gates.masked import Lifted
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party
from privet.runtime.recipes import Half, Recipe

Term = tuple[int, tuple[int, ...]]
"""A public coefficient, and which of the values it multiplies, as often as it does."""
Key = tuple[int, ...]
"""A product of masks, which are counted through all values: sorted."""


class Polynomial(Gate):
    """Evaluate a polynomial in lifted values: a sum of products, with no opening at all.

    1. Expand it into products of masks with public coefficients.
    2. The dealer derives every product of two masks or more.
    3. Participants add up public coefficients times shares of those products.

    Cost: no opening; corrections for each distinct product of masks. Reveals: nothing. Error: none;
    the result must fit the ring.
    """

    name = "polynomial"

    def deal(self, dealer: Dealer, values: Sequence[Lifted], terms: Sequence[Term]) -> Share:
        """Derive products of masks."""
        shape, ring, keys = _outline(values, terms)
        if keys:
            masks = [mask for value in values for mask in value.masks]
            dealer.derive(_Products(ring, shape, keys), ring, *masks)
        return Share.unknown(shape, ring)

    def run(self, party: Party, values: Sequence[Lifted], terms: Sequence[Term]) -> Share:
        """Add up what the dealer dealt, with public coefficients."""
        shape, ring, keys = _outline(values, terms)
        products: dict[Key, RingArray] = {}
        if keys:
            products.update(zip(keys, party.derived((len(keys), *shape), ring).part, strict=True))
        masks = [mask for value in values for mask in value.masks]
        products.update({(k,): mask.array for k, mask in enumerate(masks)})
        result = ring.zeros(shape)
        for key, coefficient in _expanded(values, terms).items():
            if key:
                result += coefficient * products[key]
            elif party.index == 0:
                result += coefficient
        return Share(result, ring)

    def count(self, counter: Counter, values: Sequence[Lifted], terms: Sequence[Term]) -> Share:
        """Count the products."""
        shape, ring, keys = _outline(values, terms)
        if keys:
            counter.derive(ring, (len(keys), *shape))
        return Share.unknown(shape, ring)


class _Products(Recipe):
    """Products of masks, side by side.

    Of a sum S + T for each mask, a product is the sum, over ways to take S or T of each factor, of
    a product of S and one of T. Every product of some factors of a dealt one is dealt as well, so
    the client's are the same in number.
    """

    def __init__(self, ring: Ring, shape: tuple[int, ...], keys: Sequence[Key]) -> None:
        self._ring = ring
        self._shape = shape
        self._keys = keys

    def client(self, *s: RingArray) -> list[RingArray]:
        """Multiply S."""
        return [np.stack([self._times(s, key) for key in self._keys])]

    def server(self, half: Half) -> RingArray:
        """Add up products of what is shared and T."""
        found: dict[Key, RingArray] = dict(zip(self._keys, half.shared[0], strict=True))
        found.update({(k,): part for k, part in enumerate(half.s)})
        if half.first:
            found[()] = self._ring.array(1)
        result = self._ring.zeros((len(self._keys), *self._shape))
        for i, key in enumerate(self._keys):
            for taken in product((True, False), repeat=len(key)):
                ours = tuple(k for k, is_s in zip(key, taken, strict=True) if is_s)
                theirs = tuple(k for k, is_s in zip(key, taken, strict=True) if not is_s)
                if ours in found:
                    result[i] += found[ours] * self._times(half.t, theirs)
        return result

    def _times(self, masks: Sequence[RingArray], key: Key) -> RingArray:
        if not key:
            return np.broadcast_to(self._ring.array(1), self._shape)
        return np.broadcast_to(prod((masks[k] for k in key[1:]), start=masks[key[0]]), self._shape)


def _outline(
    values: Sequence[Lifted], terms: Sequence[Term]
) -> tuple[tuple[int, ...], Ring, tuple[Key, ...]]:
    shape = np.broadcast_shapes(*(value.shape for value in values))
    counts = tuple(len(value.masks) for value in values)
    return shape, values[0].ring, _products(counts, tuple(factors for _, factors in terms))


@lru_cache(maxsize=256)
def _products(counts: tuple[int, ...], terms: tuple[tuple[int, ...], ...]) -> tuple[Key, ...]:
    """Return the distinct products of two masks or more, of values with so many masks each."""
    first = np.cumsum([0, *counts]).tolist()
    found: dict[Key, None] = {}
    for factors in terms:
        for choice in product(*((None, *range(first[v], first[v + 1])) for v in factors)):
            masks = tuple(sorted(mask for mask in choice if mask is not None))
            if len(masks) > 1:
                found[masks] = None
    return tuple(found)


def _expanded(values: Sequence[Lifted], terms: Sequence[Term]) -> dict[Key, RingArray]:
    """Return the public coefficient of every product of masks."""
    ring = values[0].ring
    first = np.cumsum([0, *(len(value.masks) for value in values)]).tolist()
    total: dict[Key, RingArray] = {}
    for constant, factors in terms:
        expansion: dict[Key, RingArray] = {(): ring.array(constant)}
        for v in factors:
            expansion = _times(expansion, values[v], first[v])
        _accumulate(total, expansion)
    return total


def _times(expansion: dict[Key, RingArray], value: Lifted, first: int) -> dict[Key, RingArray]:
    result: dict[Key, RingArray] = {}
    for key, coefficient in expansion.items():
        _accumulate(result, {key: coefficient * value.public.array})
        for k, weight in enumerate(value.coefficients, start=first):
            _accumulate(result, {tuple(sorted((*key, k))): coefficient * weight.array})
    return result


def _accumulate(total: dict[Key, RingArray], more: dict[Key, RingArray]) -> None:
    for key, value in more.items():
        total[key] = total[key] + value if key in total else value


polynomial = Polynomial()
