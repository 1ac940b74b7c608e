"""One interruption of a federation: who, when and how, and what must be true after it."""

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
"""Behind the name of whoever has them, as processes."""
LATEST = 15.0
"""Seconds within which all must have ended once they could know, on a machine that is busy."""
SILENCE = 10.0
"""Seconds until one that says nothing is given up."""
PATIENCE = 600.0
"""Seconds after which what nobody disturbs must be done, on a machine that is busy with others."""


@dataclass(frozen=True)
class Strike:
    """An interruption."""

    phase: str
    action: str
    victims: tuple[str, ...]
    """Roles, or the workers of one."""
    table: int = 0
    """After which table, in the phase of tables or at the end."""

    def __str__(self) -> str:
        when = f"{self.phase} ({self.table})" if self.phase == "tables" else self.phase
        return f"{self.action} {' and '.join(self.victims)} at {when}"

    @property
    def heads(self) -> tuple[str, ...]:
        """The roles who are hit, or whose workers are."""
        return tuple(victim.removesuffix(WORKERS) for victim in self.victims)

    @property
    def late(self) -> bool:
        """Whether all may be done before somebody is missed."""
        return self.phase in ("end", "prediction")

    @property
    def verb(self) -> str:
        """The command that is interrupted."""
        return "predict" if self.phase == "prediction" else "train"

    def is_due(self, said: Said) -> bool:
        """Tell whether this is the event to strike at."""
        if self.phase in ("tables", "end"):
            return said["event"] == "table" and bool(said["table"] >= self.table)
        kind = {"gathering": "listening", "set-up": "started"}.get(self.phase, "connected")
        return bool(said["event"] == kind)


def deck(
    chance: random.Random,
    names: tuple[str, ...],
    dealers: tuple[str, ...],
    tables: int,
    workers: tuple[str, ...] = (),
) -> Iterator[Strike]:
    """Yield interruptions of all kinds, in an order by chance, again and again.

    Some have workers as processes. These are there while tables are trained, and what they say to
    each other goes through no relay that could be cut.
    """
    kinds = list(product(PHASES, ACTIONS, range(1, MOST_VICTIMS + 1)))
    while True:
        chance.shuffle(kinds)
        for phase, action, count in kinds:
            everybody = [*names, *dealers]
            if phase in ("set-up", "tables", "end") and action != "cut":
                everybody += [name + WORKERS for name in workers]
            victims = tuple(chance.sample(everybody, min(count, len(everybody) - 1)))
            table = {"tables": chance.randint(2, tables - 2), "end": tables}.get(phase, 0)
            yield Strike(phase, action, victims, table)


def hit(strike: Strike, running: dict[str, Watched], relays: Relays) -> list[int]:
    """Do it to those who are still there; return all workers' processes, anybody's."""
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
    """Let those go on who were stopped."""
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
    """Tell whether everybody has ended well, whatever was done to some."""
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
    """Let all meet after a strike while one was missing; return what went wrong."""
    others = {name: watched for name, watched in running.items() if name not in strike.victims}
    problems: list[str] = []
    if strike.action == "terminate":
        # They say that they cannot take part, so nobody waits for them: all start again.
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


def check_logs(all_of_them: Iterable[Watched]) -> list[str]:
    """Return complaints about those who said something that is no event, such as a traceback."""
    return [f"{each.name} says {each.stray}" for each in all_of_them if each.stray]


def _check_time(watched: Iterable[Watched], since: float, seconds: float) -> Iterator[str]:
    """Wait until all have ended; complain of those who take too long, and end them."""
    found = []
    for each in watched:
        if not each.has_ended(since + seconds - time.monotonic()):
            found.append(f"{each.name} has not ended {seconds:.0f} s after it could know")
            each.kill()
    return iter(found)


def _check_gone(workers: list[int]) -> Iterator[str]:
    """Wait until no worker's process is there any more; complain if one is, and end it."""
    until = time.monotonic() + LATEST
    while left := [process for process in workers if is_there(process)]:
        if time.monotonic() > until:
            yield f"{len(left)} workers have not ended"
            _signal(left, signal.SIGKILL)
            return
        time.sleep(0.1)


def _check_blame(strike: Strike, watched: Watched) -> list[str]:
    if strike.action == "cut" and watched.last.get("peer") is not None:
        return []  # both ends of a cut connection blame each other
    if _names_victim(strike, watched.last, "error"):
        return []
    return [f"{watched.name} names none of {strike.victims}: {watched.last['text']}"]


def _names_victim(strike: Strike, said: Said, kind: str) -> bool:
    """Tell whether somebody is named; of workers, their head, or they, as their head calls them."""
    names = [*strike.heads, *(["worker"] if strike.heads != strike.victims else [])]
    return said["event"] == kind and any(name in said["text"] for name in names)


def _surprise(watched: Watched) -> str:
    return f"{watched.name} ended with {watched.code}: {watched.last['text']}"
