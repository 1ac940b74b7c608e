"""Simulations: run a program with all its members on one machine, in threads or processes.

    simulate(program, 3)                         threads of this process: fast, no isolation
    simulate(program, 3, network="loopback")     one process for each member, over TLS
    simulate(program, 3, network="paper")        the same, through an emulated link

A simulation does not protect any data from the owner of the machine: it is for tests and
experiments.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from typing import Any, NamedTuple

from privet.errors import ParameterError, PeerError, PrivetError
from privet.runtime.accounting import DisclosureLedger, Meter
from privet.runtime.correlations.files import PreprocessingReceiver, open_preprocessing
from privet.runtime.correlations.replicated import DealerPeers
from privet.runtime.local.network import Network, provide_addresses
from privet.runtime.run import (
    DealerResult,
    Program,
    ProgressCallback,
    check_dealer_count,
    make_dealer_names,
    preprocess_metered,
    run_dealer,
    run_party,
)
from privet.transport.memory import create_memory_channels
from privet.transport.rendezvous import Member, connect_members, listen
from privet.transport.sockets import SocketChannel
from privet.transport.tls import Identity, create_identity


def create_process_context(module: str) -> SpawnContext | ForkServerContext:
    """Return a context whose processes are forked from a server that has imported a module.

    Without a private fork server, each process imports the module itself.
    """
    if is_fork_server_private(sys.version_info[:3]):
        # The server has a socket in the folder for temporary files. The path can be too long, and
        # the folder can be missing.
        with contextlib.suppress(OSError):
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([module])
            forkserver.ensure_running()
            return context
    return multiprocessing.get_context("spawn")


def is_fork_server_private(version: tuple[int, ...]) -> bool:
    """Return whether the fork server of a Python version is private to its user.

    Before 3.10.9 and 3.11.1 its socket has no file on Linux, and therefore no permissions: any user
    of the machine could make it run code as its owner (CVE-2022-42919).
    """
    return (3, 10, 9) <= version < (3, 11) or version >= (3, 11, 1)


# For processes that share a machine: one thread for matrix products, so that processes do not
# compete for cores; and freed memory is kept, because new pages for large arrays cost more than
# computing on them.
PROCESS_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}
# The most likely reason if a process does not start.
_MAIN_GUARD_HINT = (
    "a script starts processes under if __name__ == '__main__', or takes network='memory'"
)


class PreprocessingPaths(NamedTuple):
    """A participant's preprocessing files, and the dealers that signed them."""

    paths: tuple[Path, ...]
    """One file from each dealer."""
    dealers: dict[str, str]
    """Their names and fingerprints."""

    def open_and_consume(self) -> PreprocessingReceiver:
        """Open and consume the file, or files."""
        source = open_preprocessing(self.paths, self.dealers)
        source.consume(self.paths[0].parent / "used")
        return source


@dataclass(frozen=True)
class _Progress:
    """A process's progress message."""

    n_done: int


@dataclass(frozen=True)
class _ProcessSpec:
    """The launch spec of one process."""

    name: str
    listener: socket.socket
    members: list[Member]
    identity: Identity
    peer_timeout: float
    preprocessing: PreprocessingPaths | None
    dealer_names: tuple[str, ...]

    def connect(self) -> SocketChannel:
        sockets = connect_members(self.name, self.members, self.listener, identity=self.identity)
        return SocketChannel(self.name, sockets, self.peer_timeout)


def run_in_processes(
    program: Program,
    names: list[str],
    data: list[Any],
    preprocessing: list[PreprocessingPaths] | None,
    network: Network,
    peer_timeout: float,
    on_progress: ProgressCallback | None,
    dealers: tuple[str, ...],
) -> dict[str, Any]:
    """Run a program with one process for each participant and dealer; return their results."""
    all_names = [*names, *dealers] if preprocessing is None else names
    context = create_process_context(_module(program))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="privet-"))
        listeners = {name: stack.enter_context(listen()) for name in all_names}
        identities = {name: create_identity(name, folder) for name in all_names}
        members = stack.enter_context(provide_addresses(names, listeners, identities, network))
        pipes: dict[Connection, str] = {}
        stack.enter_context(_tuned_environment())
        for index, name in enumerate(all_names):
            receiver, sender = context.Pipe(duplex=False)
            file = None if preprocessing is None else preprocessing[index]
            endpoint = listeners[name], members[name], identities[name]
            spec = _ProcessSpec(name, *endpoint, peer_timeout, file, dealers)
            values = data[index] if name not in dealers else None
            process = context.Process(
                target=_run_process,
                args=(sender, spec, program, names, values),
                name=name,
                daemon=True,
            )
            process.start()
            sender.close()
            pipes[receiver] = name
            stack.callback(process.join)
            stack.callback(process.terminate)
        return _collect_results(pipes, on_progress)


def _module(program: Program) -> str:
    """Return the module that a program comes from."""
    function = program.func if isinstance(program, partial) else program
    return str(getattr(function, "__module__", __name__))


@contextlib.contextmanager
def _tuned_environment() -> Iterator[None]:
    """Set PROCESS_ENVIRONMENT for new processes, except variables that the user has set."""
    variables = {
        name: value for name, value in PROCESS_ENVIRONMENT.items() if name not in os.environ
    }
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def _run_process(
    pipe: Connection, spec: _ProcessSpec, program: Program, names: list[str], data: Any
) -> None:
    """Run one process of a simulation, and send its result."""
    try:
        if spec.name in spec.dealer_names:
            pipe.send(run_dealer(program, names, spec.connect(), spec.dealer_names))
        else:
            index = names.index(spec.name)
            on_progress = (lambda done: pipe.send(_Progress(done))) if index == 0 else None
            file = None if spec.preprocessing is None else spec.preprocessing.open_and_consume()
            channel = spec.connect()
            pipe.send(
                run_party(
                    program, index, names, data, channel, file, on_progress, spec.dealer_names
                )
            )
    except Exception as error:
        known = isinstance(error, PrivetError)
        message = error if known else RuntimeError(f"{spec.name}: {type(error).__name__}: {error}")
        with contextlib.suppress(OSError):  # the parent process may have ended
            pipe.send(message)
        if not known:
            raise


def _collect_results(
    pipes: dict[Connection, str], on_progress: ProgressCallback | None
) -> dict[str, Any]:
    results: dict[str, Any] = {}
    failures: list[BaseException] = []
    while pipes:
        for pipe in wait(list(pipes)):
            assert isinstance(pipe, Connection)
            name = pipes[pipe]
            try:
                message = pipe.recv()
            except EOFError:
                message = RuntimeError(f"{name} ended without a result; {_MAIN_GUARD_HINT}")
            if isinstance(message, _Progress):
                if on_progress is not None:
                    on_progress(message.n_done)
                continue
            del pipes[pipe]
            if isinstance(message, BaseException):
                failures.append(message)
            else:
                results[name] = message
    raise_root_cause(failures)
    return results


def raise_root_cause(failures: list[BaseException]) -> None:
    """Raise the failure that caused the others: an error that is not the loss of a peer."""
    for failure in failures:
        if not isinstance(failure, PeerError):
            raise failure
    if failures:
        raise failures[0]


@dataclass
class Outcome:
    """The results of a simulation at each participant, and their cost."""

    results: list[Any] = field(default_factory=list)
    meters: list[Meter] = field(default_factory=list)
    ledgers: list[DisclosureLedger] = field(default_factory=list)
    peak_rss_mb: float = 0.0
    """Peak memory of a participant's process, or of the common process of all participants."""
    dealer_seconds: float = 0.0
    """Computing time of the dealer, or of all three dealers together."""
    dealer_meters: list[Meter] = field(default_factory=list)
    """Traffic between three dealers, at each dealer."""
    ahead_seconds: float = 0.0
    """Duration of offline preprocessing, before the participants start."""


def simulate(
    program: Program,
    n_parties: int,
    inputs: Sequence[Any] | None = None,
    *,
    network: str = "memory",
    dealer_link: str = "own",
    ahead: bool = False,
    peer_timeout: float = 10.0,
    on_progress: ProgressCallback | None = None,
    names: Sequence[str] | None = None,
    dealers: int = 1,
) -> Outcome:
    """Run `program(runtime, data)` at every participant and at one dealer or three dealers.

    `inputs[i]` is the data of participant i; a dealer gets None. For processes, the program and its
    data must be picklable. Without `names`, participants are named party1, party2 and so on. By
    default the dealer is online during the run, and sends over the link that `dealer_link` names.
    With `ahead`, it writes preprocessing files before the participants start. `on_progress`
    receives the progress of the first participant.
    """
    if n_parties < 2:
        raise ParameterError(f"n_parties: a federation has at least 2, got {n_parties}")
    data = [None] * n_parties if inputs is None else list(inputs)
    names = [*(names or (f"party{index + 1}" for index in range(n_parties)))]
    dealer_names = make_dealer_names(check_dealer_count(dealers))
    for label, values in (
        ("inputs", data),
        ("names", names),
        ("own names", {*names} - {*dealer_names}),
    ):
        if len(values) != n_parties:
            raise ParameterError(f"{label}: {len(values)} for {n_parties} participants")
    network_spec = Network.parse(network, dealer_link)
    with contextlib.ExitStack() as stack:
        files, started = None, time.perf_counter()
        preprocessing_results: list[DealerResult] = []
        if ahead:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="privet-"))
            files, preprocessing_results = _run_preprocessing(
                program, names, dealer_names, Path(folder)
            )
        preprocessed_at = time.perf_counter()
        if network_spec.processes:
            results = run_in_processes(
                program, names, data, files, network_spec, peer_timeout, on_progress, dealer_names
            )
        else:
            results = _run_in_threads(program, names, data, files, on_progress, dealer_names)
    dealer_results = preprocessing_results or [results[name] for name in dealer_names]
    party_results = [results[name] for name in names]
    return Outcome(
        [result.result for result in party_results],
        [result.meter for result in party_results],
        [result.ledger for result in party_results],
        max(result.peak_rss_mb for result in party_results),
        sum(result.seconds for result in dealer_results),
        [result.meter for result in dealer_results],
        preprocessed_at - started if ahead else 0.0,
    )


def _run_preprocessing(
    program: Program, names: list[str], dealers: tuple[str, ...], folder: Path
) -> tuple[list[PreprocessingPaths], list[DealerResult]]:
    """Write preprocessing files, as one dealer or three threads; return also their results."""
    for name in dealers:
        (folder / name).mkdir()
    identities = {name: create_identity(name, folder / name) for name in dealers}
    channels = create_memory_channels(dealers) if len(dealers) > 1 else {}

    def run_one(name: str) -> tuple[list[Path], DealerResult]:
        arguments = program, names, folder / name, identities[name], dict[str, Any]()
        if not channels:
            return preprocess_metered(*arguments)
        with channels[name] as channel:
            dealer_peers = DealerPeers(dealers.index(name), dealers, channel)
            return preprocess_metered(*arguments, dealer_peers=dealer_peers)

    with ThreadPoolExecutor(len(dealers)) as pool:
        results = list(pool.map(run_one, dealers))
    fingerprints = {name: identity.fingerprint for name, identity in identities.items()}
    return [
        PreprocessingPaths(paths, fingerprints)
        for paths in zip(*(paths for paths, _ in results), strict=True)
    ], [result for _, result in results]


def _run_in_threads(
    program: Program,
    names: list[str],
    data: list[Any],
    files: list[PreprocessingPaths] | None,
    on_progress: ProgressCallback | None,
    dealers: tuple[str, ...],
) -> dict[str, Any]:
    channels = create_memory_channels([*names, *dealers] if files is None else names)
    results: dict[str, Any] = {}
    failures: list[BaseException] = []

    def guard(name: str, body: Callable[[], Any]) -> None:
        try:
            results[name] = body()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    def create_party_body(index: int) -> Any:
        file = None if files is None else files[index]
        channel = channels[names[index]]
        progress = on_progress if index == 0 else None

        def body() -> Any:
            preprocessing = None if file is None else file.open_and_consume()
            return run_party(
                program, index, names, data[index], channel, preprocessing, progress, dealers
            )

        return body

    bodies = {name: create_party_body(index) for index, name in enumerate(names)}
    for name in dealers if files is None else ():
        bodies[name] = partial(run_dealer, program, names, channels[name], dealers)
    threads = [
        threading.Thread(target=guard, args=(name, body), name=name, daemon=True)
        for name, body in bodies.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    raise_root_cause(failures)
    return results
