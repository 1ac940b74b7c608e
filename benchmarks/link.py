"""Training time compared with the lower bound of the link, for each placement of the dealer.

    python -m benchmarks.link [--against OLD/src] [--cores 0,1]

Complete training runs by `masked` with the paper's parameters, four participants behind an emulated
link. The lower bound is rounds times the delay, plus bytes over the rate, plus the start of the
processes. `--against` also measures another version's source in the same run. About 15 minutes on
16 cores. Writes docs/results/link.json.

On a machine without the data sets, `--tables` reads a file that `--write-tables` has written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.evidence.kept import ROOT, Figures, keep, results, where
from benchmarks.evidence.markdown import table, wrapped
from benchmarks.link_run import SIZES
from privet.data.datasets import load_dataset
from privet.data.partition import split_rows

NAME = "link"
DELAY, RATE = 0.005, 12.5e6
NEW, OLD = "now", "before"
Run = tuple[str, str, str, str, tuple[str, ...]]
"""Version, data set, network, dealer mode, and further options."""


def runs(old: bool) -> Iterator[Run]:
    """Yield all runs; compared ones are adjacent."""
    for data in SIZES:
        for network in ("paper", "loopback"):
            if old:
                yield OLD, data, network, "none", ()
            yield NEW, data, network, "ahead", ()
    for data in SIZES:
        yield NEW, data, "paper", "own", ()
        yield NEW, data, "paper", "shared", ()
        yield NEW, data, "lan", "ahead", ()
    yield NEW, "credit", "paper", "ahead", ("cuts=exact",)
    yield NEW, "credit", "paper", "ahead", ("cuts=hidden",)


def main() -> None:
    """Measure all runs, and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", type=Path, help="another version's src folder")
    parser.add_argument("--tables", type=Path, help="the data sets, as --write-tables wrote them")
    parser.add_argument("--write-tables", type=Path, help="write the data sets there, and end")
    parser.add_argument(
        "--read", type=Path, help="take rows measured elsewhere, with their machine"
    )
    arguments = parser.parse_args()
    if arguments.write_tables:
        write_tables(arguments.write_tables)
        return
    command = "python -m benchmarks.link"
    if arguments.read:
        found = json.loads(arguments.read.read_text())
    else:
        with tempfile.TemporaryDirectory() as folder:
            tables = arguments.tables or Path(folder) / "tables.npz"
            if not arguments.tables:
                write_tables(tables)
            old: Path | None = arguments.against
            rows = [measure(run, tables, old) for run in runs(old is not None)]
        found = {"rows": rows}
    print(wrapped(section(keep(results(quick=False) / f"{NAME}.json", found, command))))


def write_tables(path: Path) -> None:
    """Write columns and labels of the paper's data sets, split with seed 0."""
    arrays: dict[str, Any] = {}
    for name in SIZES:
        data = load_dataset(name)
        rows, test = split_rows(data.frame)
        arrays |= {f"{name}_x": rows.columns, f"{name}_y": rows.label, f"{name}_t": test.columns}
    np.savez_compressed(path, **arrays)


def measure(run: Run, tables: Path, old: Path | None) -> Figures:
    """Measure one row in a subprocess."""
    version, data, network, dealer, options = run
    tree = old if version == OLD else ROOT / "src"
    command = [sys.executable, str(ROOT / "benchmarks" / "link_run.py"), str(tree), str(tables)]
    process = subprocess.run(  # noqa: S603
        [*command, data, network, dealer, *options], check=True, capture_output=True, text=True
    )
    found: Figures = {"version": version, **json.loads(process.stdout)}
    print(found, flush=True)
    return found


def least(row: Figures) -> float:
    """Return the lower bound of the time: the link and the start of the processes."""
    carried = row["online"] + (row["offline"] if row["dealer"] == "shared" else 0)
    link_seconds = float(row["rounds"] * DELAY + carried / RATE)
    if row["dealer"] == "own":
        link_seconds = max(link_seconds, row["offline"] / RATE)
    return link_seconds + float(row["start"])


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "## At the limit of the link\n"
    yield (
        "Whole trainings by `masked`, the paper's parameters, four participants. *ahead*: "
        "correlations dealt before, no dealer there; *own*: the dealer there, on a link of its own "
        "of the same delay and rate; *shared*: on the participants' link; *none*: there, past all "
        "links. *least* is rounds times the delay, bytes over the rate and the start of the "
        "processes. `before` is the version that this one is compared with, in the same run. "
        f"{where(figures)}\n"
    )
    names = {"paper": "5 ms, 100 Mbit/s", "lan": "0.1 ms, 1 Gbit/s", "loopback": "loopback"}
    body = []
    for row in figures["rows"]:
        bound = f"{least(row):,.1f}" if row["network"] == "paper" else ""
        ratio = f"{row['seconds'] / least(row):.2f}" if row["network"] == "paper" else ""
        cut_text = f", {row['cuts']} numbers of cuts" if "cuts" in row else ""
        body.append(
            [
                f"{row['data']}{cut_text}",
                row["version"],
                names[row["network"]],
                row["dealer"],
                f"{row['seconds']:,.1f}",
                bound,
                ratio,
                f"{row['rounds']:,}",
                f"{row['online'] / 1e6:,.1f}",
                f"{row['offline'] / 1e6:,.0f}",
                f"{row['same_tests']:.3f}",
            ]
        )
    counts = ["rounds", "MB", "MB dealt", "same tests"]
    head = ["data", "version", "network", "dealer", "s", "least s", "ratio", *counts]
    yield from table(head, body)


if __name__ == "__main__":
    main()
