from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet import DataError, Params
from privet.boosting.objective import (
    check_label,
    gradients,
    initial_score,
    mean_loss,
    sigmoid,
)
from privet.config import Task

TASKS: tuple[Task, ...] = ("regression", "classification")


@pytest.mark.parametrize(
    ("label", "task", "complaint"),
    [
        ([1.0], "regression", "1 row.*at least 2"),
        ([], "regression", "0 row"),
        ([1.0, np.nan, np.nan], "regression", r"row 2 is nan.*\(2 of 3"),
        ([0.0, 1.0, np.inf], "classification", "row 3 is inf"),
        ([3.0, 3.0], "regression", "constant, 3, in all 2 rows"),
        ([3.0, -1e101], "regression", "row 2 is -1e.101; above 1e.100"),
        ([1.0, 1.0, 1.0], "classification", "single class"),
        ([0.0, 1.0, 2.0], "classification", "row 3 is 2; .* needs 0 and 1"),
    ],
)
def test_labels_that_cannot_be_learned(label: list[float], task: Task, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        check_label(np.array(label), task)


def test_a_label_is_one_column() -> None:
    with pytest.raises(DataError, match=r"one column, not of shape \(3, 2\)"):
        check_label(np.ones((3, 2)), "regression")


@given(st.floats(-20, 20), st.sampled_from([0.0, 1.0]), st.sampled_from(TASKS))
def test_gradients_are_the_derivatives_of_the_loss(score: float, label: float, task: Task) -> None:
    y = np.array([label])
    step = 1e-5

    def at(x: float) -> tuple[float, float]:
        g, _ = gradients(np.array([x]), y, task)
        return mean_loss(np.array([x]), y, task), g[0]

    g, h = gradients(np.array([score]), y, task)
    (loss_up, g_up), (loss_down, g_down) = at(score + step), at(score - step)
    # A central difference is off by step^2/6 times the third derivative of the loss (at most 0.1),
    # and by the rounding of the loss (at most 400, in double precision) over 2 * step.
    rounding = 2**-53 * 400 / step
    assert abs((loss_up - loss_down) / (2 * step) - g[0]) <= step**2 / 60 + rounding
    assert abs((g_up - g_down) / (2 * step) - h[0]) <= step**2 / 6 + rounding


def test_the_sigmoid_holds_at_both_ends() -> None:
    with np.errstate(all="raise"):
        assert sigmoid(np.array([-1e4, 0.0, 1e4])).tolist() == [0.0, 0.5, 1.0]


def test_the_first_score() -> None:
    label = np.array([1.0, 2.0, 6.0])
    assert initial_score(label, Params(task="regression")) == 3.0
    assert initial_score(label, Params(task="regression", base_score=0.0)) == 0.0
    assert initial_score(np.array([0.0, 1.0, 1.0]), Params(task="classification")) == 0.0
