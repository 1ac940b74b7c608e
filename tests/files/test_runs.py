"""Records of runs: written by one process, read by another while they grow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from privet.errors import UnavailableError
from privet.storage import journal
from privet.storage.journal import RunFile, RunRecord, run_files


def test_lines_are_read_once_and_whole(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "train")
    (path,) = run_files(tmp_path)
    file = RunFile(path)
    record.add({"event": "began"})
    record.add({"event": "table", "table": 1})
    assert [line["event"] for line in file.new_lines()] == ["began", "table"]
    assert file.new_lines() == []
    with path.open("ab") as more:
        more.write(b'{"event": "half')
        more.flush()
        assert file.new_lines() == []
        more.write(b'"}\nnonsense\n[1]\n')
    assert file.new_lines() == [{"event": "half"}]


def test_how_a_run_stands_is_said_anew(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "train")
    file = RunFile(record.path)
    assert file.new_standing() is None
    for level in (1, 2):
        record.stand({"level": level})
    assert file.new_standing() == {"level": 2}
    assert file.new_standing() is None


def test_only_the_owner_can_read_them(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "train")
    record.stand({})
    for path in (tmp_path / "runs").iterdir():
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, None])
def test_a_run_goes_on_as_long_as_its_process(tmp_path: Path, number: int | None) -> None:
    code = (
        "import sys\nfrom privet.storage.journal import RunRecord\n"
        f"record = RunRecord({str(tmp_path)!r}, 'train')\nprint(flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (path,) = run_files(tmp_path)
        assert RunFile(path).goes_on()
        if number is None:
            process.communicate(b"")
        else:
            os.kill(process.pid, number)
            process.wait()
    assert not RunFile(path).goes_on()


def test_the_newest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MOST_RUNS", 3)
    folder = tmp_path / "runs"
    folder.mkdir()
    for number in range(5):
        (folder / f"2020010{number}T000000-train-0.jsonl").write_text("")
        (folder / f"2020010{number}T000000-train-0.now").write_text("")
    record = RunRecord(tmp_path, "train")
    record.close()
    left = [path.name[:8] for path in run_files(tmp_path)]
    assert left[:2] == ["20200103", "20200104"]
    assert len(left) == 3
    assert len(list(folder.glob("*.now"))) == 2


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(UnavailableError, match="runs"):
        RunRecord(tmp_path, "train")
