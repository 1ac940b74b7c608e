"""Shapley values of functions of a few bits: what each player adds, on average over all orders.

A function of D bits, each the outcome of a test, is given by its *partial means*: 3^D numbers, the
digits of whose position, the first bit's first, say of each bit that it is 0, that it is 1, or (2)
that its mean was taken. Players have bits, perhaps several. In a coalition all bits of its players
are known, and of no other player any.

Values may be real, or elements of a ring: then the weights are, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from privet.arithmetic.fixed_point import round_scaled
from privet.arithmetic.rings import Ring, RingArray
from privet.arrays import FloatArray, IndexArray


def compute_coalition_weights(n_players: int) -> list[Fraction]:
    """Return how much a step into a coalition of 0, 1, ... others counts for who takes it."""
    return [Fraction(1, n_players * comb(n_players - 1, size)) for size in range(n_players)]


def encode_coalition_weights(n_players: int, bits: int) -> list[int]:
    """Return the weights as integers, times 2^bits."""
    return [round_scaled(weight, bits) for weight in compute_coalition_weights(n_players)]


def compute_shapley_of_reals(means: FloatArray, owners: Sequence[int]) -> FloatArray:
    """Return `compute_shapley` of real numbers."""
    return compute_shapley(
        means, owners, np.array([float(w) for w in compute_coalition_weights(len(set(owners)))])
    )


def compute_shapley_of_elements(
    means: RingArray, owners: Sequence[int], ring: Ring, bits: int
) -> RingArray:
    """Return `compute_shapley` of ring elements, times 2^bits, with weights that are integers."""
    return compute_shapley(
        means, owners, ring.to_elements(encode_coalition_weights(len(set(owners)), bits))
    )


def compute_shapley(
    means: npt.NDArray[Any], owners: Sequence[int], coalition_weights: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Return what each bit's owner adds, from partial means (..., 3^D): (..., D, 2^D).

    At each of the 2^D combinations of bits, the first bit's first. What the owner of several bits
    adds stands at the first of them, zeros at the others.
    """
    position, inside, size, first = _coalitions(tuple(_numbered(owners)))
    # Who is inside took a step into what was there before it; who is not would step into all.
    gains = np.where(
        inside, coalition_weights[size - 1], -coalition_weights[size % len(coalition_weights)]
    )
    added = gains @ means[..., position]
    depth = len(owners)
    result = np.zeros((*means.shape[:-1], depth, 1 << depth), dtype=means.dtype)
    result[..., first, :] = added
    return result


def _numbered(owners: Sequence[int]) -> list[int]:
    """Return owners by the order in which they first come."""
    order = {owner: number for number, owner in enumerate(dict.fromkeys(owners))}
    return [order[owner] for owner in owners]


@lru_cache(maxsize=64)
def _coalitions(
    owners: tuple[int, ...],
) -> tuple[IndexArray, npt.NDArray[np.bool_], IndexArray, IndexArray]:
    """Return all coalitions of the owners of bits.

    As where the partial means of each are, for every combination of bits, (coalitions, 2^D); which
    players are inside, (players, coalitions); how many; and which bit is each player's first.
    """
    depth, players = len(owners), max(owners) + 1
    inside = _bits(players).T.astype(np.bool_)
    known = inside[np.array(owners)]  # (depth, coalitions)
    digits = np.where(known.T[:, None, :], _bits(depth), 2)
    position = digits @ 3 ** np.arange(depth - 1, -1, -1)
    first = np.array([owners.index(player) for player in range(players)])
    return position.astype(np.intp), inside, inside.sum(axis=0), first


def _bits(count: int) -> IndexArray:
    """Return the bits of all numbers below 2^count, the highest first: (2^count, count)."""
    result: IndexArray = (np.arange(1 << count)[:, None] >> np.arange(count - 1, -1, -1)) & 1
    return result
