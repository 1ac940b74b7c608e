from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privet import DataError, Frame, ParameterError
from privet.data.frame import Ids
from privet.data.partition import (
    ColumnPartition,
    PartyFrame,
    assign_columns,
    check_same_rows,
    split_by_ownership,
    split_frame,
    split_rows,
    spread_columns_evenly,
)


@pytest.fixture
def frame() -> Frame:
    return Frame(
        names=("a", "b", "c", "d", "e"),
        columns=np.arange(50.0).reshape(5, 10),
        ids=Ids.from_texts(range(10)),
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
def test_split_without_train_or_test_rows_is_rejected(frame: Frame, test_size: float) -> None:
    with pytest.raises(ParameterError, match=r"^test-size: "):
        split_rows(frame, test_size)


def test_too_few_rows_to_split(frame: Frame) -> None:
    with pytest.raises(DataError, match="3 rows are too few"):
        split_rows(frame.take(np.arange(3)))


@pytest.mark.parametrize("seed", range(5))
def test_stratified_parts_have_the_same_classes(frame: Frame, seed: int) -> None:
    rare = np.zeros(200)
    rare[:20] = 1
    table = Frame(("a",), np.arange(200.0)[None], label=rare)
    train, test = split_rows(table, 0.25, seed, stratify=True)
    assert train.label is not None
    assert test.label is not None
    assert (train.label.sum(), test.label.sum()) == (15, 5)
    assert sorted([*train.columns[0], *test.columns[0]]) == list(range(200))


def test_unstratified_split_never_changes(frame: Frame) -> None:
    """Published results depend on these rows."""
    assert split_rows(frame, 0.2, seed=0)[1].columns[0].tolist() == [2.0, 8.0]


def test_a_class_of_one_row_cannot_be_in_both_parts(frame: Frame) -> None:
    lone = replace(frame, label=np.array([1.0] + [0.0] * 9))
    with pytest.raises(DataError, match=r"the label 1 is that of row 1 alone.* do not stratify"):
        split_rows(lone, stratify=True)
    with pytest.raises(DataError, match=r"the label 'ill' is that of row 1 alone"):
        split_rows(lone, stratify=True, classes=["well", "ill"])
    with pytest.raises(DataError, match="no label to stratify by"):
        split_rows(replace(frame, label=None), stratify=True)
    with pytest.raises(ParameterError, match=r"^test-size: .*number of classes"):
        split_rows(replace(frame, label=np.arange(10.0) % 2), 0.1, stratify=True)


def test_every_named_class_has_training_rows(frame: Frame) -> None:
    """Rows 3 and 9 are the test rows of this split."""
    label = np.zeros(10)
    label[4], label[8] = 1, 2
    complaint = "all rows with the label 'elm' were set aside for testing: get more .*, or stratify"
    with pytest.raises(DataError, match=complaint):
        split_rows(replace(frame, label=label), classes=["ash", "oak", "elm"])
    label[8], label[5] = 0, 2
    split_rows(replace(frame, label=label), classes=["ash", "oak", "elm"])


def test_columns_are_spread_evenly_with_the_label_at_the_last(frame: Frame) -> None:
    parties = split_frame(frame, 3)
    assert [party.name for party in parties] == ["party1", "party2", "party3"]
    assert [party.frame.names for party in parties] == [("a", "b"), ("c", "d"), ("e",)]
    assert [party.frame.label is None for party in parties] == [True, True, False]
    check_same_rows(parties)
    joined = np.concatenate([party.frame.columns for party in parties])
    assert (joined == frame.columns).all()


def test_even_split_may_leave_the_label_holder_no_column(frame: Frame) -> None:
    assert split_frame(frame, 6)[-1].frame.names == ()
    with pytest.raises(ParameterError, match="5 columns do not go round 6 passive parties"):
        split_frame(frame, 7)
    with pytest.raises(ParameterError, match="at least 2"):
        split_frame(frame, 1)


def test_columns_are_assigned_by_name_and_by_pattern() -> None:
    names = ["age", "income", "spent_mon", "spent_tue", "visits", "zip"]
    patterns = {"bank": ["income", "age"], "shop": ["spent_???", "vis*"], "nobody": ["zip"]}
    assert assign_columns(names, patterns) == {
        "bank": ("age", "income"),
        "shop": ("spent_mon", "spent_tue", "visits"),
    }
    assert [*assign_columns(names, patterns, active="bank")] == ["shop", "bank"]


def test_brackets_in_a_pattern_are_characters_of_a_name() -> None:
    patterns = {"bank": ["x[1]"], "shop": ["x[2*"]}
    assert assign_columns(["x[1]", "x[2]", "x[2]b"], patterns) == {
        "bank": ("x[1]",),
        "shop": ("x[2]", "x[2]b"),
    }
    starred = {"bank": ["a*"], "shop": ["ab"]}  # an exact name takes precedence over a pattern
    assert assign_columns(["a*", "ab"], starred) == {"bank": ("a*",), "shop": ("ab",)}


def test_only_the_label_holder_may_have_no_column() -> None:
    assert assign_columns(["a"], {"bank": [], "shop": ["a"]}, "bank") == {
        "shop": ("a",),
        "bank": (),
    }
    with pytest.raises(ParameterError, match="bank has neither a column nor the label: leave it"):
        assign_columns(["a"], {"bank": [], "shop": ["a"]})
    assert [*spread_columns_evenly(["a", "b", "c"], 3, "party1")] == ["party2", "party3", "party1"]
    with pytest.raises(ParameterError, match="party3 has neither a column nor the label"):
        spread_columns_evenly(["a", "b"], 3, "party2")


@pytest.mark.parametrize(
    ("patterns", "complaint"),
    [
        ({"bank": ["a"], "shop": ["b"]}, "'c' left over: .* or drop it by giving it to 'nobody'"),
        ({"bank": ["a", "b"], "shop": ["b", "c"]}, "'b' is given twice, to bank .* to shop"),
        ({"bank": ["*"], "shop": ["c"]}, r"'c' is given twice, to bank by '\*' and to shop by 'c'"),
        (
            {"bank": ["a", "?"], "shop": []},
            r"'a' is given twice, to bank by 'a' and to bank by '\?'",
        ),
        (
            {"bank": ["a*"], "shop": ["d*"]},
            r"'d\*' of shop stands for no column; there are 'a', 'b'",
        ),
        ({"bank": ["a", "label"], "shop": ["b"]}, "'label' of bank .*the label and the id are not"),
        ({"bank": ["*"]}, "at least 2 participants, here it has 'bank'"),
        ({"nobody": ["a", "b"], "shop": ["c"]}, "at least 2 participants, here it has 'shop'"),
        ({"dealer": ["a"], "shop": ["b", "c"]}, "'dealer' is the dealer's name"),
        ({"a bank": ["a"], "shop": ["b", "c"]}, "name: 'a bank' is none"),
    ],
)
def test_invalid_assignments_are_rejected(patterns: dict[str, list[str]], complaint: str) -> None:
    with pytest.raises(ParameterError, match=complaint):
        assign_columns(["a", "b", "c"], patterns)


def test_unknown_label_holder_is_rejected() -> None:
    with pytest.raises(ParameterError, match="active: 'spa' is none of bank, shop"):
        assign_columns(["a", "b"], {"bank": ["a"], "shop": ["b"]}, "spa")


def test_table_is_split_by_ownership(frame: Frame) -> None:
    bank, shop = split_by_ownership(frame, {"bank": ("e", "a"), "shop": ("c",)})
    assert (bank.name, bank.frame.names, bank.frame.label) == ("bank", ("e", "a"), None)
    assert (bank.frame.columns == frame.columns[[4, 0]]).all()
    assert shop.frame.label is frame.label
    check_same_rows([bank, shop])


def test_a_partition_file(tmp_path: Path) -> None:
    path = tmp_path / "who.toml"
    path.write_text('active = "bank"\n[columns]\nbank = ["age"]\nshop = ["spent*"]\n')
    assert ColumnPartition.read(path) == ColumnPartition(
        columns={"bank": ["age"], "shop": ["spent*"]}, active="bank"
    )
    path.write_text('[columns]\nbank = "age"\n')
    with pytest.raises(ParameterError, match=r"who.toml: columns\.bank: .*list"):
        ColumnPartition.read(path)


def test_misaligned_parties_are_rejected(frame: Frame) -> None:
    bank, shop = split_frame(frame, 2)
    short = PartyFrame("shop", shop.frame.take(np.arange(9)))
    with pytest.raises(DataError, match="party1 has 10 rows, shop 9"):
        check_same_rows([bank, short])
    swapped = PartyFrame("shop", shop.frame.take(np.array([0, 1, 2, 4, 3, 5, 6, 7, 8, 9])))
    with pytest.raises(DataError, match=r"row 4 has another id at shop .* \(2 rows differ\)"):
        check_same_rows([bank, swapped])
    without_ids = PartyFrame("shop", replace(shop.frame, ids=None))
    check_same_rows([bank, without_ids])


def test_inconsistent_frame_is_rejected(frame: Frame) -> None:
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


def test_repr_of_a_frame_shows_no_data(frame: Frame) -> None:
    assert "label" not in repr(frame)
    assert "array" not in repr(frame)
