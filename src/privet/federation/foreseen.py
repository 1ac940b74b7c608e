"""What a job's training will take, in figures, before anybody starts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privet.boosting.estimate import DEALERS, Estimate, Time, estimate, time_of
from privet.errors import ParameterError
from privet.federation.dealt_training import numbered_features
from privet.federation.ids import cost_of_comparing
from privet.files.checkpoint import room_for_checkpoints
from privet.files.job import Job
from privet.terms.monotone import Monotone


@dataclass(frozen=True)
class Foreseen:
    """What a training will take, wherever it takes place."""

    cost: Estimate
    at_most: bool
    """Whether the numbers of cuts are not known yet, and are taken to be the most there can be."""
    checkpoints: int
    """Bytes in a participant's folder of models, at most, while it trains."""
    to_start_workers: int
    """Bytes that a participant tells its workers before they start: which rows are theirs."""

    @property
    def of_orders(self) -> int:
        """Bytes between a participant and its workers."""
        return self.to_start_workers + self.cost.orders

    def times(self, delay: float, rate: float) -> dict[str, Time]:
        """Return where the time goes at a delay in ms and a rate in Mbit/s, by who deals how."""
        link = delay / 1000, rate * 1e6 / 8
        return {dealer: time_of(self.cost, *link, dealer=dealer) for dealer in DEALERS}

    def figures(self, delay: float, rate: float) -> dict[str, Any]:
        """Return all of it as a program takes it."""
        times = self.times(delay, rate)
        time = times["ahead"]
        return {
            "at_most": self.at_most,
            "rounds": self.cost.rounds,
            "bytes_online": self.cost.online,
            "bytes_offline": self.cost.offline,
            "bytes_between_dealers": self.cost.between,
            "memory": self.cost.memory,
            "memory_of_head": self.cost.head_memory,
            "bytes_on_disk_for_a_while": self.cost.scratch,
            "bytes_of_checkpoints": self.checkpoints,
            "bytes_of_orders": self.of_orders,
            "masks": self.cost.masks,
            "seconds": time.total,
            "seconds_by_dealer": {dealer: found.total for dealer, found in times.items()},
            "seconds_of_delays": time.delays,
            "seconds_of_carrying": time.carrying,
            "seconds_of_computing": time.computing,
        }


def foresee(
    job: Job,
    samples: int,
    counts: Sequence[int],
    *,
    cut_counts: tuple[int, ...] | None = None,
    monotone: Monotone | None = None,
    kept: bool = False,
) -> Foreseen:
    """Count a training through: of so many rows, and so many columns of each participant.

    Where it is not known which columns are constrained, each participant's first ones are. `kept`
    tells whether all indicators are there from an earlier training.
    """
    signs = _first_constrained(job, counts) if monotone is None else monotone
    federation = job.federation(numbered_features(job, counts), cut_counts, signs)
    everybody = tuple(range(len(job.names))) if kept else None
    cost = estimate(
        federation,
        federation.plan(samples, everybody),
        dealers=len(job.dealer_names),
        before=cost_of_comparing(job),
    )
    return Foreseen(
        cost,
        at_most=job.told_cuts != "hidden" and cut_counts is None,
        checkpoints=room_for_checkpoints(samples, job.hyper_parameters()),
        to_start_workers=8 * samples if job.shards > 1 else 0,
    )


def _first_constrained(job: Job, counts: Sequence[int]) -> Monotone:
    """Return constraints as if those of each participant were on its first columns."""
    found: list[int] = []
    for name, count in zip(job.names, counts, strict=True):
        own = list(job.monotone.get(name, {}).values())
        if len(own) > count:
            raise ParameterError(
                f"features: {count} of {name}, and the job constrains {len(own)} of its columns"
            )
        found += [*own, *[0] * (count - len(own))]
    return tuple(found)
