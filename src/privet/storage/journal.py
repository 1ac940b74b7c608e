"""The hash-chained audit log, and the journals of runs.

    {"number": 2, "time": "...", "event": "ended", ..., "previous": "91ab...", "own": "5c02..."}

Lines are only ever added. Each holds the SHA-256 of the line before it, so one before the last that
was changed, left out, put in or moved shows. No line follows the last one: that it was damaged
shows by the digest of its own that each line ends with (those of earlier versions have none), which
whoever changes it on purpose can make anew. Nor does it show that the end was cut off, or all of
it. Only the digest of the last line, the *head*, stands for the whole file: keep one elsewhere now
and then, and have it looked for (`verify`).

A line that a power cut left incomplete stays, and the next one says so.

    FOLDER/runs/20261118T022612000417-train-5f0c91ab.jsonl    what it told, a JSON object a line
    FOLDER/runs/20261118T022612000417-train-5f0c91ab.now      how it stands, written anew

A run holds a lock on its file for as long as it lives, however it ends: so whoever reads can tell
one that goes on from one that was killed. Only the owner of the folder can read them. The last 200
are kept.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import hashlib
import json
import os
import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privet.errors import DataError, ParameterError, UnavailableError
from privet.filesystem import check_writable, make_folder
from privet.schema import quote_untrusted

_START = "0" * 64
_MIN_DIGEST_DIGITS = 8
"""So many of a head are asked for: any log has a line that begins with one digit."""
_MAX_LINE_BYTES = 1 << 20
"""A line is no longer than that."""


@dataclass(frozen=True)
class VerificationResult:
    """What was found of a log that is whole."""

    n_records: int
    last_digest: str
    n_truncated: int
    """How many lines were left incomplete: each is followed by one that says so, or the last."""


class AuditLog:
    """A log that is added to, by any number of processes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def check_writable(self) -> None:
        """Raise UnavailableError unless records could be added; none is."""
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_APPEND))
        except FileNotFoundError:
            check_writable(self.path)
        except OSError as error:
            raise self._make_write_error(error) from None

    def _make_write_error(self, error: OSError) -> UnavailableError:
        return UnavailableError(f"{self.path}: the audit log cannot be written: {error.strerror}")

    def append(self, event: str, **fields: Any) -> None:
        """Add a record, and wait until it is on disk."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise self._make_write_error(error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            last, whole = _read_last_line(descriptor)
            number = _get_record_number(last) + 1 if last else 1
            lines = [] if whole else [b""]
            if last and _parse_audit_record(last) is None:
                last = _make_audit_line(
                    {"number": number, "event": "torn", "bytes": len(last)}, last
                )
                lines.append(last)
                number += 1
            lines.append(_make_audit_line({"number": number, "event": event, **fields}, last))
            _append_lines(descriptor, b"\n".join(lines) + b"\n")
        except OSError as error:
            raise self._make_write_error(error) from None
        finally:
            os.close(descriptor)

    def iter_records(self) -> Iterator[dict[str, Any]]:
        """Yield all records, without the lines that were left incomplete."""
        for line in self._read_content().split(b"\n"):
            if (record := _parse_audit_record(line)) is not None:
                yield record

    def verify(self, expected_digest: str | None = None) -> VerificationResult:
        """Raise DataError unless every line follows the one before, and a head is among them.

        The first digits of a head will do, unless they are so few that others may begin alike.
        """
        if expected_digest is not None and not re.fullmatch(
            f"[0-9a-f]{{{_MIN_DIGEST_DIGITS},64}}", expected_digest
        ):
            raise ParameterError(
                f"head: {quote_untrusted(expected_digest)!r} is none: give all 64 digits that were "
                f"noted, 0 to 9 and a to f, or at least the first {_MIN_DIGEST_DIGITS}"
            )
        previous, records, torn, heads = _START, 0, 0, []
        open_end, due = 0, False
        *lines, end = self._read_content().split(b"\n")  # the end is of a write that was cut short
        for place, line in enumerate((*lines, end), 1):
            if not line:
                continue
            record = _parse_audit_record(line)
            if record is None:
                if open_end or (place == len(lines) and not end):
                    raise DataError(f"{self.path}: line {place} is no record")
                open_end = len(line)
            else:
                if (due and "own" not in record) or not _has_valid_digest(line, record):
                    raise DataError(f"{self.path}: line {place} was changed")
                due = "own" in record
                says = record.get("bytes") if record.get("event") == "torn" else 0
                if (record.get("previous"), says) != (previous, open_end):
                    raise DataError(
                        f"{self.path}: line {place} does not follow the one before: one of them "
                        "was changed, or something between them is missing or was put in"
                    )
                torn += bool(open_end)
                open_end = 0
                records += 1
            previous = _digest_line(line)
            heads.append(previous)
        if expected_digest is not None and not any(
            known.startswith(expected_digest) for known in heads
        ):
            raise DataError(
                f"{self.path}: no line has the digest {expected_digest}: the log's end was cut off "
                "since it was noted, or the log was written anew"
            )
        return VerificationResult(records, previous, torn + bool(open_end))

    def _read_content(self) -> bytes:
        try:
            if self.path.exists() and not self.path.is_file():
                raise DataError(f"{self.path}: is no file")
            return self.path.read_bytes()
        except OSError as error:
            raise DataError(f"{self.path}: {error.strerror}") from None


def _digest_line(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _append_digest(line: bytes) -> bytes:
    """Return a record as JSON with the digest of what it is without it."""
    return line[:-1] + f', "own": "{_digest_line(line)}"}}'.encode()


def _has_valid_digest(line: bytes, record: dict[str, Any]) -> bool:
    """Tell whether a line's own digest is right, if it has one."""
    if "own" not in record:
        return True
    start = line.rfind(b', "own": ')
    return start >= 0 and line == _append_digest(line[:start] + b"}")


def _parse_audit_record(line: bytes) -> dict[str, Any] | None:
    """Return what a line holds; None if it is no record."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and "previous" in record else None


def _get_record_number(line: bytes) -> int:
    """Return a record's number; of a line that is none, 0."""
    number = (_parse_audit_record(line) or {}).get("number")
    return number if isinstance(number, int) else 0


def _read_last_line(descriptor: int) -> tuple[bytes, bool]:
    """Return the last line, and whether it is complete."""
    size = os.fstat(descriptor).st_size
    end = os.pread(descriptor, _MAX_LINE_BYTES, max(0, size - _MAX_LINE_BYTES))
    last = end.rstrip(b"\n").rpartition(b"\n")[2]
    return last, not end or end.endswith(b"\n")


def _make_audit_line(record: dict[str, Any], previous_line: bytes) -> bytes:
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
    previous = _digest_line(previous_line) if previous_line else _START
    return _append_digest(json.dumps({**record, "time": now, "previous": previous}).encode())


def _append_lines(descriptor: int, content: bytes) -> None:
    """Add lines, and wait until they are on disk; all of them, or none if that fails."""
    before = os.fstat(descriptor).st_size
    try:
        while content:
            content = content[os.write(descriptor, content) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, before)
        raise


RUNS_FOLDER = "runs"
JOURNAL_SUFFIX, PROGRESS_SUFFIX = ".jsonl", ".now"
MAX_RUNS = 200
"""So many are kept."""


class JournalWriter:
    """The record of a run that goes on."""

    def __init__(self, folder: str | Path, command: str) -> None:
        runs = make_folder(Path(folder) / RUNS_FOLDER)
        _forget_old(runs, MAX_RUNS - 1)
        now = datetime.datetime.now(datetime.timezone.utc)
        self.path = runs / f"{now:%Y%m%dT%H%M%S%f}-{command}-{secrets.token_hex(4)}{JOURNAL_SUFFIX}"
        self._write_lock = threading.Lock()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._descriptor = os.open(self.path, flags, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise UnavailableError(f"{self.path}: cannot be written: {error.strerror}") from None

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a line; raise UnavailableError if that cannot be done."""
        content = json.dumps(record).encode() + b"\n"
        with self._write_lock, self._raising_unavailable():
            os.write(self._descriptor, content)

    def write_progress(self, record: Mapping[str, Any]) -> None:
        """Say how the run stands, in place of what was said before."""
        place = self.path.with_suffix(PROGRESS_SUFFIX)
        part = _make_temporary_path(place)
        with self._write_lock, self._raising_unavailable():
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(json.dumps(record).encode())
            part.replace(place)

    def close(self) -> None:
        """Let go of the file: the run is over."""
        os.close(self._descriptor)

    @contextlib.contextmanager
    def _raising_unavailable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError(f"{self.path}: cannot be written: {error.strerror}") from None


class JournalReader:
    """The record of a run, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._progress_mtime = 0

    @property
    def run_name(self) -> str:
        """What the run is called."""
        return self.path.stem

    def read_new_records(self) -> list[dict[str, Any]]:
        """Return the lines that were added since we last looked; what is no line is left out."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except OSError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [line for each in whole.splitlines() if (line := _parse(each)) is not None]

    def read_new_progress(self) -> dict[str, Any] | None:
        """Return how the run stands, if that was said anew since we last looked."""
        place = self.path.with_suffix(PROGRESS_SUFFIX)
        try:
            changed = place.stat().st_mtime_ns
            if changed == self._progress_mtime:
                return None
            self._progress_mtime = changed
            return _parse(place.read_bytes())
        except OSError:
            return None

    def is_running(self) -> bool:
        """Tell whether its process still lives."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False


def list_journals(folder: str | Path) -> list[Path]:
    """Return the records of all runs in a participant's folder, the oldest first."""
    return sorted((Path(folder) / RUNS_FOLDER).glob(f"*{JOURNAL_SUFFIX}"))


def _forget_old(runs: Path, max_runs: int) -> None:
    """Remove all but the newest records of runs that are over."""
    paths = sorted(runs.glob(f"*{JOURNAL_SUFFIX}"))
    for path in paths[: max(0, len(paths) - max_runs)]:
        if not JournalReader(path).is_running():
            place = path.with_suffix(PROGRESS_SUFFIX)
            for old in (path, place, _make_temporary_path(place)):
                with contextlib.suppress(OSError):
                    old.unlink(missing_ok=True)


def _make_temporary_path(path: Path) -> Path:
    """Return where a file is written before it gets its name."""
    return path.with_name(f".{path.name}")


def _parse(content: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None
