"""A training in shards: what a worker runs, and what a head does with its workers.

Reference: `boosting.federation.train`, which the heads run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from privet.boosting.federation import Federation, PartyData, own_data
from privet.boosting.part import LabelUnit
from privet.runtime.orders import END, Head, Order, Worker
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime
from privet.suites.shard_worker import Keep
from privet.terms.plan import Plan
from privet.terms.shards import Shard


def rows_of_shard(data: PartyData, plan: Plan, shard: Shard) -> PartyData:
    """Return what a participant brings along of the rows of one shard."""
    rows = shard.positions(plan.n_samples)
    return PartyData(
        replace(data.columns, buckets=data.columns.buckets[:, rows]),
        None if data.label is None else data.label[rows],
        None if data.weight is None else data.weight[list(shard.trained)],
    )


def train_shard(
    runtime: Runtime,
    federation: Federation,
    plan: Plan,
    shard: Shard,
    data: PartyData | None,
    unit: LabelUnit | None,
    orders: Worker,
    *,
    scores: npt.NDArray[np.uint64] | None = None,
    keep: Keep | None = None,
) -> None:
    """Do what the head of a training says with the rows of one shard, until there is no more.

    Participants bring the rows' data, the label's holder its unit, and everybody the scores that an
    earlier training left, to go on from. What the rows come to is told to our head, in shares; the
    dealer's workers tell nothing.

    Reveals: nothing.
    """
    own = own_data(data, unit, plan, runtime.index)
    worker = federation.suite.worker(runtime, plan, shard, own, keep)
    if scores is not None:
        worker.resume(scores)
    while (order := orders.next()).name != END:
        found = worker.carry_out(order)
        if isinstance(runtime, Party):
            orders.done(found)
    worker.leave_table()


def dismiss(workers: Sequence[Head]) -> None:
    """Tell workers that there is no more to do."""
    for worker in workers:
        worker.give(Order(END))
