"""Following the files of a participant, and telling every page what has changed.

Each page has a cursor: what it was told. So one that was asleep gets what it missed, and a slow one
holds nobody up.
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
"""How often we look for other jobs."""
StreamEvent = tuple[str, dict[str, Any]]
"""What happened, and how it is now."""


@dataclass
class _FollowedRun:
    file: JournalReader
    view: RunState
    changed: int = 0
    is_finished: bool = False


@dataclass
class ClientCursor:
    """What a page was told."""

    overview: int = -1
    runs: dict[str, int] = field(default_factory=dict)
    """As of which change."""
    points: dict[str, int] = field(default_factory=dict)
    """How many of its points."""


class RunStore:
    """What a participant's files say, as it changes."""

    def __init__(self, party: Path, party_config: PartyConfig, job_files: list[Path]) -> None:
        self.party_config = party_config
        self.launcher = TrainingLauncher(party, party_config.folder)
        self._catalogue = JobCatalogue(party, party_config, job_files)
        self._runs: dict[str, _FollowedRun] = {}
        self._jobs: dict[str, KnownJob] = {}
        self._last_scan = 0.0
        self.n_changes = 0
        """How often anything has changed."""
        self._overview = 0
        """Since which change the overview is as it is."""
        self.poll()

    def poll(self) -> bool:
        """Read what is new; tell whether anything is."""
        before = self.n_changes
        states = self._list_statuses()
        for path in list_journals(self.party_config.folder):
            if path.stem not in self._runs:
                self._runs[path.stem] = _FollowedRun(JournalReader(path), RunState(path.stem))
        for each in self._runs.values():
            if not each.is_finished:
                self._update_run(each)
        jobs = self._scan_jobs()
        ended = self.launcher.reap()
        if jobs or ended or states != self._list_statuses():
            self.n_changes += self.n_changes == before
            self._overview = self.n_changes
        return self.n_changes > before

    def _list_statuses(self) -> list[str]:
        """Return what an overview says of runs; how far they are, it does not say anew."""
        return [each.view.status for each in self._runs.values()]

    def _update_run(self, run: _FollowedRun) -> None:
        """Take in what a run says; whether it goes on is asked first, for its last words."""
        going_on = run.file.is_running()
        lines, standing = run.file.read_new_records(), run.file.read_new_progress()
        for line in lines:
            run.view.apply_event(line)
        if standing is not None:
            run.view.update_progress(standing)
        if not going_on:
            run.view.mark_terminated()
            run.is_finished = True
        if lines or standing is not None or run.is_finished:
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
        """Return the training of a job that goes on, if one does."""
        views = (each.view for each in self._runs.values())
        return next(
            (v for v in views if v.job == job_name and v.is_running and v.command == "train"),
            None,
        )

    def make_overview(self) -> dict[str, Any]:
        """Return all but the insides of runs."""
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
        """Return a run, with its ledger in words."""
        view = self.get_run(name)[1]
        found = view.to_dict(first_point)
        if view.n_resumed_tables and not first_point:
            found["earlier"] = self._find_earlier_points(view)
        if view.job in self._jobs:
            found["ledger"] = compare_with_permitted(self._jobs[view.job].job, view.disclosures)
        return found

    def _find_earlier_points(self, state: RunState) -> list[LossPoint]:
        """Return the points of the tables that earlier runs had trained, from where one goes on."""
        points: dict[int, LossPoint] = {}
        for each in self._runs.values():
            if each.view is state:
                break
            if each.view.start_record.get("digest") == state.start_record.get("digest"):
                points.update({point[0]: point for point in each.view.loss_points})
        return [points[table] for table in sorted(points) if table <= state.n_resumed_tables]

    def make_disclosure_table(self, job_name: str) -> dict[str, Any]:
        """Return what left the protocol in all runs of a job together."""
        told = [each.view.disclosures for each in self._runs.values() if each.view.job == job_name]
        return {
            "job": job_name,
            "runs": len(told),
            "rows": compare_with_permitted(self.get_job(job_name).job, add_disclosures(told)),
        }

    def iter_changes(self, cursor: ClientCursor) -> Iterator[StreamEvent]:
        """Yield what a page was not told yet: at first, of the last training of each job."""
        first = cursor.overview < 0
        if cursor.overview < self._overview:
            cursor.overview = max(self._overview, 0)
            yield "overview", self.make_overview()
        jobs = set()
        for name, each in self._runs.items():
            if first and not self._is_latest(each.view):
                cursor.runs[name] = each.changed
            if cursor.runs.get(name, -1) < each.changed:
                cursor.runs[name] = each.changed
                since = cursor.points.get(name, 0)
                cursor.points[name] = len(each.view.loss_points)
                jobs.add(each.view.job)
                yield "run", self.make_run_details(name, since)
        for job in sorted(jobs & set(self._jobs)):
            yield "ledger", self.make_disclosure_table(job)

    def _is_latest(self, state: RunState) -> bool:
        """Tell whether it is the last training of its job, or goes on."""
        same = [
            each.view.name
            for each in self._runs.values()
            if each.view.job == state.job and each.view.command == "train"
        ]
        return state.is_running or same[-1:] == [state.name]
