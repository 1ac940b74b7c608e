"""The run store: all content for a new client, then only changes."""

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


def make_store(local: LocalFederation, *, named: bool = True) -> RunStore:
    party = local.folder / "bank" / "party.toml"
    return RunStore(party, PartyConfig.load(party), [local.job_path] if named else [])


def start_journal(local: LocalFederation, job: str = "rehearsal", **extra: Any) -> JournalWriter:
    journal = JournalWriter(local.folder / "bank" / "models", "train")
    fields = {"command": "train", "job": job, "name": "bank", "participants": ["bank", "shop"]}
    journal.append(Event("began", "", {**fields, "dealers": ["dealer"], **extra}).to_record())
    return journal


def test_jobs_are_found_in_local_files(local: LocalFederation) -> None:
    assert make_store(local, named=False).make_overview()["jobs"] == []
    (job,) = make_store(local).make_overview()["jobs"]
    assert (job["name"], job["trained"], job["role"]) == ("rehearsal", False, "passive")
    # Files next to party.toml that are jobs of others, or not jobs.
    folder = local.folder / "bank"
    (folder / "other.toml").write_text(local.job_path.read_text().replace('"bank"', '"bakery"'))
    (folder / "nonsense.toml").write_text("= 1")
    assert make_store(local, named=False).make_overview()["jobs"] == []
    (folder / "job.toml").write_text(local.job_path.read_text())
    store = make_store(local, named=False)
    assert store.get_job("rehearsal").job_file == folder / "job.toml"
    assert store.make_overview()["federations"][0]["jobs"] == ["rehearsal"]
    with pytest.raises(ParameterError, match="there is no 'other'"):
        store.get_job("other")


def test_jobs_are_found_in_journals_and_models(local: LocalFederation) -> None:
    start_journal(local, job_file=str(local.job_path)).close()
    assert make_store(local, named=False).get_job("rehearsal").job_file == local.job_path
    run(local, "train").checked()
    for record in (local.folder / "bank" / "models" / "runs").iterdir():
        record.unlink()
    known = make_store(local, named=False).get_job("rehearsal")
    assert known.job_file is None
    assert known.part_path == local.get_part_path("bank")


def test_client_receives_all_missed_changes(local: LocalFederation) -> None:
    store, cursor = make_store(local), ClientCursor()
    assert [kind for kind, _ in store.iter_changes(cursor)] == ["overview"]
    assert not store.poll()
    assert list(store.iter_changes(cursor)) == []
    journal = start_journal(local)
    for number in (1, 2, 3):
        journal.append(Event("table", "", {"table": number, "tables": 9}).to_record())
    assert store.poll()
    changes = list(store.iter_changes(cursor))
    assert [kind for kind, _ in changes] == ["overview", "run", "ledger"]
    assert [point[0] for point in changes[1][1]["points"]] == [1, 2, 3]
    journal.append(Event("table", "", {"table": 4, "tables": 9}).to_record())
    assert store.poll()
    ((kind, content), _) = store.iter_changes(cursor)
    assert (kind, content["from"], [point[0] for point in content["points"]]) == ("run", 3, [4])
    # A new client receives all content; the first one receives nothing twice.
    assert [kind for kind, _ in store.iter_changes(ClientCursor())] == ["overview", "run", "ledger"]
    assert list(store.iter_changes(cursor)) == []


def test_resumed_run_includes_earlier_points(local: LocalFederation) -> None:
    for tables, resumed in (((1, 2, 3), 0), ((3, 4), 2)):
        journal = start_journal(local, digest="same")
        if resumed:
            journal.append(Event("resumed", "", {"tables": resumed}).to_record())
        for number in tables:
            fields = {"table": number, "tables": 9, "validation_loss": float(10 * resumed)}
            journal.append(Event("table", "", fields).to_record())
        journal.close()
    store = make_store(local)
    content = store.make_run_details(store.make_overview()["runs"][0]["id"])
    assert [point[0] for point in content["earlier"]] == [1, 2]
    assert [point[0] for point in content["points"]] == [3, 4]


def test_ended_process_is_marked_killed(local: LocalFederation) -> None:
    store, journal = make_store(local), start_journal(local)
    store.poll()
    assert store.find_running_training("rehearsal") is not None
    journal.close()
    store.poll()
    (summary,) = store.make_overview()["runs"]
    assert summary["state"] == "killed"
    assert store.find_running_training("rehearsal") is None


def test_disclosures_of_all_runs_are_added(local: LocalFederation) -> None:
    for _ in range(2):
        journal = start_journal(local)
        reveal = {"what": "split feature", "to": ["bank", "shop"], "count": 6}
        journal.write_progress(Event("progress", "", {"reveals": [reveal]}).to_record())
        journal.close()
    start_journal(local, job="another").close()
    content = make_store(local).make_disclosure_table("rehearsal")
    assert content["runs"] == 2
    assert [row["count"] for row in content["rows"] if row["count"]] == [12]
