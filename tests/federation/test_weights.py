"""Weights in a federation: the label holder's, from a column or by class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from privet.boosting.binning import bucket_columns
from privet.boosting.model import Model
from privet.boosting.simulation import train_locally
from privet.config.job import Job
from privet.data.reader import read_frame
from privet.errors import InputError
from privet.experiments.local_federation import LocalFederation
from tests.federation.harness import NAMES, change, model_of, prepare, run

WEIGHTS = np.random.default_rng(3).uniform(0.5, 5.0, size=40).round(3)


def add_weights(local: LocalFederation) -> None:
    """Add a column of weights to the label holder's table."""
    path = local.folder / "shop" / "train.csv"
    header, *lines = path.read_text().splitlines()
    rows = [f"{line},{weight}" for line, weight in zip(lines, WEIGHTS, strict=True)]
    path.write_text("\n".join([f"{header},exposure", *rows]) + "\n")
    add_data_setting(local, 'weight = "exposure"')


def add_data_setting(local: LocalFederation, line: str, name: str = "shop") -> None:
    change(local.folder / name / "party.toml", ('id = "id"', f'id = "id"\n{line}'))


def set_weighted(local: LocalFederation) -> None:
    change(local.job_path, ("[params]", "weighted = true\n\n[params]"))


def expected(local: LocalFederation, weight: np.ndarray) -> Model:
    params = Job.read(local.job_path).make_params()
    frames = {
        name: read_frame(
            local.folder / name / "train.csv",
            id="id",
            label="label" if name == "shop" else None,
            drop=["exposure"] if name == "shop" and "exposure" in path_text(local) else [],
        )
        for name in NAMES
    }
    parties = [bucket_columns(n, f.names, f.columns, params.buckets) for n, f in frames.items()]
    label = frames["shop"].label
    assert label is not None
    return train_locally(parties, label, params, cut_disclosure="rounded", sample_weight=weight)


def path_text(local: LocalFederation) -> str:
    return (local.folder / "shop" / "train.csv").read_text()


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_weight_column(tmp_path: Path, task: str) -> None:
    local = prepare(tmp_path, tables=2, task=task)
    add_weights(local)
    set_weighted(local)
    found = run(local, "train").checked()
    model, plain = model_of(local), expected(local, WEIGHTS)
    assert (model.feature == plain.feature).all()
    assert (model.threshold == plain.threshold).all()
    assert model.leaf_values == pytest.approx(plain.leaf_values, abs=1e-3)
    assert "exposure" not in [feature.name for feature in model.features]
    for name in NAMES:  # no weights are disclosed
        report, _ = found[name]
        assert not [reveal.what for reveal in report.reveals if "weight" in reveal.what]
    assert run(local, "predict").checked()["shop"][1] is not None


def test_class_weights(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=2)
    add_data_setting(local, 'class_weight = { "1" = 5.0 }')
    set_weighted(local)
    run(local, "train").checked()
    label = read_frame(local.folder / "shop" / "train.csv", id="id", label="label").label
    plain = expected(local, np.where(label == 1, 5.0, 1.0))
    assert (model_of(local).threshold == plain.threshold).all()


def test_training_does_not_resume_with_other_weights(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=2)
    add_data_setting(local, 'class_weight = "balanced"')
    set_weighted(local)
    run(local, "train").checked()
    change(local.folder / "shop" / "party.toml", ('"balanced"', '{ "1" = 5.0 }'))
    assert "was trained on other data; move it away" in input_error(local, "shop")


def input_error(local: LocalFederation, name: str) -> str:
    # A member that cannot read its file cannot notify the others, which wait for it.
    error = run(local, "train", wait=5.0).errors.get(name)
    assert isinstance(error, InputError), error
    return str(error)


@pytest.mark.parametrize(
    ("line", "name", "weighted", "message"),
    [
        ('class_weight = "balanced"', "shop", False, "the job has no weights: say weighted = true"),
        ("", "shop", True, "the job says that rows have weights, and data.weight and"),
        ('weight = "a"', "bank", True, "bank is a passive participant of the job; weights are"),
        ('weight = "nowhere"', "shop", True, "there is no column 'nowhere'"),
        ('weight = "d"', "shop", True, "the weight of row"),  # some are below 0
        ('class_weight = { "2" = 5.0 }', "shop", True, "class_weight: the label has no class '2'"),
        ('class_weight = { "1" = 0.0 }', "shop", True, "without rows that have the weight 0"),
        ('class_weight = "fair"', "shop", True, "class_weight"),
    ],
)
def test_invalid_weights_are_rejected_locally(
    tmp_path: Path, line: str, name: str, weighted: bool, message: str
) -> None:
    local = prepare(tmp_path, tables=1)
    add_data_setting(local, line, name)
    if weighted:
        set_weighted(local)
    assert message in input_error(local, name)


def test_paper_protocol_has_no_weights(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1, protocol="paper")
    set_weighted(local)
    with pytest.raises(InputError, match="weighted: the protocol paper has no weights; use masked"):
        Job.read(local.job_path)
