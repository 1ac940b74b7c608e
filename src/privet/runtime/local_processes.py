"""The participants and dealers of a simulation as processes of one machine, over TLS."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from privet.errors import PeerError, PrivetError
from privet.runtime.copies import processes_with
from privet.runtime.dealt_files import DealtSource, open_dealt
from privet.runtime.network import Network, addresses
from privet.runtime.roles import OnProgress, Program, run_dealer, run_party
from privet.transport.identity import Identity, create_identity
from privet.transport.mesh import Member, connect, listen
from privet.transport.sockets import SocketChannel

# For processes that share a machine: matrix products on one thread each, lest they fight over its
# cores; and freed memory kept rather than returned, since new pages for large arrays cost more than
# computing on them.
TUNED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}
# The likeliest reason for a process that does not come up.
_GUARD = "a script starts processes under if __name__ == '__main__', or takes network='memory'"


class DealtFile(NamedTuple):
    """Where a participant finds correlations that were dealt ahead."""

    paths: tuple[Path, ...]
    """One of each dealer."""
    dealers: dict[str, str]
    """Their names and fingerprints."""

    def taken(self) -> DealtSource:
        """Use the file, or files."""
        source = open_dealt(self.paths, self.dealers)
        source.take(self.paths[0].parent / "used")
        return source


@dataclass(frozen=True)
class _Progress:
    """A process's word of how much is done."""

    done: int


@dataclass(frozen=True)
class _Seat:
    """What one process needs to take part."""

    name: str
    listener: socket.socket
    members: list[Member]
    identity: Identity
    deadline: float
    correlations: DealtFile | None
    dealers: tuple[str, ...]

    def connect(self) -> SocketChannel:
        sockets = connect(self.name, self.members, self.listener, identity=self.identity)
        return SocketChannel(self.name, sockets, self.deadline)


def in_processes(
    program: Program,
    names: list[str],
    data: list[Any],
    files: list[DealtFile] | None,
    network: Network,
    deadline: float,
    on_progress: OnProgress | None,
    dealers: tuple[str, ...],
) -> dict[str, Any]:
    """Run a program as a process for each participant and dealer; return what comes of each."""
    everybody = [*names, *dealers] if files is None else names
    context = processes_with(_module(program))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="privet-"))
        listeners = {name: stack.enter_context(listen()) for name in everybody}
        identities = {name: create_identity(name, folder) for name in everybody}
        members = stack.enter_context(addresses(names, listeners, identities, network))
        pipes: dict[Connection, str] = {}
        stack.enter_context(_tuned_environment())
        for index, name in enumerate(everybody):
            ours, theirs = context.Pipe(duplex=False)
            file = None if files is None else files[index]
            met = listeners[name], members[name], identities[name]
            seat = _Seat(name, *met, deadline, file, dealers)
            values = data[index] if name not in dealers else None
            process = context.Process(
                target=_process, args=(theirs, seat, program, names, values), name=name, daemon=True
            )
            process.start()
            theirs.close()
            pipes[ours] = name
            stack.callback(process.join)
            stack.callback(process.terminate)
        return _await(pipes, on_progress)


def _module(program: Program) -> str:
    """Return the module that a program comes from."""
    function = program.func if isinstance(program, partial) else program
    return str(getattr(function, "__module__", __name__))


@contextlib.contextmanager
def _tuned_environment() -> Iterator[None]:
    """Start processes with settings of ours, but for those that the user has set."""
    ours = {name: value for name, value in TUNED.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def _process(pipe: Connection, seat: _Seat, program: Program, names: list[str], data: Any) -> None:
    """Be one process of a simulation, and send what came out of it."""
    try:
        if seat.name in seat.dealers:
            pipe.send(run_dealer(program, names, seat.connect(), seat.dealers))
        else:
            index = names.index(seat.name)
            tell = (lambda done: pipe.send(_Progress(done))) if index == 0 else None
            file = None if seat.correlations is None else seat.correlations.taken()
            channel = seat.connect()
            pipe.send(run_party(program, index, names, data, channel, file, tell, seat.dealers))
    except Exception as error:
        known = isinstance(error, PrivetError)
        told = error if known else RuntimeError(f"{seat.name}: {type(error).__name__}: {error}")
        with contextlib.suppress(OSError):  # whoever started us may be gone
            pipe.send(told)
        if not known:
            raise


def _await(pipes: dict[Connection, str], on_progress: OnProgress | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    failures: list[BaseException] = []
    while pipes:
        for pipe in wait(list(pipes)):
            assert isinstance(pipe, Connection)
            name = pipes[pipe]
            try:
                message = pipe.recv()
            except EOFError:
                message = RuntimeError(f"{name} ended without a result; {_GUARD}")
            if isinstance(message, _Progress):
                if on_progress is not None:
                    on_progress(message.done)
                continue
            del pipes[pipe]
            if isinstance(message, BaseException):
                failures.append(message)
            else:
                found[name] = message
    raise_first(failures)
    return found


def raise_first(failures: list[BaseException]) -> None:
    """Raise the failure that caused the others, which only lost a peer by it."""
    for failure in failures:
        if not isinstance(failure, PeerError):
            raise failure
    if failures:
        raise failures[0]
