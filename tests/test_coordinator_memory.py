"""The memory estimate of coordinators and workers matches the measured memory."""

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
def test_memory_matches_the_estimate(run: dict[str, object]) -> None:
    """Compare the current estimate to the results of `make bench-heads`."""
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
    estimate = {"memory": found.memory_bytes, "memory_of_head": found.coordinator_memory_bytes}
    compared = list(heads.compared({**run, "estimate": estimate}))
    assert len(compared) == (1 if shards == 1 else 2)
    for process, measured, estimated in compared:
        assert 0.75 < measured / estimated < 1.33, process
    assert found.scratch_bytes == (9 * 25 * rows if shards == 1 else 18 * 25 * rows)


def local_workers() -> set[int]:
    return set(workers_of(os.getpid()))


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_workers_are_distinguished_from_other_child_processes(method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    workers = [context.Process(target=time.sleep, args=(60,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        deadline = time.monotonic() + 20
        while not {worker.pid for worker in workers} <= (found := local_workers()):
            assert time.monotonic() < deadline
        tracker, server = vars(resource_tracker._resource_tracker), vars(forkserver._forkserver)
        helpers = {tracker["_pid"], server["_forkserver_pid"]}
        assert helpers - {None}
        assert helpers.isdisjoint(found)
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
