"""Running a program with all its participants on one machine.

    simulate(program, 3)                         threads of this process: fast, nothing hidden
    simulate(program, 3, network="loopback")     a process each, over TLS
    simulate(program, 3, network="paper")        the same, through an emulated link

Whatever runs on one machine protects nobody from its owner: this is for tests and experiments.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from privet.errors import ParameterError
from privet.runtime.fellows import Fellows
from privet.runtime.ledger import Ledger
from privet.runtime.local_processes import DealtFile, in_processes, raise_first
from privet.runtime.meter import Meter
from privet.runtime.network import Network
from privet.runtime.roles import (
    Dealt,
    OnProgress,
    Program,
    check_dealers,
    deal_ahead_metered,
    dealer_names,
    run_dealer,
    run_party,
)
from privet.transport.identity import create_identity
from privet.transport.memory import memory_channels


@dataclass
class Outcome:
    """What came out at each participant, and what it cost."""

    results: list[Any] = field(default_factory=list)
    meters: list[Meter] = field(default_factory=list)
    ledgers: list[Ledger] = field(default_factory=list)
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
    deadline: float = 10.0,
    on_progress: OnProgress | None = None,
    names: Sequence[str] | None = None,
    dealers: int = 1,
) -> Outcome:
    """Run `program(runtime, data)` at every participant and the dealer, or three of them.

    `inputs[i]` is the data of participant i; the dealer gets None. For processes, the program and
    its data must be picklable. Participants are party1 and so on, unless they have `names`. The
    dealer is there all the time, and sends as `runtime.network.DEALER_LINKS` says; with `ahead` it
    has written its files before the participants start. `on_progress` hears from the first one.
    """
    if n_parties < 2:
        raise ParameterError(f"n_parties: a federation has at least 2, got {n_parties}")
    data = [None] * n_parties if inputs is None else list(inputs)
    names = [*(names or (f"party{index + 1}" for index in range(n_parties)))]
    dealing = dealer_names(check_dealers(dealers))
    for what, given in (("inputs", data), ("names", names), ("own names", {*names} - {*dealing})):
        if len(given) != n_parties:
            raise ParameterError(f"{what}: {len(given)} for {n_parties} participants")
    kind = Network.parse(network, dealer_link)
    with contextlib.ExitStack() as stack:
        files, started = None, time.perf_counter()
        dealt_ahead: list[Dealt] = []
        if ahead:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="privet-"))
            files, dealt_ahead = _dealt_ahead(program, names, dealing, Path(folder))
        dealt_at = time.perf_counter()
        if kind.processes:
            found = in_processes(program, names, data, files, kind, deadline, on_progress, dealing)
        else:
            found = _in_threads(program, names, data, files, on_progress, dealing)
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


def _dealt_ahead(
    program: Program, names: list[str], dealers: tuple[str, ...], folder: Path
) -> tuple[list[DealtFile], list[Dealt]]:
    """Deal into files, as one dealer or as three threads; return them, and what each took."""
    for name in dealers:
        (folder / name).mkdir()
    identities = {name: create_identity(name, folder / name) for name in dealers}
    channels = memory_channels(dealers) if len(dealers) > 1 else {}

    def deal(name: str) -> tuple[list[Path], Dealt]:
        own = program, names, folder / name, identities[name], dict[str, Any]()
        if not channels:
            return deal_ahead_metered(*own)
        with channels[name] as channel:
            fellows = Fellows(dealers.index(name), dealers, channel)
            return deal_ahead_metered(*own, fellows=fellows)

    with ThreadPoolExecutor(len(dealers)) as pool:
        found = list(pool.map(deal, dealers))
    fingerprints = {name: identity.fingerprint for name, identity in identities.items()}
    return [
        DealtFile(paths, fingerprints) for paths in zip(*(paths for paths, _ in found), strict=True)
    ], [dealt for _, dealt in found]


def _in_threads(
    program: Program,
    names: list[str],
    data: list[Any],
    files: list[DealtFile] | None,
    on_progress: OnProgress | None,
    dealers: tuple[str, ...],
) -> dict[str, Any]:
    channels = memory_channels([*names, *dealers] if files is None else names)
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
            taken = None if file is None else file.taken()
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
    raise_first(failures)
    return found
