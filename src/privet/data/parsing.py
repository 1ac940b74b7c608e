"""Cells of any type as doubles, by the kind that their column is: the rules of each kind.

A time without a zone is taken for one of UTC.
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
from privet.spec.column_types import CATEGORY, NUMBER, Kind, KindName

_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_INFINITE = r"^[+-]?(?i:inf|infinity)$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}"
_ZONE = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
# What is no number or date to us, and was meant to be one.
_GROUPED = r"^[+-]?[0-9]{1,3}([,.' \x{00A0}\x{202F}][0-9]{3})+([.,][0-9]+)?$|^[+-]?[0-9]*,[0-9]+$"
_DATED = r"^[0-9]{1,4}[./-][0-9]{1,2}[./-][0-9]{1,4}([ T].*)?$"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
EXACT = 2.0**53
"""Below it, a double that is a whole number is no other's rounding."""


class Parsed(NamedTuple):
    """What cells are, as one kind."""

    values: FloatArray
    good: BoolArray
    """Which of them are of that kind. Missing ones are not."""


def kind_of(kind: pa.DataType) -> KindName | None:
    """Return the kind that cells of an Arrow type are; None for text and what is of no kind."""
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_date(kind):
        return "date"
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        return "time"
    numeric = pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null
    return "number" if any(check(kind) for check in numeric) else None


def is_text(kind: pa.DataType) -> bool:
    """Tell whether cells of an Arrow type are text."""
    checks = pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view
    return any(check(kind) for check in checks)


def guess(cell: str, decimal: str) -> Kind:
    """Return the kind that a column seems to be, by one of its cells."""
    text = pa.array([cell], pa.large_string())
    for kind in (NUMBER, Kind("date"), Kind("time")):
        if parse(text, kind, decimal).good.all():
            return kind
    # 1 and 0 are truth values, too, but nobody would guess it.
    return Kind("boolean") if parse(text, Kind("boolean"), decimal).good.all() else CATEGORY


def looks_like(cell: str) -> KindName:
    """Return what a cell was meant to be, perhaps, by somebody who writes it in another way."""
    text = pa.array([cell], pa.large_string())
    if pc.match_substring_regex(text, _GROUPED)[0].as_py():
        return "number"
    return "date" if pc.match_substring_regex(text, _DATED)[0].as_py() else "category"


def no_categories(text: pa.Array, decimal: str) -> BoolArray:
    """Return which cells are of another kind, or look as if they were meant to be."""
    odd = _mask(pc.match_substring_regex(text, _GROUPED))
    odd |= _mask(pc.match_substring_regex(text, _DATED))
    for kind in (NUMBER, Kind("date"), Kind("time")):
        odd |= parse(text, kind, decimal).good
    return odd


def parse(text: pa.Array, kind: Kind, decimal: str = ".") -> Parsed:
    """Read text as numbers, truth values, dates or times."""
    if kind.name == "number":
        return _parse_numbers(text, decimal)
    if kind.name == "boolean":
        small = pc.utf8_lower(text)
        true, false = (
            pc.is_in(small, value_set=pa.array(words, pa.large_string()))
            for words in (["true", "1"], ["false", "0"])
        )
        return Parsed(numbers(true), _mask(pc.or_(true, false)))
    found = _moments(text, kind)
    return Parsed(numbers(found), _mask(pc.is_valid(found)))


def _parse_numbers(text: pa.Array, decimal: str) -> Parsed:
    if decimal == ",":
        turned = pc.replace_substring(text, ",", ".")
        text = pc.if_else(pc.match_substring(text, "."), pa.scalar("?", text.type), turned)
    fits = pc.or_(
        pc.match_substring_regex(text, _NUMBER), pc.match_substring_regex(text, _INFINITE)
    )
    return Parsed(numbers(_where(fits, text).cast(pa.float64())), _mask(fits))


def _moments(text: pa.Array, kind: Kind) -> pa.Array:
    """Return dates or times, null where a cell is none."""
    if kind.form is not None:
        found = pc.strptime(text, format=kind.form, unit="s", error_is_null=True)
        found = _where(pc.invert(_on_no_day(text, found, kind.form)), found)
        return found.cast(pa.date32()) if kind.name == "date" else found
    if kind.name == "date":
        return _cast(_where(pc.match_substring_regex(text, _DATE), text), pa.date32())
    fits = pc.match_substring_regex(text, _TIME)
    zoned = pc.match_substring_regex(text, _ZONE)
    plain = _cast(_where(pc.and_not(fits, zoned), text), pa.timestamp("us"))
    there = _cast(_where(pc.and_(fits, zoned), text), pa.timestamp("us", "UTC"))
    return pc.coalesce(plain, there.cast(pa.timestamp("us")))


def _on_no_day(text: pa.Array, found: pa.Array, form: str) -> pa.Array:
    """Return which cells name a day that no month has: Arrow takes the 30th of February for March.

    They come out on the first days of a month, so that Python, which is slow, sees few cells; a
    zone may move any by a day.
    """
    early = pc.fill_null(pc.less_equal(pc.day(found), 3), False)
    suspects = text.filter(pc.is_valid(found) if "%z" in form else early).unique()
    wrong = [cell for cell in suspects.to_pylist() if not _is_read_by_python(cell, form)]
    return pc.is_in(text, value_set=pa.array(wrong, text.type))


def _is_read_by_python(cell: str, form: str) -> bool:
    try:
        datetime.strptime(cell, form)
    except ValueError:
        return False
    return True


def _cast(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return cells as another type, null where one cannot be: the 30th of February, say."""
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        if len(text) == 1:
            return pa.nulls(1, kind)
        half = len(text) // 2
        return pa.concat_arrays([_cast(text[:half], kind), _cast(text[half:], kind)])


def _where(fits: pa.Array, cells: pa.Array) -> pa.Array:
    return pc.if_else(fits, cells, pa.scalar(None, cells.type))


def _mask(flags: pa.Array) -> BoolArray:
    found: BoolArray = pc.fill_null(flags, False).to_numpy(zero_copy_only=False)
    return found


def numbers(cells: pa.Array) -> FloatArray:
    """Return cells that are numbers, truth values, dates or times as doubles."""
    kind, unit = cells.type, 1
    if pa.types.is_date(kind):
        cells = cells.cast(pa.date32()).cast(pa.int32())
    elif kind_of(kind) == "time":
        unit = _PER_SECOND[kind.unit]
        cells = cells.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    # Whole numbers beyond 2^53 become the nearest double.
    values: FloatArray = cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values / unit if unit > 1 else values.copy()


def whole_numbers(values: FloatArray) -> tuple[pa.Array, IndexArray]:
    """Return doubles as whole numbers, and where they are none, or not exact as such."""
    gone = np.isnan(values)
    whole = (values == np.floor(values)) & (np.abs(values) < EXACT)
    found = pa.array(np.where(whole, values, 0).astype(np.int64), mask=gone)
    return found, np.flatnonzero(~gone & ~whole)


def plain_text(texts: pa.Array) -> pa.Array:
    """Return text without blanks around it, and 7 for "7.0".

    A program that takes a column for fractions writes the latter, another one fills up with blanks.
    """
    return pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"^([+-]?[0-9]+)\.0+$", r"\1")


def category_names(texts: pa.Array) -> pa.Array:
    """Return the names of categories that may be numbers or truth values elsewhere."""
    plain = plain_text(texts)
    truth = pc.match_substring_regex(plain, "^(?i:true|false)$")
    return pc.if_else(truth, pc.utf8_lower(plain), plain)


def may_be_typed(name: str) -> bool:
    """Tell whether a category's name is one that a number or a truth value has, too."""
    return re.fullmatch("[+-]?[0-9]+|true|false", name) is not None


def as_texts(cells: pa.Array) -> pa.Array:
    """Return cells as categories' names: 7 and 7.0 are one."""
    if pa.types.is_floating(cells.type):
        values = numbers(cells)
        cells, odd = whole_numbers(values)
        if len(odd):
            raise DataError(
                f"{values[odd[0]]:g} is a fraction, or not exact as one, which is no category"
            )
    if pa.types.is_boolean(cells.type):
        return pc.if_else(cells, "true", "false").cast(pa.large_string())
    return plain_text(cells.cast(pa.large_string()))
