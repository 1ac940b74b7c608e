"""Cut counts: their disclosure as the job sets it, and their use in estimates."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from privet.boosting.cost_estimate import estimate_cost
from privet.boosting.model import Feature
from privet.cli.app import app
from privet.config.job import Job
from privet.errors import CorrelationError, DataError, ParameterError
from privet.experiments.local_federation import LocalFederation
from privet.federation.alignment.alignment import compare_ids_on_shares
from privet.runtime.cost import count_program_cost
from privet.spec.plan import CutDisclosure
from privet.storage.model_part import load_part
from tests.federation.harness import NAMES, change, model_of, prepare, preprocess_offline, run
from tests.federation.test_training import end_after, last_common, plain_model, same_splits


def prepare_ragged(folder: Path, cuts: CutDisclosure = "rounded") -> LocalFederation:
    """Prepare a federation where a column of the bank has two values, and one of the shop one."""
    local = prepare(folder, cuts=cuts)
    for name, column, values in (("bank", 1, ("0.0", "1.0")), ("shop", 2, ("1.0", "1.0"))):
        path = folder / name / "train.csv"
        header, *rows = list(csv.reader(path.read_text().splitlines()))
        for row in rows:
            row[column] = values[row[column] > "0"]
        path.write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")
    return local


@pytest.mark.parametrize(
    ("cuts", "counts"),
    [("exact", (1, 4, 7, 7, 0)), ("rounded", (1, 7, 7, 7, 1)), ("hidden", None)],
)
def test_cut_counts_are_revealed_as_the_job_sets(
    tmp_path: Path, cuts: CutDisclosure, counts: tuple[int, ...] | None
) -> None:
    local = prepare_ragged(tmp_path, cuts=cuts)
    found = run(local, "train")
    reports = [found.checked()[name][0] for name in NAMES]
    federation = Job.read(local.job_path).make_training_spec(
        load_part(local.get_part_path("bank")).part.features, counts
    )
    estimate, ids = (
        estimate_cost(federation, federation.make_plan(40)),
        count_program_cost(compare_ids_on_shares, len(NAMES), None),
    )
    assert {report.rounds for report in reports} == {ids.rounds + estimate.rounds}
    assert sum(report.bytes_sent for report in reports) == ids.online_bytes + estimate.online_bytes
    assert (
        sum(report.bytes_from_dealer for report in reports)
        == ids.offline_bytes + estimate.offline_bytes
    )
    assert same_splits(model_of(local), plain_model(local))
    for name, report in zip(NAMES, reports, strict=True):
        revealed = [(r.to, r.count) for r in report.reveals if r.what == "numbers of cuts"]
        assert revealed == ([] if counts is None else [(list(NAMES), 5)])
        event_counts = [
            event.fields["cuts"] for event in found.events[name] if event.kind == "cuts"
        ]
        owned = {"bank": slice(0, 3), "shop": slice(3, 5)}[name]
        assert [list(each.values()) for each in event_counts] == (
            [] if counts is None else [[*counts[owned]]]
        )


def test_interrupted_training_resumes_with_rounded_cut_counts(tmp_path: Path) -> None:
    local = prepare_ragged(tmp_path)
    run(local, "train", handlers=end_after(2))  # type: ignore[arg-type]
    done = last_common(local)
    change(local.job_path, ('cuts = "rounded"', 'cuts = "hidden"'))
    other = run(local, "train", wait=2.0)
    assert "belongs to another job" in str(other.errors["bank"])
    change(local.job_path, ('cuts = "hidden"', ""))  # "rounded" is the default
    assert run(local, "train").checked()["bank"][0].resumed_from == done
    assert same_splits(model_of(local), plain_model(local))


def test_all_columns_constant(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1, cuts="exact")
    for name in NAMES:
        path = tmp_path / name / "train.csv"
        header, *rows = list(csv.reader(path.read_text().splitlines()))
        features = range(1, len(header) - (name == "shop"))
        rows = [["1.0" if k in features else cell for k, cell in enumerate(row)] for row in rows]
        path.write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")
    found = run(local, "train")
    for name in local.member_names:
        with pytest.raises(DataError, match="every column of all participants is constant"):
            raise found.errors[name]


def test_paper_protocol_requires_hidden_cut_counts(tmp_path: Path) -> None:
    job = prepare(tmp_path, protocol="paper").job_path
    assert Job.read(job).cut_disclosure == "hidden"
    change(job, ('protocol = "paper"', 'protocol = "paper"\ncuts = "rounded"'))
    with pytest.raises(ParameterError, match=r"cuts: the protocol paper has hidden alone"):
        Job.read(job)
    change(job, ('cuts = "rounded"', 'cuts = "some"'))
    with pytest.raises(
        ParameterError, match="cuts: input should be 'exact', 'rounded' or 'hidden'"
    ):
        Job.read(job)


def test_cuts_command_shows_the_disclosed_counts(tmp_path: Path) -> None:
    local = prepare_ragged(tmp_path)

    def shown(name: str, *options: str) -> str:
        party = f"--party={tmp_path / name / 'party.toml'}"
        result = CliRunner().invoke(app, ["cuts", party, f"--job={local.job_path}", *options])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert (shown("bank"), shown("shop")) == ("1,7,7\n", "7,1\n")
    assert json.loads(shown("bank", "--json")) == {"a": 1, "b": 7, "c": 7}
    change(local.job_path, ('"rounded"', '"hidden"'))
    assert (shown("bank"), shown("bank", "--json")) == ("", "null\n")


def test_invalid_label_is_reported_with_its_table(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    party = tmp_path / "shop" / "party.toml"
    change(party, ('label = "label"', 'label = "label"\npositive = "yes"'))
    result = CliRunner().invoke(app, ["cuts", f"--party={party}", f"--job={local.job_path}"])
    assert str(result.exception) == (
        f"{tmp_path / 'shop' / 'train.csv'}: the label has no value 'yes'; it has '0', '1'"
    )


def test_preprocessing_files_for_other_cut_counts_are_rejected(tmp_path: Path) -> None:
    """Each participant checks its local counts before connecting, and the others' counts in the
    agreement."""
    local = prepare_ragged(tmp_path)
    preprocess_offline(local)  # for seven cuts of every column
    found = run(local, "train", absent=("dealer", "bank"))
    with pytest.raises(
        CorrelationError, match=r"dealt for numbers of cuts: \[7, 7, 7, 7, 7\], and"
    ):
        raise found.errors["shop"]
    preprocess_offline(local, cuts=(1, 7, 7, 7, 1))
    reports = [r for r, _ in run(local, "train", absent=("dealer",)).checked().values()]
    assert {report.correlations for report in reports} == {"ahead"}
    assert same_splits(model_of(local), plain_model(local))


def test_estimate_uses_cut_counts_or_reports_an_upper_bound(tmp_path: Path) -> None:
    job = prepare(tmp_path).job_path

    def estimated(*options: str) -> str:
        arguments = ["estimate", f"--job={job}", "--samples=40", "--features=3,2", *options]
        result = CliRunner().invoke(app, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.output

    assert "the most" not in estimated("--cuts=7")
    upper, exact = (json.loads(estimated("--json", *more)) for more in ([], ["--cuts=1,7,7,1,7"]))
    assert (upper["at_most"], exact["at_most"]) == (True, False)
    assert exact["bytes_online"] < upper["bytes_online"]
    assert "That is with 7 cuts of every column, the most" in estimated()
    assert "the most" not in estimated("--cuts=1,7,7,1,7")
    features = tuple(Feature("x", owner) for owner in ("bank",) * 3 + ("shop",) * 2)
    federation = Job.read(job).make_training_spec(features, (1, 7, 7, 1, 7))
    estimate, ids = (
        estimate_cost(federation, federation.make_plan(40)),
        count_program_cost(compare_ids_on_shares, len(NAMES), None),
    )
    assert exact["bytes_online"] == ids.online_bytes + estimate.online_bytes
    assert exact["rounds"] == ids.rounds + estimate.rounds
    for wrong, complaint in (
        ("1,7", "cuts: '1,7' is not 5 numbers, one for each column"),
        ("a,b,c,d,e", "is not 5 numbers"),
        ("1,7,7,2,7", "2 is no number of cuts that may be told"),
    ):
        with pytest.raises((ParameterError, DataError), match=complaint):
            estimated(f"--cuts={wrong}")
