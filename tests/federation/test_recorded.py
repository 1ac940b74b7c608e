"""What is kept of a run, and that keeping it never ends one."""

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


def test_what_is_told_is_kept(job: Job, tmp_path: Path) -> None:
    tell = EventBus(discard_event)
    with record_run(tmp_path, job, "bank", "train", tell, Path("job.toml")):
        for second in range(3):
            text = f"waiting for shop ({second} s)"
            tell(Event("waiting", text, {"missing": ["shop"]}))
        tell(Event("progress", "", {"level": 2}, is_transient=True))
        tell(Event("connected", "", {"peers": ["shop", "dealer"]}))
        tell(Event("done", "", {"seconds": 1.0}))
    found = lines(tmp_path)
    assert [line["event"] for line in found] == ["began", "waiting", "connected", "done"]
    began = found[0]
    assert (began["command"], began["job"], began["name"]) == ("train", "rehearsal", "bank")
    assert began["job_file"] == str(Path("job.toml").resolve())
    assert (began["participants"], began["dealers"]) == (["bank", "shop"], ["dealer"])
    (path,) = list_journals(tmp_path)
    standing = JournalReader(path).read_new_progress()
    assert standing is not None
    assert standing["level"] == 2


def test_the_end_is_kept_however_it_comes(job: Job, tmp_path: Path) -> None:
    lost = PeerLostError("shop", "the connection was lost", "table/level")
    with (
        pytest.raises(PeerLostError),
        record_run(tmp_path / "lost", job, "bank", "train", EventBus(discard_event)),
    ):
        raise lost
    last = lines(tmp_path / "lost")[-1]
    assert (last["event"], last["peer"], last["step"]) == ("error", "shop", "table/level")
    with (
        pytest.raises(KeyboardInterrupt),
        record_run(tmp_path / "stopped", job, "bank", "train", EventBus(discard_event)),
    ):
        raise KeyboardInterrupt
    assert lines(tmp_path / "stopped")[-1]["event"] == "interrupted"


def test_no_values_of_ours_in_a_trace(job: Job, tmp_path: Path) -> None:
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


def test_a_run_goes_on_without_a_record(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []
    (tmp_path / "runs").write_text("a file where the folder should be")
    with record_run(tmp_path, job, "bank", "train", EventBus(told.append)):
        pass
    assert "no record is kept of this run" in told[0].text

    tell = EventBus(discard_event)
    with record_run(tmp_path / "other", job, "bank", "train", tell):

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("privet.storage.journal.os.write", full)
        tell(Event("table", "", {}))
    monkeypatch.undo()
    assert [line["event"] for line in lines(tmp_path / "other")] == ["began"]
