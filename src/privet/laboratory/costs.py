"""What a training cost, from its meters, as the report shows it."""

from __future__ import annotations

from collections.abc import Sequence

from privet.laboratory.report import Bytes, Rounds, Seconds
from privet.runtime.launcher import Outcome
from privet.runtime.meter import Meter

# The steps of `boosting.federation.train`.
_SETUP, _TABLE, _LEVEL = "setup", "table", "table/level"


def seconds(outcome: Outcome, train: float) -> Seconds:
    """Return where the time went; the slowest participant's counts."""
    return Seconds(
        train=train,
        setup=max(meter.seconds[_SETUP] for meter in outcome.meters),
        online=max(meter.seconds[_TABLE] for meter in outcome.meters),
        offline=outcome.dealer_seconds,
    )


def traffic(meters: Sequence[Meter]) -> Bytes:
    """Return the bytes of a training."""
    online = [meter.total("online", _TABLE).sent for meter in meters]
    return Bytes(
        online_total=sum(online),
        online_max_party=max(online),
        offline_total=sum(
            meter.total("offline", step).received for meter in meters for step in (_SETUP, _TABLE)
        ),
        setup_total=sum(meter.total("online", _SETUP).sent for meter in meters),
    )


def rounds(meter: Meter, levels: int) -> Rounds:
    """Return the rounds of a training: all participants wait for the same ones."""
    steps = [meter.total("online", step).rounds for step in (_SETUP, _TABLE)]
    return Rounds(total=sum(steps), per_level=meter.total("online", _LEVEL).rounds / levels)
