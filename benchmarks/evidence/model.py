"""What the cost model says of a row: recomputed whenever rows are shown, with today's constants."""

from __future__ import annotations

import math
from collections.abc import Mapping

from privet.boosting.estimate import Estimate, Time, time_of
from privet.runtime.network import Network

_IN_MEMORY = 1 << 25
"""Indicator matrices of more elements lie in a file, and are read for every level."""


def predicted(row: Mapping[str, str]) -> Time:
    """Return the time that a row should take."""
    network = Network.parse(row["network"])
    # Where each has a rate of its own, it is for what it sends.
    share = 1 if network.shared else int(row["parties"])
    rate = math.inf if network.delay_ms is None else network.mbit * 1e6 / 8 * share
    cost = Estimate(
        rounds=int(row["predicted_rounds"]),
        online=int(row["predicted_bytes"]),
        offline=int(row["predicted_offline_bytes"]),
        memory=0,
        multiplications=int(row["products"]),
    )
    crowd = (int(row["parties"]) + 1) / int(row["machine"].split()[0])
    return time_of(cost, (network.delay_ms or 0.0) / 1000, rate, crowd)


def lies_on_disk(row: Mapping[str, str]) -> bool:
    """Tell whether the indicators of a row do not fit into memory."""
    return int(row["products"]) // int(row["tables"]) >> int(row["depth"]) > _IN_MEMORY


def has_time(row: Mapping[str, str]) -> bool:
    """Tell whether a row is one of time, not of accuracy alone."""
    return bool(row.get("predicted_rounds"))
