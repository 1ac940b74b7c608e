"""The metric gains of the label holder with each other participant, in plaintext training."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.reference import TableCallback
from privet.boosting.simulation import PLAINTEXT
from privet.data.partition import ColumnOwnership, PartyFrame, split_by_ownership
from privet.errors import ParameterError
from privet.experiments.experiment import (
    Scenario,
    compute_metrics,
    load_scenario,
    split_train_test,
    train_and_predict,
)
from privet.federation.monitoring.report import ReportModel
from privet.objectives.base import Objective
from privet.spec.params import DEFAULT_PROTOCOL, Params
from privet.version import __version__

DEFAULT_N_SPLITS = 5
CONFIDENCE = 0.95
REFERENCE_TEXT = (
    f"Trained in the clear, by the reference. The protocol {DEFAULT_PROTOCOL} learns the same "
    "tests, unless two candidates' scores agree to about 5e-6."
)
METHOD_TEXT = (
    f"Means over splits, each with a {CONFIDENCE:.0%} Student t interval; gains are paired, split "
    "by split. As splits share rows, the variance is Nadeau and Bengio's, (1/splits + test "
    "rows/training rows) S^2: an approximation, so take the intervals as a guide."
)


class Measurement(ReportModel):
    """One quantity over all splits."""

    splits: list[float | None]
    """What it was in each; null where it was undefined: the AUC of test rows of one class."""
    mean: float | None
    """Over all splits."""
    low: float | None
    """The lower end of the interval."""
    high: float | None
    """The upper end. All three are null where it was undefined in any split."""


class PartyGroup(ReportModel):
    """Participants who would train together."""

    participants: list[str]
    """The last one has the label."""
    n_columns: int
    """Of all of them together."""
    metrics: dict[str, Measurement]
    """On the test rows, by name."""
    gains: dict[str, Measurement]
    """By metric, how much better they are than the label's holder alone: larger is better, also
    where the metric is an error. None for the label's holder alone."""


class Comparison(ReportModel):
    """What federating would gain. Keys may be added in later versions; none is renamed."""

    version: str
    """Of this software."""
    data: str
    """The data set, or the file's name."""
    active: str
    """The label's holder."""
    columns: dict[str, list[str]]
    """Of each participant."""
    params: Params
    """The hyper-parameters."""
    metric: str
    """The main one."""
    errors: list[str]
    """The metrics that are better the smaller they are."""
    n_samples: int
    """Training rows of a split."""
    n_test_samples: int
    """Test rows of a split."""
    seeds: list[int]
    """One a split."""
    stratified: bool
    """Whether training and test rows have the same share of each class."""
    confidence: float = CONFIDENCE
    """Of all intervals."""
    reference: str = REFERENCE_TEXT
    """How models were trained, in words."""
    method: str = METHOD_TEXT
    """How intervals were found, in words."""
    groups: list[PartyGroup]
    """The label's holder alone; with each other participant; with all of them."""
    seconds: float
    """What all of it took."""

    def describe(self, group: PartyGroup) -> str:
        """Return a short name of a group."""
        others = [name for name in group.participants if name != self.active]
        if not others:
            return f"{self.active} alone"
        if len(self.columns) > 2 and len(group.participants) == len(self.columns):
            return f"all {len(self.columns)}"
        return " + ".join((self.active, *others))


@dataclass(frozen=True)
class ComparisonProgress:
    """The progress of a comparison."""

    n_trainings: int
    n_done: int
    """The number of completed training runs."""
    fraction: float
    """The completed fraction of the work; that of a training run grows with its columns."""


OnProgress = Callable[[ComparisonProgress], None]


def compare(
    scenario: Scenario, splits: int = DEFAULT_N_SPLITS, on_progress: OnProgress | None = None
) -> Comparison:
    """Train the label holder alone, with each other participant, and with all, on several splits.

    The first split is that of an experiment with the same seed. All training is in plaintext: if
    the scenario is an experiment, its protocol and network are ignored.
    """
    started = time.perf_counter()
    if splits < 2:
        raise ParameterError(f"splits: an interval takes at least 2, got {splits}")
    data, params = load_scenario(scenario)
    stratified = scenario.is_stratified(params.objective)
    ownership = scenario.assign_columns(data.frame)
    groups = make_groups(ownership)
    seeds = [(scenario.seed + split) % (1 << 32) for split in range(splits)]
    tracker = _ProgressTracker(
        [_count_columns(ownership, group) for group in groups * splits], params.tables, on_progress
    )
    scores: dict[tuple[str, ...], list[dict[str, float | None]]] = {group: [] for group in groups}
    for seed in seeds:
        rows, test = split_train_test(data, scenario, seed, stratified)
        for group in groups:
            columns = {name: ownership[name] for name in group}
            predictions = _predict(
                split_by_ownership(rows, columns),
                split_by_ownership(test, columns),
                params,
                tracker.on_table,
            )
            scores[group].append(compute_metrics(params.objective, predictions, test))
            tracker.advance()
    test_train_ratio = test.n_samples / rows.n_samples
    (alone, *_) = groups
    return Comparison(
        version=__version__,
        data=data.name,
        active=alone[-1],
        columns={name: list(columns) for name, columns in ownership.items()},
        params=params,
        metric=params.objective.primary_metric,
        errors=sorted(params.objective.error_metrics),
        n_samples=rows.n_samples,
        n_test_samples=test.n_samples,
        seeds=seeds,
        stratified=stratified,
        groups=[
            PartyGroup(
                participants=list(group),
                n_columns=_count_columns(ownership, group),
                metrics=_summarise_splits(scores[group], test_train_ratio),
                gains={}
                if group == alone
                else _summarise_splits(
                    _compute_gains(params.objective, scores[group], scores[alone]),
                    test_train_ratio,
                ),
            )
            for group in groups
        ],
        seconds=time.perf_counter() - started,
    )


def make_groups(ownership: ColumnOwnership) -> list[tuple[str, ...]]:
    """Return the groups: the last participant alone, with each other one, and with all."""
    *others, active = ownership
    pairs = [(other, active) for other in others]
    return [(active,), *pairs, *([(*others, active)] if len(others) > 1 else [])]


def _count_columns(ownership: ColumnOwnership, group: Sequence[str]) -> int:
    """Return the number of columns of a group."""
    return sum(len(ownership[name]) for name in group)


def compute_interval(
    values: Sequence[float], test_train_ratio: float
) -> tuple[float, float, float]:
    """Return the mean over random splits, and the ends of its confidence interval.

    The variance of the mean is Nadeau and Bengio's, (1/J + n_test/n_train) S^2: the results of
    splits are correlated, since their training rows overlap, and the correlation is assumed to be
    the fraction of test rows. S^2 / J would become arbitrarily small with enough splits.
    """
    from scipy.special import stdtrit

    mean = math.fsum(values) / len(values)
    spread = float(np.std(values, ddof=1))
    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    half = quantile * spread * math.sqrt(1 / len(values) + test_train_ratio)
    return mean, mean - half, mean + half


def _summarise_splits(
    scores: Sequence[dict[str, float | None]], test_train_ratio: float
) -> dict[str, Measurement]:
    result = {}
    for metric in scores[0]:
        values = [score[metric] for score in scores]
        known = [value for value in values if value is not None]
        mean, low, high = (
            compute_interval(known, test_train_ratio)
            if len(known) == len(values)
            else (None, None, None)
        )
        result[metric] = Measurement(splits=values, mean=mean, low=low, high=high)
    return result


def _compute_gains(
    objective: Objective,
    scores: Sequence[dict[str, float | None]],
    baseline: Sequence[dict[str, float | None]],
) -> list[dict[str, float | None]]:
    """Return the improvement of a group over the label holder alone, split by split."""

    def compute_gain(metric: str, value: float | None, alone: float | None) -> float | None:
        if value is None or alone is None:
            return None
        return alone - value if metric in objective.error_metrics else value - alone

    return [
        {metric: compute_gain(metric, value, alone[metric]) for metric, value in score.items()}
        for score, alone in zip(scores, baseline, strict=True)
    ]


def _predict(
    parties: Sequence[PartyFrame],
    test_parties: Sequence[PartyFrame],
    params: Params,
    on_table: TableCallback,
) -> FloatArray:
    """Train a group's model and predict new rows; without columns, predict the mean target."""
    if any(party.frame.names for party in parties):
        return train_and_predict(
            parties, test_parties, params, PLAINTEXT, on_table=on_table
        ).predictions
    label = parties[-1].frame.label
    assert label is not None
    means = params.objective.make_targets(label).mean(axis=1, keepdims=True)
    predicted = np.repeat(means, test_parties[-1].frame.n_samples, axis=1)
    return predicted if len(predicted) > 1 else predicted[0]


class _ProgressTracker:
    """Reports the progress of a comparison to a callback."""

    def __init__(
        self, n_columns_by_training: Sequence[int], n_tables: int, on_progress: OnProgress | None
    ) -> None:
        self._widths, self._n_tables = n_columns_by_training, n_tables
        self._on_progress = on_progress
        self._group = 0
        self.on_table(0, None)

    def on_table(self, tables: int, _: float | None) -> None:
        """Report that `tables` tables of the current group are trained."""
        done = self._widths[: self._group]
        current = self._widths[self._group] * tables / self._n_tables if tables else 0
        if self._on_progress is not None:
            n_trainings = sum(width > 0 for width in self._widths)
            fraction = (sum(done) + current) / sum(self._widths)
            self._on_progress(
                ComparisonProgress(n_trainings, sum(width > 0 for width in done), fraction)
            )

    def advance(self) -> None:
        """Report that the current group is done."""
        self._group += 1
        self.on_table(0, None)
