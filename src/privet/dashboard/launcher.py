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
import threading
from dataclasses import dataclass
from pathlib import Path

from privet.errors import UnavailableError
from privet.filesystem import make_folder
from privet.storage.journal import RUNS_FOLDER, JournalReader, list_journals

_LOG = "started.log"
_END_SECONDS = 3.0


@dataclass
class _LaunchedProcess:
    process: subprocess.Popen[bytes]
    log: Path
    before: frozenset[Path]
    """The records that were there."""


class TrainingLauncher:
    """Trainings of one participant."""

    def __init__(self, party: Path, folder: str | Path) -> None:
        self._party = party.resolve()
        self._folder = Path(folder)
        self._started: dict[str, _LaunchedProcess] = {}
        self._start_lock = threading.Lock()
        self.launch_errors: dict[str, str] = {}
        """Why a training that we started has ended without a record, by job."""

    def start_training(self, job_name: str, job_file: Path, *, restart: bool = False) -> None:
        """Start a training, or go on with one; raise UnavailableError if it is going on."""
        with self._start_lock:
            self._start(job_name, job_file, restart)

    def _start(self, job_name: str, job_file: Path, restart: bool) -> None:
        running = self._started.get(job_name)
        if running is not None:  # one that has said its last words may still be about to end
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.process.wait(_END_SECONDS)
            self.reap()
        if job_name in self._started:
            raise UnavailableError(f"the training of {job_name!r} is starting already")
        self.launch_errors.pop(job_name, None)
        before = frozenset(list_journals(self._folder))
        log = make_folder(self._folder / RUNS_FOLDER) / f"{job_name}.{_LOG}"
        command = [sys.executable, "-m", "privet", "train", f"--party={self._party}"]
        command += [f"--job={job_file}", "--log-format=json", *(["--restart"] if restart else [])]
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
        self._started[job_name] = _LaunchedProcess(process, log, before)

    def stop_run(self, run: JournalReader, pid: int) -> None:
        """Ask a run to end; raise UnavailableError if it has."""
        # While the record is locked, its process lives, and nobody else has its number.
        if not run.is_running():
            raise UnavailableError(f"{run.run_name}: has ended already")
        try:
            os.kill(pid, signal.SIGTERM)
        except OSError as error:
            raise UnavailableError(f"{run.run_name}: process {pid}: {error.strerror}") from None

    def detach(self) -> None:
        """Leave those that are still running to themselves: they outlive us."""
        self.reap()
        for each in self._started.values():
            each.process.returncode = 0  # or Python would complain that nobody waits for it

    def reap(self) -> bool:
        """See which of those that we started have ended; tell whether any has."""
        running = list(self._started.items())  # others may be started meanwhile
        ended = {job: each for job, each in running if each.process.poll() is not None}
        for job, each in ended.items():
            self._started.pop(job, None)
            if each.process.returncode and not self._has_journal(each):
                self.launch_errors[job] = _read_last_message(each.log)
        return bool(ended)

    def _has_journal(self, started: _LaunchedProcess) -> bool:
        """Tell whether a training has begun since, whose record says more."""
        return any(
            "-train-" in path.name for path in {*list_journals(self._folder)} - started.before
        )


def _read_last_message(log: Path) -> str:
    """Return what a process said last."""
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").strip().splitlines()
        if lines:
            with contextlib.suppress(ValueError, AttributeError):
                return str(json.loads(lines[-1]).get("text"))
            return lines[-1][:500]
    return "it ended without a word"
