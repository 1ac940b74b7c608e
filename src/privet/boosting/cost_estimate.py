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

from privet.arithmetic.large_arrays import IN_MEMORY
from privet.boosting.explanation import derive_reasons
from privet.boosting.prediction import validate
from privet.boosting.training import Federation, Trained, train
from privet.runtime.cost import Cost, Counter
from privet.spec.plan import Plan

_NOTHING = Cost()
_PROCESS = 110_000_000
"""Bytes of a process that does nothing yet."""
_READING = 210_000_000
"""Of one that reads a table, however long."""
_OF_A_ROW = 50
"""Of a row that somebody works on, beside what the protocol takes: its id, label and number."""
_OF_A_CELL = 3
"""Its bucket, and its place in the order of these."""
_TO_LEARN_OF_A_ROW = 120
"""While cuts are found: the same, and one column three times over."""


@dataclass(frozen=True)
class Estimate:
    """What a training will take, known before it starts."""

    rounds: int
    online: int
    """Bytes that all participants send each other."""
    offline: int
    """Bytes that the dealer sends."""
    memory: int
    """About the most bytes of memory that a participant's process takes, or each worker's."""
    multiplications: int
    """Of a participant's dense work."""
    between: int = 0
    """Bytes that three dealers send each other."""
    masks: str = "uniform"
    """Those of rows: uniform or lattice."""
    orders: int = 0
    """Bytes of shares between a participant and its workers, if rows are in shards."""
    head_memory: int = 0
    """What a participant's own process takes, then, if workers are in others."""
    scratch: int = 0
    """Bytes of a participant's table on disk, for a while: of all its workers, too, if any."""


def estimate(
    federation: Federation,
    plan: Plan,
    done: int = 0,
    dealers: int = 1,
    before: Cost = _NOTHING,
) -> Estimate:
    """Return what a training will take, from its plan alone, if some tables are done.

    As if none was saved by stopping early. `before` is what everybody does before it.
    """
    left = plan.params.tables - done
    total = before + count_reasons(federation, plan, dealers)
    total += _of_validation(federation, plan, dealers)
    if left:
        total += _total(federation, plan, done, dealers)
    return Estimate(
        rounds=total.rounds,
        online=total.online,
        offline=total.offline,
        memory=_memory_at_work(federation, _of_a_worker(plan)),
        multiplications=federation.suite.multiplications(plan) * left,
        between=total.between,
        masks="lattice" if plan.errors else "uniform",
        orders=total.orders,
        head_memory=_memory_of_a_head(plan) if plan.shards > 1 else 0,
        scratch=scratch(plan.n_rows, _most_features(plan), plan.shards),
    )


def _of_a_worker(plan: Plan) -> Plan:
    """Return a plan for the rows that one process works on: all, or those of a shard."""
    largest = plan.cut()[-1]
    return replace(plan, n_samples=largest.n_samples, n_validation=largest.n_validation, shards=1)


def _most_features(plan: Plan) -> int:
    """Return how many features the participant has that has the most."""
    return max(Tally(plan.ownership.features).values())


def _memory_at_work(federation: Federation, plan: Plan) -> int:
    """Return what somebody takes who works on all rows of a plan: to read them, or to train."""
    own = (_OF_A_ROW + _OF_A_CELL * _most_features(plan)) * plan.n_rows
    return _PROCESS + max(_READING, own + federation.suite.memory(plan))


def _memory_of_a_head(plan: Plan) -> int:
    """Return what a participant takes whose workers are elsewhere: to learn of all rows."""
    return _PROCESS + max(_READING, (_TO_LEARN_OF_A_ROW + _most_features(plan)) * plan.n_rows)


def scratch(rows: int, features: int, shards: int) -> int:
    """Return what a table takes on disk before its buckets are all that is left of it.

    Where rows are in shards, all workers together take as much again.
    """
    cells = features * rows
    return (1 + (shards > 1)) * 9 * cells if 8 * cells > IN_MEMORY else 0


def _total(federation: Federation, plan: Plan, done: int, dealers: int) -> Cost:
    """Return what is left of a training costs: tables that draw alike features, alike."""
    setup, total = Cost(), Cost()
    found: dict[tuple[tuple[int, int], ...], Cost] = {}
    for number in range(done, plan.params.tables):
        drawn = plan.drawn_cuts(number)
        if drawn not in found:
            setup, found[drawn] = count(federation, plan, number, dealers)
        total += found[drawn]
    return setup + total


def count(
    federation: Federation, plan: Plan, number: int = 0, dealers: int = 1
) -> tuple[Cost, Cost]:
    """Return what setting up costs, and what a table does, by counting it through."""
    counter = Counter(len(federation.parties), dealers=dealers)
    params = plan.params.model_copy(update={"tables": number + 1})
    once = replace(plan, params=params, explains=False)
    train(counter, federation, once, None, done=number)
    setup, table = Cost(), Cost()
    for step, cost in counter.steps.items():
        if step.partition("/")[0] == "setup":
            setup += cost
        else:
            table += cost
    return setup, table


def _of_validation(federation: Federation, plan: Plan, dealers: int) -> Cost:
    """Return what validation rows cost at the end of all tables."""
    counter = Counter(len(federation.parties), dealers=dealers)
    validate(counter, federation, plan, Trained(plan.params.tables, None), None)
    return counter.total


def count_reasons(federation: Federation, plan: Plan, dealers: int = 1) -> Cost:
    """Return what deriving contributions costs after the last table: nothing, unless agreed."""
    counter = Counter(len(federation.parties), dealers=dealers)
    if plan.explains:
        derive_reasons(counter, federation.suite, plan, plan.params.tables, None, {})
    return counter.total


@dataclass(frozen=True)
class Speed:
    """How fast a core computes: seconds for what a training takes."""

    start: float
    """To start the processes."""
    per_round: float
    per_online_byte: float
    per_offline_byte: float
    per_product: float

    def computing(self, cost: Estimate) -> float:
        """Return the seconds that computing takes where every process has a core of its own."""
        return (
            self.start
            + self.per_round * cost.rounds
            + self.per_online_byte * cost.online
            + self.per_offline_byte * cost.offline
            + self.per_product * cost.multiplications
        )


REFERENCE = Speed(
    start=1.6,
    per_round=0.0,
    per_online_byte=5.9e-9,
    per_offline_byte=1.35e-9,
    per_product=8.0e-10,
)
"""A 16-core Xeon, on which every process has a core of its own."""

HIDDEN = 0.6
"""How much of the smaller of carrying and computing the larger one hides."""


DEALERS = ("ahead", "own", "shared")
"""Where the dealer's bytes are carried: before the training; meanwhile, on a link of the dealer's
own, of the same delay and rate; or on the participants' link."""


@dataclass(frozen=True)
class Time:
    """Where the time of a training goes, in seconds."""

    delays: float
    carrying: float
    computing: float
    dealing: float = 0.0
    """How long a link of the dealer's own is busy, beside all that."""

    @property
    def total(self) -> float:
        """All of it; carrying and computing overlap, and nobody can be done before the dealer."""
        small, large = sorted((self.carrying, self.computing))
        return max(self.delays + large + (1 - HIDDEN) * small, self.dealing)


def time_of(
    cost: Estimate,
    delay: float,
    rate: float,
    processes_per_core: float = 1.0,
    dealer: str = "ahead",
) -> Time:
    """Return the time of a training at a one-way delay in seconds and a rate in bytes a second.

    The rate is shared by all traffic between participants, and dealers' bytes are carried as one of
    DEALERS. Processes that share a core wait for each other; that three dealers wait for each other
    is not counted.
    """
    assert dealer in DEALERS
    computing = REFERENCE.computing(cost) * max(1.0, processes_per_core)
    carried = cost.online + (cost.offline + cost.between if dealer == "shared" else 0)
    # Three dealers take turns, so that each one's link carries a third of all.
    on_a_link = (cost.offline + cost.between) / (3 if cost.between else 1)
    dealing = REFERENCE.start + delay + on_a_link / rate if dealer == "own" else 0.0
    return Time(cost.rounds * delay, carried / rate, computing, dealing)
