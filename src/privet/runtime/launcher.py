"""Running a program with all its participants on one machine.

    simulate(program, 3)                         threads of this process: fast, nothing hidden
    simulate(program, 3, network="loopback")     a process each, over TLS
    simulate(program, 3, network="paper")        the same, through an emulated link

Whatever runs on one machine protects nobody from its owner: this is for tests and experiments.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from privet.errors import ParameterError, PeerError, PrivetError
from privet.runtime.correlations import FileSink, FileSource, LiveSink, LiveSource, Source
from privet.runtime.dealer import Dealer
from privet.runtime.ledger import Ledger
from privet.runtime.meter import Meter
from privet.runtime.network import Network, addresses
from privet.runtime.party import Party
from privet.transport.channel import Channel
from privet.transport.identity import Identity, create_identity
from privet.transport.memory import memory_channels
from privet.transport.mesh import Member, connect, listen
from privet.transport.sockets import SocketChannel

Program = Callable[..., Any]
DEALER = "dealer"


@dataclass
class Outcome:
    """What came out at each participant, and what it cost."""

    results: list[Any] = field(default_factory=list)
    meters: list[Meter] = field(default_factory=list)
    ledgers: list[Ledger] = field(default_factory=list)


def simulate(
    program: Program,
    n_parties: int,
    inputs: Sequence[Any] | None = None,
    *,
    network: str = "memory",
    ahead: bool = False,
    deadline: float = 10.0,
) -> Outcome:
    """Run `program(runtime, data)` at every participant and the dealer.

    `inputs[i]` is the data of participant i; the dealer gets None. For processes, the program and
    its data must be picklable. The dealer is there all the time; with `ahead` it is done, and has
    written its files, before the participants start.
    """
    if n_parties < 2:
        raise ParameterError(f"n_parties: a federation has at least 2, got {n_parties}")
    data = [None] * n_parties if inputs is None else list(inputs)
    if len(data) != n_parties:
        raise ParameterError(f"inputs: {len(data)} for {n_parties} participants")
    names = [f"party{index + 1}" for index in range(n_parties)]
    kind = Network.parse(network)
    with contextlib.ExitStack() as stack:
        files = None
        if ahead:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="privet-"))
            files = deal_to_files(program, names, folder)
        if kind.processes:
            return _in_processes(program, names, data, files, kind, deadline)
        return _in_threads(program, names, data, files)


def deal_to_files(program: Program, names: Sequence[str], folder: str | Path) -> list[Path]:
    """Run a program as the dealer, before anybody else, and return each participant's file."""
    paths = [Path(folder) / f"{name}.correlations" for name in names]
    dealer = Dealer(len(names), FileSink(paths))
    program(dealer, None)
    dealer.close()
    return paths


def run_party(
    program: Program,
    index: int,
    names: Sequence[str],
    data: Any,
    channel: Channel,
    correlations: Path | None = None,
) -> tuple[Any, Meter, Ledger]:
    """Run a program as one participant, with a live dealer or with a file from it."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(channel)
        source: Source = LiveSource(channel, DEALER)
        if correlations is not None:
            source = stack.enter_context(contextlib.closing(FileSource(correlations)))
        party = Party(index, names, channel, source)
        result = program(party, data)
        party.finish()
        return result, party.meter, party.ledger


def run_dealer(program: Program, names: Sequence[str], channel: Channel) -> None:
    """Run a program as the dealer."""
    with channel:
        dealer = Dealer(len(names), LiveSink(channel, names))
        program(dealer, None)
        dealer.close()


def _in_threads(
    program: Program, names: list[str], data: list[Any], files: list[Path] | None
) -> Outcome:
    channels = memory_channels([*names, DEALER] if files is None else names)
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
        return lambda: run_party(program, index, names, data[index], channel, file)

    bodies = {name: party(index) for index, name in enumerate(names)}
    if files is None:
        bodies[DEALER] = lambda: run_dealer(program, names, channels[DEALER])
    threads = [
        threading.Thread(target=guard, args=(name, body), name=name, daemon=True)
        for name, body in bodies.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _raise_first(failures)
    return _collect([found[name] for name in names])


def _raise_first(failures: list[BaseException]) -> None:
    """Raise the failure that caused the others, which only lost a peer by it."""
    for failure in failures:
        if not isinstance(failure, PeerError):
            raise failure
    if failures:
        raise failures[0]


def _collect(found: list[tuple[Any, Meter, Ledger]]) -> Outcome:
    results, meters, ledgers = zip(*found, strict=True)
    return Outcome(list(results), list(meters), list(ledgers))


@dataclass(frozen=True)
class _Seat:
    """What one process needs to take part."""

    name: str
    listener: socket.socket
    members: list[Member]
    identity: Identity
    deadline: float
    correlations: Path | None

    def connect(self) -> SocketChannel:
        sockets = connect(self.name, self.members, self.listener, identity=self.identity)
        return SocketChannel(self.name, sockets, self.deadline)


def _in_processes(
    program: Program,
    names: list[str],
    data: list[Any],
    files: list[Path] | None,
    network: Network,
    deadline: float,
) -> Outcome:
    everybody = [*names, DEALER] if files is None else names
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="privet-"))
        listeners = {name: stack.enter_context(listen()) for name in everybody}
        identities = {name: create_identity(name, folder) for name in everybody}
        members = stack.enter_context(addresses(names, listeners, identities, network))
        pipes: dict[Connection, str] = {}
        for index, name in enumerate(everybody):
            ours, theirs = context.Pipe(duplex=False)
            file = None if files is None else files[index]
            seat = _Seat(name, listeners[name], members[name], identities[name], deadline, file)
            values = data[index] if name != DEALER else None
            process = context.Process(
                target=_process, args=(theirs, seat, program, names, values), name=name, daemon=True
            )
            process.start()
            theirs.close()
            pipes[ours] = name
            stack.callback(process.join)
            stack.callback(process.terminate)
        return _await(pipes, names)


def _process(pipe: Connection, seat: _Seat, program: Program, names: list[str], data: Any) -> None:
    """Be one process of a simulation, and send what came out of it."""
    try:
        if seat.name == DEALER:
            run_dealer(program, names, seat.connect())
            pipe.send(None)
        else:
            index = names.index(seat.name)
            channel = seat.connect()
            pipe.send(run_party(program, index, names, data, channel, seat.correlations))
    except Exception as error:
        known = isinstance(error, PrivetError)
        told = error if known else RuntimeError(f"{seat.name}: {type(error).__name__}: {error}")
        with contextlib.suppress(OSError):  # whoever started us may be gone
            pipe.send(told)
        if not known:
            raise


def _await(pipes: dict[Connection, str], names: list[str]) -> Outcome:
    found: dict[str, Any] = {}
    failures: list[BaseException] = []
    while pipes:
        for pipe in wait(list(pipes)):
            assert isinstance(pipe, Connection)
            name = pipes.pop(pipe)
            try:
                message = pipe.recv()
            except EOFError:
                message = RuntimeError(f"{name} ended without a result")
            if isinstance(message, BaseException):
                failures.append(message)
            else:
                found[name] = message
    _raise_first(failures)
    return _collect([found[name] for name in names])
