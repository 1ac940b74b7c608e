"""What a column holds: numbers, truth values, dates, times, or categories.

Whatever it is, its cells are numbers in memory, NaN where they are missing: dates are days since
1970, times are seconds since then, and a category is its position in a list of texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Literal, get_args

from privet.errors import ParameterError

ColumnTypeName = Literal["number", "boolean", "date", "time", "category"]
ONE_HOT = "one-hot"
_DECLARABLE_NAMES = (*get_args(ColumnTypeName), ONE_HOT)
_WITH_FORMAT = ("date", "time")


@dataclass(frozen=True)
class ColumnType:
    """What a column holds."""

    name: ColumnTypeName
    date_format: str | None = None
    """How its dates or times are written, if not as 2020-12-31 or 2020-12-31 23:59:59."""
    one_hot: bool = False
    """Whether each category is to be a feature of its own."""

    @classmethod
    def parse(cls, text: str) -> ColumnType:
        """Read what an owner declares: a kind's name, or `date FORMAT`, or `one-hot`."""
        name, _, form = text.strip().partition(" ")
        if name not in _DECLARABLE_NAMES or (form and name not in _WITH_FORMAT):
            raise ParameterError(
                f"types: {text!r} is none of {', '.join(_DECLARABLE_NAMES)}; "
                "a date or a time may have its format, as in 'date %d.%m.%Y'"
            )
        if form:
            _check_form(form.strip())
        if name == ONE_HOT:
            return cls("category", one_hot=True)
        return cls(name, form.strip() or None)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.name if self.date_format is None else f"{self.name} ({self.date_format})"


def _check_form(date_format: str) -> None:
    """Refuse a format that Python or Arrow does not know: cells are read with both."""
    known = False
    try:
        datetime.strptime("", date_format)
    except ValueError as error:
        known = "does not match" in str(error)  # as no format matches an empty cell
    if not known or "%" not in date_format or "%f" in date_format:
        raise ParameterError(
            f"types: {date_format!r} is no format of dates: write it as Python's strptime takes "
            "it, such as %d.%m.%Y %H:%M:%S; fractions of seconds cannot be read so"
        )


NUMBER = ColumnType("number")
CATEGORY = ColumnType("category")


@dataclass(frozen=True)
class ColumnSchema:
    """What the numbers of a column mean."""

    column_type: ColumnType = NUMBER
    categories: tuple[str, ...] = ()
    """The categories, if it has any: a cell is the position of its own."""


NUMBER_SCHEMA = ColumnSchema()


def is_match(name: str, pattern: str) -> bool:
    """Tell whether a column is the one named, or one of those that a pattern names."""
    # Brackets are characters like others: columns have them in their names.
    return name == pattern or fnmatchcase(name, pattern.replace("[", "[[]"))
