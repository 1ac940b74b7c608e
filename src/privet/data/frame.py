"""Frames: named columns of the same samples, with ids and an optional label.

All cells are numbers, NaN for a missing value; the schemas of a frame give their meaning. A
`LazyFrame` reads one column at a time, for tables that do not fit in memory.

An id is text in one or more columns. Participants compare its match key: the text normalised by
rules that all participants agree on, so that "A. Smith " and "a. smith" can match. The id itself
stays with its owner.

The integer 7, the text "7" and the float 7.0 are the same id, because programs write the same
column in all three ways.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privet.arrays import FloatArray, IndexArray
from privet.data.parsing import normalise_text, to_integers
from privet.errors import DataError
from privet.schema import is_printable
from privet.spec.column_types import NUMBER_SCHEMA, ColumnSchema

IdRule = Literal["strip", "casefold", "digits"]
"""A normalisation of ids: strip surrounding blanks, fold case, or keep only the digits."""
ID_RULES: tuple[IdRule, ...] = get_args(IdRule)

_EXAMPLES = 3
_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False, repr=False)
class Ids:
    """The unique ids of a table's rows."""

    names: tuple[str, ...]
    """The names of the id columns."""
    columns: tuple[pa.Array, ...]
    """The cells of the id columns, as text."""
    match_keys: pa.Array
    """The normalised ids that participants compare."""

    @classmethod
    def from_texts(cls, texts: Iterable[object], name: str = "id") -> Ids:
        """Return ids of one column, compared without normalisation."""
        column = pa.array([str(text) for text in texts], pa.large_string())
        return cls((name,), (column,), column)

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str, pa.ChunkedArray],
        rules: Sequence[Sequence[IdRule]] | None = None,
    ) -> Ids:
        """Return the ids in these columns; raise DataError for empty and duplicate ids.

        `rules` are the normalisation rules of each column; None compares ids unchanged.
        """
        cells = tuple(_to_text(column, name) for name, column in columns.items())
        column_rules = rules if rules is not None else [()] * len(cells)
        parts = [_normalise(column, each) for column, each in zip(cells, column_rules, strict=True)]
        for name, part in zip(columns, parts, strict=True):
            _check_not_empty(name, part)
        ids = cls(tuple(columns), cells, parts[0] if len(parts) == 1 else _join_parts(parts))
        ids._check_unique()
        return ids

    def __len__(self) -> int:
        return len(self.match_keys)

    def take(self, rows: IndexArray) -> Ids:
        """Return the ids of these rows, in that order."""
        chosen = pa.array(rows)
        return replace(
            self,
            columns=tuple(column.take(chosen) for column in self.columns),
            match_keys=self.match_keys.take(chosen),
        )

    def tolist(self) -> list[str]:
        """Return the original ids; the parts of an id in several columns are joined by commas."""
        if len(self.columns) == 1:
            found: list[str] = self.columns[0].to_pylist()
            return found
        return [", ".join(cells) for cells in zip(*self.to_columns(), strict=True)]

    def to_columns(self) -> list[list[str]]:
        """Return the id columns with their original text."""
        return [_to_strings(column) for column in self.columns]

    def iter_key_blocks(self) -> Iterator[list[bytes]]:
        """Yield the match keys in UTF-8, a block at a time to save memory."""
        for start in range(0, len(self), _BLOCK):
            block = self.match_keys.slice(start, _BLOCK)
            yield block.cast(pa.large_binary()).to_pylist()

    def digest(self, key: bytes = b"") -> bytes:
        """Return a digest of the match keys in order, keyed with `key`."""
        digest = hmac.new(key, digestmod=hashlib.sha256)
        for block in self.iter_key_blocks():
            digest.update(b"".join(len(k).to_bytes(4, "little") + k for k in block))
        return digest.digest()

    def find_mismatches(self, other: Ids) -> IndexArray:
        """Return the rows whose match keys differ from those of `other`, of the same length."""
        return np.flatnonzero(
            pc.not_equal(self.match_keys, other.match_keys).to_numpy(zero_copy_only=False)
        )

    def format_examples(self, rows: IndexArray) -> str:
        """Return a few of the ids, for an error message to their owner."""
        shown = ", ".join(repr(text) for text in self.take(rows[:_EXAMPLES]).tolist())
        return shown + (", ..." if len(rows) > _EXAMPLES else "")

    def _check_unique(self) -> None:
        keys = (key for block in self.iter_key_blocks() for key in block)
        hashes = np.fromiter(map(hash, keys), np.int64, len(self))
        hashes.sort()
        if (hashes[1:] != hashes[:-1]).all():  # an eighth of the memory of all keys
            return
        codes = self.match_keys.dictionary_encode()
        if len(codes.dictionary) == len(self):
            return
        key_codes = codes.indices.to_numpy()
        duplicates = np.flatnonzero(np.bincount(key_codes)[key_codes] > 1)
        first = key_codes[duplicates] == key_codes[duplicates[0]]
        rows = " and ".join(str(row + 1) for row in duplicates[first][:2])
        count = len(np.unique(key_codes[duplicates]))
        noun = "id is" if count == 1 else "ids are"
        samples = duplicates[np.unique(key_codes[duplicates], return_index=True)[1]]
        raise DataError(
            f"{count:,} {noun} there more than once: {self.format_examples(samples)}; the first in "
            f"rows {rows}: keep one row of each"
        )


def make_match_keys(ids: Sequence[Sequence[str]], rules: Sequence[Sequence[IdRule]]) -> list[str]:
    """Return the match keys of ids in a request, each given by its parts."""
    if not ids:
        return []
    columns = [pa.array(part, pa.large_string()) for part in zip(*ids, strict=True)]
    parts = [_normalise(normalise_text(c), each) for c, each in zip(columns, rules, strict=True)]
    return _to_strings(parts[0] if len(parts) == 1 else _join_parts(parts))


def _to_strings(column: pa.Array) -> list[str]:
    texts: list[str] = column.to_pylist()
    return texts


def _to_text(column: pa.ChunkedArray, name: str) -> pa.Array:
    """Return cells as text, with the same text for a number of any type."""
    arrow_type = column.type
    if pa.types.is_dictionary(arrow_type):
        column, arrow_type = column.cast(arrow_type.value_type), arrow_type.value_type
    if pa.types.is_floating(arrow_type):
        column = _to_integers(column.cast(pa.float64()), name)
    elif pa.types.is_decimal(arrow_type):  # databases return whole numbers as decimals
        column = _to_whole_decimals(column, name)
    elif not (
        pa.types.is_integer(arrow_type)
        or pa.types.is_string(arrow_type)
        or pa.types.is_large_string(arrow_type)
        or pa.types.is_date(arrow_type)
        or pa.types.is_null(arrow_type)
    ):
        raise DataError(f"the id column {name!r} holds {arrow_type}; ids are text or whole numbers")
    texts = column.cast(pa.large_string()).combine_chunks()
    if isinstance(texts, pa.ChunkedArray):  # without any chunk
        texts = pa.array([], pa.large_string())
    return normalise_text(texts.fill_null(""))


def _to_integers(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    values = column.to_numpy()
    whole, bad = to_integers(values)
    if len(bad):
        raise DataError(
            f"the id column {name!r} holds fractions, or numbers that are not exact as such: row "
            f"{bad[0] + 1} has {values[bad[0]]:.17g}; write ids as text or whole numbers"
        )
    return pa.chunked_array([whole])


def _to_whole_decimals(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    try:
        return column.cast(pa.decimal256(76, 0))
    except pa.ArrowInvalid:
        raise DataError(
            f"the id column {name!r} holds fractions; write ids as text or whole numbers"
        ) from None


def _normalise(column: pa.Array, rules: Sequence[IdRule]) -> pa.Array:
    if not pc.all(pc.string_is_ascii(column)).as_py():
        # An accent may be a separate code point or part of its letter; both look the same.
        column = pc.utf8_normalize(column, form="NFC")
    for rule in rules:
        column = _RULE_FUNCTIONS[rule](column)
    return column


def _casefold(column: pa.Array) -> pa.Array:
    if pc.all(pc.string_is_ascii(column)).as_py():
        return pc.ascii_lower(column)
    return pa.array([text.casefold() for text in _to_strings(column)], pa.large_string())


_RULE_FUNCTIONS: Mapping[IdRule, Callable[[pa.Array], pa.Array]] = {
    "strip": pc.utf8_trim_whitespace,
    "casefold": _casefold,
    "digits": lambda column: pc.replace_substring_regex(column, "[^0-9]", ""),
}


def _check_not_empty(name: str, column: pa.Array) -> None:
    blank = pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(column)), 0)
    empty = np.flatnonzero(blank.to_numpy(zero_copy_only=False))
    if len(empty):
        noun = "row" if len(empty) == 1 else "rows"
        raise DataError(
            f"the id column {name!r} is empty in {len(empty):,} {noun}, first in row "
            f"{empty[0] + 1}: give every row an id, or leave it out"
        )


def _join_parts(parts: Sequence[pa.Array]) -> pa.Array:
    """Join the parts of each row injectively: the length precedes each part."""
    pieces = []
    for part in parts:
        pieces += [pc.utf8_length(part).cast(pa.large_string()), part]
    return pc.binary_join_element_wise(*pieces, pa.scalar(":", pa.large_string()))


@dataclass(frozen=True, eq=False, repr=False)
class Frame:
    """Columns of the same samples."""

    names: tuple[str, ...]
    columns: FloatArray
    """The cells, each column contiguous in memory: (n_columns, n_samples)."""
    ids: Ids | None = None
    label: FloatArray | None = None
    weight: FloatArray | None = None
    """The weight of each row, relative to the others."""
    schemas: tuple[ColumnSchema, ...] = ()
    """The schema of each column; all columns are numbers by default."""
    label_schema: ColumnSchema = NUMBER_SCHEMA
    warnings: tuple[str, ...] = ()
    """Warnings about the table, for its owner."""

    def __post_init__(self) -> None:
        if self.columns.ndim != 2 or len(self.names) != len(self.columns):
            raise DataError(
                f"{len(self.names)} column names for columns of shape {self.columns.shape}"
            )
        if not self.schemas:
            object.__setattr__(self, "schemas", (NUMBER_SCHEMA,) * len(self.names))
        if len(self.schemas) != len(self.names):
            raise DataError(f"{len(self.schemas)} meanings of {len(self.names)} columns")
        check_unique(self.names, "column")
        for number, name in enumerate(self.names, start=1):
            if not is_printable(name):
                raise DataError(
                    f"column {number} is called {name!r}, which is no name; give it one, or write "
                    "the file without it (an index, perhaps)"
                )
        for noun, values in (
            ("ids", self.ids),
            ("labels", self.label),
            ("weights", self.weight),
        ):
            if values is not None and len(values) != self.n_samples:
                raise DataError(f"{len(values)} {noun} for a table of {self.n_samples} rows")

    @property
    def n_samples(self) -> int:
        """The number of rows."""
        return int(self.columns.shape[1])

    def select(self, names: Sequence[str]) -> Frame:
        """Return the named columns, in that order."""
        position = {name: i for i, name in enumerate(self.names)}
        for name in names:
            if name not in position:
                raise DataError(
                    f"there is no column {name!r}; there are {format_names(self.names)}"
                )
        chosen = [position[name] for name in names]
        return replace(
            self,
            names=tuple(names),
            columns=self.columns[chosen],
            schemas=tuple(self.schemas[i] for i in chosen),
        )

    def take(self, rows: IndexArray) -> Frame:
        """Return the given rows, in that order."""
        return replace(
            self,
            columns=np.ascontiguousarray(self.columns[:, rows]),
            ids=None if self.ids is None else self.ids.take(rows),
            label=None if self.label is None else self.label[rows],
            weight=None if self.weight is None else self.weight[rows],
        )

    def to_lazy(self) -> LazyFrame:
        """Return the same data as a `LazyFrame`."""
        columns = zip(self.names, self.schemas, self.columns, strict=True)
        lazy_columns = tuple(
            LazyColumn(name, schema, partial(np.asarray, cells)) for name, schema, cells in columns
        )
        return LazyFrame(
            lazy_columns, replace(self, names=(), columns=self.columns[:0], schemas=())
        )


@dataclass(frozen=True, eq=False, repr=False)
class LazyColumn:
    """One column of a table, whose cells are read on demand."""

    name: str
    schema: ColumnSchema
    read: Callable[[], FloatArray]
    """Returns the cells, which the caller must not change."""

    def take(self, rows: IndexArray | slice) -> LazyColumn:
        """Return a column of these rows, in that order."""
        return replace(self, read=lambda: self.read()[rows])


@dataclass(frozen=True, eq=False, repr=False)
class LazyFrame:
    """A table that is read column by column."""

    columns: tuple[LazyColumn, ...]
    row_data: Frame
    """Ids, label, weights and warnings, in a frame without columns."""

    @property
    def n_samples(self) -> int:
        """The number of rows."""
        return self.row_data.n_samples

    def take(self, rows: IndexArray) -> LazyFrame:
        """Return the given rows, in that order."""
        return LazyFrame(tuple(c.take(rows) for c in self.columns), self.row_data.take(rows))

    def collect(self) -> Frame:
        """Read all columns into memory."""
        columns = np.empty((len(self.columns), self.n_samples))
        for target, column in zip(columns, self.columns, strict=True):
            target[:] = column.read()
        names = tuple(column.name for column in self.columns)
        schemas = tuple(column.schema for column in self.columns)
        return replace(self.row_data, names=names, columns=columns, schemas=schemas)


def format_names(names: Sequence[str], max_shown: int = 12) -> str:
    """Return names for an error message, shortened to `max_shown`."""
    shown = ", ".join(repr(str(name)) for name in names[:max_shown])
    return (
        shown + (f" and {len(names) - max_shown} more" if len(names) > max_shown else "") or "none"
    )


def check_unique(names: Sequence[str], noun: str) -> None:
    """Raise DataError unless all names differ."""
    array = np.asarray(names, dtype=np.str_)
    order = np.argsort(array, kind="stable")
    repeats = np.flatnonzero(array[order][1:] == array[order][:-1])
    if len(repeats):
        first, again = order[repeats[0]], order[repeats[0] + 1]
        raise DataError(
            f"the {noun} {str(array[first])!r} is there twice, as number {first + 1} and "
            f"{again + 1}: keep one"
        )
