"""What the other workers of a shard's group see is explained by other rows of the one they lack.

A group reveals nothing, so any other data of the same shape will do: other labels, buckets and
weights, other outcomes of tests, and other shares of leaf values from a head. Heads run what they
run without shards.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from privet.arithmetic.rings import Z1, Z32
from privet.arithmetic.shares import Share
from privet.boosting.sharding import ShardInference, select_shard
from privet.boosting.training import TrainingData, make_protocol_input
from privet.protocols.masked.precision.scores import Scales
from privet.protocols.masked.protocol import MaskedProtocol
from privet.protocols.masked.sharding import MaskedShardWorker
from privet.runtime.runtime import Runtime
from privet.runtime.workers import Command
from tests.privacy.cases import N
from tests.privacy.explain import explain
from tests.privacy.lattice import uniform_lattice
from tests.privacy.stage import Randomness, perform
from tests.protocols.masked.test_shards import case


class Group:
    """All that a group does in a training of one table: the program of its workers."""

    def __init__(self, shards: int, rows: int = 48, **changes: Any) -> None:
        self.federation, plan, self.inputs, *_ = case(shards, rows, tables=1, depth=2, **changes)
        self.plan = plan
        self.shard = plan.split_into_shards()[1]
        self.ring = Scales.from_plan(plan).score_ring

    def __call__(self, runtime: Runtime, data: tuple[TrainingData, Any, Any] | None) -> None:
        own, unit, leaves = data or (None, None, None)
        given = make_protocol_input(own, unit, self.plan, runtime.index)
        worker = MaskedShardWorker(runtime, self.plan, self.shard, given)
        shape = (self.plan.objective.n_outputs, self.plan.params.n_leaves)
        values = Share.unknown(shape, self.ring) if leaves is None else Share(leaves, self.ring)
        owners = self.plan.ownership.features
        for order in (
            Command("setup"),
            *([Command("root curvature")] if self.plan.objective.constant_hessian else []),
            Command("begin table", (0,)),
            Command("checked squares"),
            Command("sums", (0,)),
            Command("split", (0, 0, 3 if owners[0] == runtime.index else -1)),
            Command("sums", (1,)),
            Command("split last", (1, 4, 5 if owners[4] == runtime.index else -1)),
            Command("add leaves", (), (values,)),
            *([Command("validate")] if self.plan.n_validation else []),
        ):
            worker.execute(order)
        worker.end_table()

    def data(self, seed: int) -> list[tuple[TrainingData, Any, Any]]:
        """Return what every worker has: its rows, and its head's share of leaf values."""
        rng, found = np.random.default_rng(seed), []
        for data in self.inputs:
            unit = None
            if data.label is not None:
                label = data.label[: self.plan.n_samples]
                unit = self.federation.find_label_unit(label, data.sample_weight, self.plan)
            shape = (self.plan.objective.n_outputs, self.plan.params.n_leaves)
            shares = rng.integers(0, 1 << self.ring.bits, shape, dtype=np.uint64)
            rows = select_shard(data, self.plan, self.shard)
            found.append((rows, unit, shares.astype(self.ring.dtype)))
        return found


def other(own: tuple[TrainingData, Any, Any], seed: int) -> tuple[TrainingData, Any, Any]:
    """Return rows that have nothing to do with the first."""
    data, unit, leaves = own
    rng = np.random.default_rng(seed)
    columns = data.columns
    buckets = rng.integers(0, 8, columns.buckets.shape).astype(columns.buckets.dtype)
    changed = replace(data, columns=replace(columns, buckets=buckets))
    if data.label is not None:
        changed = replace(changed, label=data.label[rng.permutation(len(data.label))])
    if data.sample_weight is not None:
        changed = replace(changed, sample_weight=data.sample_weight[::-1].copy())
    ring = np.iinfo(leaves.dtype)
    return changed, unit, rng.integers(0, ring.max, leaves.shape, dtype=leaves.dtype, endpoint=True)


@pytest.mark.parametrize("honest", [0, 1])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"task": "classification", "validation": 0.25},
        {"weighted": True, "validation": 0.25},
        {"task": "classification", "subsample": 0.5, "sizes": (2, 1, 2)},
    ],
    ids=lambda changes: ", ".join(map(str, changes)) or "regression",
)
def test_workers_of_all_others_learn_nothing_of_a_shard(
    changes: dict[str, Any], honest: int
) -> None:
    group = Group(3, **changes)
    data = group.data(1)
    session = perform(group, data, Randomness("a group"))
    explain(session, honest, other(data[honest], 2))


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_the_same_with_lattice_masks(task: str) -> None:
    with uniform_lattice():
        group = Group(2, 2 * N, task=task, masks="lattice")
        assert group.plan.n_lattice_errors
        data = group.data(1)
        session = perform(group, data, Randomness("a group"))
        explain(session, 1, other(data[1], 2))


TABLES, DEPTH, OUTPUTS, ROWS = 2, 2, 2, 12
OWNERS = np.array([[0, 1], [1, 0]])
"""Whose each test is."""


class Outcomes(NamedTuple):
    """What a worker hears from its head: which rows fail its tests, and shares of a model."""

    fails: Any
    leaves: Any
    start: Any
    contributions: Any

    @classmethod
    def of(cls, owner: int, seed: int) -> Outcomes:
        rng, leaves = np.random.default_rng(seed), 1 << DEPTH
        fails = rng.integers(0, 2, (TABLES, DEPTH, ROWS), dtype=np.uint8)
        shapes = (TABLES, OUTPUTS, leaves), (OUTPUTS, 1), (TABLES, OUTPUTS, DEPTH, leaves)
        shares = [rng.integers(0, 2**32, shape, dtype=np.uint32) for shape in shapes]
        fails[np.not_equal(OWNERS, owner)] = 0
        return cls(fails, *shares)


def infer_in_a_group(runtime: Runtime, told: Outcomes | None) -> None:
    """All that a group does with trained tables: the program of its workers."""
    rings = (Z1, Z32, Z32, Z32)
    parts = told if told is not None else Outcomes.of(0, 0)
    fails, leaves, start, contributions = (
        Share.unknown(part.shape, ring) if told is None else Share(part, ring)
        for part, ring in zip(parts, rings, strict=True)
    )
    groups = (2, *(() if told is None else OWNERS.reshape(-1).tolist()))
    worker = ShardInference(runtime, MaskedProtocol)
    for order in (
        Command("outcomes", (), (fails,)),
        Command("scores", (), (leaves, start)),
        Command("explained", groups, (leaves, start, contributions)),
        Command("absolute sums", groups, (leaves, contributions)),
    ):
        worker.execute(order)


@pytest.mark.parametrize("honest", [0, 1])
def test_workers_of_all_others_learn_nothing_of_rows_to_predict(honest: int) -> None:
    data = [Outcomes.of(owner, owner) for owner in range(2)]
    session = perform(infer_in_a_group, data, Randomness("a group"))
    explain(session, honest, Outcomes.of(honest, 2))
