"""Numbers of cuts: how much of them a federation agrees to tell.

A column with few values has fewer cuts than buckets allow, and a federation that knows computes on
fewer candidates. What it knows by that is about how many values the column has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from privet.config import quoted
from privet.errors import DataError

Cuts = Literal["exact", "rounded", "hidden"]
"""What all learn of a column: how many cuts it fills; that number rounded up to 1, 3, 7, 15 and so
on, B - 1 at most; or nothing, so that it is given B - 1."""


def told_cuts(filled: Sequence[int], cuts: Cuts, most: int) -> tuple[int, ...] | None:
    """Return what is told of columns that fill so many cuts, of `most`; None if nothing is."""
    if cuts == "hidden":
        return None
    if cuts == "exact":
        return tuple(filled)
    return tuple(next(told for told in _rounded(most) if told >= count) for count in filled)


def check_told(told: Sequence[int], cuts: Cuts, most: int) -> None:
    """Raise DataError unless these are numbers that may be told."""
    allowed = [*range(most + 1)] if cuts == "exact" else _rounded(most)
    for count in told:
        if cuts == "hidden" or count not in allowed:
            words = f"0 to {most}" if cuts == "exact" else ", ".join(str(n) for n in allowed)
            raise DataError(
                f"cuts: {quoted(count)} is no number of cuts that may be told: "
                + ("they are hidden" if cuts == "hidden" else f"{cuts}, it is one of {words}")
            )


def check_some(counts: Sequence[int] | None) -> None:
    """Raise DataError if all know that no feature has a cut."""
    if counts is not None and not any(counts):
        raise DataError("every column of all participants is constant: there is nothing to test")


def _rounded(most: int) -> list[int]:
    """Return 1, 3, 7, ... and `most`.

    Not 0: that would tell exactly that a column is constant. Its one cut is a test that every
    sample passes.
    """
    return [*((2 << k) - 1 for k in range(most.bit_length()) if (2 << k) - 1 < most), most]
