"""Training as a secure program, with early stopping on validation rows.

Reference: the paper's Algorithm 2, for any suite.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import Z32
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns
from privet.boosting.explanation import derive_explanation
from privet.boosting.model import Feature
from privet.boosting.model_part import GUARD_BITS, LabelUnit, ModelPart
from privet.errors import DataError, ParameterError, ResultError
from privet.gates.arithmetic import truncate_locally
from privet.gates.masked.indicators import IndicatorCache
from privet.gates.masked.truncation import divide_exactly
from privet.protocols.masked.protocol import MaskedProtocol
from privet.protocols.paper.protocol import PaperProtocol
from privet.protocols.protocol import ProtocolInput, SecureProtocol, TrainedTable
from privet.runtime.runtime import Runtime
from privet.runtime.workers import WorkerHandle
from privet.spec.params import Params
from privet.spec.plan import (
    CutDisclosure,
    ExplainBy,
    MonotoneConstraints,
    Ownership,
    Plan,
    normalise_constraints,
    require_some_cut,
)
from privet.spec.sampling import count_validation_rows, decide_early_stop


class EarlyStopping:
    """The losses of one training, which the label's holder knows, and its word when to stop."""

    def __init__(
        self, runtime: Runtime, plan: Plan, unit: LabelUnit | None, losses: Sequence[float]
    ) -> None:
        self._runtime = runtime
        self._plan = plan
        self._label_unit = unit
        self.losses = list(losses)
        """After each table: at the label's holder, in the label's own unit; nobody else has any."""

    def reveal_training_loss(self, protocol: SecureProtocol, table: TrainedTable) -> float | None:
        """Return the loss that a table started from, if all agreed to learn it."""
        if table.loss is None:
            return None
        everybody = range(self._runtime.n_parties)
        revealed = self._runtime.reveal(table.loss, everybody, "training loss")
        return None if revealed is None else protocol.decode_loss(revealed)

    def record_validation_loss(self, protocol: SecureProtocol) -> None:
        """Have the loss after one more table computed, if there are validation rows.

        Reveals: the mean loss to the label's holder alone.
        """
        if not self._plan.n_validation:
            return
        active = self._plan.ownership.active
        revealed = self._runtime.reveal(
            protocol.compute_validation_loss(), [active], "validation loss"
        )
        if revealed is not None and self._label_unit is not None:
            self.losses.append(
                protocol.decode_validation_loss(revealed) * self._label_unit.scale**2
            )

    def decide(self, n_trained_tables: int) -> int:
        """Return how many tables to keep, if training ends after so many, and 0 if it goes on.

        Reveals: that number to all and the dealer, where there is patience.
        """
        params = self._plan.params
        last = n_trained_tables == params.tables
        if params.patience is None:
            return n_trained_tables if last else 0
        active, own = self._plan.ownership.active, None
        if self._runtime.index == active:
            # Without a history, which a part alone does not have, all there is was kept before.
            own = n_trained_tables
            if self.losses:
                own = decide_early_stop(self.losses, params.patience, params.tables)
        with self._runtime.step("table"), self._runtime.step("stop"):
            told = self._runtime.announce(own, active, "number of tables to keep, or none yet")
        if told is None:  # a counter, or a dealer ahead of its time: it never stops
            return n_trained_tables if last else 0
        if told > n_trained_tables or (last and not told):
            raise ResultError(
                f"{told} tables to keep, of {n_trained_tables}, from participant {active + 1}"
            )
        if told and not last:
            self._runtime.end_early()
        return told


PROTOCOL_TYPES: dict[str, type[SecureProtocol]] = {"masked": MaskedProtocol, "paper": PaperProtocol}
"""All protocols that compute on shares, by name."""


def resolve_cut_disclosure(protocol: str, requested: CutDisclosure | None) -> CutDisclosure:
    """Return what all learn of the numbers of cuts, if somebody said so or not."""
    allowed = PROTOCOL_TYPES[protocol].cut_disclosures
    if requested is not None and requested not in allowed:
        raise ParameterError(
            f"cuts: the protocol {protocol} has {' or '.join(allowed)} alone, not {requested!r}: "
            "leave it out, or use another protocol"
        )
    return requested or allowed[0]


@dataclass(frozen=True)
class TrainingSpec:
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
    has_explanations: bool = False
    """Whether all agreed to derive what features contribute to scores."""
    reveal_validation: bool = False
    """Whether all agreed that the label's holder receives the predictions of validation rows."""
    reveal_gain: bool = False
    """Whether all agreed that the label's holder learns what each level gains."""
    importances_by: ExplainBy | None = None
    """By what it learns mean absolute contributions to scores of validation rows, if it does."""
    announced_cut_counts: tuple[int, ...] | None = None
    """What all were told of each feature's number of cuts; None: nothing."""
    is_weighted: bool = False
    """Whether samples have weights, which the active party alone knows."""
    monotone: MonotoneConstraints = ()
    """Which way scores may move as features grow, if some may not move both ways."""
    shards: int = 1
    """In how many parts rows are trained on."""

    @property
    def fraction_bits(self) -> int:
        """Fraction bits of the leaf values that participants keep."""
        return self.prediction_bits + GUARD_BITS

    def find_label_unit(
        self, label: FloatArray, sample_weight: FloatArray | None, plan: Plan
    ) -> LabelUnit:
        """Return where scores start, and in which unit they are, from a label to train on."""
        start = plan.params.compute_initial_scores(label, sample_weight)
        if plan.objective.normalised_label:
            return LabelUnit.from_label(
                label,
                float(start[0]),
                float(self.protocol_type.compute_label_stretch(plan)),
                sample_weight,
            )
        encoding = FixedPoint(self.fraction_bits, Z32)  # as predictions will start
        return LabelUnit(tuple(encoding.decode(encoding.encode(start)).tolist()))

    @property
    def protocol_type(self) -> type[SecureProtocol]:
        """The protocol's suite."""
        return PROTOCOL_TYPES[self.protocol]

    def make_plan(
        self,
        n_rows: int,
        cached_owners: tuple[int, ...] | None = None,
        n_validation: int | None = None,
    ) -> Plan:
        """Return the plan for training on that many rows; raise if it cannot be done.

        `cached_owners` are the participants whose indicators all have, if indicators are kept at
        all. The last `n_validation` rows are set aside: None, as many as the parameters say.
        """
        if not self.features:
            raise DataError("no participant has a feature: there is nothing to test")
        require_some_cut(self.announced_cut_counts)
        owners = tuple(self.parties.index(feature.owner) for feature in self.features)
        if n_validation is None:
            n_validation = count_validation_rows(n_rows, self.params)
        plan = Plan(
            params=self.params,
            ownership=Ownership(owners, self.active),
            n_samples=n_rows - n_validation,
            n_validation=n_validation,
            reveal_validation=self.reveal_validation and n_validation > 0,
            is_weighted=self.is_weighted,
            reveal_loss=self.reveal_loss,
            reveal_gain=self.reveal_gain,
            importances_by=self.importances_by if n_validation else None,
            has_explanations=self.has_explanations,
            announced_cut_counts=self.announced_cut_counts,
            cached_owners=cached_owners,
            monotone=normalise_constraints(self.monotone, len(owners), self.params.objective),
            shards=self.shards,
        )
        plan.split_into_shards()  # raises, if there are more shards than rows
        return self.protocol_type.settle_plan(plan, len(self.parties))


@dataclass(frozen=True, repr=False)
class TrainingData:
    """What one participant brings to a training: rows to train on, then those to validate with."""

    columns: BucketedColumns
    label: FloatArray | None
    sample_weight: FloatArray | None = None
    """Of every sample, in means, at the active participant, where samples have weights."""


@dataclass(frozen=True, repr=False)
class IndicatorCacheConfig:
    """What one role needs to keep indicators for trainings to come, and to use kept ones."""

    seeds: Mapping[int, Sequence[bytes]]
    """Of the masks that last, by their owner: our own, or, at a dealer, all that it is told."""
    shelf: IndicatorCache | None = None
    """Where a participant keeps what others published."""


@dataclass(frozen=True, repr=False)
class TrainingState:
    """All that a participant needs to go on with a training after some tables."""

    part: ModelPart
    scores: npt.NDArray[np.uint64]
    """Our share of the scores of all rows: (outputs, n_rows)."""
    loss: float | None = None
    """The mean squared residual before the last table, if all agreed to learn it."""
    losses: tuple[float, ...] = ()
    """At the label's holder, those on validation rows, if there are any: one after each table."""


@dataclass(frozen=True, repr=False)
class TrainingOutput:
    """What a training ends with."""

    n_tables: int
    """How many there are, which the dealer knows, too."""
    part: ModelPart | None
    """Our part of the model; None at the dealer."""
    losses: tuple[float, ...] = ()
    """At the label's holder, those on validation rows: of tables that were not kept, too."""


def train(
    runtime: Runtime,
    training_spec: TrainingSpec,
    plan: Plan,
    data: TrainingData | None,
    *,
    n_trained_tables: int = 0,
    state: TrainingState | None = None,
    on_state: Callable[[TrainingState], None] | None = None,
    indicator_cache: IndicatorCacheConfig | None = None,
    workers: Sequence[WorkerHandle] = (),
) -> TrainingOutput:
    """Train a model, and return our part of it.

    1. The active participant shares its label; all rows start from scores that it knows.
    2. For each table: train it on the loss's derivatives at the scores of training rows; add its
       leaf values to the scores of all rows.
    3. After each table the active participant learns the loss on validation rows, if there are any,
       and, with patience, says whether to stop, and how many tables to keep.
    4. If all agreed on that: derive what features contribute to scores.

    After `n_trained_tables` tables of an earlier training, the same at all, participants go on from
    the `state` it had then, under fresh masks. `indicator_cache` goes with a plan that keeps
    indicators, workers with one that has rows in shards: they have the scores.

    Reveals: what the suite's `train_table` reveals; the loss to all, if they agreed on that; what
    `EarlyStopping` reveals. The numbers of cuts in the plan were told before.
    """
    if plan.announced_cut_counts is not None:
        runtime.record_disclosure("numbers of cuts", len(plan.announced_cut_counts))
    unit = resolve_label_unit(training_spec, plan, data, state)
    own = make_protocol_input(data, unit, plan, runtime.index, rows=0 if workers else None)
    if indicator_cache is not None:
        runtime.use_persistent_masks(indicator_cache.seeds)
        own = replace(own, indicator_cache=indicator_cache.shelf)
    watch = EarlyStopping(runtime, plan, unit, () if state is None else state.losses)
    suite = training_spec.protocol_type(runtime, plan, own, workers)
    with runtime.step("setup"):
        keep = watch.decide(n_trained_tables) if n_trained_tables else 0
        if not keep:
            suite.setup()
    if state is not None and not keep:
        assert state.part.n_tables == n_trained_tables
        suite.restore_scores(state.scores)
    part, thresholds = None, {}
    if data is not None:
        columns = data.columns
        who, bits = (training_spec.features, columns.owner), training_spec.fraction_bits
        nothing = ModelPart.make_empty(training_spec.protocol, plan, *who, bits, unit)
        part = nothing if state is None else state.part
        thresholds = plan.ownership.map_by_feature(runtime.index, list(columns.thresholds))

    def train_table(number: int) -> None:
        nonlocal part
        with runtime.step("table", number):
            table = suite.train_table(number)
            loss = watch.reveal_training_loss(suite, table)
            leaves = _round_leaf_values(runtime, training_spec, plan, table)
            watch.record_validation_loss(suite)
        if part is not None:
            part = part.append_table(replace(table, leaf_values=leaves), thresholds)
            if on_state is not None:
                on_state(TrainingState(part, suite.snapshot_scores(), loss, tuple(watch.losses)))
        runtime.report_progress(number + 1)

    while not keep:
        # With patience, even the dealer must hear after every table whether there is another one.
        last = plan.params.tables if plan.params.patience is None else n_trained_tables + 1
        size = sys.maxsize if workers else plan.n_rows * plan.params.n_leaves  # workers run ahead
        runtime.map_tables(range(n_trained_tables, last), train_table, size)
        n_trained_tables = last
        keep = watch.decide(n_trained_tables)
    part = None if part is None else part.truncate(keep)
    if plan.has_explanations:
        rows = {feature: buckets[: plan.n_samples] for feature, buckets in own.buckets.items()}
        part = derive_explanation(runtime, training_spec.protocol_type, plan, keep, part, rows)
    return TrainingOutput(keep, part, tuple(watch.losses))


def resolve_label_unit(
    training_spec: TrainingSpec, plan: Plan, data: TrainingData | None, state: TrainingState | None
) -> LabelUnit | None:
    """Return where scores start, and in which unit they are, to the label's holder; else None."""
    if state is not None or data is None or data.label is None:
        return None if state is None else state.part.label_unit
    return training_spec.find_label_unit(data.label[: plan.n_samples], data.sample_weight, plan)


def _round_leaf_values(
    runtime: Runtime, training_spec: TrainingSpec, plan: Plan, table: TrainedTable
) -> Share:
    """Return leaf values as they are kept: rounded once, exactly if features are constrained."""
    drop = training_spec.protocol_type.encoding.fraction_bits - training_spec.fraction_bits
    if plan.monotone:
        return divide_exactly(runtime, table.leaf_values, drop, Z32)
    return truncate_locally(runtime, table.leaf_values, drop, Z32)


def make_protocol_input(
    data: TrainingData | None,
    unit: LabelUnit | None,
    plan: Plan,
    index: int,
    rows: int | None = None,
) -> ProtocolInput:
    """Return what we bring to the suite: nothing, as the dealer; no labels where workers do."""
    if data is None:
        return ProtocolInput()
    buckets = plan.ownership.map_by_feature(index, list(data.columns.buckets))
    label = data.label
    if label is None or unit is None:
        return ProtocolInput(buckets)
    start, min_gain, label = None, plan.params.min_gain, label[:rows]
    if plan.objective.normalised_label:
        label = unit.normalise(label)
        min_gain /= unit.scale**2
    else:
        start = np.array(unit.initial_scores)
    assert (data.sample_weight is not None) == plan.is_weighted
    weight = None if data.sample_weight is None else data.sample_weight[:rows]
    return ProtocolInput(buckets, plan.objective.make_targets(label), weight, start, min_gain)
