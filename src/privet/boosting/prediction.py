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
from privet.boosting.sharding import (
    BatchWorkers,
    LocalBatch,
    PredictionBatch,
    ShardedBatch,
    send_splits,
)
from privet.boosting.training import PROTOCOL_TYPES, TrainingData, TrainingOutput, TrainingSpec
from privet.objectives.base import Objective
from privet.protocols.protocol import AppliedSplits, SplitGroups, share_initial_scores
from privet.runtime.runtime import Runtime
from privet.runtime.workers import WorkerHandle
from privet.spec.plan import ExplainBy, Plan


@dataclass(frozen=True)
class PredictionQuery:
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
    disclosure: str = "predictions"
    """What they are called in the ledger."""

    @classmethod
    def for_label_holder(
        cls,
        training_spec: TrainingSpec,
        tables: int,
        samples: int,
        explain: ExplainBy | None = None,
    ) -> PredictionQuery:
        """Return a batch whose predictions the label's holder receives, by so many tables."""
        return cls(
            protocol=training_spec.protocol,
            objective=training_spec.params.objective,
            shape=(tables, training_spec.params.depth, samples),
            active=training_spec.active,
            recipient=training_spec.active,
            prediction_bits=training_spec.prediction_bits,
            explain=explain,
            n_features=len(training_spec.features),
        )

    @property
    def encoding(self) -> FixedPoint:
        """How scores are encoded."""
        return FixedPoint(self.prediction_bits + GUARD_BITS, Z32)

    def group_splits(self, parties: Sequence[str], part: ModelPart | None) -> SplitGroups:
        """Return by what the contributions of tests are added up."""
        if self.explain == "participant":
            owners = None if part is None else part.find_split_owners(parties)
            return SplitGroups(len(parties), owners)
        assert self.explain == "feature"
        return SplitGroups(self.n_features, None if part is None else part.feature)

    def list_group_names(self, parties: Sequence[str], part: ModelPart) -> tuple[str, ...]:
        """Return what contributions are of: a feature, with its owner if two have its name."""
        if self.explain == "participant":
            return tuple(parties)
        names = [feature.name for feature in part.features]
        return tuple(
            f.name if names.count(f.name) == 1 else f"{f.name} of {f.owner}" for f in part.features
        )


def reveal_label_unit(
    runtime: Runtime, query: PredictionQuery, part: ModelPart | None
) -> LabelUnit | None:
    """Return the label's unit to the recipient of predictions, once, before the first of them.

    Where the objective has none of its own, there is nothing to tell.

    Reveals: the unit to the recipient, if it is not the active participant, who has it.
    """
    if not query.objective.normalised_label:
        return LabelUnit((0.0,) * query.objective.n_outputs)
    unit = None if part is None else part.label_unit
    if query.recipient == query.active:
        return unit
    with runtime.repeated_step("predict"):
        numbers = (
            None if unit is None else np.array([*unit.initial_scores, unit.scale]).view(np.uint64)
        )
        shared = runtime.share(numbers, query.active, (2,), Z64)
        revealed = runtime.reveal(shared, [query.recipient], "centre and scale of the label")
    if revealed is None:
        return None
    centre, scale = revealed.view(np.float64).tolist()
    return LabelUnit((centre,), scale)


@dataclass(frozen=True, repr=False)
class ExplainedPredictions:
    """Predictions, and what contributes to the scores that they were made from."""

    predictions: FloatArray
    explanation: Explanation
    names: tuple[str, ...]
    """What each contribution is of."""

    def take(self, rows: IndexArray) -> ExplainedPredictions:
        """Return those of some rows, in that order."""
        found = self.explanation
        chosen = replace(found, contributions=found.contributions[..., rows])
        return ExplainedPredictions(self.predictions[..., rows], chosen, self.names)


def predict(
    runtime: Runtime,
    query: PredictionQuery,
    parties: Sequence[str],
    part: ModelPart | None,
    columns: FloatArray | None,
    unit: LabelUnit | None,
    batch_workers: BatchWorkers | None = None,
) -> FloatArray | None:
    """Predict new samples; return values or probabilities to the recipient, None to all others.

    1. Every participant applies its own tests; the suite adds up the leaf values on shares, from
       where the active participant has scores start.
    2. The scores are rounded to what all agreed on, and revealed to the recipient, who knows the
       label's unit (`reveal_label_unit`).

    In shards, a crowd of workers does all of that but for revealing, each for its own samples.

    Reveals: the rounded scores to the recipient.
    """
    with runtime.repeated_step("predict"):
        samples = _create_batch(runtime, query, parties, part, columns, batch_workers)
        scores = samples.compute_scores(
            _get_leaf_values(query, part), _share_initial_scores(runtime, query, part)
        )
        revealed = runtime.reveal(scores.reshape(-1), [query.recipient], query.disclosure)
        if revealed is None:
            return None
        assert unit is not None
        score = query.encoding.decode(revealed).reshape(scores.shape)
        return query.objective.predict_from_scores(unit.restore(score))


def predict_explained(
    runtime: Runtime,
    query: PredictionQuery,
    parties: Sequence[str],
    part: ModelPart | None,
    columns: FloatArray | None,
    unit: LabelUnit | None,
    batch_workers: BatchWorkers | None = None,
) -> ExplainedPredictions | None:
    """Predict as `predict` does, the same numbers, and explain the scores to the recipient.

    Contributions are looked up as leaf values are, added up by feature or by participant on shares,
    and rounded as scores are. What rounding leaves over, the recipient spreads evenly over those
    that are tested at all: so contributions and the base add up to the score.

    Reveals: the rounded scores, contributions and base to the recipient.
    """
    with runtime.repeated_step("predict"):
        samples = _create_batch(runtime, query, parties, part, columns, batch_workers)
        groups, start = (
            query.group_splits(parties, part),
            _share_initial_scores(runtime, query, part),
        )
        reasons, means = _get_contributions(query, part)
        scores, added, base = samples.compute_explained(
            _get_leaf_values(query, part), start, reasons, groups, means.sum(0) + start.reshape(-1)
        )
        to, others = [query.recipient], concatenate([added.reshape(-1), base])
        revealed = runtime.reveal(scores.reshape(-1), to, query.disclosure)
        beside = runtime.reveal(others, to, "contributions and base")
    if revealed is None or beside is None:
        return None
    assert part is not None
    assert unit is not None
    assert groups.of_splits is not None
    score = query.encoding.decode(revealed).reshape(scores.shape)
    numbers = query.encoding.decode(beside)
    middle = numbers[added.size :, None]
    contributions = numbers[: added.size].reshape(added.shape).transpose(1, 0, 2).copy()
    tested = np.unique(groups.of_splits)
    left_over = score - middle - contributions.sum(axis=1)
    contributions[:, tested] += left_over[:, None] / len(tested)
    return ExplainedPredictions(
        query.objective.predict_from_scores(unit.restore(score)),
        Explanation(contributions * unit.scale, unit.restore(middle)[:, 0]),
        query.list_group_names(parties, part),
    )


def answer_query(
    runtime: Runtime,
    query: PredictionQuery,
    parties: Sequence[str],
    part: ModelPart | None,
    columns: FloatArray | None,
    unit: LabelUnit | None,
    batch_workers: BatchWorkers | None = None,
) -> FloatArray | ExplainedPredictions | None:
    """Predict, and explain the predictions if the query says by what."""
    program = predict if query.explain is None else predict_explained
    return program(runtime, query, parties, part, columns, unit, batch_workers)


def reveal_mean_contributions(
    runtime: Runtime,
    query: PredictionQuery,
    parties: Sequence[str],
    part: ModelPart | None,
    columns: FloatArray | None,
    unit: LabelUnit | None,
    batch_workers: BatchWorkers | None = None,
) -> FloatArray | None:
    """Return how large contributions to the samples' scores are on average, whatever their sign.

    (groups, outputs), in the label's unit, to the recipient, and None to all others. Those of each
    sample stay in shares.

    Reveals: these means to the recipient.
    """
    with runtime.repeated_step("predict"):
        samples = _create_batch(runtime, query, parties, part, columns, batch_workers)
        reasons, _ = _get_contributions(query, part)
        total = samples.sum_absolute_contributions(
            _get_leaf_values(query, part), reasons, query.group_splits(parties, part)
        )
        bits = query.encoding.fraction_bits, query.prediction_bits
        found = PROTOCOL_TYPES[query.protocol].reveal_mean_contributions(
            runtime, total, query.shape[2], bits, query.recipient
        )
    if found is None or unit is None:
        return None
    return found * unit.scale


def _create_batch(
    runtime: Runtime,
    query: PredictionQuery,
    parties: Sequence[str],
    part: ModelPart | None,
    columns: FloatArray | None,
    batch_workers: BatchWorkers | None,
) -> PredictionBatch:
    """Return the samples of a query, here or in shards."""
    suite = PROTOCOL_TYPES[query.protocol]
    if batch_workers is not None:
        return ShardedBatch(runtime, suite, batch_workers, query.shape)
    return LocalBatch(runtime, suite, apply_splits(query, parties, part, columns))


def _get_contributions(query: PredictionQuery, part: ModelPart | None) -> tuple[Share, Share]:
    """Return our shares of contributions and means, as `PartExplanation` has them."""
    if part is not None:
        assert part.explanation is not None, "the part explains nothing"
        return Share(part.explanation.contributions, Z32), Share(part.explanation.means, Z32)
    (tables, depth, _), outputs = query.shape, query.objective.n_outputs
    contributions = Share.unknown((tables, outputs, depth, 1 << depth), Z32)
    return contributions, Share.unknown((tables, outputs), Z32)


def apply_splits(
    query: PredictionQuery,
    parties: Sequence[str],
    part: ModelPart | None,
    columns: FloatArray | None,
) -> AppliedSplits:
    """Return the tests of all tables, as they come out for the samples."""
    if part is None or columns is None:
        return AppliedSplits(query.shape, None, None)
    return AppliedSplits(
        query.shape, part.find_split_owners(parties), part.find_rows_going_right(columns)
    )


def _get_leaf_values(query: PredictionQuery, part: ModelPart | None) -> Share:
    """Return our share of the leaf values of all tables."""
    tables, depth, _ = query.shape
    if part is None:
        return Share.unknown((tables, query.objective.n_outputs, 1 << depth), Z32)
    return Share(part.leaf_shares, Z32)


def _share_initial_scores(
    runtime: Runtime, query: PredictionQuery, part: ModelPart | None
) -> Share:
    """Return a share of where scores start, (K, 1), all of it the active participant's.

    Zeros where an objective has its own unit, which says where they start.
    """
    start = None
    if part is not None and part.label_unit is not None and not query.objective.normalised_label:
        start = np.array(part.label_unit.initial_scores)
    return share_initial_scores(runtime, start, query.encoding, (query.objective.n_outputs, 1), Z32)


_WHAT = "predictions of validation rows"


class ValidationResult(NamedTuple):
    """What the label's holder learns of validation rows at the end; nobody else learns any."""

    predictions: FloatArray | None = None
    importances: dict[str, list[float]] | None = None
    """How large contributions to their scores are on average, whatever their sign: of each feature
    or participant, by name, to each output."""


def reveal_validation_results(
    runtime: Runtime,
    training_spec: TrainingSpec,
    plan: Plan,
    result: TrainingOutput,
    data: TrainingData | None,
    workers: Sequence[WorkerHandle] = (),
) -> ValidationResult:
    """Do with validation rows, after the last table, what all agreed on.

    Where rows are in shards, workers do it, who have them in buckets.

    Reveals: what `predict_validation` and `reveal_importances` do.
    """
    crowd = BatchWorkers(plan.shards, workers) if plan.shards > 1 else None
    if crowd is not None and (plan.reveal_validation or plan.importances_by is not None):
        shape = (result.n_tables, plan.params.depth, plan.n_validation)
        send_splits(runtime, crowd, shape, result.part)
    predictions = predict_validation(runtime, training_spec, plan, result, data, crowd)
    importances = reveal_importances(runtime, training_spec, plan, result, data, crowd)
    return ValidationResult(predictions, importances)


def predict_validation(
    runtime: Runtime,
    training_spec: TrainingSpec,
    plan: Plan,
    result: TrainingOutput,
    data: TrainingData | None,
    batch_workers: BatchWorkers | None = None,
) -> FloatArray | None:
    """Return the predictions of validation rows to the label's holder, if all agreed on that.

    Reveals: these, rounded like any prediction, to the label's holder alone.
    """
    if not plan.reveal_validation:
        return None
    query, part = (
        PredictionQuery.for_label_holder(training_spec, result.n_tables, plan.n_validation),
        result.part,
    )
    query = replace(query, disclosure=_WHAT)
    unit, columns = reveal_label_unit(runtime, query, part), _columns(plan, data)
    return predict(runtime, query, training_spec.parties, part, columns, unit, batch_workers)


def reveal_importances(
    runtime: Runtime,
    training_spec: TrainingSpec,
    plan: Plan,
    result: TrainingOutput,
    data: TrainingData | None,
    batch_workers: BatchWorkers | None = None,
) -> dict[str, list[float]] | None:
    """Return mean absolute contributions to the label's holder, if all agreed on that.

    Reveals: these, with as many fraction bits as predictions have or one more, to the label's
    holder alone.
    """
    if plan.importances_by is None:
        return None
    by, part = plan.importances_by, result.part
    query = PredictionQuery.for_label_holder(training_spec, result.n_tables, plan.n_validation, by)
    unit, columns = reveal_label_unit(runtime, query, part), _columns(plan, data)
    found = reveal_mean_contributions(
        runtime, query, training_spec.parties, part, columns, unit, batch_workers
    )
    if found is None or part is None:
        return None
    names = query.list_group_names(training_spec.parties, part)
    return dict(zip(names, found.tolist(), strict=True))


def _columns(plan: Plan, data: TrainingData | None) -> FloatArray | None:
    """Return our columns of validation rows, unless workers have them."""
    if data is None or plan.shards > 1:
        return None
    return make_representative_values(data.columns, plan.n_validation)


def make_representative_values(columns: BucketedColumns, last: int) -> FloatArray:
    """Return values that lie in the buckets that the last rows are in: (n_features, rows).

    The lowest value of each bucket, and a missing one in the first: they pass the same tests.
    """
    buckets = columns.buckets[:, columns.n_samples - last :].astype(np.intp)
    lowest = np.take_along_axis(columns.thresholds, np.maximum(buckets - 1, 0), axis=1)
    return np.where(buckets > 0, lowest, np.nan)
