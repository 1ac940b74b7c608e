"""Interrupt federations, several at once, a given number of times."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.chaos.page import NAME, section
from benchmarks.chaos.relay import Relays
from benchmarks.chaos.strike import Strike, deck
from benchmarks.chaos.trial import Outcome, Trial
from benchmarks.evidence.kept import Figures, keep, results
from benchmarks.evidence.markdown import wrapped
from privet.boosting.binning import bucket_columns
from privet.boosting.simulation import train_locally
from privet.data.datasets import load_dataset
from privet.data.partition import split_rows
from privet.experiments.local_federation import LocalFederation
from privet.runtime.run import make_dealer_names
from privet.spec.params import Params

NAMES = ("bank", "telecom", "shop")
PARAMS: dict[str, Any] = {"tables": 12, "depth": 3, "buckets": 8, "learning_rate": 1.0}
KINDS = ((1, 1), (3, 1), (1, 2))
"""Dealer and shard counts of federations; with shards, one participant has worker processes."""
WITH_WORKERS = "bank"
EACH = 3
"""Maximum of interruptions of one federation, each in another phase."""


class Chaos:
    """Federations with interruptions, and the outcomes."""

    def __init__(self, interruptions: int, seed: int) -> None:
        self._left = interruptions
        self._lock = threading.Lock()
        self.outcomes: list[tuple[tuple[int, int], Outcome]] = []
        data = load_dataset("breast-cancer")
        self._task = data.task
        self._rows, self._new = split_rows(data.frame, 0.2, 0)
        params = Params(task=data.task, **PARAMS)
        assert self._rows.label is not None
        columns = bucket_columns("all", self._rows.names, self._rows.columns, params.buckets)
        self._plain = train_locally([columns], self._rows.label, params)
        self._decks = {
            kind: deck(
                random.Random(f"{seed} {kind}"),  # noqa: S311
                NAMES,
                make_dealer_names(kind[0]),
                params.tables,
                (WITH_WORKERS,) if kind[1] > 1 else (),
            )
            for kind in KINDS
        }

    def deals(self) -> Iterator[tuple[tuple[int, int], list[Strike]]]:
        """Yield kinds of federations with their interruptions, until none are left."""
        held: dict[tuple[int, int], list[Strike]] = {kind: [] for kind in KINDS}
        for kind in cycle(KINDS):
            if self._left == 0:
                return
            strikes: list[Strike] = []
            while len(strikes) < min(EACH, self._left):
                strike = held[kind].pop() if held[kind] else next(self._decks[kind])
                if strike.phase in {other.phase for other in strikes}:
                    held[kind].append(strike)  # for the next federation
                    break
                strikes.append(strike)
            self._left -= len(strikes)
            yield kind, strikes

    def suffer(self, kind: tuple[int, int], strikes: list[Strike]) -> None:
        """Create a federation, interrupt it, and record the outcomes."""
        dealers, shards = kind
        with tempfile.TemporaryDirectory(prefix="privet-chaos-") as folder:
            local = LocalFederation(Path(folder), NAMES, dealers)
            local.write_tables(self._rows, self._new)
            local.write_configuration(self._task, PARAMS, shards=shards)
            if shards > 1:
                file = local.folder / WITH_WORKERS / "party.toml"
                file.write_text(f"{file.read_text()}\n[cluster]\nlocal = {shards}\n")
            relays = Relays(local)
            try:
                found = Trial(local, self._plain, self._new, relays).suffer(strikes)
            finally:
                relays.close()
        with self._lock:
            for outcome in found:
                self.outcomes.append((kind, outcome))
                verdict = "too late" if outcome.missed else "; ".join(outcome.problems) or "good"
                kind_text = f"{dealers} dealers, {shards} shards"
                print(f"{len(self.outcomes)}: {outcome.strike}, {kind_text}: {verdict}")
                sys.stdout.flush()

    def figures(self) -> list[Figures]:
        """Return the outcomes of all interruptions in time, as results."""
        return [
            {
                "phase": outcome.strike.phase,
                "action": outcome.strike.action,
                "victims": outcome.strike.victims,
                "dealers": dealers,
                "shards": shards,
                "what": str(outcome.strike),
                "seconds": round(outcome.seconds, 2),
                "problems": outcome.problems,
            }
            for (dealers, shards), outcome in self.outcomes
            if not outcome.missed or outcome.problems
        ]


def main() -> int:
    """Run the requested interruptions; return 1 if any check failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interruptions", type=int, default=50)
    parser.add_argument("--at-once", type=int, default=2, help="how many federations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="for docs/results, not build/quick")
    arguments = parser.parse_args()
    started = time.perf_counter()
    chaos = Chaos(arguments.interruptions, arguments.seed)
    federations = list(chaos.deals())
    command = f"python -m benchmarks.chaos --interruptions {arguments.interruptions}"
    path = results(not arguments.keep) / f"{NAME}.json"
    with ThreadPoolExecutor(arguments.at_once) as pool:
        waiting = [pool.submit(chaos.suffer, *each) for each in federations]
        for count, done in enumerate(as_completed(waiting), 1):
            done.result()
            figures: Figures = {
                "federations": count,
                "at_once": arguments.at_once,
                "seed": arguments.seed,
                "run_seconds": time.perf_counter() - started,
                "interruptions": chaos.figures(),
            }
            # Write after each federation, so that an interrupted run keeps its results.
            figures = keep(path, figures, f"{command} --at-once {arguments.at_once}")
    print(wrapped(section(figures)))
    return any(row["problems"] for row in figures["interruptions"])


if __name__ == "__main__":
    sys.exit(main())
