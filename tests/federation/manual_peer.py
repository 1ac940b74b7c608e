"""A member of a federation that a test controls: its keys are valid, its messages arbitrary."""

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


def connect_as(
    local: LocalFederation, name: str, timeout: float = 60.0
) -> dict[str, PeerConnection]:
    """Connect to all other members of the job, as the member of that name."""
    job = Job.read(local.job_path)
    folder = local.folder / name
    identity = load_identity(folder / f"{name}.key", folder / f"{name}.crt")
    with listen(*parse_address(job.get_entry(name).address)) as listener:
        return connect_members(
            name, job.make_members(), listener, identity=identity, timeout=timeout
        )


def connect_in_background(
    local: LocalFederation, name: str
) -> Callable[[], dict[str, PeerConnection]]:
    """Connect in a thread; return a function that waits for the connections."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(connect_as(local, name)), daemon=True)
    thread.start()

    def connections() -> dict[str, PeerConnection]:
        thread.join(60)
        assert results, f"{name} does not connect to the others"
        return dict(results[0])

    return connections
