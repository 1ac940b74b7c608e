"""Store of a participant's runs and jobs, which polls local files and streams changes to clients.

Each client has a cursor of the changes sent to it. Therefore a suspended client receives all that
it missed, and a slow client does not delay others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privet.config.party import PartyConfig
from privet.dashboard.catalogue import JobCatalogue, KnownJob, group_by_federation
from privet.dashboard.disclosures import add_disclosures, compare_with_permitted
from privet.dashboard.launcher import TrainingLauncher
from privet.dashboard.run_state import LossPoint, RunState
from privet.errors import ParameterError
from privet.storage.journal import JournalReader, list_journals

_JOBS_SECONDS = 2.0
"""Interval between scans for jobs."""
StreamEvent = tuple[str, dict[str, Any]]
"""Kind of a change, and the new state."""


@dataclass
class _FollowedRun:
    file: JournalReader
    view: RunState
    changed: int = 0
    is_finished: bool = False


@dataclass
class ClientCursor:
    """Changes that were sent to one client."""

    overview: int = -1
    runs: dict[str, int] = field(default_factory=dict)
    """Number of the last change sent, by run."""
    points: dict[str, int] = field(default_factory=dict)
    """Number of loss points sent, by run."""


class RunStore:
    """Runs and jobs of one participant, read from local files."""

    def __init__(self, party: Path, party_config: PartyConfig, job_files: list[Path]) -> None:
        self.party_config = party_config
        self.launcher = TrainingLauncher(party, party_config.folder)
        self._catalogue = JobCatalogue(party, party_config, job_files)
        self._runs: dict[str, _FollowedRun] = {}
        self._jobs: dict[str, KnownJob] = {}
        self._last_scan = 0.0
        self.n_changes = 0
        """Number of changes so far."""
        self._overview = 0
        """Number of the last change of the overview."""
        self.poll()

    def poll(self) -> bool:
        """Read new records; return whether anything has changed."""
        previous_count = self.n_changes
        statuses = self._list_statuses()
        for path in list_journals(self.party_config.folder):
            if path.stem not in self._runs:
                self._runs[path.stem] = _FollowedRun(JournalReader(path), RunState(path.stem))
        for each in self._runs.values():
            if not each.is_finished:
                self._update_run(each)
        jobs = self._scan_jobs()
        ended = self.launcher.reap()
        if jobs or ended or statuses != self._list_statuses():
            self.n_changes += self.n_changes == previous_count
            self._overview = self.n_changes
        return self.n_changes > previous_count

    def _list_statuses(self) -> list[str]:
        """Return the statuses of runs, whose changes update the overview; progress does not."""
        return [each.view.status for each in self._runs.values()]

    def _update_run(self, run: _FollowedRun) -> None:
        """Apply new records of a run.

        Check first whether the run is active, so that its final records are not missed.
        """
        is_running = run.file.is_running()
        lines, progress = run.file.read_new_records(), run.file.read_new_progress()
        for line in lines:
            run.view.apply_event(line)
        if progress is not None:
            run.view.update_progress(progress)
        if not is_running:
            run.view.mark_terminated()
            run.is_finished = True
        if lines or progress is not None or run.is_finished:
            self.n_changes += 1
            run.changed = self.n_changes

    def _scan_jobs(self) -> bool:
        if time.monotonic() - self._last_scan < _JOBS_SECONDS:
            return False
        files = {each.view.start_record.get("job_file") for each in self._runs.values()}
        found = self._catalogue.find_jobs(sorted(file for file in files if file))
        changed = found != self._jobs
        self._jobs, self._last_scan = found, time.monotonic()
        return changed

    def get_job(self, name: str) -> KnownJob:
        """Return a job by name; raise ParameterError if there is none."""
        if name not in self._jobs:
            raise ParameterError(
                f"job: there is no {name!r} among the files of {self.party_config.name}"
            )
        return self._jobs[name]

    def get_run(self, name: str) -> tuple[JournalReader, RunState]:
        """Return a run by name; raise ParameterError if there is none."""
        if name not in self._runs:
            raise ParameterError(f"run: there is no {name!r}")
        return self._runs[name].file, self._runs[name].view

    def find_running_training(self, job_name: str) -> RunState | None:
        """Return the active training run of a job, if there is one."""
        views = (each.view for each in self._runs.values())
        return next(
            (v for v in views if v.job == job_name and v.is_running and v.command == "train"),
            None,
        )

    def make_overview(self) -> dict[str, Any]:
        """Return jobs, federations and summaries of runs."""
        jobs = [known.to_dict(self.party_config.name) for known in self._jobs.values()]
        for job in jobs:
            job["complaint"] = self.launcher.launch_errors.get(job["name"])
        return {
            "party": self.party_config.name,
            "folder": self.party_config.folder,
            "data": self.party_config.data.display_name,
            "federations": group_by_federation(self._jobs.values()),
            "jobs": jobs,
            "runs": [each.view.to_summary() for each in reversed(self._runs.values())],
        }

    def make_run_details(self, name: str, first_point: int = 0) -> dict[str, Any]:
        """Return the details of a run, with its disclosures in words."""
        view = self.get_run(name)[1]
        details = view.to_dict(first_point)
        if view.n_resumed_tables and not first_point:
            details["earlier"] = self._find_earlier_points(view)
        if view.job in self._jobs:
            details["ledger"] = compare_with_permitted(self._jobs[view.job].job, view.disclosures)
        return details

    def _find_earlier_points(self, state: RunState) -> list[LossPoint]:
        """Return loss points of earlier runs for the tables that a resumed run has not trained."""
        points: dict[int, LossPoint] = {}
        for each in self._runs.values():
            if each.view is state:
                break
            if each.view.start_record.get("digest") == state.start_record.get("digest"):
                points.update({point[0]: point for point in each.view.loss_points})
        return [points[table] for table in sorted(points) if table <= state.n_resumed_tables]

    def make_disclosure_table(self, job_name: str) -> dict[str, Any]:
        """Return the added disclosures of all runs of a job."""
        ledgers = [
            each.view.disclosures for each in self._runs.values() if each.view.job == job_name
        ]
        return {
            "job": job_name,
            "runs": len(ledgers),
            "rows": compare_with_permitted(self.get_job(job_name).job, add_disclosures(ledgers)),
        }

    def iter_changes(self, cursor: ClientCursor) -> Iterator[StreamEvent]:
        """Yield changes that a client has not received; at first, only the latest runs."""
        is_first = cursor.overview < 0
        if cursor.overview < self._overview:
            cursor.overview = max(self._overview, 0)
            yield "overview", self.make_overview()
        jobs = set()
        for name, each in self._runs.items():
            if is_first and not self._is_latest(each.view):
                cursor.runs[name] = each.changed
            if cursor.runs.get(name, -1) < each.changed:
                cursor.runs[name] = each.changed
                first_point = cursor.points.get(name, 0)
                cursor.points[name] = len(each.view.loss_points)
                jobs.add(each.view.job)
                yield "run", self.make_run_details(name, first_point)
        for job in sorted(jobs & set(self._jobs)):
            yield "ledger", self.make_disclosure_table(job)

    def _is_latest(self, state: RunState) -> bool:
        """Return whether a run is active, or the last training run of its job."""
        trainings = [
            each.view.name
            for each in self._runs.values()
            if each.view.job == state.job and each.view.command == "train"
        ]
        return state.is_running or trainings[-1:] == [state.name]
