from __future__ import annotations

import pytest

from privet import DataError
from privet.spec.plan import CutDisclosure, check_disclosed_cut_counts, disclose_cut_counts

FILLED = [0, 1, 2, 3, 4, 7, 8, 9]


@pytest.mark.parametrize(
    ("cuts", "told"),
    [
        ("exact", (0, 1, 2, 3, 4, 7, 8, 9)),
        ("rounded", (1, 1, 3, 3, 7, 7, 9, 9)),  # a constant column looks like one of two values
        ("hidden", None),
    ],
)
def test_what_is_told(cuts: CutDisclosure, told: tuple[int, ...] | None) -> None:
    assert disclose_cut_counts(FILLED, cuts, 9) == told
    check_disclosed_cut_counts(told or (), cuts, 9)


@pytest.mark.parametrize("most", range(1, 256))
def test_rounded_numbers(most: int) -> None:
    told = disclose_cut_counts(range(most + 1), "rounded", most)
    assert told is not None
    assert set(told) == {n for n in (1, 3, 7, 15, 31, 63, 127, 255) if n < most} | {most}
    assert all(n <= t <= most for n, t in enumerate(told))
    check_disclosed_cut_counts(told, "rounded", most)


@pytest.mark.parametrize(
    ("cuts", "told", "complaint"),
    [
        ("exact", 10, "10 is no number of cuts that may be told: exact, it is one of 0 to 9"),
        ("exact", -1, "-1 is no"),
        ("rounded", 0, "rounded, it is one of 1, 3, 7, 9"),
        ("rounded", 8, "8 is no"),
        ("rounded", 15, "15 is no"),
        ("hidden", 9, "they are hidden"),
    ],
)
def test_what_may_not_be_told(cuts: CutDisclosure, told: int, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        check_disclosed_cut_counts([told], cuts, 9)
