"""Validation rows: which they are, and when their loss says that there are tables enough.

They come after the training rows. Everybody draws them from a seed that all know, so nobody has a
choice, and nobody has to be told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from privet.arithmetic.exact import nearest
from privet.arithmetic.prg import Place, Prg
from privet.arrays import FloatArray, IndexArray
from privet.errors import DataError, ParameterError
from privet.terms.params import Params

FURTHEST = 8
"""A validation row's number lies no more than so many times as far from the start as any training
row's: protocols compute with numbers of that size."""


def count_validation(n_rows: int, params: Params) -> int:
    """Return how many of these rows are set aside; raise DataError if too few are left."""
    if not params.validation:
        return 0
    count = nearest(Fraction(params.validation) * n_rows)
    if count < 1 or n_rows - count < 2:
        raise DataError(
            f"validation: {params.validation:g} of {n_rows} rows would leave {n_rows - count} to "
            f"train on and {count} to validate with; at least 2 and 1 are needed"
        )
    return count


def rows_in_order(n_rows: int, params: Params) -> IndexArray:
    """Return all rows: those to train on as they come, then those set aside, as they come."""
    count = count_validation(n_rows, params)
    seed = hashlib.sha256(f"validation rows, seed {params.seed}".encode()).digest()
    drawn = Prg(seed).permutation(Place("validation rows", (), 0), n_rows)
    chosen = np.zeros(n_rows, dtype=np.bool_)
    chosen[drawn[:count]] = True
    return np.concatenate([np.flatnonzero(~chosen), np.flatnonzero(chosen)])


def check_patience(params: Params, n_validation: int) -> None:
    """Raise ParameterError for patience without validation rows."""
    if params.patience is not None and not n_validation:
        raise ParameterError(
            f"patience: {params.patience} tables without a smaller loss on validation rows, and "
            "there are none: set validation, too, or leave patience out"
        )


def check_split(params: Params, label: FloatArray, n_validation: int) -> None:
    """Raise DataError unless a label can be learned from its first rows, and tested on the last."""
    if not n_validation:
        return
    training, rest = label[:-n_validation], label[-n_validation:]
    objective = params.objective
    try:
        objective.check_values(training)
    except DataError as error:
        raise DataError(
            f"without the {n_validation} validation rows, {error}; use another seed, or set fewer "
            "rows aside (validation)"
        ) from None
    if objective.has_classes:
        if (rest == rest[0]).all():
            raise DataError(
                f"all {n_validation} validation rows are of one class: use another seed, or set "
                "more rows aside (validation)"
            )
        return
    start = float(params.start(training)[0])
    most = FURTHEST * float(np.max(np.abs(training - start)))
    if float(np.max(np.abs(rest - start))) > most:
        raise DataError(
            f"the label of a validation row is more than {FURTHEST} times as far from {start:g}, "
            "where scores start, as that of any training row: check that row, or use another seed"
        )


def best_of(losses: Sequence[float]) -> int:
    """Return the number of tables with the smallest loss; the first, of equal ones."""
    return int(np.argmin(losses)) + 1


def tables_to_keep(losses: Sequence[float], patience: int, tables: int) -> int:
    """Return how many tables to keep, if training ends here, and 0 if it goes on.

    `losses` are those after each table. It ends when the last `patience` tables brought no smaller
    one, or when all tables are trained.
    """
    best = best_of(losses)
    ends = len(losses) == tables or len(losses) - best >= patience
    return best if ends else 0
