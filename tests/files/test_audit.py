"""An audit log: added to by anybody, and whatever else is done to it shows."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from privet.errors import DataError, UnavailableError
from privet.files.audit import AuditLog


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    found = AuditLog(tmp_path / "audit.log")
    for number in range(5):
        found.add("began", session=str(number), job="a job")
    return found


def test_records_are_added(log: AuditLog) -> None:
    found = log.verify()
    assert (found.records, found.torn) == (5, 0)
    assert [record["number"] for record in log.records()] == [1, 2, 3, 4, 5]
    before = log.path.read_bytes()
    log.add("ended", session="4")
    assert log.path.read_bytes().startswith(before)
    assert log.verify(found.head).records == 6
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_every_change_shows(log: AuditLog) -> None:
    """A flipped bit anywhere, but in the last line, which only its head stands for."""
    content, head = log.path.read_bytes(), log.verify().head
    last = content.rstrip(b"\n").rindex(b"\n")
    chance = random.Random(0)
    for _ in range(500):
        place = chance.randrange(len(content))
        changed = bytearray(content)
        changed[place] ^= 1 << chance.randrange(8)
        log.path.write_bytes(changed)
        with pytest.raises(DataError, match=r"audit\.log: "):
            log.verify(head if place >= last else None)


@pytest.mark.parametrize("place", range(4))
def test_lines_left_out_put_in_or_moved_show(log: AuditLog, place: int) -> None:
    lines = log.path.read_bytes().splitlines(keepends=True)
    for changed in (
        lines[:place] + lines[place + 1 :],
        lines[: place + 1] + lines[place:],
        [*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]],
    ):
        log.path.write_bytes(b"".join(changed))
        with pytest.raises(DataError, match="does not follow the one before"):
            log.verify()


def test_an_end_that_was_cut_off_shows_by_a_head(log: AuditLog) -> None:
    head = log.verify().head
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(lines[:-1]))
    assert log.verify().records == 4
    with pytest.raises(DataError, match=f"no line has the digest {head[:16]}: .*cut off"):
        log.verify(head[:16])


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_power_cut_is_noted(log: AuditLog, kept: int) -> None:
    """Whatever was left of the line that was being written stays, and is followed."""
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(lines[:-1]) + lines[-1][:-1][:kept])
    log.add("began", session="later")
    found = log.verify()
    assert (found.records, found.torn) == (6, 1)
    assert [record["event"] for record in log.records()][-2:] == ["torn", "began"]


def test_many_at_once(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    add = "import sys; from privet.files.audit import AuditLog\n"
    add += "for _ in range(40): AuditLog(sys.argv[1]).add('began')"
    command = [sys.executable, "-c", add, str(path)]
    running = [subprocess.Popen(command) for _ in range(3)]  # noqa: S603
    assert [process.wait() for process in running] == [0, 0, 0]
    assert AuditLog(path).verify().records == 120


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="the audit log cannot be written: Is a directory"):
        AuditLog(tmp_path).add("began")
    with pytest.raises(DataError, match="No such file"):
        AuditLog(tmp_path / "none").verify()
