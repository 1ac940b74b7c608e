"""A frame: rows that belong to samples, named columns, and perhaps ids and a label.

All cells are numbers, NaN where they are missing; what they mean, the frame says. A table may also
be taken column by column, where all of them at once are too much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from privet.arrays import FloatArray, IndexArray
from privet.config import printable
from privet.data.ids import Ids
from privet.data.kinds import NUMBERS, Content
from privet.errors import DataError


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
