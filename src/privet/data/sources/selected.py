"""Some rows of a table, as if there were no others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from privet.arrays import IndexArray
from privet.data.sources.source import Source


class SelectedRows(Source):
    """The rows of another source with these numbers, counted from 0, each once and sorted."""

    def __init__(self, source: Source, rows: IndexArray) -> None:
        if (np.diff(rows) <= 0).any() or (len(rows) and rows[0] < 0):
            raise ValueError("rows are not sorted, not each once, or below 0")
        super().__init__(source.where, source.schema)
        self._source = source
        self._rows = rows

    def read(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns of the rows that are selected."""
        return self._source.read_rows(columns, self._rows)

    @property
    def n_rows(self) -> int:
        """How many rows are selected."""
        return len(self._rows)

    def plain_type(self, name: str) -> pa.DataType:
        """Return the type that a column comes in, as it would with all rows."""
        return self._source.plain_type(name)
