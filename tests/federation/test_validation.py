"""Jobs with validation rows: early stopping, resuming, more tables later, and reports."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.boosting.preparation import prepare_data as prepare_rows
from privet.boosting.reference import ModelWithLosses
from privet.boosting.simulation import train_locally_with_losses
from privet.boosting.training import PROTOCOL_TYPES
from privet.config.job import Job
from privet.data.reader import read_frame
from privet.errors import CorrelationError, DisagreementError, ModelError, ParameterError, PeerError
from privet.experiments.local_federation import LocalFederation
from privet.federation.monitoring.events import Event
from privet.protocols.masked.protocol import MaskedProtocol
from privet.storage.model_part import load_part
from tests.federation.harness import (
    N_SAMPLES,
    NAMES,
    Run,
    align,
    change,
    model_of,
    prepare,
    preprocess_offline,
    run,
)
from tests.federation.test_training import end_after

STOP_DISCLOSURE = "number of tables to keep, or none yet"


def prepare_validating(
    folder: Path, params: str = "", settings: str = "", **job: Any
) -> LocalFederation:
    """Prepare a federation with a quarter of its rows as validation rows."""
    local = prepare(folder, **job)
    change(local.job_path, ("[params]\n", f"{settings}\n[params]\nvalidation = 0.25\n{params}\n"))
    return local


def train_plainly(local: LocalFederation) -> ModelWithLosses:
    """Train in plaintext, with validation losses."""
    params = Job.read(local.job_path).make_params()
    prepared = [
        prepare_rows(
            name,
            read_frame(
                local.folder / name / "train.csv",
                id="id",
                label="label" if name == local.recipient else None,
            ).to_lazy(),
            params,
        )
        for name in local.party_names
    ]
    label = prepared[-1].label
    assert label is not None
    return train_locally_with_losses([data.columns for data in prepared], label, params)


def losses_of(found: Run) -> list[float]:
    """Return the losses in the label holder's report; the other report contains none."""
    assert found.checked()["bank"][0].validation is None
    report = found.results["shop"][0].validation
    assert report is not None
    return list(report.losses)


def script_losses(monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> None:
    """Replace the label holder's losses by these, one after each table."""
    rest = iter(losses)
    monkeypatch.setattr(MaskedProtocol, "decode_validation_loss", lambda *_: next(rest))


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_label_holder_gets_losses_and_metrics(tmp_path: Path, task: str) -> None:
    local = prepare_validating(tmp_path, settings="reveal_validation = true", task=task)
    found = run(local, "train")
    plain = train_plainly(local)
    assert (model_of(local).feature == plain.model.feature).all()
    assert losses_of(found) == pytest.approx(plain.losses, abs=1e-3)
    report = found.results["shop"][0].validation
    assert (report.rows, report.best_table) == (10, int(np.argmin(plain.losses)) + 1)
    names = {"rmse", "mae", "r2"}
    if task == "classification":
        names = {"accuracy", "auc", "ks", "average_precision", "log_loss", "brier"}
        assert {*report.curves} == {"roc", "precision_recall", "ks", "calibration"}
        # Metrics are those of the last table, like the last loss.
        assert report.metrics["log_loss"] == pytest.approx(plain.losses[-1], abs=2e-3)
    else:
        assert report.metrics["rmse"] ** 2 / 2 == pytest.approx(plain.losses[-1], abs=2e-3)
    assert {*report.metrics} == names
    disclosures = {r.what: (r.to, r.count) for r in found.results["shop"][0].reveals}
    assert disclosures["validation loss"] == (["shop"], 3)
    assert disclosures["predictions of validation rows"] == (["shop"], 10)
    assert STOP_DISCLOSURE not in disclosures


def test_only_the_label_holder_gets_losses_during_training(tmp_path: Path) -> None:
    local = prepare_validating(tmp_path)
    found = run(local, "train")
    losses = losses_of(found)
    events = {name: [e for e in found.events[name] if e.kind == "table"] for name in NAMES}
    assert [event.fields["validation_loss"] for event in events["shop"]] == losses
    assert f"validation loss {losses[0]:.5f}, best at table 1" in events["shop"][0].text
    assert all("validation" not in event.text for event in events["bank"])
    assert found.results["shop"][0].validation.metrics == {}


def test_early_stopping_keeps_the_best_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = prepare_validating(tmp_path, "patience = 2", tables=9)
    script_losses(monkeypatch, [0.5, 0.4, 0.6, 0.7])
    first = run(local, "train")
    assert losses_of(first) == [0.5, 0.4, 0.6, 0.7]
    assert {first.results[name][0].tables for name in NAMES} == {2}
    disclosures = {r.what: (r.to, r.count) for r in first.results["bank"][0].reveals}
    assert disclosures[STOP_DISCLOSURE] == (["bank", "shop", "dealer"], 4)
    predicted = run(local, "predict").checked()["shop"][1]
    assert len(predicted.values) == 7
    # A new start detects that training has ended.
    again = run(local, "train")
    assert again.checked()["bank"][0].rounds == 0
    assert losses_of(again) == [0.5, 0.4]
    assert again.results["shop"][0].model == first.results["shop"][0].model


def test_best_tables_are_kept_without_early_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = prepare_validating(tmp_path, "patience = 3", tables=3)
    script_losses(monkeypatch, [0.5, 0.4, 0.6])
    found = run(local, "train").checked()
    assert {found[name][0].tables for name in NAMES} == {2}


def test_resumed_training_counts_earlier_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Early stopping counts the losses of the interrupted run."""
    local = prepare_validating(tmp_path, "patience = 3", tables=9)
    script_losses(monkeypatch, [0.5, 0.6, 0.7])
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    script_losses(monkeypatch, [0.7, 0.8, 0.9])
    found = run(local, "train")
    done = found.checked()["shop"][0].resumed_from
    assert done in (1, 2)
    assert losses_of(found) == [*[0.5, 0.6][:done], *[0.7, 0.8, 0.9]][:4]
    assert {found.results[name][0].tables for name in NAMES} == {1}


@pytest.mark.parametrize("affected", NAMES)
def test_one_participant_has_its_part_the_other_only_its_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, affected: str
) -> None:
    """The participant that ended knows the decision: nothing is trained again."""
    local = prepare_validating(tmp_path, "patience = 2", tables=9)
    script_losses(monkeypatch, [0.5, 0.4, 0.6, 0.7])
    checkpoints = local.get_part_path(affected).parent / "rehearsal.checkpoints"

    def copy_checkpoints(event: Event) -> None:
        if event.kind == "table" and event.fields["table"] == 4:
            shutil.copytree(checkpoints, tmp_path / "kept")

    first = run(local, "train", handlers={affected: copy_checkpoints}).checked()
    local.get_part_path(affected).unlink()
    shutil.rmtree(checkpoints)
    (tmp_path / "kept").rename(checkpoints)
    again = run(local, "train").checked()
    assert again[affected][0].rounds == 0
    assert {again[name][0].model for name in NAMES} == {first["shop"][0].model}


def test_interruption_before_the_stop_decision_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The label holder sends the decision again before any training."""
    local = prepare_validating(tmp_path, "patience = 1", tables=9)
    script_losses(monkeypatch, [0.5, 0.6])
    first = run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    assert isinstance(first.errors["bank"], PeerError)
    if min(int(path.name[:5]) for path in local.folder.rglob("*.scores")) == 2:
        script_losses(monkeypatch, [])
    else:
        script_losses(monkeypatch, [0.6])
    found = run(local, "train")
    assert losses_of(found) == [0.5, 0.6]
    assert {found.results[name][0].tables for name in NAMES} == {1}


def test_more_tables_later(tmp_path: Path) -> None:
    """The result equals a single run; the part is replaced once the new one is complete."""
    local = prepare_validating(tmp_path, tables=2)
    first = run(local, "train")
    before = {name: load_part(local.get_part_path(name)) for name in NAMES}
    change(local.job_path, ("tables = 2", "tables = 5"))
    interrupted = run(local, "train", handlers=end_after(4))  # type: ignore[arg-type]
    assert interrupted.errors
    assert load_part(local.get_part_path("bank")).model_id == before["bank"].model_id
    old = local.get_part_path("bank").read_bytes()
    found = run(local, "train")
    assert {found.checked()[name][0].tables for name in NAMES} == {5}
    assert found.results["bank"][0].resumed_from in (3, 4)
    plain = train_plainly(local)
    assert (model_of(local).feature == plain.model.feature).all()
    assert losses_of(found) == pytest.approx(plain.losses, abs=1e-3)
    assert losses_of(found)[:2] == losses_of(first)
    part = load_part(local.get_part_path("bank")).part
    assert (part.leaf_shares[:2] == before["bank"].part.leaf_shares).all()
    # Parts of the old and the new model do not match.
    local.get_part_path("bank").write_bytes(old)
    failed = run(local, "predict")
    for error in failed.errors.values():
        assert isinstance(error, DisagreementError)


def test_more_tables_without_validation_rows(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    change(local.job_path, ("tables = 1", "tables = 3"))
    found = run(local, "train").checked()
    assert found["bank"][0].resumed_from == 1
    assert (model_of(local).feature == train_plainly(local).model.feature).all()


def test_more_tables_after_stopping_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more patience, training resumes after the kept tables, with their scores."""
    local = prepare_validating(tmp_path, "patience = 2", tables=9)
    script_losses(monkeypatch, [0.5, 0.4, 0.6, 0.7])
    run(local, "train").checked()
    change(local.job_path, ("patience = 2", "patience = 3"))
    script_losses(monkeypatch, [0.6, 0.3, 0.4, 0.5, 0.6])
    found = run(local, "train")
    assert found.checked()["bank"][0].resumed_from == 2
    assert losses_of(found) == [0.5, 0.4, 0.6, 0.3, 0.4, 0.5, 0.6]
    assert {found.results[name][0].tables for name in NAMES} == {4}
    change(local.job_path, ("patience = 3\n", "\n"), ("tables = 9", "tables = 4"))
    assert (model_of(local).feature == train_plainly(local).model.feature).all()


def test_fewer_tables_than_trained_are_rejected(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=3)
    run(local, "train").checked()
    change(local.job_path, ("tables = 3", "tables = 2"))
    found = run(local, "train", wait=2.0)
    with pytest.raises(ParameterError, match=r"tables: 3 are trained already, .* --restart"):
        raise found.errors["bank"]
    assert {run(local, "train", restart=True).checked()[n][0].tables for n in NAMES} == {2}


def test_missing_scores_prevent_more_tables(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    shutil.rmtree(local.get_part_path("bank").parent / "rehearsal.checkpoints")
    assert run(local, "train").checked()["bank"][0].rounds == 0
    change(local.job_path, ("tables = 1", "tables = 2"))
    found = run(local, "train", wait=2.0)
    with pytest.raises(ModelError, match=r"train more of them is gone.* --restart"):
        raise found.errors["bank"]


def test_validation_rows_of_an_alignment(tmp_path: Path) -> None:
    """Validation rows are chosen among the common rows."""
    local = prepare_validating(tmp_path)
    align(local)
    found = run(local, "train")
    assert len(losses_of(found)) == 3
    assert found.results["shop"][0].validation.rows == 9  # of 36


def test_kept_indicators(tmp_path: Path) -> None:
    """Those of training rows, which another training has as well."""
    local = prepare_validating(tmp_path, settings="keep_indicators = true")
    run(local, "train").checked()
    found = run(local, "train", restart=True)
    kept = [e.fields["owners"] for e in found.events["bank"] if e.kind == "kept"]
    assert found.checked()
    assert kept == [["bank", "shop"]]


def test_early_stopping_with_offline_preprocessing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = prepare_validating(tmp_path, "patience = 1", tables=9)
    preprocess_offline(local)
    script_losses(monkeypatch, [0.5, 0.6])
    found = run(local, "train", absent=("dealer",))
    assert {found.checked()[name][0].tables for name in NAMES} == {1}
    disclosures = {r.what: r.to for r in found.results["bank"][0].reveals}
    assert disclosures[STOP_DISCLOSURE] == ["bank", "shop"]
    change(local.job_path, ("tables = 9", "tables = 12"))
    preprocess_offline(local)
    again = run(local, "train", absent=("dealer",), wait=2.0)
    with pytest.raises(CorrelationError, match="tables done: 0, and here it is 1"):
        raise again.errors["bank"]


def test_preprocessing_file_for_another_table_count_is_rejected(tmp_path: Path) -> None:
    local = prepare_validating(tmp_path)
    preprocess_offline(local)
    change(local.job_path, ("tables = 3", "tables = 4"))
    found = run(local, "train", absent=("dealer",), wait=2.0)
    with pytest.raises(CorrelationError, match="was dealt for a training of: 3 tables"):
        raise found.errors["bank"]


@pytest.mark.parametrize("by", ["feature", "participant"])
def test_mean_attributions_are_in_the_report(tmp_path: Path, by: str) -> None:
    """The label holder gets those of the joined model on the validation rows."""
    settings = f'explain = "{by}"\nreveal_importances = true'
    local = prepare_validating(tmp_path, settings=settings)
    found = run(local, "train")
    assert found.checked()["bank"][0].validation is None
    report = found.results["shop"][0]
    disclosures = {r.what: (r.to, r.count) for r in report.reveals}
    found_names = {*report.validation.importances}
    names = {feature.name for feature in model_of(local).features}
    assert found_names == (names if by == "feature" else set(NAMES))
    assert disclosures["mean absolute contributions"] == (["shop"], len(found_names))
    assert max(report.validation.importances.values()) > [0.01]
    assert report.validation.metrics == {}


@pytest.mark.parametrize(
    "settings", ["reveal_validation = true", 'explain = "feature"\nreveal_importances = true']
)
def test_unsupported_offline_preprocessing_is_rejected(tmp_path: Path, settings: str) -> None:
    local = prepare_validating(tmp_path, "patience = 1", settings)
    with pytest.raises(ParameterError, match="nobody knows ahead when"):
        preprocess_offline(local, samples=N_SAMPLES)


@pytest.mark.parametrize(
    ("settings", "params", "complaint"),
    [
        ("reveal_validation = true", "", "reveal_validation: there are no validation rows"),
        ("reveal_importances = true", "validation = 0.25", "reveal_importances: are means of what"),
        (
            'reveal_importances = true\nexplain = "feature"',
            "",
            "reveal_importances: are means of what",
        ),
        ("", "patience = 3", r"params\.patience: 3 tables .* set validation"),
        ('protocol = "paper"', "validation = 0.2", r"params\.validation: the protocol paper"),
    ],
)
def test_invalid_jobs_are_rejected(
    tmp_path: Path, settings: str, params: str, complaint: str
) -> None:
    local = prepare(tmp_path)
    text = local.job_path.read_text()
    if settings.startswith("protocol"):
        text = "\n".join(line for line in text.splitlines() if not line.startswith("protocol"))
    local.job_path.write_text(text.replace("[params]", f"{settings}\n[params]\n{params}"))
    assert not PROTOCOL_TYPES["paper"].supports_validation
    with pytest.raises(ParameterError, match=complaint):
        Job.read(local.job_path)
