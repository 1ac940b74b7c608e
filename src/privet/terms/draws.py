"""Which rows and features each table is trained on, where it is not all of them: a public coin.

Everybody draws the same, the dealer too, from the hyper-parameter `seed` and the table's number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from privet.arithmetic.prg import SEED_BYTES, Place, Prg
from privet.arrays import IndexArray, Indices
from privet.terms.params import Params

_LEAST_ROWS = 2
"""As few as any training needs."""


class Draw(NamedTuple):
    """What one table is trained on. Rows that are left out get their scores updated all the same.

    Both are indices in rising order, or a slice where nothing is left out.
    """

    rows: Indices
    features: Indices


def draw(params: Params, n_samples: int, cuts: Sequence[int] | IndexArray, table: int) -> Draw:
    """Return what a table is trained on, if the features have so many cuts, as far as all know."""
    return Draw(_draw_rows(params, n_samples, table), draw_features(params, cuts, table))


def _draw_rows(params: Params, n_samples: int, table: int) -> Indices:
    if params.subsample == 1:
        return slice(n_samples)
    order = _coin(params).permutation(Place("rows", (table,), 0), n_samples)
    return np.sort(order[: drawn_rows(params, n_samples)])


def draw_features(params: Params, cuts: Sequence[int] | IndexArray, table: int) -> Indices:
    """Return the features that a table may test.

    One without a cut cannot be tested, so it is not drawn.
    """
    if params.colsample == 1:
        return slice(len(cuts))
    testable = np.flatnonzero(cuts)
    order = _coin(params).permutation(Place("features", (table,), 0), len(testable))
    return testable[np.sort(order[: _share(params.colsample, len(testable), least=1)])]


def drawn_rows(params: Params, n_samples: int) -> int:
    """Return how many rows every table is trained on."""
    return _share(params.subsample, n_samples, least=_LEAST_ROWS)


def _share(share: float, whole: int, least: int) -> int:
    return min(whole, max(least, round(Fraction(share) * whole)))


def _coin(params: Params) -> Prg:
    seed = hashlib.blake2b(
        str(params.seed).encode(), digest_size=SEED_BYTES, person=b"privet draws"
    )
    return Prg(seed.digest())
