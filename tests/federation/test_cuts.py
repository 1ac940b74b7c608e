"""Numbers of cuts as a term of a job: told before a training, and known to an estimate."""

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
from tests.federation.harness import NAMES, change, deal_for, model_of, prepare, run
from tests.federation.test_training import end_after, last_common, plain_model, same_tests


def ragged(folder: Path, cuts: CutDisclosure = "rounded") -> LocalFederation:
    """Return a federation in which a column of the bank's has two values, and one of the shop's
    has one."""
    local = prepare(folder, cuts=cuts)
    for name, column, values in (("bank", 1, ("0.0", "1.0")), ("shop", 2, ("1.0", "1.0"))):
        path = folder / name / "train.csv"
        head, *rows = list(csv.reader(path.read_text().splitlines()))
        for row in rows:
            row[column] = values[row[column] > "0"]
        path.write_text("\n".join(",".join(row) for row in [head, *rows]) + "\n")
    return local


@pytest.mark.parametrize(
    ("cuts", "told"),
    [("exact", (1, 4, 7, 7, 0)), ("rounded", (1, 7, 7, 7, 1)), ("hidden", None)],
)
def test_what_a_job_has_told(
    tmp_path: Path, cuts: CutDisclosure, told: tuple[int, ...] | None
) -> None:
    local = ragged(tmp_path, cuts=cuts)
    found = run(local, "train")
    reports = [found.checked()[name][0] for name in NAMES]
    federation = Job.read(local.job_path).make_training_spec(
        load_part(local.get_part_path("bank")).part.features, told
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
    assert same_tests(model_of(local), plain_model(local))
    for name, report in zip(NAMES, reports, strict=True):
        revealed = [(r.to, r.count) for r in report.reveals if r.what == "numbers of cuts"]
        assert revealed == ([] if told is None else [(list(NAMES), 5)])
        said = [event.fields["cuts"] for event in found.events[name] if event.kind == "cuts"]
        own = {"bank": slice(0, 3), "shop": slice(3, 5)}[name]
        assert [list(each.values()) for each in said] == ([] if told is None else [[*told[own]]])


def test_a_training_cut_short_goes_on_with_few_cuts(tmp_path: Path) -> None:
    local = ragged(tmp_path)
    run(local, "train", tells=end_after(2))  # type: ignore[arg-type]
    done = last_common(local)
    change(local.job_path, ('cuts = "rounded"', 'cuts = "hidden"'))
    other = run(local, "train", wait=2.0)
    assert "belongs to another job" in str(other.errors["bank"])
    change(local.job_path, ('cuts = "hidden"', ""))  # rounded, if nobody says otherwise
    assert run(local, "train").checked()["bank"][0].resumed_from == done
    assert same_tests(model_of(local), plain_model(local))


def test_nothing_but_constant_columns(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1, cuts="exact")
    for name in NAMES:
        path = tmp_path / name / "train.csv"
        head, *rows = list(csv.reader(path.read_text().splitlines()))
        features = range(1, len(head) - (name == "shop"))
        rows = [["1.0" if k in features else cell for k, cell in enumerate(row)] for row in rows]
        path.write_text("\n".join(",".join(row) for row in [head, *rows]) + "\n")
    found = run(local, "train")
    for name in local.member_names:
        with pytest.raises(DataError, match="every column of all participants is constant"):
            raise found.errors[name]


def test_the_paper_s_protocol_has_hidden_alone(tmp_path: Path) -> None:
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


def test_what_will_be_told_is_shown_before(tmp_path: Path) -> None:
    local = ragged(tmp_path)

    def shown(name: str, *options: str) -> str:
        party = f"--party={tmp_path / name / 'party.toml'}"
        done = CliRunner().invoke(app, ["cuts", party, f"--job={local.job_path}", *options])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert (shown("bank"), shown("shop")) == ("1,7,7\n", "7,1\n")
    assert json.loads(shown("bank", "--json")) == {"a": 1, "b": 7, "c": 7}
    change(local.job_path, ('"rounded"', '"hidden"'))
    assert (shown("bank"), shown("bank", "--json")) == ("", "null\n")


def test_a_label_that_cannot_be_used_is_named_with_its_table(tmp_path: Path) -> None:
    local = prepare(tmp_path)
    party = tmp_path / "shop" / "party.toml"
    change(party, ('label = "label"', 'label = "label"\npositive = "yes"'))
    done = CliRunner().invoke(app, ["cuts", f"--party={party}", f"--job={local.job_path}"])
    assert str(done.exception) == (
        f"{tmp_path / 'shop' / 'train.csv'}: the label has no value 'yes'; it has '0', '1'"
    )


def test_correlations_dealt_for_other_numbers(tmp_path: Path) -> None:
    """A file is for the numbers that it was dealt for: its owner finds its own before it meets
    anybody, and those of the others when all have agreed."""
    local = ragged(tmp_path)
    deal_for(local)  # for seven cuts of every column
    found = run(local, "train", absent=("dealer", "bank"))
    with pytest.raises(
        CorrelationError, match=r"dealt for numbers of cuts: \[7, 7, 7, 7, 7\], and"
    ):
        raise found.errors["shop"]
    deal_for(local, cuts=(1, 7, 7, 7, 1))
    reports = [r for r, _ in run(local, "train", absent=("dealer",)).checked().values()]
    assert {report.correlations for report in reports} == {"ahead"}
    assert same_tests(model_of(local), plain_model(local))


def test_an_estimate_knows_numbers_or_says_that_it_does_not(tmp_path: Path) -> None:
    job = prepare(tmp_path).job_path

    def estimated(*options: str) -> str:
        arguments = ["estimate", f"--job={job}", "--samples=40", "--features=3,2", *options]
        done = CliRunner().invoke(app, arguments)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.output

    assert "the most" not in estimated("--cuts=7")
    most, known = (json.loads(estimated("--json", *more)) for more in ([], ["--cuts=1,7,7,1,7"]))
    assert (most["at_most"], known["at_most"]) == (True, False)
    assert known["bytes_online"] < most["bytes_online"]
    assert "That is with 7 cuts of every column, the most" in estimated()
    assert "the most" not in estimated("--cuts=1,7,7,1,7")
    features = tuple(Feature("x", owner) for owner in ("bank",) * 3 + ("shop",) * 2)
    federation = Job.read(job).make_training_spec(features, (1, 7, 7, 1, 7))
    due, ids = (
        estimate_cost(federation, federation.make_plan(40)),
        count_program_cost(compare_ids_on_shares, len(NAMES), None),
    )
    assert known["bytes_online"] == ids.online_bytes + due.online_bytes
    assert known["rounds"] == ids.rounds + due.rounds
    for wrong, complaint in (
        ("1,7", "cuts: '1,7' is not 5 numbers, one for each column"),
        ("a,b,c,d,e", "is not 5 numbers"),
        ("1,7,7,2,7", "2 is no number of cuts that may be told"),
    ):
        with pytest.raises((ParameterError, DataError), match=complaint):
            estimated(f"--cuts={wrong}")
