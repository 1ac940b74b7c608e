"""Jobs that reveal gains: to the label holder, after an interruption, and in `inspect`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from privet.arrays import FloatArray
from privet.boosting.preparation import prepare_data as prepare_rows
from privet.boosting.reference import compute_level_gains
from privet.cli.app import app
from privet.config.job import Job
from privet.data.reader import read_frame
from privet.errors import ParameterError
from privet.experiments.local_federation import LocalFederation
from privet.storage.model_part import load_part
from tests.federation.harness import change, model_of, prepare, run
from tests.federation.test_training import end_after


def prepare_revealing(folder: Path, task: str = "regression") -> LocalFederation:
    """Prepare a federation whose job reveals gains."""
    local = prepare(folder, task=task)
    change(local.job_path, ("[params]\n", "reveal_gain = true\n[params]\n"))
    return local


def plain_gains(local: LocalFederation) -> FloatArray:
    """Return the gains of the joined model's levels, computed in plaintext."""
    params = Job.read(local.job_path).make_params()
    columns, label = [], None
    for name in local.party_names:
        label_column = "label" if name == local.recipient else None
        frame = read_frame(local.folder / name / "train.csv", id="id", label=label_column)
        columns.append(frame.columns)
        label = prepare_rows(name, frame.to_lazy(), params).label
    assert label is not None
    return compute_level_gains(model_of(local), np.concatenate(columns), label, params)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_label_holder_gets_gains(tmp_path: Path, task: str) -> None:
    local = prepare_revealing(tmp_path, task)
    found = run(local, "train")
    assert found.checked()["bank"][0].gains is None
    report = found.results["shop"][0].gains
    expected = plain_gains(local)
    assert np.abs(report.levels - expected).max() < 0.02 * expected.max()
    shares = {(each.feature, each.owner): each.importance for each in report.importances}
    model = model_of(local)
    named = [(feature.name, feature.owner) for feature in model.features]
    expected_shares = dict(zip(named, model.compute_importances(expected), strict=True))
    assert sum(shares.values()) == pytest.approx(1)
    assert shares == pytest.approx({name: expected_shares[name] for name in shares}, abs=0.02)
    disclosures = {r.what: (r.to, r.count) for r in found.results["shop"][0].reveals}
    assert disclosures["gain of a test"] == (["shop"], expected.size)


def test_gains_of_an_interrupted_training(tmp_path: Path) -> None:
    """The checkpoint contains the gains of earlier tables."""
    local = prepare_revealing(tmp_path)
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    found = run(local, "train").checked()["shop"][0]
    assert found.resumed_from > 0
    expected = plain_gains(local)
    assert np.shape(found.gains.levels) == expected.shape
    assert np.abs(found.gains.levels - expected).max() < 0.02 * expected.max()


def test_inspecting_a_part_with_gains(tmp_path: Path) -> None:
    local = prepare_revealing(tmp_path)
    run(local, "train").checked()
    paths = {name: next((tmp_path / name / "models").glob("*.part")) for name in local.party_names}
    part = load_part(paths["shop"]).part
    shown = {
        name: json.loads(CliRunner().invoke(app, ["inspect", str(path), "--json"]).stdout)
        for name, path in paths.items()
    }
    assert "importances_by_gain" not in shown["bank"]
    by_gain = shown["shop"]["importances_by_gain"]
    assert sum(each["importance"] for each in by_gain) == pytest.approx(1)
    assert part.gains is not None
    best = part.feature.reshape(-1)[part.gains.argmax()]
    assert by_gain[0]["feature"] == part.features[best].name
    text = CliRunner().invoke(app, ["inspect", str(paths["shop"])]).stdout
    assert "by gain" in text
    assert "by gain" not in CliRunner().invoke(app, ["inspect", str(paths["bank"])]).stdout


def test_paper_protocol_does_not_support_gains(tmp_path: Path) -> None:
    local = prepare_revealing(tmp_path)
    change(local.job_path, ("reveal_gain", 'protocol = "paper"\nreveal_gain'))
    with pytest.raises(ParameterError, match="reveal_gain: the protocol paper tells no gains"):
        Job.read(local.job_path)
