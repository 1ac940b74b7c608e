"""Parquet files, Arrow files and Arrow streams, of which only the requested columns are read.

Of Parquet files, only the row groups with a requested row are read.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from privet.arrays import IndexArray
from privet.data.sources.base import (
    Location,
    TableSource,
    check_rows_exist,
    compute_batch_rows,
    select_range,
    take_rows,
)

_BUFFER = 1 << 20  # bytes of a column to read ahead, instead of its whole row group


class ParquetSource(TableSource):
    """A Parquet file, read batch by batch, however large its row groups are."""

    def __init__(self, location: Location) -> None:
        self._location = location
        with location.open_file() as file:
            table = pq.ParquetFile(file)
            super().__init__(location.display_name, table.schema_arrow)
            self._n_rows = int(table.metadata.num_rows)

    @property
    def n_rows(self) -> int:
        """The number of rows in the file's metadata."""
        return self._n_rows

    def read_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns."""
        with self._location.open_file() as file:
            yield from _iter_batches(_open_parquet(file), columns)

    def read_selected(self, columns: list[str], rows: IndexArray) -> Iterator[pa.RecordBatch]:
        """Read these rows, and skip row groups without any."""
        with self._location.open_file() as file:
            table = _open_parquet(file)
            check_rows_exist(rows, table.metadata.num_rows)
            end = 0
            for group in range(table.num_row_groups):
                start, end = end, end + table.metadata.row_group(group).num_rows
                group_rows = select_range(rows, start, end)
                if not len(group_rows):
                    continue
                first = 0
                for batch in _iter_batches(table, columns, [group]):
                    chosen = select_range(group_rows, first, first + batch.num_rows)
                    first += batch.num_rows
                    if len(chosen):
                        yield take_rows(batch, chosen)


def _open_parquet(file: pa.NativeFile) -> pq.ParquetFile:
    # With pre_buffer, the bytes of all row groups would stay in memory.
    return pq.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False)


def _iter_batches(
    table: pq.ParquetFile, columns: list[str], groups: list[int] | None = None
) -> Iterator[pa.RecordBatch]:
    batch_rows = compute_batch_rows(len(columns))
    for batch in table.iter_batches(batch_rows, row_groups=groups, columns=columns):
        yield batch.select(columns)


class ArrowFileSource(TableSource):
    """An Arrow or Feather file, read in its own batches."""

    def __init__(self, location: Location) -> None:
        self._location = location
        with location.open_file() as file:
            super().__init__(location.display_name, pa.ipc.open_file(file).schema)

    def read_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns."""
        field_indices = sorted(self.schema.get_field_index(name) for name in columns)
        options = pa.ipc.IpcReadOptions(included_fields=field_indices)
        with self._location.open_file() as file:
            table = pa.ipc.open_file(file, options=options)
            for number in range(table.num_record_batches):
                yield table.get_batch(number).select(columns)


class ArrowStreamSource(TableSource):
    """An Arrow stream in a file, read in its own batches."""

    def __init__(self, location: Location) -> None:
        self._location = location
        with location.open_stream() as stream:
            super().__init__(location.display_name, pa.ipc.open_stream(stream).schema)

    def read_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns."""
        with self._location.open_stream() as stream:
            for batch in pa.ipc.open_stream(stream):
                yield batch.select(columns)
