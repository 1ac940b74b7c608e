"""Prediction in shards: leaves are looked up by workers, all else is done by heads.

Reference: `boosting.inference.predict`, which the heads run.
"""

from __future__ import annotations

from collections.abc import Sequence

from privet.arithmetic.shares import Share, concatenate
from privet.boosting.federation import SUITES
from privet.runtime.orders import END, Head, Order, Worker
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime
from privet.suites.suite import AppliedTests
from privet.terms.shards import Shard

INFER = "infer"
"""The order to look leaves up."""
WORTHWHILE = 1 << 16
"""Heads predict batches of fewer rows themselves: gathering workers would take longer."""


def infer_in_shards(
    runtime: Runtime, leaf_values: Share, shards: Sequence[Shard], workers: Sequence[Head]
) -> Share:
    """Return a share of what tables, (tables, K, 2^depth), add to the scores: (K, N).

    Every group masks the leaf values for itself, and looks its own rows' leaves up.
    """
    for worker in workers:
        worker.give(Order(INFER, (), (leaf_values,)))
    outputs, ring = leaf_values.shape[1], leaf_values.ring
    due = [Share.unknown((outputs, shard.n_rows), ring) for shard in shards]
    if not isinstance(runtime, Party):
        return concatenate(due, axis=1)
    answers = [worker.answer([each])[0] for worker, each in zip(workers, due, strict=True)]
    return concatenate(answers, axis=1)


def infer_shard(runtime: Runtime, protocol: str, tests: AppliedTests, orders: Worker) -> None:
    """Look the leaves of one shard's rows up, whenever our head says so, until there is no more.

    Reveals: nothing.
    """
    while (order := orders.next()).name != END:
        assert order.name == INFER
        with runtime.step_again("predict"):
            found = SUITES[protocol].infer(runtime, tests, order.shares[0])
        if isinstance(runtime, Party):
            orders.done([found])
