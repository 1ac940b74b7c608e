"""The interface of data sources, and the locations of their files.

Batches have a bounded number of rows, so memory does not grow with the table. Columns have plain
types: numbers, booleans, text, dates, timestamps, times of day, durations. Every error is one line
that starts with the location of the table.

The first bytes of a file set its format, not its name.
"""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from pydantic import field_validator

from privet.arrays import IndexArray
from privet.data.frame import check_unique, format_names
from privet.data.parsing import is_text, map_arrow_type
from privet.errors import DataError, ParameterError, UnavailableError
from privet.schema import Config, is_printable

Separator = Literal[",", ";", "\t", "|"]
CSV_OPTION_NAMES = ("separator", "quote", "encoding", "names")
"""The options that apply to CSV files only."""

_CELLS = 1 << 20  # in a batch: 8 MB of numbers
_MIN_ROWS_PER_BATCH = 256


class TableFormatOptions(Config):
    """Format options of a table; the defaults are right for most tables."""

    separator: Separator | None = None
    """What stands between cells; found in the file unless it is given."""
    quote: str = '"'
    """What stands around cells with separators or line ends inside; "" where nothing does."""
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    """How letters are written as bytes. Latin-1 is never guessed."""
    names: list[str] | None = None
    """The columns' names, of a file whose first line is not a header."""
    decimal: Literal[".", ","] = "."
    """What stands before the fraction of a number. Where it is a comma, commas separate nothing."""

    @field_validator("quote")
    @classmethod
    def _check_quote(cls, quote: str) -> str:
        if quote and (len(quote) > 1 or not quote.isascii() or not quote.isprintable()):
            raise ValueError(f"{quote!r} is no quote: give one character, or none")
        return quote


class TableSource(ABC):
    """A table at a location. No file or connection stays open between calls."""

    def __init__(self, display_name: str, schema: pa.Schema) -> None:
        self.display_name = display_name
        """The name in messages, without secrets: a path, or "PostgreSQL query"."""
        self.schema = schema
        """The columns, with their types at the source."""
        check_unique(schema.names, "column")

    def list_columns(self) -> list[str]:
        """Return the names of all columns, in order."""
        return list(self.schema.names)

    def iter_batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns, in that order, a bounded number of rows at a time.

        Raises DataError immediately for an unknown column, and while reading for a damaged row or
        cell, or a table without rows.
        """
        with locate_errors(self.display_name):
            self._check(columns)
            plain_types = [self.get_plain_type(name) for name in columns]
        return self._iter_plain_batches(
            list(columns), pa.schema(zip(columns, plain_types, strict=True))
        )

    @abstractmethod
    def read_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns without conversion; a table without rows is not an error here."""

    def read_selected(self, columns: list[str], rows: IndexArray) -> Iterator[pa.RecordBatch]:
        """Read only these rows: sorted positions, counted from 0; none is not an error here.

        This implementation reads all rows up to the last of these; sources that can skip rows
        override it.
        """
        end = 0
        for batch in self.read_batches(columns):
            start, end = end, end + batch.num_rows
            chosen = select_range(rows, start, end)
            if len(chosen):
                yield take_rows(batch, chosen)
            if not len(rows) or rows[-1] < end:
                return
        check_rows_exist(rows, end)

    @property
    def n_rows(self) -> int | None:
        """The number of rows, if known without reading them."""
        return None

    def get_plain_type(self, name: str) -> pa.DataType:
        """Return the plain type of a column; raise DataError if it has none."""
        return to_plain_type(name, self.schema.field(name).type)

    def _check(self, columns: Sequence[str]) -> None:
        if not columns:
            raise DataError("no column is chosen")
        number = {name: number for number, name in enumerate(self.list_columns(), start=1)}
        for name in columns:
            if name not in number:
                raise DataError(
                    f"there is no column {name!r}; there are {format_names(self.list_columns())}"
                )
            if not is_printable(name):
                raise DataError(
                    f"column {number[name]} is called {name!r}, which is no name; give it one, or "
                    "leave it out (an index, perhaps)"
                )

    def _iter_plain_batches(
        self, columns: list[str], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        n_rows, batch_rows = 0, compute_batch_rows(len(columns))
        with locate_errors(self.display_name):
            for batch in self.read_batches(columns):
                for start in range(0, batch.num_rows, batch_rows):
                    yield to_plain_batch(batch.slice(start, batch_rows), schema)
                n_rows += batch.num_rows
            if n_rows == 0:
                raise DataError("the table has no rows")


def select_range(rows: IndexArray, start: int, end: int) -> IndexArray:
    """Return the sorted rows between `start` and `end`, relative to `start`."""
    first, last = np.searchsorted(rows, [start, end])
    found: IndexArray = rows[first:last] - start
    return found


def take_rows(batch: pa.RecordBatch, rows: IndexArray) -> pa.RecordBatch:
    """Return selected rows of a batch: sorted, unique positions."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return batch.slice(int(rows[0]), len(rows))
    columns = [_to_takeable(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names).take(pa.array(rows))


def _to_takeable(column: pa.Array) -> pa.Array:
    """Return a column in a type that Arrow's `take` supports."""
    if isinstance(column, pa.RunEndEncodedArray):
        column = pc.run_end_decode(column)
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def check_rows_exist(rows: IndexArray, n_rows: int) -> None:
    """Raise DataError unless all of these sorted rows are below `n_rows`."""
    if len(rows) and rows[-1] >= n_rows:
        raise DataError(
            f"row {rows[-1] + 1} is not there any more, but {n_rows:,} rows: the table changed "
            "while it was in use; leave it as it is, and start again"
        )


def compute_batch_rows(columns: int) -> int:
    """Return the number of rows in a batch of that many columns."""
    return max(_CELLS // columns, _MIN_ROWS_PER_BATCH)


def to_plain_type(name: str, arrow_type: pa.DataType) -> pa.DataType:
    """Return the plain type for an Arrow type; raise DataError if there is none."""
    types = pa.types
    if isinstance(arrow_type, pa.BaseExtensionType):
        if arrow_type.extension_name == "arrow.uuid":
            return pa.large_string()
        if arrow_type.extension_name != "arrow.json":
            return to_plain_type(name, arrow_type.storage_type)
    if types.is_dictionary(arrow_type) or types.is_run_end_encoded(arrow_type):
        return to_plain_type(name, arrow_type.value_type)
    if types.is_string_view(arrow_type):
        return pa.large_string()
    if types.is_nested(arrow_type) or isinstance(arrow_type, pa.BaseExtensionType):
        raise DataError(
            f"column {name!r} holds {arrow_type}, several values in a cell: make columns of them, "
            "or leave it out"
        )
    if map_arrow_type(arrow_type) is None and not is_text(arrow_type):
        raise DataError(
            f"column {name!r} holds {arrow_type}: write it as numbers, text, dates or timestamps, "
            "or leave it out"
        )
    return arrow_type


def to_plain_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert the columns of a batch to the plain types of a schema."""
    columns = map(_to_plain_array, batch.columns, schema.types)
    return pa.RecordBatch.from_arrays(list(columns), schema=schema)


def _to_plain_array(column: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if isinstance(column, pa.RunEndEncodedArray):
        column = pc.run_end_decode(column)
    if column.type == pa.binary(16):
        column = _format_uuids(column)
    return column if column.type == arrow_type else column.cast(arrow_type)


def _format_uuids(column: pa.Array) -> pa.Array:
    """Format 16-byte values as text, in groups of 4, 2, 2, 2 and 6 bytes."""
    digits = pa.array([None if cell is None else cell.hex() for cell in column.to_pylist()])
    groups = "([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})"
    return pc.replace_substring_regex(digits, groups, r"\1-\2-\3-\4-\5")


class LocatedDataError(DataError):
    """An error in a table whose message starts with the location."""


@contextlib.contextmanager
def locate_errors(display_name: str) -> Iterator[None]:
    """Prefix errors with the location of the table, unless they have one, in one line."""
    try:
        yield
    except LocatedDataError:
        raise
    except DataError as error:
        raise LocatedDataError(f"{display_name}: {error}") from None
    except (FileNotFoundError, NotADirectoryError):
        raise LocatedDataError(f"{display_name}: No such file or directory") from None
    except PermissionError:
        raise LocatedDataError(f"{display_name}: Permission denied") from None
    except (pa.ArrowException, OSError) as error:
        raise LocatedDataError(f"{display_name}: cannot be read: {get_first_line(error)}") from None


def get_first_line(error: Exception) -> str:
    """Return the first line of a library's error message."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


FileFormat = Literal["CSV", "Parquet", "Arrow file", "Arrow stream"]

_COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
_BZ2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")  # its first block, or an empty file's end
_FORMATS_BY_MAGIC: dict[bytes, FileFormat] = {
    b"PAR1": "Parquet",
    b"ARROW1\x00\x00": "Arrow file",
    b"\xff\xff\xff\xff": "Arrow stream",
}
_UNSUPPORTED_FORMATS = {
    b"PARE": "Parquet with an encrypted footer",
    b"FEA1": "Feather of version 1",
    b"ORC": "ORC",
    b"PK\x03\x04": "a zip archive, or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"SQLite format 3": "an SQLite database",
    b"\x89HDF": "HDF5",
}
_BEGINNING = 64
# A password can contain a "/" that was not escaped; a port has only digits.
_PASSWORD = re.compile(r"[^:]+://[^/@]*:(?!\d*/)[^@]*@")


@dataclass(frozen=True)
class Location:
    """A file or a folder of a file system."""

    filesystem: pafs.FileSystem
    path: str
    """The path within the file system."""
    display_name: str
    """The name in messages."""

    def is_folder(self) -> bool:
        """Tell whether this is a folder; raise an error unless it is a folder or a file."""
        file_type = self.filesystem.get_file_info(self.path).type
        if file_type == pafs.FileType.NotFound:
            raise FileNotFoundError
        if file_type == pafs.FileType.Unknown:
            raise DataError("neither a file nor a folder")
        return bool(file_type == pafs.FileType.Directory)

    def open_stream(self) -> pa.NativeFile:
        """Open a file for sequential reading, decompressed."""
        return self.filesystem.open_input_stream(self.path, compression=self._compression)

    def open_file(self) -> pa.NativeFile:
        """Open a file for random access.

        A file compressed as a whole is first decompressed into memory. This is rare, because the
        formats read this way compress their own content.
        """
        if self._compression is None:
            return self.filesystem.open_input_file(self.path)
        with self.open_stream() as stream:
            return pa.BufferReader(stream.read_buffer())

    @cached_property
    def file_format(self) -> FileFormat:
        """The format of the file; CSV if its first bytes name no other."""
        with self.open_stream() as stream:
            beginning = stream.read(_BEGINNING)
        for magic, unsupported in _UNSUPPORTED_FORMATS.items():
            if beginning.startswith(magic):
                raise DataError(f"this is {unsupported}: write the table as CSV, Parquet or Arrow")
        formats = (name for magic, name in _FORMATS_BY_MAGIC.items() if beginning.startswith(magic))
        return next(formats, "CSV")

    @cached_property
    def _compression(self) -> str | None:
        with self.filesystem.open_input_stream(self.path, compression=None) as stream:
            beginning = stream.read(_BEGINNING)
        if _BZ2.match(beginning):
            return "bz2"
        names = (name for magic, name in _COMPRESSIONS.items() if beginning.startswith(magic))
        return next(names, None)


def is_url(path: str | Path) -> bool:
    """Tell whether a path is a URL such as s3://bucket/table."""
    return isinstance(path, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None


def _is_valid_utf8(path: str) -> bool:
    """Tell whether Arrow accepts a path; the operating system accepts more."""
    return "\0" not in path and path.encode(errors="replace").decode() == path


def resolve_location(path: str | Path) -> Location:
    """Return the location that a path or a URL names.

    Keys and passwords come from the environment or the configuration of the object store, never
    from the URL.
    """
    if not is_url(path):
        if not _is_valid_utf8(str(path)):
            raise DataError(f"{str(path)!r}: the name is no UTF-8, or has a 0 in it: rename it")
        return Location(pafs.LocalFileSystem(), str(path), str(path))
    safe_url = re.sub(r"(?<=://)[^/]*:.*@", "", str(path)).partition("?")[0]
    if _PASSWORD.match(str(path)):
        raise ParameterError(
            f"path: the address of {safe_url} has a password in it; leave it out, and give it by "
            "the environment or the store's own configuration"
        )
    try:
        filesystem, inner_path = pafs.FileSystem.from_uri(str(path))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = get_first_line(error).replace(str(path), safe_url)
        raise ParameterError(f"path: {safe_url}: {reason}") from None
    except (OSError, ImportError) as error:
        raise UnavailableError(f"{safe_url}: {get_first_line(error)}") from None
    return Location(filesystem, inner_path, safe_url)
