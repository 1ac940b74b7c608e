"""A federation of which one member lies once, in a state of our choosing."""

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
MOST_GROWTH = 256e6
"""Bytes by which all members together may grow for a lie."""
_UNSEEN = ("flipped bits of the elements", "the largest elements")
"""A wrong share of the right size is not seen to be one, only what comes of it."""
_LATER = 0.5
"""Seconds that a liar stays after its lie, to see what comes of it."""

_FRAMES = {"gathering": 0, "goodbye": 0, "agreement": 5, "service": 12}
"""The last frame of a member's in a state that may be a lie, if it is not the usual one."""
_ASKED = 4
"""How many batches are asked for, one after the other, of a service."""


@dataclass(frozen=True)
class Victims:
    """Whom is lied to: a federation that trains, and one that has trained and serves."""

    training: LocalFederation
    serving: LocalFederation


@dataclass(frozen=True)
class Case:
    """A lie: whose, when, and which."""

    liar: str
    state: str
    nth: int
    """The how-manieth frame that it sends in that state."""
    lie: str
    seed: int

    @classmethod
    def draw(cls, chance: random.Random) -> Case:
        """Return any."""
        state = chance.choice(STATES)
        nth = chance.randint(0, _FRAMES.get(state, 30))
        liar = chance.choice(["bank", "shop", "dealer"])
        return cls(liar, state, nth, chance.choice(list(LIES)), chance.getrandbits(32))

    def record(self) -> dict[str, Any]:
        """Return it as the corpus has it."""
        return asdict(self)


_ONE = np.arange(8, dtype=np.uint64)


class LiarError(Exception):
    """Ends the liar, once it has lied."""


class LyingChannel(SocketChannel):
    """A member's end of its connections, which sends something else once."""

    def __init__(self, name: str, links: Mapping[str, PeerConnection], case: Case) -> None:
        super().__init__(name, links)
        self._case = case
        self._count = 0

    def _state(self) -> str:
        where = self.current_step()
        if where == "agreement":
            return "agreement"
        if where.startswith("serve"):
            return "service"
        return "level" if "level" in where else "set-up"

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
                link = next(iter(self._connections.values()))
                self._lie(
                    link, pack_array_header(_ONE, link.n_sent_by_stream[0], 0) + _ONE.tobytes()
                )
        super().close(timeout)

    def _lie(self, link: PeerConnection, frame: bytes) -> None:
        chance = random.Random(self._case.seed)
        link.enqueue(memoryview(LIES[self._case.lie](chance, frame)))
        until = time.monotonic() + _LATER
        while time.monotonic() < until and link.error is None:
            self._pump(0.05)
        raise LiarError


def attack(victims: Victims, case: Case) -> list[str]:
    """Let a federation suffer a lie; return what went wrong, if anything did."""
    before = peak()
    local = victims.training
    try:
        if case.state == "service":
            errors, results = _serve(victims.serving, case)
        else:
            for name in local.party_names:
                shutil.rmtree(local.get_part_path(name).parent, ignore_errors=True)
            errors, results = (_gather if case.state == "gathering" else _train)(local, case)
    except AssertionError as hanging:
        return [str(hanging)]
    problems = []
    for name, error in errors.items():
        if name == case.liar:
            continue
        if not isinstance(error, PrivetError):
            problems.append(f"{name}: {error!r} is none of our errors")
        elif case.state != "gathering" and case.liar not in str(error) and case.lie not in _UNSEEN:
            problems.append(f"{name}: does not name {case.liar}: {error}")
    if not errors and case.liar not in results:
        problems.append("nobody noticed anything, and the liar is gone")
    if (growth := peak() - before) > MOST_GROWTH:
        problems.append(f"memory grew by {growth / 1e6:.0f} MB")
    return problems


Outcome = tuple[dict[str, BaseException], dict[str, Any]]
"""Errors and results, by who has them."""


def _lying(case: Case) -> Any:
    def channel(name: str, links: Mapping[str, PeerConnection]) -> SocketChannel:
        lies = name == case.liar
        return LyingChannel(name, links, case) if lies else SocketChannel(name, links)

    return mock.patch.object(session, "SocketChannel", channel)


def _train(local: LocalFederation, case: Case) -> Outcome:
    with _lying(case):
        found = run(local, "train", wait=20.0)
    return found.errors, found.results


def _serve(local: LocalFederation, case: Case) -> Outcome:
    """Ask a service for some batches, in one of which somebody lies."""
    queue = RequestQueue()
    outcome: list[Run] = []

    def serve() -> None:
        try:
            outcome.append(run(local, "serve", queue=queue, wait=20.0))
        finally:
            queue.close("everybody has ended")

    with _lying(case):
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        # Those who meet again after a failure would serve on: here everybody ends.
        while queue.status == "waiting" and not outcome:
            time.sleep(0.01)
        for number in range(_ASKED):
            if queue.submit_and_wait([f"1-{number}", "1-7", "moon"]).rejection is not None:
                break
        queue.close("all was asked for")
        thread.join(60)
    assert outcome, "a role hangs"
    return outcome[0].errors, outcome[0].results


def _gather(local: LocalFederation, case: Case) -> Outcome:
    """Lie to bank, or as bank to the dealer, while shop is missing."""
    liar = case.liar if case.liar in ("bank", "dealer") else "dealer"
    told = "dealer" if liar == "bank" else "bank"
    job, folder = Job.read(local.job_path), local.folder / liar
    identity = load_identity(folder / f"{liar}.key", folder / f"{liar}.crt")
    errors: dict[str, BaseException] = {}

    def wait() -> None:
        absent = tuple(name for name in local.member_names if name != told)
        errors.update(run(local, "train", absent=absent, wait=4.0).errors)

    victim = threading.Thread(target=wait)
    victim.start()
    with listen(*parse_address(job.get_entry(liar).address)) as door:
        links = connect_members(
            liar, job.make_members(), door, identity=identity, peers=[told], timeout=20
        )
    link = links[told]
    chance = random.Random(case.seed)
    link.enqueue(memoryview(LIES[case.lie](chance, pack_array_header(_ONE, 0, 0) + _ONE.tobytes())))
    link.write()
    victim.join()
    link.sock.close()
    return {case.liar: LiarError(), **errors}, {}


def peak() -> float:
    """Return how much memory this process has had at most, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def victims(folder: Path) -> Victims:
    """Return whom is lied to."""
    serving = prepare(folder / "serving", tables=1)
    run(serving, "train").checked()
    return Victims(prepare(folder / "training", tables=1), serving)
