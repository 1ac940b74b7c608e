"""Predicted cost of a row, recomputed with the current constants whenever rows are rendered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from privet.boosting.cost_estimate import CostEstimate, TimeEstimate, estimate_cost, estimate_time
from privet.boosting.model import Feature
from privet.boosting.training import TrainingSpec
from privet.runtime.local.network import Network
from privet.spec.params import Params

_IN_MEMORY = 1 << 26
"""Maximum elements of indicator matrices in memory; larger ones are read from a file."""


def predicted(row: Mapping[str, str]) -> TimeEstimate:
    """Return the predicted time of a row."""
    return _time(row, cost_of(row))


def cost_of(row: Mapping[str, str]) -> CostEstimate:
    """Return the predicted cost of a row at the time of its measurement."""
    return CostEstimate(
        rounds=int(row["predicted_rounds"]),
        online_bytes=int(row["predicted_bytes"]),
        offline_bytes=int(row["predicted_offline_bytes"]),
        memory_bytes=0,
        n_multiplications=int(row["products"]),
    )


def by_paper(row: Mapping[str, str]) -> tuple[CostEstimate, TimeEstimate]:
    """Return the predicted cost and time of the same training run by the paper's protocol."""
    cost = counted(row, "paper")
    return cost, _time(row, cost)


def counted(row: Mapping[str, str], protocol: str, classes: int = 2) -> CostEstimate:
    """Return the estimated cost of training with a row's sizes by a protocol."""
    parties = tuple(f"party{number}" for number in range(int(row["parties"])))
    owners = [
        parties[k]
        for k, part in enumerate(np.array_split(np.arange(int(row["features"])), len(parties)))
        for _ in part
    ]
    sizes: dict[str, Any] = {name: int(row[name]) for name in ("tables", "depth", "buckets")}
    params = Params(task=row["task"], classes=classes, learning_rate=1.0, **sizes)
    training_spec = TrainingSpec(
        protocol=protocol,
        params=params,
        parties=parties,
        features=tuple(Feature(str(j), owner) for j, owner in enumerate(owners)),
        active=len(parties) - 1,
        prediction_bits=params.objective.prediction_bits,
    )
    return estimate_cost(training_spec, training_spec.make_plan(int(row["samples"])))


def _time(row: Mapping[str, str], cost: CostEstimate) -> TimeEstimate:
    network = Network.parse(row["network"])
    # A rate for each participant applies to the bytes that it sends.
    share = 1 if network.shared else int(row["parties"])
    rate = math.inf if network.delay_ms is None else network.mbit * 1e6 / 8 * share
    processes_per_core = (int(row["parties"]) + 1) / int(row["machine"].split()[0])
    return estimate_time(cost, (network.delay_ms or 0.0) / 1000, rate, processes_per_core)


def lies_on_disk(row: Mapping[str, str]) -> bool:
    """Return whether the indicators of a row are too large for memory."""
    return int(row["products"]) // int(row["tables"]) >> int(row["depth"]) > _IN_MEMORY


def has_time(row: Mapping[str, str]) -> bool:
    """Return whether a row has times, and not only accuracy."""
    return bool(row.get("predicted_rounds"))
