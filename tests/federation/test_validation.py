"""Jobs with validation rows: stopping early, going on, more tables later, what is reported."""

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
    deal_for,
    model_of,
    prepare,
    run,
)
from tests.federation.test_training import end_after

WORD = "number of tables to keep, or none yet"


def watching(folder: Path, params: str = "", terms: str = "", **job: Any) -> LocalFederation:
    """Return a federation that sets a quarter of its rows aside."""
    local = prepare(folder, **job)
    change(local.job_path, ("[params]\n", f"{terms}\n[params]\nvalidation = 0.25\n{params}\n"))
    return local


def in_the_clear(local: LocalFederation) -> ModelWithLosses:
    """Return what training in the clear gives."""
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
    return train_locally_with_losses([own.columns for own in prepared], label, params)


def losses_of(found: Run) -> list[float]:
    """Return the losses that the label's holder has in its report; nobody else has any."""
    assert found.checked()["bank"][0].validation is None
    report = found.results["shop"][0].validation
    assert report is not None
    return list(report.losses)


def scripted(monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> None:
    """Have the label's holder believe that these are the losses, one after each table."""
    rest = iter(losses)
    monkeypatch.setattr(MaskedProtocol, "decode_validation_loss", lambda *_: next(rest))


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_losses_and_metrics_at_the_label_s_holder(tmp_path: Path, task: str) -> None:
    local = watching(tmp_path, terms="reveal_validation = true", task=task)
    found = run(local, "train")
    plain = in_the_clear(local)
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
    told = {r.what: (r.to, r.count) for r in found.results["shop"][0].reveals}
    assert told["validation loss"] == (["shop"], 3)
    assert told["predictions of validation rows"] == (["shop"], 10)
    assert WORD not in told


def test_the_loss_is_told_live_to_its_holder_alone(tmp_path: Path) -> None:
    local = watching(tmp_path)
    found = run(local, "train")
    losses = losses_of(found)
    events = {name: [e for e in found.events[name] if e.kind == "table"] for name in NAMES}
    assert [event.fields["validation_loss"] for event in events["shop"]] == losses
    assert f"validation loss {losses[0]:.5f}, best at table 1" in events["shop"][0].text
    assert all("validation" not in event.text for event in events["bank"])
    assert found.results["shop"][0].validation.metrics == {}


def test_training_stops_and_predictions_take_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = watching(tmp_path, "patience = 2", tables=9)
    scripted(monkeypatch, [0.5, 0.4, 0.6, 0.7])
    first = run(local, "train")
    assert losses_of(first) == [0.5, 0.4, 0.6, 0.7]
    assert {first.results[name][0].tables for name in NAMES} == {2}
    told = {r.what: (r.to, r.count) for r in first.results["bank"][0].reveals}
    assert told[WORD] == (["bank", "shop", "dealer"], 4)
    predicted = run(local, "predict").checked()["shop"][1]
    assert len(predicted.values) == 7
    # Started again, it knows that it has ended.
    again = run(local, "train")
    assert again.checked()["bank"][0].rounds == 0
    assert losses_of(again) == [0.5, 0.4]
    assert again.results["shop"][0].model == first.results["shop"][0].model


def test_all_tables_are_trained_and_the_best_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = watching(tmp_path, "patience = 3", tables=3)
    scripted(monkeypatch, [0.5, 0.4, 0.6])
    found = run(local, "train").checked()
    assert {found[name][0].tables for name in NAMES} == {2}


def test_a_training_cut_short_goes_on_counting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After two tables, both runs together: the first run's losses count."""
    local = watching(tmp_path, "patience = 3", tables=9)
    scripted(monkeypatch, [0.5, 0.6, 0.7])
    run(local, "train", tells=end_after(2))  # type: ignore[arg-type]
    scripted(monkeypatch, [0.7, 0.8, 0.9])
    found = run(local, "train")
    done = found.checked()["shop"][0].resumed_from
    assert done in (1, 2)
    assert losses_of(found) == [*[0.5, 0.6][:done], *[0.7, 0.8, 0.9]][:4]
    assert {found.results[name][0].tables for name in NAMES} == {1}


@pytest.mark.parametrize("loses", NAMES)
def test_one_has_its_part_and_the_other_only_its_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loses: str
) -> None:
    """What all were told is known to whoever ended: nothing is trained again."""
    local = watching(tmp_path, "patience = 2", tables=9)
    scripted(monkeypatch, [0.5, 0.4, 0.6, 0.7])
    checkpoints = local.get_part_path(loses).parent / "rehearsal.checkpoints"

    def keep(event: Event) -> None:
        if event.kind == "table" and event.fields["table"] == 4:
            shutil.copytree(checkpoints, tmp_path / "kept")

    first = run(local, "train", tells={loses: keep}).checked()
    local.get_part_path(loses).unlink()
    shutil.rmtree(checkpoints)
    (tmp_path / "kept").rename(checkpoints)
    again = run(local, "train").checked()
    assert again[loses][0].rounds == 0
    assert {again[name][0].model for name in NAMES} == {first["shop"][0].model}


def test_one_fell_before_it_heard_the_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The word is said again before anything is trained."""
    local = watching(tmp_path, "patience = 1", tables=9)
    scripted(monkeypatch, [0.5, 0.6])
    first = run(local, "train", tells=end_after(2))  # type: ignore[arg-type]
    assert isinstance(first.errors["bank"], PeerError)
    if min(int(path.name[:5]) for path in local.folder.rglob("*.scores")) == 2:
        scripted(monkeypatch, [])
    else:
        scripted(monkeypatch, [0.6])
    found = run(local, "train")
    assert losses_of(found) == [0.5, 0.6]
    assert {found.results[name][0].tables for name in NAMES} == {1}


def test_more_tables_later(tmp_path: Path) -> None:
    """As if all had been trained at once; the part is replaced when the new one is complete."""
    local = watching(tmp_path, tables=2)
    first = run(local, "train")
    before = {name: load_part(local.get_part_path(name)) for name in NAMES}
    change(local.job_path, ("tables = 2", "tables = 5"))
    cut = run(local, "train", tells=end_after(4))  # type: ignore[arg-type]
    assert cut.errors
    assert load_part(local.get_part_path("bank")).model_id == before["bank"].model_id
    old = local.get_part_path("bank").read_bytes()
    found = run(local, "train")
    assert {found.checked()[name][0].tables for name in NAMES} == {5}
    assert found.results["bank"][0].resumed_from in (3, 4)
    plain = in_the_clear(local)
    assert (model_of(local).feature == plain.model.feature).all()
    assert losses_of(found) == pytest.approx(plain.losses, abs=1e-3)
    assert losses_of(found)[:2] == losses_of(first)
    part = load_part(local.get_part_path("bank")).part
    assert (part.leaf_shares[:2] == before["bank"].part.leaf_shares).all()
    # Old and new parts do not go together.
    local.get_part_path("bank").write_bytes(old)
    mixed = run(local, "predict")
    for error in mixed.errors.values():
        assert isinstance(error, DisagreementError)


def test_more_tables_without_validation_rows(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    change(local.job_path, ("tables = 1", "tables = 3"))
    found = run(local, "train").checked()
    assert found["bank"][0].resumed_from == 1
    assert (model_of(local).feature == in_the_clear(local).model.feature).all()


def test_more_tables_after_stopping_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more patience it goes on after the tables that were kept, with their scores."""
    local = watching(tmp_path, "patience = 2", tables=9)
    scripted(monkeypatch, [0.5, 0.4, 0.6, 0.7])
    run(local, "train").checked()
    change(local.job_path, ("patience = 2", "patience = 3"))
    scripted(monkeypatch, [0.6, 0.3, 0.4, 0.5, 0.6])
    found = run(local, "train")
    assert found.checked()["bank"][0].resumed_from == 2
    assert losses_of(found) == [0.5, 0.4, 0.6, 0.3, 0.4, 0.5, 0.6]
    assert {found.results[name][0].tables for name in NAMES} == {4}
    change(local.job_path, ("patience = 3\n", "\n"), ("tables = 9", "tables = 4"))
    assert (model_of(local).feature == in_the_clear(local).model.feature).all()


def test_fewer_tables_than_there_are(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=3)
    run(local, "train").checked()
    change(local.job_path, ("tables = 3", "tables = 2"))
    found = run(local, "train", wait=2.0)
    with pytest.raises(ParameterError, match=r"tables: 3 are trained already, .* --restart"):
        raise found.errors["bank"]
    assert {run(local, "train", restart=True).checked()[n][0].tables for n in NAMES} == {2}


def test_scores_that_are_gone(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    shutil.rmtree(local.get_part_path("bank").parent / "rehearsal.checkpoints")
    assert run(local, "train").checked()["bank"][0].rounds == 0
    change(local.job_path, ("tables = 1", "tables = 2"))
    found = run(local, "train", wait=2.0)
    with pytest.raises(ModelError, match=r"train more of them is gone.* --restart"):
        raise found.errors["bank"]


def test_rows_that_are_aligned(tmp_path: Path) -> None:
    """Rows are set aside among those that all have."""
    local = watching(tmp_path)
    align(local)
    found = run(local, "train")
    assert len(losses_of(found)) == 3
    assert found.results["shop"][0].validation.rows == 9  # of 36


def test_kept_indicators(tmp_path: Path) -> None:
    """Those of training rows, which another training has as well."""
    local = watching(tmp_path, terms="keep_indicators = true")
    run(local, "train").checked()
    found = run(local, "train", restart=True)
    kept = [e.fields["owners"] for e in found.events["bank"] if e.kind == "kept"]
    assert found.checked()
    assert kept == [["bank", "shop"]]


def test_a_dealing_ahead_is_left_where_training_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = watching(tmp_path, "patience = 1", tables=9)
    deal_for(local)
    scripted(monkeypatch, [0.5, 0.6])
    found = run(local, "train", absent=("dealer",))
    assert {found.checked()[name][0].tables for name in NAMES} == {1}
    told = {r.what: r.to for r in found.results["bank"][0].reveals}
    assert told[WORD] == ["bank", "shop"]
    change(local.job_path, ("tables = 9", "tables = 12"))
    deal_for(local)
    again = run(local, "train", absent=("dealer",), wait=2.0)
    with pytest.raises(CorrelationError, match="tables done: 0, and here it is 1"):
        raise again.errors["bank"]


def test_a_dealing_of_another_length(tmp_path: Path) -> None:
    local = watching(tmp_path)
    deal_for(local)
    change(local.job_path, ("tables = 3", "tables = 4"))
    found = run(local, "train", absent=("dealer",), wait=2.0)
    with pytest.raises(CorrelationError, match="was dealt for a training of: 3 tables"):
        raise found.errors["bank"]


@pytest.mark.parametrize("by", ["feature", "participant"])
def test_mean_contributions_in_the_report(tmp_path: Path, by: str) -> None:
    """Of the label's holder: those of the joined model on the rows set aside."""
    terms = f'explain = "{by}"\nreveal_importances = true'
    local = watching(tmp_path, terms=terms)
    found = run(local, "train")
    assert found.checked()["bank"][0].validation is None
    report = found.results["shop"][0]
    told = {r.what: (r.to, r.count) for r in report.reveals}
    found_names = {*report.validation.importances}
    names = {feature.name for feature in model_of(local).features}
    assert found_names == (names if by == "feature" else set(NAMES))
    assert told["mean absolute contributions"] == (["shop"], len(found_names))
    assert max(report.validation.importances.values()) > [0.01]
    assert report.validation.metrics == {}


@pytest.mark.parametrize(
    "terms", ["reveal_validation = true", 'explain = "feature"\nreveal_importances = true']
)
def test_what_cannot_be_dealt_ahead(tmp_path: Path, terms: str) -> None:
    local = watching(tmp_path, "patience = 1", terms)
    with pytest.raises(ParameterError, match="nobody knows ahead when"):
        deal_for(local, samples=N_SAMPLES)


@pytest.mark.parametrize(
    ("terms", "params", "complaint"),
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
def test_jobs_that_make_no_sense(tmp_path: Path, terms: str, params: str, complaint: str) -> None:
    local = prepare(tmp_path)
    text = local.job_path.read_text()
    if terms.startswith("protocol"):
        text = "\n".join(line for line in text.splitlines() if not line.startswith("protocol"))
    local.job_path.write_text(text.replace("[params]", f"{terms}\n[params]\n{params}"))
    assert not PROTOCOL_TYPES["paper"].supports_validation
    with pytest.raises(ParameterError, match=complaint):
        Job.read(local.job_path)
