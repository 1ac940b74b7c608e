from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet import Feature, Model, ModelError, UnavailableError, load_model, save_model
from privet.storage import json_records

MODEL = Model(
    task="classification",
    features=(Feature("age", "bank"), Feature("größe [m]", "shop")),
    base_score=np.array([-0.1]),
    feature=np.array([[0, 1], [1, 0]]),
    bucket=np.array([[3, 0], [254, 9]]),
    threshold=np.array([[1 / 3, -np.inf], [np.nextafter(1, 2), np.inf]]),
    leaf_values=np.array([[[5e-324, -1e100, 0.1, -0.0]], [[1.0, 2.0, 3.0, 4.0]]]),
)


def test_model_is_read_back_exactly(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    save_model(MODEL, path)
    assert load_model(path) == MODEL
    assert load_model(path).leaf_values.tobytes() == MODEL.leaf_values.tobytes()
    assert [p.name for p in tmp_path.iterdir()] == ["model.json"]


def test_leaf_values_are_kept_by_output(tmp_path: Path) -> None:
    save_model(MODEL, tmp_path / "model.json")
    record = json.loads((tmp_path / "model.json").read_text())
    assert (record["version"], record["base_score"]) == (4, [-0.1])
    assert record["tables"][1]["leaf_values"] == [[1.0, 2.0, 3.0, 4.0]]


def test_left_fractions_are_kept(tmp_path: Path) -> None:
    model = replace(MODEL, left_fraction=np.array([[1 / 3, 0.0], [1.0, 0.5]]))
    save_model(model, tmp_path / "model.json")
    assert load_model(tmp_path / "model.json") == model
    record = json.loads((tmp_path / "model.json").read_text())
    del record["tables"][1]["pass_share"]
    (tmp_path / "model.json").write_text(json.dumps(record))
    with pytest.raises(ModelError, match="damaged: some tests have a share"):
        load_model(tmp_path / "model.json")


def test_a_model_of_version_1_is_read(tmp_path: Path) -> None:
    record = json.loads(_saved())
    record.update(version=1, base_score=record["base_score"][0])
    for key in ("encoders", "classes", "estimator"):
        del record[key]
    for table in record["tables"]:
        table["leaf_values"] = table["leaf_values"][0]
        del table["pass_share"]
    (tmp_path / "model.json").write_text(json.dumps(record))
    found = load_model(tmp_path / "model.json")
    assert found == MODEL
    assert found.leaf_values.tobytes() == MODEL.leaf_values.tobytes()


def test_class_names_are_kept(tmp_path: Path) -> None:
    with_classes = replace(MODEL, classes=("no", "yes"))
    save_model(with_classes, tmp_path / "model.json")
    assert load_model(tmp_path / "model.json") == with_classes != MODEL


def _changed(**changes: Any) -> bytes:
    record = json.loads(_saved())
    record.update(changes)
    return json.dumps(record).encode()


def _changed_table(**changes: Any) -> bytes:
    record = json.loads(_saved())
    record["tables"][0].update(changes)
    return json.dumps(record).encode()


def _saved() -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        save_model(MODEL, Path(folder) / "m")
        return (Path(folder) / "m").read_bytes()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a model file"),
        (b"\x80\x04\x95not a pickle either", "not a model file"),
        (b"[" * 100_000, "not a model file"),
        (b"{}", "not a model file"),
        (_changed(format="other"), "not a model file"),
        (_changed(version=5), "version 5; this software reads version 1 and 2 and 3 and 4: use th"),
        (_changed(classes=["yes"]), "damaged: 1 names for 2 classes"),
        (_changed(version=1), "damaged: base_score: "),
        (_changed(version=True), "not a model file"),
        (_changed(colour="red"), "damaged: colour: is not known"),
        (_changed(task="ranking"), "damaged: task"),
        (_changed(tables=[]), "damaged: all tables"),
        (_changed(tables=[{}] * 200_000), "damaged: tables.0.feature: is required"),
        (_changed(tables=[{}] * 9_000), "damaged: tables.0.feature: is required"),
        (_changed(features=[{"name": "a", "owner": "b"}] * 2), "same name and owner"),
        (_changed(base_score=["high"]), "damaged: base_score.0"),
        (_changed(base_score=[float("nan")]), "damaged|not a model file"),
        (_changed(base_score=[]), "damaged: base_score"),
        (_changed(base_score=[0.0, 0.0]), "differ in the number of outputs"),
        (_changed(features=[]), "damaged: a test names a feature"),
        (_changed(features=[{"name": "\x1b[2J", "owner": "x"}] * 2), "cannot be the name"),
        (_changed_table(feature=[0, 2]), "damaged: a test names a feature"),
        (_changed_table(feature=[0]), "damaged: all tables"),
        (_changed_table(feature=[]), "damaged: tables.0.feature"),
        (_changed_table(feature=[0] * 11), "damaged: tables.0.feature"),
        (_changed_table(feature=[0, 1 << 63]), "damaged: tables.0.feature.1"),
        (_changed_table(feature=[0, -1]), "damaged: tables.0.feature.1"),
        (_changed_table(threshold=[True, 0.0]), "damaged: tables.0.threshold.0"),
        (_changed_table(threshold=["12.5", 0.0]), "damaged: tables.0.threshold.0"),
        (_changed_table(leaf_values=[[1e308] * 4]), "damaged: a leaf value"),
        (_changed_table(feature=[0.5, 1]), "damaged: tables.0.feature"),
        (_changed_table(bucket=[0]), "damaged: features, buckets"),
        (_changed_table(bucket=[0, 255]), "damaged: tables.0.bucket.1"),
        (_changed_table(threshold=[0.0]), "damaged: features, buckets"),
        (_changed_table(threshold=["NaN", 0.0]), "damaged: tables.0.threshold.0"),
        (_changed_table(leaf_values=[[0.0] * 3]), "damaged: 2 tests need 4"),
        (_changed_table(leaf_values=[[0.0] * 4] * 2), "differ in the number of outputs"),
        (_changed_table(leaf_values=[0.0] * 4), "damaged: tables.0.leaf_values.0"),
        (_changed_table(leaf_values=[["0", 0, 0, 0]]), "damaged: tables.0.leaf_values.0.0"),
        (_saved()[:-1], "not a model file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_models_are_rejected(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=complaint) as caught:
        load_model(path)
    assert str(caught.value).startswith(f"{path}: ")


@given(st.data())
@settings(max_examples=300)
def test_damaged_bytes_only_cause_a_model_error(data: st.DataObject) -> None:
    import tempfile

    content = bytearray(_saved())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        try:
            model = load_model(file.name)
        except ModelError:
            return
        model.predict(np.ones((2, 3)))


def test_too_large_file_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_records, "MAX_FILE_BYTES", 100)
    save_model(MODEL, tmp_path / "m")
    with pytest.raises(ModelError, match="larger than the 100 bytes"):
        load_model(tmp_path / "m")
    with pytest.raises(ModelError, match="larger than the 100 bytes"):
        load_model("/dev/zero")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file"):
        load_model(tmp_path / "m")


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.json"
    save_model(MODEL, path)
    before = path.read_bytes()

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(UnavailableError, match="No space left on device"):
        save_model(MODEL, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.json"]
