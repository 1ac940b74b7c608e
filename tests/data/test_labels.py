"""Labels: numbers, or classes of any type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privet.data.columns import ColumnBuilder
from privet.data.encoding import infer_task, prepare_label
from privet.data.frame import Frame
from privet.errors import DataError


def labelled(cells: list[Any]) -> Frame:
    column = ColumnBuilder("y")
    column.append(pa.array(cells))
    empty = np.empty((0, len(cells)))
    return Frame((), empty, label=column.read(), label_schema=column.schema)


@pytest.mark.parametrize(
    ("cells", "positive", "label", "classes"),
    [
        ([0, 1, 1], None, [0, 1, 1], ["0", "1"]),
        ([2, 1, 2], None, [1, 0, 1], ["1", "2"]),
        ([-1, 1, -1], None, [0, 1, 0], ["-1", "1"]),
        (["no", "yes", "no"], None, [0, 1, 0], ["no", "yes"]),
        (["yes", "no", "no"], None, [1, 0, 0], ["no", "yes"]),
        (["good", "bad", "bad"], "bad", [0, 1, 1], ["good", "bad"]),
        ([True, False, True], None, [1, 0, 1], ["false", "true"]),
        ([0, 1, 1], "0", [1, 0, 0], ["1", "0"]),
        ([1.5, 2.5, 1.5], None, [0, 1, 0], ["1.5", "2.5"]),
        ([True, False, True], "False", [0, 1, 0], ["true", "false"]),
        (["2020-01-01", "2021-01-01"], "2020-01-01", [1, 0], ["2021-01-01", "2020-01-01"]),
        (["c", "a", "b", "a"], None, [2, 0, 1, 0], ["a", "b", "c"]),
        ([30, 4, -1, 4], None, [2, 1, 0, 1], ["-1", "4", "30"]),
        (list(range(32)), None, list(range(32)), [str(k) for k in range(32)]),
    ],
)
def test_classes_are_encoded(
    cells: list[Any], positive: str | None, label: list[float], classes: list[str]
) -> None:
    frame, found = prepare_label(labelled(cells), "classification", positive)
    assert frame.label is not None
    assert frame.label.tolist() == label
    assert found == classes


def test_regression_leaves_numbers_unchanged() -> None:
    frame, classes = prepare_label(labelled([1.5, 2.0]), "regression")
    assert frame.label is not None
    assert frame.label.tolist() == [1.5, 2.0]
    assert classes == []


@pytest.mark.parametrize(
    ("cells", "task", "positive", "complaint"),
    [
        (["a", "a"], "classification", None, r"has 1 value, 'a' \(row 1\): a classification"),
        (list(range(33)), "classification", None, r"has 33 values, '0' \(row 1\), .* '7' \(row 8"),
        (list(range(33)), "classification", None, "and 25 more: a classification has 32 classes"),
        (["a", "b", "c"], "classification", "a", "positive: is for two classes, not 3"),
        (["a", "b"], "classification", "c", "the label has no value 'c'; it has 'a', 'b'"),
        (["a", "", "b"], "classification", None, r"label of row 2 is missing; .* \(1 of 3"),
        (["a", "b"], "regression", None, "the label is a category, and a regression needs"),
        ([0, 0.3, 0.1 + 0.2], "classification", None, "both written '0.3', in rows 2 and 3"),
        ([1.0, 2.0], "regression", "1", "positive: a regression has no classes"),
        ([1.0, None], "regression", None, "the label of row 2 is nan"),
        ([1.0, 1.0], "regression", None, "the label is constant"),
    ],
)
def test_invalid_labels_are_rejected(
    cells: list[Any], task: str, positive: str | None, complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        prepare_label(labelled(cells), task, positive)


@pytest.mark.parametrize(
    ("cells", "agreed", "complaint"),
    [
        (
            ["b", "a", "b", "c"],
            2,
            r"has 3 values, 'a' \(row 2\), 'b' \(row 1\), 'c' \(row 4\): all agreed on 2 classes; "
            "set classes = 3 in everybody's job, or put",
        ),
        ([1, 2, 1], 3, "has 2 values, .* agreed on 3 classes; set classes = 2 .*, or get rows of"),
    ],
)
def test_wrong_number_of_classes_is_rejected(cells: list[Any], agreed: int, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        prepare_label(labelled(cells), "classification", n_classes=agreed)
    prepare_label(labelled(cells), "classification", n_classes=len(set(cells)))


def test_task_is_inferred_from_the_label() -> None:
    for cells in ([0, 1], [0, 0], ["a", "b"], [True, False], [0, None, 1]):
        assert infer_task(labelled(cells)) == "classification"
    for numbers in ([1, 2.5], [0, 1, 2], [0.5]):
        assert infer_task(labelled(numbers)) == "regression"
