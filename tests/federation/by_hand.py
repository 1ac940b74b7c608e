"""A member of a federation that is played by hand: its keys are good, and it does what we like."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from privet.config.job import Job
from privet.config.members import parse_address
from privet.experiments.local_federation import LocalFederation
from privet.transport.connection import PeerConnection
from privet.transport.rendezvous import connect_members, listen
from privet.transport.tls import load_identity


def come(local: LocalFederation, name: str, timeout: float = 60.0) -> dict[str, PeerConnection]:
    """Meet all others of the job, as its member of that name."""
    job = Job.read(local.job_path)
    folder = local.folder / name
    identity = load_identity(folder / f"{name}.key", folder / f"{name}.crt")
    with listen(*parse_address(job.get_entry(name).address)) as door:
        return connect_members(name, job.make_members(), door, identity=identity, timeout=timeout)


def coming(local: LocalFederation, name: str) -> Callable[[], dict[str, PeerConnection]]:
    """Meet all others in a thread; what is returned waits until it has."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(come(local, name)), daemon=True)
    thread.start()

    def links() -> dict[str, PeerConnection]:
        thread.join(60)
        assert found, f"{name} does not meet the others"
        return dict(found[0])

    return links
