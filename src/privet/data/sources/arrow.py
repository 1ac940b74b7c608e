"""Parquet and Arrow files and Arrow streams: the columns asked for, and no others, are read.

Of Parquet files, too, only the row groups that hold a row asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from privet.arrays import IndexArray
from privet.data.sources.base import (
    Location,
    Source,
    between,
    picked,
    refuse_beyond,
    rows_in_a_batch,
)

_BUFFER = 1 << 20  # bytes of a column that are read ahead, not all that a row group has of it


class ParquetSource(Source):
    """A Parquet file, read batch by batch, however large its row groups are."""

    def __init__(self, location: Location) -> None:
        self._location = location
        with location.file() as file:
            table = pq.ParquetFile(file)
            super().__init__(location.where, table.schema_arrow)
            self._n_rows = int(table.metadata.num_rows)

    @property
    def n_rows(self) -> int:
        """How many rows the file says that it has."""
        return self._n_rows

    def read(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns."""
        with self._location.file() as file:
            yield from _batches(_opened(file), columns)

    def read_rows(self, columns: list[str], rows: IndexArray) -> Iterator[pa.RecordBatch]:
        """Read these rows, and of row groups without any nothing at all."""
        with self._location.file() as file:
            table = _opened(file)
            refuse_beyond(rows, table.metadata.num_rows)
            end = 0
            for group in range(table.num_row_groups):
                start, end = end, end + table.metadata.row_group(group).num_rows
                wanted = between(rows, start, end)
                if not len(wanted):
                    continue
                first = 0
                for batch in _batches(table, columns, [group]):
                    chosen = between(wanted, first, first + batch.num_rows)
                    first += batch.num_rows
                    if len(chosen):
                        yield picked(batch, chosen)


def _opened(file: pa.NativeFile) -> pq.ParquetFile:
    # With pre_buffer, the bytes of all row groups would stay in memory.
    return pq.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False)


def _batches(
    table: pq.ParquetFile, columns: list[str], groups: list[int] | None = None
) -> Iterator[pa.RecordBatch]:
    most = rows_in_a_batch(len(columns))
    for batch in table.iter_batches(most, row_groups=groups, columns=columns):
        yield batch.select(columns)


class ArrowFileSource(Source):
    """An Arrow file, which is also what Feather writes, read in the batches that it has."""

    def __init__(self, location: Location) -> None:
        self._location = location
        with location.file() as file:
            super().__init__(location.where, pa.ipc.open_file(file).schema)

    def read(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns."""
        wanted = sorted(self.schema.get_field_index(name) for name in columns)
        options = pa.ipc.IpcReadOptions(included_fields=wanted)
        with self._location.file() as file:
            table = pa.ipc.open_file(file, options=options)
            for number in range(table.num_record_batches):
                yield table.get_batch(number).select(columns)


class ArrowStreamSource(Source):
    """An Arrow stream in a file, read in the batches that it has."""

    def __init__(self, location: Location) -> None:
        self._location = location
        with location.stream() as stream:
            super().__init__(location.where, pa.ipc.open_stream(stream).schema)

    def read(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns."""
        with self._location.stream() as stream:
            for batch in pa.ipc.open_stream(stream):
                yield batch.select(columns)
