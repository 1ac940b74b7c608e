from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from privet import (
    DataError,
    ParameterError,
    PrivetClassifier,
    PrivetRegressor,
    load_model,
    save_model,
)

# Checks of scikit-learn that the estimators do not pass, each with its reason.
EXPECTED_FAILURES: dict[str, str] = {}


@pytest.fixture(scope="module")
def cancer() -> tuple[pd.DataFrame, pd.Series]:
    data = load_breast_cancer(as_frame=True)
    return data.data, data.target


@pytest.mark.filterwarnings("default")  # scikit-learn warns about skipped optional checks
@parametrize_with_checks(
    [PrivetClassifier(protocol="plain"), PrivetRegressor(protocol="plain")],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)  # type: ignore[misc]
def test_scikit_learn_conventions(estimator: Any, check: Any) -> None:
    check(estimator)


def test_one_table_or_one_per_party(cancer: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = cancer
    tables = [X.iloc[:, :10], X.iloc[:, 10:20], X.iloc[:, 20:]]
    from_one_table = PrivetClassifier(protocol="plain", partition=3).fit(X, y)
    from_tables = PrivetClassifier(protocol="plain").fit(tables, y)
    assert from_one_table.model_ == from_tables.model_
    assert [f.owner for f in from_tables.model_.features[::10]] == ["party1", "party2", "party3"]
    assert from_tables.n_features_in_ == 30
    assert list(from_tables.feature_names_in_) == list(X.columns)
    assert (from_tables.predict_proba(tables) == from_one_table.predict_proba(X)).all()
    assert (from_tables.predict(X) == from_one_table.predict(X)).all()
    as_arrays = PrivetClassifier(protocol="plain").fit(
        [table.to_numpy() for table in tables], y.to_numpy()
    )
    assert (as_arrays.model_.leaf_values == from_tables.model_.leaf_values).all()
    assert not hasattr(as_arrays, "feature_names_in_")


def test_a_partition_by_name(cancer: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = cancer
    X = X.iloc[:, :4]
    a, b, c, d = X.columns
    model = PrivetClassifier(
        protocol="plain", partition={"clinic": [d, a], "lab": [c], "label": [b]}
    ).fit(X, y)
    assert model.partition_ == {"clinic": [3, 0], "lab": [2], "label": [1]}
    assert [(f.name, f.owner) for f in model.model_.features] == [
        (d, "clinic"),
        (a, "clinic"),
        (c, "lab"),
        (b, "label"),
    ]
    by_position = PrivetClassifier(protocol="plain", partition=[[3, 0], [2], [1]]).fit(X, y)
    assert (by_position.predict_proba(X) == model.predict_proba(X)).all()
    # Importances are in the order of the columns, not of the parties.
    tested = [model.model_.features[i].name for i in model.model_.feature.ravel()]
    shares = [tested.count(name) / len(tested) for name in (a, b, c, d)]
    assert model.feature_importances_.tolist() == pytest.approx(shares)


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (1, "at least 2 parties, got 1"),
        (0, "at least 2 parties, got 0"),
        ([[0, 1, 2]], "at least 2 parties"),
        ([0, 0, 1], "give a number, or the columns of each party"),
        (None, "give a number, or the columns of each party"),
        (2.0, "give a number, or the columns of each party"),
        ({"p": "ab", "q": "c"}, "give a number, or the columns of each party"),
        ([[0, 1], [1, 2]], "column 1 is given to 2 parties"),
        ([[0], [2]], "column 1 is given to 0 parties"),
        ([[0, 1], [2, 3]], "there is no column 3"),
        ([["a"], [1, 2]], "there is no column 'a'"),
        ([[0, 1], [2, -1]], "there is no column -1"),
    ],
)
def test_invalid_partition_is_rejected(partition: Any, message: str) -> None:
    X, y = np.arange(12.0).reshape(4, 3), [0, 1, 0, 1]
    with pytest.raises(ParameterError, match=f"partition: .*{message}"):
        PrivetClassifier(protocol="plain", partition=partition).fit(X, y)


def test_inconsistent_tables_are_rejected() -> None:
    one, two = np.ones((4, 1)), np.ones((5, 2))
    with pytest.raises(DataError, match="party1 has 4 samples, party2 5"):
        PrivetRegressor(protocol="plain").fit([one, two], np.arange(4.0))
    with pytest.raises(DataError, match="at least 2 parties"):
        PrivetRegressor(protocol="plain").fit([two], np.arange(5.0))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        PrivetRegressor(protocol="plain").fit([two, two], np.arange(4.0))
    with pytest.raises(DataError, match="no participant has a feature"):
        PrivetRegressor(protocol="plain").fit([np.ones((4, 0))] * 2, np.arange(4.0))
    fitted = PrivetRegressor(protocol="plain", tables=1).fit([two, two], np.arange(5.0))
    with pytest.raises(DataError, match=r"tables have \[1, 3\] columns, at fit \[2, 2\]"):
        fitted.predict([np.ones((5, 1)), np.ones((5, 3))])


def test_changed_column_names_are_rejected(cancer: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = cancer
    one, two = X.iloc[:, :2], X.iloc[:, 2:4]
    model = PrivetClassifier(protocol="plain", tables=1).fit([one, two], y)
    a, b = one.columns
    with pytest.raises(DataError, match=f"names differ from those at fit: '{b}' for '{a}'"):
        model.predict([one[[b, a]], two])
    with pytest.raises(DataError, match="names differ"):
        model.predict([two, one])
    arrays = [one.to_numpy(), two.to_numpy()]
    assert (model.predict(arrays) == model.predict([one, two])).all()
    with pytest.raises(DataError, match="name all of them or none"):
        model.fit([one.to_numpy(), two], y)
    model.fit([one.to_numpy(), two.to_numpy()], y)
    assert not hasattr(model, "feature_names_in_")


def test_failed_fit_keeps_the_model(cancer: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = cancer
    model = PrivetClassifier(protocol="plain", tables=1).fit(
        X, np.where(y == 1, "benign", "malignant")
    )
    with pytest.raises(ParameterError):
        model.set_params(tables=0).fit(X, np.where(y == 1, "yes", "no"))
    assert set(model.predict(X)) == {"benign", "malignant"}


def test_single_class_is_rejected() -> None:
    with pytest.raises(DataError, match="of a single class, in all 3 rows"):
        PrivetClassifier(protocol="plain").fit(np.arange(6.0).reshape(3, 2), ["yes"] * 3)


def test_parameters_are_passed_to_training(cancer: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = cancer
    assert (
        PrivetRegressor(protocol="plain", tables=1, base_score=7, l2=1).fit(X, y).model_.base_score
        == 7.0
    )
    assert (
        PrivetRegressor(protocol="plain", tables=1, l2=np.float64(2)).fit(X, y).model_.n_tables == 1
    )
    even = PrivetClassifier(protocol="plain", tables=1, l2=1e90).fit(
        X, y
    )  # leaf values of next to nothing
    even.model_ = replace(even.model_, leaf_values=0 * even.model_.leaf_values)
    assert set(even.predict(X)) == {1}  # at even odds, class 1


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0, np.nan, 2.0, 3.0], "NaN"),
        ([1.0, np.inf, 2.0, 3.0], "infinity"),
        ([2.0] * 4, "constant"),
    ],
)
def test_invalid_labels_are_rejected(y: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrivetRegressor(protocol="plain").fit(np.arange(8.0).reshape(4, 2), y)


def test_invalid_parameters_are_rejected_at_fit() -> None:
    X, y = np.arange(8.0).reshape(4, 2), [0, 1, 0, 1]
    bad: dict[str, Any] = {"tables": 0, "depth": 2.5, "l2": -1.0, "buckets": "32"}
    for name, value in bad.items():
        with pytest.raises(ParameterError, match=f"^{name}: "):
            PrivetClassifier(protocol="plain", **{name: value}).fit(X, y)
    with pytest.raises(ParameterError, match=r"protocol: 'magic'"):
        PrivetClassifier(protocol="magic").fit(X, y)


def test_class_labels_can_be_text(cancer: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = cancer
    words = np.where(y == 1, "benign", "malignant")
    model = PrivetClassifier(protocol="plain", tables=5).fit(X, words)
    assert model.classes_.tolist() == ["benign", "malignant"]
    assert set(model.predict(X)) == {"benign", "malignant"}
    assert model.score(X, words) >= 0.97
    proba = model.predict_proba(X)
    assert proba.shape == (569, 2)
    assert np.abs(proba.sum(axis=1) - 1).max() <= 2**-52


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_several_classes(protocol: str) -> None:
    X, y = load_iris(return_X_y=True)
    words = np.array(["setosa", "versicolor", "virginica"])[y]
    model = PrivetClassifier(protocol=protocol, partition=2, tables=3, depth=3).fit(X, words)
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert model.model_.leaf_values.shape == (3, 3, 8)
    assert model.score(X, words) >= 0.97
    proba = model.predict_proba(X)
    assert proba.shape == (150, 3)
    assert np.abs(proba.sum(axis=1) - 1).max() <= 2**-50
    assert (model.classes_[proba.argmax(axis=1)] == model.predict(X)).all()


def test_too_many_classes_are_rejected() -> None:
    with pytest.raises(DataError, match="y has 33 classes, and there are 32 at most"):
        PrivetClassifier(protocol="plain").fit(np.ones((66, 1)), np.arange(66) % 33)


def test_missing_values_are_learned_from() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    y = rng.random(500) < 0.5
    X[y, 0] = np.nan
    assert PrivetClassifier(protocol="plain", tables=1, depth=1).fit(X, y).score(X, y) == 1.0


def test_labels_of_any_scale() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = X[:, 0] * X[:, 1]
    plain = PrivetRegressor(protocol="plain", tables=20).fit(X, y)
    for scale, shift in ((1e-9, 0.0), (1e12, 0.0), (1.0, 1e6)):
        scaled = PrivetRegressor(protocol="plain", tables=20).fit(X, scale * y + shift)
        assert scaled.score(X, scale * y + shift) == pytest.approx(plain.score(X, y), abs=1e-6)


def test_grid_search_and_cross_validation(cancer: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = cancer
    search = GridSearchCV(
        PrivetClassifier(protocol="plain", tables=5), {"depth": np.array([1, 3])}, cv=3
    )
    search.fit(X, y)
    assert search.best_params_["depth"] in (1, 3)
    scores = cross_val_score(
        make_pipeline(StandardScaler(), PrivetClassifier(protocol="plain", tables=10)),
        X,
        y,
        scoring="roc_auc",
        cv=3,
    )
    assert scores.min() >= 0.97
    assert clone(PrivetRegressor(protocol="plain", depth=2)).get_params()["depth"] == 2


def test_fitted_model_can_be_saved(cancer: tuple[pd.DataFrame, pd.Series], tmp_path: Any) -> None:
    X, y = cancer
    model = PrivetClassifier(protocol="plain", tables=3).fit(X, y).model_
    save_model(model, tmp_path / "model.json")
    assert load_model(tmp_path / "model.json") == model


def test_secure_protocols_match_plaintext(cancer: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = cancer
    options: dict[str, Any] = {"tables": 2, "depth": 2, "buckets": 8, "partition": 3}
    plain = PrivetClassifier(protocol="plain", **options).fit(X, y)
    paper = PrivetClassifier(protocol="paper", **options).fit(X, y)
    assert np.abs(paper.predict_proba(X) - plain.predict_proba(X)).mean() < 0.05
    assert abs(paper.score(X, y) - plain.score(X, y)) < 0.02
    default = PrivetClassifier(**options).fit(X, y)
    assert default.protocol == "masked"
    with pytest.raises(ParameterError, match="cuts: the protocol paper has hidden alone"):
        PrivetClassifier(protocol="paper", cuts="exact", **options).fit(X, y)
    hidden = PrivetClassifier(cuts="hidden", **options).fit(X, y)
    assert np.array_equal(hidden.model_.threshold, default.model_.threshold)
    assert np.abs(default.predict_proba(X) - plain.predict_proba(X)).max() < 1e-4


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_contributions(protocol: str) -> None:
    """Contributions are in the order of the input columns, and add up to the score."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = X[:, 3] - 2 * X[:, 0] + 0.1 * X[:, 1]
    estimator = PrivetRegressor(protocol=protocol, partition=[[3, 1], [0, 2]], tables=5, depth=2)
    contributions, base = estimator.fit(X, y).explain(X)
    assert contributions.shape == (80, 4, 1)
    assert base.shape == (1,)
    total = base + contributions.sum(axis=1)
    assert total[:, 0] == pytest.approx(estimator.predict(X), abs=1e-12)
    mean_sizes = np.abs(contributions).mean(axis=(0, 2))
    assert np.argsort(mean_sizes)[::-1][:2].tolist() == [0, 3]
    assert np.corrcoef(contributions[:, 0, 0], X[:, 0])[0, 1] < -0.8
    assert np.corrcoef(contributions[:, 3, 0], X[:, 3])[0, 1] > 0.8


def test_contributions_to_several_classes(cancer: tuple[pd.DataFrame, pd.Series]) -> None:
    X, _ = cancer
    three = np.searchsorted([12.0, 16.0], X["mean radius"])
    fitted = PrivetClassifier(protocol="plain", tables=3, depth=3).fit(X, three)
    contributions, base = fitted.explain(X[:20])
    assert contributions.shape == (20, 30, 3)
    scores = (base + contributions.sum(axis=1)).T
    columns = np.ascontiguousarray(X[:20].to_numpy()[:, fitted._order].T)
    assert scores == pytest.approx(fitted.model_.predict_scores(columns), abs=1e-12)


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_importances_by_gain(protocol: str) -> None:
    """A decisive column has nearly the total gain, even if other columns have many splits."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    X[:, 2] = X[:, 2] > 0
    y = 10 * X[:, 2] + 0.5 * X[:, 0]
    fitted = PrivetRegressor(protocol=protocol, partition=2, tables=3, depth=3)
    fitted.set_params(importance_type="gain").fit(X, y)
    by_gain = fitted.feature_importances_
    assert by_gain.sum() == pytest.approx(1.0)
    assert by_gain[2] > 0.95
    by_split = fitted.set_params(importance_type="split").feature_importances_
    assert by_split[2] < 0.9
    with pytest.raises(ParameterError, match="importance_type: 'cover' is not split or gain"):
        fitted.set_params(importance_type="cover").fit(X, y)


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_eval_set(protocol: str) -> None:
    """Its rows are validation rows: training stops by their loss."""
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(120, 4)), rng.normal(size=(60, 4))
    y, noise = (X[:, 0] > 0).astype(int), rng.integers(0, 2, 60)
    options: dict[str, Any] = {
        "tables": 8,
        "depth": 2,
        "buckets": 8,
        "protocol": protocol,
        "partition": 2,
    }
    fitted = PrivetClassifier(**options)
    fitted.fit(X, y, eval_set=[(new, noise)], early_stopping_rounds=2)
    losses = fitted.evals_result_["validation"]["loss"]
    assert fitted.best_iteration_ == int(np.argmin(losses))
    assert fitted.model_.n_tables == fitted.best_iteration_ + 1
    assert len(losses) == fitted.best_iteration_ + 3 < 8
    unvalidated = PrivetClassifier(**{**options, "tables": fitted.model_.n_tables}).fit(X, y)
    assert (unvalidated.model_.feature == fitted.model_.feature).all()
    assert unvalidated.evals_result_ == {}
    assert unvalidated.best_iteration_ is None


def test_validation_rows_of_an_estimator() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(100, 3))
    fitted = PrivetRegressor(
        tables=3, depth=2, buckets=8, protocol="plain", validation=0.2, partition=2
    ).fit(X, X[:, 0])
    assert len(fitted.evals_result_["validation"]["loss"]) == 3


@pytest.mark.parametrize(
    ("changes", "eval_set", "message"),
    [
        ({}, [1, 2], "one pair of rows"),
        ({}, (np.zeros((2, 3)), ["a", "c"]), "none of y's classes"),
        ({}, (np.zeros((2, 3)), ["a"]), "2 rows and 1 labels"),
        ({"validation": 0.5}, (np.zeros((2, 3)), ["a", "b"]), "leave one of them out"),
    ],
)
def test_invalid_eval_sets_are_rejected(changes: Any, eval_set: Any, message: str) -> None:
    X, y = np.random.default_rng(0).normal(size=(8, 3)), ["a", "b"] * 4
    with pytest.raises(ValueError, match=message):
        PrivetClassifier(protocol="plain", partition=2, **changes).fit(X, y, eval_set=eval_set)
