"""What is said of memory before a training is about what processes took of it."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from multiprocessing import forkserver, resource_tracker
from typing import Any

import pytest
from benchmarks import heads
from benchmarks.evidence.kept import read, results
from benchmarks.processes import workers_of

from privet.boosting.cost_estimate import estimate_cost
from privet.boosting.model import Feature
from privet.boosting.training import TrainingSpec
from privet.spec.params import Params

RUNS = read(results(quick=False) / f"{heads.NAME}.json")["runs"]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run['shards']} shards")
def test_memory_is_as_foreseen(run: dict[str, object]) -> None:
    """As it is foreseen now, and was measured by `make bench-heads`."""
    n_features, rows, shards = (int(str(run[key])) for key in ("features", "rows", "shards"))
    owners = [("bank", "shop")[j >= n_features // 2] for j in range(n_features)]
    federation = TrainingSpec(
        protocol="masked",
        params=Params(task="regression", tables=1, depth=heads.DEPTH, masks="lattice"),
        parties=("bank", "shop"),
        features=tuple(Feature(f"x{j}", owner) for j, owner in enumerate(owners)),
        active=1,
        prediction_bits=16,
        shards=shards,
    )
    found = estimate_cost(federation, federation.make_plan(rows))
    said = {"memory": found.memory_bytes, "memory_of_head": found.coordinator_memory_bytes}
    compared = list(heads.compared({**run, "estimate": said}))
    assert len(compared) == (1 if shards == 1 else 2)
    for process, taken, foreseen in compared:
        assert 0.75 < taken / foreseen < 1.33, process
    assert found.scratch_bytes == (9 * 25 * rows if shards == 1 else 18 * 25 * rows)


def workers_of_ours() -> set[int]:
    return set(workers_of(os.getpid()))


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_workers_are_told_from_what_else_a_head_starts(method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    workers = [context.Process(target=time.sleep, args=(60,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        until = time.monotonic() + 20
        while not {worker.pid for worker in workers} <= (found := workers_of_ours()):
            assert time.monotonic() < until
        tracker, server = vars(resource_tracker._resource_tracker), vars(forkserver._forkserver)
        beside = {tracker["_pid"], server["_forkserver_pid"]}
        assert beside - {None}
        assert beside.isdisjoint(found)
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
