"""One interruption of a federation: victims, phase, action, and the checks after it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from benchmarks.chaos.relay import Relays
from benchmarks.chaos.watched import Said, Watched
from benchmarks.processes import is_there

PHASES = ("gathering", "agreement", "set-up", "tables", "end", "prediction")
ACTIONS = ("kill", "stop", "terminate", "cut")
"""SIGKILL, SIGSTOP (and SIGCONT when all others have ended), SIGTERM, connections cut."""
MOST_VICTIMS = 3
WORKERS = "'s workers"
"""Suffix of the name of a role with worker processes."""
LATEST = 15.0
"""Maximum seconds until all processes have ended after a detectable failure, on a busy machine."""
SILENCE = 10.0
"""Seconds until a silent peer times out."""
PATIENCE = 600.0
"""Maximum seconds of an undisturbed command, on a busy machine."""


@dataclass(frozen=True)
class Strike:
    """An interruption."""

    phase: str
    action: str
    victims: tuple[str, ...]
    """Roles, or the workers of one."""
    table: int = 0
    """Number of the last table before the interruption, in the phases tables and end."""

    def __str__(self) -> str:
        when = f"{self.phase} ({self.table})" if self.phase == "tables" else self.phase
        return f"{self.action} {' and '.join(self.victims)} at {when}"

    @property
    def heads(self) -> tuple[str, ...]:
        """Roles that are interrupted, or whose workers are."""
        return tuple(victim.removesuffix(WORKERS) for victim in self.victims)

    @property
    def late(self) -> bool:
        """Whether all processes may end before a failure is detected."""
        return self.phase in ("end", "prediction")

    @property
    def verb(self) -> str:
        """Interrupted command."""
        return "predict" if self.phase == "prediction" else "train"

    def is_due(self, event: Said) -> bool:
        """Return whether an event triggers the interruption."""
        if self.phase in ("tables", "end"):
            return event["event"] == "table" and bool(event["table"] >= self.table)
        kind = {"gathering": "listening", "set-up": "started"}.get(self.phase, "connected")
        return bool(event["event"] == kind)


def deck(
    rng: random.Random,
    names: tuple[str, ...],
    dealers: tuple[str, ...],
    tables: int,
    workers: tuple[str, ...] = (),
) -> Iterator[Strike]:
    """Yield interruptions of all kinds repeatedly, in random order.

    Worker processes exist only while tables are trained, and their connections pass no relay that
    could be cut.
    """
    kinds = list(product(PHASES, ACTIONS, range(1, MOST_VICTIMS + 1)))
    while True:
        rng.shuffle(kinds)
        for phase, action, count in kinds:
            roles = [*names, *dealers]
            if phase in ("set-up", "tables", "end") and action != "cut":
                roles += [name + WORKERS for name in workers]
            victims = tuple(rng.sample(roles, min(count, len(roles) - 1)))
            table = {"tables": rng.randint(2, tables - 2), "end": tables}.get(phase, 0)
            yield Strike(phase, action, victims, table)


def hit(strike: Strike, running: dict[str, Watched], relays: Relays) -> list[int]:
    """Interrupt the victims; return the worker processes of all roles."""
    all_workers = {name: watched.process.workers() for name, watched in running.items()}
    workers = [process for each in all_workers.values() for process in each]
    if strike.action == "cut":
        relays.cut(strike.victims)
        return workers
    number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "terminate": signal.SIGTERM}
    for victim, head in zip(strike.victims, strike.heads, strict=True):
        if victim == head:
            running[victim].process.send_signal(number[strike.action])
        else:
            _signal(all_workers[head], number[strike.action])
    return workers


def thaw(strike: Strike, running: dict[str, Watched], workers: Iterable[int] = ()) -> None:
    """Continue stopped processes."""
    if strike.action == "stop":
        for victim in strike.victims:
            if victim in running:
                running[victim].process.send_signal(signal.SIGCONT)
        _signal(workers, signal.SIGCONT)


def _signal(processes: Iterable[int], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def all_is_done(running: Mapping[str, Watched]) -> bool:
    """Return whether all processes have ended with code 0."""
    return all(watched.code == 0 for watched in running.values())


def check_ends(
    strike: Strike, running: dict[str, Watched], struck: float, workers: list[int]
) -> list[str]:
    """Wait until all have ended after a strike in the middle; return what went wrong."""
    others = [watched for name, watched in running.items() if name not in strike.victims]
    allowed = LATEST + (SILENCE if strike.action == "stop" else 0.0)
    problems = [*_check_time(others, struck, allowed)]
    thaw(strike, running, workers)
    victims = [running[name] for name in strike.victims if name in running]
    problems += _check_time(victims, time.monotonic(), LATEST)
    problems += _check_gone(workers)
    # A dealer runs ahead, and may have dealt all that there is when it is hit.
    late = strike.late or all_is_done(running)
    for watched in others:
        if watched.code == 7:
            problems += _check_blame(strike, watched)
        elif watched.code != 0 or not late:
            problems.append(_surprise(watched))
    expected = {"kill": -signal.SIGKILL, "terminate": 130}.get(strike.action, 7)
    for watched in victims:
        if watched.code == 7 and strike.action == "terminate" and len(victims) > 1:
            problems += _check_blame(strike, watched)  # it heard of another one's end first
        elif watched.code != expected and not (late and watched.code == 0):
            problems.append(_surprise(watched))
        if watched.code == 130 and watched.last["event"] != "interrupted":
            problems.append(f"{watched.name} does not say that it was interrupted")
    return problems + check_logs(running.values())


def check_gathering(
    strike: Strike, running: dict[str, Watched], start: Callable[[str], Watched], late: str
) -> list[str]:
    """Start the missing member after an interruption; return all problems."""
    others = {name: watched for name, watched in running.items() if name not in strike.victims}
    problems: list[str] = []
    if strike.action == "terminate":
        # Terminated members send failure notices, so all members end and restart.
        problems += _check_time(running.values(), time.monotonic(), LATEST)
        problems += [_surprise(watched) for watched in others.values() if watched.code != 7]
        for watched in others.values():
            problems += _check_blame(strike, watched)
    elif strike.action == "stop":
        named = [
            watched.has_said(lambda said: _names_victim(strike, said, "waiting"), SILENCE + LATEST)
            for watched in others.values()
        ]
        problems += [] if all(named) else [f"nobody misses {strike.victims}"]
        thaw(strike, running)
    elif strike.action == "kill":
        _check_time([running[name] for name in strike.victims], time.monotonic(), LATEST)
    problems += check_logs(running.values())
    for name, watched in list(running.items()):
        if watched.code is not None:
            if name in others and strike.action != "terminate":
                problems.append(_surprise(watched))
            watched.kill()
            running[name] = start(name)
    running[late] = start(late)
    for watched in running.values():
        if not watched.has_said(lambda said: said["event"] == "connected", PATIENCE):
            problems.append(f"{watched.name} does not meet the others: {watched.last['text']}")
    return problems


def check_logs(processes: Iterable[Watched]) -> list[str]:
    """Return problems of processes that wrote lines other than events, such as tracebacks."""
    return [f"{each.name} says {each.stray}" for each in processes if each.stray]


def _check_time(watched: Iterable[Watched], since: float, seconds: float) -> Iterator[str]:
    """Wait until all processes have ended; kill those that take too long, and report them."""
    problems = []
    for each in watched:
        if not each.has_ended(since + seconds - time.monotonic()):
            problems.append(f"{each.name} has not ended {seconds:.0f} s after it could know")
            each.kill()
    return iter(problems)


def _check_gone(workers: list[int]) -> Iterator[str]:
    """Wait until all worker processes have ended; kill and report remaining ones."""
    until = time.monotonic() + LATEST
    while left := [process for process in workers if is_there(process)]:
        if time.monotonic() > until:
            yield f"{len(left)} workers have not ended"
            _signal(left, signal.SIGKILL)
            return
        time.sleep(0.1)


def _check_blame(strike: Strike, watched: Watched) -> list[str]:
    if strike.action == "cut" and watched.last.get("peer") is not None:
        return []  # both ends of a cut connection report each other
    if _names_victim(strike, watched.last, "error"):
        return []
    return [f"{watched.name} names none of {strike.victims}: {watched.last['text']}"]


def _names_victim(strike: Strike, event: Said, kind: str) -> bool:
    """Return whether an event names a victim; for workers, their role or a worker name."""
    names = [*strike.heads, *(["worker"] if strike.heads != strike.victims else [])]
    return event["event"] == kind and any(name in event["text"] for name in names)


def _surprise(watched: Watched) -> str:
    return f"{watched.name} ended with {watched.code}: {watched.last['text']}"
