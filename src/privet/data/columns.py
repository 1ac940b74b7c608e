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

from privet.arithmetic.large_arrays import MAX_MEMORY_BYTES, explain_disk_full
from privet.arrays import FloatArray, IndexArray
from privet.data.parsing import (
    MAX_EXACT_INTEGER,
    find_non_categories,
    guess_column_type,
    guess_intended_type,
    is_text,
    map_arrow_type,
    normalise_categories,
    parse_cells,
    to_category_texts,
    to_doubles,
)
from privet.errors import DataError
from privet.schema import quote_untrusted
from privet.spec.column_types import CATEGORY, NUMBER, ColumnSchema, ColumnType, ColumnTypeName


class SpillStore:
    """Where the cells of several columns are kept, as they come."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=MAX_MEMORY_BYTES)  # noqa: SIM115
        self._end = 0
        weakref.finalize(self, _close, self._file)

    def append(self, values: FloatArray) -> int:
        """Keep some numbers; return where."""
        start, size = self._end, values.nbytes
        with explain_disk_full(start + size):
            self._file.seek(start)
            self._file.write(values.tobytes())
        self._end += size
        return start

    def read_into(self, start: int, target: FloatArray) -> None:
        """Fill an array with the numbers that are kept from there on."""
        with explain_disk_full(self._end):  # for what was put last, and is written now
            self._file.seek(start)
        target[:] = np.frombuffer(self._file.read(target.nbytes))


class StoredColumn:
    """One column in a store, which grows piece by piece."""

    def __init__(self, store: SpillStore) -> None:
        self._store = store
        self._pieces: list[tuple[int, int]] = []
        self.length = 0

    def append(self, values: FloatArray) -> None:
        """Add the next cells."""
        self._pieces.append((self._store.append(values), len(values)))
        self.length += len(values)

    def read(self) -> FloatArray:
        """Return all cells, as an array that is the caller's own."""
        values, end = np.empty(self.length), 0
        for start, length in self._pieces:
            self._store.read_into(start, values[end : end + length])
            end += length
        return values


def _close(file: tempfile.SpooledTemporaryFile[bytes]) -> None:
    with contextlib.suppress(OSError):  # a full disk, of which somebody has heard already
        file.close()


MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""What stands for a missing value, beside what its owner says."""
_MAX_CATEGORIES = 1_000_000


class ColumnBuilder:
    """The cells of one column, as they come in."""

    missing_cell_advice = "leave the cell empty"
    """What is done where a value is missing."""

    def __init__(
        self,
        name: str,
        declared_type: ColumnType | None = None,
        missing: Sequence[str] = (),
        decimal: str = ".",
        *,
        fitted_type: ColumnType | None = None,
        numbers: IndexArray | None = None,
        store: SpillStore | None = None,
    ) -> None:
        """Take in a column from its first row on, or, of one that was read before, some rows.

        Then `fitted_type` is what it was found to be, and `numbers` are those of the rows, from 0.
        A `store` is for all columns of a table.
        """
        self.name = name
        self.column_type = fitted_type or declared_type
        """What the column is; None until its first cell that is not missing."""
        self.warnings: list[str] = []
        self.is_integral = True
        """Whether all cells so far are whole numbers, and none is missing."""
        self._declared = declared_type
        self._read_before = fitted_type is not None
        self._numbers = numbers
        self._missing = pa.array([*MISSING_TEXTS, *missing], pa.large_string())
        self._decimal = decimal
        # What stands for a missing value may be a number, too: -999.
        self._has_fast_path = decimal == "." and not self._find_missing_numbers(NUMBER).size
        self._stored = StoredColumn(SpillStore() if store is None else store)
        self._codes: dict[str, int] = {}

    def append(self, cells: pa.Array) -> None:
        """Take in the next rows."""
        values = self._convert_text(cells) if is_text(cells.type) else self._convert_typed(cells)
        infinite = np.flatnonzero(np.isinf(values))
        if len(infinite):
            raise DataError(
                f"{self._describe_cell(infinite[0])} is infinite; write a finite number, or "
                f"{self.missing_cell_advice} where the value is missing"
            )
        self.is_integral = self.is_integral and bool((values == np.floor(values)).all())
        self._stored.append(values)

    @property
    def n_rows(self) -> int:
        """How many rows were taken in."""
        return self._stored.length

    def read(self) -> FloatArray:
        """Return all cells, as an array that is the caller's own."""
        return self._stored.read()

    @property
    def schema(self) -> ColumnSchema:
        """What the column means, as far as it was taken in."""
        return ColumnSchema(self.column_type or NUMBER, self.categories)

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories, in the order in which they came."""
        return tuple(self._codes)

    def _describe_cell(self, row: int) -> str:
        row += self.n_rows
        number = row if self._numbers is None else self._numbers[row]
        return f"column {self.name!r}, row {number + 1}"

    def _convert_typed(self, cells: pa.Array) -> FloatArray:
        """Take in cells that are not text."""
        found, declared = map_arrow_type(cells.type), self._declared
        if found is None:
            raise DataError(
                f"column {self.name!r} holds {cells.type}: turn it into numbers, text, dates or "
                "times, or leave it out (drop)"
            )
        if pa.types.is_null(cells.type):
            return np.full(len(cells), np.nan)
        if declared is not None and declared.name == "category":
            try:
                return self._encode_categories(self._replace_missing(to_category_texts(cells)))
            except DataError as error:
                raise DataError(f"column {self.name!r}: {error}") from None
        values = to_doubles(cells)
        kind = declared if declared is not None and declared.name == found else ColumnType(found)
        values[np.isin(values, self._find_missing_numbers(kind))] = np.nan
        if declared is not None and declared.name != found:
            if declared.name != "boolean" or not np.isin(values[~np.isnan(values)], (0, 1)).all():
                raise DataError(
                    f"column {self.name!r} holds {cells.type}, and {declared} was expected, "
                    f"{self._advise_on_type()}"
                )
            found = "boolean"
        self.column_type = declared or ColumnType(found)
        if pa.types.is_integer(cells.type):
            self._warn_about_rounding(values)
        return values

    def _convert_text(self, cells: pa.Array) -> FloatArray:
        """Take in text."""
        if self.column_type == NUMBER and self._has_fast_path:
            try:  # which all cells are, nearly always
                values = to_doubles(cells.cast(pa.float64()))
            except pa.ArrowInvalid:
                values = np.full(1, np.nan)
            if not np.isnan(values).any():  # for which there are more words than stand for missing
                self._warn_about_rounding(values, cells)
                return values
        text = self._replace_missing(pc.utf8_trim_whitespace(cells.cast(pa.large_string())))
        if text.null_count == len(text):
            return np.full(len(text), np.nan)
        if self.column_type is None:
            self.column_type = guess_column_type(text.drop_null()[0].as_py(), self._decimal)
        if self.column_type.name == "category":
            return self._encode_categories(
                text if self._declared is None else normalise_categories(text)
            )
        values, good = parse_cells(text, self.column_type, self._decimal)
        valid = text.is_valid().to_numpy(zero_copy_only=False)
        bad = np.flatnonzero(valid & ~good)
        if len(bad):
            raise self._make_error(bad[0], text[int(bad[0])].as_py())
        values[~valid] = np.nan
        self._warn_about_rounding(values, text)
        return values

    def _replace_missing(self, text: pa.Array) -> pa.Array:
        """Return text with null where a value is missing."""
        there = pc.invert(pc.fill_null(pc.is_in(text, value_set=self._missing), True))
        return pc.if_else(there, text, pa.scalar(None, text.type))

    def _find_missing_numbers(self, column_type: ColumnType) -> FloatArray:
        """Return what stands for a missing value among numbers, dates or times."""
        found, good = parse_cells(self._missing, column_type, self._decimal)
        return found[good]

    def _encode_categories(self, text: pa.Array) -> FloatArray:
        """Take in categories: each is its position among all of them."""
        encoded = text.dictionary_encode()
        names: list[str] = encoded.dictionary.to_pylist()
        new = [name for name in names if name not in self._codes]
        if new and self._declared is None:
            self._check_categories(new, text)
        self._codes.update({name: len(self._codes) + i for i, name in enumerate(new)})
        self.column_type = self.column_type or CATEGORY
        most = max(_MAX_CATEGORIES, 0.9 * (self.n_rows + len(text)))
        if len(self._codes) > most and not self._read_before:
            raise DataError(
                f"column {self.name!r} has {len(self._codes):,} categories in its first "
                f"{self.n_rows + len(text):,} rows: leave it out (drop), or is it the id?"
            )
        codes = np.array([*(self._codes[name] for name in names), np.nan])
        found: FloatArray = codes[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        return found

    def _check_categories(self, new: list[str], text: pa.Array) -> None:
        """Refuse what is no category, or was not meant to be one."""
        odd = np.flatnonzero(find_non_categories(pa.array(new, pa.large_string()), self._decimal))
        if len(odd):
            cell = new[odd[0]]
            raise self._make_error(pc.index(text, pa.scalar(cell, text.type)).as_py(), cell)

    def _warn_about_rounding(self, values: FloatArray, text: pa.Array | None = None) -> None:
        large = np.flatnonzero(np.abs(values) >= MAX_EXACT_INTEGER)
        if text is not None and len(large):
            cells = text.take(pa.array(large))
            whole = pc.match_substring_regex(cells, "^[+-]?[0-9]+$")
            large = large[pc.fill_null(whole, False).to_numpy(zero_copy_only=False)]
        if len(large) and not self.warnings:
            self.warnings.append(
                f"{self._describe_cell(large[0])} is beyond 2^53: such whole numbers are rounded "
                "to the nearest double; if they are ids, leave the column out (drop)"
            )

    def _make_error(self, row: int, text: str) -> DataError:
        """Say what is wrong with a cell, and what can be done about it."""
        assert self.column_type is not None
        kind = self.column_type
        like, text = guess_intended_type(text), quote_untrusted(text)
        what = f"{self._describe_cell(row)}: {text!r}"
        if kind != CATEGORY:
            what += f" is not a {kind}"
        elif like != "category":
            what += f" looks like a {like}"
        else:
            above = (
                f", as {quote_untrusted(next(iter(self._codes)))!r} above it is"
                if self._codes
                else ""
            )
            what += f" is no category{above}"
        return DataError(f"{what}; {self._advise_on_cell(kind, text, like)}")

    def _advise_on_type(self) -> str:
        """Say what can be done about cells of another type."""
        return "as declared or as the model was trained: change the table or the declaration"

    def _advise_on_cell(
        self, column_type: ColumnType, cell: str, likely_type: ColumnTypeName
    ) -> str:
        """Say what can be done about a cell."""
        name = self.name
        if likely_type == "number" and column_type.name in ("number", "category"):
            advice = "write numbers without separators of thousands, or say decimal = ','"
        elif likely_type == "date" or column_type.name in ("date", "time"):
            advice = (
                "write all dates of the column in one way, and say in which one if it is not "
                f"2020-12-31: types = {{ {name!r} = 'date %d.%m.%Y' }}"
            )
        else:
            advice = f"correct it, or leave it empty if it is missing: missing = [{cell!r}]"
        declare = f"declare it: categorical = [{name!r}]"
        return f"{advice}; or if it is one of several categories, {declare}"
