"""Cost of lattice masks compared with uniform masks, with the same data, in the same run.

    python -m benchmarks.masks [--quick] [--rows 200000]

A regression of synthetic rows, 20 features, two participants, two tables; and Credit with the
paper's parameters, four participants. By `masked`, a process for each role, on loopback: setup and
tables are timed separately. Rounds and bytes must equal the estimated ones. Splits are compared
with those of training in plaintext. Also Credit from a cold start at the paper's network with
offline preprocessing, where the time includes all work before the first table.

Writes docs/results/masks.json (a quick run, or one with other rows: build/quick).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.evidence.kept import Figures, keep, results, where
from benchmarks.evidence.markdown import table, wrapped
from benchmarks.options import task_of
from privet import Params
from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns, bucket_columns
from privet.boosting.cost_estimate import CostEstimate
from privet.boosting.model_part import join_parts
from privet.boosting.simulation import train_federated, train_locally

NAME = "masks"
NETWORK = "loopback"
MASKS = ("uniform", "lattice")
ROWS, FEATURES, PARTIES, TABLES = 200_000, 20, 2, 2
_QUICK_ROWS = 3000
_SEED = 5

Data = tuple[list[BucketedColumns], FloatArray]


def made(rows: int, features: int = FEATURES) -> Data:
    """Return synthetic columns of two participants, and a label with decreasing weights."""
    rng = np.random.default_rng(_SEED)
    columns = rng.normal(size=(features, rows))
    weights = 0.8 ** np.arange(features)
    label = weights @ np.where(columns > 0.3, 1.0, columns) + columns[0] * columns[5 % features]
    label += rng.normal(scale=0.5, size=rows)
    parts = np.array_split(columns, PARTIES)
    names = [[f"x{k}-{j}" for j in range(len(part))] for k, part in enumerate(parts)]
    parties = [bucket_columns(f"party{k + 1}", names[k], part, 32) for k, part in enumerate(parts)]
    return parties, label


def measure(
    data: str,
    parties: list[BucketedColumns],
    label: FloatArray,
    params: Params,
    kinds: Sequence[str] = MASKS,
) -> Figures:
    """Train in plaintext and with each kind of masks."""
    started = time.perf_counter()
    plain = train_locally(parties, label, params)
    clear_seconds = time.perf_counter() - started
    runs = []
    for masks in kinds:
        changed_params = params.model_copy(update={"masks": masks})
        estimates: list[CostEstimate] = []
        federated = train_federated(
            parties, label, changed_params, "masked", network=NETWORK, on_estimate=estimates.append
        )
        outcome, model = federated.program_result, join_parts(federated.parts)
        online = [meter.sum_traffic("online") for meter in outcome.meters]
        dealt = sum(meter.sum_traffic("offline").received for meter in outcome.meters)
        found = online[0].rounds, sum(each.sent for each in online), dealt
        (counted,) = estimates
        if found != (counted.rounds, counted.online_bytes, counted.offline_bytes):
            raise ArithmeticError(f"{data}, {masks}: counted {counted}, found {found}")
        setup = sum(
            traffic.sent
            for meter in outcome.meters
            for step, traffic in meter.online.items()
            if step.startswith("setup")
        )
        runs.append(
            {
                "masks": masks,
                "same_tests": int(
                    ((model.feature == plain.feature) & (model.bucket == plain.bucket)).sum()
                ),
                "tests": int(model.feature.size),
                "setup_bytes": setup,
                "table_bytes": (found[1] - setup) / params.tables,
                "dealt_bytes": dealt / params.tables,
                "setup_seconds": max(meter.seconds["setup"] for meter in outcome.meters),
                "table_seconds": max(m.seconds["table"] for m in outcome.meters) / params.tables,
                "memory_mb": outcome.peak_rss_mb,
                "estimated_mb": counted.memory_bytes / 1e6,
            }
        )
        print(data, runs[-1], flush=True)
    return {
        "data": data,
        "samples": len(label),
        "features": sum(len(party.names) for party in parties),
        "parties": len(parties),
        "tables": params.tables,
        "clear_seconds": clear_seconds / params.tables,
        "runs": runs,
    }


def start_cold(
    parties: list[BucketedColumns], label: FloatArray, params: Params, kinds: Sequence[str] = MASKS
) -> Figures:
    """Return the seconds of a training run at the paper's network, with the start of processes."""
    found = {}
    for masks in kinds:
        started = time.perf_counter()
        outcome = train_federated(
            parties,
            label,
            params.model_copy(update={"masks": masks}),
            "masked",
            network="paper",
            offline=True,
        ).program_result
        found[masks] = {
            "seconds": time.perf_counter() - started - outcome.ahead_seconds,
            "online": sum(meter.sum_traffic("online").sent for meter in outcome.meters),
            "rounds": outcome.meters[0].sum_traffic("online").rounds,
        }
        print("cold", masks, found[masks], flush=True)
    return found


def main() -> int:
    """Measure, write the results, and print the section of the page."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rows, of both")
    parser.add_argument("--rows", type=int, default=ROWS, help="how many rows are made")
    options = parser.parse_args()
    rows = _QUICK_ROWS if options.quick else options.rows
    cold: Figures = {}
    sets = [measure("made", *made(rows), Params(task="regression", tables=TABLES))]
    if rows == ROWS or options.quick:
        credit = task_of("credit", _QUICK_ROWS if options.quick else None)
        sets.append(measure("credit", list(credit.parties), credit.label, credit.params))
        cold = start_cold(list(credit.parties), credit.label, credit.params)
    figures: Figures = {
        "sets": sets,
        "cold": cold,
        "cores": os.cpu_count(),
        "run_seconds": time.perf_counter() - started,
    }
    path = results(rows != ROWS) / f"{NAME}.json"
    print(wrapped(section(keep(path, figures, "make bench-masks"))))
    return 0


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "## Lattice masks\n"
    yield (
        "Trainings by `masked` with uniform masks and with lattice ones, one after the other: made "
        f"rows, and Credit with the paper's parameters. All processes share {figures['cores']} "
        f"cores. {where(figures)}\n"
    )
    head = (
        "",
        "masks",
        "tests as in the clear",
        "MB before the first table",
        "MB a table",
        "dealt",
        "s before the first table",
        "s a table",
        "MB of memory",
    )
    rows = []
    for found in figures["sets"]:
        size = f"{found['data']}, {found['samples']:,} x {found['features']}"
        for run in found["runs"]:
            rows.append(
                [
                    f"{size}, {found['parties']} participants" if run["masks"] == MASKS[0] else "",
                    run["masks"],
                    f"{run['same_tests']} of {run['tests']}",
                    f"{run['setup_bytes'] / 1e6:.1f}",
                    f"{run['table_bytes'] / 1e6:.1f}",
                    f"{run['dealt_bytes'] / 1e6:.1f}",
                    f"{run['setup_seconds']:.1f}",
                    f"{run['table_seconds']:.1f}",
                    f"{run['memory_mb']:,.0f}",
                ]
            )
    yield from table(head, rows)
    if figures.get("cold"):
        yield (
            "Credit from a cold start, at 5 ms and 100 Mbit/s that all share, dealt ahead: "
            + "; ".join(
                f"{masks} masks {found['seconds']:.1f} s, {found['online'] / 1e6:.0f} MB, "
                f"{found['rounds']} rounds"
                for masks, found in figures["cold"].items()
            )
            + ".\n"
        )
    yield f"All of it took {figures['run_seconds'] / 60:.1f} minutes.\n"


if __name__ == "__main__":
    sys.exit(main())
