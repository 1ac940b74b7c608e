"""What a training cost, from its meters, as the report shows it."""

from __future__ import annotations

import os

from privet.boosting.estimate import DEALERS, Estimate, time_of
from privet.laboratory.report import Bytes, EstimatedSeconds, Rounds, Seconds
from privet.runtime.launcher import Outcome
from privet.runtime.meter import Meter
from privet.runtime.network import Network

# The steps of `boosting.federation.train`.
_SETUP, _TABLE, _LEVEL = "setup", "table", "table/level"


def seconds(outcome: Outcome, wall: float) -> Seconds:
    """Return where the time went; the slowest participant's counts."""
    return Seconds(
        train=wall - outcome.ahead_seconds,
        ahead=outcome.ahead_seconds,
        setup=max(meter.seconds[_SETUP] for meter in outcome.meters),
        online=max(meter.seconds[_TABLE] for meter in outcome.meters),
        offline=outcome.dealer_seconds,
    )


def estimated(cost: Estimate, network: Network, n_parties: int) -> EstimatedSeconds | None:
    """Return what the cost model says of a training; None where nothing limits the network."""
    if network.delay_ms is None or not network.shared:
        return None
    rate = network.mbit * 1e6 / 8
    crowd = (n_parties + 1) / (os.cpu_count() or 1)
    return EstimatedSeconds(
        **{
            dealer: time_of(cost, network.delay_ms / 1000, rate, crowd, dealer).total
            for dealer in DEALERS
        }
    )


def traffic(outcome: Outcome) -> Bytes:
    """Return the bytes of a training."""
    meters, steps = outcome.meters, (_SETUP, _TABLE)
    online = [meter.total("online", _TABLE).sent for meter in meters]
    return Bytes(
        online_total=sum(online),
        online_max_party=max(online),
        offline_total=sum(
            meter.total("offline", step).received for meter in meters for step in steps
        ),
        setup_total=sum(meter.total("online", _SETUP).sent for meter in meters),
        between_dealers=sum(
            meter.total("online", step).sent for meter in outcome.dealer_meters for step in steps
        ),
    )


def rounds(meter: Meter, levels: int) -> Rounds:
    """Return the rounds of a training: all participants wait for the same ones."""
    steps = [meter.total("online", step).rounds for step in (_SETUP, _TABLE)]
    return Rounds(total=sum(steps), per_level=meter.total("online", _LEVEL).rounds / levels)
