"""What the cost model says of a row: recomputed whenever rows are shown, with today's constants."""

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
"""Indicator matrices of more elements lie in a file, and are read for every level."""


def predicted(row: Mapping[str, str]) -> TimeEstimate:
    """Return the time that a row should take."""
    return _time(row, cost_of(row))


def cost_of(row: Mapping[str, str]) -> CostEstimate:
    """Return what a row costs, as it was computed when it was measured."""
    return CostEstimate(
        rounds=int(row["predicted_rounds"]),
        online_bytes=int(row["predicted_bytes"]),
        offline_bytes=int(row["predicted_offline_bytes"]),
        memory_bytes=0,
        n_multiplications=int(row["products"]),
    )


def by_paper(row: Mapping[str, str]) -> tuple[CostEstimate, TimeEstimate]:
    """Return what the same training would cost by the paper's protocol, and its time."""
    cost = counted(row, "paper")
    return cost, _time(row, cost)


def counted(row: Mapping[str, str], protocol: str, classes: int = 2) -> CostEstimate:
    """Return what a training of a row's sizes costs by a protocol, counted without training."""
    parties = tuple(f"party{number}" for number in range(int(row["parties"])))
    owners = [
        parties[k]
        for k, part in enumerate(np.array_split(np.arange(int(row["features"])), len(parties)))
        for _ in part
    ]
    sizes: dict[str, Any] = {name: int(row[name]) for name in ("tables", "depth", "buckets")}
    params = Params(task=row["task"], classes=classes, learning_rate=1.0, **sizes)
    federation = TrainingSpec(
        protocol=protocol,
        params=params,
        parties=parties,
        features=tuple(Feature(str(j), owner) for j, owner in enumerate(owners)),
        active=len(parties) - 1,
        prediction_bits=params.objective.prediction_bits,
    )
    return estimate_cost(federation, federation.make_plan(int(row["samples"])))


def _time(row: Mapping[str, str], cost: CostEstimate) -> TimeEstimate:
    network = Network.parse(row["network"])
    # Where each has a rate of its own, it is for what it sends.
    share = 1 if network.shared else int(row["parties"])
    rate = math.inf if network.delay_ms is None else network.mbit * 1e6 / 8 * share
    crowd = (int(row["parties"]) + 1) / int(row["machine"].split()[0])
    return estimate_time(cost, (network.delay_ms or 0.0) / 1000, rate, crowd)


def lies_on_disk(row: Mapping[str, str]) -> bool:
    """Tell whether the indicators of a row do not fit into memory."""
    return int(row["products"]) // int(row["tables"]) >> int(row["depth"]) > _IN_MEMORY


def has_time(row: Mapping[str, str]) -> bool:
    """Tell whether a row is one of time, not of accuracy alone."""
    return bool(row.get("predicted_rounds"))
