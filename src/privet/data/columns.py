"""Conversion of cells to numbers, column by column in batches, spilled to disk.

The first cell of a text column sets its type, unless the owner declares the column: a number, a
date, a time, a boolean, or otherwise a category. Every later cell must have that type. A cell that
does not is an error that names it: as a missing value or a new category, it would silently change
the model.
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
    """Storage for the cells of several columns, in memory or in a temporary file."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=MAX_MEMORY_BYTES)  # noqa: SIM115
        self._end = 0
        weakref.finalize(self, _close, self._file)

    def append(self, values: FloatArray) -> int:
        """Store values; return their offset."""
        start, size = self._end, values.nbytes
        with explain_disk_full(start + size):
            self._file.seek(start)
            self._file.write(values.tobytes())
        self._end += size
        return start

    def read_into(self, start: int, target: FloatArray) -> None:
        """Fill an array with the values stored from offset `start`."""
        with explain_disk_full(self._end):  # reading flushes buffered writes
            self._file.seek(start)
        target[:] = np.frombuffer(self._file.read(target.nbytes))


class StoredColumn:
    """One column in a `SpillStore`, which grows batch by batch."""

    def __init__(self, store: SpillStore) -> None:
        self._store = store
        self._pieces: list[tuple[int, int]] = []
        self.length = 0

    def append(self, values: FloatArray) -> None:
        """Add the next cells."""
        self._pieces.append((self._store.append(values), len(values)))
        self.length += len(values)

    def read(self) -> FloatArray:
        """Return all cells as a new array."""
        values, end = np.empty(self.length), 0
        for start, length in self._pieces:
            self._store.read_into(start, values[end : end + length])
            end += length
        return values


def _close(file: tempfile.SpooledTemporaryFile[bytes]) -> None:
    with contextlib.suppress(OSError):  # a full disk, reported earlier
        file.close()


MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""Texts that mark a missing value, besides those that the owner declares."""
_MAX_CATEGORIES = 1_000_000


class ColumnBuilder:
    """Collects the cells of one column, batch by batch."""

    missing_cell_advice = "leave the cell empty"
    """How to mark a missing value, for error messages."""

    def __init__(
        self,
        name: str,
        declared_type: ColumnType | None = None,
        missing: Sequence[str] = (),
        decimal: str = ".",
        *,
        fitted_type: ColumnType | None = None,
        row_numbers: IndexArray | None = None,
        store: SpillStore | None = None,
    ) -> None:
        """Start a column: all rows of it, or selected rows of a column that was read before.

        For selected rows, `fitted_type` is the type found when the column was first read, and
        `row_numbers` are the positions of the rows, counted from 0. All columns of a table share
        one `store`.
        """
        self.name = name
        self.column_type = fitted_type or declared_type
        """The type of the column; None until the first cell that is not missing."""
        self.warnings: list[str] = []
        self.is_integral = True
        """Whether all cells so far are whole numbers, with none missing."""
        self._declared = declared_type
        self._read_before = fitted_type is not None
        self._row_numbers = row_numbers
        self._missing = pa.array([*MISSING_TEXTS, *missing], pa.large_string())
        self._decimal = decimal
        # A number, such as -999, can also mark a missing value.
        self._has_fast_path = decimal == "." and not self._find_missing_numbers(NUMBER).size
        self._stored = StoredColumn(SpillStore() if store is None else store)
        self._codes: dict[str, int] = {}

    def append(self, cells: pa.Array) -> None:
        """Add the cells of the next rows."""
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
        """The number of rows added so far."""
        return self._stored.length

    def read(self) -> FloatArray:
        """Return all cells as a new array."""
        return self._stored.read()

    @property
    def schema(self) -> ColumnSchema:
        """The type and categories of the column so far."""
        return ColumnSchema(self.column_type or NUMBER, self.categories)

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories, in the order of their first rows."""
        return tuple(self._codes)

    def _describe_cell(self, row: int) -> str:
        row += self.n_rows
        number = row if self._row_numbers is None else self._row_numbers[row]
        return f"column {self.name!r}, row {number + 1}"

    def _convert_typed(self, cells: pa.Array) -> FloatArray:
        """Convert cells that are not text."""
        type_name, declared = map_arrow_type(cells.type), self._declared
        if type_name is None:
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
        missing_type = (
            declared
            if declared is not None and declared.name == type_name
            else ColumnType(type_name)
        )
        values[np.isin(values, self._find_missing_numbers(missing_type))] = np.nan
        if declared is not None and declared.name != type_name:
            if declared.name != "boolean" or not np.isin(values[~np.isnan(values)], (0, 1)).all():
                raise DataError(
                    f"column {self.name!r} holds {cells.type}, and {declared} was expected, "
                    f"{self._advise_on_type()}"
                )
            type_name = "boolean"
        self.column_type = declared or ColumnType(type_name)
        if pa.types.is_integer(cells.type):
            self._warn_about_rounding(values)
        return values

    def _convert_text(self, cells: pa.Array) -> FloatArray:
        """Convert text cells."""
        if self.column_type == NUMBER and self._has_fast_path:
            try:  # nearly always, all cells are numbers
                values = to_doubles(cells.cast(pa.float64()))
            except pa.ArrowInvalid:
                values = np.full(1, np.nan)
            if not np.isnan(values).any():  # Arrow also parses other NaN texts
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
        """Return text with null for each missing value."""
        present = pc.invert(pc.fill_null(pc.is_in(text, value_set=self._missing), True))
        return pc.if_else(present, text, pa.scalar(None, text.type))

    def _find_missing_numbers(self, column_type: ColumnType) -> FloatArray:
        """Return the texts for missing values that parse as this type, as numbers."""
        found, good = parse_cells(self._missing, column_type, self._decimal)
        return found[good]

    def _encode_categories(self, text: pa.Array) -> FloatArray:
        """Convert categories to their positions in `categories`."""
        encoded = text.dictionary_encode()
        names: list[str] = encoded.dictionary.to_pylist()
        new = [name for name in names if name not in self._codes]
        if new and self._declared is None:
            self._check_categories(new, text)
        self._codes.update({name: len(self._codes) + i for i, name in enumerate(new)})
        self.column_type = self.column_type or CATEGORY
        max_categories = max(_MAX_CATEGORIES, 0.9 * (self.n_rows + len(text)))
        if len(self._codes) > max_categories and not self._read_before:
            raise DataError(
                f"column {self.name!r} has {len(self._codes):,} categories in its first "
                f"{self.n_rows + len(text):,} rows: leave it out (drop), or is it the id?"
            )
        codes = np.array([*(self._codes[name] for name in names), np.nan])
        found: FloatArray = codes[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        return found

    def _check_categories(self, new: list[str], text: pa.Array) -> None:
        """Reject cells that have, or seem meant to have, another type than category."""
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
        """Return an error that states what is wrong with a cell, and what to do."""
        assert self.column_type is not None
        column_type = self.column_type
        likely_type, text = guess_intended_type(text), quote_untrusted(text)
        problem = f"{self._describe_cell(row)}: {text!r}"
        if column_type != CATEGORY:
            problem += f" is not a {column_type}"
        elif likely_type != "category":
            problem += f" looks like a {likely_type}"
        else:
            example = (
                f", as {quote_untrusted(next(iter(self._codes)))!r} above it is"
                if self._codes
                else ""
            )
            problem += f" is no category{example}"
        return DataError(f"{problem}; {self._advise_on_cell(column_type, text, likely_type)}")

    def _advise_on_type(self) -> str:
        """Return advice on cells of another type."""
        return "as declared or as the model was trained: change the table or the declaration"

    def _advise_on_cell(
        self, column_type: ColumnType, cell: str, likely_type: ColumnTypeName
    ) -> str:
        """Return advice on a cell."""
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
