from __future__ import annotations

import os
from pathlib import Path

import pytest

from privet import UnavailableError
from privet.filesystem import append_durably, check_writable, prepare_output, write_atomically


def test_writable_path(tmp_path: Path) -> None:
    check_writable(tmp_path / "new")
    write_atomically(tmp_path / "new", b"1")
    check_writable(tmp_path / "new")
    write_atomically(tmp_path / "new", b"2")
    assert (tmp_path / "new").read_bytes() == b"2"


def test_unwritable_paths_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnavailableError, match="not a file but something else"):
        check_writable(tmp_path)
    with pytest.raises(UnavailableError, match="/dev/null is not a file"):
        write_atomically("/dev/null", b"")
    with pytest.raises(UnavailableError, match="nowhere is not a directory"):
        check_writable(tmp_path / "nowhere" / "file")
    with pytest.raises(UnavailableError, match="nowhere is not a directory"):
        write_atomically(tmp_path / "nowhere" / "file", b"")
    # Root can write everything, so the check is replaced.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UnavailableError, match="cannot be written to"):
        check_writable(tmp_path / "file")


def test_links_and_permissions_are_kept(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "link", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o640


def test_append_truncates_an_interrupted_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"soundtorn off")
    append_durably(path, 5, b" and")
    assert path.read_bytes() == b"sound and"

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(UnavailableError, match="cannot be written: No space left on device"):
        append_durably(path, 9, b" more")
    assert path.read_bytes().startswith(b"sound and")


def test_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "report [1].json"
    path.write_text("whole")
    leftover = tmp_path / ".report [1].json.0123abcd"
    others = [tmp_path / name for name in (".report 1.json.0123abcd", ".report [1].json.old")]
    for file in (leftover, *others):
        file.touch()
    prepare_output(path)
    assert not leftover.exists()
    assert path.read_text() == "whole"
    assert all(file.exists() for file in others)
