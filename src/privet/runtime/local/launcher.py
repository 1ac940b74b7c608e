"""Running a program with all its members on one machine, in threads or processes.

    simulate(program, 3)                         threads of this process: fast, nothing hidden
    simulate(program, 3, network="loopback")     a process each, over TLS
    simulate(program, 3, network="paper")        the same, through an emulated link

Whatever runs on one machine protects nobody from its owner: this is for tests and experiments.
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
    """Return what makes processes that have imported a module, and begin to import it.

    Where there can be no server to be copied, each of them imports it itself.
    """
    if is_fork_server_private(sys.version_info[:3]):
        # The server has a socket in the folder for temporary files, whose path may be too long, or
        # which may not be there.
        with contextlib.suppress(OSError):
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([module])
            forkserver.ensure_running()
            return context
    return multiprocessing.get_context("spawn")


def is_fork_server_private(version: tuple[int, ...]) -> bool:
    """Tell whether nobody else can reach the server of a version of Python.

    Before 3.10.9 and 3.11.1 its socket has no file on Linux, and so no rights: any user of the
    machine could have it run code as its owner (CVE-2022-42919).
    """
    return (3, 10, 9) <= version < (3, 11) or version >= (3, 11, 1)


# For processes that share a machine: matrix products on one thread each, lest they fight over its
# cores; and freed memory kept rather than returned, since new pages for large arrays cost more than
# computing on them.
PROCESS_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}
# The likeliest reason for a process that does not come up.
_MAIN_GUARD_HINT = (
    "a script starts processes under if __name__ == '__main__', or takes network='memory'"
)


class PreprocessingPaths(NamedTuple):
    """Where a participant finds correlations that were dealt ahead."""

    paths: tuple[Path, ...]
    """One of each dealer."""
    dealers: dict[str, str]
    """Their names and fingerprints."""

    def open_and_consume(self) -> PreprocessingReceiver:
        """Use the file, or files."""
        source = open_preprocessing(self.paths, self.dealers)
        source.consume(self.paths[0].parent / "used")
        return source


@dataclass(frozen=True)
class _Progress:
    """A process's word of how much is done."""

    n_done: int


@dataclass(frozen=True)
class _ProcessSpec:
    """What one process needs to take part."""

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
    """Run a program as a process for each participant and dealer; return what comes of each."""
    everybody = [*names, *dealers] if preprocessing is None else names
    context = create_process_context(_module(program))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="privet-"))
        listeners = {name: stack.enter_context(listen()) for name in everybody}
        identities = {name: create_identity(name, folder) for name in everybody}
        members = stack.enter_context(provide_addresses(names, listeners, identities, network))
        pipes: dict[Connection, str] = {}
        stack.enter_context(_tuned_environment())
        for index, name in enumerate(everybody):
            ours, theirs = context.Pipe(duplex=False)
            file = None if preprocessing is None else preprocessing[index]
            met = listeners[name], members[name], identities[name]
            seat = _ProcessSpec(name, *met, peer_timeout, file, dealers)
            values = data[index] if name not in dealers else None
            process = context.Process(
                target=_run_process,
                args=(theirs, seat, program, names, values),
                name=name,
                daemon=True,
            )
            process.start()
            theirs.close()
            pipes[ours] = name
            stack.callback(process.join)
            stack.callback(process.terminate)
        return _collect_results(pipes, on_progress)


def _module(program: Program) -> str:
    """Return the module that a program comes from."""
    function = program.func if isinstance(program, partial) else program
    return str(getattr(function, "__module__", __name__))


@contextlib.contextmanager
def _tuned_environment() -> Iterator[None]:
    """Start processes with settings of ours, but for those that the user has set."""
    ours = {name: value for name, value in PROCESS_ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def _run_process(
    pipe: Connection, spec: _ProcessSpec, program: Program, names: list[str], data: Any
) -> None:
    """Be one process of a simulation, and send what came out of it."""
    try:
        if spec.name in spec.dealer_names:
            pipe.send(run_dealer(program, names, spec.connect(), spec.dealer_names))
        else:
            index = names.index(spec.name)
            tell = (lambda done: pipe.send(_Progress(done))) if index == 0 else None
            file = None if spec.preprocessing is None else spec.preprocessing.open_and_consume()
            channel = spec.connect()
            pipe.send(
                run_party(program, index, names, data, channel, file, tell, spec.dealer_names)
            )
    except Exception as error:
        known = isinstance(error, PrivetError)
        told = error if known else RuntimeError(f"{spec.name}: {type(error).__name__}: {error}")
        with contextlib.suppress(OSError):  # whoever started us may be gone
            pipe.send(told)
        if not known:
            raise


def _collect_results(
    pipes: dict[Connection, str], on_progress: ProgressCallback | None
) -> dict[str, Any]:
    found: dict[str, Any] = {}
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
                found[name] = message
    raise_root_cause(failures)
    return found


def raise_root_cause(failures: list[BaseException]) -> None:
    """Raise the failure that caused the others, which only lost a peer by it."""
    for failure in failures:
        if not isinstance(failure, PeerError):
            raise failure
    if failures:
        raise failures[0]


@dataclass
class Outcome:
    """What came out at each participant, and what it cost."""

    results: list[Any] = field(default_factory=list)
    meters: list[Meter] = field(default_factory=list)
    ledgers: list[DisclosureLedger] = field(default_factory=list)
    peak_rss_mb: float = 0.0
    """The most memory that a process took: a participant's, or that of all of them."""
    dealer_seconds: float = 0.0
    """The dealer's own computing time, or that of all three."""
    dealer_meters: list[Meter] = field(default_factory=list)
    """What each of three dealers sent to the others."""
    ahead_seconds: float = 0.0
    """How long dealing ahead took, before the participants started."""


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
    """Run `program(runtime, data)` at every participant and the dealer, or three of them.

    `inputs[i]` is the data of participant i; the dealer gets None. For processes, the program and
    its data must be picklable. Participants are party1 and so on, unless they have `names`. The
    dealer is there all the time, and sends as `runtime.local.network.DEALER_LINKS` says; with
    `ahead` it has written its files before the participants start. `on_progress` hears from the
    first one.
    """
    if n_parties < 2:
        raise ParameterError(f"n_parties: a federation has at least 2, got {n_parties}")
    data = [None] * n_parties if inputs is None else list(inputs)
    names = [*(names or (f"party{index + 1}" for index in range(n_parties)))]
    dealing = make_dealer_names(check_dealer_count(dealers))
    for what, given in (("inputs", data), ("names", names), ("own names", {*names} - {*dealing})):
        if len(given) != n_parties:
            raise ParameterError(f"{what}: {len(given)} for {n_parties} participants")
    kind = Network.parse(network, dealer_link)
    with contextlib.ExitStack() as stack:
        files, started = None, time.perf_counter()
        dealt_ahead: list[DealerResult] = []
        if ahead:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="privet-"))
            files, dealt_ahead = _run_preprocessing(program, names, dealing, Path(folder))
        dealt_at = time.perf_counter()
        if kind.processes:
            found = run_in_processes(
                program, names, data, files, kind, peer_timeout, on_progress, dealing
            )
        else:
            found = _run_in_threads(program, names, data, files, on_progress, dealing)
    dealt = dealt_ahead or [found[name] for name in dealing]
    records = [found[name] for name in names]
    return Outcome(
        [record.result for record in records],
        [record.meter for record in records],
        [record.ledger for record in records],
        max(record.peak_rss_mb for record in records),
        sum(each.seconds for each in dealt),
        [each.meter for each in dealt],
        dealt_at - started if ahead else 0.0,
    )


def _run_preprocessing(
    program: Program, names: list[str], dealers: tuple[str, ...], folder: Path
) -> tuple[list[PreprocessingPaths], list[DealerResult]]:
    """Deal into files, as one dealer or as three threads; return them, and what each took."""
    for name in dealers:
        (folder / name).mkdir()
    identities = {name: create_identity(name, folder / name) for name in dealers}
    channels = create_memory_channels(dealers) if len(dealers) > 1 else {}

    def deal(name: str) -> tuple[list[Path], DealerResult]:
        own = program, names, folder / name, identities[name], dict[str, Any]()
        if not channels:
            return preprocess_metered(*own)
        with channels[name] as channel:
            fellows = DealerPeers(dealers.index(name), dealers, channel)
            return preprocess_metered(*own, dealer_peers=fellows)

    with ThreadPoolExecutor(len(dealers)) as pool:
        found = list(pool.map(deal, dealers))
    fingerprints = {name: identity.fingerprint for name, identity in identities.items()}
    return [
        PreprocessingPaths(paths, fingerprints)
        for paths in zip(*(paths for paths, _ in found), strict=True)
    ], [dealt for _, dealt in found]


def _run_in_threads(
    program: Program,
    names: list[str],
    data: list[Any],
    files: list[PreprocessingPaths] | None,
    on_progress: ProgressCallback | None,
    dealers: tuple[str, ...],
) -> dict[str, Any]:
    channels = create_memory_channels([*names, *dealers] if files is None else names)
    found: dict[str, Any] = {}
    failures: list[BaseException] = []

    def guard(name: str, body: Callable[[], Any]) -> None:
        try:
            found[name] = body()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    def party(index: int) -> Any:
        file = None if files is None else files[index]
        channel = channels[names[index]]
        watched = on_progress if index == 0 else None

        def body() -> Any:
            taken = None if file is None else file.open_and_consume()
            return run_party(program, index, names, data[index], channel, taken, watched, dealers)

        return body

    bodies = {name: party(index) for index, name in enumerate(names)}
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
    return found
