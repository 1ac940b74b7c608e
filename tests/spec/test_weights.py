"""Sample weights and class weights."""

from __future__ import annotations

import numpy as np
import pytest

from privet.arrays import FloatArray
from privet.errors import DataError
from privet.objectives.regression import create_objective
from privet.spec.sampling import (
    MAX_SAMPLE_WEIGHT,
    check_and_normalise_weights,
    compute_class_sample_weights,
    normalise_weights,
)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_weights_are_relative(scale: float) -> None:
    normalised = normalise_weights(np.array([1.0, 0.0, 3.0]) * scale)
    assert normalised == pytest.approx([0.75, 0.0, 2.25])


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0, -1.0], r"weight of row 2 is -1; .* 0 or more, and finite \(1 of 2 are not\)"),
        ([np.nan, 1.0], "weight of row 1 is nan"),
        ([1.0, np.inf], "weight of row 2 is inf"),
        ([0.0, 0.0], "all 2 weights are zero"),
        ([1.0] + [0.0] * MAX_SAMPLE_WEIGHT, "row 1 is 4,097 times the mean, .* up to 4,096 times"),
    ],
)
def test_invalid_weights_are_rejected(weight: list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        normalise_weights(np.array(weight))


def test_largest_weight_is_accepted() -> None:
    normalised = normalise_weights(np.array([1.0] + [0.0] * (MAX_SAMPLE_WEIGHT - 1)))
    assert normalised.max() == MAX_SAMPLE_WEIGHT


@pytest.mark.parametrize(
    ("label", "weight", "classes", "message"),
    [
        ([0, 1, 1], [0, 1, 1], 2, "without rows that have the weight 0, .* a single class"),
        ([0, 1, 2], [1, 1, 0], 3, "without rows that have the weight 0, no row of 2 has .* 2"),
        ([0, 1, 0], [1, 0, 0], 2, "training needs at least 2 samples"),
    ],
)
def test_class_without_weight_is_rejected(
    label: list[float], weight: list[float], classes: int, message: str
) -> None:
    objective = create_objective("classification", classes)
    with pytest.raises(DataError, match=message):
        check_and_normalise_weights(
            np.array(weight, dtype=float), np.array(label, dtype=float), objective
        )


def test_class_weights() -> None:
    label = np.array([0.0, 0.0, 0.0, 1.0])
    balanced: FloatArray = compute_class_sample_weights(label, ["no", "yes"], "balanced")
    assert balanced == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2.0])
    assert compute_class_sample_weights(label, ["no", "yes"], {"yes": 10.0}).tolist() == [
        1,
        1,
        1,
        10,
    ]
    with pytest.raises(DataError, match="class_weight: the label has no class 'maybe'"):
        compute_class_sample_weights(label, ["no", "yes"], {"maybe": 1.0})
