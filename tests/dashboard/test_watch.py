"""What a page is told: all that there is at first, and what has changed from then on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from privet.config.party import PartyConfig
from privet.dashboard.run_store import ClientCursor, RunStore
from privet.errors import ParameterError
from privet.experiments.local_federation import LocalFederation
from privet.federation.monitoring.events import Event
from privet.storage.journal import JournalWriter
from tests.federation.harness import prepare, run


@pytest.fixture
def local(tmp_path: Path) -> LocalFederation:
    return prepare(tmp_path)


def watching(local: LocalFederation, *, named: bool = True) -> RunStore:
    party = local.folder / "bank" / "party.toml"
    return RunStore(party, PartyConfig.load(party), [local.job_path] if named else [])


def begin(local: LocalFederation, job: str = "rehearsal", **more: Any) -> JournalWriter:
    record = JournalWriter(local.folder / "bank" / "models", "train")
    fields = {"command": "train", "job": job, "name": "bank", "participants": ["bank", "shop"]}
    record.append(Event("began", "", {**fields, "dealers": ["dealer"], **more}).to_record())
    return record


def test_jobs_that_we_have_files_of(local: LocalFederation) -> None:
    assert watching(local, named=False).make_overview()["jobs"] == []
    (job,) = watching(local).make_overview()["jobs"]
    assert (job["name"], job["trained"], job["role"]) == ("rehearsal", False, "passive")
    # Beside party.toml, though it is no job of ours, or no job at all.
    beside = local.folder / "bank"
    (beside / "other.toml").write_text(local.job_path.read_text().replace('"bank"', '"bakery"'))
    (beside / "nonsense.toml").write_text("= 1")
    assert watching(local, named=False).make_overview()["jobs"] == []
    (beside / "job.toml").write_text(local.job_path.read_text())
    found = watching(local, named=False)
    assert found.get_job("rehearsal").job_file == beside / "job.toml"
    assert found.make_overview()["federations"][0]["jobs"] == ["rehearsal"]
    with pytest.raises(ParameterError, match="there is no 'other'"):
        found.get_job("other")


def test_a_job_of_an_earlier_run_or_of_a_model(local: LocalFederation) -> None:
    begin(local, job_file=str(local.job_path)).close()
    assert watching(local, named=False).get_job("rehearsal").job_file == local.job_path
    run(local, "train").checked()
    for record in (local.folder / "bank" / "models" / "runs").iterdir():
        record.unlink()
    known = watching(local, named=False).get_job("rehearsal")
    assert known.job_file is None
    assert known.part_path == local.get_part_path("bank")


def test_a_page_gets_what_it_missed(local: LocalFederation) -> None:
    watch, cursor = watching(local), ClientCursor()
    assert [kind for kind, _ in watch.iter_changes(cursor)] == ["overview"]
    assert not watch.poll()
    assert list(watch.iter_changes(cursor)) == []
    record = begin(local)
    for number in (1, 2, 3):
        record.append(Event("table", "", {"table": number, "tables": 9}).to_record())
    assert watch.poll()
    news = list(watch.iter_changes(cursor))
    assert [kind for kind, _ in news] == ["overview", "run", "ledger"]
    assert [point[0] for point in news[1][1]["points"]] == [1, 2, 3]
    record.append(Event("table", "", {"table": 4, "tables": 9}).to_record())
    assert watch.poll()
    ((kind, told), _) = watch.iter_changes(cursor)
    assert (kind, told["from"], [point[0] for point in told["points"]]) == ("run", 3, [4])
    # Another page, opened now, gets all of it; and the first one nothing twice.
    assert [kind for kind, _ in watch.iter_changes(ClientCursor())] == ["overview", "run", "ledger"]
    assert list(watch.iter_changes(cursor)) == []


def test_the_curve_goes_on_where_an_earlier_run_ended(local: LocalFederation) -> None:
    for tables, resumed in (((1, 2, 3), 0), ((3, 4), 2)):
        record = begin(local, digest="same")
        if resumed:
            record.append(Event("resumed", "", {"tables": resumed}).to_record())
        for number in tables:
            fields = {"table": number, "tables": 9, "validation_loss": float(10 * resumed)}
            record.append(Event("table", "", fields).to_record())
        record.close()
    watch = watching(local)
    told = watch.make_run_details(watch.make_overview()["runs"][0]["id"])
    assert [point[0] for point in told["earlier"]] == [1, 2]
    assert [point[0] for point in told["points"]] == [3, 4]


def test_a_process_that_is_gone(local: LocalFederation) -> None:
    watch, record = watching(local), begin(local)
    watch.poll()
    assert watch.find_running_training("rehearsal") is not None
    record.close()
    watch.poll()
    (brief,) = watch.make_overview()["runs"]
    assert brief["state"] == "killed"
    assert watch.find_running_training("rehearsal") is None


def test_ledgers_of_all_runs_of_a_job(local: LocalFederation) -> None:
    for _ in range(2):
        record = begin(local)
        reveal = {"what": "split feature", "to": ["bank", "shop"], "count": 6}
        record.write_progress(Event("progress", "", {"reveals": [reveal]}).to_record())
        record.close()
    begin(local, job="another").close()
    told = watching(local).make_disclosure_table("rehearsal")
    assert told["runs"] == 2
    assert [row["count"] for row in told["rows"] if row["count"]] == [12]
