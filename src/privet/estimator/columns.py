"""Columns of pandas' tables that are no numbers: text, categories, dates.

They are read by the rules of any table (docs/tables.md), and become numbers in the same way; what
was learned of them at `fit` is applied to new rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from privet.arrays import FloatArray
from privet.data.encoder import Encoder
from privet.data.kinds import CATEGORY, NUMBERS, Content
from privet.errors import DataError

Contents = Mapping[int, Content]
"""What columns hold, by position; those that are not named hold numbers."""
_NUMERIC = "biufc"


def in_numbers(table: Any) -> tuple[Any, dict[int, Content]]:
    """Return a table whose columns are all numbers, and what the others of them meant.

    Whatever is no table of pandas is returned as it is: scikit-learn says what is wrong with it.
    """
    if not all(hasattr(table, name) for name in ("dtypes", "columns", "isetitem")):
        return table, {}
    odd = [i for i, kind in enumerate(table.dtypes) if kind.kind not in _NUMERIC]
    if not odd:
        return table, {}
    table, contents = table.copy(deep=False), dict[int, Content]()
    for i in odd:
        values, contents[i] = _take_in(str(table.columns[i]), table.iloc[:, i])
        table.isetitem(i, values)
    return table, contents


def all_in_numbers(tables: Sequence[Any]) -> tuple[list[Any], dict[int, Content]]:
    """Return the same for one table per party, by position among the columns of all."""
    found, contents, start = [], dict[int, Content](), 0
    for table in tables:
        numbers, own = in_numbers(table)
        found.append(numbers)
        contents |= {start + i: content for i, content in own.items()}
        start += np.shape(table)[1]
    return found, contents


def _take_in(name: str, column: Any) -> tuple[FloatArray, Content]:
    """Return a column's cells as numbers, and what they mean."""
    import pyarrow as pa

    from privet.data.cells import Cells

    try:
        cells = pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"column {name!r}: cells are of several kinds, or of none that can be a feature "
            f"({error}): turn them into numbers, text, dates or times"
        ) from None
    is_category = pa.types.is_dictionary(cells.type)
    reader = Cells(name, CATEGORY if is_category else None)
    for chunk in cells.chunks if isinstance(cells, pa.ChunkedArray) else [cells]:
        reader.add(chunk.dictionary_decode() if is_category else chunk)
    return reader.read(), reader.content


def learn_encoders(
    names: Sequence[str], contents: Contents, X: FloatArray, buckets: int
) -> tuple[Encoder, ...]:
    """Return what there is to know of every column, from the rows of a training."""
    return tuple(
        Encoder.learn(str(name), contents.get(i, NUMBERS), partial(np.asarray, X[:, i]), buckets)
        for i, name in enumerate(names)
    )


def encode_columns(encoders: Sequence[Encoder], contents: Contents, X: FloatArray) -> FloatArray:
    """Return the features of columns, one each: (n_samples, n_columns)."""
    if not encoders:
        return X
    features = [
        encoder.encode(contents.get(i, NUMBERS), X[:, i]) for i, encoder in enumerate(encoders)
    ]
    return np.concatenate(features).T
