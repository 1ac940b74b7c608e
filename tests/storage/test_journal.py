"""Journals of runs: one process writes, another reads while they grow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from privet.errors import UnavailableError
from privet.storage import journal
from privet.storage.journal import JournalReader, JournalWriter, list_journals


def test_complete_lines_are_read_once(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "train")
    (path,) = list_journals(tmp_path)
    reader = JournalReader(path)
    writer.append({"event": "began"})
    writer.append({"event": "table", "table": 1})
    assert [line["event"] for line in reader.read_new_records()] == ["began", "table"]
    assert reader.read_new_records() == []
    with path.open("ab") as more:
        more.write(b'{"event": "half')
        more.flush()
        assert reader.read_new_records() == []
        more.write(b'"}\nnonsense\n[1]\n')
    assert reader.read_new_records() == [{"event": "half"}]


def test_progress_is_replaced(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "train")
    reader = JournalReader(writer.path)
    assert reader.read_new_progress() is None
    for level in (1, 2):
        writer.write_progress({"level": level})
    assert reader.read_new_progress() == {"level": 2}
    assert reader.read_new_progress() is None


def test_only_the_owner_can_read_journals(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "train")
    writer.write_progress({})
    for path in (tmp_path / "runs").iterdir():
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, None])
def test_run_is_running_while_its_process_lives(tmp_path: Path, number: int | None) -> None:
    code = (
        "import sys\nfrom privet.storage.journal import JournalWriter\n"
        f"record = JournalWriter({str(tmp_path)!r}, 'train')\nprint(flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (path,) = list_journals(tmp_path)
        assert JournalReader(path).is_running()
        if number is None:
            process.communicate(b"")
        else:
            os.kill(process.pid, number)
            process.wait()
    assert not JournalReader(path).is_running()


def test_newest_journals_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_RUNS", 3)
    folder = tmp_path / "runs"
    folder.mkdir()
    for number in range(5):
        (folder / f"2020010{number}T000000-train-0.jsonl").write_text("")
        (folder / f"2020010{number}T000000-train-0.now").write_text("")
    writer = JournalWriter(tmp_path, "train")
    writer.close()
    kept = [path.name[:8] for path in list_journals(tmp_path)]
    assert kept[:2] == ["20200103", "20200104"]
    assert len(kept) == 3
    assert len(list(folder.glob("*.now"))) == 2


def test_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(UnavailableError, match="runs"):
        JournalWriter(tmp_path, "train")
