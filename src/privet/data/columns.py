"""The cells of columns as numbers, collected in batches and spilled to disk.

Text is of the kind of its first cell, unless its owner declares the column: a number, a date, a
time, `true` or `false`, or else a category. Every cell after it must be of that kind, too. One that
is not is an error that names it: taken for missing, or for one more category, it would silently
change the model.

On disk they are in a file like those of `arithmetic.roomy`.
"""

from __future__ import annotations

import contextlib
import tempfile
import weakref
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privet.arithmetic.large_arrays import IN_MEMORY, room_for
from privet.arrays import FloatArray, IndexArray
from privet.data.parsing import (
    EXACT,
    as_texts,
    category_names,
    guess,
    is_text,
    kind_of,
    looks_like,
    no_categories,
    numbers,
    parse,
)
from privet.errors import DataError
from privet.schema import quoted
from privet.spec.column_types import CATEGORY, NUMBER, Content, Kind, KindName


class Store:
    """Where the cells of several columns are kept, as they come."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
        self._end = 0
        weakref.finalize(self, _close, self._file)

    def put(self, values: FloatArray) -> int:
        """Keep some numbers; return where."""
        start, size = self._end, values.nbytes
        with room_for(start + size):
            self._file.seek(start)
            self._file.write(values.tobytes())
        self._end += size
        return start

    def get(self, start: int, target: FloatArray) -> None:
        """Fill an array with the numbers that are kept from there on."""
        with room_for(self._end):  # for what was put last, and is written now
            self._file.seek(start)
        target[:] = np.frombuffer(self._file.read(target.nbytes))


class StoredColumn:
    """One column in a store, which grows piece by piece."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pieces: list[tuple[int, int]] = []
        self.length = 0

    def append(self, values: FloatArray) -> None:
        """Add the next cells."""
        self._pieces.append((self._store.put(values), len(values)))
        self.length += len(values)

    def read(self) -> FloatArray:
        """Return all cells, as an array that is the caller's own."""
        values, end = np.empty(self.length), 0
        for start, length in self._pieces:
            self._store.get(start, values[end : end + length])
            end += length
        return values


def _close(file: tempfile.SpooledTemporaryFile[bytes]) -> None:
    with contextlib.suppress(OSError):  # a full disk, of which somebody has heard already
        file.close()


MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""What stands for a missing value, beside what its owner says."""
_MOST_CATEGORIES = 1_000_000


class Cells:
    """The cells of one column, as they come in."""

    leave_out = "leave the cell empty"
    """What is done where a value is missing."""

    def __init__(
        self,
        name: str,
        declared: Kind | None = None,
        missing: Sequence[str] = (),
        decimal: str = ".",
        *,
        found: Kind | None = None,
        numbers: IndexArray | None = None,
        store: Store | None = None,
    ) -> None:
        """Take in a column from its first row on, or, of one that was read before, some rows.

        Then `found` is what it was found to be, and `numbers` are those of the rows, from 0. A
        `store` is for all columns of a table.
        """
        self.name = name
        self.kind = found or declared
        """What the column is; None until its first cell that is not missing."""
        self.warnings: list[str] = []
        self.whole = True
        """Whether all cells so far are whole numbers, and none is missing."""
        self._declared = declared
        self._read_before = found is not None
        self._numbers = numbers
        self._missing = pa.array([*MISSING, *missing], pa.large_string())
        self._decimal = decimal
        # What stands for a missing value may be a number, too: -999.
        self._plain = decimal == "." and not self._stand_ins(NUMBER).size
        self._stored = StoredColumn(Store() if store is None else store)
        self._codes: dict[str, int] = {}

    def add(self, cells: pa.Array) -> None:
        """Take in the next rows."""
        values = self._text(cells) if is_text(cells.type) else self._typed(cells)
        infinite = np.flatnonzero(np.isinf(values))
        if len(infinite):
            raise DataError(
                f"{self._at(infinite[0])} is infinite; write a finite number, or {self.leave_out} "
                "where the value is missing"
            )
        self.whole = self.whole and bool((values == np.floor(values)).all())
        self._stored.append(values)

    @property
    def rows(self) -> int:
        """How many rows were taken in."""
        return self._stored.length

    def read(self) -> FloatArray:
        """Return all cells, as an array that is the caller's own."""
        return self._stored.read()

    @property
    def content(self) -> Content:
        """What the column means, as far as it was taken in."""
        return Content(self.kind or NUMBER, self.texts)

    @property
    def texts(self) -> tuple[str, ...]:
        """The categories, in the order in which they came."""
        return tuple(self._codes)

    def _at(self, row: int) -> str:
        row += self.rows
        number = row if self._numbers is None else self._numbers[row]
        return f"column {self.name!r}, row {number + 1}"

    def _typed(self, cells: pa.Array) -> FloatArray:
        """Take in cells that are not text."""
        found, declared = kind_of(cells.type), self._declared
        if found is None:
            raise DataError(
                f"column {self.name!r} holds {cells.type}: turn it into numbers, text, dates or "
                "times, or leave it out (drop)"
            )
        if pa.types.is_null(cells.type):
            return np.full(len(cells), np.nan)
        if declared is not None and declared.name == "category":
            try:
                return self._categories(self._without_missing(as_texts(cells)))
            except DataError as error:
                raise DataError(f"column {self.name!r}: {error}") from None
        values = numbers(cells)
        kind = declared if declared is not None and declared.name == found else Kind(found)
        values[np.isin(values, self._stand_ins(kind))] = np.nan
        if declared is not None and declared.name != found:
            if declared.name != "boolean" or not np.isin(values[~np.isnan(values)], (0, 1)).all():
                raise DataError(
                    f"column {self.name!r} holds {cells.type}, and {declared} was expected, "
                    f"{self._advice_on_type()}"
                )
            found = "boolean"
        self.kind = declared or Kind(found)
        if pa.types.is_integer(cells.type):
            self._warn_of_rounding(values)
        return values

    def _text(self, cells: pa.Array) -> FloatArray:
        """Take in text."""
        if self.kind == NUMBER and self._plain:
            try:  # which all cells are, nearly always
                values = numbers(cells.cast(pa.float64()))
            except pa.ArrowInvalid:
                values = np.full(1, np.nan)
            if not np.isnan(values).any():  # for which there are more words than stand for missing
                self._warn_of_rounding(values, cells)
                return values
        text = self._without_missing(pc.utf8_trim_whitespace(cells.cast(pa.large_string())))
        if text.null_count == len(text):
            return np.full(len(text), np.nan)
        if self.kind is None:
            self.kind = guess(text.drop_null()[0].as_py(), self._decimal)
        if self.kind.name == "category":
            return self._categories(text if self._declared is None else category_names(text))
        values, good = parse(text, self.kind, self._decimal)
        valid = text.is_valid().to_numpy(zero_copy_only=False)
        bad = np.flatnonzero(valid & ~good)
        if len(bad):
            raise self._complaint(bad[0], text[int(bad[0])].as_py())
        values[~valid] = np.nan
        self._warn_of_rounding(values, text)
        return values

    def _without_missing(self, text: pa.Array) -> pa.Array:
        """Return text with null where a value is missing."""
        there = pc.invert(pc.fill_null(pc.is_in(text, value_set=self._missing), True))
        return pc.if_else(there, text, pa.scalar(None, text.type))

    def _stand_ins(self, kind: Kind) -> FloatArray:
        """Return what stands for a missing value among numbers, dates or times."""
        found, good = parse(self._missing, kind, self._decimal)
        return found[good]

    def _categories(self, text: pa.Array) -> FloatArray:
        """Take in categories: each is its position among all of them."""
        encoded = text.dictionary_encode()
        names: list[str] = encoded.dictionary.to_pylist()
        new = [name for name in names if name not in self._codes]
        if new and self._declared is None:
            self._refuse_other_kinds(new, text)
        self._codes.update({name: len(self._codes) + i for i, name in enumerate(new)})
        self.kind = self.kind or CATEGORY
        most = max(_MOST_CATEGORIES, 0.9 * (self.rows + len(text)))
        if len(self._codes) > most and not self._read_before:
            raise DataError(
                f"column {self.name!r} has {len(self._codes):,} categories in its first "
                f"{self.rows + len(text):,} rows: leave it out (drop), or is it the id?"
            )
        codes = np.array([*(self._codes[name] for name in names), np.nan])
        found: FloatArray = codes[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        return found

    def _refuse_other_kinds(self, new: list[str], text: pa.Array) -> None:
        """Refuse what is no category, or was not meant to be one."""
        odd = np.flatnonzero(no_categories(pa.array(new, pa.large_string()), self._decimal))
        if len(odd):
            cell = new[odd[0]]
            raise self._complaint(pc.index(text, pa.scalar(cell, text.type)).as_py(), cell)

    def _warn_of_rounding(self, values: FloatArray, text: pa.Array | None = None) -> None:
        large = np.flatnonzero(np.abs(values) >= EXACT)
        if text is not None and len(large):
            cells = text.take(pa.array(large))
            whole = pc.match_substring_regex(cells, "^[+-]?[0-9]+$")
            large = large[pc.fill_null(whole, False).to_numpy(zero_copy_only=False)]
        if len(large) and not self.warnings:
            self.warnings.append(
                f"{self._at(large[0])} is beyond 2^53: such whole numbers are rounded to the "
                "nearest double; if they are ids, leave the column out (drop)"
            )

    def _complaint(self, row: int, cell: str) -> DataError:
        """Say what is wrong with a cell, and what can be done about it."""
        assert self.kind is not None
        kind = self.kind
        like, cell = looks_like(cell), quoted(cell)
        what = f"{self._at(row)}: {cell!r}"
        if kind != CATEGORY:
            what += f" is not a {kind}"
        elif like != "category":
            what += f" looks like a {like}"
        else:
            above = f", as {quoted(next(iter(self._codes)))!r} above it is" if self._codes else ""
            what += f" is no category{above}"
        return DataError(f"{what}; {self._advice(kind, cell, like)}")

    def _advice_on_type(self) -> str:
        """Say what can be done about cells of another type."""
        return "as declared or as the model was trained: change the table or the declaration"

    def _advice(self, kind: Kind, cell: str, like: KindName) -> str:
        """Say what can be done about a cell."""
        name = self.name
        if like == "number" and kind.name in ("number", "category"):
            advice = "write numbers without separators of thousands, or say decimal = ','"
        elif like == "date" or kind.name in ("date", "time"):
            advice = (
                "write all dates of the column in one way, and say in which one if it is not "
                f"2020-12-31: types = {{ {name!r} = 'date %d.%m.%Y' }}"
            )
        else:
            advice = f"correct it, or leave it empty if it is missing: missing = [{cell!r}]"
        declare = f"declare it: categorical = [{name!r}]"
        return f"{advice}; or if it is one of several categories, {declare}"
