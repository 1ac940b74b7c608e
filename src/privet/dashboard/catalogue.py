"""The jobs that a participant has files of, and the federations that these make."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privet.config.job import Job
from privet.config.party import PartyFile
from privet.errors import PrivetError
from privet.storage.model_part import load_part


@dataclass(frozen=True)
class KnownJob:
    """A job, and what we have of it."""

    job: Job
    file: Path | None
    """Where it can be read; None if our part of its model is all that we have."""
    part: Path | None
    """Our part of its model, if it was trained."""

    def in_json(self, ours: str) -> dict[str, Any]:
        """Return it as the page takes it."""
        job, params = self.job, self.job.hyper_parameters()
        return {
            "name": job.name,
            "task": job.task,
            "protocol": job.protocol,
            "digest": job.digest[:16],
            "file": None if self.file is None else str(self.file),
            "trained": self.part is not None,
            "role": job.role(ours),
            "recipient": job.names[job.recipient_index],
            "explain": job.explain,
            "participants": [
                {"name": p.name, "role": p.role, "address": p.address} for p in job.participants
            ],
            "dealers": [
                {"name": name, "address": contact.address}
                for name, contact in job.dealing().items()
            ],
            "params": params.model_dump(exclude={"task"}, exclude_none=True),
        }


class Shelf:
    """Where jobs are looked for: named ones, those beside party.toml, of runs, and of models."""

    def __init__(self, party: Path, own: PartyFile, named: Sequence[Path] = ()) -> None:
        self._beside = party.resolve().parent
        self._own = own
        self._named = [path.resolve() for path in named]
        self._read: dict[Path, tuple[int, Job | None]] = {}

    def jobs(self, of_runs: Iterable[str] = ()) -> dict[str, KnownJob]:
        """Return the jobs that we take part in, by name; what is no job is passed over."""
        files = [*self._named, *sorted(self._beside.glob("*.toml"))]
        files += [Path(file) for file in of_runs]
        found: dict[str, KnownJob] = {}
        for file in dict.fromkeys(files):
            job = self._job(file, Job.read)
            if job is not None and job.name not in found:
                part = Path(self._own.folder) / f"{job.name}.part"
                found[job.name] = KnownJob(job, file, part if part.exists() else None)
        for part in sorted(Path(self._own.folder).glob("*.part")):
            if part.stem not in found:
                job = self._job(part, lambda path: load_part(path).job)
                if job is not None and job.name == part.stem:
                    found[job.name] = KnownJob(job, None, part)
        return found

    def _job(self, path: Path, read: Any) -> Job | None:
        """Read a job, unless it is the one that we have read there before."""
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            return None
        known = self._read.get(path)
        if known is None or known[0] != changed:
            job: Job | None = None
            with contextlib.suppress(PrivetError):
                job = read(path)
            if job is not None and self._own.name not in job.names:
                job = None
            self._read[path] = (changed, job)
        return self._read[path][1]


def federations(jobs: Iterable[KnownJob]) -> list[dict[str, Any]]:
    """Return who is together with whom, and in which jobs: the same people by the same keys."""
    groups: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for known in jobs:
        members = known.job.members()
        key = tuple(sorted((member.name, member.fingerprint or "") for member in members))
        group = groups.setdefault(
            key,
            {
                "participants": known.job.names,
                "dealers": list(known.job.dealer_names),
                "members": [{"name": m.name, "fingerprint": m.fingerprint} for m in members],
                "jobs": [],
            },
        )
        group["jobs"].append(known.job.name)
    return list(groups.values())
