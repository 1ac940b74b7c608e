"""Column types: number, boolean, date, time and category.

In memory every cell is a number, and NaN if it is missing. A date is the number of days since 1970,
a time the number of seconds, and a category its position in a list of strings. A missing value is
smaller than every cut, so it goes left in every split.
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
    """The type of a column."""

    name: ColumnTypeName
    date_format: str | None = None
    """The format of dates or times; None for 2020-12-31 and 2020-12-31 23:59:59."""
    one_hot: bool = False
    """Whether each category becomes a separate feature."""

    @classmethod
    def parse(cls, text: str) -> ColumnType:
        """Parse a declared type: its name, or `date FORMAT`, or `one-hot`."""
        name, _, date_format = text.strip().partition(" ")
        if name not in _DECLARABLE_NAMES or (date_format and name not in _WITH_FORMAT):
            raise ParameterError(
                f"types: {text!r} is none of {', '.join(_DECLARABLE_NAMES)}; "
                "a date or a time may have its format, as in 'date %d.%m.%Y'"
            )
        if date_format:
            _check_date_format(date_format.strip())
        if name == ONE_HOT:
            return cls("category", one_hot=True)
        return cls(name, date_format.strip() or None)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.name if self.date_format is None else f"{self.name} ({self.date_format})"


def _check_date_format(date_format: str) -> None:
    """Refuse a format that Python or Arrow does not know: both parse cells."""
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
    """The type and the categories of a column."""

    column_type: ColumnType = NUMBER
    categories: tuple[str, ...] = ()
    """The categories, if the column has any: a cell is the position of its category."""


NUMBER_SCHEMA = ColumnSchema()


def is_match(name: str, pattern: str) -> bool:
    """Return whether a column has the given name or matches it as a pattern."""
    # Brackets are ordinary characters: column names contain them.
    return name == pattern or fnmatchcase(name, pattern.replace("[", "[[]"))
