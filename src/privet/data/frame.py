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
from privet.data.parsing import plain_text, whole_numbers
from privet.errors import DataError
from privet.schema import printable
from privet.spec.column_types import NUMBERS, Content

Rule = Literal["strip", "casefold", "digits"]
"""How a key is made of an id: without blanks around it, in small letters, of its digits alone."""
RULES: tuple[Rule, ...] = get_args(Rule)

_EXAMPLES = 3
_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False, repr=False)
class Ids:
    """The ids of a table's rows, each once."""

    names: tuple[str, ...]
    """The columns that make an id, as their owner calls them."""
    columns: tuple[pa.Array, ...]
    """Their cells, as text."""
    keys: pa.Array
    """What is compared."""

    @classmethod
    def of(cls, texts: Iterable[object], name: str = "id") -> Ids:
        """Return ids of one column, compared as they are."""
        column = pa.array([str(text) for text in texts], pa.large_string())
        return cls((name,), (column,), column)

    @classmethod
    def read(
        cls,
        columns: Mapping[str, pa.ChunkedArray],
        rules: Sequence[Sequence[Rule]] | None = None,
    ) -> Ids:
        """Return the ids that columns make, with the rules of each; refuse empty and double ones.

        Without rules, ids are compared as they are.
        """
        cells = tuple(_as_text(column, name) for name, column in columns.items())
        apart = rules if rules is not None else [()] * len(cells)
        parts = [_by_rules(column, each) for column, each in zip(cells, apart, strict=True)]
        for name, part in zip(columns, parts, strict=True):
            _refuse_empty(name, part)
        ids = cls(tuple(columns), cells, parts[0] if len(parts) == 1 else _joined(parts))
        ids._refuse_doubles()
        return ids

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: IndexArray) -> Ids:
        """Return the ids of these rows, in that order."""
        chosen = pa.array(rows)
        return replace(
            self,
            columns=tuple(column.take(chosen) for column in self.columns),
            keys=self.keys.take(chosen),
        )

    def tolist(self) -> list[str]:
        """Return the ids as their owner knows them; of several columns, what stands in each."""
        if len(self.columns) == 1:
            found: list[str] = self.columns[0].to_pylist()
            return found
        return [", ".join(cells) for cells in zip(*self.cells(), strict=True)]

    def cells(self) -> list[list[str]]:
        """Return the ids' columns, as their owner wrote them."""
        return [_listed(column) for column in self.columns]

    def blocks_of_keys(self) -> Iterator[list[bytes]]:
        """Yield the keys in UTF-8, a block at a time: all at once would take much memory."""
        for start in range(0, len(self), _BLOCK):
            block = self.keys.slice(start, _BLOCK)
            yield block.cast(pa.large_binary()).to_pylist()

    def digest(self, key: bytes = b"") -> bytes:
        """Return a keyed digest of the keys, in order."""
        digest = hmac.new(key, digestmod=hashlib.sha256)
        for block in self.blocks_of_keys():
            digest.update(b"".join(len(k).to_bytes(4, "little") + k for k in block))
        return digest.digest()

    def differ(self, other: Ids) -> IndexArray:
        """Return the rows whose keys differ from those of as many other ids."""
        return np.flatnonzero(pc.not_equal(self.keys, other.keys).to_numpy(zero_copy_only=False))

    def examples(self, rows: IndexArray) -> str:
        """Return some of the ids, for a message to their owner."""
        shown = ", ".join(repr(text) for text in self.take(rows[:_EXAMPLES]).tolist())
        return shown + (", ..." if len(rows) > _EXAMPLES else "")

    def _refuse_doubles(self) -> None:
        keys = (key for block in self.blocks_of_keys() for key in block)
        hashes = np.fromiter(map(hash, keys), np.int64, len(self))
        hashes.sort()
        if (hashes[1:] != hashes[:-1]).all():  # with an eighth of the memory of all keys at once
            return
        codes = self.keys.dictionary_encode()
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
            f"{count:,} {what} there more than once: {self.examples(samples)}; the first in rows "
            f"{rows}: keep one row of each"
        )


def keys_of(ids: Sequence[Sequence[str]], rules: Sequence[Sequence[Rule]]) -> list[str]:
    """Return the keys of ids that somebody asks for, each given by its parts, whoever has them."""
    if not ids:
        return []
    columns = [pa.array(part, pa.large_string()) for part in zip(*ids, strict=True)]
    parts = [_by_rules(plain_text(c), each) for c, each in zip(columns, rules, strict=True)]
    return _listed(parts[0] if len(parts) == 1 else _joined(parts))


def _listed(column: pa.Array) -> list[str]:
    texts: list[str] = column.to_pylist()
    return texts


def _as_text(column: pa.ChunkedArray, name: str) -> pa.Array:
    """Return cells as text, the same for a number whatever its type is."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_floating(kind):
        column = _whole(column.cast(pa.float64()), name)
    elif pa.types.is_decimal(kind):  # in which databases write whole numbers
        column = _without_fractions(column, name)
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
    return plain_text(texts.fill_null(""))


def _whole(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    values = column.to_numpy()
    whole, bad = whole_numbers(values)
    if len(bad):
        raise DataError(
            f"the id column {name!r} holds fractions, or numbers that are not exact as such: row "
            f"{bad[0] + 1} has {values[bad[0]]:.17g}; write ids as text or whole numbers"
        )
    return pa.chunked_array([whole])


def _without_fractions(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    try:
        return column.cast(pa.decimal256(76, 0))
    except pa.ArrowInvalid:
        raise DataError(
            f"the id column {name!r} holds fractions; write ids as text or whole numbers"
        ) from None


def _by_rules(column: pa.Array, rules: Sequence[Rule]) -> pa.Array:
    if not pc.all(pc.string_is_ascii(column)).as_py():
        # An accent may be a letter of its own or part of one; both look the same.
        column = pc.utf8_normalize(column, form="NFC")
    for rule in rules:
        column = _APPLY[rule](column)
    return column


def _casefolded(column: pa.Array) -> pa.Array:
    if pc.all(pc.string_is_ascii(column)).as_py():
        return pc.ascii_lower(column)
    return pa.array([text.casefold() for text in _listed(column)], pa.large_string())


_APPLY: Mapping[Rule, Callable[[pa.Array], pa.Array]] = {
    "strip": pc.utf8_trim_whitespace,
    "casefold": _casefolded,
    "digits": lambda column: pc.replace_substring_regex(column, "[^0-9]", ""),
}


def _refuse_empty(name: str, column: pa.Array) -> None:
    blank = pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(column)), 0)
    empty = np.flatnonzero(blank.to_numpy(zero_copy_only=False))
    if len(empty):
        what = "row" if len(empty) == 1 else "rows"
        raise DataError(
            f"the id column {name!r} is empty in {len(empty):,} {what}, first in row "
            f"{empty[0] + 1}: give every row an id, or leave it out"
        )


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
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
    contents: tuple[Content, ...] = ()
    """What each column means; all are numbers if nothing is said."""
    label_content: Content = NUMBERS
    warnings: tuple[str, ...] = ()
    """What its owner should know of it."""

    def __post_init__(self) -> None:
        if self.columns.ndim != 2 or len(self.names) != len(self.columns):
            raise DataError(
                f"{len(self.names)} column names for columns of shape {self.columns.shape}"
            )
        if not self.contents:
            object.__setattr__(self, "contents", (NUMBERS,) * len(self.names))
        if len(self.contents) != len(self.names):
            raise DataError(f"{len(self.contents)} meanings of {len(self.names)} columns")
        refuse_repeats(self.names, "column")
        for number, name in enumerate(self.names, start=1):
            if not printable(name):
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
                raise DataError(f"there is no column {name!r}; there are {listing(self.names)}")
        chosen = [position[name] for name in names]
        return replace(
            self,
            names=tuple(names),
            columns=self.columns[chosen],
            contents=tuple(self.contents[i] for i in chosen),
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

    def by_column(self) -> ByColumn:
        """Return the same, to be taken column by column."""
        columns = zip(self.names, self.contents, self.columns, strict=True)
        each = tuple(Column(name, content, partial(np.asarray, x)) for name, content, x in columns)
        return ByColumn(each, replace(self, names=(), columns=self.columns[:0], contents=()))


@dataclass(frozen=True, eq=False, repr=False)
class Column:
    """One column of a table, whose cells are somewhere."""

    name: str
    content: Content
    read: Callable[[], FloatArray]
    """Returns its cells, which are not to be changed."""

    def take(self, rows: IndexArray | slice) -> Column:
        """Return the cells of these rows, in that order."""
        return replace(self, read=lambda: self.read()[rows])


@dataclass(frozen=True, eq=False, repr=False)
class ByColumn:
    """A table that is taken column by column."""

    columns: tuple[Column, ...]
    frame: Frame
    """All the rest of it: ids, label, weights, warnings."""

    @property
    def n_samples(self) -> int:
        """How many rows there are."""
        return self.frame.n_samples

    def take(self, rows: IndexArray) -> ByColumn:
        """Return the given rows, in that order."""
        return ByColumn(tuple(c.take(rows) for c in self.columns), self.frame.take(rows))

    def together(self) -> Frame:
        """Return all columns at once."""
        columns = np.empty((len(self.columns), self.n_samples))
        for target, column in zip(columns, self.columns, strict=True):
            target[:] = column.read()
        names = tuple(column.name for column in self.columns)
        contents = tuple(column.content for column in self.columns)
        return replace(self.frame, names=names, columns=columns, contents=contents)


def listing(names: Sequence[str], most: int = 12) -> str:
    """Return names for an error message, not too many of them."""
    shown = ", ".join(repr(str(name)) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "") or "none"


def refuse_repeats(names: Sequence[str], what: str) -> None:
    """Raise DataError unless the names all differ."""
    array = np.asarray(names, dtype=np.str_)
    order = np.argsort(array, kind="stable")
    repeats = np.flatnonzero(array[order][1:] == array[order][:-1])
    if len(repeats):
        first, again = order[repeats[0]], order[repeats[0] + 1]
        raise DataError(
            f"the {what} {str(array[first])!r} is there twice, as number {first + 1} and "
            f"{again + 1}: keep one"
        )
