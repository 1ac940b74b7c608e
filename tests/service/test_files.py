from __future__ import annotations

import os
from pathlib import Path

import pytest

from privet import UnavailableError
from privet.service.files import check_writable, write_atomically


def test_a_place_that_can_be_written(tmp_path: Path) -> None:
    check_writable(tmp_path / "new")
    write_atomically(tmp_path / "new", b"1")
    check_writable(tmp_path / "new")
    write_atomically(tmp_path / "new", b"2")
    assert (tmp_path / "new").read_bytes() == b"2"


def test_places_that_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnavailableError, match="is a directory"):
        check_writable(tmp_path)
    with pytest.raises(UnavailableError, match="nowhere is not a directory"):
        check_writable(tmp_path / "nowhere" / "file")
    with pytest.raises(UnavailableError, match="cannot be written: No such file"):
        write_atomically(tmp_path / "nowhere" / "file", b"")
    # As root everything can be written to, so the answer of the system is replaced.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UnavailableError, match="cannot be written to"):
        check_writable(tmp_path / "file")
