"""Runs as their own record has them: what they tell, how they stand, and how they ended.

It is for people who look at a page, not for auditors: a run whose record cannot be written goes on.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from privet.errors import UnavailableError
from privet.federation.events import Event, Teller, last_words
from privet.files.job import Job
from privet.files.runs import RunRecord
from privet.version import __version__


@contextlib.contextmanager
def recorded(
    folder: str | Path, job: Job, name: str, command: str, tell: Teller, file: Path | None = None
) -> Iterator[None]:
    """Keep what is told of a run in a participant's folder; `file` is where the job was read."""
    with contextlib.ExitStack() as stack:
        try:
            record = RunRecord(folder, command)
            stack.callback(record.close)
            record.add(_beginning(job, name, command, file).line())
        except UnavailableError as error:
            tell(Event("warning", f"warning: no record is kept of this run: {error}"))
            yield
            return
        note = _Noting(record)
        try:
            with tell.overheard(note):
                yield
        except BaseException as error:
            note(last_words(error))
            raise


def _beginning(job: Job, name: str, command: str, file: Path | None) -> Event:
    about = {
        "command": command,
        "job": job.name,
        "digest": job.digest,
        "job_file": None if file is None else str(file.resolve()),
        "name": name,
        "participants": job.names,
        "dealers": list(job.dealer_names),
        "pid": os.getpid(),
        "version": __version__,
    }
    return Event("began", f"{command} as {name}, job {job.name}", about)


class _Noting:
    """Writes events down, as far as the disk lets it."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._missing: Any = None
        self._failed = False

    def __call__(self, event: Event) -> None:
        if self._failed or self._is_known(event):
            return
        line = event.line()
        line.pop("traceback", None)  # it shows values that errors need not
        try:
            if event.passing:
                self._record.stand(line)
            else:
                self._record.add(line)
        except UnavailableError:
            self._failed = True

    def _is_known(self, event: Event) -> bool:
        """Tell whether it was said before: waiting is told of again and again."""
        missing = event.fields.get("missing") if event.kind == "waiting" else None
        known = missing is not None and missing == self._missing
        self._missing = missing if event.kind == "waiting" else self._missing
        if event.kind == "connected":
            self._missing = None
        return known
