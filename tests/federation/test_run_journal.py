"""The journal of a run, whose failures never end the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from privet.config.job import Job
from privet.errors import PeerLostError
from privet.federation.monitoring.events import Event, EventBus, discard_event, record_run
from privet.storage.journal import JournalReader, list_journals
from tests.federation.harness import prepare


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job.read(prepare(tmp_path / "federation").job_path)


def lines(folder: Path) -> list[dict[str, Any]]:
    (path,) = list_journals(folder)
    return JournalReader(path).read_new_records()


def test_events_are_recorded(job: Job, tmp_path: Path) -> None:
    bus = EventBus(discard_event)
    with record_run(tmp_path, job, "bank", "train", bus, Path("job.toml")):
        for second in range(3):
            text = f"waiting for shop ({second} s)"
            bus(Event("waiting", text, {"missing": ["shop"]}))
        bus(Event("progress", "", {"level": 2}, is_transient=True))
        bus(Event("connected", "", {"peers": ["shop", "dealer"]}))
        bus(Event("done", "", {"seconds": 1.0}))
    found = lines(tmp_path)
    assert [line["event"] for line in found] == ["began", "waiting", "connected", "done"]
    began = found[0]
    assert (began["command"], began["job"], began["name"]) == ("train", "rehearsal", "bank")
    assert began["job_file"] == str(Path("job.toml").resolve())
    assert (began["participants"], began["dealers"]) == (["bank", "shop"], ["dealer"])
    (path,) = list_journals(tmp_path)
    progress = JournalReader(path).read_new_progress()
    assert progress is not None
    assert progress["level"] == 2


def test_errors_and_interruptions_are_recorded(job: Job, tmp_path: Path) -> None:
    error = PeerLostError("shop", "the connection was lost", "table/level")
    with (
        pytest.raises(PeerLostError),
        record_run(tmp_path / "lost", job, "bank", "train", EventBus(discard_event)),
    ):
        raise error
    last = lines(tmp_path / "lost")[-1]
    assert (last["event"], last["peer"], last["step"]) == ("error", "shop", "table/level")
    with (
        pytest.raises(KeyboardInterrupt),
        record_run(tmp_path / "stopped", job, "bank", "train", EventBus(discard_event)),
    ):
        raise KeyboardInterrupt
    assert lines(tmp_path / "stopped")[-1]["event"] == "interrupted"


def test_local_values_are_not_recorded(job: Job, tmp_path: Path) -> None:
    def fail(secret: int) -> None:
        raise ZeroDivisionError

    with (
        pytest.raises(ZeroDivisionError),
        record_run(tmp_path, job, "bank", "train", EventBus(discard_event)),
    ):
        fail(17)
    last = lines(tmp_path)[-1]
    assert last["error"] == "ZeroDivisionError"
    assert "traceback" not in last


def test_run_continues_if_the_journal_cannot_be_written(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    (tmp_path / "runs").write_text("a file where the folder should be")
    with record_run(tmp_path, job, "bank", "train", EventBus(events.append)):
        pass
    assert "no record is kept of this run" in events[0].text

    bus = EventBus(discard_event)
    with record_run(tmp_path / "other", job, "bank", "train", bus):

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("privet.storage.journal.os.write", fail)
        bus(Event("table", "", {}))
    monkeypatch.undo()
    assert [line["event"] for line in lines(tmp_path / "other")] == ["began"]
