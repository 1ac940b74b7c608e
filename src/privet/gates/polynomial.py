"""Polynomials of lifted values, evaluated without a message between participants."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from privet.arithmetic.rings import Z64, Ring
from privet.arithmetic.shares import Share
from privet.gates.gate import Cost, Gate
from privet.gates.masked import Lifted, Mask
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party

Term = tuple[int, tuple[Lifted, ...]]
"""A public coefficient, and the factors that it multiplies."""


class Polynomial(Gate):
    """Evaluate a polynomial in lifted values: a sum of products, with no opening at all.

    1. Expand it into products of masks with public coefficients.
    2. The dealer derives every product of two masks or more.
    3. Participants add up public coefficients times shares of those products.

    Cost: no opening; corrections for each distinct product of masks. Reveals: nothing. Error: none;
    the result must fit the ring.
    """

    name = "polynomial"

    def deal(self, dealer: Dealer, terms: Sequence[Term]) -> Share:
        """Derive products of masks."""
        shape, ring = _shape(terms), terms[0][1][0].ring
        derived = [
            np.broadcast_to(prod((m.known for m in key[1:]), start=key[0].known), shape)
            for key in _products(terms)
        ]
        if derived:
            dealer.derive(np.stack(derived), ring)
        return Share.unknown(shape, ring)

    def run(self, party: Party, terms: Sequence[Term]) -> Share:
        """Add up what the dealer dealt, with public coefficients."""
        shape, ring = _shape(terms), terms[0][1][0].ring
        keys = _products(terms)
        dealt = party.derived((len(keys), *shape), ring).part if keys else None
        position = {key: i for i, key in enumerate(keys)}
        coefficients: dict[tuple[Mask, ...], Any] = {}
        for constant, factors in terms:
            expansions: dict[tuple[Mask, ...], Any] = {(): ring.array(constant)}
            for factor in factors:
                expansions = _times(expansions, factor, _order(terms))
            for key, coefficient in expansions.items():
                coefficients[key] = (
                    coefficient if key not in coefficients else coefficients[key] + coefficient
                )
        result = ring.zeros(shape)
        for key, coefficient in coefficients.items():
            if not key:
                if party.index == 0:
                    result += coefficient
            elif len(key) == 1:
                result += coefficient * key[0].part
            else:
                assert dealt is not None
                result += coefficient * dealt[position[key]]
        return Share(result, ring)

    @staticmethod
    def cost(n_products: int, shape: tuple[int, ...], ring: Ring = Z64) -> Cost:
        """Return the cost of a polynomial with that many products of masks."""
        return Cost(offline=n_products * ring.nbytes(shape))


def _shape(terms: Sequence[Term]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(factor.shape for _, factors in terms for factor in factors))


def _order(terms: Sequence[Term]) -> dict[int, int]:
    """Return numbers for the masks, in the order in which they appear."""
    order: dict[int, int] = {}
    for _, factors in terms:
        for factor in factors:
            for mask in factor.masks:
                order.setdefault(id(mask), len(order))
    return order


def _products(terms: Sequence[Term]) -> list[tuple[Mask, ...]]:
    """Return the distinct products of two masks or more, each as a sorted tuple."""
    order = _order(terms)
    found: dict[tuple[Mask, ...], None] = {}
    for _, factors in terms:
        for choice in product(*((None, *factor.masks) for factor in factors)):
            masks = [mask for mask in choice if mask is not None]
            if len(masks) > 1:
                found[tuple(sorted(masks, key=lambda mask: order[id(mask)]))] = None
    return list(found)


def _times(
    expansions: dict[tuple[Mask, ...], Any], factor: Lifted, order: dict[int, int]
) -> dict[tuple[Mask, ...], Any]:
    ring = factor.ring
    result: dict[tuple[Mask, ...], Any] = {}
    for key, coefficient in expansions.items():
        choices: list[tuple[tuple[Mask, ...], Any]] = [(key, coefficient * factor.public)]
        for mask, weight in zip(factor.masks, factor.coefficients, strict=True):
            longer = tuple(sorted((*key, mask), key=lambda m: order[id(m)]))
            scaled = ring.negate(coefficient) if weight is None else coefficient * weight
            choices.append((longer, scaled))
        for longer, value in choices:
            result[longer] = result[longer] + value if longer in result else value
    return result


polynomial = Polynomial()
