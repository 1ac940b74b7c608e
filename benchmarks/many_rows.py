"""Cost of training on millions of rows, for which uniform masks have too little headroom.

    python -m benchmarks.many_rows [--rows 3000000 10000000]

A regression and a classification of synthetic rows, four features, two participants, lattice masks,
by `masked`, a process for each role, on loopback. Rounds and bytes must equal the estimated ones.
Splits are compared with those of training in plaintext. 10,000,000 rows need about 12 GB for all
roles together.

Writes docs/results/many_rows.json (of other rows: build/quick).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.evidence.kept import Figures, keep, results, where
from benchmarks.evidence.markdown import table, wrapped
from benchmarks.masks import made, measure
from privet import Params

NAME = "many_rows"
ROWS = [3_000_000, 10_000_000]
FEATURES, DEPTH, TABLES = 4, 3, 1


def main() -> int:
    """Measure, write the results, and print the section of the page."""
    started, sets = time.perf_counter(), []
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="how many rows are made")
    sizes = parser.parse_args().rows
    for rows in sizes:
        parties, label = made(rows, FEATURES)
        for task in ("regression", "classification"):
            target = label if task == "regression" else (label > np.median(label)).astype(float)
            params = Params(task=task, tables=TABLES, depth=DEPTH)
            sets.append(measure(task, parties, target, params, ("lattice",)))
    figures: Figures = {
        "sets": sets,
        "cores": os.cpu_count(),
        "run_seconds": time.perf_counter() - started,
    }
    path = results(sizes != ROWS) / f"{NAME}.json"
    print(wrapped(section(keep(path, figures, "make bench-rows"))))
    return 0


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "## Many rows\n"
    yield (
        f"Trainings by `masked` of made rows, {FEATURES} features at two participants, tables of "
        f"depth {DEPTH}, with lattice masks. All processes share {figures['cores']} cores. "
        f"{where(figures)}\n"
    )
    head = (
        "",
        "tests as in the clear",
        "MB a table",
        "dealt",
        "s before the first table",
        "s a table",
        "s a table in the clear",
        "MB of memory",
        "estimated",
    )
    rows = [
        [
            f"{found['data']}, {found['samples']:,} x {found['features']}",
            f"{run['same_tests']} of {run['tests']}",
            f"{run['table_bytes'] / 1e6:,.0f}",
            f"{run['dealt_bytes'] / 1e6:,.0f}",
            f"{run['setup_seconds']:.1f}",
            f"{run['table_seconds']:.1f}",
            f"{found['clear_seconds']:.1f}",
            f"{run['memory_mb']:,.0f}",
            f"{run['estimated_mb']:,.0f}",
        ]
        for found in figures["sets"]
        for run in found["runs"]
    ]
    yield from table(head, rows)
    yield f"All of it took {figures['run_seconds'] / 60:.1f} minutes.\n"


if __name__ == "__main__":
    sys.exit(main())
