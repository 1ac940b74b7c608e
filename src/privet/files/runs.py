"""What a participant's runs had to say, kept in its own folder: for its page, and for later.

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
import json
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from privet.errors import UnavailableError
from privet.files.atomic import make_folder

FOLDER = "runs"
LINES, NOW = ".jsonl", ".now"
MOST_RUNS = 200
"""So many are kept."""


class RunRecord:
    """The record of a run that goes on."""

    def __init__(self, folder: str | Path, command: str) -> None:
        runs = make_folder(Path(folder) / FOLDER)
        _forget_old(runs, MOST_RUNS - 1)
        now = datetime.datetime.now(datetime.timezone.utc)
        self.path = runs / f"{now:%Y%m%dT%H%M%S%f}-{command}-{secrets.token_hex(4)}{LINES}"
        self._writing = threading.Lock()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._descriptor = os.open(self.path, flags, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise UnavailableError(f"{self.path}: cannot be written: {error.strerror}") from None

    def add(self, line: Mapping[str, Any]) -> None:
        """Add a line; raise UnavailableError if that cannot be done."""
        content = json.dumps(line).encode() + b"\n"
        with self._writing, self._blaming():
            os.write(self._descriptor, content)

    def stand(self, line: Mapping[str, Any]) -> None:
        """Say how the run stands, in place of what was said before."""
        place = self.path.with_suffix(NOW)
        part = _unfinished(place)
        with self._writing, self._blaming():
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(json.dumps(line).encode())
            part.replace(place)

    def close(self) -> None:
        """Let go of the file: the run is over."""
        os.close(self._descriptor)

    @contextlib.contextmanager
    def _blaming(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError(f"{self.path}: cannot be written: {error.strerror}") from None


class RunFile:
    """The record of a run, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._standing = 0

    @property
    def name(self) -> str:
        """What the run is called."""
        return self.path.stem

    def new_lines(self) -> list[dict[str, Any]]:
        """Return the lines that were added since we last looked; what is no line is left out."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                content = file.read()
        except OSError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        return [line for each in whole.splitlines() if (line := _parse(each)) is not None]

    def new_standing(self) -> dict[str, Any] | None:
        """Return how the run stands, if that was said anew since we last looked."""
        place = self.path.with_suffix(NOW)
        try:
            changed = place.stat().st_mtime_ns
            if changed == self._standing:
                return None
            self._standing = changed
            return _parse(place.read_bytes())
        except OSError:
            return None

    def goes_on(self) -> bool:
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


def run_files(folder: str | Path) -> list[Path]:
    """Return the records of all runs in a participant's folder, the oldest first."""
    return sorted((Path(folder) / FOLDER).glob(f"*{LINES}"))


def _forget_old(runs: Path, most: int) -> None:
    """Remove all but the newest records of runs that are over."""
    paths = sorted(runs.glob(f"*{LINES}"))
    for path in paths[: max(0, len(paths) - most)]:
        if not RunFile(path).goes_on():
            place = path.with_suffix(NOW)
            for old in (path, place, _unfinished(place)):
                with contextlib.suppress(OSError):
                    old.unlink(missing_ok=True)


def _unfinished(place: Path) -> Path:
    """Return where a file is written before it gets its name."""
    return place.with_name(f".{place.name}")


def _parse(content: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None
