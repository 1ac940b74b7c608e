"""Tries everything in turn: all readers, live channels, and now and then a whole session."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.federation.harness import prepare, run
from tests.fuzz import files
from tests.fuzz.channels import Harness
from tests.fuzz.readers import Reader, misread, readers
from tests.fuzz.sessions import Case, attack, peak, victims
from tests.fuzz.tally import Tally, packed

_EACH = 100
"""Cases of a reader with a share of one, in each round."""
_LIVE = 250
"""Cases of live channels, in each round."""
_BETWEEN = 8
"""After so many rounds a session is lied to."""
_ASIDE = 5
"""Cases of a reader of files, in each round."""
_GROWTH = 64e6
"""Bytes by which this process may grow for all cases of a reader in a round."""
_LONGEST = 5.0
"""Seconds that reading anything may take."""


class Fuzzer:
    """Everything that can be lied to, and what came of it."""

    def __init__(self, home: Path, chance: random.Random, tally: Tally) -> None:
        self._chance = chance
        self.tally = tally
        trained = prepare(home / "readers", tables=1)
        run(trained, "train").checked()
        self.readers = readers(trained)
        self._files = files.readers(trained, home)
        self._harness = Harness(home)
        self._victims = victims(home / "sessions")
        self._rounds = 0

    def round(self) -> None:
        """Try everything once more."""
        for name, reader in self.readers.items():
            self._bounded(name, partial(self._read, name, reader, _EACH * reader.share))
        for name, reader in self._files.items():
            for _ in range(_ASIDE):
                self._one(name, reader, reader.draw(self._chance))
                self.tally.aside[name] += 1
        self._bounded("live channels", self._speak)
        if self._rounds % _BETWEEN == 0:
            self._attack()
        self._rounds += 1

    def _bounded(self, name: str, body: Callable[[], None]) -> None:
        """Do something, and see that memory does not grow for it."""
        before, started = peak(), time.monotonic()
        body()
        if (growth := peak() - before) > _GROWTH:
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
        problem = misread(reader, content)
        record = {"reader": name, "packed": packed(content)} if problem else {}
        if problem:
            self.tally.keep(f"{name} {problem.kind}", record, problem.text)
        if (seconds := time.perf_counter() - started) > _LONGEST:
            record = {"reader": name, "packed": packed(content)}
            self.tally.keep(f"{name} time", record, f"took {seconds:.1f} s")

    def _speak(self) -> None:
        for _ in range(_LIVE):
            said = self._harness.draw(self._chance)
            if not self.tally.is_new(f"{said.due} {said.stays} {said.secure}", said.content):
                continue
            over = ", over TLS" if said.secure else ""
            self.tally.tried[f"channel: {said.due}{over}"] += 1
            if problem := self._harness.suffer(said):
                self.tally.keep(f"{said.due} {problem[:40]}", said.record(), problem)

    def _attack(self) -> None:
        case = Case.draw(self._chance)
        if self.tally.is_new("session", str(case)):
            self.tally.tried[f"session: {case.state}"] += 1
            if problems := attack(self._victims, case):
                self.tally.keep(str(case), case.record(), "; ".join(problems))
