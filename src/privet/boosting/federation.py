"""Training as a program: what every participant and the dealer run.

Reference: the paper's Algorithm 2, for any suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import Z32
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns
from privet.boosting.derivation import derive_reasons
from privet.boosting.model import Feature
from privet.boosting.part import GUARD_BITS, LabelUnit, ModelPart
from privet.errors import DataError, ParameterError
from privet.gates.histogram import Shelf
from privet.gates.truncate import drop_bits
from privet.runtime.runtime import Runtime
from privet.suites.masked.suite import MaskedSuite
from privet.suites.paper.suite import PaperSuite
from privet.suites.suite import OwnData, Suite, TrainedTable
from privet.terms.cuts import Cuts, check_some
from privet.terms.params import Params
from privet.terms.plan import Ownership, Plan

SUITES: dict[str, type[Suite]] = {"masked": MaskedSuite, "paper": PaperSuite}
"""All protocols that compute on shares, by name."""
MOST_PREDICTION_BITS = 14
"""Revealed scores have no more fraction bits: a prediction need not say more."""


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
    cut_counts: tuple[int, ...] | None = None
    """What all were told of each feature's number of cuts; None: nothing."""
    weighted: bool = False
    """Whether samples have weights, which the active party alone knows."""

    @property
    def fraction_bits(self) -> int:
        """Fraction bits of the leaf values that participants keep."""
        return self.prediction_bits + GUARD_BITS

    @property
    def suite(self) -> type[Suite]:
        """The protocol's suite."""
        return SUITES[self.protocol]

    def plan(self, n_samples: int, kept: tuple[int, ...] | None = None) -> Plan:
        """Return the plan for training on that many samples; raise if it cannot be done.

        `kept` are the participants whose indicators all have, if indicators are kept at all.
        """
        if not self.features:
            raise DataError("no participant has a feature: there is nothing to test")
        check_some(self.cut_counts)
        owners = tuple(self.parties.index(feature.owner) for feature in self.features)
        plan = Plan(
            params=self.params,
            ownership=Ownership(owners, self.active),
            n_samples=n_samples,
            weighted=self.weighted,
            reveal_loss=self.reveal_loss,
            explains=self.explains,
            cut_counts=self.cut_counts,
            kept=kept,
        )
        self.suite.check(plan)
        return plan


@dataclass(frozen=True, repr=False)
class PartyData:
    """What one participant brings to a training."""

    columns: BucketedColumns
    label: FloatArray | None
    weight: FloatArray | None = None
    """Of every sample, in means, at the active participant, where samples have weights."""


@dataclass(frozen=True, repr=False)
class Keeping:
    """What one role needs to keep indicators for trainings to come, and to use kept ones."""

    seeds: Mapping[int, bytes]
    """Of the masks that last, by their owner: our own one, or, at the dealer, all."""
    shelf: Shelf | None = None
    """Where a participant keeps what others published."""


@dataclass(frozen=True, repr=False)
class TrainingState:
    """All that a participant needs to go on with a training after some tables."""

    part: ModelPart
    scores: npt.NDArray[np.uint64]
    """Our share of the samples' scores: (outputs, n_samples)."""
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
    keeping: Keeping | None = None,
) -> ModelPart | None:
    """Train a model; return our part of it, and None to the dealer.

    1. The active participant shares its label; all samples start from scores that it knows.
    2. For each table: train it on the loss's derivatives at the scores; add its leaf values to
       them.
    3. If all agreed on that: derive what features contribute to scores.

    After `done` tables of an earlier training, which is the same at all, participants go on from
    the `state` that it had then, under fresh masks. `on_state` is called after every table.
    `keeping` goes with a plan that has indicators kept.

    Reveals: what the suite's `train_table` reveals; the loss to all, if they agreed on that. The
    numbers of cuts in the plan were told before.
    """
    params = plan.params
    if done == params.tables:
        part = None if state is None else state.part
        own = _own_data(data, None, plan, runtime.index)
        return _explained(runtime, federation.suite, plan, part, own)
    if plan.cut_counts is not None:
        runtime.told("numbers of cuts", len(plan.cut_counts))
    unit = None
    if state is not None:
        unit = state.part.unit
    elif data is not None and data.label is not None:
        unit = _label_unit(data.label, data.weight, federation, plan)
    own = _own_data(data, unit, plan, runtime.index)
    if keeping is not None:
        runtime.use_lasting(keeping.seeds)
        own = replace(own, shelf=keeping.shelf)
    suite = federation.suite(runtime, plan, own)
    with runtime.step("setup"):
        suite.setup()
    drop = federation.suite.encoding.fraction_bits - federation.fraction_bits
    if state is not None:
        assert state.part.n_tables == done
        ring = suite.scores.ring
        suite.scores = Share(state.scores.astype(ring.dtype), ring)
    part, thresholds = None, {}
    if data is not None:
        columns = data.columns
        part = _no_tables(federation, plan, columns.owner, unit) if state is None else state.part
        thresholds = plan.ownership.by_feature(runtime.index, list(columns.thresholds))
    for number in range(done, params.tables):
        with runtime.step("table", number):
            table = suite.train_table(number)
            loss = _reveal_loss(runtime, suite, table)
        # Once, when a table is trained: so predictions never differ when asked again.
        leaves = drop_bits(runtime, table.leaf_values, drop, Z32)
        if part is not None:
            part = part.extended(replace(table, leaf_values=leaves), thresholds)
            if on_state is not None:
                on_state(TrainingState(part, suite.scores.part.astype(np.uint64), loss))
        runtime.progress(number + 1)
    return _explained(runtime, federation.suite, plan, part, own)


def _explained(
    runtime: Runtime, suite: type[Suite], plan: Plan, part: ModelPart | None, own: OwnData
) -> ModelPart | None:
    """Return our part with what explains its scores, if all agreed on that."""
    if not plan.explains:
        return part
    rows = {feature: buckets[: plan.n_samples] for feature, buckets in own.buckets.items()}
    return derive_reasons(runtime, suite, plan, plan.params.tables, part, rows)


def _reveal_loss(runtime: Runtime, suite: Suite, table: TrainedTable) -> float | None:
    if table.loss is None:
        return None
    everybody = range(runtime.n_parties)
    revealed = runtime.reveal(table.loss, list(everybody), "training loss")
    return None if revealed is None else suite.loss_of(revealed)


def _label_unit(
    label: FloatArray, weight: FloatArray | None, federation: Federation, plan: Plan
) -> LabelUnit:
    start = plan.params.start(label, weight)
    if not plan.objective.own_unit:
        encoding = FixedPoint(federation.fraction_bits, Z32)  # as predictions will start
        return LabelUnit(tuple(encoding.decode(encoding.encode(start)).tolist()))
    return LabelUnit.of(label, float(start[0]), float(federation.suite.stretch(plan)), weight)


def _own_data(data: PartyData | None, unit: LabelUnit | None, plan: Plan, index: int) -> OwnData:
    """Return what we bring to the suite: nothing, as the dealer."""
    if data is None:
        return OwnData()
    buckets = plan.ownership.by_feature(index, list(data.columns.buckets))
    label = data.label
    if label is None or unit is None:
        return OwnData(buckets)
    start, min_gain = None, plan.params.min_gain
    if plan.objective.own_unit:
        label = unit.shrink(label)
        min_gain /= unit.scale**2
    else:
        start = np.array(unit.start)
    assert (data.weight is not None) == plan.weighted
    return OwnData(buckets, plan.objective.targets(label), data.weight, start, min_gain)


def _no_tables(federation: Federation, plan: Plan, party: str, unit: LabelUnit | None) -> ModelPart:
    """Return a participant's part of a model before its first table."""
    tests = (0, plan.params.depth)
    return ModelPart(
        protocol=federation.protocol,
        task=plan.params.task,
        features=federation.features,
        party=party,
        feature=np.empty(tests, dtype=np.intp),
        bucket=np.empty(tests, dtype=np.intp),
        threshold=np.empty(tests),
        leaf_shares=np.empty((0, plan.objective.outputs, plan.params.leaves), dtype=np.uint32),
        fraction_bits=federation.fraction_bits,
        unit=unit,
    )
