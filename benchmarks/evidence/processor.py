"""Processor time of a whole federation: of the participants' processes and the dealer's."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from privet.boosting import simulation
from privet.runtime.local.launcher import Outcome, simulate
from privet.runtime.run import Program


@dataclass(frozen=True)
class Timed:
    """A program that leaves a file with the processor time that each of its processes took."""

    program: Program
    folder: str

    def __call__(self, runtime: Any, data: Any) -> Any:
        """Run the program, as a participant or as the dealer."""
        started = time.process_time()
        result = self.program(runtime, data)
        taken = time.process_time() - started
        (Path(self.folder) / str(os.getpid())).write_text(repr(taken))
        return result


def simulate_timed(
    program: Program, *arguments: Any, **options: Any
) -> tuple[Outcome, list[float]]:
    """Run a program as `simulate` does; return also the processor seconds of every process."""
    with tempfile.TemporaryDirectory(prefix="privet-") as folder:
        outcome = simulate(Timed(program, folder), *arguments, **options)
        return outcome, [float(path.read_text()) for path in Path(folder).iterdir()]


def train_timed(*arguments: Any, **options: Any) -> tuple[simulation.FederatedResult, list[float]]:
    """Train as `train_federated` does; return also the processor seconds of every process."""
    seconds: list[float] = []

    def timed(*more: Any, **said: Any) -> Outcome:
        outcome, taken = simulate_timed(*more, **said)
        seconds.extend(taken)
        return outcome

    with mock.patch.object(simulation, "simulate", timed):
        return simulation.train_federated(*arguments, **options), seconds
