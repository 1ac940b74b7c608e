"""A federation of which one member sends an invalid frame once, in a chosen state."""

from __future__ import annotations

import random
import resource
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from privet.config.job import Job
from privet.config.members import parse_address
from privet.errors import PrivetError
from privet.experiments.local_federation import LocalFederation
from privet.federation.serving.request_queue import RequestQueue
from privet.federation.session import session
from privet.transport.channel import Array
from privet.transport.connection import PeerConnection
from privet.transport.frames import pack_array_header
from privet.transport.rendezvous import connect_members, listen
from privet.transport.sockets import SocketChannel
from privet.transport.tls import load_identity
from tests.federation.harness import Run, prepare, run
from tests.fuzz.lies import LIES

STATES = ("gathering", "agreement", "set-up", "level", "goodbye", "service")
MAX_GROWTH_BYTES = 256e6
"""Limit of memory growth of all members together for a lie."""
_UNDETECTED = ("flipped bits of the elements", "the largest elements")
"""A wrong share of the right size is not detected itself, only its consequences."""
_LINGER_SECONDS = 0.5
"""Seconds that a liar stays connected after its lie."""

_MAX_FRAME_NUMBERS = {"gathering": 0, "goodbye": 0, "agreement": 5, "service": 12}
"""The highest frame number of a lie, in states that differ from the default."""
_BATCHES = 4
"""Number of batches that are requested from a service, one after the other."""


@dataclass(frozen=True)
class Victims:
    """The attacked federations: one that trains, and a trained one that serves."""

    training: LocalFederation
    serving: LocalFederation


@dataclass(frozen=True)
class Case:
    """A lie: the member, the state, the frame and the kind."""

    liar: str
    state: str
    nth: int
    """The number of the member's frame in that state, from 0."""
    lie: str
    seed: int

    @classmethod
    def draw(cls, chance: random.Random) -> Case:
        """Draw a case."""
        state = chance.choice(STATES)
        nth = chance.randint(0, _MAX_FRAME_NUMBERS.get(state, 30))
        liar = chance.choice(["bank", "shop", "dealer"])
        return cls(liar, state, nth, chance.choice(list(LIES)), chance.getrandbits(32))

    def record(self) -> dict[str, Any]:
        """Return the record for the corpus."""
        return asdict(self)


_ARRAY = np.arange(8, dtype=np.uint64)


class LiarError(Exception):
    """Ends the liar after its lie."""


class LyingChannel(SocketChannel):
    """A member's channel that sends an invalid frame once."""

    def __init__(self, name: str, connections: Mapping[str, PeerConnection], case: Case) -> None:
        super().__init__(name, connections)
        self._case = case
        self._count = 0

    def _state(self) -> str:
        step = self.current_step()
        if step == "agreement":
            return "agreement"
        if step.startswith("serve"):
            return "service"
        return "level" if "level" in step else "set-up"

    def _send(self, connection: PeerConnection, array: Array, tag: int, stream: int = 0) -> None:
        if self._state() == self._case.state:
            self._count += 1
            if self._count == self._case.nth + 1:
                frame = (
                    pack_array_header(array, connection.n_sent_by_stream[stream], tag, stream)
                    + array.tobytes()
                )
                self._lie(connection, frame)
        super()._send(connection, array, tag, stream)

    def close(self, timeout: float | None = None) -> None:
        if self._case.state == "goodbye":
            with self._lock:
                connection = next(iter(self._connections.values()))
                self._lie(
                    connection,
                    pack_array_header(_ARRAY, connection.n_sent_by_stream[0], 0) + _ARRAY.tobytes(),
                )
        super().close(timeout)

    def _lie(self, connection: PeerConnection, frame: bytes) -> None:
        chance = random.Random(self._case.seed)
        connection.enqueue(memoryview(LIES[self._case.lie](chance, frame)))
        deadline = time.monotonic() + _LINGER_SECONDS
        while time.monotonic() < deadline and connection.error is None:
            self._pump(0.05)
        raise LiarError


def attack(make_victims: Victims, case: Case) -> list[str]:
    """Run a case; return the problems."""
    before = peak_memory()
    local = make_victims.training
    try:
        if case.state == "service":
            errors, results = _serve(make_victims.serving, case)
        else:
            for name in local.party_names:
                shutil.rmtree(local.get_part_path(name).parent, ignore_errors=True)
            errors, results = (_lie_while_connecting if case.state == "gathering" else _train)(
                local, case
            )
    except AssertionError as timeout:
        return [str(timeout)]
    problems = []
    for name, error in errors.items():
        if name == case.liar:
            continue
        if not isinstance(error, PrivetError):
            problems.append(f"{name}: {error!r} is none of our errors")
        elif (
            case.state != "gathering"
            and case.liar not in str(error)
            and case.lie not in _UNDETECTED
        ):
            problems.append(f"{name}: does not name {case.liar}: {error}")
    if not errors and case.liar not in results:
        problems.append("no member noticed that the liar ended")
    if (growth := peak_memory() - before) > MAX_GROWTH_BYTES:
        problems.append(f"memory grew by {growth / 1e6:.0f} MB")
    return problems


Outcome = tuple[dict[str, BaseException], dict[str, Any]]
"""Errors and results, by member."""


def _lying(case: Case) -> Any:
    def channel(name: str, connections: Mapping[str, PeerConnection]) -> SocketChannel:
        lies = name == case.liar
        return LyingChannel(name, connections, case) if lies else SocketChannel(name, connections)

    return mock.patch.object(session, "SocketChannel", channel)


def _train(local: LocalFederation, case: Case) -> Outcome:
    with _lying(case):
        found = run(local, "train", wait=20.0)
    return found.errors, found.results


def _serve(local: LocalFederation, case: Case) -> Outcome:
    """Request batches from a service, in one of which a member lies."""
    queue = RequestQueue()
    outcome: list[Run] = []

    def serve() -> None:
        try:
            outcome.append(run(local, "serve", queue=queue, wait=20.0))
        finally:
            queue.close("all members have ended")

    with _lying(case):
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        # Without reconnection, all members end after a failure.
        while queue.status == "waiting" and not outcome:
            time.sleep(0.01)
        for number in range(_BATCHES):
            if queue.submit_and_wait([f"1-{number}", "1-7", "moon"]).rejection is not None:
                break
        queue.close("all batches were requested")
        thread.join(60)
    assert outcome, "a role hangs"
    return outcome[0].errors, outcome[0].results


def _lie_while_connecting(local: LocalFederation, case: Case) -> Outcome:
    """Lie to the bank, or as the bank to the dealer, while the shop is missing."""
    liar = case.liar if case.liar in ("bank", "dealer") else "dealer"
    target = "dealer" if liar == "bank" else "bank"
    job, folder = Job.read(local.job_path), local.folder / liar
    identity = load_identity(folder / f"{liar}.key", folder / f"{liar}.crt")
    errors: dict[str, BaseException] = {}

    def wait() -> None:
        absent = tuple(name for name in local.member_names if name != target)
        errors.update(run(local, "train", absent=absent, wait=4.0).errors)

    victim = threading.Thread(target=wait)
    victim.start()
    with listen(*parse_address(job.get_entry(liar).address)) as listener:
        connections = connect_members(
            liar, job.make_members(), listener, identity=identity, peers=[target], timeout=20
        )
    connection = connections[target]
    chance = random.Random(case.seed)
    connection.enqueue(
        memoryview(LIES[case.lie](chance, pack_array_header(_ARRAY, 0, 0) + _ARRAY.tobytes()))
    )
    connection.write()
    victim.join()
    connection.sock.close()
    return {case.liar: LiarError(), **errors}, {}


def peak_memory() -> float:
    """Return the peak memory of this process, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def make_victims(folder: Path) -> Victims:
    """Prepare the attacked federations."""
    serving = prepare(folder / "serving", tables=1)
    run(serving, "train").checked()
    return Victims(prepare(folder / "training", tables=1), serving)
