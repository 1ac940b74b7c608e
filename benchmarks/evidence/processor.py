"""Processor time of all processes of a federation."""

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
    """Program that writes the processor time of each process to a file."""

    program: Program
    folder: str

    def __call__(self, runtime: Any, data: Any) -> Any:
        """Run the program, as a participant or as the dealer."""
        started = time.process_time()
        result = self.program(runtime, data)
        seconds = time.process_time() - started
        (Path(self.folder) / str(os.getpid())).write_text(repr(seconds))
        return result


def simulate_timed(
    program: Program, *arguments: Any, **options: Any
) -> tuple[Outcome, list[float]]:
    """Run `simulate`; also return the processor seconds of every process."""
    with tempfile.TemporaryDirectory(prefix="privet-") as folder:
        outcome = simulate(Timed(program, folder), *arguments, **options)
        return outcome, [float(path.read_text()) for path in Path(folder).iterdir()]


def train_timed(*arguments: Any, **options: Any) -> tuple[simulation.FederatedResult, list[float]]:
    """Run `train_federated`; also return the processor seconds of every process."""
    seconds: list[float] = []

    def timed(*positional: Any, **keywords: Any) -> Outcome:
        outcome, process_seconds = simulate_timed(*positional, **keywords)
        seconds.extend(process_seconds)
        return outcome

    with mock.patch.object(simulation, "simulate", timed):
        return simulation.train_federated(*arguments, **options), seconds
