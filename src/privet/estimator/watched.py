"""Rows that an estimator watches the loss on: some of those given to `fit`, or an `eval_set`."""

from __future__ import annotations

from typing import Any

import numpy as np

from privet.arrays import FloatArray, IndexArray
from privet.errors import DataError, ParameterError
from privet.terms.params import Params
from privet.terms.validation import count_validation, rows_in_order


def only_pair(eval_set: Any) -> tuple[Any, Any] | None:
    """Return the rows and the label of an `eval_set`: a pair, or a list of one."""
    if eval_set is None:
        return None
    pairs = eval_set if isinstance(eval_set, list) else [eval_set]
    if len(pairs) != 1 or not isinstance(pairs[0], tuple) or len(pairs[0]) != 2:
        raise DataError("eval_set: give one pair of rows and their label, or a list of one")
    rows, label = pairs[0]
    return rows, label


def order_of_rows(n_rows: int, params: Params, *, watched: bool) -> tuple[IndexArray, int]:
    """Return rows to train on, then those of them to watch the loss on, and how many these are.

    None of them, if other rows are watched.
    """
    if not watched:
        return rows_in_order(n_rows, params), count_validation(n_rows, params)
    if params.validation:
        raise ParameterError("validation: eval_set says which rows to watch; leave one of them out")
    return np.arange(n_rows), 0


def check_watched(rows: FloatArray, label: FloatArray) -> None:
    """Raise DataError unless rows to watch the loss on have a label each."""
    if len(rows) != len(label) or not len(rows):
        raise DataError(f"eval_set: {len(rows)} rows and {len(label)} labels")
