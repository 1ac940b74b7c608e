"""Prediction as a secure program, and predictions for the validation rows of a training run.

Reference: the paper's Section V.C, for any suite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import Z32, Z64
from privet.arithmetic.shares import Share, concatenate
from privet.arrays import FloatArray, IndexArray
from privet.boosting.binning import BucketedColumns
from privet.boosting.explanation import Explanation
from privet.boosting.model_part import GUARD_BITS, LabelUnit, ModelPart
from privet.boosting.sharding import Crowd, OwnSamples, Samples, SamplesInShards, hand_out_tests
from privet.boosting.training import SUITES, Federation, PartyData, Trained
from privet.objectives.base import Objective
from privet.protocols.protocol import AppliedTests, Groups, start_share
from privet.runtime.runtime import Runtime
from privet.runtime.workers import Head
from privet.spec.plan import ExplainBy, Plan


@dataclass(frozen=True)
class Query:
    """A batch to predict, as all participants and the dealer know it."""

    protocol: str
    objective: Objective
    shape: tuple[int, int, int]
    """(tables, depth, n_samples)."""
    active: int
    recipient: int
    """Who receives the predictions."""
    prediction_bits: int
    """Fraction bits that they are revealed with."""
    explain: ExplainBy | None = None
    """By what contributions are told to the recipient, where it asks for them."""
    n_features: int = 0
    """How many features all participants have together, where that matters."""
    what: str = "predictions"
    """What they are called in the ledger."""

    @classmethod
    def to_holder(
        cls, federation: Federation, tables: int, samples: int, explain: ExplainBy | None = None
    ) -> Query:
        """Return a batch whose predictions the label's holder receives, by so many tables."""
        return cls(
            protocol=federation.protocol,
            objective=federation.params.objective,
            shape=(tables, federation.params.depth, samples),
            active=federation.active,
            recipient=federation.active,
            prediction_bits=federation.prediction_bits,
            explain=explain,
            n_features=len(federation.features),
        )

    @property
    def encoding(self) -> FixedPoint:
        """How scores are encoded."""
        return FixedPoint(self.prediction_bits + GUARD_BITS, Z32)

    def groups(self, parties: Sequence[str], part: ModelPart | None) -> Groups:
        """Return by what the contributions of tests are added up."""
        if self.explain == "participant":
            owners = None if part is None else part.test_owners(parties)
            return Groups(len(parties), owners)
        assert self.explain == "feature"
        return Groups(self.n_features, None if part is None else part.feature)

    def group_names(self, parties: Sequence[str], part: ModelPart) -> tuple[str, ...]:
        """Return what contributions are of: a feature, with its owner if two have its name."""
        if self.explain == "participant":
            return tuple(parties)
        names = [feature.name for feature in part.features]
        return tuple(
            f.name if names.count(f.name) == 1 else f"{f.name} of {f.owner}" for f in part.features
        )


def tell_unit(runtime: Runtime, query: Query, part: ModelPart | None) -> LabelUnit | None:
    """Return the label's unit to the recipient of predictions, once, before the first of them.

    Where the objective has none of its own, there is nothing to tell.

    Reveals: the unit to the recipient, if it is not the active participant, who has it.
    """
    if not query.objective.own_unit:
        return LabelUnit((0.0,) * query.objective.outputs)
    unit = None if part is None else part.unit
    if query.recipient == query.active:
        return unit
    with runtime.step_again("predict"):
        numbers = None if unit is None else np.array([*unit.start, unit.scale]).view(np.uint64)
        shared = runtime.share(numbers, query.active, (2,), Z64)
        revealed = runtime.reveal(shared, [query.recipient], "centre and scale of the label")
    if revealed is None:
        return None
    centre, scale = revealed.view(np.float64).tolist()
    return LabelUnit((centre,), scale)


@dataclass(frozen=True, repr=False)
class Explained:
    """Predictions, and what contributes to the scores that they were made from."""

    predictions: FloatArray
    explanation: Explanation
    names: tuple[str, ...]
    """What each contribution is of."""

    def take(self, rows: IndexArray) -> Explained:
        """Return those of some rows, in that order."""
        found = self.explanation
        chosen = replace(found, contributions=found.contributions[..., rows])
        return Explained(self.predictions[..., rows], chosen, self.names)


def predict(
    runtime: Runtime,
    query: Query,
    parties: Sequence[str],
    part: ModelPart | None,
    columns: FloatArray | None,
    unit: LabelUnit | None,
    crowd: Crowd | None = None,
) -> FloatArray | None:
    """Predict new samples; return values or probabilities to the recipient, None to all others.

    1. Every participant applies its own tests; the suite adds up the leaf values on shares, from
       where the active participant has scores start.
    2. The scores are rounded to what all agreed on, and revealed to the recipient, who knows the
       label's unit (`tell_unit`).

    In shards, a crowd of workers does all of that but for revealing, each for its own samples.

    Reveals: the rounded scores to the recipient.
    """
    with runtime.step_again("predict"):
        samples = _samples(runtime, query, parties, part, columns, crowd)
        scores = samples.scores(_leaves(query, part), _start(runtime, query, part))
        revealed = runtime.reveal(scores.reshape(-1), [query.recipient], query.what)
        if revealed is None:
            return None
        assert unit is not None
        score = query.encoding.decode(revealed).reshape(scores.shape)
        return query.objective.prediction(unit.restore(score))


def predict_explained(
    runtime: Runtime,
    query: Query,
    parties: Sequence[str],
    part: ModelPart | None,
    columns: FloatArray | None,
    unit: LabelUnit | None,
    crowd: Crowd | None = None,
) -> Explained | None:
    """Predict as `predict` does, the same numbers, and explain the scores to the recipient.

    Contributions are looked up as leaf values are, added up by feature or by participant on shares,
    and rounded as scores are. What rounding leaves over, the recipient spreads evenly over those
    that are tested at all: so contributions and the base add up to the score.

    Reveals: the rounded scores, contributions and base to the recipient.
    """
    with runtime.step_again("predict"):
        samples = _samples(runtime, query, parties, part, columns, crowd)
        groups, start = query.groups(parties, part), _start(runtime, query, part)
        reasons, means = _reasons(query, part)
        scores, added, base = samples.explained(
            _leaves(query, part), start, reasons, groups, means.sum(0) + start.reshape(-1)
        )
        to, others = [query.recipient], concatenate([added.reshape(-1), base])
        revealed = runtime.reveal(scores.reshape(-1), to, query.what)
        beside = runtime.reveal(others, to, "contributions and base")
    if revealed is None or beside is None:
        return None
    assert part is not None
    assert unit is not None
    assert groups.of_tests is not None
    score = query.encoding.decode(revealed).reshape(scores.shape)
    numbers = query.encoding.decode(beside)
    middle = numbers[added.size :, None]
    contributions = numbers[: added.size].reshape(added.shape).transpose(1, 0, 2).copy()
    tested = np.unique(groups.of_tests)
    left_over = score - middle - contributions.sum(axis=1)
    contributions[:, tested] += left_over[:, None] / len(tested)
    return Explained(
        query.objective.prediction(unit.restore(score)),
        Explanation(contributions * unit.scale, unit.restore(middle)[:, 0]),
        query.group_names(parties, part),
    )


def answer(
    runtime: Runtime,
    query: Query,
    parties: Sequence[str],
    part: ModelPart | None,
    columns: FloatArray | None,
    unit: LabelUnit | None,
    crowd: Crowd | None = None,
) -> FloatArray | Explained | None:
    """Predict, and explain the predictions if the query says by what."""
    program = predict if query.explain is None else predict_explained
    return program(runtime, query, parties, part, columns, unit, crowd)


def mean_contributions(
    runtime: Runtime,
    query: Query,
    parties: Sequence[str],
    part: ModelPart | None,
    columns: FloatArray | None,
    unit: LabelUnit | None,
    crowd: Crowd | None = None,
) -> FloatArray | None:
    """Return how large contributions to the samples' scores are on average, whatever their sign.

    (groups, outputs), in the label's unit, to the recipient, and None to all others. Those of each
    sample stay in shares.

    Reveals: these means to the recipient.
    """
    with runtime.step_again("predict"):
        samples = _samples(runtime, query, parties, part, columns, crowd)
        reasons, _ = _reasons(query, part)
        total = samples.absolute_sums(_leaves(query, part), reasons, query.groups(parties, part))
        bits = query.encoding.fraction_bits, query.prediction_bits
        found = SUITES[query.protocol].reveal_means(
            runtime, total, query.shape[2], bits, query.recipient
        )
    if found is None or unit is None:
        return None
    return found * unit.scale


def _samples(
    runtime: Runtime,
    query: Query,
    parties: Sequence[str],
    part: ModelPart | None,
    columns: FloatArray | None,
    crowd: Crowd | None,
) -> Samples:
    """Return the samples of a query, here or in shards."""
    suite = SUITES[query.protocol]
    if crowd is not None:
        return SamplesInShards(runtime, suite, crowd, query.shape)
    return OwnSamples(runtime, suite, applied(query, parties, part, columns))


def _reasons(query: Query, part: ModelPart | None) -> tuple[Share, Share]:
    """Return our shares of contributions and means, as `PartReasons` has them."""
    if part is not None:
        assert part.reasons is not None, "the part explains nothing"
        return Share(part.reasons.contributions, Z32), Share(part.reasons.means, Z32)
    (tables, depth, _), outputs = query.shape, query.objective.outputs
    contributions = Share.unknown((tables, outputs, depth, 1 << depth), Z32)
    return contributions, Share.unknown((tables, outputs), Z32)


def applied(
    query: Query, parties: Sequence[str], part: ModelPart | None, columns: FloatArray | None
) -> AppliedTests:
    """Return the tests of all tables, as they come out for the samples."""
    if part is None or columns is None:
        return AppliedTests(query.shape, None, None)
    return AppliedTests(query.shape, part.test_owners(parties), part.fails(columns))


def _leaves(query: Query, part: ModelPart | None) -> Share:
    """Return our share of the leaf values of all tables."""
    tables, depth, _ = query.shape
    if part is None:
        return Share.unknown((tables, query.objective.outputs, 1 << depth), Z32)
    return Share(part.leaf_shares, Z32)


def _start(runtime: Runtime, query: Query, part: ModelPart | None) -> Share:
    """Return a share of where scores start, (K, 1), all of it the active participant's.

    Zeros where an objective has its own unit, which says where they start.
    """
    start = None
    if part is not None and part.unit is not None and not query.objective.own_unit:
        start = np.array(part.unit.start)
    return start_share(runtime, start, query.encoding, (query.objective.outputs, 1), Z32)


_WHAT = "predictions of validation rows"


class Validated(NamedTuple):
    """What the label's holder learns of validation rows at the end; nobody else learns any."""

    predictions: FloatArray | None = None
    importances: dict[str, list[float]] | None = None
    """How large contributions to their scores are on average, whatever their sign: of each feature
    or participant, by name, to each output."""


def validate(
    runtime: Runtime,
    federation: Federation,
    plan: Plan,
    trained: Trained,
    data: PartyData | None,
    workers: Sequence[Head] = (),
) -> Validated:
    """Do with validation rows, after the last table, what all agreed on.

    Where rows are in shards, workers do it, who have them in buckets.

    Reveals: what `predict_validation` and `reveal_importances` do.
    """
    crowd = Crowd(plan.shards, workers) if plan.shards > 1 else None
    if crowd is not None and (plan.reveal_validation or plan.importances_by is not None):
        shape = (trained.tables, plan.params.depth, plan.n_validation)
        hand_out_tests(runtime, crowd, shape, trained.part)
    predictions = predict_validation(runtime, federation, plan, trained, data, crowd)
    importances = reveal_importances(runtime, federation, plan, trained, data, crowd)
    return Validated(predictions, importances)


def predict_validation(
    runtime: Runtime,
    federation: Federation,
    plan: Plan,
    trained: Trained,
    data: PartyData | None,
    crowd: Crowd | None = None,
) -> FloatArray | None:
    """Return the predictions of validation rows to the label's holder, if all agreed on that.

    Reveals: these, rounded like any prediction, to the label's holder alone.
    """
    if not plan.reveal_validation:
        return None
    query, part = Query.to_holder(federation, trained.tables, plan.n_validation), trained.part
    query = replace(query, what=_WHAT)
    unit, columns = tell_unit(runtime, query, part), _columns(plan, data)
    return predict(runtime, query, federation.parties, part, columns, unit, crowd)


def reveal_importances(
    runtime: Runtime,
    federation: Federation,
    plan: Plan,
    trained: Trained,
    data: PartyData | None,
    crowd: Crowd | None = None,
) -> dict[str, list[float]] | None:
    """Return mean absolute contributions to the label's holder, if all agreed on that.

    Reveals: these, with as many fraction bits as predictions have or one more, to the label's
    holder alone.
    """
    if plan.importances_by is None:
        return None
    by, part = plan.importances_by, trained.part
    query = Query.to_holder(federation, trained.tables, plan.n_validation, by)
    unit, columns = tell_unit(runtime, query, part), _columns(plan, data)
    found = mean_contributions(runtime, query, federation.parties, part, columns, unit, crowd)
    if found is None or part is None:
        return None
    names = query.group_names(federation.parties, part)
    return dict(zip(names, found.tolist(), strict=True))


def _columns(plan: Plan, data: PartyData | None) -> FloatArray | None:
    """Return our columns of validation rows, unless workers have them."""
    if data is None or plan.shards > 1:
        return None
    return stand_ins(data.columns, plan.n_validation)


def stand_ins(columns: BucketedColumns, last: int) -> FloatArray:
    """Return values that lie in the buckets that the last rows are in: (n_features, rows).

    The lowest value of each bucket, and a missing one in the first: they pass the same tests.
    """
    buckets = columns.buckets[:, columns.n_samples - last :].astype(np.intp)
    lowest = np.take_along_axis(columns.thresholds, np.maximum(buckets - 1, 0), axis=1)
    return np.where(buckets > 0, lowest, np.nan)
