"""The cost estimate of a training run: exact rounds and bytes, modelled memory and time.

Compute time is that of the reference machine: a linear model of rounds, bytes and products, fitted
to training runs at LAN speed (`python -m benchmarks.evidence calibrate`). Transfer and computation
overlap, so only part of the shorter of the two adds to the total (`OVERLAP_FRACTION`).

Memory is the size of the protocol's arrays plus the constants below, which `python -m
benchmarks.heads` measured; its output also contains the error of the estimate.
"""

from __future__ import annotations

from collections import Counter as Tally
from dataclasses import dataclass, replace

from privet.arithmetic.large_arrays import MAX_MEMORY_BYTES
from privet.boosting.explanation import derive_explanation
from privet.boosting.prediction import reveal_validation_results
from privet.boosting.training import TrainingOutput, TrainingSpec, train
from privet.runtime.cost import Cost, CostCounter
from privet.spec.plan import Plan

_NO_COST = Cost()
_PROCESS_BYTES = 110_000_000
"""Bytes of an idle process."""
_READING_BYTES = 210_000_000
"""Additional bytes while it reads a table of any length."""
_ROW_BYTES = 50
"""Bytes of a row outside the protocol's arrays: its id, label and number."""
_CELL_BYTES = 3
"""Bytes of a cell: its bucket, and its position in the order of the buckets."""
_FITTING_ROW_BYTES = 120
"""Bytes of a row while thresholds are chosen, with three copies of one column."""


@dataclass(frozen=True)
class CostEstimate:
    """The estimated cost of a training run."""

    rounds: int
    online_bytes: int
    """Bytes that all participants together send each other."""
    offline_bytes: int
    """Bytes that the dealer sends."""
    memory_bytes: int
    """Estimated peak memory of a participant's process, or of each of its workers."""
    n_multiplications: int
    """Multiplications of a participant in dense linear algebra."""
    dealer_bytes: int = 0
    """Bytes that three dealers together send each other."""
    masks: str = "uniform"
    """The masks of rows: `uniform` or `lattice`."""
    worker_bytes: int = 0
    """Bytes of shares between a participant and its workers, if rows are in shards."""
    coordinator_memory_bytes: int = 0
    """Estimated peak memory of the coordinator's process, if rows are in shards."""
    scratch_bytes: int = 0
    """Bytes of temporary files on disk, of a participant and all of its workers."""


def estimate_cost(
    training_spec: TrainingSpec,
    plan: Plan,
    n_trained_tables: int = 0,
    dealers: int = 1,
    before: Cost = _NO_COST,
) -> CostEstimate:
    """Estimate the cost of the tables after `n_trained_tables`, from the plan.

    Early stopping is not taken into account. `before` is the cost of the steps before training,
    such as comparing ids.
    """
    n_remaining = plan.params.tables - n_trained_tables
    total = before + count_explanation_cost(training_spec, plan, dealers)
    total += _count_validation_cost(training_spec, plan, dealers)
    if n_remaining:
        total += _sum_remaining_cost(training_spec, plan, n_trained_tables, dealers)
    return CostEstimate(
        rounds=total.rounds,
        online_bytes=total.online_bytes,
        offline_bytes=total.offline_bytes,
        memory_bytes=_estimate_process_memory(training_spec, _make_worker_plan(plan)),
        n_multiplications=training_spec.protocol_type.count_multiplications(plan) * n_remaining,
        dealer_bytes=total.dealer_bytes,
        masks="lattice" if plan.n_lattice_errors else "uniform",
        worker_bytes=total.worker_bytes,
        coordinator_memory_bytes=_estimate_coordinator_memory(plan) if plan.shards > 1 else 0,
        scratch_bytes=estimate_scratch_bytes(plan.n_rows, _count_most_features(plan), plan.shards),
    )


def _make_worker_plan(plan: Plan) -> Plan:
    """Return a plan for the rows of one process: all rows, or those of the largest shard."""
    largest = plan.split_into_shards()[-1]
    return replace(plan, n_samples=largest.n_samples, n_validation=largest.n_validation, shards=1)


def _count_most_features(plan: Plan) -> int:
    """Return the largest number of features of any participant."""
    return max(Tally(plan.ownership.features).values())


def _estimate_process_memory(training_spec: TrainingSpec, plan: Plan) -> int:
    """Return the peak memory of a process that reads all rows of a plan and trains on them."""
    local_bytes = (_ROW_BYTES + _CELL_BYTES * _count_most_features(plan)) * plan.n_rows
    return _PROCESS_BYTES + max(
        _READING_BYTES, local_bytes + training_spec.protocol_type.estimate_memory(plan)
    )


def _estimate_coordinator_memory(plan: Plan) -> int:
    """Return the peak memory of a coordinator, which fits encoders and thresholds to all rows."""
    return _PROCESS_BYTES + max(
        _READING_BYTES, (_FITTING_ROW_BYTES + _count_most_features(plan)) * plan.n_rows
    )


def estimate_scratch_bytes(rows: int, features: int, shards: int) -> int:
    """Return the bytes of a table's temporary files, which exist until it is bucketed.

    If rows are in shards, all workers together use as much again.
    """
    cells = features * rows
    return (1 + (shards > 1)) * 9 * cells if 8 * cells > MAX_MEMORY_BYTES else 0


def _sum_remaining_cost(
    training_spec: TrainingSpec, plan: Plan, n_trained_tables: int, dealers: int
) -> Cost:
    """Return the cost of the remaining tables, counted once for each set of sampled cut counts."""
    setup, total = Cost(), Cost()
    cost_by_cuts: dict[tuple[tuple[int, int], ...], Cost] = {}
    for number in range(n_trained_tables, plan.params.tables):
        cut_counts = plan.list_sampled_cut_counts(number)
        if cut_counts not in cost_by_cuts:
            setup, cost_by_cuts[cut_counts] = count_training_cost(
                training_spec, plan, number, dealers
            )
        total += cost_by_cuts[cut_counts]
    return setup + total


def count_training_cost(
    training_spec: TrainingSpec, plan: Plan, number: int = 0, dealers: int = 1
) -> tuple[Cost, Cost]:
    """Return the cost of the setup and of one table, by running the program on a counter."""
    counter = CostCounter(len(training_spec.parties), n_dealers=dealers)
    params = plan.params.model_copy(update={"tables": number + 1})
    up_to_table = replace(plan, params=params, has_explanations=False)
    train(counter, training_spec, up_to_table, None, n_trained_tables=number)
    setup, table = Cost(), Cost()
    for step, cost in counter.cost_by_step.items():
        if step.partition("/")[0] == "setup":
            setup += cost
        else:
            table += cost
    return setup, table


def _count_validation_cost(training_spec: TrainingSpec, plan: Plan, dealers: int) -> Cost:
    """Return the cost of the steps on validation rows after the last table."""
    counter = CostCounter(len(training_spec.parties), n_dealers=dealers)
    reveal_validation_results(
        counter, training_spec, plan, TrainingOutput(plan.params.tables, None), None
    )
    return counter.total


def count_explanation_cost(training_spec: TrainingSpec, plan: Plan, dealers: int = 1) -> Cost:
    """Return the cost of deriving contributions after the last table: 0, unless agreed."""
    counter = CostCounter(len(training_spec.parties), n_dealers=dealers)
    if plan.has_explanations:
        derive_explanation(counter, training_spec.protocol_type, plan, plan.params.tables, None, {})
    return counter.total


@dataclass(frozen=True)
class ComputeSpeed:
    """Compute time of a core: seconds for each unit of a training run's cost."""

    start: float
    """Seconds to start the processes."""
    per_round: float
    per_online_byte: float
    per_offline_byte: float
    per_product: float

    def estimate_seconds(self, cost: CostEstimate) -> float:
        """Return the compute time, if every process has its own core."""
        return (
            self.start
            + self.per_round * cost.rounds
            + self.per_online_byte * cost.online_bytes
            + self.per_offline_byte * cost.offline_bytes
            + self.per_product * cost.n_multiplications
        )


REFERENCE_SPEED = ComputeSpeed(
    start=1.6,
    per_round=0.0,
    per_online_byte=5.9e-9,
    per_offline_byte=1.35e-9,
    per_product=8.0e-10,
)
"""A 16-core Xeon, on which every process has its own core."""

OVERLAP_FRACTION = 0.6
"""The part of the shorter of transfer and compute time that the longer one hides."""


DEALER_PLACEMENTS = ("ahead", "own", "shared")
"""How the dealer's bytes are transferred: before training (offline preprocessing); during training
on the dealer's own link, of the same delay and rate; or during training on the participants' link.
"""


@dataclass(frozen=True)
class TimeEstimate:
    """The estimated time of a training run, in seconds."""

    delays: float
    transfer_seconds: float
    compute_seconds: float
    dealing: float = 0.0
    """The time that the dealer's own link is busy, in parallel to the rest."""

    @property
    def total(self) -> float:
        """The total time: transfer and computation overlap, and it is at least `dealing`."""
        small, large = sorted((self.transfer_seconds, self.compute_seconds))
        return max(self.delays + large + (1 - OVERLAP_FRACTION) * small, self.dealing)


def estimate_time(
    cost: CostEstimate,
    delay: float,
    rate: float,
    processes_per_core: float = 1.0,
    dealer: str = "ahead",
) -> TimeEstimate:
    """Return the time of a training run at a one-way delay in seconds and a rate in bytes a second.

    All participants share the rate. `dealer` is one of `DEALER_PLACEMENTS`. Processes that share a
    core wait for each other; the time that three dealers wait for each other is not counted.
    """
    assert dealer in DEALER_PLACEMENTS
    compute_seconds = REFERENCE_SPEED.estimate_seconds(cost) * max(1.0, processes_per_core)
    n_transferred = cost.online_bytes + (
        cost.offline_bytes + cost.dealer_bytes if dealer == "shared" else 0
    )
    # Three dealers take turns, so each dealer's link carries a third of the bytes.
    dealer_link_bytes = (cost.offline_bytes + cost.dealer_bytes) / (3 if cost.dealer_bytes else 1)
    dealer_seconds = (
        REFERENCE_SPEED.start + delay + dealer_link_bytes / rate if dealer == "own" else 0.0
    )
    return TimeEstimate(cost.rounds * delay, n_transferred / rate, compute_seconds, dealer_seconds)
