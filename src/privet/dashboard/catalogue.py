"""The jobs in a participant's local files, and the federations that they form."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privet.config.job import Job
from privet.config.party import PartyConfig
from privet.errors import PrivetError
from privet.storage.model_part import load_part


@dataclass(frozen=True)
class KnownJob:
    """A job, and the local files that belong to it."""

    job: Job
    job_file: Path | None
    """Path of the job file; None if only the local part of the model exists."""
    part_path: Path | None
    """Path of the local part of the model, if it exists."""

    def to_dict(self, local_name: str) -> dict[str, Any]:
        """Return the job as JSON for the dashboard."""
        job, params = self.job, self.job.make_params()
        return {
            "name": job.name,
            "task": job.task,
            "protocol": job.protocol,
            "digest": job.digest[:16],
            "file": None if self.job_file is None else str(self.job_file),
            "trained": self.part_path is not None,
            "role": job.get_role(local_name),
            "recipient": job.party_names[job.recipient_index],
            "explain": job.explain,
            "participants": [
                {"name": p.name, "role": p.role, "address": p.address} for p in job.participants
            ],
            "dealers": [
                {"name": name, "address": entry.address}
                for name, entry in job.get_dealer_entries().items()
            ],
            "params": params.model_dump(exclude={"task"}, exclude_none=True),
        }


class JobCatalogue:
    """Finder of jobs: named files, files next to party.toml, and those of runs and models."""

    def __init__(
        self, party: Path, party_config: PartyConfig, job_files: Sequence[Path] = ()
    ) -> None:
        self._party_folder = party.resolve().parent
        self._party_config = party_config
        self._named = [path.resolve() for path in job_files]
        self._cache: dict[Path, tuple[int, Job | None]] = {}

    def find_jobs(self, journal_job_files: Iterable[str] = ()) -> dict[str, KnownJob]:
        """Return the jobs of this participant by name; skip files that are not jobs."""
        files = [*self._named, *sorted(self._party_folder.glob("*.toml"))]
        files += [Path(file) for file in journal_job_files]
        found: dict[str, KnownJob] = {}
        for file in dict.fromkeys(files):
            job = self._load_job(file, Job.read)
            if job is not None and job.name not in found:
                part = Path(self._party_config.folder) / f"{job.name}.part"
                found[job.name] = KnownJob(job, file, part if part.exists() else None)
        for part in sorted(Path(self._party_config.folder).glob("*.part")):
            if part.stem not in found:
                job = self._load_job(part, lambda path: load_part(path).job)
                if job is not None and job.name == part.stem:
                    found[job.name] = KnownJob(job, None, part)
        return found

    def _load_job(self, path: Path, read: Any) -> Job | None:
        """Read a job, or return it from the cache if the file has not changed."""
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            return None
        known = self._cache.get(path)
        if known is None or known[0] != changed:
            job: Job | None = None
            with contextlib.suppress(PrivetError):
                job = read(path)
            if job is not None and self._party_config.name not in job.party_names:
                job = None
            self._cache[path] = (changed, job)
        return self._cache[path][1]


def group_by_federation(jobs: Iterable[KnownJob]) -> list[dict[str, Any]]:
    """Group jobs whose members have the same names and fingerprints."""
    groups: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for known in jobs:
        members = known.job.make_members()
        key = tuple(sorted((member.name, member.fingerprint or "") for member in members))
        group = groups.setdefault(
            key,
            {
                "participants": known.job.party_names,
                "dealers": list(known.job.dealer_names),
                "members": [{"name": m.name, "fingerprint": m.fingerprint} for m in members],
                "jobs": [],
            },
        )
        group["jobs"].append(known.job.name)
    return list(groups.values())
