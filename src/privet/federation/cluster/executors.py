"""Engines: where the workers of somebody are, as threads, processes, or tasks of Dask.

An engine places tasks, each with the summonses of one or more workers, and that is all: whatever
workers and heads have to say to each other goes over their own channels. A task that has begun must
never be run again by an engine, since it took part in a dealing; if one is, its head is not there
for it any more.

An engine is there before its workers are called: starting Python and importing what workers need
takes seconds, in which a head reads its table and meets the others.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from typing_extensions import Self

from privet.config.party import TLS_FILE_KEYS, ClusterConfig
from privet.errors import UnavailableError
from privet.federation.cluster.worker import LoadRows, WorkerLaunch, run_workers
from privet.runtime.local.launcher import create_process_context

_SHUTDOWN_SECONDS = 5.0  # seconds for workers whose head has gone to find that out
_SCHEDULER_TIMEOUT_SECONDS = 10.0  # seconds for a scheduler to answer


THREADS_DESCRIPTION = "threads of this process"


def describe_processes(count: int) -> str:
    """Say where workers are that have so many processes here."""
    return f"{count} process{'es' * (count > 1)} on this machine"


class Executor(ABC):
    """Something that runs workers."""

    is_remote = True
    """Whether they are in other processes than this one, with memory of their own."""

    @property
    @abstractmethod
    def description(self) -> str:
        """Where they are, in words, once they are placed."""

    @abstractmethod
    def submit(self, launches: Sequence[WorkerLaunch], load_local: LoadRows) -> None:
        """Start workers without waiting; those in this process get their rows from `load_local`."""

    def describe_failure(self) -> str:
        """Return what has happened to the engine itself, if that may be why workers are lost."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """End whatever is left of them, when their head has gone."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ThreadExecutor(Executor):
    """Threads of this process, which have their rows from it."""

    is_remote = False

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    @property
    def description(self) -> str:
        """Here."""
        return THREADS_DESCRIPTION

    def submit(self, launches: Sequence[WorkerLaunch], load_local: LoadRows) -> None:
        """Start a thread for every worker."""
        for each in launches:
            thread = threading.Thread(target=run_workers, args=([each], load_local), daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Wait for them a moment."""
        until = time.monotonic() + _SHUTDOWN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


class ProcessExecutor(Executor):
    """Processes on this machine, each for as many workers as are its share."""

    def __init__(self, count: int, load_rows: LoadRows) -> None:
        self._count = count
        self._load_rows = load_rows
        self._processes: list[multiprocessing.process.BaseProcess] = []
        self._batches = 0
        self._context = create_process_context(load_rows.__module__)

    @property
    def description(self) -> str:
        """On this machine."""
        return describe_processes(self._batches)

    def submit(self, launches: Sequence[WorkerLaunch], _: LoadRows) -> None:
        """Start processes that have nothing of ours but summonses."""
        batches = split_launches(launches, self._count)
        self._batches = len(batches)  # no more than there are workers, whatever was asked for
        for batch in batches:
            process = self._context.Process(
                target=_run_in_process, args=(batch, self._load_rows), daemon=True
            )
            process.start()
            self._processes.append(process)

    def close(self) -> None:
        """Wait for them a moment, and end them."""
        until = time.monotonic() + _SHUTDOWN_SECONDS
        for process in self._processes:
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def _run_in_process(launches: Sequence[WorkerLaunch], load_rows: LoadRows) -> None:
    """Work in a process of our own, which ends with its head: Ctrl-C is the head's to hear."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_workers(launches, load_rows)


class DaskExecutor(Executor):
    """Workers of a Dask cluster, each with a task for as many of ours as are its share."""

    def __init__(self, cluster: ClusterConfig, load_rows: LoadRows) -> None:
        self._cluster = cluster
        self._load_rows = load_rows
        self._tasks: list[Any] = []
        self._connect_pool = ThreadPoolExecutor(1)
        self._client = self._connect_pool.submit(self._connect)

    def _connect(self) -> Any:
        """Return a client of the scheduler, whose workers begin to import what ours need."""
        client = _connect_scheduler(self._cluster)
        for worker in _list_dask_workers(client):
            self._tasks.append(_submit(client, worker, _preload, self._load_rows))
        return client

    @property
    def description(self) -> str:
        """At the scheduler's."""
        return f"Dask workers of {self._cluster.scheduler}"

    def submit(self, launches: Sequence[WorkerLaunch], _: LoadRows) -> None:
        """Submit as many tasks as there are Dask workers, one to each, to be run once."""
        client = self._client.result()
        workers = [] if self.describe_failure() else _list_dask_workers(client)
        if not workers:
            problem = (
                self.describe_failure() or f"{self._cluster.scheduler} has no workers: start some"
            )
            raise UnavailableError(f"cluster.scheduler: {problem}")
        for batch, worker in zip(split_launches(launches, len(workers)), workers, strict=False):
            self._tasks.append(_submit(client, worker, run_workers, batch, self._load_rows))

    def describe_failure(self) -> str:
        """Tell whether the scheduler has gone: its workers follow it, half a minute later."""
        if self._client.result().status == "running":
            return ""
        return f"the scheduler at {self._cluster.scheduler} has gone"

    def close(self) -> None:
        """Cancel tasks, and leave the scheduler."""
        self._connect_pool.shutdown()
        with contextlib.suppress(Exception):  # it may have gone, which is no news any more
            client = self._client.result()
            client.cancel(self._tasks)
            client.close(timeout=_SHUTDOWN_SECONDS)


def _connect_scheduler(cluster: ClusterConfig) -> Any:
    """Return a client of a scheduler."""
    try:
        from distributed import Client
    except ImportError:
        raise UnavailableError(
            "cluster.scheduler: needs Dask: install it with pip install 'privet[cluster]'"
        ) from None
    security = _make_security(cluster)
    try:
        return Client(
            cluster.scheduler,
            security=security,
            timeout=_SCHEDULER_TIMEOUT_SECONDS,
            set_as_default=False,
            name="privet",
        )
    except (OSError, ValueError, TypeError) as error:
        raise UnavailableError(
            f"cluster.scheduler: no Dask scheduler at {cluster.scheduler}: {error}"
        ) from None


def _list_dask_workers(client: Any) -> list[str]:
    """Return the addresses of all workers of a cluster."""
    return sorted(client.scheduler_info(n_workers=-1)["workers"])


def _submit(client: Any, worker: str, *task: Any) -> Any:
    """Have a worker run a task: that one, once."""
    return client.submit(*task, workers=[worker], allow_other_workers=False, pure=False, retries=0)


def _preload(_: LoadRows) -> None:
    """Do nothing: to have been called with a function means to have imported it."""


def _make_security(cluster: ClusterConfig) -> Any:
    """Return how the scheduler is to prove who it is, and we to it."""
    from distributed.security import Security

    if cluster.ca is None:
        return None
    for key in TLS_FILE_KEYS:
        path = Path(getattr(cluster, key))
        try:
            path.open("rb").close()
        except OSError as error:
            raise UnavailableError(f"cluster.{key}: {path}: {error.strerror}") from None
    security = Security(
        tls_ca_file=cluster.ca,
        tls_client_cert=cluster.certificate,
        tls_client_key=cluster.key,
        require_encryption=True,
    )
    try:
        security.get_connection_args("client")
    except (OSError, ValueError) as error:
        names = ", ".join(str(getattr(cluster, key)) for key in TLS_FILE_KEYS)
        raise UnavailableError(
            f"cluster.ca, certificate and key: {names} cannot be used together: {error}"
        ) from None
    return security


def count_dask_workers(cluster: ClusterConfig) -> int:
    """Return how many workers a scheduler has; raise UnavailableError if there are none."""
    with _connect_scheduler(cluster) as client:
        count = len(_list_dask_workers(client))
    if not count:
        raise UnavailableError(f"cluster.scheduler: {cluster.scheduler} has no workers: start some")
    return count


def split_launches(launches: Sequence[WorkerLaunch], n_batches: int) -> list[list[WorkerLaunch]]:
    """Return batches, at most so many, whose sizes differ by one at most."""
    return [batch for k in range(n_batches) if (batch := list(launches[k::n_batches]))]


def make_executor(cluster: ClusterConfig, load_remote: LoadRows) -> Executor:
    """Return the engine that somebody has chosen; it begins at once.

    Workers that are not in this process read their rows where they are, `load_remote`.
    """
    if cluster.scheduler is not None:
        return DaskExecutor(cluster, load_remote)
    if cluster.local is not None:
        return ProcessExecutor(cluster.local, load_remote)
    return ThreadExecutor()
