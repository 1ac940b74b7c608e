"""Validation rows, their labels, and early stopping."""

from __future__ import annotations

import numpy as np
import pytest

from privet.errors import DataError, ParameterError
from privet.spec.params import Params
from privet.spec.plan import Ownership, Plan
from privet.spec.sampling import (
    check_validation_label,
    count_validation_rows,
    decide_early_stop,
    find_best_table_count,
    order_rows,
)


def params(validation: float = 0.25, seed: int = 0, task: str = "regression") -> Params:
    return Params(task=task, validation=validation, seed=seed)


def test_seed_determines_validation_rows() -> None:
    """Fixed results, since all participants must draw the same rows."""
    assert order_rows(12, params()).tolist() == [1, 2, 3, 5, 6, 8, 9, 10, 11, 0, 4, 7]
    assert order_rows(12, params(seed=1)).tolist() != order_rows(12, params()).tolist()


@pytest.mark.parametrize(("rows", "fraction"), [(1000, 0.2), (7, 0.5), (3, 0.33)])
def test_training_rows_come_first_in_input_order(rows: int, fraction: float) -> None:
    order = order_rows(rows, params(fraction))
    count = count_validation_rows(rows, params(fraction))
    assert count == round(fraction * rows)
    assert sorted(order) == list(range(rows))
    assert (np.diff(order[: rows - count]) > 0).all()
    assert (np.diff(order[rows - count :]) > 0).all()


def test_without_validation_rows_keep_their_order() -> None:
    assert order_rows(5, params(0.0)).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("rows", "fraction"), [(10, 0.01), (4, 0.9), (2, 0.5)])
def test_too_few_rows_are_rejected(rows: int, fraction: float) -> None:
    with pytest.raises(DataError, match="at least 2 and 1"):
        count_validation_rows(rows, params(fraction))


def test_patience_needs_validation_rows() -> None:
    with_patience = Params(task="regression", patience=3)
    with pytest.raises(ParameterError, match=r"patience: 3 tables .* set validation"):
        Plan(with_patience, Ownership((0, 1), 1), 10)
    Plan(with_patience, Ownership((0, 1), 1), 10, n_validation=2)


@pytest.mark.parametrize(
    ("task", "label", "message"),
    [
        ("classification", [0, 1, 0, 1, 1], "validation rows are of one class"),
        ("classification", [1, 1, 1, 0, 1], "without the 2 validation rows, .* single class"),
        ("regression", [5, 5, 5, 7, 9], "without the 2 validation rows, .* constant"),
        ("regression", [-1, 0, 1, 0.5, 8.1], "more than 8 times as far from 0"),
    ],
)
def test_invalid_validation_labels_are_rejected(
    task: str, label: list[float], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        check_validation_label(params(task=task), np.array(label, dtype=float), 2)


def test_valid_validation_labels_are_accepted() -> None:
    check_validation_label(params(task="classification"), np.array([0.0, 1.0, 0.0, 1.0]), 2)
    check_validation_label(params(), np.array([-1.0, 0.0, 1.0, 8.0, -8.0]), 2)
    check_validation_label(params(), np.array([1.0]), 0)


def test_best_table_count_is_the_first_of_ties() -> None:
    assert find_best_table_count([3.0, 1.0, 2.0, 1.0]) == 2


@pytest.mark.parametrize(
    ("losses", "kept"),
    [
        ([3.0], 0),
        ([3.0, 2.0, 2.5], 0),
        ([3.0, 2.0, 2.5, 2.0], 2),  # two tables without a smaller loss
        ([3.0, 2.0, 2.5, 1.9], 0),
        ([5.0, 4.0, 3.0, 2.0, 1.0], 5),  # all are trained
        ([5.0, 4.0, 3.0, 2.0, 2.5], 4),
    ],
)
def test_early_stopping(losses: list[float], kept: int) -> None:
    assert decide_early_stop(losses, patience=2, tables=5) == kept
