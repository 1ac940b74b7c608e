"""What `fit` and `predict` are given: tables, a label, weights and constraints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_array
from sklearn.utils.validation import assert_all_finite, column_or_1d

from privet.arrays import FloatArray
from privet.errors import DataError, ParameterError

CHECKS: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
"""What scikit-learn is to make sure of tables."""


def label_column(y: Any) -> npt.NDArray[Any]:
    """Return a label as one column; raise unless it is one, without gaps."""
    if y is None:
        raise DataError("training requires y to be passed, but the target y is None")
    label: npt.NDArray[Any] = column_or_1d(y, warn=True)
    assert_all_finite(label, input_name="y")
    return label


def weight_column(weight: Any) -> FloatArray | None:
    """Return the samples' weights as one column, if there are any."""
    if weight is None:
        return None
    found: FloatArray = column_or_1d(weight, dtype=np.float64)
    return found


def is_table_list(X: Any) -> bool:
    """Tell one table per party from one table, which may be a list of rows."""
    return isinstance(X, (list, tuple)) and len(X) > 0 and all(np.ndim(part) == 2 for part in X)


def side_by_side(tables: Sequence[Any]) -> tuple[FloatArray, list[str] | None]:
    """Check one table per party; return their columns and, where they have them, their names."""
    arrays = [check_array(table, ensure_min_features=0, **CHECKS) for table in tables]
    for number, array in enumerate(arrays, start=1):
        if len(array) != len(arrays[0]):
            raise DataError(
                f"party1 has {len(arrays[0])} samples, party{number} {len(array)}: "
                "all parties need the same samples in the same order"
            )
    joined = np.concatenate(arrays, axis=1)
    names = [
        name for table in tables for name in getattr(table, "columns", ()) if isinstance(name, str)
    ]
    if names and len(names) != joined.shape[1]:
        raise DataError("some columns have names and others do not; name all of them or none")
    return joined, names or None


def column_constraints(given: Any, names: Sequence[str]) -> list[int]:
    """Return the constraint of every column, of a mapping by name or position or of a sequence."""
    found = [0] * len(names)
    if given is None:
        return found
    if not isinstance(given, Mapping):
        if isinstance(given, str) or np.ndim(given) != 1 or len(given) != len(found):
            raise ParameterError(
                f"monotone_constraints: give 1, -1 or 0 for each of {len(found)} columns, or a "
                f"mapping of some, not {given!r}"
            )
        given = dict(enumerate(given))
    known = {str(name): i for i, name in enumerate(names)}
    for column, sign in given.items():
        position = known.get(column, column)
        if not isinstance(position, (int, np.integer)) or not 0 <= position < len(found):
            raise ParameterError(f"monotone_constraints: there is no column {column!r}")
        if isinstance(sign, bool) or sign not in (-1, 0, 1):
            raise ParameterError(
                f"monotone_constraints: {sign!r} of column {column!r} is none of 1, -1 and 0"
            )
        found[position] = int(sign)
    return found
