"""Training as a program: what every participant and the dealer run.

Reference: the paper's Algorithm 2, for any suite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns
from privet.boosting.model import Feature
from privet.boosting.objective import initial_score
from privet.boosting.params import Params
from privet.boosting.part import GUARD_BITS, LabelUnit, ModelPart, kept_leaves
from privet.config import Task
from privet.errors import DataError
from privet.runtime.runtime import Runtime
from privet.suites.masked.suite import MaskedSuite
from privet.suites.paper.suite import PaperSuite
from privet.suites.plan import OwnData, Plan, TrainedTable
from privet.suites.suite import Suite

SUITES: dict[str, type[Suite]] = {"masked": MaskedSuite, "paper": PaperSuite}
PREDICTION_BITS: dict[Task, int] = {"classification": 10, "regression": 12}
"""Fraction bits of revealed scores, unless a job says otherwise: a prediction need not say more."""
MOST_PREDICTION_BITS = 14


@dataclass(frozen=True)
class Federation:
    """Who takes part in what: agreed by all participants and the dealer."""

    protocol: str
    params: Params
    parties: tuple[str, ...]
    features: tuple[Feature, ...]
    active: int
    """Which party holds the label."""
    prediction_bits: int
    """Fraction bits of revealed scores, in a regression in the label's unit."""
    reveal_loss: bool = False
    """Whether all agreed to learn the training loss, table by table."""

    @property
    def fraction_bits(self) -> int:
        """Fraction bits of the leaf values that participants keep."""
        return self.prediction_bits + GUARD_BITS

    @property
    def suite(self) -> type[Suite]:
        """The protocol's suite."""
        return SUITES[self.protocol]

    def plan(self, n_samples: int) -> Plan:
        """Return the plan for training on that many samples; raise if it cannot be done."""
        params = self.params
        if not self.features:
            raise DataError("no participant has a feature: there is nothing to test")
        plan = Plan(
            task=params.task,
            n_samples=n_samples,
            owners=tuple(self.parties.index(feature.owner) for feature in self.features),
            active=self.active,
            tables=params.tables,
            depth=params.depth,
            buckets=params.buckets,
            l2=params.l2,
            learning_rate=params.learning_rate,
            initial_score=0.0 if params.task == "regression" else params.base_score or 0.0,
            reveal_loss=self.reveal_loss,
        )
        self.suite.check(plan)
        return plan


@dataclass(frozen=True, repr=False)
class PartyData:
    """What one participant brings to a training."""

    columns: BucketedColumns
    label: FloatArray | None


@dataclass(frozen=True, repr=False)
class TrainingState:
    """All that a participant needs to go on with a training after some tables."""

    part: ModelPart
    scores: npt.NDArray[np.uint64]
    """Our share of the samples' scores."""
    loss: float | None = None
    """The mean squared residual before the last table, if all agreed to learn it."""


def train(
    runtime: Runtime,
    federation: Federation,
    plan: Plan,
    data: PartyData | None,
    *,
    done: int = 0,
    state: TrainingState | None = None,
    on_state: Callable[[TrainingState], None] | None = None,
) -> ModelPart | None:
    """Train a model; return our part of it, and None to the dealer.

    1. The active participant shares its label; all samples start from the same score.
    2. For each table: train it on the loss's derivatives at the scores; add its leaf values to
       them.

    After `done` tables of an earlier training, which is the same at all, participants go on from
    the `state` that it had then, under fresh masks. `on_state` is called after every table.

    Reveals: what the suite's `train_table` reveals; the loss to all, if they agreed on that.
    """
    if done == plan.tables:
        return None if state is None else state.part
    unit = None
    if state is not None:
        unit = state.part.unit
    elif data is not None and data.label is not None:
        unit = _label_unit(data.label, federation.params)
    suite = federation.suite(runtime, plan, _own_data(data, unit, plan.task))
    with runtime.step("setup"):
        suite.setup()
    drop = federation.suite.encoding.fraction_bits - federation.fraction_bits
    tables: list[TrainedTable] = []
    if state is not None:
        assert state.part.n_tables == done
        tables = state.part.trained_tables()
        suite.scores = Share(state.scores, Z64)
    part = None if state is None else state.part
    for number in range(done, plan.tables):
        with runtime.step("table"):
            table = suite.train_table(number)
            loss = _reveal_loss(runtime, suite, table)
        leaves = kept_leaves(table.leaf_values, drop, runtime.index, runtime.n_parties)
        tables.append(replace(table, leaf_values=leaves))
        if data is not None:
            part = _part(federation, plan, data.columns, tables, unit)
            if on_state is not None:
                on_state(TrainingState(part, suite.scores.part, loss))
        runtime.progress(number + 1)
    return part


def _reveal_loss(runtime: Runtime, suite: Suite, table: TrainedTable) -> float | None:
    if table.loss is None:
        return None
    everybody = range(runtime.n_parties)
    revealed = runtime.reveal(table.loss, list(everybody), "training loss")
    return None if revealed is None else suite.loss_of(revealed)


def _label_unit(label: FloatArray, params: Params) -> LabelUnit:
    start = initial_score(label, params)
    return LabelUnit.of(label, start) if params.task == "regression" else LabelUnit(start)


def _own_data(data: PartyData | None, unit: LabelUnit | None, task: Task) -> OwnData | None:
    if data is None:
        return None
    label = data.label
    if label is not None and unit is not None and task == "regression":
        label = unit.shrink(label)
    return OwnData(data.columns.buckets, label)


def _part(
    federation: Federation,
    plan: Plan,
    columns: BucketedColumns,
    tables: Sequence[TrainedTable],
    unit: LabelUnit | None,
) -> ModelPart:
    feature = np.stack([table.features for table in tables])
    bucket = np.stack([table.buckets for table in tables])
    # The row of each feature among our own columns; the others' tests have no bucket.
    row = np.zeros(plan.n_features, dtype=np.intp)
    own = plan.features_of(federation.parties.index(columns.owner))
    row[own] = np.arange(len(own))
    threshold = np.full(feature.shape, np.nan)
    ours = bucket >= 0
    threshold[ours] = columns.thresholds[row[feature[ours]], bucket[ours]]
    return ModelPart(
        protocol=federation.protocol,
        task=plan.task,
        features=federation.features,
        party=columns.owner,
        feature=feature,
        bucket=bucket,
        threshold=threshold,
        leaf_shares=np.stack([table.leaf_values.part for table in tables]),
        fraction_bits=federation.fraction_bits,
        unit=unit,
    )
