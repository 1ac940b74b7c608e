"""What a training takes, before it starts: rounds and bytes exactly, memory and time by models.

Delays and the link's rate are as given. Computing is what the reference machine takes for it, by a
linear model of rounds, bytes and products, fitted to trainings at LAN speed
(`python -m benchmarks.evidence calibrate`). While the link carries bytes, participants compute: of
the smaller of the two times, only a part shows. What the dealer sends takes time, too, unless it
was sent before.

Memory is what the protocol's arrays take, and what `python -m benchmarks.heads` found beside them:
it says how far off that is.
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
"""Bytes of a process that does nothing yet."""
_READING_BYTES = 210_000_000
"""Of one that reads a table, however long."""
_OF_A_ROW = 50
"""Of a row that somebody works on, beside what the protocol takes: its id, label and number."""
_OF_A_CELL = 3
"""Its bucket, and its place in the order of these."""
_TO_LEARN_OF_A_ROW = 120
"""While cuts are found: the same, and one column three times over."""


@dataclass(frozen=True)
class CostEstimate:
    """What a training will take, known before it starts."""

    rounds: int
    online_bytes: int
    """Bytes that all participants send each other."""
    offline_bytes: int
    """Bytes that the dealer sends."""
    memory_bytes: int
    """About the most bytes of memory that a participant's process takes, or each worker's."""
    n_multiplications: int
    """Of a participant's dense work."""
    dealer_bytes: int = 0
    """Bytes that three dealers send each other."""
    masks: str = "uniform"
    """Those of rows: uniform or lattice."""
    worker_bytes: int = 0
    """Bytes of shares between a participant and its workers, if rows are in shards."""
    coordinator_memory_bytes: int = 0
    """What a participant's own process takes, then, if workers are in others."""
    scratch_bytes: int = 0
    """Bytes of a participant's table on disk, for a while: of all its workers, too, if any."""


def estimate_cost(
    training_spec: TrainingSpec,
    plan: Plan,
    n_trained_tables: int = 0,
    dealers: int = 1,
    before: Cost = _NO_COST,
) -> CostEstimate:
    """Return what a training will take, from its plan alone, if some tables are done.

    As if none was saved by stopping early. `before` is what everybody does before it.
    """
    left = plan.params.tables - n_trained_tables
    total = before + count_explanation_cost(training_spec, plan, dealers)
    total += _of_validation(training_spec, plan, dealers)
    if left:
        total += _total(training_spec, plan, n_trained_tables, dealers)
    return CostEstimate(
        rounds=total.rounds,
        online_bytes=total.online_bytes,
        offline_bytes=total.offline_bytes,
        memory_bytes=_estimate_process_memory(training_spec, _of_a_worker(plan)),
        n_multiplications=training_spec.protocol_type.count_multiplications(plan) * left,
        dealer_bytes=total.dealer_bytes,
        masks="lattice" if plan.n_lattice_errors else "uniform",
        worker_bytes=total.worker_bytes,
        coordinator_memory_bytes=_estimate_coordinator_memory(plan) if plan.shards > 1 else 0,
        scratch_bytes=estimate_scratch_bytes(plan.n_rows, _count_most_features(plan), plan.shards),
    )


def _of_a_worker(plan: Plan) -> Plan:
    """Return a plan for the rows that one process works on: all, or those of a shard."""
    largest = plan.split_into_shards()[-1]
    return replace(plan, n_samples=largest.n_samples, n_validation=largest.n_validation, shards=1)


def _count_most_features(plan: Plan) -> int:
    """Return how many features the participant has that has the most."""
    return max(Tally(plan.ownership.features).values())


def _estimate_process_memory(training_spec: TrainingSpec, plan: Plan) -> int:
    """Return what somebody takes who works on all rows of a plan: to read them, or to train."""
    own = (_OF_A_ROW + _OF_A_CELL * _count_most_features(plan)) * plan.n_rows
    return _PROCESS_BYTES + max(
        _READING_BYTES, own + training_spec.protocol_type.estimate_memory(plan)
    )


def _estimate_coordinator_memory(plan: Plan) -> int:
    """Return what a participant takes whose workers are elsewhere: to learn of all rows."""
    return _PROCESS_BYTES + max(
        _READING_BYTES, (_TO_LEARN_OF_A_ROW + _count_most_features(plan)) * plan.n_rows
    )


def estimate_scratch_bytes(rows: int, features: int, shards: int) -> int:
    """Return what a table takes on disk before its buckets are all that is left of it.

    Where rows are in shards, all workers together take as much again.
    """
    cells = features * rows
    return (1 + (shards > 1)) * 9 * cells if 8 * cells > MAX_MEMORY_BYTES else 0


def _total(training_spec: TrainingSpec, plan: Plan, n_trained_tables: int, dealers: int) -> Cost:
    """Return what is left of a training costs: tables that draw alike features, alike."""
    setup, total = Cost(), Cost()
    found: dict[tuple[tuple[int, int], ...], Cost] = {}
    for number in range(n_trained_tables, plan.params.tables):
        drawn = plan.list_sampled_cut_counts(number)
        if drawn not in found:
            setup, found[drawn] = count_training_cost(training_spec, plan, number, dealers)
        total += found[drawn]
    return setup + total


def count_training_cost(
    training_spec: TrainingSpec, plan: Plan, number: int = 0, dealers: int = 1
) -> tuple[Cost, Cost]:
    """Return what setting up costs, and what a table does, by counting it through."""
    counter = CostCounter(len(training_spec.parties), n_dealers=dealers)
    params = plan.params.model_copy(update={"tables": number + 1})
    once = replace(plan, params=params, has_explanations=False)
    train(counter, training_spec, once, None, n_trained_tables=number)
    setup, table = Cost(), Cost()
    for step, cost in counter.cost_by_step.items():
        if step.partition("/")[0] == "setup":
            setup += cost
        else:
            table += cost
    return setup, table


def _of_validation(training_spec: TrainingSpec, plan: Plan, dealers: int) -> Cost:
    """Return what validation rows cost at the end of all tables."""
    counter = CostCounter(len(training_spec.parties), n_dealers=dealers)
    reveal_validation_results(
        counter, training_spec, plan, TrainingOutput(plan.params.tables, None), None
    )
    return counter.total


def count_explanation_cost(training_spec: TrainingSpec, plan: Plan, dealers: int = 1) -> Cost:
    """Return what deriving contributions costs after the last table: nothing, unless agreed."""
    counter = CostCounter(len(training_spec.parties), n_dealers=dealers)
    if plan.has_explanations:
        derive_explanation(counter, training_spec.protocol_type, plan, plan.params.tables, None, {})
    return counter.total


@dataclass(frozen=True)
class ComputeSpeed:
    """How fast a core computes: seconds for what a training takes."""

    start: float
    """To start the processes."""
    per_round: float
    per_online_byte: float
    per_offline_byte: float
    per_product: float

    def estimate_seconds(self, cost: CostEstimate) -> float:
        """Return the seconds that computing takes where every process has a core of its own."""
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
"""A 16-core Xeon, on which every process has a core of its own."""

OVERLAP_FRACTION = 0.6
"""How much of the smaller of carrying and computing the larger one hides."""


DEALER_PLACEMENTS = ("ahead", "own", "shared")
"""Where the dealer's bytes are carried: before the training; meanwhile, on a link of the dealer's
own, of the same delay and rate; or on the participants' link."""


@dataclass(frozen=True)
class TimeEstimate:
    """Where the time of a training goes, in seconds."""

    delays: float
    transfer_seconds: float
    compute_seconds: float
    dealing: float = 0.0
    """How long a link of the dealer's own is busy, beside all that."""

    @property
    def total(self) -> float:
        """All of it; carrying and computing overlap, and nobody can be done before the dealer."""
        small, large = sorted((self.transfer_seconds, self.compute_seconds))
        return max(self.delays + large + (1 - OVERLAP_FRACTION) * small, self.dealing)


def estimate_time(
    cost: CostEstimate,
    delay: float,
    rate: float,
    processes_per_core: float = 1.0,
    dealer: str = "ahead",
) -> TimeEstimate:
    """Return the time of a training at a one-way delay in seconds and a rate in bytes a second.

    The rate is shared by all traffic between participants, and dealers' bytes are carried as one of
    DEALERS. Processes that share a core wait for each other; that three dealers wait for each other
    is not counted.
    """
    assert dealer in DEALER_PLACEMENTS
    computing = REFERENCE_SPEED.estimate_seconds(cost) * max(1.0, processes_per_core)
    carried = cost.online_bytes + (
        cost.offline_bytes + cost.dealer_bytes if dealer == "shared" else 0
    )
    # Three dealers take turns, so that each one's link carries a third of all.
    on_a_link = (cost.offline_bytes + cost.dealer_bytes) / (3 if cost.dealer_bytes else 1)
    dealing = REFERENCE_SPEED.start + delay + on_a_link / rate if dealer == "own" else 0.0
    return TimeEstimate(cost.rounds * delay, carried / rate, computing, dealing)
