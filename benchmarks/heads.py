"""Memory of a training run: of coordinators and their workers.

    python -m benchmarks.heads [--rows 1000000] [--features 50] [--shards 1 2]

Synthetic rows of two participants in Parquet files, a regression, one table of depth 3. With more
than one shard, each participant and the dealer has a worker process for each shard. The peak
resident memory of every process is compared with the value of `privet estimate`.

Writes docs/results/heads.json (of other rows, features or shards: build/quick).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.evidence.kept import Figures, keep, results, where
from benchmarks.evidence.markdown import table, wrapped
from benchmarks.processes import workers_of
from privet.boosting.model_part import join_parts
from privet.experiments.local_federation import LocalFederation
from privet.storage.model_part import load_part

NAME = "heads"
ROWS, FEATURES, SHARDS = 1_000_000, 50, [1, 2]
DEPTH = 3
_PARTIES = ("bank", "shop")
_BATCH = 100_000  # rows


def measure(rows: int, features: int, shards: int) -> dict[str, Any]:
    """Train once with processes; return the peak memory of each."""
    with tempfile.TemporaryDirectory(prefix="privet-heads-") as folder:
        local = LocalFederation(Path(folder), _PARTIES)
        for name, count in zip(_PARTIES, (features // 2, features - features // 2), strict=True):
            (local.folder / name).mkdir(parents=True)
            write(local.folder / name / "train.parquet", rows, count, name == local.recipient)
        params = {"tables": 1, "depth": DEPTH, "masks": '"lattice"'}
        local.write_configuration("regression", params, shards=shards)
        options: dict[str, tuple[str, ...]] = {}
        for name in local.party_names:
            path = local.folder / name / "party.toml"
            text = path.read_text().replace("train.csv", "train.parquet")
            path.write_text(text + (f"\n[cluster]\nlocal = {shards}\n" if shards > 1 else ""))
        if shards > 1:
            cluster = local.folder / "dealer" / "cluster.toml"
            cluster.write_text(f"local = {shards}\n")
            options["dealer"] = (f"--cluster={cluster}",)
        started = time.perf_counter()
        peaks = _run(local, options)
        seconds = time.perf_counter() - started
        model = join_parts(
            [load_part(local.get_part_path(name)).part for name in local.party_names]
        )
        estimate = _estimate(local, rows, features)
    tests = hashlib.sha256(model.feature.tobytes() + model.bucket.tobytes()).hexdigest()
    return {
        "rows": rows,
        "features": features,
        "shards": shards,
        "heads_mb": {name: peaks[name, "head"] for name in local.member_names},
        "workers_mb": {
            name: peaks[name, "worker"] for name in local.member_names if (name, "worker") in peaks
        },
        "estimate": {key: value for key, value in estimate.items() if "memory" in key},
        "tests": tests[:16],
        "seconds": seconds,
    }


def write(path: Path, rows: int, features: int, with_label: bool) -> None:
    """Write synthetic rows in batches; the label depends on columns of both participants."""
    writer = None
    for start in range(0, rows, _BATCH):
        rng = np.random.default_rng(start)
        count = min(_BATCH, rows - start)
        common = rng.normal(size=count)
        local_rng = np.random.default_rng([start, with_label])
        columns: dict[str, Any] = {"id": np.arange(start, start + count)}
        columns |= {f"x{j}": local_rng.normal(size=count) + common for j in range(features)}
        if with_label:
            columns["label"] = 2 * common + columns["x1"] + 0.3 * rng.normal(size=count)
        batch = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_table(batch)
    assert writer is not None
    writer.close()


def _run(
    local: LocalFederation, options: dict[str, tuple[str, ...]]
) -> dict[tuple[str, str], float]:
    """Run all roles; return the peak MB of each, and of its largest worker."""
    running = {
        name: local.start_process(name, "train", "--log-format=json", *options.get(name, ()))
        for name in local.member_names
    }
    peaks: dict[tuple[str, str], float] = {}
    while any(process.poll() is None for process in running.values()):
        for name, process in running.items():
            for kind, pid in _family(process):
                if (found := _peak(pid)) is not None:
                    peaks[name, kind] = max(peaks.get((name, kind), 0.0), found)
        time.sleep(0.2)
    for name, process in running.items():
        if process.returncode:
            raise RuntimeError(f"{name}: {process.communicate()[1][-2000:]}")
    return peaks


def _family(process: subprocess.Popen[str]) -> Iterator[tuple[str, int]]:
    """Yield a process, and its workers."""
    yield "head", process.pid
    for pid in workers_of(process.pid):
        yield "worker", pid


def _peak(pid: int) -> float | None:
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024 / 1e6


def _estimate(local: LocalFederation, rows: int, features: int) -> dict[str, Any]:
    """Return the output of `privet estimate`."""
    counts = f"{features // 2},{features - features // 2}"
    command = [sys.executable, "-m", "privet", "estimate", f"--job={local.job_path}", "--json"]
    command += [f"--samples={rows}", f"--features={counts}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    figures: dict[str, Any] = json.loads(found.stdout)
    return figures


def main() -> int:
    """Measure, write the results, and print the section of the page."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=ROWS, help="how many rows are made")
    parser.add_argument("--features", type=int, default=FEATURES, help="of both participants")
    parser.add_argument("--shards", type=int, nargs="+", default=SHARDS)
    arguments = parser.parse_args()
    runs = []
    for shards in arguments.shards:
        runs.append(measure(arguments.rows, arguments.features, shards))
        print(runs[-1], flush=True)
    figures: Figures = {
        "runs": runs,
        "cores": os.cpu_count(),
        "run_seconds": time.perf_counter() - started,
    }
    is_default = (arguments.rows, arguments.features, arguments.shards) == (ROWS, FEATURES, SHARDS)
    path = results(not is_default) / f"{NAME}.json"
    print(wrapped(section(keep(path, figures, "make bench-heads"))))
    return 0


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "## Memory of heads and workers\n"
    yield (
        "The most memory that any process of a participant took (its resident set), beside what "
        f"`privet estimate` says before: made rows in Parquet files, depth {DEPTH}, lattice masks. "
        "With shards, a participant's own process, its head, has a worker in a process for each. "
        f"{where(figures)}\n"
    )
    head = ("rows", "features", "shards", "process", "MB", "MB foreseen", "ratio")
    rows = [
        [
            f"{run['rows']:,}",
            str(run["features"]),
            str(run["shards"]),
            process,
            f"{peak:,.0f}",
            f"{estimated:,.0f}",
            f"{peak / estimated:.2f}",
        ]
        for run in figures["runs"]
        for process, peak, estimated in compared(run)
    ]
    yield from table(head, rows)


def compared(run: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Yield the peak and the estimated memory in MB of each kind of process."""
    estimate = run["estimate"]
    coordinator_peak = max(run["heads_mb"][name] for name in _PARTIES)
    if run["shards"] == 1:
        yield "participant", coordinator_peak, estimate["memory"] / 1e6
        return
    yield "head", coordinator_peak, estimate["memory_of_head"] / 1e6
    yield "worker", max(run["workers_mb"][name] for name in _PARTIES), estimate["memory"] / 1e6


if __name__ == "__main__":
    sys.exit(main())
