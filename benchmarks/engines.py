"""Overhead of worker engines in a sharded training run: start, placement and waiting.

    python -m benchmarks.engines [--repeats 5]

`privet train` of two participants, with all workers as threads, as processes, or on a running local
Dask cluster over TLS, in turn. The time is from the connected participants to the first command at
every worker. With threads it is only connecting over TLS, so the overhead of an engine is the
difference from threads. Rows are few: while a coordinator reads more rows, an engine has more time.

Writes docs/results/engines.json (other repeats: build/quick).
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.evidence.kept import Figures, keep, results, where
from benchmarks.evidence.markdown import table, wrapped
from benchmarks.shards import columns_of, command, prepare, run

NAME = "engines"
REPEATS, ROWS, FEATURES, SHARDS = 5, 20_000, 10, 4
THREADS = "threads"
_MINUTE = 60.0


def dask_cluster(folder: Path, stack: ExitStack) -> str:
    """Start a Dask cluster with temporary keys; return its `[cluster]` section."""
    distributed: Any = importlib.import_module("distributed")
    keys = distributed.Security.temporary()
    cluster = distributed.LocalCluster(
        n_workers=SHARDS,
        threads_per_worker=3,  # one for a worker of each role
        security=keys,
        protocol="tls://",
        dashboard_address=None,
    )
    stack.enter_context(cluster)
    lines = [f'scheduler = "{cluster.scheduler_address}"', 'advertise = "127.0.0.1"']
    for name, text in (
        ("ca", keys.tls_ca_file),
        ("certificate", keys.tls_client_cert),
        ("key", keys.tls_client_key),
    ):
        (folder / name).write_text(text)
        lines.append(f'{name} = "{folder / name}"')
    return "\n".join(lines) + "\n"


def gather(cluster: str) -> float:
    """Train once; return the seconds from connected participants to connected workers."""
    with tempfile.TemporaryDirectory(prefix="privet-engines-") as folder:
        x, label = columns_of(ROWS, FEATURES)
        local = prepare(Path(folder), x, label, shards=SHARDS, cluster=cluster, tables=1)
        events = dict(reversed(run(local, lambda name: command(local, name))))
    return events["workers"] - events["connected"]


def main() -> int:
    """Measure, write the results, and print the section of the page."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=REPEATS)
    repeats = parser.parse_args().repeats
    seconds: dict[str, list[float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="privet-dask-")))
        engines = {
            THREADS: "",
            "processes": f"local = {SHARDS}\n",
            "Dask": dask_cluster(folder, stack),
        }
        for _ in range(repeats):
            for name, cluster in engines.items():
                seconds.setdefault(name, []).append(gather(cluster))
                print(name, seconds[name][-1], flush=True)
    figures: Figures = {
        "seconds": seconds,
        "cores": os.cpu_count(),
        "run_seconds": time.perf_counter() - started,
    }
    path = results(repeats != REPEATS) / f"{NAME}.json"
    print(wrapped(section(keep(path, figures, "make bench-engines"))))
    return 0


def section(figures: Figures) -> Iterator[str]:
    """Yield the lines of the page."""
    found = figures["seconds"]
    yield "## The engine's share\n"
    yield (
        f"Two participants and a dealer with {SHARDS} workers each: seconds from having met until "
        f"all workers are told what to do, the median of {len(found[THREADS])} trainings that take "
        f"turns on {figures['cores']} cores that others use, too. With threads that is meeting "
        "over TLS; an engine takes what is longer, here also as a part of a training of a minute. "
        f"{where(figures)}\n"
    )
    middle = {name: statistics.median(each) for name, each in found.items()}
    rows = [
        [
            name,
            f"{seconds:.2f}",
            f"{min(found[name]):.2f} to {max(found[name]):.2f}",
            f"{seconds - middle[THREADS]:.2f}" if name != THREADS else "",
            f"{(seconds - middle[THREADS]) / _MINUTE:.1%}" if name != THREADS else "",
        ]
        for name, seconds in middle.items()
    ]
    yield from table(("", "s", "from, to", "s of the engine", "of a minute"), rows)


if __name__ == "__main__":
    sys.exit(main())
