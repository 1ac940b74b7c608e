"""Shards: what a worker runs in a training or a prediction, until its head has no more to do.

Reference: `boosting.federation.train` and `boosting.inference`, which the heads run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from privet.boosting.federation import Federation, PartyData, own_data
from privet.boosting.part import LabelUnit
from privet.boosting.sharded_inference import ShardInference
from privet.runtime.orders import END, METER, PULSE, Head, Order, Worker
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime
from privet.suites.shard_worker import Keep
from privet.suites.suite import AppliedTests, Suite
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

    That is training, and what is done with validation rows after the last table.

    Participants bring the rows' data, the label's holder its unit, and everybody the scores that an
    earlier training left, to go on from. What the rows come to is told to our head, in shares; the
    dealer's workers tell nothing.

    Reveals: nothing.
    """
    own = own_data(data, unit, plan, runtime.index)
    worker = federation.suite.worker(runtime, plan, shard, own, keep)
    if scores is not None:
        worker.resume(scores)
    validated = {feature: rows[shard.n_samples :] for feature, rows in own.buckets.items()}
    inference = ShardInference(runtime, federation.suite, None, validated, shard.n_validation)
    while (order := orders.next()).name != END:
        if ShardInference.knows(order):
            worker.leave_table()
            found = inference.carry_out(order)
        else:
            found = worker.carry_out(order)
        if isinstance(runtime, Party):
            orders.done(found, runtime.meter.figures())
    worker.leave_table()


def infer_shard(
    runtime: Runtime, suite: type[Suite], tests: AppliedTests | None, orders: Worker
) -> None:
    """Predict what the head of a prediction says, in one shard, until there is no more.

    Where a head goes on for long, it asks in between what was metered so far.

    Reveals: nothing.
    """
    inference = ShardInference(runtime, suite, tests)
    while (order := orders.next()).name != END:
        if order.name == METER:
            orders.metered(runtime.meter)
        elif order.name != PULSE:
            found = inference.carry_out(order)
            if isinstance(runtime, Party):
                orders.done(found, runtime.meter.figures())


def dismiss(workers: Sequence[Head]) -> None:
    """Tell workers that there is no more to do."""
    for worker in workers:
        worker.give(Order(END))
