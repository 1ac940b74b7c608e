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

from privet.config.party import PartyFile
from privet.dashboard.catalogue import KnownJob, Shelf, federations
from privet.dashboard.disclosures import added, ledger
from privet.dashboard.launcher import Control
from privet.dashboard.run_state import Point, RunView
from privet.errors import ParameterError
from privet.storage.journal import RunFile, run_files

_JOBS_SECONDS = 2.0
"""How often we look for other jobs."""
Message = tuple[str, dict[str, Any]]
"""What happened, and how it is now."""


@dataclass
class _Followed:
    file: RunFile
    view: RunView
    changed: int = 0
    over: bool = False


@dataclass
class Cursor:
    """What a page was told."""

    overview: int = -1
    runs: dict[str, int] = field(default_factory=dict)
    """As of which change."""
    points: dict[str, int] = field(default_factory=dict)
    """How many of its points."""


class Watch:
    """What a participant's files say, as it changes."""

    def __init__(self, party: Path, own: PartyFile, named: list[Path]) -> None:
        self.own = own
        self.control = Control(party, own.folder)
        self._shelf = Shelf(party, own, named)
        self._runs: dict[str, _Followed] = {}
        self._jobs: dict[str, KnownJob] = {}
        self._looked = 0.0
        self.changes = 0
        """How often anything has changed."""
        self._overview = 0
        """Since which change the overview is as it is."""
        self.look()

    def look(self) -> bool:
        """Read what is new; tell whether anything is."""
        before = self.changes
        states = self._states()
        for path in run_files(self.own.folder):
            if path.stem not in self._runs:
                self._runs[path.stem] = _Followed(RunFile(path), RunView(path.stem))
        for each in self._runs.values():
            if not each.over:
                self._follow(each)
        jobs = self._look_for_jobs()
        ended = self.control.look()
        if jobs or ended or states != self._states():
            self.changes += self.changes == before
            self._overview = self.changes
        return self.changes > before

    def _states(self) -> list[str]:
        """Return what an overview says of runs; how far they are, it does not say anew."""
        return [each.view.state for each in self._runs.values()]

    def _follow(self, each: _Followed) -> None:
        """Take in what a run says; whether it goes on is asked first, for its last words."""
        going_on = each.file.goes_on()
        lines, standing = each.file.new_lines(), each.file.new_standing()
        for line in lines:
            each.view.take(line)
        if standing is not None:
            each.view.stand(standing)
        if not going_on:
            each.view.bury()
            each.over = True
        if lines or standing is not None or each.over:
            self.changes += 1
            each.changed = self.changes

    def _look_for_jobs(self) -> bool:
        if time.monotonic() - self._looked < _JOBS_SECONDS:
            return False
        files = {each.view.began.get("job_file") for each in self._runs.values()}
        found = self._shelf.jobs(sorted(file for file in files if file))
        changed = found != self._jobs
        self._jobs, self._looked = found, time.monotonic()
        return changed

    def job(self, name: str) -> KnownJob:
        """Return a job by name; raise ParameterError if there is none."""
        if name not in self._jobs:
            raise ParameterError(f"job: there is no {name!r} among the files of {self.own.name}")
        return self._jobs[name]

    def run(self, name: str) -> tuple[RunFile, RunView]:
        """Return a run by name; raise ParameterError if there is none."""
        if name not in self._runs:
            raise ParameterError(f"run: there is no {name!r}")
        return self._runs[name].file, self._runs[name].view

    def running(self, job: str) -> RunView | None:
        """Return the training of a job that goes on, if one does."""
        views = (each.view for each in self._runs.values())
        return next(
            (v for v in views if v.job == job and v.goes_on and v.command == "train"),
            None,
        )

    def overview(self) -> dict[str, Any]:
        """Return all but the insides of runs."""
        jobs = [known.in_json(self.own.name) for known in self._jobs.values()]
        for job in jobs:
            job["complaint"] = self.control.complaints.get(job["name"])
        return {
            "party": self.own.name,
            "folder": self.own.folder,
            "data": self.own.data.where,
            "federations": federations(self._jobs.values()),
            "jobs": jobs,
            "runs": [each.view.brief() for each in reversed(self._runs.values())],
        }

    def whole(self, name: str, since: int = 0) -> dict[str, Any]:
        """Return a run, with its ledger in words."""
        view = self.run(name)[1]
        found = view.whole(since)
        if view.resumed and not since:
            found["earlier"] = self._earlier(view)
        if view.job in self._jobs:
            found["ledger"] = ledger(self._jobs[view.job].job, view.reveals)
        return found

    def _earlier(self, view: RunView) -> list[Point]:
        """Return the points of the tables that earlier runs had trained, from where one goes on."""
        points: dict[int, Point] = {}
        for each in self._runs.values():
            if each.view is view:
                break
            if each.view.began.get("digest") == view.began.get("digest"):
                points.update({point[0]: point for point in each.view.points})
        return [points[table] for table in sorted(points) if table <= view.resumed]

    def ledger(self, job: str) -> dict[str, Any]:
        """Return what left the protocol in all runs of a job together."""
        told = [each.view.reveals for each in self._runs.values() if each.view.job == job]
        return {"job": job, "runs": len(told), "rows": ledger(self.job(job).job, added(told))}

    def news(self, cursor: Cursor) -> Iterator[Message]:
        """Yield what a page was not told yet: at first, of the last training of each job."""
        first = cursor.overview < 0
        if cursor.overview < self._overview:
            cursor.overview = max(self._overview, 0)
            yield "overview", self.overview()
        jobs = set()
        for name, each in self._runs.items():
            if first and not self._is_last(each.view):
                cursor.runs[name] = each.changed
            if cursor.runs.get(name, -1) < each.changed:
                cursor.runs[name] = each.changed
                since = cursor.points.get(name, 0)
                cursor.points[name] = len(each.view.points)
                jobs.add(each.view.job)
                yield "run", self.whole(name, since)
        for job in sorted(jobs & set(self._jobs)):
            yield "ledger", self.ledger(job)

    def _is_last(self, view: RunView) -> bool:
        """Tell whether it is the last training of its job, or goes on."""
        same = [
            each.view.name
            for each in self._runs.values()
            if each.view.job == view.job and each.view.command == "train"
        ]
        return view.goes_on or same[-1:] == [view.name]
