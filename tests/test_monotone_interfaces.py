"""Monotone constraints of estimators and of `privet simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from typer.testing import CliRunner

from privet import ParameterError, PrivetClassifier, PrivetRegressor, load_model, save_model
from privet.cli.app import app

OPTIONS: dict[str, Any] = {"tables": 4, "depth": 3, "partition": 2}


@pytest.fixture(scope="module")
def diabetes() -> tuple[pd.DataFrame, pd.Series]:
    data = load_diabetes(as_frame=True)
    return data.data, data.target


def compute_differences(estimator: Any, X: pd.DataFrame, column: str) -> np.ndarray:
    """Predict rows with increasing values of one column, missing first; return the differences."""
    grid = [np.nan, *np.linspace(X[column].min() - 1, X[column].max() + 1, 60)]
    predictions = []
    for value in grid:
        rows = X.iloc[:40].copy()
        rows[column] = value
        predictions.append(
            estimator.predict_proba(rows)[:, 1]
            if hasattr(estimator, "predict_proba")
            else estimator.predict(rows)
        )
    return np.diff(predictions, axis=0)


@pytest.mark.parametrize("protocol", ["masked", "plain"])
@pytest.mark.parametrize(
    "constraints",
    [{"bmi": -1, "s5": 1}, {2: -1, np.int64(8): 1}, [0, 0, -1, 0, 0, 0, 0, 0, 1, 0]],
)
def test_regressor(
    diabetes: tuple[pd.DataFrame, pd.Series], protocol: str, constraints: Any
) -> None:
    """Constraints by name, by position, and for every column; that of bmi contradicts the data."""
    X, y = diabetes
    free = PrivetRegressor(protocol=protocol, **OPTIONS).fit(X, y)
    assert (compute_differences(free, X, "bmi") > 0).any()
    fitted = clone(PrivetRegressor(protocol=protocol, monotone_constraints=constraints, **OPTIONS))
    fitted.fit(X, y)
    assert (compute_differences(fitted, X, "bmi") <= 0).all()
    assert (compute_differences(fitted, X, "s5") >= 0).all()
    assert (compute_differences(fitted, X, "s5") > 0).any()


def test_classifier_with_a_partition(
    diabetes: tuple[pd.DataFrame, pd.Series], tmp_path: Path
) -> None:
    """With a partition that reorders the columns, and with a saved estimator."""
    X, y = diabetes
    partition = [["s5", "age", "s1"], [name for name in X if name not in ("s5", "age", "s1")]]
    estimator = PrivetClassifier(
        tables=4, depth=3, partition=partition, monotone_constraints={"bmi": -1, "s5": -1}
    )
    estimator.fit(X, y > y.median())
    for column in ("bmi", "s5"):
        assert (compute_differences(estimator, X, column) <= 0).all()
    save_model(estimator, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.monotone_constraints == {"bmi": -1, "s5": -1}


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ({"height": 1}, "there is no column 'height'"),
        ({12: 1}, "there is no column 12"),
        ({"bmi": 2}, "2 of column 'bmi' is none of 1, -1 and 0"),
        ({"bmi": True}, "True of column 'bmi' is none of"),
        ([1, 0], "give 1, -1 or 0 for each of 10 columns"),
        ("bmi", "give 1, -1 or 0 for each of 10 columns"),
    ],
)
def test_estimators_reject_invalid_constraints(
    diabetes: tuple[pd.DataFrame, pd.Series], constraints: Any, message: str
) -> None:
    X, y = diabetes
    with pytest.raises(ParameterError, match=message):
        PrivetRegressor(monotone_constraints=constraints, **OPTIONS).fit(X, y)


def test_categories_and_several_classes_are_rejected(
    diabetes: tuple[pd.DataFrame, pd.Series],
) -> None:
    X, y = diabetes
    X = X.assign(town=pd.Categorical(np.where(X["age"] > 0, "Ulm", "Bonn")))
    with pytest.raises(ParameterError, match="column 'town' holds categories"):
        PrivetRegressor(monotone_constraints={"town": 1}, **OPTIONS).fit(X, y)
    with pytest.raises(ParameterError, match="3 classes have no score"):
        PrivetClassifier(monotone_constraints={"bmi": 1}, **OPTIONS).fit(X, pd.qcut(y, 3).cat.codes)


@pytest.fixture
def table(diabetes: tuple[pd.DataFrame, pd.Series], tmp_path: Path) -> Path:
    X, y = diabetes
    path = tmp_path / "table.csv"
    X.assign(label=y, town=np.where(X["age"] > 0, "Ulm", "Bonn")).to_csv(path, index=False)
    return path


def simulate(table: Path, *more: str) -> Any:
    command = ["simulate", "--data", str(table), "--tables", "3", "--depth", "3", "--parties", "2"]
    return CliRunner().invoke(app, [*command, "--network", "memory", *more])


def test_simulate(table: Path, tmp_path: Path) -> None:
    saved = tmp_path / "model"
    done = simulate(table, "--monotone", "bmi=-1", "--monotone", "s5=+1", "--save", str(saved))
    assert done.exit_code == 0, done.exception
    model = load_model(saved)
    signs = [{"bmi": -1, "s5": 1}.get(name, 0) for name in model.feature_names]
    for features, leaves in zip(model.feature, model.leaf_values, strict=True):
        for level, feature in enumerate(features):
            assert (np.diff(leaves.reshape(1 << level, 2, -1), axis=1) * signs[feature] >= 0).all()
    assert {model.feature_names[j] for j in model.feature.ravel()} & {"bmi", "s5"}


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("bmi", "'bmi' is not a column and 1 or -1, as income=1"),
        ("bmi=2", "'bmi=2' is not a column and 1 or -1"),
        ("height=1", "monotone: there is no feature 'height'; there are 'age'"),
        ("town=1", "monotone: column 'town' holds categories"),
    ],
)
def test_simulate_rejects_invalid_constraints(table: Path, typed: str, message: str) -> None:
    assert message in str(simulate(table, "--monotone", typed).exception)


def test_comparison_does_not_support_constraints(table: Path) -> None:
    compared = CliRunner().invoke(
        app, ["simulate", "--data", str(table), "--compare", "--monotone", "bmi=1"]
    )
    assert "monotone: participants are compared" in str(compared.exception)
