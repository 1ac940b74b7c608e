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

KindName = Literal["number", "boolean", "date", "time", "category"]
ONE_HOT = "one-hot"
_DECLARED = (*get_args(KindName), ONE_HOT)
_WITH_FORMAT = ("date", "time")


@dataclass(frozen=True)
class Kind:
    """What a column holds."""

    name: KindName
    form: str | None = None
    """How its dates or times are written, if not as 2020-12-31 or 2020-12-31 23:59:59."""
    one_hot: bool = False
    """Whether each category is to be a feature of its own."""

    @classmethod
    def parse(cls, text: str) -> Kind:
        """Read what an owner declares: a kind's name, or `date FORMAT`, or `one-hot`."""
        name, _, form = text.strip().partition(" ")
        if name not in _DECLARED or (form and name not in _WITH_FORMAT):
            raise ParameterError(
                f"types: {text!r} is none of {', '.join(_DECLARED)}; "
                "a date or a time may have its format, as in 'date %d.%m.%Y'"
            )
        if form:
            _check_form(form.strip())
        if name == ONE_HOT:
            return cls("category", one_hot=True)
        return cls(name, form.strip() or None)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.name if self.form is None else f"{self.name} ({self.form})"


def _check_form(form: str) -> None:
    """Refuse a format that Python or Arrow does not know: cells are read with both."""
    known = False
    try:
        datetime.strptime("", form)
    except ValueError as error:
        known = "does not match" in str(error)  # as no format matches an empty cell
    if not known or "%" not in form or "%f" in form:
        raise ParameterError(
            f"types: {form!r} is no format of dates: write it as Python's strptime takes it, such "
            "as %d.%m.%Y %H:%M:%S; fractions of seconds cannot be read so"
        )


NUMBER = Kind("number")
CATEGORY = Kind("category")


@dataclass(frozen=True)
class Content:
    """What the numbers of a column mean."""

    kind: Kind = NUMBER
    texts: tuple[str, ...] = ()
    """The categories, if it has any: a cell is the position of its own."""


NUMBERS = Content()


def fits(name: str, pattern: str) -> bool:
    """Tell whether a column is the one named, or one of those that a pattern names."""
    # Brackets are characters like others: columns have them in their names.
    return name == pattern or fnmatchcase(name, pattern.replace("[", "[[]"))
