"""A source: a table somewhere, of which some columns are read, a batch of rows at a time.

A batch has a bounded number of rows, so reading takes the same memory however long a table is.
Columns come in plain types: numbers, booleans, text, dates, timestamps, times of day, durations.
Whatever goes wrong is one line that starts with where the table is.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import field_validator

from privet.arrays import IndexArray
from privet.config import Config, printable
from privet.data.frame import listing, refuse_repeats
from privet.data.parsing import is_text, kind_of
from privet.errors import DataError

Separator = Literal[",", ";", "\t", "|"]
ABOUT_CSV = ("separator", "quote", "encoding", "names")
"""The options that are about CSV files only."""

_CELLS = 1 << 20  # in a batch: 8 MB of numbers
_FEWEST_ROWS = 256


class SourceOptions(Config):
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
    def _one_character(cls, quote: str) -> str:
        if quote and (len(quote) > 1 or not quote.isascii() or not quote.isprintable()):
            raise ValueError(f"{quote!r} is no quote: give one character, or none")
        return quote


class Source(ABC):
    """A table somewhere. Nothing is kept open between calls."""

    def __init__(self, where: str, schema: pa.Schema) -> None:
        self.where = where
        """How it is called in messages: a path, or "PostgreSQL query". There is no secret in it."""
        self.schema = schema
        """Its columns, with their types where the table is."""
        refuse_repeats(schema.names, "column")

    def names(self) -> list[str]:
        """Return the names of all columns, in order."""
        return list(self.schema.names)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns, in that order, a bounded number of rows at a time.

        Raises DataError at once if there are no such columns, and while reading if a row or a cell
        is damaged, or if there is no row at all.
        """
        with naming(self.where):
            self._check(columns)
            kinds = [self.plain_type(name) for name in columns]
        return self._batches(list(columns), pa.schema(zip(columns, kinds, strict=True)))

    @abstractmethod
    def read(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Read these columns as they are; no rows are no error here."""

    def read_rows(self, columns: list[str], rows: IndexArray) -> Iterator[pa.RecordBatch]:
        """Read these rows alone, counted from 0 and sorted; no rows are no error here either.

        Here all rows are read up to the last of these; a source that can skip some does.
        """
        end = 0
        for batch in self.read(columns):
            start, end = end, end + batch.num_rows
            chosen = between(rows, start, end)
            if len(chosen):
                yield picked(batch, chosen)
            if not len(rows) or rows[-1] < end:
                return
        refuse_beyond(rows, end)

    @property
    def n_rows(self) -> int | None:
        """How many rows there are, where that is known without reading them."""
        return None

    def plain_type(self, name: str) -> pa.DataType:
        """Return the type that a column comes in; refuse one whose values are not plain."""
        return plain_type(name, self.schema.field(name).type)

    def _check(self, columns: Sequence[str]) -> None:
        if not columns:
            raise DataError("no column is chosen")
        number = {name: number for number, name in enumerate(self.names(), start=1)}
        for name in columns:
            if name not in number:
                raise DataError(f"there is no column {name!r}; there are {listing(self.names())}")
            if not printable(name):
                raise DataError(
                    f"column {number[name]} is called {name!r}, which is no name; give it one, or "
                    "leave it out (an index, perhaps)"
                )

    def _batches(self, columns: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        rows, most = 0, rows_in_a_batch(len(columns))
        with naming(self.where):
            for batch in self.read(columns):
                for start in range(0, batch.num_rows, most):
                    yield as_plain(batch.slice(start, most), schema)
                rows += batch.num_rows
            if rows == 0:
                raise DataError("the table has no rows")


def between(rows: IndexArray, start: int, end: int) -> IndexArray:
    """Return those of sorted rows that lie from start to end, counted from there."""
    first, last = np.searchsorted(rows, [start, end])
    found: IndexArray = rows[first:last] - start
    return found


def picked(batch: pa.RecordBatch, rows: IndexArray) -> pa.RecordBatch:
    """Return some rows of a batch, sorted and each once."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return batch.slice(int(rows[0]), len(rows))
    columns = [_pickable(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names).take(pa.array(rows))


def _pickable(column: pa.Array) -> pa.Array:
    """Return a column in a type of which Arrow can pick cells."""
    if isinstance(column, pa.RunEndEncodedArray):
        column = pc.run_end_decode(column)
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def refuse_beyond(rows: IndexArray, n_rows: int) -> None:
    """Raise DataError if some of these rows are not among so many."""
    if len(rows) and rows[-1] >= n_rows:
        raise DataError(
            f"row {rows[-1] + 1} is not there any more, but {n_rows:,} rows: the table changed "
            "while it was in use; leave it as it is, and start again"
        )


def rows_in_a_batch(columns: int) -> int:
    """Return how many rows of that many columns are read at a time."""
    return max(_CELLS // columns, _FEWEST_ROWS)


def plain_type(name: str, kind: pa.DataType) -> pa.DataType:
    """Return the plain type that a column's values have; refuse one whose values have none."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return pa.large_string()
        if kind.extension_name != "arrow.json":
            return plain_type(name, kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return plain_type(name, kind.value_type)
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        raise DataError(
            f"column {name!r} holds {kind}, several values in a cell: make columns of them, or "
            "leave it out"
        )
    if kind_of(kind) is None and not is_text(kind):
        raise DataError(
            f"column {name!r} holds {kind}: write it as numbers, text, dates or timestamps, or "
            "leave it out"
        )
    return kind


def as_plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with its columns in these plain types."""
    columns = map(_as_plain, batch.columns, schema.types)
    return pa.RecordBatch.from_arrays(list(columns), schema=schema)


def _as_plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if isinstance(column, pa.RunEndEncodedArray):
        column = pc.run_end_decode(column)
    if column.type == pa.binary(16):
        column = _uuids_as_text(column)
    return column if column.type == kind else column.cast(kind)


def _uuids_as_text(column: pa.Array) -> pa.Array:
    """Return 16 bytes each as text, in groups of 4, 2, 2, 2 and 6."""
    digits = pa.array([None if cell is None else cell.hex() for cell in column.to_pylist()])
    groups = "([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})"
    return pc.replace_substring_regex(digits, groups, r"\1-\2-\3-\4-\5")


class NamedError(DataError):
    """What is wrong with a table, and where that is."""


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
    """Put where the table is before what went wrong with it, unless it is there, in one line."""
    try:
        yield
    except NamedError:
        raise
    except DataError as error:
        raise NamedError(f"{where}: {error}") from None
    except (FileNotFoundError, NotADirectoryError):
        raise NamedError(f"{where}: No such file or directory") from None
    except PermissionError:
        raise NamedError(f"{where}: Permission denied") from None
    except (pa.ArrowException, OSError) as error:
        raise NamedError(f"{where}: cannot be read: {one_line(error)}") from None


def one_line(error: Exception) -> str:
    """Return the first line of what a library has to say."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
