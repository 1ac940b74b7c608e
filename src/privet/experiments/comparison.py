"""Is it worth it? What the label's holder gains by each other participant, tried in the clear."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.reference import OnTable
from privet.boosting.simulation import PLAIN
from privet.data.partition import Holdings, PartyFrame, hand_out
from privet.errors import ParameterError
from privet.experiments.experiment import Scenario, evaluate, load, set_aside, train_on
from privet.federation.monitoring.report import Reported
from privet.objectives.base import Objective
from privet.spec.params import DEFAULT_PROTOCOL, Params
from privet.version import __version__

N_SPLITS = 5
CONFIDENCE = 0.95
REFERENCE = (
    f"Trained in the clear, by the reference. The protocol {DEFAULT_PROTOCOL} learns the same "
    "tests, unless two candidates' scores agree to about 5e-6."
)
METHOD = (
    f"Means over splits, each with a {CONFIDENCE:.0%} Student t interval; gains are paired, split "
    "by split. As splits share rows, the variance is Nadeau and Bengio's, (1/splits + test "
    "rows/training rows) S^2: an approximation, so take the intervals as a guide."
)


class Measured(Reported):
    """One quantity over all splits."""

    splits: list[float | None]
    """What it was in each; null where it was undefined: the AUC of test rows of one class."""
    mean: float | None
    """Over all splits."""
    low: float | None
    """The lower end of the interval."""
    high: float | None
    """The upper end. All three are null where it was undefined in any split."""


class Group(Reported):
    """Participants who would train together."""

    participants: list[str]
    """The last one has the label."""
    n_columns: int
    """Of all of them together."""
    metrics: dict[str, Measured]
    """On the test rows, by name."""
    gains: dict[str, Measured]
    """By metric, how much better they are than the label's holder alone: larger is better, also
    where the metric is an error. None for the label's holder alone."""


class Comparison(Reported):
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
    reference: str = REFERENCE
    """How models were trained, in words."""
    method: str = METHOD
    """How intervals were found, in words."""
    groups: list[Group]
    """The label's holder alone; with each other participant; with all of them."""
    seconds: float
    """What all of it took."""

    def describe(self, group: Group) -> str:
        """Say in a few words who a group is."""
        others = [name for name in group.participants if name != self.active]
        if not others:
            return f"{self.active} alone"
        if len(self.columns) > 2 and len(group.participants) == len(self.columns):
            return f"all {len(self.columns)}"
        return " + ".join((self.active, *others))


@dataclass(frozen=True)
class Progress:
    """How far a comparison is."""

    n_trainings: int
    done: int
    """Trainings."""
    share: float
    """Of the whole work: that of a training grows with its columns."""


OnProgress = Callable[[Progress], None]


def compare(
    scenario: Scenario, splits: int = N_SPLITS, on_progress: OnProgress | None = None
) -> Comparison:
    """Train the label's holder alone, with each other participant and with all, on several splits.

    The first split is the one that an experiment with the same seed has. Where the scenario is an
    experiment, nothing is made of its protocol and its network: all is trained in the clear.
    """
    started = time.perf_counter()
    if splits < 2:
        raise ParameterError(f"splits: an interval takes at least 2, got {splits}")
    data, params = load(scenario)
    stratified = scenario.stratified(params.objective)
    held = scenario.holdings(data.frame)
    groups = groups_of(held)
    seeds = [(scenario.seed + split) % (1 << 32) for split in range(splits)]
    watch = _Watch([_width(held, group) for group in groups * splits], params.tables, on_progress)
    scores: dict[tuple[str, ...], list[dict[str, float | None]]] = {group: [] for group in groups}
    for seed in seeds:
        rows, test = set_aside(data, scenario, seed, stratified)
        for group in groups:
            chosen = {name: held[name] for name in group}
            found = _predict(hand_out(rows, chosen), hand_out(test, chosen), params, watch.on_table)
            scores[group].append(evaluate(params.objective, found, test))
            watch.next_group()
    share = test.n_samples / rows.n_samples
    (alone, *_) = groups
    return Comparison(
        version=__version__,
        data=data.name,
        active=alone[-1],
        columns={name: list(columns) for name, columns in held.items()},
        params=params,
        metric=params.objective.metric,
        errors=sorted(params.objective.smaller_is_better),
        n_samples=rows.n_samples,
        n_test_samples=test.n_samples,
        seeds=seeds,
        stratified=stratified,
        groups=[
            Group(
                participants=list(group),
                n_columns=_width(held, group),
                metrics=_over_splits(scores[group], share),
                gains={}
                if group == alone
                else _over_splits(_gains(params.objective, scores[group], scores[alone]), share),
            )
            for group in groups
        ],
        seconds=time.perf_counter() - started,
    )


def groups_of(held: Holdings) -> list[tuple[str, ...]]:
    """Return who trains together: the last one alone, with each other one, and with all."""
    *others, active = held
    pairs = [(other, active) for other in others]
    return [(active,), *pairs, *([(*others, active)] if len(others) > 1 else [])]


def _width(held: Holdings, group: Sequence[str]) -> int:
    """Return how many columns a group has."""
    return sum(len(held[name]) for name in group)


def interval(values: Sequence[float], test_per_train: float) -> tuple[float, float, float]:
    """Return the mean of what random splits gave, and its interval's ends.

    The variance of the mean is Nadeau and Bengio's, (1/J + n_test/n_train) S^2: results of splits
    are correlated, as their training rows overlap, and they take the correlation to be the share
    of the test rows. S^2 / J would get as small as one likes by splitting often enough.
    """
    from scipy.special import stdtrit

    mean = math.fsum(values) / len(values)
    spread = float(np.std(values, ddof=1))
    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    half = quantile * spread * math.sqrt(1 / len(values) + test_per_train)
    return mean, mean - half, mean + half


def _over_splits(
    scores: Sequence[dict[str, float | None]], test_per_train: float
) -> dict[str, Measured]:
    result = {}
    for metric in scores[0]:
        values = [score[metric] for score in scores]
        known = [value for value in values if value is not None]
        mean, low, high = (
            interval(known, test_per_train) if len(known) == len(values) else (None, None, None)
        )
        result[metric] = Measured(splits=values, mean=mean, low=low, high=high)
    return result


def _gains(
    objective: Objective,
    scores: Sequence[dict[str, float | None]],
    alone: Sequence[dict[str, float | None]],
) -> list[dict[str, float | None]]:
    """Return how much better a group is than the label's holder alone, split by split."""

    def gain(metric: str, value: float | None, before: float | None) -> float | None:
        if value is None or before is None:
            return None
        return before - value if metric in objective.smaller_is_better else value - before

    return [
        {metric: gain(metric, value, before[metric]) for metric, value in score.items()}
        for score, before in zip(scores, alone, strict=True)
    ]


def _predict(
    parties: Sequence[PartyFrame], new: Sequence[PartyFrame], params: Params, on_table: OnTable
) -> FloatArray:
    """Train a group's model and predict new rows; without a column, by the mean of the targets."""
    if any(party.frame.names for party in parties):
        return train_on(parties, new, params, PLAIN, on_table=on_table).predictions
    label = parties[-1].frame.label
    assert label is not None
    means = params.objective.targets(label).mean(axis=1, keepdims=True)
    predicted = np.repeat(means, new[-1].frame.n_samples, axis=1)
    return predicted if len(predicted) > 1 else predicted[0]


class _Watch:
    """Tells whoever waits how far a comparison is."""

    def __init__(self, widths: Sequence[int], n_tables: int, tell: OnProgress | None) -> None:
        self._widths, self._n_tables = widths, n_tables
        self._tell_progress = tell
        self._group = 0
        self.on_table(0, None)

    def on_table(self, tables: int, _: float | None) -> None:
        """Hear of a table of the present group."""
        done = self._widths[: self._group]
        now = self._widths[self._group] * tables / self._n_tables if tables else 0
        if self._tell_progress is not None:
            n_trainings = sum(width > 0 for width in self._widths)
            share = (sum(done) + now) / sum(self._widths)
            self._tell_progress(Progress(n_trainings, sum(width > 0 for width in done), share))

    def next_group(self) -> None:
        """Hear that the present group is done."""
        self._group += 1
        self.on_table(0, None)
