"""Training and prediction as programs: what every participant and the dealer run.

Reference: the paper's Algorithm 2, for any suite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns
from privet.boosting.model import Feature
from privet.boosting.objective import initial_score, sigmoid
from privet.boosting.params import Params
from privet.boosting.part import LabelUnit, ModelPart
from privet.config import Task
from privet.errors import DataError
from privet.runtime.runtime import Runtime
from privet.suites.masked.suite import MaskedSuite
from privet.suites.paper.suite import PaperSuite
from privet.suites.plan import AppliedTests, OwnData, Plan, TrainedTable
from privet.suites.suite import Suite

SUITES: dict[str, type[Suite]] = {"masked": MaskedSuite, "paper": PaperSuite}


@dataclass(frozen=True)
class Federation:
    """Who takes part in what: agreed by all participants and the dealer."""

    protocol: str
    params: Params
    parties: tuple[str, ...]
    features: tuple[Feature, ...]
    active: int
    """Which party holds the label."""
    reveal_loss: bool = False
    """Whether all agreed to learn the training loss, table by table."""

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
    if data is not None and data.label is not None:
        unit = _label_unit(data.label, federation.params)
    suite = federation.suite(runtime, plan, _own_data(data, unit, plan.task))
    with runtime.step("setup"):
        suite.setup()
    tables: list[TrainedTable] = []
    if state is not None:
        assert state.part.n_tables == done
        tables = state.part.trained_tables()
        suite.scores = Share(state.scores, Z64)
    part = None if state is None else state.part
    for number in range(done, plan.tables):
        with runtime.step("table"):
            tables.append(suite.train_table())
            loss = _reveal_loss(runtime, suite, tables[-1])
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
        fraction_bits=federation.suite.encoding.fraction_bits,
        unit=unit,
    )


@dataclass(frozen=True)
class Query:
    """A batch to predict, as all participants and the dealer know it."""

    protocol: str
    task: Task
    shape: tuple[int, int, int]
    """(tables, depth, n_samples)."""
    active: int
    recipient: int
    """Who receives the predictions."""


def tell_unit(runtime: Runtime, query: Query, part: ModelPart | None) -> LabelUnit | None:
    """Return the label's unit to the recipient of predictions, once, before the first of them.

    Reveals: the unit to the recipient, if it is not the active participant, who has it.
    """
    unit = None if part is None else part.unit
    if query.recipient == query.active:
        return unit
    with runtime.step("predict"):
        numbers = None if unit is None else np.array([unit.centre, unit.scale]).view(np.uint64)
        shared = runtime.share(numbers, query.active, (2,), Z64)
        revealed = runtime.reveal(shared, [query.recipient], "centre and scale of the label")
    return None if revealed is None else LabelUnit(*revealed.view(np.float64).tolist())


def predict(
    runtime: Runtime,
    query: Query,
    parties: Sequence[str],
    part: ModelPart | None,
    columns: FloatArray | None,
    unit: LabelUnit | None,
) -> FloatArray | None:
    """Predict new samples; return values or probabilities to the recipient, None to all others.

    1. Every participant applies its own tests; the suite adds up the leaf values on shares.
    2. The scores are revealed to the recipient, who knows the label's unit (`tell_unit`).

    Reveals: the scores to the recipient.
    """
    tables, depth, _ = query.shape
    with runtime.step("predict"):
        leaves = Share.unknown((tables, 1 << depth), Z64)
        tests = AppliedTests(query.shape, None, None)
        if part is not None and columns is not None:
            leaves = Share(part.leaf_shares, Z64)
            tests = AppliedTests(query.shape, part.test_owners(parties), part.fails(columns))
        suite = SUITES[query.protocol]
        scores = suite.infer(runtime, tests, leaves)
        revealed = runtime.reveal(scores, [query.recipient], "predictions")
        if revealed is None:
            return None
        assert unit is not None
        score = unit.restore(suite.encoding.decode(revealed))
        return score if query.task == "regression" else sigmoid(score)


@dataclass(frozen=True)
class Trial:
    """A training, and a prediction of other samples with its model: the program of a simulation."""

    federation: Federation
    plan: Plan
    n_new: int = 0

    def __call__(
        self, runtime: Runtime, data: tuple[PartyData, FloatArray | None] | None
    ) -> TrialResult:
        """Run as one participant, or as the dealer."""
        own, new = (None, None) if data is None else data
        part = train(runtime, self.federation, self.plan, own)
        predictions = None
        if self.n_new:
            active = self.federation.active
            shape = (self.plan.tables, self.plan.depth, self.n_new)
            query = Query(self.federation.protocol, self.plan.task, shape, active, active)
            unit = tell_unit(runtime, query, part)
            predictions = predict(runtime, query, self.federation.parties, part, new, unit)
        return TrialResult(part, predictions)


@dataclass(frozen=True)
class TrialResult:
    """What one participant has at the end of a trial."""

    part: ModelPart | None
    predictions: FloatArray | None
    """At the active participant."""
