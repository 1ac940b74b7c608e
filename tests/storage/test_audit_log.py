"""The audit log: several writers can append, and every other change is detected."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from privet.errors import DataError, ParameterError, UnavailableError
from privet.storage.journal import AuditLog


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    found = AuditLog(tmp_path / "audit.log")
    for number in range(5):
        found.append("began", session=str(number), job="a job")
    return found


def test_records_are_added(log: AuditLog) -> None:
    found = log.verify()
    assert (found.n_records, found.n_truncated) == (5, 0)
    assert [record["number"] for record in log.iter_records()] == [1, 2, 3, 4, 5]
    before = log.path.read_bytes()
    log.append("ended", session="4")
    assert log.path.read_bytes().startswith(before)
    assert log.verify(found.last_digest).n_records == 6
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_every_bit_flip_is_detected(log: AuditLog) -> None:
    """Flip bits anywhere, also in the last line, which only its own digest protects."""
    content = log.path.read_bytes()
    last = content.rstrip(b"\n").rindex(b"\n")
    chance = random.Random(0)
    for number in range(1000):
        place = chance.randrange(last if number % 2 else 0, len(content) - 1)
        changed = bytearray(content)
        changed[place] ^= 1 << chance.randrange(8)
        log.path.write_bytes(changed)
        with pytest.raises(DataError, match=r"audit\.log: "):
            log.verify()


def test_rewritten_last_line_is_detected_only_by_a_head(log: AuditLog) -> None:
    head, lines = log.verify().last_digest, log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(lines[:-1]))
    log.append("began", session="another")
    assert log.verify().n_records == 5
    with pytest.raises(DataError, match="no line has the digest"):
        log.verify(head)
    log.path.write_bytes(b"")
    assert log.verify().n_records == 0
    with pytest.raises(DataError, match="no line has the digest"):
        log.verify(head)


def test_lines_of_earlier_versions_have_no_own_digest(tmp_path: Path) -> None:
    path, previous = tmp_path / "audit.log", "0" * 64
    for number in (1, 2):
        line = json.dumps({"number": number, "event": "began", "previous": previous}).encode()
        previous = hashlib.sha256(line).hexdigest()
        with path.open("ab") as file:
            file.write(line + b"\n")
    log = AuditLog(path)
    assert log.verify().last_digest == previous
    log.append("ended")
    assert log.verify(previous).n_records == 3
    content = path.read_bytes()
    without = content[: content.rindex(b', "own"')] + b"}\n"
    log.append("began")
    assert log.verify().n_records == 4
    # After the first line with a digest, every line must have one.
    previous = hashlib.sha256(content[:-1].rpartition(b"\n")[2]).hexdigest()
    lacking = json.dumps({"number": 4, "event": "began", "previous": previous}).encode()
    path.write_bytes(content + lacking + b"\n")
    with pytest.raises(DataError, match="line 4 was changed"):
        log.verify()
    path.write_bytes(without)  # no later line shows that it had one
    assert log.verify().n_records == 3


@pytest.mark.parametrize("head", ["", "e", "0123456", "0123456g", "01234567 ", "0" * 65, "E" * 8])
def test_short_or_invalid_head_is_rejected(log: AuditLog, head: str) -> None:
    with pytest.raises(ParameterError, match="or at least the first 8"):
        log.verify(head)
    assert log.verify(log.verify().last_digest[:8]).n_records == 5


def test_last_line_without_a_newline_is_complete(log: AuditLog) -> None:
    log.path.write_bytes(log.path.read_bytes()[:-1])
    assert log.verify().n_truncated == 0
    log.append("began", session="later")
    found = log.verify()
    assert (found.n_records, found.n_truncated) == (6, 0)


@pytest.mark.parametrize("place", range(4))
def test_removed_inserted_and_moved_lines_are_detected(log: AuditLog, place: int) -> None:
    lines = log.path.read_bytes().splitlines(keepends=True)
    for changed in (
        lines[:place] + lines[place + 1 :],
        lines[: place + 1] + lines[place:],
        [*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]],
    ):
        log.path.write_bytes(b"".join(changed))
        with pytest.raises(DataError, match="does not follow the one before"):
            log.verify()


def test_truncation_is_detected_by_a_head(log: AuditLog) -> None:
    head = log.verify().last_digest
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(lines[:-1]))
    assert log.verify().n_records == 4
    with pytest.raises(DataError, match=f"no line has the digest {head[:16]}: .*cut off"):
        log.verify(head[:16])


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_incomplete_line_is_recorded(log: AuditLog, kept: int) -> None:
    """The rest of the interrupted line stays, and the next line records it."""
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(lines[:-1]) + lines[-1][:-1][:kept])
    log.append("began", session="later")
    found = log.verify()
    assert (found.n_records, found.n_truncated) == (6, 1)
    assert [record["event"] for record in log.iter_records()][-2:] == ["torn", "began"]


def test_concurrent_writers(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    add = "import sys; from privet.storage.journal import AuditLog\n"
    add += "for _ in range(40): AuditLog(sys.argv[1]).append('began')"
    command = [sys.executable, "-c", add, str(path)]
    running = [subprocess.Popen(command) for _ in range(3)]  # noqa: S603
    assert [process.wait() for process in running] == [0, 0, 0]
    assert AuditLog(path).verify().n_records == 120


def test_unwritable_log_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="the audit log cannot be written: Is a directory"):
        AuditLog(tmp_path).append("began")
    with pytest.raises(DataError, match="No such file"):
        AuditLog(tmp_path / "none").verify()


def test_full_disk_leaves_no_partial_record(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failed record is removed, and a later one follows the earlier lines."""
    before, write = log.path.read_bytes(), os.write
    free_bytes = iter([7])

    def fill(descriptor: int, content: bytes) -> int:
        n_free = next(free_bytes, 0)
        if not n_free:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content[:n_free])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fill)
        with pytest.raises(UnavailableError, match="No space left on device"):
            log.append("began", session="5")
    assert log.path.read_bytes() == before
    log.append("began", session="5")
    assert log.verify().n_records == 6


def test_incomplete_line_with_a_newline(log: AuditLog) -> None:
    """This happens if power fails while the next line records the incomplete one."""
    with log.path.open("ab") as file:
        file.write(b'{"number": 6, "ev\n')
    log.append("began", session="6")
    found = log.verify()
    assert (found.n_records, found.n_truncated) == (7, 1)
