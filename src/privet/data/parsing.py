"""Parsing of cells as doubles, by the type of their column.

A time without a time zone is UTC.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privet.arrays import BoolArray, FloatArray, IndexArray
from privet.errors import DataError
from privet.spec.column_types import CATEGORY, NUMBER, ColumnType, ColumnTypeName

_NUMBER_PATTERN = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_INFINITE = r"^[+-]?(?i:inf|infinity)$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}"
_ZONE = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
# Numbers and dates in notations that are not parsed, for advice in error messages.
_GROUPED_NUMBER_PATTERN = (
    r"^[+-]?[0-9]{1,3}([,.' \x{00A0}\x{202F}][0-9]{3})+([.,][0-9]+)?$|^[+-]?[0-9]*,[0-9]+$"
)
_OTHER_DATE_PATTERN = r"^[0-9]{1,4}[./-][0-9]{1,2}[./-][0-9]{1,4}([ T].*)?$"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
MAX_EXACT_INTEGER = 2.0**53
"""Below it, every whole number is exact as a double."""


class ParsedCells(NamedTuple):
    """Cells parsed as one column type."""

    values: FloatArray
    valid: BoolArray
    """Whether each cell has that type; False for missing cells."""


def map_arrow_type(arrow_type: pa.DataType) -> ColumnTypeName | None:
    """Return the column type of an Arrow type; None for text and unsupported types."""
    if pa.types.is_boolean(arrow_type):
        return "boolean"
    if pa.types.is_date(arrow_type):
        return "date"
    if (
        pa.types.is_timestamp(arrow_type)
        or pa.types.is_time(arrow_type)
        or pa.types.is_duration(arrow_type)
    ):
        return "time"
    numeric = pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null
    return "number" if any(check(arrow_type) for check in numeric) else None


def is_text(arrow_type: pa.DataType) -> bool:
    """Tell whether an Arrow type is text."""
    checks = pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view
    return any(check(arrow_type) for check in checks)


def guess_column_type(cell: str, decimal: str) -> ColumnType:
    """Guess the type of a column from one of its cells."""
    text = pa.array([cell], pa.large_string())
    for column_type in (NUMBER, ColumnType("date"), ColumnType("time")):
        if parse_cells(text, column_type, decimal).valid.all():
            return column_type
    # 1 and 0 are also booleans, but were parsed as numbers above.
    return (
        ColumnType("boolean")
        if parse_cells(text, ColumnType("boolean"), decimal).valid.all()
        else CATEGORY
    )


def guess_intended_type(cell: str) -> ColumnTypeName:
    """Guess the intended type of a cell in a notation that is not parsed."""
    text = pa.array([cell], pa.large_string())
    if pc.match_substring_regex(text, _GROUPED_NUMBER_PATTERN)[0].as_py():
        return "number"
    return "date" if pc.match_substring_regex(text, _OTHER_DATE_PATTERN)[0].as_py() else "category"


def find_non_categories(text: pa.Array, decimal: str) -> BoolArray:
    """Return which cells have, or seem meant to have, another type than category."""
    odd = _to_bool_array(pc.match_substring_regex(text, _GROUPED_NUMBER_PATTERN))
    odd |= _to_bool_array(pc.match_substring_regex(text, _OTHER_DATE_PATTERN))
    for column_type in (NUMBER, ColumnType("date"), ColumnType("time")):
        odd |= parse_cells(text, column_type, decimal).valid
    return odd


def parse_cells(text: pa.Array, column_type: ColumnType, decimal: str = ".") -> ParsedCells:
    """Parse text as numbers, booleans, dates or times."""
    if column_type.name == "number":
        return _parse_numbers(text, decimal)
    if column_type.name == "boolean":
        lower = pc.utf8_lower(text)
        true, false = (
            pc.is_in(lower, value_set=pa.array(texts, pa.large_string()))
            for texts in (["true", "1"], ["false", "0"])
        )
        return ParsedCells(to_doubles(true), _to_bool_array(pc.or_(true, false)))
    parsed = _parse_datetimes(text, column_type)
    return ParsedCells(to_doubles(parsed), _to_bool_array(pc.is_valid(parsed)))


def _parse_numbers(text: pa.Array, decimal: str) -> ParsedCells:
    if decimal == ",":
        with_points = pc.replace_substring(text, ",", ".")
        text = pc.if_else(pc.match_substring(text, "."), pa.scalar("?", text.type), with_points)
    fits = pc.or_(
        pc.match_substring_regex(text, _NUMBER_PATTERN), pc.match_substring_regex(text, _INFINITE)
    )
    return ParsedCells(to_doubles(_keep_where(fits, text).cast(pa.float64())), _to_bool_array(fits))


def _parse_datetimes(text: pa.Array, column_type: ColumnType) -> pa.Array:
    """Return dates or times, null for an invalid cell."""
    if column_type.date_format is not None:
        parsed = pc.strptime(text, format=column_type.date_format, unit="s", error_is_null=True)
        parsed = _keep_where(
            pc.invert(_find_impossible_dates(text, parsed, column_type.date_format)), parsed
        )
        return parsed.cast(pa.date32()) if column_type.name == "date" else parsed
    if column_type.name == "date":
        return _cast_or_null(_keep_where(pc.match_substring_regex(text, _DATE), text), pa.date32())
    fits = pc.match_substring_regex(text, _TIME)
    zoned = pc.match_substring_regex(text, _ZONE)
    without_zone = _cast_or_null(_keep_where(pc.and_not(fits, zoned), text), pa.timestamp("us"))
    with_zone = _cast_or_null(_keep_where(pc.and_(fits, zoned), text), pa.timestamp("us", "UTC"))
    return pc.coalesce(without_zone, with_zone.cast(pa.timestamp("us")))


def _find_impossible_dates(text: pa.Array, parsed: pa.Array, date_format: str) -> pa.Array:
    """Return which cells name an impossible day, such as 30 February, which Arrow reads as March.

    Such cells parse as one of the first days of a month, so only these are checked in Python, which
    is slow. With a time zone, which can shift a date by a day, all cells are checked.
    """
    early = pc.fill_null(pc.less_equal(pc.day(parsed), 3), False)
    suspects = text.filter(pc.is_valid(parsed) if "%z" in date_format else early).unique()
    wrong = [cell for cell in suspects.to_pylist() if not _is_valid_date(cell, date_format)]
    return pc.is_in(text, value_set=pa.array(wrong, text.type))


def _is_valid_date(cell: str, date_format: str) -> bool:
    try:
        datetime.strptime(cell, date_format)
    except ValueError:
        return False
    return True


def _cast_or_null(text: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Cast cells, with null for an invalid cell such as 30 February."""
    try:
        return text.cast(arrow_type)
    except pa.ArrowInvalid:
        if len(text) == 1:
            return pa.nulls(1, arrow_type)
        half = len(text) // 2
        return pa.concat_arrays(
            [_cast_or_null(text[:half], arrow_type), _cast_or_null(text[half:], arrow_type)]
        )


def _keep_where(keep: pa.Array, cells: pa.Array) -> pa.Array:
    return pc.if_else(keep, cells, pa.scalar(None, cells.type))


def _to_bool_array(flags: pa.Array) -> BoolArray:
    found: BoolArray = pc.fill_null(flags, False).to_numpy(zero_copy_only=False)
    return found


def to_doubles(cells: pa.Array) -> FloatArray:
    """Convert numbers, booleans, dates or times to doubles."""
    arrow_type, unit = cells.type, 1
    if pa.types.is_date(arrow_type):
        cells = cells.cast(pa.date32()).cast(pa.int32())
    elif map_arrow_type(arrow_type) == "time":
        unit = _PER_SECOND[arrow_type.unit]
        cells = cells.cast(pa.int32() if arrow_type.bit_width == 32 else pa.int64())
    # Whole numbers beyond 2^53 become the nearest double.
    values: FloatArray = cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values / unit if unit > 1 else values.copy()


def to_integers(values: FloatArray) -> tuple[pa.Array, IndexArray]:
    """Convert doubles to integers; also return the rows that are not exact integers."""
    missing = np.isnan(values)
    whole = (values == np.floor(values)) & (np.abs(values) < MAX_EXACT_INTEGER)
    integers = pa.array(np.where(whole, values, 0).astype(np.int64), mask=missing)
    return integers, np.flatnonzero(~missing & ~whole)


def normalise_text(texts: pa.Array) -> pa.Array:
    """Strip surrounding blanks, and replace "7.0" by "7".

    Some programs write integer columns as floats; others pad cells with blanks.
    """
    return pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"^([+-]?[0-9]+)\.0+$", r"\1")


def normalise_categories(texts: pa.Array) -> pa.Array:
    """Normalise category names that another table may store as numbers or booleans."""
    plain = normalise_text(texts)
    truth = pc.match_substring_regex(plain, "^(?i:true|false)$")
    return pc.if_else(truth, pc.utf8_lower(plain), plain)


def is_ambiguous_category(name: str) -> bool:
    """Tell whether a category name is also the text of a number or a boolean."""
    return re.fullmatch("[+-]?[0-9]+|true|false", name) is not None


def to_category_texts(cells: pa.Array) -> pa.Array:
    """Convert cells to category names; 7 and 7.0 get the same name."""
    if pa.types.is_floating(cells.type):
        values = to_doubles(cells)
        cells, odd = to_integers(values)
        if len(odd):
            raise DataError(
                f"{values[odd[0]]:g} is a fraction, or not exact as one, which is no category"
            )
    if pa.types.is_boolean(cells.type):
        return pc.if_else(cells, "true", "false").cast(pa.large_string())
    return normalise_text(cells.cast(pa.large_string()))
