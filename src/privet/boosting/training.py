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
    """Early stopping: the label holder records validation losses and announces when to stop."""

    def __init__(
        self, runtime: Runtime, plan: Plan, unit: LabelUnit | None, losses: Sequence[float]
    ) -> None:
        self._runtime = runtime
        self._plan = plan
        self._label_unit = unit
        self.losses = list(losses)
        """The validation loss after each table, in the label's unit, at the label holder."""

    def reveal_training_loss(self, protocol: SecureProtocol, table: TrainedTable) -> float | None:
        """Return the training loss before a table, if all participants agreed to learn it."""
        if table.loss is None:
            return None
        all_parties = range(self._runtime.n_parties)
        revealed = self._runtime.reveal(table.loss, all_parties, "training loss")
        return None if revealed is None else protocol.decode_loss(revealed)

    def record_validation_loss(self, protocol: SecureProtocol) -> None:
        """Compute and record the loss on validation rows, if there are any.

        Reveals: the mean loss to the label holder only.
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
        """Return how many tables to keep, if training ends after `n_trained_tables`; 0 otherwise.

        Reveals: that number to all participants and the dealer, if `patience` is set.
        """
        params = self._plan.params
        last = n_trained_tables == params.tables
        if params.patience is None:
            return n_trained_tables if last else 0
        active, n_kept = self._plan.ownership.active, None
        if self._runtime.index == active:
            # Without losses, which a model part does not contain, keep all tables.
            n_kept = n_trained_tables
            if self.losses:
                n_kept = decide_early_stop(self.losses, params.patience, params.tables)
        with self._runtime.step("table"), self._runtime.step("stop"):
            announced = self._runtime.announce(
                n_kept, active, "number of tables to keep, or none yet"
            )
        if announced is None:  # a counter, or a dealer in offline preprocessing: never stops early
            return n_trained_tables if last else 0
        if announced > n_trained_tables or (last and not announced):
            raise ResultError(
                f"{announced} tables to keep, of {n_trained_tables}, from participant {active + 1}"
            )
        if announced and not last:
            self._runtime.end_early()
        return announced


PROTOCOL_TYPES: dict[str, type[SecureProtocol]] = {"masked": MaskedProtocol, "paper": PaperProtocol}
"""All secure protocols, by name."""


def resolve_cut_disclosure(protocol: str, requested: CutDisclosure | None) -> CutDisclosure:
    """Return how cut counts are disclosed: as requested, or by the protocol's default."""
    allowed = PROTOCOL_TYPES[protocol].cut_disclosures
    if requested is not None and requested not in allowed:
        raise ParameterError(
            f"cuts: the protocol {protocol} has {' or '.join(allowed)} alone, not {requested!r}: "
            "leave it out, or use another protocol"
        )
    return requested or allowed[0]


@dataclass(frozen=True)
class TrainingSpec:
    """The specification of a training run, agreed by all participants and the dealer."""

    protocol: str
    params: Params
    parties: tuple[str, ...]
    features: tuple[Feature, ...]
    active: int
    """The index of the participant that holds the label."""
    prediction_bits: int
    """Fraction bits of revealed scores; those of a regression are in the label's unit."""
    reveal_loss: bool = False
    """Whether all participants learn the training loss of every table."""
    has_explanations: bool = False
    """Whether participants derive shares of feature contributions."""
    reveal_validation: bool = False
    """Whether the label holder receives the predictions of validation rows."""
    reveal_gain: bool = False
    """Whether the label holder learns the gain of each level."""
    importances_by: ExplainBy | None = None
    """The grouping of the mean absolute contributions that the label holder learns, if it does."""
    announced_cut_counts: tuple[int, ...] | None = None
    """The announced cut count of each feature; None if hidden."""
    is_weighted: bool = False
    """Whether samples have weights, which only the label holder knows."""
    monotone: MonotoneConstraints = ()
    """The monotone constraint of each feature; empty if there are none."""
    shards: int = 1
    """The number of shards."""

    @property
    def fraction_bits(self) -> int:
        """Fraction bits of the leaf values that participants keep."""
        return self.prediction_bits + GUARD_BITS

    def find_label_unit(
        self, label: FloatArray, sample_weight: FloatArray | None, plan: Plan
    ) -> LabelUnit:
        """Return the label's unit and the initial scores, from the training label."""
        initial_scores = plan.params.compute_initial_scores(label, sample_weight)
        if plan.objective.normalised_label:
            return LabelUnit.from_label(
                label,
                float(initial_scores[0]),
                float(self.protocol_type.compute_label_stretch(plan)),
                sample_weight,
            )
        encoding = FixedPoint(self.fraction_bits, Z32)  # that of initial scores in predictions
        return LabelUnit(tuple(encoding.decode(encoding.encode(initial_scores)).tolist()))

    @property
    def protocol_type(self) -> type[SecureProtocol]:
        """The suite of the protocol."""
        return PROTOCOL_TYPES[self.protocol]

    def make_plan(
        self,
        n_rows: int,
        cached_owners: tuple[int, ...] | None = None,
        n_validation: int | None = None,
    ) -> Plan:
        """Return the plan for training on that many rows; raise if it cannot be done.

        `cached_owners` are the participants whose indicators all have, if indicators are kept at
        all. The last `n_validation` rows are validation rows; None: as many as in the parameters.
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
    """One participant's data for a training run: training rows, then validation rows."""

    columns: BucketedColumns
    label: FloatArray | None
    sample_weight: FloatArray | None = None
    """The weight of each sample, divided by the mean weight, at the label holder, if any."""


@dataclass(frozen=True, repr=False)
class IndicatorCacheConfig:
    """What one role needs to keep indicators for trainings to come, and to use kept ones."""

    seeds: Mapping[int, Sequence[bytes]]
    """Of the masks that last, by their owner: our own, or, at a dealer, all that it is told."""
    shelf: IndicatorCache | None = None
    """Where a participant keeps what others published."""


@dataclass(frozen=True, repr=False)
class TrainingState:
    """The state of a participant after some tables, from which a training run can resume."""

    part: ModelPart
    scores: npt.NDArray[np.uint64]
    """The local share of the scores of all rows: (outputs, n_rows)."""
    loss: float | None = None
    """The mean squared residual before the last table, if all participants learn it."""
    losses: tuple[float, ...] = ()
    """The losses on validation rows after each table, at the label holder."""


@dataclass(frozen=True, repr=False)
class TrainingOutput:
    """The result of a training run."""

    n_tables: int
    """The number of tables, which the dealer also knows."""
    part: ModelPart | None
    """The local part of the model; None at the dealer."""
    losses: tuple[float, ...] = ()
    """The losses on validation rows at the label holder, including those of discarded tables."""


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
    """Train a model, and return the local part of it.

    1. The active participant shares its [label]; it knows the initial scores of all rows.
    2. For each table: train it on the gradients and Hessians at the [scores] of training rows; add
       its [leaf values] to the [scores] of all rows.
    3. After each table the active participant learns the loss on validation rows, if there are any,
       and, with `patience`, announces whether to stop, and how many tables to keep.
    4. If all participants agreed to that: derive [contributions] of the features.

    `state` is the local state after `n_trained_tables` tables of an earlier training run, the same
    number at all participants: training resumes from it under fresh masks. `indicator_cache` goes
    with a plan that keeps indicators, `workers` with a plan in shards: workers hold the scores.

    Reveals: what the suite's `train_table` reveals; the loss to all participants, if they agreed to
    that; what `EarlyStopping` reveals. The cut counts in the plan were disclosed before.
    """
    if plan.announced_cut_counts is not None:
        runtime.record_disclosure("numbers of cuts", len(plan.announced_cut_counts))
    unit = resolve_label_unit(training_spec, plan, data, state)
    protocol_input = make_protocol_input(
        data, unit, plan, runtime.index, rows=0 if workers else None
    )
    if indicator_cache is not None:
        runtime.use_persistent_masks(indicator_cache.seeds)
        protocol_input = replace(protocol_input, indicator_cache=indicator_cache.shelf)
    early_stopping = EarlyStopping(runtime, plan, unit, () if state is None else state.losses)
    suite = training_spec.protocol_type(runtime, plan, protocol_input, workers)
    with runtime.step("setup"):
        n_kept = early_stopping.decide(n_trained_tables) if n_trained_tables else 0
        if not n_kept:
            suite.setup()
    if state is not None and not n_kept:
        assert state.part.n_tables == n_trained_tables
        suite.restore_scores(state.scores)
    part, thresholds = None, {}
    if data is not None:
        columns = data.columns
        empty = ModelPart.make_empty(
            training_spec.protocol,
            plan,
            training_spec.features,
            columns.owner,
            training_spec.fraction_bits,
            unit,
        )
        part = empty if state is None else state.part
        thresholds = plan.ownership.map_by_feature(runtime.index, list(columns.thresholds))

    def train_table(number: int) -> None:
        nonlocal part
        with runtime.step("table", number):
            table = suite.train_table(number)
            loss = early_stopping.reveal_training_loss(suite, table)
            leaves = _round_leaf_values(runtime, training_spec, plan, table)
            early_stopping.record_validation_loss(suite)
        if part is not None:
            part = part.append_table(replace(table, leaf_values=leaves), thresholds)
            if on_state is not None:
                losses = tuple(early_stopping.losses)
                on_state(TrainingState(part, suite.snapshot_scores(), loss, losses))
        runtime.report_progress(number + 1)

    while not n_kept:
        # With patience, the dealer, too, learns after every table whether training goes on.
        last = plan.params.tables if plan.params.patience is None else n_trained_tables + 1
        size = sys.maxsize if workers else plan.n_rows * plan.params.n_leaves  # workers run ahead
        runtime.map_tables(range(n_trained_tables, last), train_table, size)
        n_trained_tables = last
        n_kept = early_stopping.decide(n_trained_tables)
    part = None if part is None else part.truncate(n_kept)
    if plan.has_explanations:
        rows = {
            feature: buckets[: plan.n_samples]
            for feature, buckets in protocol_input.buckets.items()
        }
        part = derive_explanation(runtime, training_spec.protocol_type, plan, n_kept, part, rows)
    return TrainingOutput(n_kept, part, tuple(early_stopping.losses))


def resolve_label_unit(
    training_spec: TrainingSpec, plan: Plan, data: TrainingData | None, state: TrainingState | None
) -> LabelUnit | None:
    """Return the label's unit and the initial scores at the label holder; None elsewhere."""
    if state is not None or data is None or data.label is None:
        return None if state is None else state.part.label_unit
    return training_spec.find_label_unit(data.label[: plan.n_samples], data.sample_weight, plan)


def _round_leaf_values(
    runtime: Runtime, training_spec: TrainingSpec, plan: Plan, table: TrainedTable
) -> Share:
    """Return the leaf values as stored: rounded once, exactly if there are monotone constraints."""
    dropped_bits = training_spec.protocol_type.encoding.fraction_bits - training_spec.fraction_bits
    if plan.monotone:
        return divide_exactly(runtime, table.leaf_values, dropped_bits, Z32)
    return truncate_locally(runtime, table.leaf_values, dropped_bits, Z32)


def make_protocol_input(
    data: TrainingData | None,
    unit: LabelUnit | None,
    plan: Plan,
    index: int,
    rows: int | None = None,
) -> ProtocolInput:
    """Return the local input of the suite: empty at the dealer; without labels if `rows` is 0."""
    if data is None:
        return ProtocolInput()
    buckets = plan.ownership.map_by_feature(index, list(data.columns.buckets))
    label = data.label
    if label is None or unit is None:
        return ProtocolInput(buckets)
    initial_scores, min_gain, label = None, plan.params.min_gain, label[:rows]
    if plan.objective.normalised_label:
        label = unit.normalise(label)
        min_gain /= unit.scale**2
    else:
        initial_scores = np.array(unit.initial_scores)
    assert (data.sample_weight is not None) == plan.is_weighted
    weight = None if data.sample_weight is None else data.sample_weight[:rows]
    return ProtocolInput(
        buckets, plan.objective.make_targets(label), weight, initial_scores, min_gain
    )
