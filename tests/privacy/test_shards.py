"""Other rows of the honest worker explain the view of the other workers of a shard's group.

A group reveals nothing, so any data of the same shape explain it: other labels, buckets and
weights, other outcomes of splits, and other shares of leaf values from a coordinator. Coordinators
run the same gates as without shards.
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
    """The program of a group's workers in a training run of one table."""

    def __init__(self, shards: int, rows: int = 48, **changes: Any) -> None:
        self.federation, plan, self.inputs, *_ = case(shards, rows, tables=1, depth=2, **changes)
        self.plan = plan
        self.shard = plan.split_into_shards()[1]
        self.ring = Scales.from_plan(plan).score_ring

    def __call__(self, runtime: Runtime, data: tuple[TrainingData, Any, Any] | None) -> None:
        rows, unit, leaves = data or (None, None, None)
        protocol_input = make_protocol_input(rows, unit, self.plan, runtime.index)
        worker = MaskedShardWorker(runtime, self.plan, self.shard, protocol_input)
        shape = (self.plan.objective.n_outputs, self.plan.params.n_leaves)
        values = Share.unknown(shape, self.ring) if leaves is None else Share(leaves, self.ring)
        owners = self.plan.ownership.features
        for command in (
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
            worker.execute(command)
        worker.end_table()

    def data(self, seed: int) -> list[tuple[TrainingData, Any, Any]]:
        """Return the inputs of workers: rows, and their coordinator's share of leaf values."""
        rng, inputs = np.random.default_rng(seed), []
        for data in self.inputs:
            unit = None
            if data.label is not None:
                label = data.label[: self.plan.n_samples]
                unit = self.federation.find_label_unit(label, data.sample_weight, self.plan)
            shape = (self.plan.objective.n_outputs, self.plan.params.n_leaves)
            shares = rng.integers(0, 1 << self.ring.bits, shape, dtype=np.uint64)
            rows = select_shard(data, self.plan, self.shard)
            inputs.append((rows, unit, shares.astype(self.ring.dtype)))
        return inputs


def make_other_inputs(
    inputs: tuple[TrainingData, Any, Any], seed: int
) -> tuple[TrainingData, Any, Any]:
    """Return independent inputs of the same shapes."""
    data, unit, leaves = inputs
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
def test_training_workers_learn_nothing_about_a_shard(changes: dict[str, Any], honest: int) -> None:
    group = Group(3, **changes)
    data = group.data(1)
    session = perform(group, data, Randomness("a group"))
    explain(session, honest, make_other_inputs(data[honest], 2))


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_training_workers_with_lattice_masks(task: str) -> None:
    with uniform_lattice():
        group = Group(2, 2 * N, task=task, masks="lattice")
        assert group.plan.n_lattice_errors
        data = group.data(1)
        session = perform(group, data, Randomness("a group"))
        explain(session, 1, make_other_inputs(data[1], 2))


TABLES, DEPTH, OUTPUTS, ROWS = 2, 2, 2, 12
OWNERS = np.array([[0, 1], [1, 0]])
"""The owner of each split."""


class PredictionInputs(NamedTuple):
    """A coordinator's messages to its worker: outcomes of local splits, and shares of a model."""

    goes_right: Any
    leaves: Any
    start: Any
    contributions: Any

    @classmethod
    def draw(cls, owner: int, seed: int) -> PredictionInputs:
        rng, leaves = np.random.default_rng(seed), 1 << DEPTH
        goes_right = rng.integers(0, 2, (TABLES, DEPTH, ROWS), dtype=np.uint8)
        shapes = (TABLES, OUTPUTS, leaves), (OUTPUTS, 1), (TABLES, OUTPUTS, DEPTH, leaves)
        shares = [rng.integers(0, 2**32, shape, dtype=np.uint32) for shape in shapes]
        goes_right[np.not_equal(OWNERS, owner)] = 0
        return cls(goes_right, *shares)


def infer_in_a_group(runtime: Runtime, inputs: PredictionInputs | None) -> None:
    """Run the program of a group's workers with trained tables."""
    rings = (Z1, Z32, Z32, Z32)
    parts = inputs if inputs is not None else PredictionInputs.draw(0, 0)
    goes_right, leaves, start, contributions = (
        Share.unknown(part.shape, ring) if inputs is None else Share(part, ring)
        for part, ring in zip(parts, rings, strict=True)
    )
    groups = (2, *(() if inputs is None else OWNERS.reshape(-1).tolist()))
    worker = ShardInference(runtime, MaskedProtocol)
    for command in (
        Command("outcomes", (), (goes_right,)),
        Command("scores", (), (leaves, start)),
        Command("explained", groups, (leaves, start, contributions)),
        Command("absolute sums", groups, (leaves, contributions)),
    ):
        worker.execute(command)


@pytest.mark.parametrize("honest", [0, 1])
def test_prediction_workers_learn_nothing_about_rows(honest: int) -> None:
    data = [PredictionInputs.draw(owner, owner) for owner in range(2)]
    session = perform(infer_in_a_group, data, Randomness("a group"))
    explain(session, honest, PredictionInputs.draw(honest, 2))
