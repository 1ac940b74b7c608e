"""What a training takes, before it starts: rounds, bytes and memory exactly, time by a model.

Delays and the link's rate are as given. Computing is what the reference machine takes for it, by a
linear model of rounds, bytes and products, fitted to trainings at LAN speed
(`python -m benchmarks.evidence calibrate`). While the link carries bytes, participants compute: of
the smaller of the two times, only a part shows.
"""

from __future__ import annotations

from dataclasses import dataclass

from privet.boosting.federation import Federation
from privet.suites.plan import Plan


@dataclass(frozen=True)
class Estimate:
    """What a training will take, known before it starts."""

    rounds: int
    online: int
    """Bytes that all participants send each other."""
    offline: int
    """Bytes that the dealer sends."""
    memory: int
    """About the most bytes that a participant needs."""
    multiplications: int
    """Of a participant's dense work."""


def estimate(federation: Federation, plan: Plan, done: int = 0) -> Estimate:
    """Return what a training will take, from its plan alone, if some tables are done."""
    n_parties = len(federation.parties)
    setup, table = federation.suite.cost(plan, n_parties)
    total = (setup + table * (plan.tables - done)) if done < plan.tables else setup * 0
    return Estimate(
        rounds=total.rounds,
        online=total.online,
        offline=total.offline,
        memory=federation.suite.memory(plan),
        multiplications=federation.suite.multiplications(plan) * (plan.tables - done),
    )


@dataclass(frozen=True)
class Speed:
    """How fast a machine computes, with all participants and the dealer on it."""

    start: float
    """Seconds to start the processes."""
    per_round: float
    per_online_byte: float
    per_offline_byte: float
    per_product: float
    """For each participant, and for the dealer."""

    def computing(self, cost: Estimate, n_parties: int) -> float:
        """Return the seconds that computing takes."""
        return (
            self.start
            + self.per_round * cost.rounds
            + self.per_online_byte * cost.online
            + self.per_offline_byte * cost.offline
            + self.per_product * cost.multiplications * (n_parties + 1)
        )


REFERENCE = Speed(
    start=1.0,
    per_round=2.0e-3,
    per_online_byte=1.0e-8,
    per_offline_byte=5.0e-9,
    per_product=1.0e-10,
)
"""Two cores of a 2.8 GHz Xeon."""

HIDDEN = 0.6
"""How much of the smaller of carrying and computing the larger one hides."""


@dataclass(frozen=True)
class Time:
    """Where the time of a training goes, in seconds."""

    delays: float
    carrying: float
    computing: float

    @property
    def total(self) -> float:
        """All of it; carrying and computing overlap."""
        small, large = sorted((self.carrying, self.computing))
        return self.delays + large + (1 - HIDDEN) * small


def time_of(
    cost: Estimate, n_parties: int, delay: float, rate: float, speed: Speed = REFERENCE
) -> Time:
    """Return the time of a training at a one-way delay in seconds and a rate in bytes a second.

    The rate is shared by all traffic between participants.
    """
    return Time(cost.rounds * delay, cost.online / rate, speed.computing(cost, n_parties))
