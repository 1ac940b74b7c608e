"""Parquet and Arrow files and Arrow streams: the columns asked for, and no others, are read."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from privet.data.sources.location import Location
from privet.data.sources.source import Source, rows_in_a_batch

_BUFFER = 1 << 20  # bytes of a column that are read ahead, not all that a row group has of it


class ParquetSource(Source):
    """A Parquet file, read batch by batch, however large its row groups are."""

    def __init__(self, location: Location) -> None:
        self._location = location
        with location.file() as file:
            super().__init__(location.where, pq.ParquetFile(file).schema_arrow)

    def read(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns."""
        with self._location.file() as file:
            # With pre_buffer, the bytes of all row groups would stay in memory.
            table = pq.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False)
            for batch in table.iter_batches(rows_in_a_batch(len(columns)), columns=columns):
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
