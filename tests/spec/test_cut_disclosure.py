"""The disclosure of cut counts."""

from __future__ import annotations

import pytest

from privet import DataError
from privet.spec.plan import CutDisclosure, check_disclosed_cut_counts, disclose_cut_counts

CUT_COUNTS = [0, 1, 2, 3, 4, 7, 8, 9]


@pytest.mark.parametrize(
    ("disclosure", "disclosed"),
    [
        ("exact", (0, 1, 2, 3, 4, 7, 8, 9)),
        ("rounded", (1, 1, 3, 3, 7, 7, 9, 9)),  # a constant column looks like one of two values
        ("hidden", None),
    ],
)
def test_disclosed_cut_counts(disclosure: CutDisclosure, disclosed: tuple[int, ...] | None) -> None:
    assert disclose_cut_counts(CUT_COUNTS, disclosure, 9) == disclosed
    check_disclosed_cut_counts(disclosed or (), disclosure, 9)


@pytest.mark.parametrize("max_count", range(1, 256))
def test_rounded_cut_counts(max_count: int) -> None:
    disclosed = disclose_cut_counts(range(max_count + 1), "rounded", max_count)
    assert disclosed is not None
    powers = {n for n in (1, 3, 7, 15, 31, 63, 127, 255) if n < max_count}
    assert set(disclosed) == powers | {max_count}
    assert all(n <= count <= max_count for n, count in enumerate(disclosed))
    check_disclosed_cut_counts(disclosed, "rounded", max_count)


@pytest.mark.parametrize(
    ("disclosure", "count", "message"),
    [
        ("exact", 10, "10 is no number of cuts that may be told: exact, it is one of 0 to 9"),
        ("exact", -1, "-1 is no"),
        ("rounded", 0, "rounded, it is one of 1, 3, 7, 9"),
        ("rounded", 8, "8 is no"),
        ("rounded", 15, "15 is no"),
        ("hidden", 9, "they are hidden"),
    ],
)
def test_invalid_cut_counts_are_rejected(
    disclosure: CutDisclosure, count: int, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        check_disclosed_cut_counts([count], disclosure, 9)
