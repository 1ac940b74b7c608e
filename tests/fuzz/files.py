"""Readers of files that others may have written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from privet.config.job import Job
from privet.errors import InputError
from privet.experiments.local_federation import LocalFederation
from privet.storage.checkpoint import Checkpoints
from privet.storage.journal import AuditLog
from privet.storage.model_part import load_part
from tests.fuzz.readers import Reader


def readers(local: LocalFederation, folder: Path) -> dict[str, Reader]:
    """Return them, for a federation that has trained."""
    job = Job.read(local.job)
    checkpoints = local.part("bank").parent / "rehearsal.checkpoints"
    (ended,) = checkpoints.glob("*.ended")
    log = AuditLog(folder / "audit.log")
    log.add("began", job="a")
    log.add("ended", outcome={"code": 0})
    file = folder / "file"

    def from_file(read: Callable[[Path], object]) -> Callable[[bytes], object]:
        def written(content: bytes) -> object:
            file.write_bytes(content)
            return read(file)

        return written

    def stages(content: bytes) -> object:
        ended.write_bytes(content)
        return Checkpoints(checkpoints, job.digest, "x").ended(job.length)

    def verify(path: Path) -> object:
        return AuditLog(path).verify()

    def reader(path: Path, read: Callable[[bytes], object]) -> Reader:
        return Reader([path.read_bytes()], read, allowed=(InputError,))

    return {
        "parts": reader(local.part("bank"), from_file(load_part)),
        "stages": reader(ended, stages),
        "jobs": reader(local.job, from_file(Job.read)),
        "logs": reader(log.path, from_file(verify)),
    }
