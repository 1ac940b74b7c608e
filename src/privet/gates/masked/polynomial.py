"""Polynomials and squares of lifted values, without communication."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import accumulate, product
from math import prod

import numpy as np

from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import Elements, Share
from privet.gates.gate import Gate
from privet.gates.masked.value import LiftedValue
from privet.runtime.correlations.correlation import BilinearProduct, Correlation, THolderInput
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import CostCounter
from privet.runtime.party import Party

Term = tuple[int, tuple[int, ...]]
"""A public coefficient, and the indices of the values that it multiplies, with repetitions."""
MaskProduct = tuple[int, ...]
"""A product of masks: their sorted numbers, which count through all values."""


class Polynomial(Gate):
    """Evaluate a polynomial in lifted values, a sum of products, without an opening.

    1. Multiplied out, it is a sum of products of masks with public coefficients.
    2. The dealer derives every product of two masks or more.
    3. Participants have shares of those. With p a product of masks, the share of [p x] follows from
       those of [p] and of [p m] for each mask m of x, and so on from factor to factor.

    Cost: no opening; corrections for each distinct product of masks. Reveals: nothing. Error: none;
    the result must fit the ring.
    """

    name = "polynomial"

    def deal(self, dealer: Dealer, values: Sequence[LiftedValue], terms: Sequence[Term]) -> Share:
        """Derive products of masks."""
        shape, ring, keys = _outline(values, terms)
        if keys:
            masks = [mask for value in values for mask in value.masks]
            dealer.derive(_MaskProducts(ring, shape, keys), ring, *masks)
        return Share.unknown(shape, ring)

    def run(self, party: Party, values: Sequence[LiftedValue], terms: Sequence[Term]) -> Share:
        """Multiply the products of masks with one value after the other."""
        shape, ring, keys = _outline(values, terms)
        masks = [mask for value in values for mask in value.masks]
        products: dict[MaskProduct, RingArray] = {(k,): mask.array for k, mask in enumerate(masks)}
        products[()] = ring.to_elements(1 if party.index == 0 else 0)
        if keys:
            products.update(zip(keys, party.derived((len(keys), *shape), ring).part, strict=True))
        first = _first_masks(len(value.masks) for value in values)

        @cache
        def share(key: MaskProduct, factors: tuple[int, ...]) -> RingArray:
            """Return the share of a product of masks, times values."""
            if not factors:
                return products[key]
            v, others = factors[0], factors[1:]
            total = share(key, others) * values[v].public.array
            for k, coefficient in enumerate(values[v].coefficients, start=first[v]):
                total = total + share(_add_mask(key, k), others) * coefficient.array
            return total

        result = ring.zeros(shape)
        for constant, factors in terms:
            result += share((), factors) * ring.to_elements(constant)
        return Share(result, ring)

    def count(
        self, counter: CostCounter, values: Sequence[LiftedValue], terms: Sequence[Term]
    ) -> Share:
        """Count the products."""
        shape, ring, keys = _outline(values, terms)
        if keys:
            masks = [mask for value in values for mask in value.masks]
            counter.derive(_MaskProducts(ring, shape, keys), ring, *masks)
        return Share.unknown(shape, ring)


class _MaskProducts(Correlation):
    """Products of masks, side by side.

    With each mask S + T, a product is the sum, over all choices of S or T for each factor, of a
    product of S times a product of T. Every product of some of a product's factors is derived as
    well, so the S holder shares the same number of products.
    """

    def __init__(self, ring: Ring, shape: tuple[int, ...], keys: Sequence[MaskProduct]) -> None:
        self._ring = ring
        self._shape = shape
        self._keys = keys

    def shape(self, *masks: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of all products."""
        return (len(self._keys), *self._shape)

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Multiply S: each product is an earlier product, times one more factor."""
        result = np.empty((len(self._keys), *self._shape), dtype=self._ring.dtype)
        found: dict[MaskProduct, RingArray] = {(k,): part for k, part in enumerate(s)}
        for key, product_of_s in zip(self._keys, result, strict=True):
            np.multiply(found[key[:-1]], s[key[-1]], out=product_of_s)
            found[key] = product_of_s
        return [result]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Add up the shared products of S, times products of T."""
        found: dict[MaskProduct, RingArray] = dict(
            zip(self._keys, held.s_term_shares[0], strict=True)
        )
        found.update({(k,): part for k, part in enumerate(held.s_shares)})
        if held.is_first:
            found[()] = self._ring.to_elements(1)
        result = self._ring.zeros((len(self._keys), *self._shape))
        for i, key in enumerate(self._keys):
            for choice in product((True, False), repeat=len(key)):
                factors_of_s = tuple(k for k, is_s in zip(key, choice, strict=True) if is_s)
                factors_of_t = tuple(k for k, is_s in zip(key, choice, strict=True) if not is_s)
                if factors_of_s in found:
                    result[i] += found[factors_of_s] * self._times(held.t_parts, factors_of_t)
        return result

    def _times(self, masks: Sequence[RingArray], key: MaskProduct) -> RingArray:
        if not key:
            return np.broadcast_to(self._ring.to_elements(1), self._shape)
        return np.broadcast_to(prod((masks[k] for k in key[1:]), start=masks[key[0]]), self._shape)


def _outline(
    values: Sequence[LiftedValue], terms: Sequence[Term]
) -> tuple[tuple[int, ...], Ring, tuple[MaskProduct, ...]]:
    shape = np.broadcast_shapes(*(value.shape for value in values))
    counts = tuple(len(value.masks) for value in values)
    return shape, values[0].ring, _products(counts, tuple(factors for _, factors in terms))


@lru_cache(maxsize=256)
def _products(
    counts: tuple[int, ...], terms: tuple[tuple[int, ...], ...]
) -> tuple[MaskProduct, ...]:
    """Return the distinct products of two masks or more, of values with `counts` masks.

    Each, without its last factor, is a mask or an earlier product.
    """
    first = _first_masks(counts)
    found: dict[MaskProduct, None] = {}
    for factors in terms:
        for choice in product(*((None, *range(first[v], first[v + 1])) for v in factors)):
            masks = tuple(sorted(mask for mask in choice if mask is not None))
            if len(masks) > 1:
                found[masks] = None
    return tuple(found)


def _add_mask(key: MaskProduct, mask: int) -> MaskProduct:
    return tuple(sorted((*key, mask)))


def _first_masks(counts: Iterable[int]) -> list[int]:
    """Return the number of each value's first mask."""
    return [0, *accumulate(counts)]


polynomial = Polynomial()


class SquareLifted(Gate):
    """Square a result of `lift`: x = c + a u, or c + a u + b t with a bit t.

    x^2 = c^2 + 2ac u + a^2 u^2; with t, add (2bc + b^2) t + 2ab ut, because t^2 is t.

    1. The dealer derives [u^2], and [ut].

    Cost: no opening; corrections of an element or two. Reveals: nothing. Error: none; the square
    must fit the ring.
    """

    name = "square"

    def deal(self, dealer: Dealer, x: LiftedValue) -> LiftedValue:
        """Derive the products of masks."""
        return _unknown(x, _derived(dealer, x))

    def run(self, party: Party, x: LiftedValue) -> LiftedValue:
        """Square the public part and the coefficients."""
        products = [party.derived(x.shape, x.ring) for _ in x.masks]
        c, a = x.public.array, x.coefficients[0].array
        public, coefficients = c * c, [2 * a * c]
        if len(x.masks) == 2:
            b = x.coefficients[1].array
            coefficients += [2 * b * c + b * b, a * a, 2 * a * b]
        else:
            coefficients.append(a * a)
        return LiftedValue(
            Elements(public, x.ring),
            (*x.masks, *products),
            tuple(Elements(coefficient, x.ring) for coefficient in coefficients),
        )

    def count(self, counter: CostCounter, x: LiftedValue) -> LiftedValue:
        """Count the products."""
        return _unknown(x, _derived(counter, x))


def _derived(dealer: Dealer | CostCounter, x: LiftedValue) -> tuple[Elements, ...]:
    times = BilinearProduct(x.ring, x.ring.multiply)
    return tuple(dealer.derive(times, x.ring, x.masks[0], m, as_mask=True) for m in x.masks)


def _unknown(x: LiftedValue, more: tuple[Elements, ...]) -> LiftedValue:
    unknown = Elements.unknown(x.shape, x.ring)
    return LiftedValue(unknown, (*x.masks, *more), (unknown,) * (len(x.masks) + len(more)))


square_lifted = SquareLifted()
