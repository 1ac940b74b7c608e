"""What is kept of a run, and that keeping it never ends one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from privet.config.job import Job
from privet.errors import PeerLostError
from privet.federation.monitoring.events import Event, Teller, recorded, silent
from privet.storage.journal import RunFile, run_files
from tests.federation.harness import prepare


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job.read(prepare(tmp_path / "federation").job)


def lines(folder: Path) -> list[dict[str, Any]]:
    (path,) = run_files(folder)
    return RunFile(path).new_lines()


def test_what_is_told_is_kept(job: Job, tmp_path: Path) -> None:
    tell = Teller(silent)
    with recorded(tmp_path, job, "bank", "train", tell, Path("job.toml")):
        for second in range(3):
            text = f"waiting for shop ({second} s)"
            tell(Event("waiting", text, {"missing": ["shop"]}))
        tell(Event("progress", "", {"level": 2}, passing=True))
        tell(Event("connected", "", {"peers": ["shop", "dealer"]}))
        tell(Event("done", "", {"seconds": 1.0}))
    found = lines(tmp_path)
    assert [line["event"] for line in found] == ["began", "waiting", "connected", "done"]
    began = found[0]
    assert (began["command"], began["job"], began["name"]) == ("train", "rehearsal", "bank")
    assert began["job_file"] == str(Path("job.toml").resolve())
    assert (began["participants"], began["dealers"]) == (["bank", "shop"], ["dealer"])
    (path,) = run_files(tmp_path)
    standing = RunFile(path).new_standing()
    assert standing is not None
    assert standing["level"] == 2


def test_the_end_is_kept_however_it_comes(job: Job, tmp_path: Path) -> None:
    lost = PeerLostError("shop", "the connection was lost", "table/level")
    with (
        pytest.raises(PeerLostError),
        recorded(tmp_path / "lost", job, "bank", "train", Teller(silent)),
    ):
        raise lost
    last = lines(tmp_path / "lost")[-1]
    assert (last["event"], last["peer"], last["step"]) == ("error", "shop", "table/level")
    with (
        pytest.raises(KeyboardInterrupt),
        recorded(tmp_path / "stopped", job, "bank", "train", Teller(silent)),
    ):
        raise KeyboardInterrupt
    assert lines(tmp_path / "stopped")[-1]["event"] == "interrupted"


def test_no_values_of_ours_in_a_trace(job: Job, tmp_path: Path) -> None:
    def fail(secret: int) -> None:
        raise ZeroDivisionError

    with (
        pytest.raises(ZeroDivisionError),
        recorded(tmp_path, job, "bank", "train", Teller(silent)),
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
    with recorded(tmp_path, job, "bank", "train", Teller(told.append)):
        pass
    assert "no record is kept of this run" in told[0].text

    tell = Teller(silent)
    with recorded(tmp_path / "other", job, "bank", "train", tell):

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("privet.storage.journal.os.write", full)
        tell(Event("table", "", {}))
    monkeypatch.undo()
    assert [line["event"] for line in lines(tmp_path / "other")] == ["began"]
