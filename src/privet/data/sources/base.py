"""The interface of data sources, and the locations of their files.

A batch has a bounded number of rows, so reading takes the same memory however long a table is.
Columns come in plain types: numbers, booleans, text, dates, timestamps, times of day, durations.
Whatever goes wrong is one line that starts with where the table is.

What a file is shows in its first bytes, not in its name.
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
"""The options that are about CSV files only."""

_CELLS = 1 << 20  # in a batch: 8 MB of numbers
_MIN_ROWS_PER_BATCH = 256


class TableFormatOptions(Config):
    """What a table's owner may have to say about it; most tables say it themselves."""

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
    """A table somewhere. Nothing is kept open between calls."""

    def __init__(self, display_name: str, schema: pa.Schema) -> None:
        self.display_name = display_name
        """How it is called in messages: a path, or "PostgreSQL query". There is no secret in it."""
        self.schema = schema
        """Its columns, with their types where the table is."""
        check_unique(schema.names, "column")

    def list_columns(self) -> list[str]:
        """Return the names of all columns, in order."""
        return list(self.schema.names)

    def iter_batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns, in that order, a bounded number of rows at a time.

        Raises DataError at once if there are no such columns, and while reading if a row or a cell
        is damaged, or if there is no row at all.
        """
        with locate_errors(self.display_name):
            self._check(columns)
            kinds = [self.get_plain_type(name) for name in columns]
        return self._iter_plain_batches(list(columns), pa.schema(zip(columns, kinds, strict=True)))

    @abstractmethod
    def read_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns as they are; no rows are no error here."""

    def read_selected(self, columns: list[str], rows: IndexArray) -> Iterator[pa.RecordBatch]:
        """Read these rows alone, counted from 0 and sorted; no rows are no error here either.

        Here all rows are read up to the last of these; a source that can skip some does.
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
        """How many rows there are, where that is known without reading them."""
        return None

    def get_plain_type(self, name: str) -> pa.DataType:
        """Return the type that a column comes in; refuse one whose values are not plain."""
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
        rows, most = 0, compute_batch_rows(len(columns))
        with locate_errors(self.display_name):
            for batch in self.read_batches(columns):
                for start in range(0, batch.num_rows, most):
                    yield to_plain_batch(batch.slice(start, most), schema)
                rows += batch.num_rows
            if rows == 0:
                raise DataError("the table has no rows")


def select_range(rows: IndexArray, start: int, end: int) -> IndexArray:
    """Return those of sorted rows that lie from start to end, counted from there."""
    first, last = np.searchsorted(rows, [start, end])
    found: IndexArray = rows[first:last] - start
    return found


def take_rows(batch: pa.RecordBatch, rows: IndexArray) -> pa.RecordBatch:
    """Return some rows of a batch, sorted and each once."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return batch.slice(int(rows[0]), len(rows))
    columns = [_to_takeable(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names).take(pa.array(rows))


def _to_takeable(column: pa.Array) -> pa.Array:
    """Return a column in a type of which Arrow can pick cells."""
    if isinstance(column, pa.RunEndEncodedArray):
        column = pc.run_end_decode(column)
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def check_rows_exist(rows: IndexArray, n_rows: int) -> None:
    """Raise DataError if some of these rows are not among so many."""
    if len(rows) and rows[-1] >= n_rows:
        raise DataError(
            f"row {rows[-1] + 1} is not there any more, but {n_rows:,} rows: the table changed "
            "while it was in use; leave it as it is, and start again"
        )


def compute_batch_rows(columns: int) -> int:
    """Return how many rows of that many columns are read at a time."""
    return max(_CELLS // columns, _MIN_ROWS_PER_BATCH)


def to_plain_type(name: str, arrow_type: pa.DataType) -> pa.DataType:
    """Return the plain type that a column's values have; refuse one whose values have none."""
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
    """Return a batch with its columns in these plain types."""
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
    """Return 16 bytes each as text, in groups of 4, 2, 2, 2 and 6."""
    digits = pa.array([None if cell is None else cell.hex() for cell in column.to_pylist()])
    groups = "([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})"
    return pc.replace_substring_regex(digits, groups, r"\1-\2-\3-\4-\5")


class LocatedDataError(DataError):
    """What is wrong with a table, and where that is."""


@contextlib.contextmanager
def locate_errors(display_name: str) -> Iterator[None]:
    """Put where the table is before what went wrong with it, unless it is there, in one line."""
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
    """Return the first line of what a library has to say."""
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
# A password may have a "/" in it that somebody forgot to escape; a port has only digits.
_PASSWORD = re.compile(r"[^:]+://[^/@]*:(?!\d*/)[^@]*@")


@dataclass(frozen=True)
class Location:
    """A file or a folder of a file system."""

    filesystem: pafs.FileSystem
    path: str
    """As the file system calls it."""
    display_name: str
    """As messages do."""

    def is_folder(self) -> bool:
        """Tell a folder from a file; refuse what is not there, or neither."""
        kind = self.filesystem.get_file_info(self.path).type
        if kind == pafs.FileType.NotFound:
            raise FileNotFoundError
        if kind == pafs.FileType.Unknown:
            raise DataError("neither a file nor a folder")
        return bool(kind == pafs.FileType.Directory)

    def open_stream(self) -> pa.NativeFile:
        """Open a file to read it from its beginning to its end, decompressed."""
        return self.filesystem.open_input_stream(self.path, compression=self._compression)

    def open_file(self) -> pa.NativeFile:
        """Open a file to read it here and there.

        One that is compressed as a whole is decompressed into memory first: its format compresses
        by itself, so that is rare.
        """
        if self._compression is None:
            return self.filesystem.open_input_file(self.path)
        with self.open_stream() as stream:
            return pa.BufferReader(stream.read_buffer())

    @cached_property
    def file_format(self) -> FileFormat:
        """What a file is: CSV if nothing else."""
        with self.open_stream() as stream:
            beginning = stream.read(_BEGINNING)
        for mark, what in _UNSUPPORTED_FORMATS.items():
            if beginning.startswith(mark):
                raise DataError(f"this is {what}: write the table as CSV, Parquet or Arrow")
        kinds = (kind for mark, kind in _FORMATS_BY_MAGIC.items() if beginning.startswith(mark))
        return next(kinds, "CSV")

    @cached_property
    def _compression(self) -> str | None:
        with self.filesystem.open_input_stream(self.path, compression=None) as stream:
            beginning = stream.read(_BEGINNING)
        if _BZ2.match(beginning):
            return "bz2"
        names = (name for mark, name in _COMPRESSIONS.items() if beginning.startswith(mark))
        return next(names, None)


def is_url(path: str | Path) -> bool:
    """Tell an address such as s3://bucket/table from a path of this machine."""
    return isinstance(path, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None


def _is_valid_utf8(path: str) -> bool:
    """Tell whether a name can be given to Arrow, which takes fewer than the system does."""
    return "\0" not in path and path.encode(errors="replace").decode() == path


def resolve_location(path: str | Path) -> Location:
    """Find the file system that a path or an address names.

    Keys and passwords come from the environment or the store's own configuration, never in the
    address.
    """
    if not is_url(path):
        if not _is_valid_utf8(str(path)):
            raise DataError(f"{str(path)!r}: the name is no UTF-8, or has a 0 in it: rename it")
        return Location(pafs.LocalFileSystem(), str(path), str(path))
    where = re.sub(r"(?<=://)[^/]*:.*@", "", str(path)).partition("?")[0]
    if _PASSWORD.match(str(path)):
        raise ParameterError(
            f"path: the address of {where} has a password in it; leave it out, and give it by the "
            "environment or the store's own configuration"
        )
    try:
        filesystem, inside = pafs.FileSystem.from_uri(str(path))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        said = get_first_line(error).replace(str(path), where)
        raise ParameterError(f"path: {where}: {said}") from None
    except (OSError, ImportError) as error:
        raise UnavailableError(f"{where}: {get_first_line(error)}") from None
    return Location(filesystem, inside, where)
