"""Readers of files that another person can have written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from privet.config.job import Job
from privet.errors import InputError
from privet.experiments.local_federation import LocalFederation
from privet.storage.checkpoint import CheckpointStore
from privet.storage.journal import AuditLog
from privet.storage.model_part import load_part
from tests.fuzz.readers import Reader


def readers(local: LocalFederation, folder: Path) -> dict[str, Reader]:
    """Return the readers, for a trained federation."""
    job = Job.read(local.job_path)
    checkpoints = local.get_part_path("bank").parent / "rehearsal.checkpoints"
    (ended,) = checkpoints.glob("*.ended")
    log = AuditLog(folder / "audit.log")
    log.append("began", job="a")
    log.append("ended", outcome={"code": 0})
    file = folder / "file"

    def from_file(read: Callable[[Path], object]) -> Callable[[bytes], object]:
        def write_and_read(content: bytes) -> object:
            file.write_bytes(content)
            return read(file)

        return write_and_read

    def stages(content: bytes) -> object:
        ended.write_bytes(content)
        return CheckpointStore(checkpoints, job.digest, "x").find_finished(job.stopping_rule)

    def verify(path: Path) -> object:
        return AuditLog(path).verify()

    def reader(path: Path, read: Callable[[bytes], object]) -> Reader:
        return Reader([path.read_bytes()], read, allowed=(InputError,))

    return {
        "parts": reader(local.get_part_path("bank"), from_file(load_part)),
        "stages": reader(ended, stages),
        "jobs": reader(local.job_path, from_file(Job.read)),
        "logs": reader(log.path, from_file(verify)),
    }
