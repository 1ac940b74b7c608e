"""What could keep our workers from doing their part, where rows are in shards."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from privet.errors import UnavailableError
from privet.federation.engines import IN_THREADS, in_processes, look_for_workers
from privet.federation.findings import Finding, attempt
from privet.files.cluster import Cluster
from privet.files.contacts import parse_address
from privet.files.job import Job
from privet.transport.mesh import listen


def check_up_cluster(
    job: Job, name: str, listen_on: str | None, cluster: Cluster
) -> Iterator[Finding]:
    """Look at what our workers need, if the job has rows in shards."""
    host, _ = parse_address(listen_on or job.contact(name).address)
    if job.shards > 1:
        yield attempt("workers", lambda: _look(cluster, job.shards, host))
    elif cluster != Cluster():
        text = "[cluster] is for jobs with rows in shards, and this one has none"
        yield Finding("workers", "doubtful", text)


def _look(cluster: Cluster, shards: int, host: str) -> str:
    """Return where workers will be; raise UnavailableError if they could not, or not be reached.

    They listen on a host of ours, unless a scheduler places them elsewhere.
    """
    if cluster.advertise is not None:
        _resolve("advertise", cluster.advertise)
    if cluster.door is not None:
        try:
            listen(*parse_address(cluster.door, lowest=0)).close()
        except UnavailableError as error:
            raise UnavailableError(f"cluster.door: {error}: give another, or port 0") from None
    if cluster.scheduler is not None:
        count = look_for_workers(cluster)
        return f"{shards} shards, in {count} Dask workers of {cluster.scheduler}"
    if cluster.ports is not None:
        _count_ports(host, cluster.ports[0], cluster.ports[1], shards)
    if cluster.local is None:
        return f"{shards} shards, in {IN_THREADS}"
    return f"{shards} shards, in {in_processes(min(cluster.local, shards))}"


def _resolve(key: str, host: str) -> None:
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UnavailableError(
            f"cluster.{key}: {host} is not known here: {error.strerror}: give a name or an address "
            "under which the others reach your workers"
        ) from None


def _count_ports(host: str, first: int, last: int, shards: int) -> None:
    """See that every worker finds a port."""
    free = 0
    for port in range(first, last + 1):
        with contextlib.suppress(UnavailableError):
            listen(host, port).close()
            free += 1
    if free < shards:
        raise UnavailableError(
            f"cluster.ports: {free} of {host} from {first} to {last} are free, and {shards} "
            "workers need one each: allow more"
        )
