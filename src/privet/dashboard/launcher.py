"""Start and stop of training runs as `privet train` processes.

The processes outlive the dashboard. A stop sends SIGTERM; a restart resumes from the last
checkpoint.
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
    """Journals that existed before the start."""


class TrainingLauncher:
    """Launcher of training runs of one participant."""

    def __init__(self, party: Path, folder: str | Path) -> None:
        self._party = party.resolve()
        self._folder = Path(folder)
        self._started: dict[str, _LaunchedProcess] = {}
        self._start_lock = threading.Lock()
        self.launch_errors: dict[str, str] = {}
        """By job, the last message of a launched process that ended without a journal."""

    def start_training(self, job_name: str, job_file: Path, *, restart: bool = False) -> None:
        """Start or resume a training run; raise UnavailableError if one is starting already."""
        with self._start_lock:
            self._start(job_name, job_file, restart)

    def _start(self, job_name: str, job_file: Path, restart: bool) -> None:
        earlier = self._started.get(job_name)
        if earlier is not None:  # a process may still be exiting after its last event
            with contextlib.suppress(subprocess.TimeoutExpired):
                earlier.process.wait(_END_SECONDS)
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
                    start_new_session=True,  # so that Ctrl-C ends only the dashboard
                )
        except OSError as error:
            raise UnavailableError(f"{command[0]}: cannot be started: {error}") from None
        self._started[job_name] = _LaunchedProcess(process, log, before)

    def stop_run(self, run: JournalReader, pid: int) -> None:
        """Send SIGTERM to a run; raise UnavailableError if it has ended."""
        # While the journal is locked, its process is alive, so the process id is not reused.
        if not run.is_running():
            raise UnavailableError(f"{run.run_name}: has ended already")
        try:
            os.kill(pid, signal.SIGTERM)
        except OSError as error:
            raise UnavailableError(f"{run.run_name}: process {pid}: {error.strerror}") from None

    def detach(self) -> None:
        """Detach from running processes, which outlive the dashboard."""
        self.reap()
        for each in self._started.values():
            each.process.returncode = 0  # prevents a ResourceWarning

    def reap(self) -> bool:
        """Collect ended processes; return whether any has ended."""
        running = list(self._started.items())  # a copy, since other threads can start processes
        ended = {job: each for job, each in running if each.process.poll() is not None}
        for job, each in ended.items():
            self._started.pop(job, None)
            if each.process.returncode and not self._has_journal(each):
                self.launch_errors[job] = _read_last_message(each.log)
        return bool(ended)

    def _has_journal(self, started: _LaunchedProcess) -> bool:
        """Return whether a training journal exists that is newer than the start."""
        return any(
            "-train-" in path.name for path in {*list_journals(self._folder)} - started.before
        )


def _read_last_message(log: Path) -> str:
    """Return the last message in the log of a process."""
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").strip().splitlines()
        if lines:
            with contextlib.suppress(ValueError, AttributeError):
                return str(json.loads(lines[-1]).get("text"))
            return lines[-1][:500]
    return "it ended without a word"
