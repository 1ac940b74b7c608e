"""Time and memory of a sample alignment: three participants with ten million ids each.

    python benchmarks/alignment.py [--rows 10000000] [--participants 3] [--common 0.8]

A dealer and the participants run `privet align` as processes over TLS on one machine. Ids are texts
of 17 characters in Parquet files. The memory of a participant is that of its largest process;
processes that only hash use additional memory.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from privet.experiments.local_federation import LocalFederation
from privet.runtime.run import DEALER_NAME


def write_ids(path: Path, number: int, rows: int, common: int) -> None:
    """Write a participant's ids, common ones and others, in random order."""
    rng = np.random.default_rng(number)
    alone = np.arange(rows - common) + common + number * rows
    numbers = rng.permutation(np.concatenate([np.arange(common), alone]))
    texts = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 9, "0")
    column = pc.binary_join_element_wise("customer", texts, "")
    pq.write_table(pa.table({"id": column}), path)


def prepare(local: LocalFederation, rows: int, common: int) -> None:
    """Write keys, the job and the ids of all participants."""
    for name in local.member_names:
        (local.folder / name).mkdir(parents=True)
    local.write_configuration("regression", {})
    text = local.job_path.read_text().replace("[params]", "align = true\n\n[params]")
    local.job_path.write_text(text)
    for number, name in enumerate(local.party_names):
        folder = local.folder / name
        # In a subprocess: the peak memory of a measured process includes that of its parent at the
        # start.
        writer = multiprocessing.get_context("spawn").Process(
            target=write_ids, args=(folder / "ids.parquet", number, rows, common)
        )
        writer.start()
        writer.join()
        party = folder / "party.toml"
        party.write_text(party.read_text().replace("train.csv", "ids.parquet"))


def command(local: LocalFederation, name: str) -> list[str]:
    """Return the command line of one role."""
    if name == DEALER_NAME:
        return local.make_command(DEALER_NAME, "align")
    folder = local.folder / name
    options = (f"--party={folder / 'party.toml'}", f"--job={local.job_path}")
    report = f"--report={folder / 'report.json'}"
    return [sys.executable, "-m", "privet", "align", *options, report]


def main() -> None:
    """Run one alignment, and print its time and memory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--participants", type=int, default=3)
    parser.add_argument("--common", type=float, default=0.8)
    arguments = parser.parse_args()
    names = tuple(f"party{k + 1}" for k in range(arguments.participants))
    common = round(arguments.rows * arguments.common)
    with tempfile.TemporaryDirectory(prefix="privet-alignment-") as folder:
        local = LocalFederation(Path(folder) / "federation", names)
        prepare(local, arguments.rows, common)
        load = os.getloadavg()[0]
        started = time.perf_counter()
        running = {
            name: subprocess.Popen(command(local, name), stderr=subprocess.DEVNULL)  # noqa: S603
            for name in local.member_names
        }
        results = {name: os.wait4(process.pid, 0) for name, process in running.items()}
        seconds = time.perf_counter() - started
        for name, (_, status, _) in results.items():
            assert os.waitstatus_to_exitcode(status) == 0, name
        print(
            f"{len(names)} participants, {arguments.rows:,} ids each, {common:,} in common, "
            f"{len(os.sched_getaffinity(0))} cores, load before {load:.1f}"
        )
        print(f"{seconds:.1f} s with starting and reading; from meeting to the end:")
        print(f"{'':<10}{'s':>8}{'CPU s':>8}{'peak MB':>9}{'MB to dealer':>14}{'MB back':>9}")
        for name, (_, _, usage) in results.items():
            line = f"{name:<10}"
            report = {}
            if name != DEALER_NAME:
                report = json.loads((local.folder / name / "report.json").read_text())
                assert report["common"] == common
            line += f"{report['seconds']:>8.1f}" if report else f"{'':>8}"
            line += f"{usage.ru_utime + usage.ru_stime:>8.1f}{usage.ru_maxrss / 1e3:>9,.0f}"
            if report:
                line += f"{report['bytes_to_dealer'] / 1e6:>14.1f}"
                line += f"{report['bytes_from_dealer'] / 1e6:>9.1f}"
            print(line)


if __name__ == "__main__":
    main()
