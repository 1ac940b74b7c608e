"""Frames: named columns of the same samples, with ids and an optional label.

All cells are numbers, NaN where they are missing; what they mean, the frame says. A table may also
be taken column by column, where all of them at once are too much.

An id is text, in one column or in several. What is compared between participants is its key: the
text by the rules that all agree on, so that one writes "A. Smith " and another "a. smith". The id
itself stays with its owner, who finds its rows by it.

The whole number 7, the text "7" and the fraction 7.0 are one id: programs write the same column in
all three ways, by chance.
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
"""How a key is made of an id: without blanks around it, in small letters, of its digits alone."""
ID_RULES: tuple[IdRule, ...] = get_args(IdRule)

_EXAMPLES = 3
_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False, repr=False)
class Ids:
    """The ids of a table's rows, each once."""

    names: tuple[str, ...]
    """The columns that make an id, as their owner calls them."""
    columns: tuple[pa.Array, ...]
    """Their cells, as text."""
    match_keys: pa.Array
    """What is compared."""

    @classmethod
    def from_texts(cls, texts: Iterable[object], name: str = "id") -> Ids:
        """Return ids of one column, compared as they are."""
        column = pa.array([str(text) for text in texts], pa.large_string())
        return cls((name,), (column,), column)

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str, pa.ChunkedArray],
        rules: Sequence[Sequence[IdRule]] | None = None,
    ) -> Ids:
        """Return the ids that columns make, with the rules of each; refuse empty and double ones.

        Without rules, ids are compared as they are.
        """
        cells = tuple(_to_text(column, name) for name, column in columns.items())
        apart = rules if rules is not None else [()] * len(cells)
        parts = [_normalise(column, each) for column, each in zip(cells, apart, strict=True)]
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
        """Return the ids as their owner knows them; of several columns, what stands in each."""
        if len(self.columns) == 1:
            found: list[str] = self.columns[0].to_pylist()
            return found
        return [", ".join(cells) for cells in zip(*self.to_columns(), strict=True)]

    def to_columns(self) -> list[list[str]]:
        """Return the ids' columns, as their owner wrote them."""
        return [_to_strings(column) for column in self.columns]

    def iter_key_blocks(self) -> Iterator[list[bytes]]:
        """Yield the keys in UTF-8, a block at a time: all at once would take much memory."""
        for start in range(0, len(self), _BLOCK):
            block = self.match_keys.slice(start, _BLOCK)
            yield block.cast(pa.large_binary()).to_pylist()

    def digest(self, key: bytes = b"") -> bytes:
        """Return a keyed digest of the keys, in order."""
        digest = hmac.new(key, digestmod=hashlib.sha256)
        for block in self.iter_key_blocks():
            digest.update(b"".join(len(k).to_bytes(4, "little") + k for k in block))
        return digest.digest()

    def find_mismatches(self, other: Ids) -> IndexArray:
        """Return the rows whose keys differ from those of as many other ids."""
        return np.flatnonzero(
            pc.not_equal(self.match_keys, other.match_keys).to_numpy(zero_copy_only=False)
        )

    def format_examples(self, rows: IndexArray) -> str:
        """Return some of the ids, for a message to their owner."""
        shown = ", ".join(repr(text) for text in self.take(rows[:_EXAMPLES]).tolist())
        return shown + (", ..." if len(rows) > _EXAMPLES else "")

    def _check_unique(self) -> None:
        keys = (key for block in self.iter_key_blocks() for key in block)
        hashes = np.fromiter(map(hash, keys), np.int64, len(self))
        hashes.sort()
        if (hashes[1:] != hashes[:-1]).all():  # with an eighth of the memory of all keys at once
            return
        codes = self.match_keys.dictionary_encode()
        if len(codes.dictionary) == len(self):
            return
        number = codes.indices.to_numpy()
        again = np.flatnonzero(np.bincount(number)[number] > 1)
        first = number[again] == number[again[0]]
        rows = " and ".join(str(row + 1) for row in again[first][:2])
        count = len(np.unique(number[again]))
        what = "id is" if count == 1 else "ids are"
        samples = again[np.unique(number[again], return_index=True)[1]]
        raise DataError(
            f"{count:,} {what} there more than once: {self.format_examples(samples)}; the first in "
            f"rows {rows}: keep one row of each"
        )


def make_match_keys(ids: Sequence[Sequence[str]], rules: Sequence[Sequence[IdRule]]) -> list[str]:
    """Return the keys of ids that somebody asks for, each given by its parts, whoever has them."""
    if not ids:
        return []
    columns = [pa.array(part, pa.large_string()) for part in zip(*ids, strict=True)]
    parts = [_normalise(normalise_text(c), each) for c, each in zip(columns, rules, strict=True)]
    return _to_strings(parts[0] if len(parts) == 1 else _join_parts(parts))


def _to_strings(column: pa.Array) -> list[str]:
    texts: list[str] = column.to_pylist()
    return texts


def _to_text(column: pa.ChunkedArray, name: str) -> pa.Array:
    """Return cells as text, the same for a number whatever its type is."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_floating(kind):
        column = _to_integers(column.cast(pa.float64()), name)
    elif pa.types.is_decimal(kind):  # in which databases write whole numbers
        column = _to_whole_decimals(column, name)
    elif not (
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_null(kind)
    ):
        raise DataError(f"the id column {name!r} holds {kind}; ids are text or whole numbers")
    texts = column.cast(pa.large_string()).combine_chunks()
    if isinstance(texts, pa.ChunkedArray):  # of no chunk at all
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
        # An accent may be a letter of its own or part of one; both look the same.
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
        what = "row" if len(empty) == 1 else "rows"
        raise DataError(
            f"the id column {name!r} is empty in {len(empty):,} {what}, first in row "
            f"{empty[0] + 1}: give every row an id, or leave it out"
        )


def _join_parts(parts: Sequence[pa.Array]) -> pa.Array:
    """Return one text a row from which all its parts can be told: each after its length."""
    pieces = []
    for part in parts:
        pieces += [pc.utf8_length(part).cast(pa.large_string()), part]
    return pc.binary_join_element_wise(*pieces, pa.scalar(":", pa.large_string()))


@dataclass(frozen=True, eq=False, repr=False)
class Frame:
    """Columns of the same samples."""

    names: tuple[str, ...]
    columns: FloatArray
    """A row a column, so that each column lies together in memory: (n_columns, n_samples)."""
    ids: Ids | None = None
    label: FloatArray | None = None
    weight: FloatArray | None = None
    """How much each row counts, relative to the others."""
    schemas: tuple[ColumnSchema, ...] = ()
    """What each column means; all are numbers if nothing is said."""
    label_schema: ColumnSchema = NUMBER_SCHEMA
    warnings: tuple[str, ...] = ()
    """What its owner should know of it."""

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
        for what, values in (
            ("ids", self.ids),
            ("labels", self.label),
            ("weights", self.weight),
        ):
            if values is not None and len(values) != self.n_samples:
                raise DataError(f"{len(values)} {what} for a table of {self.n_samples} rows")

    @property
    def n_samples(self) -> int:
        """How many rows there are."""
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
        """Return the same, to be taken column by column."""
        columns = zip(self.names, self.schemas, self.columns, strict=True)
        each = tuple(
            LazyColumn(name, content, partial(np.asarray, x)) for name, content, x in columns
        )
        return LazyFrame(each, replace(self, names=(), columns=self.columns[:0], schemas=()))


@dataclass(frozen=True, eq=False, repr=False)
class LazyColumn:
    """One column of a table, whose cells are somewhere."""

    name: str
    schema: ColumnSchema
    read: Callable[[], FloatArray]
    """Returns its cells, which are not to be changed."""

    def take(self, rows: IndexArray | slice) -> LazyColumn:
        """Return the cells of these rows, in that order."""
        return replace(self, read=lambda: self.read()[rows])


@dataclass(frozen=True, eq=False, repr=False)
class LazyFrame:
    """A table that is taken column by column."""

    columns: tuple[LazyColumn, ...]
    row_data: Frame
    """All the rest of it: ids, label, weights, warnings."""

    @property
    def n_samples(self) -> int:
        """How many rows there are."""
        return self.row_data.n_samples

    def take(self, rows: IndexArray) -> LazyFrame:
        """Return the given rows, in that order."""
        return LazyFrame(tuple(c.take(rows) for c in self.columns), self.row_data.take(rows))

    def collect(self) -> Frame:
        """Return all columns at once."""
        columns = np.empty((len(self.columns), self.n_samples))
        for target, column in zip(columns, self.columns, strict=True):
            target[:] = column.read()
        names = tuple(column.name for column in self.columns)
        contents = tuple(column.schema for column in self.columns)
        return replace(self.row_data, names=names, columns=columns, schemas=contents)


def format_names(names: Sequence[str], max_shown: int = 12) -> str:
    """Return names for an error message, not too many of them."""
    shown = ", ".join(repr(str(name)) for name in names[:max_shown])
    return (
        shown + (f" and {len(names) - max_shown} more" if len(names) > max_shown else "") or "none"
    )


def check_unique(names: Sequence[str], noun: str) -> None:
    """Raise DataError unless the names all differ."""
    array = np.asarray(names, dtype=np.str_)
    order = np.argsort(array, kind="stable")
    repeats = np.flatnonzero(array[order][1:] == array[order][:-1])
    if len(repeats):
        first, again = order[repeats[0]], order[repeats[0] + 1]
        raise DataError(
            f"the {noun} {str(array[first])!r} is there twice, as number {first + 1} and "
            f"{again + 1}: keep one"
        )
