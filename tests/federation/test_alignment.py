"""Federations whose participants have different rows, in different orders."""

from __future__ import annotations

import csv
import json
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from privet.boosting.model import Model
from privet.cli.app import app
from privet.config.job import Job
from privet.config.party import PartyConfig
from privet.data.reader import read_frame
from privet.errors import (
    CorrelationError,
    DataError,
    DisagreementError,
    ModelError,
    ParameterError,
    PeerError,
    PrivetError,
)
from privet.experiments.local_federation import LocalFederation
from privet.federation.commands import write_ids
from privet.federation.local_data import LocalTable
from privet.runtime.run import DEALER_NAME
from privet.storage.alignment import Alignment, AlignmentStore
from privet.storage.model_part import load_part
from tests.federation.harness import (
    NAMES,
    Run,
    align,
    change,
    common_rows,
    model_of,
    prepare,
    preprocess_offline,
    run,
    train_in_plaintext,
)
from tests.federation.test_training import end_after, last_common, same_splits

THREE = ("bank", "telecom", "shop")


def plain_model(local: LocalFederation) -> Model:
    """Train in plaintext on the common rows."""
    return train_in_plaintext(local, common_rows(local))


def alignment_path(local: LocalFederation, name: str) -> Path:
    return local.folder / name / "models" / "rehearsal.alignment"


def count_alignments(local: LocalFederation, name: str) -> int:
    return AlignmentStore(local.folder / name / "models", Job.read(local.job_path)).read_count


def errors_of(found: Run, kind: type[PrivetError]) -> dict[str, str]:
    """Return the error messages; every role must have failed with this kind of error."""
    assert not found.results, found.results
    for name, error in found.errors.items():
        assert isinstance(error, kind), (name, error)
    return {name: str(error) for name, error in found.errors.items()}


@pytest.fixture
def local(tmp_path: Path) -> LocalFederation:
    found = prepare(tmp_path)
    align(found)
    return found


def test_paper_protocol(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1, protocol="paper")
    # The paper's sigmoid is inexact, and a second level of few rows has several equal splits.
    change(
        local.job_path, ("tables = 1", "tables = 1\nbase_score = 0.0"), ("depth = 2", "depth = 1")
    )
    align(local)
    assert run(local, "train").checked()["bank"][0].n_samples == 36
    assert same_splits(model_of(local), plain_model(local))
    assert len(run(local, "predict").checked()["shop"][1].values) == 3


@pytest.mark.parametrize("names", [NAMES, THREE])
def test_training_uses_the_common_rows(tmp_path: Path, names: tuple[str, ...]) -> None:
    local = prepare(tmp_path, names=names)
    align(local)
    found = run(local, "train")
    common = 40 - 2 * len(names)
    assert {found.checked()[name][0].n_samples for name in names} == {common}
    assert same_splits(model_of(local), plain_model(local))
    np.testing.assert_allclose(
        model_of(local).leaf_values, plain_model(local).leaf_values, atol=1e-4
    )
    alignments = [found.results[name][0].alignment for name in names]
    assert len({alignment.name for alignment in alignments}) == 1
    for name, alignment in zip(names, alignments, strict=True):
        assert (alignment.number, alignment.used_again, alignment.rows, alignment.common) == (
            1,
            False,
            41,
            common,
        )
        assert alignment.bytes_to_dealer == 2 * 8 * (41 + 64)
        texts = [event.text for event in found.events[name] if event.kind == "aligned"]
        left_out = 41 - common
        assert texts == [
            f"alignment 1 of this job: {common} of our 41 rows are common to all, "
            f"{left_out} are left out"
        ]
        folder = local.get_part_path(name).parent
        assert sorted(path.name for path in folder.iterdir()) == [
            "rehearsal.alignment",
            "rehearsal.alignment-count",
            "rehearsal.checkpoints",
            "rehearsal.part",
        ]
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_alignment_disclosures(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1, names=THREE)
    align(local)
    for name, (report, _) in run_at_participants(local, "train").items():
        disclosures = {reveal.what: (reveal.to, reveal.count) for reveal in report.reveals}
        assert disclosures["which of its rows all have"] == ([name], 41)
        assert disclosures["number of rows that all have"] == ([*THREE, DEALER_NAME], 1)
        assert disclosures["number of its rows"] == ([DEALER_NAME], 1)
        assert disclosures["number of rows that some have"] == ([DEALER_NAME], 3)
        assert "whose ids are the same" not in disclosures
    # A reused alignment reveals nothing.
    for report, _ in run_at_participants(local, "train").values():
        assert report.alignment.used_again
        assert report.reveals == []


def run_at_participants(local: LocalFederation, verb: str, **options: Any) -> dict[str, Any]:
    found = run(local, verb, **options).checked()
    return {name: found[name] for name in local.party_names}


def test_the_same_rows_in_another_order(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    change(local.job_path, ("[params]", "align = true\n\n[ids]\nminimum = 40\n\n[params]"))
    path = local.folder / "bank" / "train.csv"
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([header, *reversed(lines)]) + "\n")
    assert run(local, "train").checked()["bank"][0].n_samples == 40
    assert same_splits(model_of(local), plain_model(local))


def test_prediction_covers_the_common_rows(local: LocalFederation) -> None:
    run(local, "train").checked()
    found = run(local, "predict")
    frames = common_rows(local, "new.csv")
    columns = np.concatenate([frame.columns for frame in frames.values()])
    ids = frames["shop"].ids
    assert ids is not None
    expected = dict(zip(ids.tolist(), model_of(local).predict(columns), strict=True))
    predictions = found.checked()["shop"][1]
    local_ids = read_frame(local.folder / "shop" / "new.csv", id="id").ids
    assert local_ids is not None
    # The recipient's order, not the agreed order of the common rows.
    assert predictions.ids.tolist() == [key for key in local_ids.tolist() if key in expected]
    np.testing.assert_allclose(
        predictions.values, [expected[key] for key in predictions.ids.tolist()], atol=1e-4
    )
    report = found.results["shop"][0]
    assert (report.n_samples, report.rounds) == (3, 3)
    assert (report.alignment.rows, report.alignment.common) == (8, 3)
    assert [(r.what, r.to) for r in report.reveals][-1] == ("predictions", ["shop"])
    # The alignment of a batch is counted, but not stored.
    assert [count_alignments(local, name) for name in NAMES] == [2, 2]
    assert found.results["bank"][0].alignment.name != load_alignment(local, "bank").alignment_id


def load_alignment(local: LocalFederation, name: str) -> Alignment:
    folder, file = local.folder / name / "models", local.folder / name / "train.csv"
    ids = read_frame(file, id="id").ids
    assert ids is not None
    found = AlignmentStore(folder, Job.read(local.job_path)).find(ids.digest().hex())
    assert found is not None
    return found


def test_interrupted_training_resumes_with_the_same_rows(local: LocalFederation) -> None:
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    done, before = last_common(local), load_alignment(local, "bank")
    found = run(local, "train")
    assert {found.checked()[name][0].resumed_from for name in NAMES} == {done}
    assert {found.results[name][0].alignment.name for name in NAMES} == {before.alignment_id}
    texts = [event.text for event in found.events["bank"] if event.kind == "aligned"]
    assert texts == ["rows as aligned before: 36 of our 41 rows are common to all, 5 are left out"]
    assert [count_alignments(local, name) for name in NAMES] == [1, 1]
    assert same_splits(model_of(local), plain_model(local))
    np.testing.assert_allclose(
        model_of(local).leaf_values, plain_model(local).leaf_values, atol=1e-4
    )


def test_training_does_not_resume_from_a_checkpoint_of_other_rows(local: LocalFederation) -> None:
    """The alignment is missing, or the rows or their order have changed."""
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    done = last_common(local)
    path, content = alignment_path(local, "bank"), alignment_path(local, "bank").read_bytes()
    path.unlink()
    found = run(local, "train", absent=("shop", DEALER_NAME))
    with pytest.raises(ModelError, match=r"bank.*scores: was trained on rows as they were aligned"):
        raise found.errors["bank"]
    path.write_bytes(content)
    data = local.folder / "bank" / "train.csv"
    lines = data.read_text().splitlines(keepends=True)
    for changed in (lines[:-1], [lines[0], lines[2], lines[1], *lines[3:]]):
        data.write_text("".join(changed))
        found = run(local, "train", absent=("shop", DEALER_NAME))
        with pytest.raises(ModelError, match="put the file or the rows back, or start again with"):
            raise found.errors["bank"]
    data.write_text("".join(lines))
    # Another alignment of the same rows has another order, and is rejected.
    alignment = load_alignment(local, "bank")
    ids = read_frame(data, id="id").ids
    assert ids is not None
    alignments = AlignmentStore(path.parent, Job.read(local.job_path))
    other = Alignment(alignment.alignment_id, alignment.rows[::-1])
    alignments.save(other, ids.digest().hex(), len(ids))
    found = run(local, "train", absent=("shop", DEALER_NAME))
    with pytest.raises(ModelError, match="belongs to other data"):
        raise found.errors["bank"]
    path.write_bytes(content)
    assert run(local, "train").checked()["bank"][0].resumed_from == done


def test_checkpoint_distinguishes_rows_with_equal_features(tmp_path: Path) -> None:
    """Constant columns look the same in any order of the rows."""
    local = prepare(tmp_path)
    align(local)
    path = local.folder / "bank" / "train.csv"
    header, *lines = list(csv.reader(path.read_text().splitlines()))
    same = [[row[0], "1.0", "1.0", "1.0"] for row in lines]
    path.write_text("\n".join(",".join(row) for row in [header, *same]) + "\n")
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    before = load_alignment(local, "bank")
    found = read_frame(path, id="id").ids
    assert found is not None
    alignments = AlignmentStore(alignment_path(local, "bank").parent, Job.read(local.job_path))
    other = Alignment(before.alignment_id, before.rows[::-1])
    alignments.save(other, found.digest().hex(), len(found))
    ended = run(local, "train", absent=("shop", DEALER_NAME))
    with pytest.raises(ModelError, match="belongs to other data"):
        raise ended.errors["bank"]


def test_restart_aligns_again(local: LocalFederation) -> None:
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    before = load_alignment(local, "bank").alignment_id
    for error in errors_of(run_without_shop_files(local), DisagreementError).values():
        assert "alignment: " in error
        assert "none" in error
        assert "or start again with --restart everywhere" in error
    found = run(local, "train", restart=True).checked()
    assert {found[name][0].resumed_from for name in NAMES} == {0}
    assert (
        load_alignment(local, "bank").alignment_id
        == load_alignment(local, "shop").alignment_id
        != before
    )
    assert [count_alignments(local, name) for name in NAMES] == [2, 2]
    assert same_splits(model_of(local), plain_model(local))


def run_without_shop_files(local: LocalFederation) -> Run:
    """Run a training without the shop's earlier files."""
    away = local.get_part_path("shop").parent.rename(local.folder / "away")
    found = run(local, "train")
    shutil.rmtree(local.get_part_path("shop").parent, ignore_errors=True)
    away.rename(local.get_part_path("shop").parent)
    return found


def test_alignment_without_training_is_reused(local: LocalFederation) -> None:
    found = run(local, "align")
    (first, ids), (second, other_ids) = (found.checked()[name] for name in NAMES)
    assert (first.common, first.name) == (36, second.name)
    assert ids.tolist() == other_ids.tolist()  # in the same order
    expected = common_rows(local)["bank"].ids
    assert expected is not None
    assert sorted(ids.tolist()) == expected.tolist()
    assert ids.tolist() != expected.tolist()
    report = run(local, "train").checked()["bank"][0]
    assert (report.alignment.name, report.alignment.used_again) == (first.name, True)
    assert same_splits(model_of(local), plain_model(local))


def test_alignment_is_refused_while_training_can_resume(local: LocalFederation) -> None:
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    for error in errors_of(run(local, "align", absent=(DEALER_NAME,)), ModelError).values():
        assert "checkpoints: holds tables of a training that can go on" in error


def test_different_alignments_cause_a_new_alignment(local: LocalFederation) -> None:
    run(local, "align").checked()
    old = alignment_path(local, "bank").read_bytes()
    run(local, "align").checked()
    alignment_path(local, "bank").write_bytes(old)
    report = run(local, "train").checked()["bank"][0]
    assert (report.alignment.used_again, report.alignment.number) == (False, 3)
    assert same_splits(model_of(local), plain_model(local))


def test_alignment_is_not_reused_with_other_participants(local: LocalFederation) -> None:
    """An alignment is valid only for the same participants."""
    run(local, "align").checked()
    job = Job.read(local.job_path)
    ids = read_frame(local.folder / "bank" / "train.csv", id="id").ids
    assert ids is not None
    digest, folder = ids.digest().hex(), alignment_path(local, "bank").parent
    assert AlignmentStore(folder, job).find(digest) is not None
    assert AlignmentStore(folder, job).find("0" * 64) is None
    third = job.participants[0].model_copy(update={"name": "third", "role": "passive"})
    more = job.model_copy(update={"participants": [*job.participants, third]})
    assert AlignmentStore(folder, more).find(digest) is None


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda content: content[:-1], "does not fit its seal"),
        (lambda content: b"something else", "not a row-alignment file of this software"),
    ],
)
def test_damaged_alignment_is_rejected(local: LocalFederation, damage: Any, complaint: str) -> None:
    run(local, "align").checked()
    alignment_path(local, "bank").write_bytes(damage(alignment_path(local, "bank").read_bytes()))
    found = run(local, "train", absent=("shop", DEALER_NAME))
    with pytest.raises(ModelError, match=complaint):
        raise found.errors["bank"]


def test_offline_training_uses_an_existing_alignment(local: LocalFederation) -> None:
    preprocess_offline(local, samples=36)
    for error in errors_of(run(local, "train", absent=(DEALER_NAME,)), DataError).values():
        assert "its rows are not aligned" in error
        assert "run `privet align` everywhere first, with the dealer" in error
    name = run(local, "align").checked()["bank"][0].name
    reports = [
        r for r, _ in run(local, "train", absent=(DEALER_NAME,), restart=True).checked().values()
    ]
    assert {(r.alignment.name, r.correlations) for r in reports} == {(name, "ahead")}
    assert same_splits(model_of(local), plain_model(local))


def test_offline_training_rejects_different_alignments(local: LocalFederation) -> None:
    run(local, "align").checked()
    old = alignment_path(local, "bank").read_bytes()
    run(local, "align").checked()
    alignment_path(local, "bank").write_bytes(old)
    preprocess_offline(local, samples=36)
    found = run(local, "train", absent=(DEALER_NAME,))
    for error in errors_of(found, DisagreementError).values():
        assert "alignment: " in error
        assert "the dealer is not there to make another: run `privet align` with it" in error


def test_offline_training_rejects_files_for_another_row_count(local: LocalFederation) -> None:
    run(local, "align").checked()
    preprocess_offline(local, samples=40)
    for error in errors_of(run(local, "train", absent=(DEALER_NAME,)), CorrelationError).values():
        assert "was dealt for samples: 40, and here it is 36" in error


def test_kept_indicators_are_of_use_with_the_same_alignment(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=2)
    align(local)
    change(local.job_path, ("align = true", "align = true\nkeep_indicators = true"))
    run(local, "train").checked()
    for name in NAMES:
        local.get_part_path(name).unlink()
    change(local.job_path, ("learning_rate = 1.0", "learning_rate = 0.5"))
    found = run(local, "train")
    assert found.checked()["bank"][0].alignment.used_again
    told = [event.fields["owners"] for event in found.events["bank"] if event.kind == "kept"]
    assert told == [list(NAMES)]
    assert same_splits(model_of(local), plain_model(local))
    # Aligned anew, the rows stand in another order, and everything is published again.
    found = run(local, "train", restart=True)
    told = [event.fields["owners"] for event in found.events["bank"] if event.kind == "kept"]
    assert told == [[]]
    assert same_splits(model_of(local), plain_model(local))


@pytest.mark.parametrize("verb", ["align", "train", "predict"])
def test_too_few_rows_in_common(tmp_path: Path, verb: str) -> None:
    local = prepare(tmp_path, tables=1)
    align(local)
    if verb == "predict":
        run(local, "train").checked()
        rows, common = 8, 3
    else:
        rows, common = 41, 36
    change(local.job_path, ("minimum = 3", f"minimum = {common + 1}"))
    jobs = dict.fromkeys(local.member_names, local.job_path)
    errors = errors_of(run(local, verb, jobs=jobs), DataError)
    text = f"ids: {common} rows are common to all, and the job's minimum is {common + 1}"
    assert errors[DEALER_NAME] == text
    for name in NAMES:
        assert errors[name].startswith(f"{text}; of our {rows} rows 5 are not among them, such as")
        assert "have the job normalise them" in errors[name]
        assert f"'{name} " in errors[name]
        assert not [other for other in NAMES if other != name and f"'{other} " in errors[name]]
    assert {error.exit_code for error in run(local, verb).errors.values()} == {4}  # type: ignore[attr-defined]


def test_no_rows_in_common(local: LocalFederation) -> None:
    path = local.folder / "bank" / "train.csv"
    path.write_text(path.read_text().replace("\n1-", "\none-"))
    errors = errors_of(run(local, "train"), DataError)
    assert errors[DEALER_NAME].startswith(
        "ids: 0 rows are common to all, and the job's minimum is 3"
    )
    assert "of our 41 rows 41 are not among them, such as 'one-" in errors["bank"]
    assert "such as '1-" in errors["shop"] or "such as 'shop" in errors["shop"]
    assert not alignment_path(local, "bank").exists()


def test_stored_alignment_must_meet_the_minimum(local: LocalFederation) -> None:
    run(local, "align").checked()
    change(local.job_path, ("minimum = 3", "minimum = 37"))
    for error in errors_of(run(local, "train", absent=(DEALER_NAME,)), DataError).values():
        assert "36 rows are common to all, and the job's minimum is 37" in error


def test_job_can_limit_the_number_of_alignments(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    align(local, most_alignments=3)
    run(local, "train").checked()
    run(local, "predict").checked()
    run(local, "align").checked()
    for verb in ("align", "predict"):
        for error in errors_of(run(local, verb), ParameterError).values():
            assert (
                "ids.most_alignments: the job's rows may be aligned 3 times, and were at " in error
            )
            assert "bank and at shop: have all agree on more" in error
    run(local, "train", restart=False)  # which needs no new alignment
    # One participant that loses its count does not reset the others' counts.
    (alignment_path(local, "bank").with_suffix(".alignment-count")).unlink()
    for error in errors_of(run(local, "align"), ParameterError).values():
        assert "and were at shop: have all" in error


def test_failed_alignment_is_counted(local: LocalFederation) -> None:
    change(local.job_path, ("minimum = 3", "minimum = 40"))
    errors_of(run(local, "align"), DataError)
    assert [count_alignments(local, name) for name in NAMES] == [1, 1]


def test_padding(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    align(local, padded=41)
    path = local.folder / "bank" / "train.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))
    found = run(local, "train").checked()
    reports = [found[name][0] for name in NAMES]
    assert {r.alignment.bytes_to_dealer for r in reports} == {2 * 8 * (41 + 64)}
    assert [r.alignment.rows for r in reports] == [38, 41]
    assert "number of its rows" not in {r.what for r in reports[0].reveals}
    assert same_splits(model_of(local), plain_model(local))
    change(local.job_path, ("padded = 41", "padded = 40"))
    error = run(local, "train", absent=("bank", DEALER_NAME), restart=True).errors["shop"]
    assert isinstance(error, DataError)
    assert "41 rows are more than 40, to which the job has all padded: use fewer" in str(error)


def test_participant_without_padding_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = prepare(tmp_path, tables=1)
    align(local, padded=50)
    monkeypatch.setattr(
        "privet.federation.alignment.psi.draw_padding", lambda *_: np.empty(0, dtype=np.uint64)
    )
    found = run(local, "align")
    assert isinstance(found.errors[DEALER_NAME], PeerError)
    assert "bank: announced 210 tags of 50 padded rows" in str(found.errors[DEALER_NAME])


def test_ids_of_several_columns_and_rules(tmp_path: Path) -> None:
    """The bank writes names in capitals and telephone numbers with dashes."""
    local = prepare(tmp_path, tables=1)
    settings = 'align = true\n\n[ids]\nminimum = 40\nparts = ["name", "phone"]\n'
    rules = '\n[ids.normalise]\nname = ["strip", "casefold"]\nphone = ["digits"]\n\n[params]'
    change(local.job_path, ("[params]", settings + rules))
    for name, columns in (("bank", ("Who", "Call")), ("shop", ("customer", "telephone"))):
        change(local.folder / name / "party.toml", ('"id"', json.dumps(columns)))
        for file in ("train.csv", "new.csv"):
            path = local.folder / name / file
            header, *lines = path.read_text().splitlines()
            header = header.replace("id,", f"{columns[0]},{columns[1]},", 1)
            text = [header]
            for line in reversed(lines) if name == "bank" else lines:
                identity, rest = line.split(",", 1)
                number = identity.split("-")[1]
                large = f" Émile X{number} ,+1-{number}"
                small = f"émile x{number},1{number}"
                text.append(f"{large if name == 'bank' else small},{rest}")
            path.write_text("\n".join(text) + "\n")
    change(local.job_path, ("minimum = 40", "minimum = 7"))
    assert run(local, "train").checked()["bank"][0].n_samples == 40
    predictions = run(local, "predict").checked()["shop"][1]
    table = list(csv.reader(predictions.to_csv().decode().splitlines()))
    assert table[0] == ["customer", "telephone", "class", "probability of 0", "probability of 1"]
    assert table[1][:2] == ["émile x0", "10"]
    assert len(table) == 8


def test_rules_without_an_alignment(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    change(local.job_path, ("[params]", '[ids]\nnormalise = ["digits"]\n\n[params]'))
    path = local.folder / "bank" / "train.csv"
    path.write_text(path.read_text().replace("\n1-", "\nNo. 1 - "))
    report = run(local, "train").checked()["bank"][0]
    assert "whose ids are the same" in {reveal.what for reveal in report.reveals}
    assert report.alignment is None


def test_members_must_agree_on_alignment(local: LocalFederation) -> None:
    other = local.folder / "other.toml"
    other.write_bytes(local.job_path.read_bytes())
    change(other, ("align = true", ""), ("[ids]\nminimum = 3", ""))
    errors = errors_of(run(local, "train", jobs={DEALER_NAME: other}), DisagreementError)
    assert "align: True here and at shop, False at dealer" in errors["bank"]
    assert "ids.minimum: 3 here and at shop, 100 at dealer" in errors["bank"]


def test_align_requires_an_aligned_job(tmp_path: Path) -> None:
    found = run(prepare(tmp_path), "align", absent=("shop", DEALER_NAME))
    with pytest.raises(ParameterError, match="the job does not say align = true"):
        raise found.errors["bank"]


def test_cut_counts_are_those_of_the_common_rows(local: LocalFederation) -> None:
    """A value only in the bank's extra rows adds no cut, and `privet cuts` does not count it."""
    path = local.folder / "bank" / "train.csv"
    header, *lines = list(csv.reader(path.read_text().splitlines()))
    for row in lines:
        row[1] = "2.0" if row[0].startswith("bank") else "1.0"
    path.write_text("\n".join(",".join(row) for row in [header, *lines]) + "\n")
    change(local.job_path, ("align = true", 'align = true\ncuts = "exact"'))
    command = ["cuts", "--json", f"--party={local.folder / 'bank' / 'party.toml'}"]
    command += [f"--job={local.job_path}"]
    ended = CliRunner().invoke(app, command)
    assert isinstance(ended.exception, DataError)
    assert "run `privet align` with the others first" in str(ended.exception)
    found = run(local, "train")
    cut_counts = [e.fields["cuts"] for e in found.events["bank"] if e.kind == "cuts"]
    assert [each["a"] for each in cut_counts] == [0]
    assert json.loads(CliRunner().invoke(app, command).stdout) == cut_counts[0]
    assert same_splits(model_of(local), plain_model(local))


def test_alignment_limits_are_not_part_of_the_job_digest(local: LocalFederation) -> None:
    """Members agree on alignment limits in every run; models do not contain them."""
    run(local, "train").checked()
    change(local.job_path, ("minimum = 3", "minimum = 2"))
    file = load_part(local.get_part_path("bank"))
    assert file.job.digest == Job.read(local.job_path).digest
    assert file.job.ids.minimum == 3


def test_ids_are_written_as_in_the_local_table(local: LocalFederation, tmp_path: Path) -> None:
    found = run(local, "align").checked()
    path = tmp_path / "in.csv"
    write_ids(found["bank"][1], path)
    header, *lines = path.read_text().splitlines()
    assert header == "id"
    assert lines == found["bank"][1].tolist()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_missing_label_is_found_before_connecting(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    align(local)
    path = local.folder / "shop" / "train.csv"
    header, first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([header, first.rpartition(",")[0] + ",", *rest]) + "\n")
    party = PartyConfig.load(local.folder / "shop" / "party.toml")
    with pytest.raises(DataError, match=r"train\.csv: the label of row 1 is missing"):
        LocalTable.read(party, Job.read(local.job_path), restart=False)
