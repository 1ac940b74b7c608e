"""The audit log: a record of every session, a line of JSON each, of which none can be changed.

    {"number": 2, "time": "...", "event": "ended", ..., "previous": "91ab..."}

Lines are only ever added. Each holds the SHA-256 of the line before it, so a line that was changed,
left out, put in or moved shows, and its last line's digest, the *head*, stands for the whole file.
Whoever can write the file can write a whole new one, or cut its end off: against that, keep a head
elsewhere now and then, and have it looked for (`verify`).

A line that a power cut left incomplete stays, and the next one says so.
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privet.errors import DataError, UnavailableError
from privet.files.atomic import check_writable

_START = "0" * 64
_MOST_BYTES = 1 << 20
"""A line is no longer than that."""


@dataclass(frozen=True)
class Verified:
    """What was found of a log that is whole."""

    records: int
    head: str
    torn: int
    """How many lines were left incomplete: each is followed by one that says so, or the last."""


class AuditLog:
    """A log that is added to, by any number of processes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def check(self) -> None:
        """Raise UnavailableError unless records could be added; none is."""
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_APPEND))
        except FileNotFoundError:
            check_writable(self.path)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> UnavailableError:
        return UnavailableError(f"{self.path}: the audit log cannot be written: {error.strerror}")

    def add(self, event: str, **fields: Any) -> None:
        """Add a record, and wait until it is on disk."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            last, whole = _last_line(descriptor)
            number = _number_of(last) + 1 if last else 1
            if not whole:
                os.write(descriptor, b"\n")
                torn = {"number": number, "event": "torn", "bytes": len(last)}
                last = self._write(descriptor, torn, last)
                number += 1
            self._write(descriptor, {"number": number, "event": event, **fields}, last)
            os.fsync(descriptor)
        except OSError as error:
            raise self._unwritable(error) from None
        finally:
            os.close(descriptor)

    @staticmethod
    def _write(descriptor: int, record: dict[str, Any], before: bytes) -> bytes:
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        previous = _digest(before) if before else _START
        line = json.dumps({**record, "time": now, "previous": previous}).encode()
        os.write(descriptor, line + b"\n")
        return line

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield all records, without the lines that were left incomplete."""
        for line in self._lines():
            if (record := _parse(line)) is not None:
                yield record

    def verify(self, head: str | None = None) -> Verified:
        """Raise DataError unless every line follows the one before, and a head is among them.

        Part of a head will do, from its first digit on.
        """
        previous, records, torn, heads = _START, 0, 0, []
        open_end = 0
        for place, line in enumerate(self._lines(), 1):
            record = _parse(line)
            if record is None:
                if open_end:
                    raise DataError(f"{self.path}: line {place} is no record")
                open_end = len(line)
            else:
                says = record.get("bytes") if record.get("event") == "torn" else 0
                if (record.get("previous"), says) != (previous, open_end):
                    raise DataError(
                        f"{self.path}: line {place} does not follow the one before: one of them "
                        "was changed, or something between them is missing or was put in"
                    )
                torn += bool(open_end)
                open_end = 0
                records += 1
            previous = _digest(line)
            heads.append(previous)
        if head is not None and not any(known.startswith(head) for known in heads):
            raise DataError(
                f"{self.path}: no line has the digest {head}: the log's end was cut off since it "
                "was noted, or the log was written anew"
            )
        return Verified(records, previous, torn + bool(open_end))

    def _lines(self) -> list[bytes]:
        try:
            if self.path.exists() and not self.path.is_file():
                raise DataError(f"{self.path}: is no file")
            content = self.path.read_bytes()
        except OSError as error:
            raise DataError(f"{self.path}: {error.strerror}") from None
        return [line for line in content.split(b"\n") if line]


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return what a line holds; None if it is no record."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and "previous" in record else None


def _number_of(line: bytes) -> int:
    """Return a record's number; of a line that is none, 0."""
    number = (_parse(line) or {}).get("number")
    return number if isinstance(number, int) else 0


def _last_line(descriptor: int) -> tuple[bytes, bool]:
    """Return the last line, and whether it is complete."""
    size = os.fstat(descriptor).st_size
    end = os.pread(descriptor, _MOST_BYTES, max(0, size - _MOST_BYTES))
    last = end.rstrip(b"\n").rpartition(b"\n")[2]
    return last, not end or end.endswith(b"\n")
