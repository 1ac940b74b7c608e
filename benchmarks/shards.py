"""Cost of sharded training: `privet train` of two participants with worker processes.

    python -m benchmarks.shards [--rows 200000] [--shards 1 2 4] [--grow]

Synthetic rows of 20 features, a regression, tables of depth 5. Each participant and the dealer has
a local worker process for each shard. With `--grow` rows grow with shards. For comparison, CatBoost
in plaintext on the same rows with symmetric trees.

Writes docs/results/shards.json (of other rows or shards: build/quick).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.evidence.kept import Figures, keep, results, where
from benchmarks.evidence.markdown import table, wrapped
from privet.arrays import FloatArray
from privet.boosting.model_part import join_parts
from privet.boosting.simulation import train_locally
from privet.experiments.local_federation import LocalFederation
from privet.runtime.local.launcher import PROCESS_ENVIRONMENT
from privet.spec.params import Params
from privet.storage.model_part import load_part

NAME = "shards"
ROWS, SHARDS = 200_000, [1, 2, 4]
FEATURES, DEPTH, TABLES = 20, 5, 4
PARTIES = ("bank", "shop")


def columns_of(rows: int, features: int) -> tuple[FloatArray, FloatArray]:
    """Return synthetic columns, and a label that depends on some of them."""
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(features, rows))
    return x, 2 * x[0] + x[1] * x[2] + np.abs(x[-1]) + 0.3 * rng.normal(size=rows)


def prepare(
    folder: Path,
    x: FloatArray,
    label: FloatArray,
    task: str = "regression",
    shards: int = 1,
    tables: int = TABLES,
    cluster: str = "",
) -> LocalFederation:
    """Write the files of a federation with a `[cluster]` section for all members."""
    params = {"tables": tables, "depth": DEPTH, "masks": '"lattice"'}
    local = LocalFederation(folder, PARTIES)
    _write(local, x, label if task == "regression" else (label > np.median(label)).astype(int))
    local.write_configuration(task, params, shards=shards)
    for name in local.party_names:
        path = local.folder / name / "party.toml"
        text = path.read_text().replace("train.csv", "train.parquet")
        path.write_text(f"{text}\n[cluster]\n{cluster}")
    (local.folder / "dealer" / "cluster.toml").write_text(cluster)
    return local


def command(local: LocalFederation, name: str) -> list[str]:
    """Return the command of a role."""
    file = local.folder / "dealer" / "cluster.toml"
    options = (f"--cluster={file}",) if name in local.dealer_names else ()
    return local.make_command(name, "train", "--log-format=json", *options)


def measure(rows: int, shards: int) -> dict[str, Any]:
    """Train once with processes; return the cost, and the count of the reference's splits."""
    x, label = columns_of(rows, FEATURES)
    with tempfile.TemporaryDirectory(prefix="privet-shards-") as folder:
        cluster = f"local = {shards}\n" if shards > 1 else ""
        local = prepare(Path(folder), x, label, shards=shards, cluster=cluster)
        events = run(local, lambda name: command(local, name))
        parts = [load_part(local.get_part_path(name)).part for name in local.party_names]
        model = join_parts(parts)
        reports = [
            json.loads(local.get_report_path(n, "train").read_text()) for n in local.party_names
        ]
    times = {
        kind: [t for k, t in events if k == kind] for kind in ("connected", "workers", "table")
    }
    reference = _reference(x, label)
    return {
        "rows": rows,
        "shards": shards,
        "same_tests": int(
            ((model.feature == reference.feature) & (model.bucket == reference.bucket)).sum()
        ),
        "tests": int(model.feature.size),
        "gather_seconds": times["workers"][0] - times["connected"][0] if shards > 1 else 0.0,
        "table_seconds": (times["table"][-1] - times["table"][0]) / (TABLES - 1),
        "rounds": reports[0]["rounds"],
        "bytes": sum(report["bytes_sent"] for report in reports),
        "dealt": sum(report["bytes_from_dealer"] for report in reports),
    }


def _reference(x: FloatArray, label: FloatArray) -> Any:
    """Return the model of plaintext training."""
    from privet.boosting.binning import bucket_columns

    half = len(x) // 2
    names = [f"x{j}" for j in range(len(x))]
    params = Params(task="regression", tables=TABLES, depth=DEPTH)
    parties = [
        bucket_columns(owner, names[part], x[part], params.buckets)
        for owner, part in zip(PARTIES, (slice(half), slice(half, None)), strict=True)
    ]
    return train_locally(parties, label, params, cut_disclosure="rounded")


def _write(local: LocalFederation, x: FloatArray, label: FloatArray) -> None:
    half = len(x) // 2
    for name, part in zip(local.party_names, (range(half), range(half, len(x))), strict=True):
        table_of: dict[str, Any] = {"id": np.arange(x.shape[1]), **{f"x{j}": x[j] for j in part}}
        if name == local.recipient:
            table_of["label"] = label
        (local.folder / name).mkdir(parents=True)
        pq.write_table(pa.table(table_of), local.folder / name / "train.parquet")


def run(local: LocalFederation, command: Callable[[str], list[str]]) -> list[tuple[str, float]]:
    """Run the commands of all roles; return the recipient's events with their times."""
    running = {
        name: subprocess.Popen(  # noqa: S603
            command(name),
            stderr=subprocess.PIPE,
            text=True,
            env={**PROCESS_ENVIRONMENT, **os.environ},
        )
        for name in local.member_names
    }
    lines = {name: process.communicate(timeout=3600)[1] for name, process in running.items()}
    for name, process in running.items():
        if process.returncode:
            raise RuntimeError(f"{name} ended with {process.returncode}: {lines[name][-2000:]}")
    found = [json.loads(line) for line in lines[local.recipient].splitlines()]
    parse = datetime.datetime.fromisoformat
    return [(each["event"], parse(each["time"]).timestamp()) for each in found]


def in_the_clear(rows: int) -> float:
    """Return the seconds that CatBoost takes for a tree of the same kind."""
    from catboost import CatBoostRegressor

    x, label = columns_of(rows, FEATURES)
    model = CatBoostRegressor(
        iterations=20, depth=DEPTH, border_count=31, verbose=False, allow_writing_files=False
    )
    started = time.perf_counter()
    model.fit(x.T, label)
    return (time.perf_counter() - started) / 20


def main() -> int:
    """Measure, write the results, and print the section of the page."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=ROWS, help="how many rows are made")
    parser.add_argument("--shards", type=int, nargs="+", default=SHARDS)
    parser.add_argument("--grow", action="store_true", help="so many rows for each shard")
    arguments = parser.parse_args()
    runs = []
    for shards in arguments.shards:
        runs.append(measure(arguments.rows * (shards if arguments.grow else 1), shards))
        print(runs[-1], flush=True)
    figures: Figures = {
        "runs": runs,
        "grow": arguments.grow,
        "clear_seconds": in_the_clear(arguments.rows),
        "cores": os.cpu_count(),
        "run_seconds": time.perf_counter() - started,
    }
    is_default = (arguments.rows, arguments.shards, arguments.grow) == (ROWS, SHARDS, False)
    path = results(not is_default) / f"{NAME}.json"
    print(wrapped(section(keep(path, figures, "make bench-shards"))))
    return 0


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "## Rows in shards\n"
    yield (
        f"`privet train` of two participants on made rows of {FEATURES} features, depth {DEPTH}, "
        "lattice masks, over TLS on loopback. With more than one shard, everybody has a process "
        f"for each, the dealer too; all of them share {figures['cores']} cores. CatBoost takes "
        f"{figures['clear_seconds']:.2f} s for a tree of the same kind on the first of these rows "
        "in the clear. "
        f"{where(figures)}\n"
    )
    head = (
        *("rows", "shards", "tests as in the clear", "s to gather workers", "s a table", "rounds"),
        *("MB", "MB dealt"),
    )
    rows = [
        [
            f"{run['rows']:,}",
            str(run["shards"]),
            f"{run['same_tests']} of {run['tests']}",
            f"{run['gather_seconds']:.1f}",
            f"{run['table_seconds']:.1f}",
            f"{run['rounds']:,}",
            f"{run['bytes'] / 1e6:,.0f}",
            f"{run['dealt'] / 1e6:,.0f}",
        ]
        for run in figures["runs"]
    ]
    yield from table(head, rows)


if __name__ == "__main__":
    sys.exit(main())
