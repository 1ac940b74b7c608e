"""Run measurements, and render their results."""

from __future__ import annotations

import argparse
import os
import shutil
import time
from pathlib import Path

import numpy as np

from benchmarks.evidence import figures, page
from benchmarks.evidence.measure import constants, load, measure, save
from benchmarks.evidence.model import has_time, lies_on_disk, predicted
from benchmarks.evidence.rows import Row, all_rows
from privet.boosting.cost_estimate import OVERLAP_FRACTION, REFERENCE_SPEED

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Run the requested action."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence")
    parser.add_argument("what", choices=["list", "run", "show", "calibrate"])
    parser.add_argument("section", nargs="?")
    parser.add_argument("key", nargs="?")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    folder = ROOT / "build" / "quick" / "results" if arguments.quick else ROOT / "docs" / "results"
    rows = [
        row
        for row in all_rows(arguments.quick)
        if arguments.section in (None, row.section) and arguments.key in (None, row.key)
    ]
    if not rows:
        parser.error(f"there is no row {arguments.section} {arguments.key or ''}")
    if arguments.what == "list":
        for row in rows:
            print(row.section, row.key)
    elif arguments.what == "run":
        if arguments.quick and arguments.section is None:
            shutil.rmtree(folder, ignore_errors=True)
        run(rows, folder)
    elif arguments.what == "show":
        drawn = figures.draw(folder)
        page.write(folder, folder.parent / "results.md", drawn, arguments.quick)
        print(folder.parent / "results.md")
    else:
        calibrate(folder)


def run(rows: list[Row], folder: Path) -> None:
    """Measure rows one by one, and write each result immediately."""
    if "PRIVET_DATA" not in os.environ:
        print("PRIVET_DATA is not set: california and credit are downloaded, if they can be")
    for number, row in enumerate(rows, start=1):
        started = time.perf_counter()
        print(f"{number}/{len(rows)} {row.section} {row.key}", end=" ", flush=True)
        save(folder / f"{row.section}.csv", measure(row))
        print(f"{time.perf_counter() - started:.1f} s", flush=True)


def calibrate(folder: Path) -> None:
    """Fit the cost model to the runs at LAN speed, in which computing dominates.

    The machine must have a core for every process.
    """
    found = [
        row
        for path in folder.glob("*.csv")
        for row in load(path)
        if has_time(row)
        and row["protocol"] == "masked"
        and row["network"] == "lan"
        # Larger indicators are on disk, and reading them is a different cost.
        and not lies_on_disk(row)
    ]
    values = np.array(
        [
            [
                1.0,
                float(row["predicted_rounds"]),
                float(row["predicted_bytes"]),
                float(row["predicted_offline_bytes"]),
                float(row["products"]),
            ]
            for row in found
        ]
    )
    times = [predicted(row) for row in found]
    other = [time.delays + (1 - OVERLAP_FRACTION) * time.transfer_seconds for time in times]
    seconds = np.array([float(row["seconds"]) for row in found]) - np.array(other)
    names = ("start", "per_round", "per_online_byte", "per_offline_byte", "per_product")
    fitted = constants(values, seconds)
    for name, value in zip(names, fitted, strict=True):
        print(f"{name:18}{value:12.3g}   now {getattr(REFERENCE_SPEED, name):.3g}")
    for row, estimate, measured in zip(found, values @ fitted, seconds, strict=True):
        print(f"{row['key']:36}{measured:9.1f}{estimate:9.1f}")


if __name__ == "__main__":
    main()
