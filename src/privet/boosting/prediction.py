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
    """The public description of a batch to predict, known to all participants and the dealer."""

    protocol: str
    objective: Objective
    shape: tuple[int, int, int]
    """(tables, depth, n_samples)."""
    active: int
    recipient: int
    """The participant that receives the predictions."""
    prediction_bits: int
    """Fraction bits of the revealed scores."""
    explain: ExplainBy | None = None
    """The grouping of the contributions that the recipient receives, if it requests them."""
    n_features: int = 0
    """The number of features of all participants, for contributions by feature."""
    disclosure: str = "predictions"
    """The name of the predictions in the disclosure ledger."""

    @classmethod
    def for_label_holder(
        cls,
        training_spec: TrainingSpec,
        tables: int,
        samples: int,
        explain: ExplainBy | None = None,
    ) -> PredictionQuery:
        """Return a batch whose predictions, by so many tables, the label holder receives."""
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
        """The encoding of scores."""
        return FixedPoint(self.prediction_bits + GUARD_BITS, Z32)

    def group_splits(self, parties: Sequence[str], part: ModelPart | None) -> SplitGroups:
        """Return the groups by which the contributions of splits are added up."""
        if self.explain == "participant":
            owners = None if part is None else part.find_split_owners(parties)
            return SplitGroups(len(parties), owners)
        assert self.explain == "feature"
        return SplitGroups(self.n_features, None if part is None else part.feature)

    def list_group_names(self, parties: Sequence[str], part: ModelPart) -> tuple[str, ...]:
        """Return the names of the groups; equal names of features are extended by their owners."""
        if self.explain == "participant":
            return tuple(parties)
        names = [feature.name for feature in part.features]
        return tuple(
            f.name if names.count(f.name) == 1 else f"{f.name} of {f.owner}" for f in part.features
        )


def reveal_label_unit(
    runtime: Runtime, query: PredictionQuery, part: ModelPart | None
) -> LabelUnit | None:
    """Return the unit of the label to the recipient, once, before its first predictions.

    If the objective does not normalise the label, the unit is public.

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
    """Predictions, and the contributions to their scores."""

    predictions: FloatArray
    explanation: Explanation
    names: tuple[str, ...]
    """The feature or participant of each contribution."""

    def take(self, rows: IndexArray) -> ExplainedPredictions:
        """Return the predictions of some rows, in that order."""
        explanation = replace(
            self.explanation, contributions=self.explanation.contributions[..., rows]
        )
        return ExplainedPredictions(self.predictions[..., rows], explanation, self.names)


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

    1. Every participant applies the splits on its own features; the suite adds up [leaf values] and
       the active participant's initial scores.
    2. The [scores] are rounded to the agreed number of bits and revealed to the recipient, who
       knows the label's unit (`reveal_label_unit`).

    In shards, a group of workers runs all steps except revealing, each for its own samples.

    Reveals: the rounded scores to the recipient.
    """
    with runtime.repeated_step("predict"):
        batch = _create_batch(runtime, query, parties, part, columns, batch_workers)
        scores = batch.compute_scores(
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
    """Return the predictions of `predict` and the contributions to their scores to the recipient.

    Contributions are looked up like leaf values, added up by feature or by participant on shares,
    and rounded like scores. The recipient spreads the rounding difference evenly over the groups
    that have a split, so that contributions and the base add up to the score.

    Reveals: the rounded scores, contributions and base to the recipient.
    """
    with runtime.repeated_step("predict"):
        batch = _create_batch(runtime, query, parties, part, columns, batch_workers)
        groups = query.group_splits(parties, part)
        initial_scores = _share_initial_scores(runtime, query, part)
        contributions, means = _get_contributions(query, part)
        base = means.sum(0) + initial_scores.reshape(-1)
        scores, added, rounded_base = batch.compute_explained(
            _get_leaf_values(query, part), initial_scores, contributions, groups, base
        )
        to, details = [query.recipient], concatenate([added.reshape(-1), rounded_base])
        revealed = runtime.reveal(scores.reshape(-1), to, query.disclosure)
        revealed_details = runtime.reveal(details, to, "contributions and base")
    if revealed is None or revealed_details is None:
        return None
    assert part is not None
    assert unit is not None
    assert groups.of_splits is not None
    score = query.encoding.decode(revealed).reshape(scores.shape)
    decoded = query.encoding.decode(revealed_details)
    mean_score = decoded[added.size :, None]
    by_group = decoded[: added.size].reshape(added.shape).transpose(1, 0, 2).copy()
    with_splits = np.unique(groups.of_splits)
    difference = score - mean_score - by_group.sum(axis=1)
    by_group[:, with_splits] += difference[:, None] / len(with_splits)
    return ExplainedPredictions(
        query.objective.predict_from_scores(unit.restore(score)),
        Explanation(by_group * unit.scale, unit.restore(mean_score)[:, 0]),
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
    """Predict, and explain the predictions if the query sets `explain`."""
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
    """Return the mean absolute contributions to the samples' scores.

    They are (groups, outputs), in the label's unit, at the recipient, and None at all others. The
    contributions to the score of a single sample stay secret-shared.

    Reveals: these means to the recipient.
    """
    with runtime.repeated_step("predict"):
        batch = _create_batch(runtime, query, parties, part, columns, batch_workers)
        contributions, _ = _get_contributions(query, part)
        total = batch.sum_absolute_contributions(
            _get_leaf_values(query, part), contributions, query.group_splits(parties, part)
        )
        bits = query.encoding.fraction_bits, query.prediction_bits
        means = PROTOCOL_TYPES[query.protocol].reveal_mean_contributions(
            runtime, total, query.shape[2], bits, query.recipient
        )
    if means is None or unit is None:
        return None
    return means * unit.scale


def _create_batch(
    runtime: Runtime,
    query: PredictionQuery,
    parties: Sequence[str],
    part: ModelPart | None,
    columns: FloatArray | None,
    batch_workers: BatchWorkers | None,
) -> PredictionBatch:
    """Return the samples of a query, in this process or in shards."""
    suite = PROTOCOL_TYPES[query.protocol]
    if batch_workers is not None:
        return ShardedBatch(runtime, suite, batch_workers, query.shape)
    return LocalBatch(runtime, suite, apply_splits(query, parties, part, columns))


def _get_contributions(query: PredictionQuery, part: ModelPart | None) -> tuple[Share, Share]:
    """Return the local shares of contributions and means, as in `PartExplanation`."""
    if part is not None:
        assert part.explanation is not None, "the part has no explanation"
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
    """Return the outcomes of the splits of all tables for the samples."""
    if part is None or columns is None:
        return AppliedSplits(query.shape, None, None)
    return AppliedSplits(
        query.shape, part.find_split_owners(parties), part.find_rows_going_right(columns)
    )


def _get_leaf_values(query: PredictionQuery, part: ModelPart | None) -> Share:
    """Return the local share of the leaf values of all tables."""
    tables, depth, _ = query.shape
    if part is None:
        return Share.unknown((tables, query.objective.n_outputs, 1 << depth), Z32)
    return Share(part.leaf_shares, Z32)


def _share_initial_scores(
    runtime: Runtime, query: PredictionQuery, part: ModelPart | None
) -> Share:
    """Return a share of the initial scores, (K, 1), which the active participant knows.

    They are zero if the objective normalises the label: its unit then contains them.
    """
    initial_scores = None
    if part is not None and part.label_unit is not None and not query.objective.normalised_label:
        initial_scores = np.array(part.label_unit.initial_scores)
    shape = (query.objective.n_outputs, 1)
    return share_initial_scores(runtime, initial_scores, query.encoding, shape, Z32)


_WHAT = "predictions of validation rows"


class ValidationResult(NamedTuple):
    """The results on validation rows after training; only the label holder learns them."""

    predictions: FloatArray | None = None
    importances: dict[str, list[float]] | None = None
    """Mean absolute contributions to their scores: by the name of each feature or participant, one
    for each output."""


def reveal_validation_results(
    runtime: Runtime,
    training_spec: TrainingSpec,
    plan: Plan,
    result: TrainingOutput,
    data: TrainingData | None,
    workers: Sequence[WorkerHandle] = (),
) -> ValidationResult:
    """Return the results on validation rows, after the last table, that all participants agreed on.

    If rows are in shards, the workers compute them, since they hold the bucketed rows.

    Reveals: what `predict_validation` and `reveal_importances` reveal.
    """
    batch_workers = BatchWorkers(plan.shards, workers) if plan.shards > 1 else None
    if batch_workers is not None and (plan.reveal_validation or plan.importances_by is not None):
        shape = (result.n_tables, plan.params.depth, plan.n_validation)
        send_splits(runtime, batch_workers, shape, result.part)
    predictions = predict_validation(runtime, training_spec, plan, result, data, batch_workers)
    importances = reveal_importances(runtime, training_spec, plan, result, data, batch_workers)
    return ValidationResult(predictions, importances)


def predict_validation(
    runtime: Runtime,
    training_spec: TrainingSpec,
    plan: Plan,
    result: TrainingOutput,
    data: TrainingData | None,
    batch_workers: BatchWorkers | None = None,
) -> FloatArray | None:
    """Return the predictions of validation rows to the label holder, if all agreed to that.

    Reveals: these predictions, rounded like all others, to the label holder only.
    """
    if not plan.reveal_validation:
        return None
    part = result.part
    query = PredictionQuery.for_label_holder(training_spec, result.n_tables, plan.n_validation)
    query = replace(query, disclosure=_WHAT)
    unit, columns = reveal_label_unit(runtime, query, part), _get_columns(plan, data)
    return predict(runtime, query, training_spec.parties, part, columns, unit, batch_workers)


def reveal_importances(
    runtime: Runtime,
    training_spec: TrainingSpec,
    plan: Plan,
    result: TrainingOutput,
    data: TrainingData | None,
    batch_workers: BatchWorkers | None = None,
) -> dict[str, list[float]] | None:
    """Return mean absolute contributions to the label holder, if all participants agreed to that.

    Reveals: these means, with the fraction bits of predictions or one more, to the label holder
    only.
    """
    if plan.importances_by is None:
        return None
    by, part = plan.importances_by, result.part
    query = PredictionQuery.for_label_holder(training_spec, result.n_tables, plan.n_validation, by)
    unit, columns = reveal_label_unit(runtime, query, part), _get_columns(plan, data)
    means = reveal_mean_contributions(
        runtime, query, training_spec.parties, part, columns, unit, batch_workers
    )
    if means is None or part is None:
        return None
    names = query.list_group_names(training_spec.parties, part)
    return dict(zip(names, means.tolist(), strict=True))


def _get_columns(plan: Plan, data: TrainingData | None) -> FloatArray | None:
    """Return the local columns of validation rows, unless workers have them."""
    if data is None or plan.shards > 1:
        return None
    return make_representative_values(data.columns, plan.n_validation)


def make_representative_values(columns: BucketedColumns, last: int) -> FloatArray:
    """Return values in the same buckets as those of the last rows: (n_features, rows).

    They are the lowest value of each bucket, and a missing value for the first bucket: all splits
    have the same outcomes.
    """
    buckets = columns.buckets[:, columns.n_samples - last :].astype(np.intp)
    lowest = np.take_along_axis(columns.thresholds, np.maximum(buckets - 1, 0), axis=1)
    return np.where(buckets > 0, lowest, np.nan)
