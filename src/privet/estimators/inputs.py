"""The inputs of `fit` and `predict` as frames: X, y, weights, partition and eval_set.

Their columns are parsed and encoded like those of any table (docs/tables.md); the encoders that
`fit` fits are applied to new rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_array
from sklearn.utils.validation import assert_all_finite, column_or_1d

from privet.arrays import FloatArray, IndexArray
from privet.data.encoding import Encoder
from privet.errors import DataError, ParameterError
from privet.spec.column_types import CATEGORY, NUMBER_SCHEMA, ColumnSchema
from privet.spec.params import Params
from privet.spec.sampling import count_validation_rows, order_rows

ColumnSchemas = Mapping[int, ColumnSchema]
"""The schemas of columns, by position; all other columns are numeric."""
_NUMERIC = "biufc"


def to_numeric(table: Any) -> tuple[Any, dict[int, ColumnSchema]]:
    """Return a table with numeric columns only, and the schemas of the converted columns.

    A table that is not a pandas DataFrame is returned unchanged: scikit-learn validates it.
    """
    if not all(hasattr(table, name) for name in ("dtypes", "columns", "isetitem")):
        return table, {}
    others = [i for i, dtype in enumerate(table.dtypes) if dtype.kind not in _NUMERIC]
    if not others:
        return table, {}
    table, contents = table.copy(deep=False), dict[int, ColumnSchema]()
    for i in others:
        values, contents[i] = _convert_column(str(table.columns[i]), table.iloc[:, i])
        table.isetitem(i, values)
    return table, contents


def to_numeric_tables(tables: Sequence[Any]) -> tuple[list[Any], dict[int, ColumnSchema]]:
    """Return numeric tables, one per party, and schemas by position among the columns of all."""
    result, contents, start = [], dict[int, ColumnSchema](), 0
    for table in tables:
        numeric, schemas = to_numeric(table)
        result.append(numeric)
        contents |= {start + i: schema for i, schema in schemas.items()}
        start += np.shape(table)[1]
    return result, contents


def _convert_column(name: str, column: Any) -> tuple[FloatArray, ColumnSchema]:
    """Return a column's cells as numbers, and its schema."""
    import pyarrow as pa

    from privet.data.columns import ColumnBuilder

    try:
        cells = pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"column {name!r}: cells are of several kinds, or of none that can be a feature "
            f"({error}): turn them into numbers, text, dates or times"
        ) from None
    is_category = pa.types.is_dictionary(cells.type)
    reader = ColumnBuilder(name, CATEGORY if is_category else None)
    for chunk in cells.chunks if isinstance(cells, pa.ChunkedArray) else [cells]:
        reader.append(chunk.dictionary_decode() if is_category else chunk)
    return reader.read(), reader.schema


def fit_array_encoders(
    names: Sequence[str], contents: ColumnSchemas, X: FloatArray, buckets: int
) -> tuple[Encoder, ...]:
    """Return an encoder for each column, fitted to the training rows."""
    return tuple(
        Encoder.fit(
            str(name), contents.get(i, NUMBER_SCHEMA), partial(np.asarray, X[:, i]), buckets
        )
        for i, name in enumerate(names)
    )


def encode_columns(
    encoders: Sequence[Encoder], contents: ColumnSchemas, X: FloatArray
) -> FloatArray:
    """Return the features of the columns, one for each: (n_samples, n_columns)."""
    if not encoders:
        return X
    features = [
        encoder.encode(contents.get(i, NUMBER_SCHEMA), X[:, i])
        for i, encoder in enumerate(encoders)
    ]
    return np.concatenate(features).T


VALIDATION_OPTIONS: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
"""Options of scikit-learn's validation of tables."""


def to_label_array(y: Any) -> npt.NDArray[Any]:
    """Return a label as one column; raise an error if it is not one or has missing values."""
    if y is None:
        raise DataError("training requires y to be passed, but the target y is None")
    label: npt.NDArray[Any] = column_or_1d(y, warn=True)
    assert_all_finite(label, input_name="y")
    return label


def to_weight_array(weight: Any) -> FloatArray | None:
    """Return the samples' weights as one column, if there are any."""
    if weight is None:
        return None
    result: FloatArray = column_or_1d(weight, dtype=np.float64)
    return result


def is_table_list(X: Any) -> bool:
    """Return whether `X` is one table per party, not one table, which can be a list of rows."""
    return isinstance(X, (list, tuple)) and len(X) > 0 and all(np.ndim(part) == 2 for part in X)


def concatenate_tables(tables: Sequence[Any]) -> tuple[FloatArray, list[str] | None]:
    """Check one table per party; return all columns and, if they have names, their names."""
    arrays = [check_array(table, ensure_min_features=0, **VALIDATION_OPTIONS) for table in tables]
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


def parse_monotone_constraints(constraints: Any, names: Sequence[str]) -> list[int]:
    """Return the constraint of each column, from a mapping by name or position, or a sequence."""
    result = [0] * len(names)
    if constraints is None:
        return result
    if not isinstance(constraints, Mapping):
        if (
            isinstance(constraints, str)
            or np.ndim(constraints) != 1
            or len(constraints) != len(result)
        ):
            raise ParameterError(
                f"monotone_constraints: give 1, -1 or 0 for each of {len(result)} columns, or a "
                f"mapping of some, not {constraints!r}"
            )
        constraints = dict(enumerate(constraints))
    known = {str(name): i for i, name in enumerate(names)}
    for column, sign in constraints.items():
        position = known.get(column, column)
        if not isinstance(position, (int, np.integer)) or not 0 <= position < len(result):
            raise ParameterError(f"monotone_constraints: there is no column {column!r}")
        if isinstance(sign, bool) or sign not in (-1, 0, 1):
            raise ParameterError(
                f"monotone_constraints: {sign!r} of column {column!r} is none of 1, -1 and 0"
            )
        result[position] = int(sign)
    return result


def resolve_partition(
    partition: Any, feature_names: Iterable[str], n_features: int
) -> dict[str, list[int]]:
    """Return the columns of each party by position, with every column once."""
    parts: Mapping[str, Sequence[Any]]
    if isinstance(partition, (int, np.integer)) and not isinstance(partition, bool):
        even = np.array_split(range(n_features), max(1, partition))
        parts = {f"party{number}": part.tolist() for number, part in enumerate(even, start=1)}
    elif isinstance(partition, Mapping):
        parts = partition
    elif isinstance(partition, (list, tuple)):
        parts = {f"party{number}": part for number, part in enumerate(partition, start=1)}
    else:
        parts = {"": 0}  # type: ignore[dict-item]
    if any(isinstance(part, str) or np.ndim(part) != 1 for part in parts.values()):
        raise ParameterError(
            f"partition: give a number, or the columns of each party as a list, not {partition}"
        )
    if len(parts) < 2:
        raise ParameterError(f"partition: a federation has at least 2 parties, got {partition}")
    names = {name: i for i, name in enumerate(feature_names)}
    result = {
        str(party): [_find_position(column, names, n_features) for column in columns]
        for party, columns in parts.items()
    }
    counts = Counter(position for part in result.values() for position in part)
    for position in range(n_features):
        if counts[position] != 1:
            column = list(names)[position] if names else position
            raise ParameterError(
                f"partition: column {column!r} is given to {counts[position]} parties; "
                "every column belongs to one"
            )
    return result


def _find_position(column: Any, names: dict[str, int], n_features: int) -> int:
    if column in names:
        return names[column]
    if isinstance(column, (int, np.integer)) and 0 <= column < n_features:
        return int(column)
    raise ParameterError(f"partition: there is no column {column!r}")


def parse_eval_set(eval_set: Any) -> tuple[Any, Any] | None:
    """Return the rows and the label of an `eval_set`: a pair, or a list of one pair."""
    if eval_set is None:
        return None
    pairs = eval_set if isinstance(eval_set, list) else [eval_set]
    if len(pairs) != 1 or not isinstance(pairs[0], tuple) or len(pairs[0]) != 2:
        raise DataError("eval_set: give one pair of rows and their label, or a list of one")
    rows, label = pairs[0]
    return rows, label


def order_fit_rows(n_rows: int, params: Params, *, has_eval_set: bool) -> tuple[IndexArray, int]:
    """Return the order of the rows, with validation rows last, and the number of validation rows.

    It is 0 with an `eval_set`, which contains other validation rows.
    """
    if not has_eval_set:
        return order_rows(n_rows, params), count_validation_rows(n_rows, params)
    if params.validation:
        raise ParameterError("validation: eval_set says which rows to watch; leave one of them out")
    return np.arange(n_rows), 0


def check_eval_set(rows: FloatArray, label: FloatArray) -> None:
    """Raise DataError unless each validation row has a label."""
    if len(rows) != len(label) or not len(rows):
        raise DataError(f"eval_set: {len(rows)} rows and {len(label)} labels")
