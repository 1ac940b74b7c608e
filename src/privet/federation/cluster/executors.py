"""Executors: where the workers of a member run, as threads, processes, or Dask tasks.

An executor only places tasks, each with the launch specs of one or more workers. Workers and their
coordinator communicate over their own channels. An executor must never run a task twice: the first
run has used correlated randomness. If a task is repeated, its coordinator no longer accepts it.

An executor starts before its workers: to start Python and import the worker's modules takes
seconds, in which the coordinator reads its table and connects to its peers.
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

_SHUTDOWN_SECONDS = 5.0  # seconds for workers to detect that their coordinator has disconnected
_SCHEDULER_TIMEOUT_SECONDS = 10.0  # seconds for a scheduler to answer


THREADS_DESCRIPTION = "threads of this process"


def describe_processes(count: int) -> str:
    """Describe where workers run, in this many local processes."""
    return f"{count} process{'es' * (count > 1)} on this machine"


class Executor(ABC):
    """Runs workers."""

    is_remote = True
    """Whether the workers run in other processes, with their own memory."""

    @property
    @abstractmethod
    def description(self) -> str:
        """Where the workers run, in words, once they are placed."""

    @abstractmethod
    def submit(self, launches: Sequence[WorkerLaunch], load_local: LoadRows) -> None:
        """Start workers without waiting; those in this process get their rows from `load_local`."""

    def describe_failure(self) -> str:
        """Return the failure of the executor itself that can explain lost workers, or nothing."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """Stop the remaining workers, after their coordinator has disconnected."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ThreadExecutor(Executor):
    """Runs workers in threads of this process, which share its rows."""

    is_remote = False

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    @property
    def description(self) -> str:
        """Here."""
        return THREADS_DESCRIPTION

    def submit(self, launches: Sequence[WorkerLaunch], load_local: LoadRows) -> None:
        """Start a thread for every worker."""
        for launch in launches:
            thread = threading.Thread(target=run_workers, args=([launch], load_local), daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Wait a few seconds for the threads to end."""
        deadline = time.monotonic() + _SHUTDOWN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


class ProcessExecutor(Executor):
    """Runs workers in processes on this machine, evenly distributed."""

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
        """Start processes, which receive nothing but launch specs."""
        batches = split_launches(launches, self._count)
        self._batches = len(batches)  # at most one process for each worker
        for batch in batches:
            process = self._context.Process(
                target=_run_in_process, args=(batch, self._load_rows), daemon=True
            )
            process.start()
            self._processes.append(process)

    def close(self) -> None:
        """Wait a few seconds for the processes to end, then kill them."""
        deadline = time.monotonic() + _SHUTDOWN_SECONDS
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def _run_in_process(launches: Sequence[WorkerLaunch], load_rows: LoadRows) -> None:
    """Run workers in a process that ends with its coordinator, which handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_workers(launches, load_rows)


class DaskExecutor(Executor):
    """Runs workers in tasks of a Dask cluster, evenly distributed over the Dask workers."""

    def __init__(self, cluster: ClusterConfig, load_rows: LoadRows) -> None:
        self._cluster = cluster
        self._load_rows = load_rows
        self._tasks: list[Any] = []
        self._connect_pool = ThreadPoolExecutor(1)
        self._client = self._connect_pool.submit(self._connect)

    def _connect(self) -> Any:
        """Return a client of the scheduler, and start the imports in its Dask workers."""
        client = _connect_scheduler(self._cluster)
        for worker in _list_dask_workers(client):
            self._tasks.append(_submit(client, worker, _preload, self._load_rows))
        return client

    @property
    def description(self) -> str:
        """At the scheduler's."""
        return f"Dask workers of {self._cluster.scheduler}"

    def submit(self, launches: Sequence[WorkerLaunch], _: LoadRows) -> None:
        """Submit one task to each Dask worker, to run exactly once."""
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
        """Report a lost scheduler: its Dask workers end half a minute after it."""
        if self._client.result().status == "running":
            return ""
        return f"the scheduler at {self._cluster.scheduler} has gone"

    def close(self) -> None:
        """Cancel the tasks and disconnect from the scheduler."""
        self._connect_pool.shutdown()
        with contextlib.suppress(Exception):  # a lost scheduler was reported before
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
    """Submit a task that runs once, on the given Dask worker only."""
    return client.submit(*task, workers=[worker], allow_other_workers=False, pure=False, retries=0)


def _preload(_: LoadRows) -> None:
    """Do nothing: Dask imports the function's module to unpickle the argument."""


def _make_security(cluster: ClusterConfig) -> Any:
    """Return the TLS settings for both directions of the connection to the scheduler."""
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
        paths = ", ".join(str(getattr(cluster, key)) for key in TLS_FILE_KEYS)
        raise UnavailableError(
            f"cluster.ca, certificate and key: {paths} cannot be used together: {error}"
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
    """Split launch specs into at most `n_batches` batches, whose sizes differ by at most one."""
    return [batch for k in range(n_batches) if (batch := list(launches[k::n_batches]))]


def make_executor(cluster: ClusterConfig, load_remote: LoadRows) -> Executor:
    """Start and return the executor that `cluster` configures.

    Workers in other processes load their rows with `load_remote`.
    """
    if cluster.scheduler is not None:
        return DaskExecutor(cluster, load_remote)
    if cluster.local is not None:
        return ProcessExecutor(cluster.local, load_remote)
    return ThreadExecutor()
