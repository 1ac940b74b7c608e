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
from privet.boosting.explanation import derive_reasons
from privet.boosting.model import Feature
from privet.boosting.model_part import GUARD_BITS, LabelUnit, ModelPart
from privet.errors import DataError, ParameterError, ResultError
from privet.gates.arithmetic import drop_bits
from privet.gates.masked.indicators import Shelf
from privet.gates.masked.truncation import divide_exactly
from privet.protocols.masked.protocol import MaskedSuite
from privet.protocols.paper.protocol import PaperSuite
from privet.protocols.protocol import OwnData, Suite, TrainedTable
from privet.runtime.runtime import Runtime
from privet.runtime.workers import Head
from privet.spec.params import Params
from privet.spec.plan import Cuts, ExplainBy, Monotone, Ownership, Plan, check_some, settled
from privet.spec.sampling import count_validation, tables_to_keep


class Watch:
    """The losses of one training, which the label's holder knows, and its word when to stop."""

    def __init__(
        self, runtime: Runtime, plan: Plan, unit: LabelUnit | None, losses: Sequence[float]
    ) -> None:
        self._runtime = runtime
        self._plan = plan
        self._unit = unit
        self.losses = list(losses)
        """After each table: at the label's holder, in the label's own unit; nobody else has any."""

    def reveal_training_loss(self, suite: Suite, table: TrainedTable) -> float | None:
        """Return the loss that a table started from, if all agreed to learn it."""
        if table.loss is None:
            return None
        everybody = range(self._runtime.n_parties)
        revealed = self._runtime.reveal(table.loss, everybody, "training loss")
        return None if revealed is None else suite.loss_of(revealed)

    def look(self, suite: Suite) -> None:
        """Have the loss after one more table computed, if there are validation rows.

        Reveals: the mean loss to the label's holder alone.
        """
        if not self._plan.n_validation:
            return
        active = self._plan.ownership.active
        revealed = self._runtime.reveal(suite.validation_loss(), [active], "validation loss")
        if revealed is not None and self._unit is not None:
            self.losses.append(suite.validation_loss_of(revealed) * self._unit.scale**2)

    def keep(self, done: int) -> int:
        """Return how many tables to keep, if training ends after so many, and 0 if it goes on.

        Reveals: that number to all and the dealer, where there is patience.
        """
        params = self._plan.params
        last = done == params.tables
        if params.patience is None:
            return done if last else 0
        active, own = self._plan.ownership.active, None
        if self._runtime.index == active:
            # Without a history, which a part alone does not have, all there is was kept before.
            own = done
            if self.losses:
                own = tables_to_keep(self.losses, params.patience, params.tables)
        with self._runtime.step("table"), self._runtime.step("stop"):
            told = self._runtime.announce(own, active, "number of tables to keep, or none yet")
        if told is None:  # a counter, or a dealer ahead of its time: it never stops
            return done if last else 0
        if told > done or (last and not told):
            raise ResultError(f"{told} tables to keep, of {done}, from participant {active + 1}")
        if told and not last:
            self._runtime.end_early()
        return told


SUITES: dict[str, type[Suite]] = {"masked": MaskedSuite, "paper": PaperSuite}
"""All protocols that compute on shares, by name."""


def cuts_of(protocol: str, said: Cuts | None) -> Cuts:
    """Return what all learn of the numbers of cuts, if somebody said so or not."""
    allowed = SUITES[protocol].cuts
    if said is not None and said not in allowed:
        raise ParameterError(
            f"cuts: the protocol {protocol} has {' or '.join(allowed)} alone, not {said!r}: leave "
            "it out, or use another protocol"
        )
    return said or allowed[0]


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
    explains: bool = False
    """Whether all agreed to derive what features contribute to scores."""
    reveal_validation: bool = False
    """Whether all agreed that the label's holder receives the predictions of validation rows."""
    reveal_gain: bool = False
    """Whether all agreed that the label's holder learns what each level gains."""
    importances_by: ExplainBy | None = None
    """By what it learns mean absolute contributions to scores of validation rows, if it does."""
    cut_counts: tuple[int, ...] | None = None
    """What all were told of each feature's number of cuts; None: nothing."""
    weighted: bool = False
    """Whether samples have weights, which the active party alone knows."""
    monotone: Monotone = ()
    """Which way scores may move as features grow, if some may not move both ways."""
    shards: int = 1
    """In how many parts rows are trained on."""

    @property
    def fraction_bits(self) -> int:
        """Fraction bits of the leaf values that participants keep."""
        return self.prediction_bits + GUARD_BITS

    def label_unit(self, label: FloatArray, weight: FloatArray | None, plan: Plan) -> LabelUnit:
        """Return where scores start, and in which unit they are, from a label to train on."""
        start = plan.params.start(label, weight)
        if plan.objective.own_unit:
            return LabelUnit.of(label, float(start[0]), float(self.suite.stretch(plan)), weight)
        encoding = FixedPoint(self.fraction_bits, Z32)  # as predictions will start
        return LabelUnit(tuple(encoding.decode(encoding.encode(start)).tolist()))

    @property
    def suite(self) -> type[Suite]:
        """The protocol's suite."""
        return SUITES[self.protocol]

    def plan(
        self, n_rows: int, kept: tuple[int, ...] | None = None, n_validation: int | None = None
    ) -> Plan:
        """Return the plan for training on that many rows; raise if it cannot be done.

        `kept` are the participants whose indicators all have, if indicators are kept at all. The
        last `n_validation` rows are set aside: None, as many as the parameters say.
        """
        if not self.features:
            raise DataError("no participant has a feature: there is nothing to test")
        check_some(self.cut_counts)
        owners = tuple(self.parties.index(feature.owner) for feature in self.features)
        if n_validation is None:
            n_validation = count_validation(n_rows, self.params)
        plan = Plan(
            params=self.params,
            ownership=Ownership(owners, self.active),
            n_samples=n_rows - n_validation,
            n_validation=n_validation,
            reveal_validation=self.reveal_validation and n_validation > 0,
            weighted=self.weighted,
            reveal_loss=self.reveal_loss,
            reveal_gain=self.reveal_gain,
            importances_by=self.importances_by if n_validation else None,
            explains=self.explains,
            cut_counts=self.cut_counts,
            kept=kept,
            monotone=settled(self.monotone, len(owners), self.params.objective),
            shards=self.shards,
        )
        plan.cut()  # raises, if there are more shards than rows
        return self.suite.settled(plan, len(self.parties))


@dataclass(frozen=True, repr=False)
class PartyData:
    """What one participant brings to a training: rows to train on, then those to validate with."""

    columns: BucketedColumns
    label: FloatArray | None
    weight: FloatArray | None = None
    """Of every sample, in means, at the active participant, where samples have weights."""


@dataclass(frozen=True, repr=False)
class Keeping:
    """What one role needs to keep indicators for trainings to come, and to use kept ones."""

    seeds: Mapping[int, Sequence[bytes]]
    """Of the masks that last, by their owner: our own, or, at a dealer, all that it is told."""
    shelf: Shelf | None = None
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
class Trained:
    """What a training ends with."""

    tables: int
    """How many there are, which the dealer knows, too."""
    part: ModelPart | None
    """Our part of the model; None at the dealer."""
    losses: tuple[float, ...] = ()
    """At the label's holder, those on validation rows: of tables that were not kept, too."""


def train(
    runtime: Runtime,
    federation: Federation,
    plan: Plan,
    data: PartyData | None,
    *,
    done: int = 0,
    state: TrainingState | None = None,
    on_state: Callable[[TrainingState], None] | None = None,
    keeping: Keeping | None = None,
    workers: Sequence[Head] = (),
) -> Trained:
    """Train a model, and return our part of it.

    1. The active participant shares its label; all rows start from scores that it knows.
    2. For each table: train it on the loss's derivatives at the scores of training rows; add its
       leaf values to the scores of all rows.
    3. After each table the active participant learns the loss on validation rows, if there are any,
       and, with patience, says whether to stop, and how many tables to keep.
    4. If all agreed on that: derive what features contribute to scores.

    After `done` tables of an earlier training, the same at all, participants go on from the `state`
    it had then, under fresh masks. `keeping` goes with a plan that keeps indicators, workers with
    one that has rows in shards: they have the scores.

    Reveals: what the suite's `train_table` reveals; the loss to all, if they agreed on that; what
    `Watch` reveals. The numbers of cuts in the plan were told before.
    """
    if plan.cut_counts is not None:
        runtime.told("numbers of cuts", len(plan.cut_counts))
    unit = unit_of(federation, plan, data, state)
    own = own_data(data, unit, plan, runtime.index, rows=0 if workers else None)
    if keeping is not None:
        runtime.use_lasting(keeping.seeds)
        own = replace(own, shelf=keeping.shelf)
    watch = Watch(runtime, plan, unit, () if state is None else state.losses)
    suite = federation.suite(runtime, plan, own, workers)
    with runtime.step("setup"):
        keep = watch.keep(done) if done else 0
        if not keep:
            suite.setup()
    if state is not None and not keep:
        assert state.part.n_tables == done
        suite.resume(state.scores)
    part, thresholds = None, {}
    if data is not None:
        columns = data.columns
        who, bits = (federation.features, columns.owner), federation.fraction_bits
        nothing = ModelPart.without_tables(federation.protocol, plan, *who, bits, unit)
        part = nothing if state is None else state.part
        thresholds = plan.ownership.by_feature(runtime.index, list(columns.thresholds))

    def train_table(number: int) -> None:
        nonlocal part
        with runtime.step("table", number):
            table = suite.train_table(number)
            loss = watch.reveal_training_loss(suite, table)
            leaves = _kept_leaves(runtime, federation, plan, table)
            watch.look(suite)
        if part is not None:
            part = part.extended(replace(table, leaf_values=leaves), thresholds)
            if on_state is not None:
                on_state(TrainingState(part, suite.keep_scores(), loss, tuple(watch.losses)))
        runtime.progress(number + 1)

    while not keep:
        # With patience, even the dealer must hear after every table whether there is another one.
        last = plan.params.tables if plan.params.patience is None else done + 1
        size = sys.maxsize if workers else plan.n_rows * plan.params.leaves  # workers run ahead
        runtime.each(range(done, last), train_table, size)
        done = last
        keep = watch.keep(done)
    part = None if part is None else part.truncated(keep)
    if plan.explains:
        rows = {feature: buckets[: plan.n_samples] for feature, buckets in own.buckets.items()}
        part = derive_reasons(runtime, federation.suite, plan, keep, part, rows)
    return Trained(keep, part, tuple(watch.losses))


def unit_of(
    federation: Federation, plan: Plan, data: PartyData | None, state: TrainingState | None
) -> LabelUnit | None:
    """Return where scores start, and in which unit they are, to the label's holder; else None."""
    if state is not None or data is None or data.label is None:
        return None if state is None else state.part.unit
    return federation.label_unit(data.label[: plan.n_samples], data.weight, plan)


def _kept_leaves(
    runtime: Runtime, federation: Federation, plan: Plan, table: TrainedTable
) -> Share:
    """Return leaf values as they are kept: rounded once, exactly if features are constrained."""
    drop = federation.suite.encoding.fraction_bits - federation.fraction_bits
    if plan.monotone:
        return divide_exactly(runtime, table.leaf_values, drop, Z32)
    return drop_bits(runtime, table.leaf_values, drop, Z32)


def own_data(
    data: PartyData | None, unit: LabelUnit | None, plan: Plan, index: int, rows: int | None = None
) -> OwnData:
    """Return what we bring to the suite: nothing, as the dealer; no labels where workers do."""
    if data is None:
        return OwnData()
    buckets = plan.ownership.by_feature(index, list(data.columns.buckets))
    label = data.label
    if label is None or unit is None:
        return OwnData(buckets)
    start, min_gain, label = None, plan.params.min_gain, label[:rows]
    if plan.objective.own_unit:
        label = unit.shrink(label)
        min_gain /= unit.scale**2
    else:
        start = np.array(unit.start)
    assert (data.weight is not None) == plan.weighted
    weight = None if data.weight is None else data.weight[:rows]
    return OwnData(buckets, plan.objective.targets(label), weight, start, min_gain)
