"""The fuzzing loop: all readers, live channels, and sometimes a whole session."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.federation.harness import prepare, run
from tests.fuzz import files
from tests.fuzz.channels import Harness
from tests.fuzz.readers import Reader, find_problem, readers
from tests.fuzz.sessions import Case, attack, make_victims, peak_memory
from tests.fuzz.tally import Tally, packed

_READER_CASES = 100
"""Cases of a reader with a share of one, in each round."""
_CHANNEL_CASES = 250
"""Cases of live channels, in each round."""
_SESSION_INTERVAL = 8
"""Rounds between two sessions."""
_FILE_CASES = 5
"""Cases of a reader of files, in each round."""
_MAX_GROWTH_BYTES = 64e6
"""Limit of memory growth for all cases of a reader in a round."""
_MAX_READ_SECONDS = 5.0
"""Limit for a single read."""


class Fuzzer:
    """All fuzzing targets, and the tally of their cases."""

    def __init__(self, home: Path, chance: random.Random, tally: Tally) -> None:
        self._chance = chance
        self.tally = tally
        trained = prepare(home / "readers", tables=1)
        run(trained, "train").checked()
        self.readers = readers(trained)
        self._files = files.readers(trained, home)
        self._harness = Harness(home)
        self._victims = make_victims(home / "sessions")
        self._rounds = 0

    def round(self) -> None:
        """Run one round over all targets."""
        for name, reader in self.readers.items():
            self._bounded(name, partial(self._read, name, reader, _READER_CASES * reader.share))
        for name, reader in self._files.items():
            for _ in range(_FILE_CASES):
                self._one(name, reader, reader.draw(self._chance))
                self.tally.aside[name] += 1
        self._bounded("live channels", self._inject)
        if self._rounds % _SESSION_INTERVAL == 0:
            self._attack()
        self._rounds += 1

    def _bounded(self, name: str, body: Callable[[], None]) -> None:
        """Run a function, and check its time and memory growth."""
        before, started = peak_memory(), time.monotonic()
        body()
        if (growth := peak_memory() - before) > _MAX_GROWTH_BYTES:
            problem = f"memory grew by {growth / 1e6:.0f} MB"
            self.tally.found[f"{name} memory"] = problem
            print(f"{name}: {problem}", flush=True)  # noqa: T201
        if (seconds := time.monotonic() - started) > 60:
            self.tally.found[f"{name} time"] = f"a round took {seconds:.0f} s"

    def _read(self, name: str, reader: Reader, count: int) -> None:
        for _ in range(count):
            content = reader.draw(self._chance)
            if self.tally.is_new(name, content):
                self._one(name, reader, content)
                self.tally.tried[f"reader: {name}"] += 1

    def _one(self, name: str, reader: Reader, content: bytes) -> None:
        started = time.perf_counter()
        problem = find_problem(reader, content)
        record = {"reader": name, "packed": packed(content)} if problem else {}
        if problem:
            self.tally.keep(f"{name} {problem.kind}", record, problem.text)
        if (seconds := time.perf_counter() - started) > _MAX_READ_SECONDS:
            record = {"reader": name, "packed": packed(content)}
            self.tally.keep(f"{name} time", record, f"took {seconds:.1f} s")

    def _inject(self) -> None:
        for _ in range(_CHANNEL_CASES):
            injection = self._harness.draw(self._chance)
            if not self.tally.is_new(
                f"{injection.due} {injection.stays} {injection.secure}", injection.content
            ):
                continue
            suffix = ", over TLS" if injection.secure else ""
            self.tally.tried[f"channel: {injection.due}{suffix}"] += 1
            if problem := self._harness.inject(injection):
                self.tally.keep(f"{injection.due} {problem[:40]}", injection.record(), problem)

    def _attack(self) -> None:
        case = Case.draw(self._chance)
        if self.tally.is_new("session", str(case)):
            self.tally.tried[f"session: {case.state}"] += 1
            if problems := attack(self._victims, case):
                self.tally.keep(str(case), case.record(), "; ".join(problems))
