"""What is said of memory before a training is about what processes took of it."""

from __future__ import annotations

import pytest
from benchmarks import heads
from benchmarks.evidence.kept import read, results

from privet.boosting.estimate import estimate
from privet.boosting.federation import Federation
from privet.boosting.model import Feature
from privet.terms.params import Params

RUNS = read(results(quick=False) / f"{heads.NAME}.json")["runs"]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run['shards']} shards")
def test_memory_is_as_foreseen(run: dict[str, object]) -> None:
    """As it is foreseen now, and was measured by `make bench-heads`."""
    n_features, rows, shards = (int(str(run[key])) for key in ("features", "rows", "shards"))
    owners = [("bank", "shop")[j >= n_features // 2] for j in range(n_features)]
    federation = Federation(
        protocol="masked",
        params=Params(task="regression", tables=1, depth=heads.DEPTH, masks="lattice"),
        parties=("bank", "shop"),
        features=tuple(Feature(f"x{j}", owner) for j, owner in enumerate(owners)),
        active=1,
        prediction_bits=16,
        shards=shards,
    )
    found = estimate(federation, federation.plan(rows))
    said = {"memory": found.memory, "memory_of_head": found.head_memory}
    compared = list(heads.compared({**run, "estimate": said}))
    assert len(compared) == (1 if shards == 1 else 2)
    for process, taken, foreseen in compared:
        assert 0.75 < taken / foreseen < 1.33, process
    assert found.scratch == (9 * 25 * rows if shards == 1 else 18 * 25 * rows)
