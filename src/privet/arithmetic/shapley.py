"""Shapley values of functions of a few bits: average contributions of players over all orders.

A function of D bits, each the outcome of a split, is given by its *partial means*: 3^D numbers.
The ternary digits of a number's position, that of the first bit first, state the value of each bit:
0, 1, or 2 for the mean over both. Each player owns one bit or more. In a coalition, the bits of its
players are known, and the bits of other players are not.

Values and weights are real numbers, or elements of a ring.
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
    """Return the weight of joining a coalition of 0, 1, ... others, for the player that joins."""
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
    """Return `compute_shapley` of ring elements, times 2^bits, with integer weights."""
    return compute_shapley(
        means, owners, ring.to_elements(encode_coalition_weights(len(set(owners)), bits))
    )


def compute_shapley(
    means: npt.NDArray[Any], owners: Sequence[int], coalition_weights: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Return the contribution of each bit's owner, (..., D, 2^D), from partial means (..., 3^D).

    The last axis has the 2^D combinations of bits, the first bit the most significant one. The
    contribution of an owner of several bits is at the first of them; the others have zeros.
    """
    position, inside, size, first = _coalitions(tuple(_numbered(owners)))
    # A player inside joined the others of its coalition; a player outside would join all of them.
    signed_weights = np.where(
        inside, coalition_weights[size - 1], -coalition_weights[size % len(coalition_weights)]
    )
    contributions = signed_weights @ means[..., position]
    depth = len(owners)
    result = np.zeros((*means.shape[:-1], depth, 1 << depth), dtype=means.dtype)
    result[..., first, :] = contributions
    return result


def _numbered(owners: Sequence[int]) -> list[int]:
    """Return the owners' numbers, in the order of their first appearance."""
    order = {owner: number for number, owner in enumerate(dict.fromkeys(owners))}
    return [order[owner] for owner in owners]


@lru_cache(maxsize=64)
def _coalitions(
    owners: tuple[int, ...],
) -> tuple[IndexArray, npt.NDArray[np.bool_], IndexArray, IndexArray]:
    """Return all coalitions of the owners of bits, as four arrays.

    These are the positions of each coalition's partial means, for every combination of bits,
    (coalitions, 2^D); its members, (players, coalitions); its size; and each player's first bit.
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
