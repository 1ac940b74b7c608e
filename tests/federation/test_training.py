"""Federations with separate folders and keys: training, prediction, failure and recovery."""

from __future__ import annotations

import csv
import json
import shutil
import stat
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privet.boosting.cost_estimate import estimate_cost
from privet.boosting.model import Model
from privet.boosting.training import TrainingState
from privet.config.job import Job
from privet.config.party import PartyConfig
from privet.data.frame import LazyFrame
from privet.data.reader import read_frame
from privet.errors import DisagreementError, ModelError, ParameterError, PeerError, UnavailableError
from privet.experiments.local_federation import LocalFederation, find_free_ports
from privet.federation.alignment.alignment import compare_ids_on_shares
from privet.federation.monitoring.events import Event
from privet.federation.preflight import forecast_training
from privet.federation.session.session import LocalMember
from privet.federation.training import run_training
from privet.objectives.classification import compute_sigmoid
from privet.runtime.cost import count_program_cost
from privet.storage.checkpoint import CheckpointStore
from privet.storage.model_part import load_part
from privet.transport.tls import renew_identity
from tests.federation.harness import (
    NAMES,
    Run,
    align,
    change,
    model_of,
    prepare,
    rows,
    run,
    train_in_plaintext,
)


def plain_model(local: LocalFederation) -> Model:
    """Train in plaintext on the same files."""
    frames = {
        name: read_frame(
            local.folder / name / "train.csv",
            id="id",
            label="label" if name == local.recipient else None,
        )
        for name in local.party_names
    }
    return train_in_plaintext(local, frames)


def same_splits(a: Model, b: Model) -> bool:
    return np.array_equal(a.feature, b.feature) and np.array_equal(a.threshold, b.threshold)


FINAL_FILES = ["rehearsal.checkpoints", "rehearsal.part"]
"""The files after training: the scores, to resume from, and the part."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> LocalFederation:
    local = prepare(tmp_path_factory.mktemp("trained"))
    run(local, "train").checked()
    return local


def test_training_matches_plaintext_training(trained: LocalFederation) -> None:
    model, plain = model_of(trained), plain_model(trained)
    assert same_splits(model, plain)
    np.testing.assert_allclose(model.leaf_values, plain.leaf_values, atol=1e-4)
    for name in NAMES:
        assert stat.S_IMODE(trained.get_part_path(name).stat().st_mode) == 0o600
        folder = trained.get_part_path(name).parent
        assert sorted(p.name for p in folder.iterdir()) == FINAL_FILES
        kept = sorted(path.suffix for path in (folder / FINAL_FILES[0]).iterdir())
        assert kept == [".ended", ".tables"]
    assert len({load_part(trained.get_part_path(name)).model_id for name in NAMES}) == 1


def test_reported_cost_matches_the_plan(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    found = run(local, "train").checked()
    reports = [found[name][0] for name in NAMES]
    job = Job.read(local.job_path)
    # One of the five columns has few distinct values, and missing ones.
    federation = job.make_training_spec(
        load_part(local.get_part_path("bank")).part.features, (7, 7, 7, 7, 7)
    )
    estimate, id_check = (
        estimate_cost(federation, federation.make_plan(40)),
        count_program_cost(compare_ids_on_shares, len(NAMES), None),
    )
    assert {report.rounds for report in reports} == {id_check.rounds + estimate.rounds}
    assert (
        sum(report.bytes_sent for report in reports)
        == id_check.online_bytes + estimate.online_bytes
    )
    assert (
        sum(report.bytes_from_dealer for report in reports)
        == id_check.offline_bytes + estimate.offline_bytes
    )
    assert {report.correlations for report in reports} == {"live"}
    disclosures = {
        (reveal.what, tuple(reveal.to)) for report in reports for reveal in report.reveals
    }
    assert {disclosure for disclosure, _ in disclosures} == {
        "numbers of cuts",
        "split feature",
        "split bucket",
        "numbers within bounds",
        "whose ids are the same",
    }
    assert {to for disclosure, to in disclosures if disclosure == "split feature"} == {NAMES}


@pytest.mark.parametrize("aligned", [False, True])
def test_reported_cost_matches_the_forecast(tmp_path: Path, aligned: bool) -> None:
    """The forecast includes the id check; alignment is reported separately."""
    local = prepare(tmp_path)
    if aligned:
        align(local)
    found = run(local, "train")
    reports = [found.checked()[name][0] for name in NAMES]
    cut_counts = [
        e.fields["cuts"] for name in NAMES for e in found.events[name] if e.kind == "cuts"
    ]
    counts = tuple(count for owned in cut_counts for count in owned.values())
    estimate = forecast_training(
        Job.read(local.job_path),
        reports[0].n_samples,
        [len(owned) for owned in cut_counts],
        cut_counts=counts,
    ).estimate
    assert {report.rounds for report in reports} == {estimate.rounds}
    assert sum(report.bytes_sent for report in reports) == estimate.online_bytes
    assert sum(report.bytes_from_dealer for report in reports) == estimate.offline_bytes
    (started,) = (event.fields for event in found.events["bank"] if event.kind == "started")
    assert (started["rounds"], started["bytes_online"], started["bytes_offline"]) == (
        estimate.rounds,
        estimate.online_bytes,
        estimate.offline_bytes,
    )


def test_only_the_recipient_gets_predictions(trained: LocalFederation) -> None:
    found = run(trained, "predict").checked()
    assert found["bank"][1] is None
    predictions = found["shop"][1]
    new = rows(2, 7)
    assert new.ids is not None
    assert predictions.ids.tolist() == new.ids.tolist()
    expected = plain_model(trained).predict(new.columns)
    np.testing.assert_allclose(predictions.values, expected, atol=1e-4)
    read = list(csv.reader(predictions.to_csv().decode().splitlines()))
    assert read[0] == ["id", "class", "probability of 0", "probability of 1"]
    assert [float(value) for *_, value in read[1:]] == predictions.values.tolist()
    assert [row[1] for row in read[1:]] == ["01"[int(p >= 0.5)] for p in predictions.values]
    report = found["shop"][0]
    assert [(r.what, r.to, r.count) for r in report.reveals] == [
        ("whose ids are the same", ["bank", "shop"], 1),
        ("predictions", ["shop"], 7),
    ]
    assert report.rounds == 4 + 3


def test_another_recipient(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1, recipient="bank")
    run(local, "train").checked()
    found = run(local, "predict").checked()
    assert found["shop"][1] is None
    expected = plain_model(local).predict(rows(2, 7).columns)
    np.testing.assert_allclose(found["bank"][1].values, expected, atol=1e-4)


def test_paper_protocol(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1, protocol="paper")
    run(local, "train").checked()
    found = run(local, "predict").checked()
    expected = model_of(local).predict(rows(2, 7).columns)
    np.testing.assert_allclose(found["shop"][1].values, expected, atol=1e-4)


class KilledError(Exception):
    """Ends a role at a chosen point."""


def end_after(table: int) -> dict[str, object]:
    def kill(event: Event) -> None:
        if event.kind == "table" and event.fields["table"] == table:
            raise KilledError

    return {"shop": kill}


def last_common(local: LocalFederation) -> int:
    """Return the last table of which all participants have a checkpoint.

    When one participant ends, another can still be writing its checkpoint.
    """
    return min(int(max(stages(local, name)).name[:5]) for name in NAMES)


def stages(local: LocalFederation, name: str) -> list[Path]:
    """Return a participant's checkpoints."""
    folder = local.get_part_path(name).parent / "rehearsal.checkpoints"
    return [*folder.glob("*.scores"), *folder.glob("*.ended")]


@pytest.mark.parametrize("protocol", ["masked", "paper"])
def test_interrupted_training_resumes(tmp_path: Path, protocol: str) -> None:
    local = prepare(tmp_path, protocol=protocol)
    first = run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    assert isinstance(first.errors["shop"], KilledError)
    for name in ("bank", "dealer"):
        assert isinstance(first.errors[name], PeerError)
        assert "shop" in str(first.errors[name])
    assert not any(local.get_part_path(name).exists() for name in NAMES)
    done = last_common(local)
    assert done in (1, 2)
    second = run(local, "train")
    reports = [second.checked()[name][0] for name in NAMES]
    assert {report.resumed_from for report in reports} == {done}
    if protocol == "masked":
        assert same_splits(model_of(local), plain_model(local))
        np.testing.assert_allclose(
            model_of(local).leaf_values, plain_model(local).leaf_values, atol=1e-4
        )
    folders = [local.get_part_path(name).parent for name in NAMES]
    assert all(sorted(p.name for p in folder.iterdir()) == FINAL_FILES for folder in folders)


def test_training_resumes_from_the_latest_common_table(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    max(stages(local, "shop")).unlink()
    second = run(local, "train").checked()
    assert second["bank"][0].resumed_from == 1
    assert same_splits(model_of(local), plain_model(local))


def test_checkpoints_of_different_runs_do_not_mix(tmp_path: Path) -> None:
    """Table 2 of one run and table 2 of another have shares that do not add up."""
    local = prepare(tmp_path)
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    moved = {
        name: (local.get_part_path(name).parent / "rehearsal.checkpoints").rename(
            tmp_path / f"{name}.1"
        )
        for name in NAMES
    }
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    checkpoints = local.get_part_path("bank").parent / "rehearsal.checkpoints"
    checkpoints.rename(tmp_path / "bank.2")
    moved["bank"].rename(checkpoints)
    kept_files = sorted(path.name for path in checkpoints.iterdir())
    found = run(local, "train")
    for name in (*NAMES, "dealer"):
        with pytest.raises(DisagreementError, match=r"tables done: 1 in run .* --restart"):
            raise found.errors[name]
    assert sorted(path.name for path in checkpoints.iterdir()) == kept_files
    found = run(local, "train", restart=True)
    assert found.checked()["bank"][0].resumed_from == 0
    assert same_splits(model_of(local), plain_model(local))


def test_progress_is_not_discarded_without_restart(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    checkpoints = local.get_part_path("bank").parent / "rehearsal.checkpoints"
    away = checkpoints.rename(tmp_path / "away")
    found = run(local, "train")
    with pytest.raises(DisagreementError, match=r"tables done: none here, 1 in run .* at shop"):
        raise found.errors["bank"]
    away.rename(checkpoints)
    done = last_common(local)
    assert run(local, "train").checked()["bank"][0].resumed_from == done


def test_interruption_in_the_first_table(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    run(local, "train", handlers=end_after(1))  # type: ignore[arg-type]
    shutil.rmtree(local.get_part_path("bank").parent / "rehearsal.checkpoints", ignore_errors=True)
    assert run(local, "train").checked()["shop"][0].resumed_from == 0
    assert same_splits(model_of(local), plain_model(local))


def test_addresses_can_change_before_resuming(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    text = local.job_path.read_text()
    port = Job.read(local.job_path).get_entry("dealer").address.rpartition(":")[2]
    local.job_path.write_text(text.replace(port, str(find_free_ports(1)[0])))
    done = last_common(local)
    assert run(local, "train").checked()["bank"][0].resumed_from == done


def test_certificate_can_be_renewed_before_resuming(tmp_path: Path) -> None:
    """The job file stays the same, and an interrupted training run resumes."""
    local = prepare(tmp_path)
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    done = last_common(local)
    for name in ("bank", "dealer"):
        folder = tmp_path / name
        renew_identity(folder / f"{name}.key", folder / f"{name}.crt")
    assert run(local, "train").checked()["bank"][0].resumed_from == done


def test_finished_model_is_not_trained_again(trained: LocalFederation) -> None:
    before = {name: load_part(trained.get_part_path(name)).model_id for name in NAMES}
    found = run(trained, "train").checked()
    assert {name: load_part(trained.get_part_path(name)).model_id for name in NAMES} == before
    assert found["bank"][0].rounds == 0


def test_kill_between_the_last_checkpoint_and_the_part(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    run(local, "train", handlers=end_after(3))  # type: ignore[arg-type]
    done = last_common(local)
    found = run(local, "train").checked()
    assert found["shop"][0].resumed_from == done
    assert same_splits(model_of(local), plain_model(local))


def test_kill_before_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others keep earlier checkpoints until they know that all participants have the last."""
    local = prepare(tmp_path)
    save = CheckpointStore.save

    def fail_at_last(self: CheckpointStore, state: TrainingState, run: str) -> None:
        if "shop" in str(self.folder) and state.part.n_tables == 3:
            raise KilledError
        save(self, state, run)

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "save", fail_at_last)
        run(local, "train")
    assert last_common(local) == 2
    assert run(local, "train").checked()["bank"][0].resumed_from == 2
    assert same_splits(model_of(local), plain_model(local))


def test_one_participant_has_its_part_the_other_only_its_last_checkpoint(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    checkpoints = local.get_part_path("shop").parent / "rehearsal.checkpoints"

    def copy_checkpoints(event: Event) -> None:
        if event.kind == "table" and event.fields["table"] == 3:
            shutil.copytree(checkpoints, tmp_path / "kept")

    run(local, "train", handlers={"shop": copy_checkpoints}).checked()
    before = load_part(local.get_part_path("shop"))
    local.get_part_path("shop").unlink()
    shutil.rmtree(checkpoints)
    (tmp_path / "kept").rename(checkpoints)
    found = run(local, "train").checked()
    assert found["shop"][0].resumed_from == 3
    assert load_part(local.get_part_path("shop")).model_id == before.model_id
    assert same_splits(model_of(local), plain_model(local))


def test_a_second_run_of_the_same_job_is_refused(tmp_path: Path) -> None:
    """The first run has closed its listener by then, so only the lock stops the second one."""
    local = prepare(tmp_path)
    second: list[Run] = []

    def start_again(event: Event) -> None:
        if event.kind == "table" and not second:
            second.append(run(local, "train", absent=("shop", "dealer"), wait=1.0))

    first = run(local, "train", handlers={"bank": start_again})
    first.checked()
    assert isinstance(second[0].errors["bank"], UnavailableError)
    assert "works there for the job 'rehearsal'" in str(second[0].errors["bank"])
    assert same_splits(model_of(local), plain_model(local))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda content: content[:-20], "does not fit its seal"),
        (lambda content: content[:900] + b"?" + content[901:], "does not fit its seal"),
        (lambda content: b"something else", "not a checkpoint"),
    ],
)
def test_damaged_checkpoint_is_ignored(
    tmp_path: Path, damage: Callable[[bytes], bytes], complaint: str
) -> None:
    """If the last checkpoint is damaged, all resume from the previous one, with a warning."""
    local = prepare(tmp_path, tables=5)
    run(local, "train", handlers=end_after(3))  # type: ignore[arg-type]
    done, path = last_common(local), max(stages(local, "bank"))
    path.write_bytes(damage(path.read_bytes()))
    found = run(local, "train")
    last = int(path.name[:5]) - 1
    assert found.checked()["bank"][0].resumed_from == min(last, done)
    (warning,) = (event for event in found.events["bank"] if event.kind == "warning")
    assert str(path) in warning.text
    assert complaint in warning.text
    assert same_splits(model_of(local), plain_model(local))


def test_a_checkpoint_of_another_job_or_other_data_is_refused(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    run(local, "train", handlers=end_after(1))  # type: ignore[arg-type]
    data = local.folder / "bank" / "train.csv"
    lines = data.read_text().splitlines()
    changed = [
        lines[0],
        *(line.replace(",0.", ",1.").replace(",-0.", ",-1.") for line in lines[1:]),
    ]
    data.write_text("\n".join(changed) + "\n")
    found = run(local, "train", wait=2.0)
    with pytest.raises(ModelError, match="belongs to other data"):
        raise found.errors["bank"]
    data.write_text("\n".join(lines) + "\n")
    change(local.job_path, ("depth = 2", "depth = 3"))
    found = run(local, "train", wait=2.0)
    with pytest.raises(ModelError, match="belongs to another job"):
        raise found.errors["bank"]


def test_the_part_of_another_job_is_not_replaced(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    run(local, "train").checked()
    before = local.get_part_path("bank").read_bytes()
    change(local.job_path, ("depth = 2", "depth = 3"))
    found = run(local, "train", wait=2.0)
    with pytest.raises(ModelError, match="trained by another job"):
        raise found.errors["bank"]
    assert local.get_part_path("bank").read_bytes() == before


def test_parts_of_different_models_are_refused(tmp_path: Path, trained: LocalFederation) -> None:
    """Shares of two training runs of the same job do not add up."""
    other = LocalFederation(tmp_path, NAMES)
    for path in sorted(trained.folder.rglob("*")):
        target = tmp_path / path.relative_to(trained.folder)
        if path.is_dir():
            target.mkdir()
        elif path.suffix not in (".part", ".ended", ".tables"):
            target.write_bytes(path.read_bytes())
            target.chmod(0o600)
    run(other, "train").checked()
    other.get_part_path("bank").write_bytes(trained.get_part_path("bank").read_bytes())
    found = run(other, "predict")
    for name in (*NAMES, "dealer"):
        with pytest.raises(DisagreementError, match=r"model: \w+ "):
            raise found.errors[name]


def test_part_of_another_participant_is_rejected(trained: LocalFederation, tmp_path: Path) -> None:
    found = run(
        LocalFederation(trained.folder, NAMES), "predict", absent=("bank", "dealer"), wait=0.5
    )
    assert isinstance(found.errors["shop"], PeerError)
    kept = trained.get_part_path("shop").read_bytes()
    try:
        trained.get_part_path("shop").write_bytes(trained.get_part_path("bank").read_bytes())
        found = run(trained, "predict", absent=("bank", "dealer"), wait=0.5)
    finally:
        trained.get_part_path("shop").write_bytes(kept)
    with pytest.raises(ModelError, match="is the part of bank, not of shop"):
        raise found.errors["shop"]


def test_a_full_disk_is_reported_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = prepare(tmp_path)
    usage = type("usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    found = run(local, "train", absent=("dealer",), wait=0.5)
    for name in NAMES:
        with pytest.raises(UnavailableError, match=r"MB are free and .* needed"):
            raise found.errors[name]


def test_disk_fills_up_during_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = prepare(tmp_path)
    real = __import__("os").replace
    count = 0

    def replace(part: Path, path: Path) -> None:
        nonlocal count
        # Tables and scores of the first table, then the scores of the second.
        count += "bank" in str(path)
        if count == 3 and "bank" in str(path):
            raise OSError(28, "No space left on device")
        real(part, path)

    monkeypatch.setattr("os.replace", replace)
    found = run(local, "train")
    with pytest.raises(UnavailableError, match="No space left"):
        raise found.errors["bank"]
    assert isinstance(found.errors["shop"], PeerError)
    assert "bank" in str(found.errors["shop"])
    monkeypatch.undo()
    again = run(local, "train").checked()
    assert again["bank"][0].resumed_from == 1
    assert same_splits(model_of(local), plain_model(local))


def test_events_have_json_fields(trained: LocalFederation, tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=2)
    events = {
        n: [e for e in emitted if not e.is_transient]
        for n, emitted in run(local, "train").events.items()
    }
    kinds = [event.kind for event in events["bank"] if event.kind != "waiting"]
    assert kinds == ["listening", "connected", "cuts", "started", "table", "table"]
    for event in events["bank"]:
        json.dumps(event.fields)
    last = events["bank"][-1].fields
    assert (last["table"], last["tables"], last["seconds_left"]) == (2, 2, 0)


def test_progress_events_contain_traffic_and_disclosures(tmp_path: Path) -> None:
    found = run(prepare(tmp_path, tables=2), "train")
    report = found.checked()["bank"][0]
    snapshots = [event.fields for event in found.events["bank"] if event.is_transient]
    for fields in snapshots:
        json.dumps(fields)
    last = snapshots[-1]
    # The last snapshot is from the end, and contains all disclosures.
    assert [{**each, "to": [*each["to"]]} for each in last["reveals"]] == [
        reveal.model_dump() for reveal in report.reveals
    ]
    assert set(last["peers"]) == {"shop", "dealer"}
    # The meter counts arrays; the connection also counts headers and start-up messages.
    assert last["peers"]["shop"]["sent"] > report.bytes_sent
    assert last["peers"]["dealer"]["received"] > report.bytes_from_dealer


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_training_loss_is_revealed_if_the_job_sets_it(tmp_path: Path, task: str) -> None:
    local = prepare(tmp_path)
    change(local.job_path, ('task = "classification"', f'task = "{task}"\nreveal_loss = true'))
    found = run(local, "train")
    reports = [found.checked()[name][0] for name in NAMES]
    revealed = {
        name: [e.fields["loss_before"] for e in found.events[name] if e.kind == "table"]
        for name in NAMES
    }
    assert revealed["bank"] == revealed["shop"]
    label, model = rows(1).label, plain_model(local)
    assert label is not None
    scores = [model.base_score + np.zeros(40)]
    for table in range(2):
        part = replace(
            model,
            feature=model.feature[: table + 1],
            bucket=model.bucket[: table + 1],
            threshold=model.threshold[: table + 1],
            leaf_values=model.leaf_values[: table + 1],
            left_fraction=None,
        )
        scores.append(part.predict_scores(rows(1).columns))
    if task == "classification":
        residuals = [compute_sigmoid(score) - label for score in scores]
    else:
        # In the label's unit, a power of two, here 1.
        residuals = [score - label for score in scores]
    expected = [float(np.mean(residual**2)) for residual in residuals]
    assert revealed["bank"] == pytest.approx(expected, abs=2**-13)
    reveals = {(r.what, tuple(r.to)): r.count for r in reports[0].reveals}
    assert reveals["training loss", NAMES] == 3
    job = Job.read(local.job_path)
    # One of the five columns has few distinct values, and missing ones.
    federation = job.make_training_spec(
        load_part(local.get_part_path("bank")).part.features, (7, 7, 7, 7, 7)
    )
    estimate, id_check = (
        estimate_cost(federation, federation.make_plan(40)),
        count_program_cost(compare_ids_on_shares, len(NAMES), None),
    )
    assert reports[0].rounds == id_check.rounds + estimate.rounds
    assert (
        sum(report.bytes_sent for report in reports)
        == id_check.online_bytes + estimate.online_bytes
    )
    assert (
        sum(report.bytes_from_dealer for report in reports)
        == id_check.offline_bytes + estimate.offline_bytes
    )


def test_paper_protocol_does_not_reveal_the_loss(tmp_path: Path) -> None:
    local = prepare(tmp_path, protocol="paper")
    change(local.job_path, ("[params]", "reveal_loss = true\n[params]"))
    errors = run(local, "train").errors
    for name in (*NAMES, "dealer"):
        with pytest.raises(ParameterError, match="the protocol paper has no loss"):
            raise errors[name]


@pytest.mark.parametrize("aligned", [False, True])
def test_table_is_freed_before_connecting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aligned: bool
) -> None:
    """With alignment, the table is needed until the common rows are known."""
    local = prepare(tmp_path)
    if aligned:
        align(local)
    job, folder = Job.read(local.job_path), local.folder / "bank"
    read, tables = PartyConfig.read_rows, list[weakref.ref[LazyFrame]]()

    def read_rows(self: PartyConfig, job: Job) -> LazyFrame:
        rows = read(self, job)
        tables.append(weakref.ref(rows))
        return rows

    def connect(_: LocalMember, **__: object) -> None:
        (table,) = tables
        assert (table() is not None) == aligned
        raise KeyboardInterrupt

    monkeypatch.setattr(PartyConfig, "read_rows", read_rows)
    monkeypatch.setattr(LocalMember, "connect", connect)
    member = LocalMember.from_keys(job, "bank", str(folder / "bank.key"), str(folder / "bank.crt"))
    with pytest.raises(KeyboardInterrupt):
        run_training(PartyConfig.load(folder / "party.toml"), member)
