"""A federation of its own folders and keys: training, prediction, failure and recovery."""

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
    model_in_the_clear,
    model_of,
    prepare,
    rows,
    run,
)


def plain_model(local: LocalFederation) -> Model:
    """Return what training in the clear gives on the same files."""
    frames = {
        name: read_frame(
            local.folder / name / "train.csv",
            id="id",
            label="label" if name == local.recipient else None,
        )
        for name in local.party_names
    }
    return model_in_the_clear(local, frames)


def same_tests(a: Model, b: Model) -> bool:
    return np.array_equal(a.feature, b.feature) and np.array_equal(a.threshold, b.threshold)


AT_THE_END = ["rehearsal.checkpoints", "rehearsal.part"]
"""What a training leaves: scores, to go on from, and the part."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> LocalFederation:
    local = prepare(tmp_path_factory.mktemp("trained"))
    run(local, "train").checked()
    return local


def test_training_gives_the_model_of_plain_training(trained: LocalFederation) -> None:
    model, plain = model_of(trained), plain_model(trained)
    assert same_tests(model, plain)
    np.testing.assert_allclose(model.leaf_values, plain.leaf_values, atol=1e-4)
    for name in NAMES:
        assert stat.S_IMODE(trained.get_part_path(name).stat().st_mode) == 0o600
        folder = trained.get_part_path(name).parent
        assert sorted(p.name for p in folder.iterdir()) == AT_THE_END
        kept = sorted(path.suffix for path in (folder / AT_THE_END[0]).iterdir())
        assert kept == [".ended", ".tables"]
    assert len({load_part(trained.get_part_path(name)).model_id for name in NAMES}) == 1


def test_the_report_is_what_the_plan_says(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    found = run(local, "train").checked()
    reports = [found[name][0] for name in NAMES]
    job = Job.read(local.job_path)
    # Of five columns, one is rounded to a few numbers and missing in places.
    federation = job.make_training_spec(
        load_part(local.get_part_path("bank")).part.features, (7, 7, 7, 7, 7)
    )
    due, ids = (
        estimate_cost(federation, federation.make_plan(40)),
        count_program_cost(compare_ids_on_shares, len(NAMES), None),
    )
    assert {report.rounds for report in reports} == {ids.rounds + due.rounds}
    assert sum(report.bytes_sent for report in reports) == ids.online_bytes + due.online_bytes
    assert (
        sum(report.bytes_from_dealer for report in reports) == ids.offline_bytes + due.offline_bytes
    )
    assert {report.correlations for report in reports} == {"live"}
    told = {(reveal.what, tuple(reveal.to)) for report in reports for reveal in report.reveals}
    assert {what for what, _ in told} == {
        "numbers of cuts",
        "split feature",
        "split bucket",
        "numbers within bounds",
        "whose ids are the same",
    }
    assert {to for what, to in told if what == "split feature"} == {NAMES}


@pytest.mark.parametrize("aligned", [False, True])
def test_what_is_foreseen_is_what_the_report_has(tmp_path: Path, aligned: bool) -> None:
    """Comparing ids is part of it, unless rows are aligned: that is reported apart."""
    local = prepare(tmp_path)
    if aligned:
        align(local)
    found = run(local, "train")
    reports = [found.checked()[name][0] for name in NAMES]
    told = [e.fields["cuts"] for name in NAMES for e in found.events[name] if e.kind == "cuts"]
    counts = tuple(count for own in told for count in own.values())
    due = forecast_training(
        Job.read(local.job_path),
        reports[0].n_samples,
        [len(own) for own in told],
        cut_counts=counts,
    ).estimate
    assert {report.rounds for report in reports} == {due.rounds}
    assert sum(report.bytes_sent for report in reports) == due.online_bytes
    assert sum(report.bytes_from_dealer for report in reports) == due.offline_bytes
    (said,) = (event.fields for event in found.events["bank"] if event.kind == "started")
    assert (said["rounds"], said["bytes_online"], said["bytes_offline"]) == (
        due.rounds,
        due.online_bytes,
        due.offline_bytes,
    )


def test_prediction_goes_to_the_recipient(trained: LocalFederation) -> None:
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


def test_the_paper_protocol(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1, protocol="paper")
    run(local, "train").checked()
    found = run(local, "predict").checked()
    expected = model_of(local).predict(rows(2, 7).columns)
    np.testing.assert_allclose(found["shop"][1].values, expected, atol=1e-4)


class KilledError(Exception):
    """Ends a role from inside, at a moment of our choosing."""


def end_after(table: int) -> dict[str, object]:
    def tell(event: Event) -> None:
        if event.kind == "table" and event.fields["table"] == table:
            raise KilledError

    return {"shop": tell}


def last_common(local: LocalFederation) -> int:
    """Return the last table that all have: when one ends, another may be about to write it."""
    return min(int(max(stages(local, name)).name[:5]) for name in NAMES)


def stages(local: LocalFederation, name: str) -> list[Path]:
    """Return the stages that a participant has."""
    folder = local.get_part_path(name).parent / "rehearsal.checkpoints"
    return [*folder.glob("*.scores"), *folder.glob("*.ended")]


@pytest.mark.parametrize("protocol", ["masked", "paper"])
def test_a_training_cut_short_goes_on(tmp_path: Path, protocol: str) -> None:
    local = prepare(tmp_path, protocol=protocol)
    first = run(local, "train", tells=end_after(2))  # type: ignore[arg-type]
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
        assert same_tests(model_of(local), plain_model(local))
        np.testing.assert_allclose(
            model_of(local).leaf_values, plain_model(local).leaf_values, atol=1e-4
        )
    folders = [local.get_part_path(name).parent for name in NAMES]
    assert all(sorted(p.name for p in folder.iterdir()) == AT_THE_END for folder in folders)


def test_one_who_is_a_table_behind_is_waited_for(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    run(local, "train", tells=end_after(2))  # type: ignore[arg-type]
    max(stages(local, "shop")).unlink()
    second = run(local, "train").checked()
    assert second["bank"][0].resumed_from == 1
    assert same_tests(model_of(local), plain_model(local))


def test_checkpoints_of_different_runs_do_not_mix(tmp_path: Path) -> None:
    """Table 2 of one run and table 2 of another have shares that do not add up."""
    local = prepare(tmp_path)
    run(local, "train", tells=end_after(2))  # type: ignore[arg-type]
    kept = {
        name: (local.get_part_path(name).parent / "rehearsal.checkpoints").rename(
            tmp_path / f"{name}.1"
        )
        for name in NAMES
    }
    run(local, "train", tells=end_after(2))  # type: ignore[arg-type]
    checkpoints = local.get_part_path("bank").parent / "rehearsal.checkpoints"
    checkpoints.rename(tmp_path / "bank.2")
    kept["bank"].rename(checkpoints)
    kept_files = sorted(path.name for path in checkpoints.iterdir())
    found = run(local, "train")
    for name in (*NAMES, "dealer"):
        with pytest.raises(DisagreementError, match=r"tables done: 1 in run .* --restart"):
            raise found.errors[name]
    assert sorted(path.name for path in checkpoints.iterdir()) == kept_files
    found = run(local, "train", restart=True)
    assert found.checked()["bank"][0].resumed_from == 0
    assert same_tests(model_of(local), plain_model(local))


def test_nobodys_progress_is_thrown_away_unasked(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    run(local, "train", tells=end_after(2))  # type: ignore[arg-type]
    checkpoints = local.get_part_path("bank").parent / "rehearsal.checkpoints"
    away = checkpoints.rename(tmp_path / "away")
    found = run(local, "train")
    with pytest.raises(DisagreementError, match=r"tables done: none here, 1 in run .* at shop"):
        raise found.errors["bank"]
    away.rename(checkpoints)
    done = last_common(local)
    assert run(local, "train").checked()["bank"][0].resumed_from == done


def test_one_that_fell_in_the_first_table(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    run(local, "train", tells=end_after(1))  # type: ignore[arg-type]
    shutil.rmtree(local.get_part_path("bank").parent / "rehearsal.checkpoints", ignore_errors=True)
    assert run(local, "train").checked()["shop"][0].resumed_from == 0
    assert same_tests(model_of(local), plain_model(local))


def test_addresses_and_keys_may_change_on_the_way(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    run(local, "train", tells=end_after(2))  # type: ignore[arg-type]
    text = local.job_path.read_text()
    port = Job.read(local.job_path).get_entry("dealer").address.rpartition(":")[2]
    local.job_path.write_text(text.replace(port, str(find_free_ports(1)[0])))
    done = last_common(local)
    assert run(local, "train").checked()["bank"][0].resumed_from == done


def test_a_certificate_is_renewed_without_a_new_job(tmp_path: Path) -> None:
    """The job is the same file, and a training that was cut short goes on."""
    local = prepare(tmp_path)
    run(local, "train", tells=end_after(2))  # type: ignore[arg-type]
    done = last_common(local)
    for name in ("bank", "dealer"):
        folder = tmp_path / name
        renew_identity(folder / f"{name}.key", folder / f"{name}.crt")
    assert run(local, "train").checked()["bank"][0].resumed_from == done


def test_a_model_that_is_there_is_not_trained_again(trained: LocalFederation) -> None:
    before = {name: load_part(trained.get_part_path(name)).model_id for name in NAMES}
    found = run(trained, "train").checked()
    assert {name: load_part(trained.get_part_path(name)).model_id for name in NAMES} == before
    assert found["bank"][0].rounds == 0


def test_one_killed_between_its_last_checkpoint_and_its_part(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    run(local, "train", tells=end_after(3))  # type: ignore[arg-type]
    done = last_common(local)
    found = run(local, "train").checked()
    assert found["shop"][0].resumed_from == done
    assert same_tests(model_of(local), plain_model(local))


def test_one_killed_before_its_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are done: they keep the stages before, until they know that all have the last."""
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
    assert same_tests(model_of(local), plain_model(local))


def test_one_has_its_part_and_the_other_only_its_last_checkpoint(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    checkpoints = local.get_part_path("shop").parent / "rehearsal.checkpoints"

    def keep(event: Event) -> None:
        if event.kind == "table" and event.fields["table"] == 3:
            shutil.copytree(checkpoints, tmp_path / "kept")

    run(local, "train", tells={"shop": keep}).checked()
    before = load_part(local.get_part_path("shop"))
    local.get_part_path("shop").unlink()
    shutil.rmtree(checkpoints)
    (tmp_path / "kept").rename(checkpoints)
    found = run(local, "train").checked()
    assert found["shop"][0].resumed_from == 3
    assert load_part(local.get_part_path("shop")).model_id == before.model_id
    assert same_tests(model_of(local), plain_model(local))


def test_a_second_run_of_the_same_job_is_refused(tmp_path: Path) -> None:
    """The listener of the first is closed by then, so nothing else would keep it away."""
    local = prepare(tmp_path)
    second: list[Run] = []

    def start_again(event: Event) -> None:
        if event.kind == "table" and not second:
            second.append(run(local, "train", absent=("shop", "dealer"), wait=1.0))

    first = run(local, "train", tells={"bank": start_again})
    first.checked()
    assert isinstance(second[0].errors["bank"], UnavailableError)
    assert "works there for the job 'rehearsal'" in str(second[0].errors["bank"])
    assert same_tests(model_of(local), plain_model(local))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda content: content[:-20], "does not fit its seal"),
        (lambda content: content[:900] + b"?" + content[901:], "does not fit its seal"),
        (lambda content: b"something else", "not a checkpoint"),
    ],
)
def test_a_damaged_checkpoint_is_left_out(
    tmp_path: Path, damage: Callable[[bytes], bytes], complaint: str
) -> None:
    """The last one, whoever has it: all go on from the one before, and it is said why."""
    local = prepare(tmp_path, tables=5)
    run(local, "train", tells=end_after(3))  # type: ignore[arg-type]
    done, path = last_common(local), max(stages(local, "bank"))
    path.write_bytes(damage(path.read_bytes()))
    found = run(local, "train")
    last = int(path.name[:5]) - 1
    assert found.checked()["bank"][0].resumed_from == min(last, done)
    (warning,) = (event for event in found.events["bank"] if event.kind == "warning")
    assert str(path) in warning.text
    assert complaint in warning.text
    assert same_tests(model_of(local), plain_model(local))


def test_a_checkpoint_of_another_job_or_other_data_is_refused(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    run(local, "train", tells=end_after(1))  # type: ignore[arg-type]
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
    """The same job, trained twice: the shares of the two do not add up."""
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


def test_somebody_elses_part(trained: LocalFederation, tmp_path: Path) -> None:
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


def test_a_disk_that_fills_up_while_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert same_tests(model_of(local), plain_model(local))


def test_events_are_for_machines_too(trained: LocalFederation, tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=2)
    events = {
        n: [e for e in told if not e.is_transient] for n, told in run(local, "train").events.items()
    }
    kinds = [event.kind for event in events["bank"] if event.kind != "waiting"]
    assert kinds == ["listening", "connected", "cuts", "started", "table", "table"]
    for event in events["bank"]:
        json.dumps(event.fields)
    last = events["bank"][-1].fields
    assert (last["table"], last["tables"], last["seconds_left"]) == (2, 2, 0)


def test_who_watches_sees_how_it_stands(tmp_path: Path) -> None:
    found = run(prepare(tmp_path, tables=2), "train")
    report = found.checked()["bank"][0]
    standing = [event.fields for event in found.events["bank"] if event.is_transient]
    for fields in standing:
        json.dumps(fields)
    last = standing[-1]
    # The last look is at the end: all that was revealed is there.
    assert [{**each, "to": [*each["to"]]} for each in last["reveals"]] == [
        reveal.model_dump() for reveal in report.reveals
    ]
    assert set(last["peers"]) == {"shop", "dealer"}
    # The meter counts arrays; the connection also headers, and what was said before the program.
    assert last["peers"]["shop"]["sent"] > report.bytes_sent
    assert last["peers"]["dealer"]["received"] > report.bytes_from_dealer


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_the_loss_is_revealed_where_all_agreed(tmp_path: Path, task: str) -> None:
    local = prepare(tmp_path)
    change(local.job_path, ('task = "classification"', f'task = "{task}"\nreveal_loss = true'))
    found = run(local, "train")
    reports = [found.checked()[name][0] for name in NAMES]
    told = {
        name: [e.fields["loss_before"] for e in found.events[name] if e.kind == "table"]
        for name in NAMES
    }
    assert told["bank"] == told["shop"]
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
        # In the label's unit, which is a power of two: here 1.
        residuals = [score - label for score in scores]
    expected = [float(np.mean(residual**2)) for residual in residuals]
    assert told["bank"] == pytest.approx(expected, abs=2**-13)
    reveals = {(r.what, tuple(r.to)): r.count for r in reports[0].reveals}
    assert reveals["training loss", NAMES] == 3
    job = Job.read(local.job_path)
    # Of five columns, one is rounded to a few numbers and missing in places.
    federation = job.make_training_spec(
        load_part(local.get_part_path("bank")).part.features, (7, 7, 7, 7, 7)
    )
    due, ids = (
        estimate_cost(federation, federation.make_plan(40)),
        count_program_cost(compare_ids_on_shares, len(NAMES), None),
    )
    assert reports[0].rounds == ids.rounds + due.rounds
    assert sum(report.bytes_sent for report in reports) == ids.online_bytes + due.online_bytes
    assert (
        sum(report.bytes_from_dealer for report in reports) == ids.offline_bytes + due.offline_bytes
    )


def test_the_paper_has_no_loss_to_reveal(tmp_path: Path) -> None:
    local = prepare(tmp_path, protocol="paper")
    change(local.job_path, ("[params]", "reveal_loss = true\n[params]"))
    errors = run(local, "train").errors
    for name in (*NAMES, "dealer"):
        with pytest.raises(ParameterError, match="the protocol paper has no loss"):
            raise errors[name]


@pytest.mark.parametrize("aligned", [False, True])
def test_a_table_is_gone_before_anybody_is_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aligned: bool
) -> None:
    """Unless it is to be found out with the others which of its rows take part."""
    local = prepare(tmp_path)
    if aligned:
        align(local)
    job, folder = Job.read(local.job_path), local.folder / "bank"
    read, tables = PartyConfig.read_rows, list[weakref.ref[LazyFrame]]()

    def read_rows(self: PartyConfig, job: Job) -> LazyFrame:
        rows = read(self, job)
        tables.append(weakref.ref(rows))
        return rows

    def meet(_: LocalMember, **__: object) -> None:
        (table,) = tables
        assert (table() is not None) == aligned
        raise KeyboardInterrupt

    monkeypatch.setattr(PartyConfig, "read_rows", read_rows)
    monkeypatch.setattr(LocalMember, "connect", meet)
    seat = LocalMember.from_keys(job, "bank", str(folder / "bank.key"), str(folder / "bank.crt"))
    with pytest.raises(KeyboardInterrupt):
        run_training(PartyConfig.load(folder / "party.toml"), seat)
