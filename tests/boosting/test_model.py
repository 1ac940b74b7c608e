from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privet import DataError, Feature, Model, ModelError


@pytest.fixture
def model() -> Model:
    return Model(
        task="regression",
        features=(Feature("age", "bank"), Feature("visits", "shop")),
        base_score=np.array([100.0]),
        feature=np.array([[0, 1], [1, 0]]),
        bucket=np.array([[3, 0], [2, 9]]),
        threshold=np.array([[30.0, -np.inf], [5.0, np.inf]]),
        leaf_values=np.array([[[1.0, 2.0, 3.0, 4.0]], [[10.0, 20.0, 30.0, 40.0]]]),
    )


def test_leaf_index_is_the_binary_number_of_outcomes(model: Model) -> None:
    nan = np.nan
    columns = np.array(
        # age          visits
        [[29.0, 30.0, nan, 99.0], [nan, nan, 4.0, 5.0]]
    )
    assert model.find_leaf_indices(columns).tolist() == [[0, 2, 1, 3], [0, 0, 0, 2]]
    assert model.predict_scores(columns).tolist() == [[111.0, 113.0, 112.0, 134.0]]


def test_scores_do_not_depend_on_block_size(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = np.random.default_rng(0).normal(20, 20, (2, 1000))
    scores = model.predict_scores(columns)
    assert scores.shape == (1, 1000)
    monkeypatch.setattr("privet.boosting.model._BLOCK", 14)
    assert (model.predict_scores(columns) == scores).all()


def test_classifier_predicts_probabilities(model: Model) -> None:
    columns = np.array([[29.0], [4.0]])
    classifier = replace(model, task="classification", base_score=np.array([-12.0]))
    assert classifier.predict_scores(columns).tolist() == [[0.0]]
    assert classifier.predict(columns).tolist() == [0.5]
    assert model.predict(columns).tolist() == model.predict_scores(columns)[0].tolist()


def test_importances_count_splits(model: Model) -> None:
    """A level at which all rows go left is not counted."""
    assert model.compute_importances() == pytest.approx([1 / 3, 2 / 3])


def test_describe_split(model: Model) -> None:
    words = [model.describe_split(table, level) for table in (0, 1) for level in (0, 1)]
    assert words == ["age < 30", "visits is missing", "visits < 5", "age: any value"]


def test_wrong_column_shape_is_rejected(model: Model) -> None:
    with pytest.raises(ModelError, match=r"2 features, a row each; the data .* \(3, 4\)"):
        model.predict(np.ones((3, 4)))
    with pytest.raises(ModelError, match=r"the shape \(3,\)"):
        model.predict_scores(np.ones(3))


def test_model_arrays_are_read_only_copies(model: Model) -> None:
    values, base = np.zeros((2, 1, 4)), np.zeros(1)
    copied = replace(model, leaf_values=values, base_score=base)
    values[:] = base[:] = 1
    assert copied.leaf_values.sum() == copied.base_score.sum() == 0
    for array in (copied.leaf_values, copied.base_score):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bucket": np.zeros((2, 3), int)}, "differ in number"),
        ({"leaf_values": np.zeros((2, 1, 2))}, "2 tests need 4 leaf values"),
        ({"leaf_values": np.zeros((2, 4))}, "2 tests need 4 leaf values"),
        ({"leaf_values": np.zeros((2, 2, 4))}, "2 tests need 4 leaf values"),
        ({"base_score": np.zeros(2)}, "a regression does not have 2 outputs"),
        ({"base_score": 0.0}, "base scores are not one number for each output"),
        ({"task": "ranking"}, "'ranking' is none of regression, classification"),
        ({"feature": np.full((2, 2), 2)}, "not one of the 2"),
        ({"feature": np.full((2, 2), -1)}, "not one of the 2"),
        ({"bucket": np.full((2, 2), -1)}, "negative bucket"),
        ({"threshold": np.full((2, 2), np.nan)}, "not a number"),
        ({"leaf_values": np.full((2, 1, 4), np.inf)}, "not finite"),
        ({"base_score": np.array([np.nan])}, "not finite"),
        ({"base_score": np.array([1e101])}, "too large"),
        ({"features": (Feature("a", "b"), Feature("a", "b"))}, "same name and owner"),
        ({"feature": np.zeros((0, 2), int)}, "at least one table"),
    ],
)
def test_invalid_model_is_rejected(model: Model, change: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        replace(model, **change)  # type: ignore[arg-type]


def test_models_are_compared_by_value(model: Model) -> None:
    assert model == replace(model, threshold=model.threshold.copy())
    assert model != replace(model, base_score=np.zeros(1))
    assert model != replace(model, leaf_values=model.leaf_values + 1)
    assert model != 3


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[2Jgone"])
def test_unprintable_names_are_rejected(name: str) -> None:
    with pytest.raises(DataError, match="cannot be the name"):
        Feature(name, "bank")
    with pytest.raises(DataError, match="cannot be the name"):
        Feature("age", name)


def test_compare_splits_ignores_equivalent_splits() -> None:
    features = tuple(Feature(name, "bank") for name in "abcd")
    x = np.random.default_rng(0).normal(size=(4, 50))
    x[1], x[2] = 10 * x[0] + 3, -x[0]

    def make_model(feature: int, threshold: float) -> Model:
        split = np.array([[feature]]), np.array([[0]]), np.array([[threshold]])
        return Model("regression", features, np.zeros(1), *split, np.zeros((1, 1, 2)))

    first = make_model(0, 0.5)
    assert first.compare_splits(first, x) == 1.0
    assert first.compare_splits(make_model(1, 8.0), x) == 1.0  # a copy in another unit
    assert first.compare_splits(make_model(2, -0.5), x) == 1.0  # left is right
    assert first.compare_splits(make_model(3, 0.5), x) == 0.0
    next_value = x[0][x[0] > 0.5].min()
    moved = replace(make_model(0, next_value + 1e-9), bucket=np.array([[1]]))
    assert first.compare_splits(moved, x) == 0.0  # one row goes to the other side
