"""Exported models give the same predictions as Privet in their own runtimes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from catboost import CatBoost, CatBoostClassifier
from sklearn.datasets import load_iris

from privet import Feature, Model, ModelError, UnavailableError
from privet.arrays import FloatArray
from privet.boosting.preparation import prepare_data
from privet.boosting.simulation import train_locally
from privet.data.encoding import encode_frame
from privet.data.frame import Frame
from privet.objectives.classification import Classification
from privet.objectives.metrics import choose_likeliest_class, list_class_probabilities
from privet.objectives.regression import OBJECTIVES
from privet.spec.column_types import ColumnSchema, ColumnType
from privet.spec.params import Params
from privet.storage.export import (
    INPUT_METADATA_KEY,
    INPUT_NAME,
    describe_inputs,
    make_borders,
    save_catboost,
    save_onnx,
    to_catboost,
    to_onnx,
)

CASES = {
    "regression": ("regression", 1, ()),
    "two classes": ("classification", 1, ("no", "yes")),
    "two classes without names": ("classification", 1, ()),
    "several classes": ("classification", 4, ("a", "b", "c", "d")),
    "several classes without names": ("classification", 3, ()),
}


def make_model(case: str, depth: int = 3) -> Model:
    """Return a random model with ordinary and special thresholds."""
    task, outputs, classes = CASES[case]
    rng = np.random.default_rng(depth)
    shape = (9, depth)
    threshold = rng.normal(size=shape)
    for special in (-np.inf, np.inf, 0.0, 1e-60, -1e60, 1e60):
        threshold[rng.random(shape) < 0.1] = special
    return Model(
        task=task,
        features=tuple(Feature(f"column {j}", "bank") for j in range(4)),
        base_score=rng.normal(size=outputs),
        feature=rng.integers(0, 3, shape),  # no split uses the last one
        bucket=np.zeros(shape, dtype=np.intp),
        threshold=threshold,
        leaf_values=3 * rng.normal(size=(9, outputs, 1 << depth)),
        classes=classes,
    )


def make_rows(model: Model, n_samples: int = 3000) -> FloatArray:
    """Return columns with many values at or near thresholds, and missing, zero and huge ones."""
    rng = np.random.default_rng(1)
    columns = rng.normal(size=(len(model.features), n_samples))
    thresholds = model.threshold[np.isfinite(model.threshold)]
    special = np.concatenate(
        (thresholds, np.nextafter(thresholds, 9e99), np.nextafter(thresholds, -9e99), [0.0, -0.0])
    )
    for values, fraction in ((special, 0.4), ([np.nan], 0.1), ([1e70, -1e70], 0.02)):
        chosen = rng.random(columns.shape) < fraction
        columns[chosen] = rng.choice(values, np.count_nonzero(chosen))
    return columns


def run_onnx(model: Model, columns: FloatArray) -> dict[str, Any]:
    proto = to_onnx(model)
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {INPUT_NAME: columns.T}), strict=True))


@pytest.mark.parametrize("depth", [1, 3, 6])
@pytest.mark.parametrize("case", CASES)
def test_onnx_predicts_the_same(case: str, depth: int) -> None:
    model = make_model(case, depth)
    columns = make_rows(model)
    found, expected = run_onnx(model, columns), model.predict(columns)
    if model.task == "regression":
        assert found.keys() == {"prediction"}
        assert np.abs(found["prediction"] - expected).max() < 1e-12
        return
    assert np.abs(found["probabilities"] - list_class_probabilities(expected)).max() < 1e-12
    chosen = choose_likeliest_class(expected)
    assert found["class"].tolist() == (
        [model.classes[k] for k in chosen] if model.classes else chosen.tolist()
    )


@pytest.mark.parametrize("score", [-800.0, -40.0, 0.0, 40.0, 800.0])
@pytest.mark.parametrize("case", ["two classes", "several classes"])
def test_onnx_probabilities_of_extreme_scores(case: str, score: float) -> None:
    model = make_model(case)
    model = replace(model, leaf_values=0 * model.leaf_values, base_score=0 * model.base_score)
    model = replace(model, base_score=model.base_score + score)
    columns = make_rows(model, 2)
    found = run_onnx(model, columns)
    expected = list_class_probabilities(model.predict(columns))
    assert np.abs(found["probabilities"] - expected).max() < 1e-12
    if score == 0:
        assert (
            found["class"].tolist() == [model.classes[-1]] * 2
        )  # the last of equally likely classes


@pytest.mark.parametrize("depth", [1, 3, 6])
@pytest.mark.parametrize("case", CASES)
def test_catboost_predicts_the_same(case: str, depth: int, tmp_path: Path) -> None:
    model, path = make_model(case, depth), tmp_path / "model.json"
    save_catboost(model, path)
    rows = np.clip(make_rows(model), -1e38, 1e38).astype(np.float32)
    expected = model.predict_scores(rows.astype(np.float64))
    loaded = CatBoost().load_model(str(path), format="json")
    raw = loaded.predict(rows.T, prediction_type="RawFormulaVal").reshape(len(rows.T), -1)
    assert np.abs(raw - expected.T).max() < 1e-12
    assert loaded.feature_names_ == list(model.feature_names)
    if model.task == "regression":
        return
    classifier = CatBoostClassifier().load_model(str(path), format="json")
    against_the_rest = classifier.predict_proba(rows.T)
    if len(expected) == 1:
        probabilities = list_class_probabilities(model.predict(rows.astype(np.float64)))
        assert np.abs(against_the_rest - probabilities).max() < 1e-12
    else:
        assert np.abs(against_the_rest - 1 / (1 + np.exp(-expected.T))).max() < 1e-12
    names = model.classes or range(max(2, len(expected)))
    assert list(classifier.classes_) == list(names)


def test_borders_split_floats_like_thresholds() -> None:
    rng = np.random.default_rng(0)
    exact = rng.normal(size=500).astype(np.float32).astype(np.float64)
    thresholds = np.concatenate((rng.normal(size=500), exact, [0.0, 1e-60, -1e-60, 1e39, np.inf]))
    borders = make_borders(thresholds)
    assert (borders == borders.astype(np.float32)).all()
    near = np.clip(thresholds, -3e38, 3e38).astype(np.float32)
    up, down = (np.nextafter(near, np.float32(x)) for x in (np.inf, -np.inf))
    floats = np.concatenate((near, up, down, [np.float32(0)]))[:, None]
    assert ((floats.astype(np.float64) >= thresholds) == (floats > borders)).all()
    # Only missing values go left, which CatBoost treats as less than any number.
    assert make_borders(np.array([-np.inf]))[0] == np.finfo(np.float32).min


def test_columns_of_every_type() -> None:
    """Categories and dates become numbers, which the description of the inputs explains."""
    rng = np.random.default_rng(3)
    jobs, towns = ("clerk", "nurse", "smith", "cook"), ("Ulm", "Bonn", "Jena")
    columns = np.stack(
        (
            rng.integers(0, len(jobs), 300),
            rng.integers(0, len(towns), 300),
            rng.integers(10_000, 11_000, 300),
        )
    ).astype(np.float64)
    columns[:, rng.random(300) < 0.1] = np.nan
    label = np.where(np.isnan(columns[0]), 1.0, columns[0]) + (columns[1] == 2)
    schemas = (
        ColumnSchema(ColumnType("category"), jobs),
        ColumnSchema(ColumnType("category", one_hot=True), towns),
        ColumnSchema(ColumnType("date")),
    )
    frame = Frame(("job", "town", "born"), columns, label=label, schemas=schemas)
    params = Params(task="regression", tables=5, depth=3, buckets=5)
    prepared = prepare_data("bank", frame.to_lazy(), params)
    model = train_locally([prepared.columns], label, params)
    model = replace(model, encoders=prepared.encoders)
    features = encode_frame(frame, prepared.encoders).columns
    found = run_onnx(model, features)["prediction"]
    assert np.abs(found - model.predict(features)).max() < 1e-12

    descriptions = {each["name"]: each for each in json.loads(describe_inputs(model))}
    (stored,) = (
        json.loads(p.value) for p in to_onnx(model).metadata_props if p.key == INPUT_METADATA_KEY
    )
    assert (
        stored
        == json.loads(to_catboost(model)["model_info"][INPUT_METADATA_KEY])
        == [*descriptions.values()]
    )
    assert [each["name"] for each in stored] == list(model.feature_names)
    job, town = descriptions["job"], descriptions["town 1"]
    present = ~np.isnan(columns[0])
    codes = [job["numbers"].get(jobs[int(k)], job["others"]) for k in columns[0, present]]
    assert codes == features[0, present].tolist()
    flags = [float(towns[int(k)] == town["one_for"]) for k in columns[1, present]]
    assert flags == features[1, present].tolist()
    assert not features[1, ~present].any()
    assert descriptions["born"]["number"] == "days since 1970-01-01"


def test_trained_multiclass_model(tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    params = Params(task="classification", classes=3, tables=4, depth=2)
    frame = Frame(("a", "b", "c", "d"), np.ascontiguousarray(X.T), label=y.astype(np.float64))
    model = train_locally(
        [prepare_data("lab", frame.to_lazy(), params).columns], y.astype(np.float64), params
    )
    save_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    found, _ = session.run(None, {INPUT_NAME: X})
    assert (found == choose_likeliest_class(model.predict(X.T))).all()


def test_custom_objective_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubtful(Classification):
        name = "doubtful"

    monkeypatch.setitem(OBJECTIVES, "doubtful", Doubtful())
    model = replace(make_model("two classes"), task="doubtful")
    for convert in (to_onnx, to_catboost):
        with pytest.raises(ModelError, match="doubtful: "):
            convert(model)


def test_missing_onnx_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UnavailableError, match=r"pip install 'privet\[export\]'"):
        save_onnx(make_model("regression"), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
