"""Export: the participants join the model at the participant that the job names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from catboost import CatBoost
from typer.testing import CliRunner

from privet import Model, load_model
from privet.arrays import FloatArray
from privet.cli.app import app
from privet.config.job import Job
from privet.data.encoding import encode_frame
from privet.data.reader import read_frame
from privet.errors import DisagreementError, ParameterError, PeerFailedError
from privet.experiments.local_federation import LocalFederation
from privet.federation.prediction.export import number_thresholds
from privet.runtime.local.launcher import PROCESS_ENVIRONMENT
from privet.storage.model_part import load_part
from tests.federation.harness import NAMES, change, model_of, prepare, rows, run
from tests.federation.test_multiclass import name_classes

WITHOUT_DEALER = ("dealer",)


def allow(local: LocalFederation, receiver: str) -> None:
    change(local.job_path, ("[params]", f'export = "{receiver}"\n[params]'))


@pytest.mark.parametrize("receiver", NAMES)
@pytest.mark.parametrize("case", ["regression", "two classes", "three classes"])
def test_receiver_gets_an_equivalent_model(tmp_path: Path, case: str, receiver: str) -> None:
    local = prepare(tmp_path, task="regression" if case == "regression" else "classification")
    classes: tuple[str, ...] = ()
    if case == "three classes":
        classes = ("ash", "elm", "oak")
        change(local.job_path, ("[params]", "classes = 3\n[params]"))
        name_classes(local.folder / "shop" / "train.csv", classes)
    elif case == "two classes":
        classes = ("0", "1")
    run(local, "train").checked()
    allow(local, receiver)  # the participants can agree on it after training
    found = run(local, "export", absent=WITHOUT_DEALER).checked()

    (joined,) = [found[name][1] for name in NAMES if found[name][1] is not None]
    assert found[receiver][1] is joined
    expected = model_of(local)
    assert joined.classes == classes
    assert np.array_equal(joined.threshold, expected.threshold)
    assert np.array_equal(joined.leaf_values, expected.leaf_values)
    columns = rows(2, 7).columns
    assert np.array_equal(joined.predict(columns), expected.predict(columns))
    # The joined model numbers buckets by threshold, in the order that the owners use.
    for j in np.unique(expected.feature):
        splits = expected.feature == j
        joined_buckets, expected_buckets = joined.bucket[splits], expected.bucket[splits]
        assert len(np.unique(joined_buckets)) == len(np.unique(expected_buckets))
        assert (
            np.argsort(joined_buckets, kind="stable") == np.argsort(expected_buckets, kind="stable")
        ).all()

    other_features = [f for f in expected.features if f.owner != receiver]
    splits = [expected.features[j] in other_features for j in expected.feature.ravel()]
    counts = {
        "leaf values": expected.leaf_values.size,
        "thresholds": sum(splits),
        "kinds and categories of columns": len(other_features),
    }
    if receiver == "bank":
        counts["centre and scale of the label"] = 2
        if classes:
            counts["names of the classes"] = 1
    for name in NAMES:
        report = found[name][0]
        revealed = {reveal.what: reveal.count for reveal in report.reveals}
        assert revealed == {disclosure: count for disclosure, count in counts.items() if count}
        assert all(reveal.to == [receiver] for reveal in report.reveals)
        assert (report.command, report.rounds, report.bytes_from_dealer) == ("export", 1, 0)
        assert report.correlations == "none"
    sent = [found[name][0].bytes_sent for name in NAMES]
    received = [found[name][0].bytes_received for name in NAMES]
    assert sent[NAMES.index(receiver)] == 0 < received[NAMES.index(receiver)] == sum(sent)


def test_a_model_of_the_papers_protocol(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1, protocol="paper")
    allow(local, "bank")
    run(local, "train").checked()
    joined = run(local, "export", absent=WITHOUT_DEALER).checked()["bank"][1]
    assert np.array_equal(joined.leaf_values, model_of(local).leaf_values)
    assert np.array_equal(joined.threshold, model_of(local).threshold)


def test_export_requires_the_job_setting(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    ended = run(local, "export", absent=WITHOUT_DEALER)
    assert not ended.results
    for name in NAMES:
        assert isinstance(ended.errors[name], ParameterError)
        assert "export: the job names nobody" in str(ended.errors[name])
        assert not [e for e in ended.events.get(name, []) if e.kind in ("listening", "connected")]


@pytest.mark.parametrize("other", ["", "bank"])
def test_participants_must_agree_on_export(tmp_path: Path, other: str) -> None:
    """A participant whose job names no receiver fails; two different receivers are a difference."""
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    other_job = tmp_path / "other.toml"
    other_job.write_text(local.job_path.read_text())
    allow(local, "shop")
    if other:
        change(other_job, ("[params]", f'export = "{other}"\n[params]'))
    ended = run(local, "export", jobs={"bank": other_job}, absent=WITHOUT_DEALER)
    assert not ended.results
    if other:
        for name in NAMES:
            assert isinstance(ended.errors[name], DisagreementError)
            assert "export: " in str(ended.errors[name])
    else:
        assert isinstance(ended.errors["bank"], ParameterError)
        assert isinstance(ended.errors["shop"], PeerFailedError)


def test_parts_of_two_training_runs_are_not_joined(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    allow(local, "shop")
    run(local, "train").checked()
    kept = local.get_part_path("bank").read_bytes()
    run(local, "train", restart=True).checked()
    local.get_part_path("bank").write_bytes(kept)
    ended = run(local, "export", absent=WITHOUT_DEALER)
    assert all("model: " in str(ended.errors[name]) for name in NAMES)


def test_receiver_must_be_a_participant(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    allow(local, "nobody")
    with pytest.raises(ParameterError, match="export: 'nobody' is none of bank, shop"):
        Job.read(local.job_path)


def add_categories(local: LocalFederation) -> None:
    """Add two equal categorical columns to the bank, and a label that depends on them."""
    rng = np.random.default_rng(0)
    labels: dict[str, str] = {}
    for file in ("train.csv", "new.csv"):
        path = local.folder / "bank" / file
        header, *lines = path.read_text().splitlines()
        jobs = rng.choice(["cook", "clerk", "smith", "nurse"], len(lines), p=[0.4, 0.3, 0.2, 0.1])
        pairs = list(zip(lines, jobs, strict=True))
        path.write_text(
            "\n".join([f"{header},job,hot", *(f"{a},{b},{b}" for a, b in pairs)]) + "\n"
        )
        labels |= {line.split(",")[0]: str(int(job in ("clerk", "smith"))) for line, job in pairs}
    path = local.folder / "shop" / "train.csv"
    header, *lines = path.read_text().splitlines()
    cells = [line.split(",") for line in lines]
    changed = [",".join([*row[:-1], labels[row[0]]]) for row in cells]
    path.write_text("\n".join([header, *changed]) + "\n")
    types = 'id = "id"\ntypes = { hot = "one-hot" }'
    change(local.folder / "bank" / "party.toml", ('id = "id"', types))


def test_receiver_predicts_raw_rows_locally(tmp_path: Path) -> None:
    """Export discloses the categories that splits distinguish, enough to predict raw rows."""
    local = prepare(tmp_path, tables=3)
    add_categories(local)
    allow(local, "shop")
    run(local, "train").checked()
    joined = run(local, "export", absent=WITHOUT_DEALER).checked()["shop"][1]
    parts = [load_part(local.get_part_path(name)) for name in NAMES]
    encoders = tuple(encoder for part in parts for encoder in part.encoders)
    whole = replace(model_of(local), encoders=encoders)
    tested = {whole.features[j].name for j in whole.feature.ravel()}
    assert tested & {"job", "hot 1", "hot 2", "hot 3"}
    frames = [
        read_frame(local.folder / "bank" / "new.csv", id="id", types={"hot": "one-hot"}),
        read_frame(local.folder / "shop" / "new.csv", id="id"),
    ]

    def predict(model: Model) -> FloatArray:
        encoders_by_frame = [
            [e for e in model.encoders if e.column in frame.names] for frame in frames
        ]
        columns = [
            encode_frame(frame, encoders).columns
            for frame, encoders in zip(frames, encoders_by_frame, strict=True)
        ]
        return model.predict(np.concatenate(columns))

    assert np.array_equal(predict(joined), predict(whole))
    disclosed, known = (
        {e.column: e.categories for e in each} for each in (joined.encoders, encoders)
    )
    assert disclosed["job"] == known["job"][: len(disclosed["job"])]
    assert ("job" in tested) == bool(disclosed["job"])
    for number, text in enumerate(disclosed["hot"], start=1):
        assert text == (known["hot"][number - 1] if f"hot {number}" in tested else "")


def test_buckets_are_numbered_by_threshold() -> None:
    feature = np.array([[0, 1], [0, 0]])
    threshold = np.array([[2.5, 7.0], [-np.inf, 2.5]])
    assert number_thresholds(feature, threshold).tolist() == [[1, 0], [0, 1]]


def test_export_command(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=2)
    run(local, "train").checked()
    allow(local, "bank")
    outputs = {key: tmp_path / f"model.{key}" for key in ("out", "onnx", "catboost")}
    running = {}
    for name in NAMES:
        files = [f"--{key}={path}" for key, path in outputs.items() if name == "bank"]
        command = [
            *(sys.executable, "-m", "privet", "export", f"--job={local.job_path}"),
            f"--party={local.folder / name / 'party.toml'}",
            *(
                f"--part={local.get_part_path(name)}",
                f"--report={tmp_path / name}.json",
                "--wait=30",
            ),
        ]
        running[name] = subprocess.Popen(  # noqa: S603
            [*command, *files],
            stderr=subprocess.PIPE,
            text=True,
            env={**PROCESS_ENVIRONMENT, **os.environ},
        )
    stderr = {name: process.communicate(timeout=60)[1] for name, process in running.items()}
    assert [process.returncode for process in running.values()] == [0, 0], stderr
    assert "the whole model went to bank" in stderr["shop"]
    assert "revealed: leaf values to bank" in stderr["shop"]
    assert json.loads((tmp_path / "shop.json").read_text())["command"] == "export"

    model, columns = load_model(outputs["out"]), rows(2, 7).columns
    expected = model_of(local).predict(columns)
    assert np.array_equal(model.predict(columns), expected)
    session = onnxruntime.InferenceSession(outputs["onnx"])
    found = session.run(["probabilities"], {"features": columns.T})[0]
    assert np.abs(found[:, 1] - expected).max() < 1e-12
    loaded = CatBoost().load_model(str(outputs["catboost"]), format="json")
    floats = columns.astype(np.float32)
    found = loaded.predict(floats.T, prediction_type="Probability")[:, 1]
    assert np.abs(found - model.predict(floats.astype(np.float64))).max() < 1e-12

    again = tmp_path / "again.onnx"
    ended = CliRunner().invoke(app, ["export", f"--model={outputs['out']}", f"--onnx={again}"])
    assert ended.exit_code == 0
    assert again.read_bytes() == outputs["onnx"].read_bytes()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "party: give --party and --part, or --model"),
        (["--model=m.json"], "out: say where to write the model"),
        (["--model=m.json", "--out=x", "--onnx=x"], "out: two files have the same name, x"),
        (["--model=m.json", "--out=x", "--party=p.toml"], "model: is whole"),
    ],
)
def test_conflicting_options_are_rejected(options: list[str], complaint: str) -> None:
    ended = CliRunner().invoke(app, ["export", *options])
    assert isinstance(ended.exception, ParameterError)
    assert complaint in str(ended.exception)
