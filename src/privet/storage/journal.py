"""The hash-chained audit log, and the journals of runs.

    {"number": 2, "time": "...", "event": "ended", ..., "previous": "91ab...", "own": "5c02..."}

The audit log is append-only. Each line contains the SHA-256 of the line before it, so a change, a
removal, an insertion or a move of any line except the last is detected. No line follows the last
one: damage to it is detected by the digest of its content that ends each line (lines of earlier
versions have none). An attacker can recompute this digest, and can also truncate the log without
detection. Only the digest of the last line, the *head*, identifies the whole file: store a head
elsewhere regularly, and check that the log contains it (`verify`).

A line that a power cut left incomplete stays, and the next line records it.

    FOLDER/runs/20261118T022612000417-train-5f0c91ab.jsonl    events, one JSON object a line
    FOLDER/runs/20261118T022612000417-train-5f0c91ab.now      the current progress, overwritten

A run locks its journal until its process ends for any reason, so a reader can tell a running
process from a killed one. Only the owner of the folder can read journals. The last 200 are kept.
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
"""The minimum number of digits of a head: fewer would match a line of almost any log."""
_MAX_LINE_BYTES = 1 << 20
"""The maximum length of a line."""


@dataclass(frozen=True)
class VerificationResult:
    """The result of verifying an intact log."""

    n_records: int
    last_digest: str
    n_truncated: int
    """The number of incomplete lines: each is the last line, or recorded by the next one."""


class AuditLog:
    """An append-only log that several processes can write."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def check_writable(self) -> None:
        """Raise UnavailableError unless the log can be written; add no record."""
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
            last_line, is_complete = _read_last_line(descriptor)
            number = _get_record_number(last_line) + 1 if last_line else 1
            lines = [] if is_complete else [b""]
            if last_line and _parse_audit_record(last_line) is None:
                last_line = _make_audit_line(
                    {"number": number, "event": "torn", "bytes": len(last_line)}, last_line
                )
                lines.append(last_line)
                number += 1
            lines.append(_make_audit_line({"number": number, "event": event, **fields}, last_line))
            _append_lines(descriptor, b"\n".join(lines) + b"\n")
        except OSError as error:
            raise self._make_write_error(error) from None
        finally:
            os.close(descriptor)

    def iter_records(self) -> Iterator[dict[str, Any]]:
        """Yield all records; skip incomplete lines."""
        for line in self._read_content().split(b"\n"):
            if (record := _parse_audit_record(line)) is not None:
                yield record

    def verify(self, expected_digest: str | None = None) -> VerificationResult:
        """Raise DataError unless the chain of lines is intact and contains an expected head.

        `expected_digest` is a head or its first digits, at least eight; None expects no head.
        """
        if expected_digest is not None and not re.fullmatch(
            f"[0-9a-f]{{{_MIN_DIGEST_DIGITS},64}}", expected_digest
        ):
            raise ParameterError(
                f"head: {quote_untrusted(expected_digest)!r} is none: give all 64 digits that were "
                f"noted, 0 to 9 and a to f, or at least the first {_MIN_DIGEST_DIGITS}"
            )
        previous, n_records, n_truncated, digests = _START, 0, 0, []
        truncated_bytes, needs_digest = 0, False
        *lines, end = self._read_content().split(b"\n")  # the end is an interrupted write, or empty
        for line_number, line in enumerate((*lines, end), 1):
            if not line:
                continue
            record = _parse_audit_record(line)
            if record is None:
                if truncated_bytes or (line_number == len(lines) and not end):
                    raise DataError(f"{self.path}: line {line_number} is no record")
                truncated_bytes = len(line)
            else:
                if (needs_digest and "own" not in record) or not _has_valid_digest(line, record):
                    raise DataError(f"{self.path}: line {line_number} was changed")
                needs_digest = "own" in record
                recorded_bytes = record.get("bytes") if record.get("event") == "torn" else 0
                if (record.get("previous"), recorded_bytes) != (previous, truncated_bytes):
                    raise DataError(
                        f"{self.path}: line {line_number} does not follow the one before: one of "
                        "them was changed, or something between them is missing or was put in"
                    )
                n_truncated += bool(truncated_bytes)
                truncated_bytes = 0
                n_records += 1
            previous = _digest_line(line)
            digests.append(previous)
        if expected_digest is not None and not any(
            known.startswith(expected_digest) for known in digests
        ):
            raise DataError(
                f"{self.path}: no line has the digest {expected_digest}: the log's end was cut off "
                "since it was noted, or the log was written anew"
            )
        return VerificationResult(n_records, previous, n_truncated + bool(truncated_bytes))

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
    """Add to a serialised record the digest of the record without it."""
    return line[:-1] + f', "own": "{_digest_line(line)}"}}'.encode()


def _has_valid_digest(line: bytes, record: dict[str, Any]) -> bool:
    """Tell whether the digest at the end of a line is right, or absent."""
    if "own" not in record:
        return True
    start = line.rfind(b', "own": ')
    return start >= 0 and line == _append_digest(line[:start] + b"}")


def _parse_audit_record(line: bytes) -> dict[str, Any] | None:
    """Parse a line; return None if it is not a record."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and "previous" in record else None


def _get_record_number(line: bytes) -> int:
    """Return the number of a record; 0 for a line that is not a record."""
    number = (_parse_audit_record(line) or {}).get("number")
    return number if isinstance(number, int) else 0


def _read_last_line(descriptor: int) -> tuple[bytes, bool]:
    """Return the last line, and whether it is complete."""
    size = os.fstat(descriptor).st_size
    end = os.pread(descriptor, _MAX_LINE_BYTES, max(0, size - _MAX_LINE_BYTES))
    last_line = end.rstrip(b"\n").rpartition(b"\n")[2]
    return last_line, not end or end.endswith(b"\n")


def _make_audit_line(record: dict[str, Any], previous_line: bytes) -> bytes:
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
    previous = _digest_line(previous_line) if previous_line else _START
    return _append_digest(json.dumps({**record, "time": now, "previous": previous}).encode())


def _append_lines(descriptor: int, content: bytes) -> None:
    """Append lines and wait until they are on disk; on failure, remove all of them."""
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
"""The number of journals to keep."""


class JournalWriter:
    """Writes the journal of a run."""

    def __init__(self, folder: str | Path, command: str) -> None:
        runs = make_folder(Path(folder) / RUNS_FOLDER)
        _remove_old_runs(runs, MAX_RUNS - 1)
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
        """Append a line; raise UnavailableError if that fails."""
        content = json.dumps(record).encode() + b"\n"
        with self._write_lock, self._raising_unavailable():
            os.write(self._descriptor, content)

    def write_progress(self, record: Mapping[str, Any]) -> None:
        """Replace the progress record of the run."""
        path = self.path.with_suffix(PROGRESS_SUFFIX)
        temporary_path = _make_temporary_path(path)
        with self._write_lock, self._raising_unavailable():
            descriptor = os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(json.dumps(record).encode())
            temporary_path.replace(path)

    def close(self) -> None:
        """Close the journal and release its lock."""
        os.close(self._descriptor)

    @contextlib.contextmanager
    def _raising_unavailable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError(f"{self.path}: cannot be written: {error.strerror}") from None


class JournalReader:
    """Reads the journal of a run while it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._progress_mtime = 0

    @property
    def run_name(self) -> str:
        """The name of the run."""
        return self.path.stem

    def read_new_records(self) -> list[dict[str, Any]]:
        """Return the complete records added since the last call; skip invalid lines."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except OSError:
            return []
        complete = content[: content.rfind(b"\n") + 1]
        self._offset += len(complete)
        return [record for text in complete.splitlines() if (record := _parse(text)) is not None]

    def read_new_progress(self) -> dict[str, Any] | None:
        """Return the progress record if it changed since the last call."""
        path = self.path.with_suffix(PROGRESS_SUFFIX)
        try:
            mtime = path.stat().st_mtime_ns
            if mtime == self._progress_mtime:
                return None
            self._progress_mtime = mtime
            return _parse(path.read_bytes())
        except OSError:
            return None

    def is_running(self) -> bool:
        """Tell whether the process of the run is alive."""
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
    """Return the journals of all runs in a participant's folder, oldest first."""
    return sorted((Path(folder) / RUNS_FOLDER).glob(f"*{JOURNAL_SUFFIX}"))


def _remove_old_runs(runs: Path, max_runs: int) -> None:
    """Remove the journals of finished runs except the newest."""
    paths = sorted(runs.glob(f"*{JOURNAL_SUFFIX}"))
    for path in paths[: max(0, len(paths) - max_runs)]:
        if not JournalReader(path).is_running():
            progress_path = path.with_suffix(PROGRESS_SUFFIX)
            for old_path in (path, progress_path, _make_temporary_path(progress_path)):
                with contextlib.suppress(OSError):
                    old_path.unlink(missing_ok=True)


def _make_temporary_path(path: Path) -> Path:
    """Return the temporary path for writing a file."""
    return path.with_name(f".{path.name}")


def _parse(content: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
