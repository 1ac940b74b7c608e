"""Starting and stopping trainings: the same processes that somebody would start in a terminal.

They outlive the page. One is stopped as a terminal would stop it, and goes on after its last
checkpoint when it is started again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from privet.errors import UnavailableError
from privet.files.atomic import make_folder
from privet.files.runs import FOLDER, RunFile

_LOG = "started.log"


@dataclass
class _Started:
    process: subprocess.Popen[bytes]
    log: Path


class Control:
    """Trainings of one participant."""

    def __init__(self, party: Path, folder: str | Path) -> None:
        self._party = party.resolve()
        self._folder = Path(folder)
        self._started: dict[str, _Started] = {}
        self.complaints: dict[str, str] = {}
        """Why a training that we started has ended without a record, by job."""

    def train(self, job: str, file: Path, *, restart: bool = False) -> None:
        """Start a training, or go on with one; raise UnavailableError if it is going on."""
        self.look()
        if job in self._started:
            raise UnavailableError(f"the training of {job!r} is starting already")
        self.complaints.pop(job, None)
        log = make_folder(self._folder / FOLDER) / f"{job}.{_LOG}"
        command = [sys.executable, "-m", "privet", "train", f"--party={self._party}"]
        command += [f"--job={file}", "--log-format=json", *(["--restart"] if restart else [])]
        try:
            with log.open("wb") as errors:
                process = subprocess.Popen(  # noqa: S603
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,  # so that Ctrl-C ends the page, and no training
                )
        except OSError as error:
            raise UnavailableError(f"{command[0]}: cannot be started: {error}") from None
        self._started[job] = _Started(process, log)

    def stop(self, run: RunFile, pid: int) -> None:
        """Ask a run to end; raise UnavailableError if it has."""
        # While the record is locked, its process lives, and nobody else has its number.
        if not run.goes_on():
            raise UnavailableError(f"{run.name}: has ended already")
        try:
            os.kill(pid, signal.SIGTERM)
        except OSError as error:
            raise UnavailableError(f"{run.name}: process {pid}: {error.strerror}") from None

    def let_go(self) -> None:
        """Leave those that are still running to themselves: they outlive us."""
        self.look()
        for each in self._started.values():
            each.process.returncode = 0  # or Python would complain that nobody waits for it

    def look(self) -> bool:
        """See which of those that we started have ended; tell whether any has."""
        ended = {j: each for j, each in self._started.items() if each.process.poll() is not None}
        for job, each in ended.items():
            del self._started[job]
            if each.process.returncode:
                self.complaints[job] = _last_words(each.log)
        return bool(ended)


def _last_words(log: Path) -> str:
    """Return what a process said last."""
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").strip().splitlines()
        if lines:
            with contextlib.suppress(ValueError, AttributeError):
                return str(json.loads(lines[-1]).get("text"))
            return lines[-1][:500]
    return "it ended without a word"
