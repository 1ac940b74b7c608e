from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privet import DataError, Frame, ParameterError
from privet.data.ids import Ids
from privet.data.partition import PartyFrame, check_aligned, split_columns, split_rows


@pytest.fixture
def frame() -> Frame:
    return Frame(
        names=("a", "b", "c", "d", "e"),
        columns=np.arange(50.0).reshape(5, 10),
        ids=Ids.of(range(10)),
        label=np.arange(10.0),
    )


def test_rows_are_split_once_and_stay_together(frame: Frame) -> None:
    train, test = split_rows(frame, 0.2, seed=3)
    assert (train.n_samples, test.n_samples) == (8, 2)
    for part in (train, test):
        assert part.ids is not None
        rows = np.array(part.ids.tolist(), dtype=int)
        assert (part.columns == frame.columns[:, rows]).all()
        assert part.label is not None
        assert (part.label == rows).all()
    assert train.ids is not None
    assert test.ids is not None
    assert sorted([*train.ids.tolist(), *test.ids.tolist()]) == sorted(frame.ids.tolist())  # type: ignore[union-attr]


def test_the_seed_chooses_the_rows(frame: Frame) -> None:
    tests = [split_rows(frame, 0.2, seed)[1].ids.tolist() for seed in (0, 0, 1)]  # type: ignore[union-attr]
    assert tests[0] == tests[1] != tests[2]


@pytest.mark.parametrize("test_size", [0.0, 1.0, -1.0, 0.999])
def test_a_split_leaves_something_on_both_sides(frame: Frame, test_size: float) -> None:
    with pytest.raises(ParameterError, match=r"^test-size: "):
        split_rows(frame, test_size)


def test_too_few_rows_to_split(frame: Frame) -> None:
    with pytest.raises(DataError, match="3 rows are too few"):
        split_rows(frame.take(np.arange(3)))


def test_columns_are_spread_evenly_with_the_label_at_the_last(frame: Frame) -> None:
    parties = split_columns(frame, 3)
    assert [party.name for party in parties] == ["party1", "party2", "party3"]
    assert [party.frame.names for party in parties] == [("a", "b"), ("c", "d"), ("e",)]
    assert [party.frame.label is None for party in parties] == [True, True, False]
    check_aligned(parties)
    joined = np.concatenate([party.frame.columns for party in parties])
    assert (joined == frame.columns).all()


def test_the_active_party_may_have_no_column(frame: Frame) -> None:
    assert split_columns(frame, 6)[-1].frame.names == ()
    with pytest.raises(ParameterError, match="5 columns do not go round 6 passive parties"):
        split_columns(frame, 7)
    with pytest.raises(ParameterError, match="at least 2"):
        split_columns(frame, 1)


def test_misaligned_parties_are_named(frame: Frame) -> None:
    bank, shop = split_columns(frame, 2)
    short = PartyFrame("shop", shop.frame.take(np.arange(9)))
    with pytest.raises(DataError, match="party1 has 10 rows, shop 9"):
        check_aligned([bank, short])
    swapped = PartyFrame("shop", shop.frame.take(np.array([0, 1, 2, 4, 3, 5, 6, 7, 8, 9])))
    with pytest.raises(DataError, match=r"row 4 has another id at shop .* \(2 rows differ\)"):
        check_aligned([bank, swapped])
    nameless = PartyFrame("shop", replace(shop.frame, ids=None))
    check_aligned([bank, nameless])


def test_a_frame_is_consistent(frame: Frame) -> None:
    with pytest.raises(DataError, match="4 column names for columns of shape"):
        replace(frame, names=("a", "b", "c", "d"))
    with pytest.raises(DataError, match="column 'a' is there twice"):
        replace(frame, names=("a", "b", "c", "d", "a"))
    with pytest.raises(DataError, match=r"3 labels for a table of 10 rows"):
        replace(frame, label=np.ones(3))


def test_columns_are_selected_by_name(frame: Frame) -> None:
    assert (frame.select(["d", "a"]).columns == frame.columns[[3, 0]]).all()
    with pytest.raises(DataError, match="no column 'z'; there are 'a', 'b', 'c', 'd', 'e'"):
        frame.select(["a", "z"])
