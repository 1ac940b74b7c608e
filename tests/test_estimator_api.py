"""Further features of estimators: progress, reports, staged predictions, categories, files."""

from __future__ import annotations

import io
import json
import pickle
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import NotFittedError

import privet
from privet import (
    DataError,
    ModelError,
    ParameterError,
    PrivetClassifier,
    PrivetRegressor,
    load_model,
    save_model,
)
from privet.estimators.base import draw_seed
from privet.estimators.report import ProgressBar
from privet.storage import model as model_file


@pytest.fixture(scope="module")
def cancer() -> tuple[pd.DataFrame, pd.Series]:
    data = load_breast_cancer(as_frame=True)
    return data.data, data.target


@pytest.fixture(scope="module")
def shops() -> tuple[pd.DataFrame, pd.Series]:
    """A typical table: numbers, categories of several types, text and dates."""
    rng = np.random.default_rng(0)
    job = rng.choice(["cook", "clerk", "smith"], 400, p=[0.5, 0.3, 0.2])
    floor = rng.integers(1, 5, 400)
    opened = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 400), unit="D")
    X = pd.DataFrame(
        {
            "size": rng.normal(size=400),
            "job": pd.Categorical(job),
            "floor": pd.Categorical(floor),
            "town": rng.choice(["Ulm", "Bonn"], 400),
            "opened": opened,
        }
    )
    X.loc[rng.random(400) < 0.1, "job"] = np.nan
    y = (X["job"] == "clerk") * 3.0 + (floor == 2) * 2 + (X["town"] == "Ulm") + X["size"]
    return X, y + (opened > pd.Timestamp("2021-01-01"))


def test_scores_are_log_odds(cancer: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = cancer
    model = PrivetClassifier(protocol="plain", tables=5).fit(X, y)
    scores = model.decision_function(X)
    assert scores.shape == (569,)
    assert np.abs(1 / (1 + np.exp(-scores)) - model.predict_proba(X)[:, 1]).max() < 1e-12
    X3, y3 = load_iris(return_X_y=True)
    several = PrivetClassifier(protocol="plain", tables=3, partition=2).fit(X3, y3)
    assert several.decision_function(X3).shape == (150, 3)
    assert (several.decision_function(X3).argmax(axis=1) == several.predict(X3)).all()
    assert not hasattr(PrivetRegressor(), "decision_function")


@pytest.mark.parametrize("n_classes", [2, 3])
def test_staged_predictions_of_a_classifier(n_classes: int) -> None:
    X, y = load_iris(return_X_y=True)
    X, y = X[y < n_classes], y[y < n_classes]
    names = np.array(["a", "b", "c"])[y]
    model = PrivetClassifier(protocol="plain", tables=6, partition=2).fit(X, names)
    stages = list(model.staged_predict_proba(X))
    assert len(stages) == 6
    assert np.abs(stages[-1] - model.predict_proba(X)).max() < 1e-12
    for tables, stage in enumerate(stages, start=1):
        smaller = PrivetClassifier(protocol="plain", tables=tables, partition=2).fit(X, names)
        assert np.abs(stage - smaller.predict_proba(X)).max() < 1e-12
    assert (list(model.staged_predict(X))[-1] == model.predict(X)).all()


def test_staged_predictions_of_a_regressor() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = PrivetRegressor(protocol="plain", tables=4).fit(X, y)
    for tables, stage in enumerate(model.staged_predict(X), start=1):
        smaller = PrivetRegressor(protocol="plain", tables=tables).fit(X, y)
        assert stage == pytest.approx(smaller.predict(X), abs=1e-9)


def test_categories_are_fitted(shops: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = shops
    model = PrivetRegressor(protocol="plain", partition=2, tables=60).fit(X, y)
    assert model.score(X, y) > 0.95
    types = [encoder.column_type.name for encoder in model.encoders_]
    assert types == ["number", "category", "category", "category", "time"]
    assert model.encoders_[1].categories == ("cook", "clerk", "smith")
    assert {int(text) for text in model.encoders_[2].categories} == {1, 2, 3, 4}
    splits = [
        model.model_.describe_split(table, level)
        for table in range(60)
        for level in range(model.model_.depth)
    ]
    assert any("job is 'cook'" in split for split in splits)
    # The order of the categories of a pandas column, and unused ones, make no difference.
    mixed = X.assign(job=X["job"].cat.set_categories(["none", "smith", "clerk", "cook"]))
    mixed["floor"] = X["floor"].astype(int).astype("category")
    assert (model.predict(mixed) == model.predict(X)).all()
    tables = [X[["size", "job", "floor"]], X[["town", "opened"]]]
    from_tables = PrivetRegressor(protocol="plain", tables=60).fit(tables, y)
    assert (from_tables.predict(tables) == model.predict(X)).all()


def test_unknown_categories_share_the_last_rank(shops: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = shops
    model = PrivetRegressor(protocol="plain", tables=20, buckets=4).fit(X, y)
    assert (
        model.encoders_[2].categories
        == tuple(  # two of four floors have a separate rank
            str(floor) for floor in X["floor"].value_counts().index[:2]
        )
    )
    unknown = X.assign(floor=pd.Categorical([99] * len(X)))
    rest = X["floor"].value_counts().index[3]
    assert (
        model.predict(unknown) == model.predict(X.assign(floor=pd.Categorical([rest] * 400)))
    ).all()


def test_changed_column_types_are_rejected(shops: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = shops
    model = PrivetRegressor(protocol="plain", tables=1).fit(X, y)
    with pytest.raises(DataError, match="column 'job' holds a number, and was a category"):
        model.predict(X.assign(job=1.0))
    with pytest.raises(DataError, match="column 'size' holds a category, and was a number"):
        model.predict(X.assign(size="small"))
    with pytest.raises(DataError, match="column 'town': cells are of several kinds"):
        model.fit(X.assign(town=[1, "a"] * 200), y)


def test_secure_training_supports_categories(shops: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = shops
    options: dict[str, Any] = {"partition": 2, "tables": 3, "depth": 2, "buckets": 8}
    plain = PrivetRegressor(protocol="plain", **options).fit(X, y)
    secure = PrivetRegressor(**options).fit(X, y)
    assert secure.model_.compare_splits(plain.model_, plain._make_features(X)) == 1.0
    assert np.abs(secure.predict(X) - plain.predict(X)).max() < 1e-3


def test_report_of_secure_training(cancer: tuple[pd.DataFrame, pd.Series]) -> None:
    X, y = cancer
    X = X.rename(columns={X.columns[0]: "<b>radius</b>"})
    model = PrivetClassifier(tables=2, depth=2, buckets=8, partition=2).fit(X, y)
    report = model.report_
    assert (report.protocol, report.params.tables, report.losses) == ("masked", 2, [])
    assert report.seconds > 0
    assert report.rounds > 10
    assert report.bytes_from_dealer > report.bytes_sent > 10_000
    counts = {reveal.what: reveal.count for reveal in report.reveals}
    assert counts["split feature"] == 4
    page = report._repr_html_()
    ElementTree.fromstring(page.replace("<br>", "<br/>").replace(" open>", ">"))  # noqa: S314
    assert "<b>radius" not in page
    for text in ("split feature", "party1, party2", f"{report.rounds:,}", "learning_rate"):
        assert text in page
    leaf = f"{model.model_.leaf_values[0, 0, 0]:.3g}"
    assert f">{leaf}</td>" in page
    assert "leaf" not in json.loads(report.model_dump_json())
    assert "polyline" not in page


def test_report_of_plaintext_training() -> None:
    X, y = load_iris(return_X_y=True)
    model = PrivetClassifier(protocol="plain", tables=12, partition=2, depth=3).fit(X, y)
    assert (model.report_.rounds, model.report_.reveals) == (0, [])
    assert len(model.report_.losses) == 12
    assert model.report_.losses == sorted(model.report_.losses, reverse=True)
    page = model.report_._repr_html_()
    ElementTree.fromstring(page.replace("<br>", "<br/>").replace(" open>", ">"))  # noqa: S314
    assert page.count("<summary>") == 10
    assert "Decision tables, 10 of 12" in page
    (line,) = re.findall('<polyline points="([^"]+)"', page)
    heights = [float(point.split(",")[1]) for point in line.split()]
    assert len(heights) == 12
    assert heights == sorted(heights)  # downwards, as the loss is
    assert pickle.loads(pickle.dumps(model)).report_.losses == model.report_.losses  # noqa: S301


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_in_a_terminal_and_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, log = Terminal(), io.StringIO()
    now = [0.0]
    monkeypatch.setattr("privet.estimators.report.time.monotonic", lambda: now[0])
    bars = [ProgressBar(40, stream) for stream in (terminal, log)]
    for done in range(1, 41):
        now[0] += 2
        for bar in bars:
            bar(done, 0.5 if done < 40 else None)
    for bar in bars:
        bar.close()
    drawn = terminal.getvalue().split("\r")[1:]
    assert len(drawn) == 40
    assert drawn[9] == "[######..................] 10/40 tables, loss 0.50000, 60 s left"
    assert drawn[-1].startswith("[########################] 40/40 tables, 80 s")
    assert len(drawn[-1].rstrip("\n")) >= len(drawn[-2])  # it overwrites the previous line
    assert terminal.getvalue().endswith("\n")
    lines = log.getvalue().splitlines()
    assert [re.findall(r" (\d+)/40", line)[0] for line in lines] == [
        str(4 * k) for k in range(1, 11)
    ]


def test_progress_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    stream = io.StringIO()
    bar = ProgressBar(2, stream)
    bar(1, None)
    bar.close()
    assert stream.getvalue().startswith("\r[############............] 1/2 tables, ")


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_verbose(
    protocol: str, cancer: tuple[pd.DataFrame, pd.Series], capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = cancer
    options: dict[str, Any] = {"protocol": protocol, "tables": 2, "depth": 1, "partition": 2}
    PrivetClassifier(**options).fit(X, y)
    assert capsys.readouterr().err == ""
    PrivetClassifier(verbose=True, **options).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    assert "2/2 tables" in lines[-1]
    assert ("loss" in lines[-1]) == (protocol == "plain")


def test_random_states() -> None:
    assert draw_seed(None) is None
    assert draw_seed(np.int64(7)) == 7
    assert draw_seed(np.random.RandomState(1)) == draw_seed(np.random.RandomState(1))
    X, y = load_iris(return_X_y=True)
    PrivetClassifier(protocol="plain", tables=1, random_state=3).fit(X, y)


CLASSES = {
    "words": np.array(["setosa", "versicolor", "virginica"]),
    "objects": np.array(["a", "b", "c"], dtype=object),
    "numbers": np.array([3, 5, 8], dtype=np.int32),
    "doubles": np.array([3.0, 5.0, 8.0]),
}


@pytest.mark.parametrize("kind", [*CLASSES, "truth values"])
def test_classifier_round_trip(kind: str, tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    label = y > 0 if kind == "truth values" else CLASSES[kind][y]
    partition = {"lab": ["c", "a"], "field": ["b", "d"]}
    model = PrivetClassifier(protocol="plain", tables=3, partition=partition, random_state=5)
    model.fit(pd.DataFrame(X, columns=list("abcd")), label)
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert type(loaded) is PrivetClassifier
    assert loaded.get_params() == model.get_params()
    assert loaded.partition_ == model.partition_
    assert loaded.model_ == model.model_
    assert loaded.classes_.dtype == model.classes_.dtype
    table = pd.DataFrame(X, columns=list("abcd"))
    assert (loaded.predict(table) == model.predict(table)).all()
    assert (loaded.predict_proba(table) == model.predict_proba(table)).all()
    assert list(loaded.feature_names_in_) == list("abcd")
    assert loaded.feature_importances_.tolist() == model.feature_importances_.tolist()
    clone(loaded).fit(table, label)
    # The file of an estimator is also a file of its model.
    assert model_file.read_model_file(tmp_path / "model.json") == model.model_


def test_regressor_round_trip(shops: tuple[pd.DataFrame, pd.Series], tmp_path: Path) -> None:
    X, y = shops
    model = PrivetRegressor(protocol="plain", tables=5, depth=np.int64(3)).fit(X, y)
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert type(loaded) is PrivetRegressor
    assert (loaded.predict(X) == model.predict(X)).all()
    arrays = PrivetRegressor(protocol="plain", tables=2).fit(X[["size"]].to_numpy(), y)
    save_model(arrays, tmp_path / "arrays.json")
    loaded = load_model(tmp_path / "arrays.json")
    assert not hasattr(loaded, "feature_names_in_")
    assert (loaded.predict(X[["size"]].to_numpy()) == arrays.predict(X[["size"]].to_numpy())).all()


def test_unsavable_estimators_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        save_model(PrivetRegressor(), tmp_path / "m")
    X, y = load_diabetes(return_X_y=True)
    state = np.random.RandomState(0)
    model = PrivetRegressor(protocol="plain", tables=1, random_state=state).fit(X, y)
    with pytest.raises(ParameterError, match="random_state: RandomState cannot be saved"):
        save_model(model, tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "transformer"}, "damaged: estimator.kind"),
        ({"parameters": {"colour": "red"}}, "cannot be made here: .*'colour'"),
        ({"partition": {"party1": [0, 1], "party2": [1, 2]}}, "columns are not the model's"),
        ({"partition": {"party2": [0, 1], "party1": [2, 3]}}, "columns are not the model's"),
        ({"feature_names": ["a", "b", "c", "e"]}, "names are not the model's"),
        ({"feature_names": ["a"] * 4}, "names are not the model's"),
        ({"classes": ["x", "y", "z"]}, "classes are not the model's"),
        ({"class_type": "O8; import os"}, "damaged: estimator.class_type"),
    ],
)
def test_invalid_estimator_files_are_rejected(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    X, y = load_iris(return_X_y=True)
    table = pd.DataFrame(X, columns=list("abcd"))
    model = PrivetClassifier(protocol="plain", tables=1, partition=2).fit(table, y)
    path = tmp_path / "model.json"
    save_model(model, path)
    record = json.loads(path.read_text())
    record["estimator"].update(changes)
    path.write_text(json.dumps(record))
    with pytest.raises(ModelError, match=message):
        load_model(path)


def test_model_without_class_names_round_trip(
    cancer: tuple[pd.DataFrame, pd.Series], tmp_path: Path
) -> None:
    X, y = cancer
    model = PrivetClassifier(protocol="plain", tables=1).fit(X, y).model_
    assert model.classes == ("0", "1")
    save_model(replace(model, classes=()), tmp_path / "m")
    assert load_model(tmp_path / "m") == replace(model, classes=())


def test_public_names() -> None:
    assert dir(privet) == sorted(privet.__all__)
    assert all(getattr(privet, name) is not None for name in dir(privet))
