"""A training on indicators kept from an earlier one, at the limit of a link, as JSON.

    python benchmarks/kept_run.py SRC TABLES.npz credit paper own

The first training is not timed: it publishes indicators, which every participant puts into a file.
The second has another learning rate and uses them again. Needs and TABLES.npz as `link_run`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import link_run  # type: ignore[import-not-found]
import numpy as np

sys.path.insert(0, sys.argv[1])
os.environ["PYTHONPATH"] = os.pathsep.join((sys.argv[1], str(Path(__file__).parent)))

from privet.arithmetic.prg import fresh_seed
from privet.boosting.binning import bucket_columns
from privet.boosting.model import Feature
from privet.boosting.simulation import collect_cut_counts
from privet.boosting.training import IndicatorCacheConfig, TrainingData, TrainingSpec, train
from privet.gates.masked.indicators import IndicatorCache
from privet.runtime.local.launcher import simulate
from privet.spec.params import Params
from privet.spec.plan import Plan


class Folder(IndicatorCache):
    """What a participant keeps, a file a feature."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.path.mkdir(exist_ok=True)

    def load(self, owner: int, position: int, *_: Any) -> Any:
        """Read what one published."""
        return np.load(self.path / f"{owner}-{position}.npy")

    def save(self, owner: int, position: int, rows: Any, *_: Any) -> None:
        """Write it."""
        np.save(self.path / f"{owner}-{position}.npy", rows)


@dataclass(frozen=True)
class Training:
    """The program: as one participant, or as the dealer, who knows all seeds."""

    federation: TrainingSpec
    plan: Plan
    seeds: tuple[bytes, ...]
    folder: str

    def __call__(self, runtime: Any, data: Any) -> Any:
        """Train."""
        keeping = IndicatorCacheConfig({k: [seed] for k, seed in enumerate(self.seeds)})
        if data is not None:
            mine = runtime.index
            keeping = IndicatorCacheConfig(
                {mine: [self.seeds[mine]]}, Folder(f"{self.folder}/{mine}")
            )
        return train(runtime, self.federation, self.plan, data, indicator_cache=keeping)


def main() -> None:
    """Train twice; print what the second time took."""
    _, tables, data, network, dealer = sys.argv[1:]
    with np.load(tables) as arrays:
        columns, label = arrays[f"{data}_x"], arrays[f"{data}_y"]
    task, count, depth = link_run.SIZES[data]
    column_groups = np.array_split(np.arange(len(columns)), link_run.PARTIES)
    seeds = tuple(fresh_seed() for _ in column_groups)
    with tempfile.TemporaryDirectory() as folder:
        for rate, cached, link in ((0.9, (), "loopback"), (1.0, (0, 1, 2, 3), network)):
            params = Params(task=task, tables=count, depth=depth, learning_rate=rate)
            parties = [
                bucket_columns(f"party{k + 1}", [f"x{j}" for j in group], columns[group], 32)
                for k, group in enumerate(column_groups)
            ]
            training_spec = TrainingSpec(
                protocol="masked",
                params=params,
                parties=tuple(party.owner for party in parties),
                features=tuple(Feature(name, p.owner) for p in parties for name in p.names),
                active=len(parties) - 1,
                prediction_bits=10,
                announced_cut_counts=collect_cut_counts(parties, params, "rounded"),
            )
            inputs = [TrainingData(p, label if k == 3 else None) for k, p in enumerate(parties)]
            program = Training(
                training_spec, training_spec.make_plan(len(label), cached), seeds, folder
            )
            started = time.perf_counter()
            outcome = simulate(
                program, len(parties), inputs, network=link, **link_run.DEALERS[dealer]
            )
            seconds = time.perf_counter() - started - outcome.ahead_seconds
    online = [meter.sum_traffic("online") for meter in outcome.meters]
    figures = {
        "data": data,
        "network": network,
        "dealer": dealer,
        "seconds": seconds,
        "dealer_seconds": outcome.dealer_seconds,
        "rounds": online[0].rounds,
        "online": sum(traffic.sent for traffic in online),
    }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
