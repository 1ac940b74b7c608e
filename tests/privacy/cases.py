"""Programs and data to explain: trainings and predictions, and other data with the same outputs.

Rows come in twins, a row and the one N / 2 further on, that are alike in everything but the honest
participant's columns. Exchanging these between twins changes every row that the honest participant
holds and no sum that anybody learns of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from privet.arrays import FloatArray, IndexArray
from privet.boosting import reference
from privet.boosting.binning import BucketedColumns, bucket_columns
from privet.boosting.model import Feature
from privet.boosting.model_part import GUARD_BITS, LabelUnit, ModelPart, PartExplanation
from privet.boosting.prediction import (
    ExplainedPredictions,
    PredictionQuery,
    answer_query,
    reveal_label_unit,
    reveal_validation_results,
)
from privet.boosting.training import (
    IndicatorCacheConfig,
    TrainingData,
    TrainingSpec,
    TrainingState,
    train,
)
from privet.data.frame import Ids
from privet.federation.keeping import Keeper, receive_seeds
from privet.federation.monitoring.events import discard_event
from privet.objectives.regression import create_objective
from privet.protocols.masked.argmax import _stages
from privet.runtime.run import DEALER_NAME
from privet.runtime.runtime import Runtime
from privet.spec.params import Params
from privet.spec.plan import ExplainBy, Plan
from privet.spec.sampling import normalise_weights
from privet.transport.memory import create_memory_channels
from tests.privacy.stage import Randomness, Session, perform, run_threads

N = 64
SET_ASIDE = np.concatenate([np.arange(8), N // 2 + np.arange(8)])
"""Training rows that there are once more, as validation rows, with their twins."""
THREE = "three classes"
"""A task here: of several outputs."""
ALL_TERMS: dict[str, Any] = {
    "reveal_loss": True,
    "reveal_gain": True,
    "has_explanations": True,
    "watched": True,
    "reveal_validation": True,
    "importances_by": "feature",
}
"""What `masked` can be asked for beside a model."""
NOISE_RISES = (0, 1) * 3
"""Constraints of three participants, on their columns of noise."""
BUCKETS = 4
DEPTH = 2


@dataclass(frozen=True)
class Training:
    """A training, perhaps the rest of one, that ends with the state to go on from."""

    federation: TrainingSpec
    plan: Plan
    done: int = 0
    keepings: Mapping[int, IndicatorCacheConfig] | None = None
    """What each participant has of kept indicators, and, as -1, the dealer."""

    def __call__(
        self, runtime: Runtime, data: tuple[TrainingData, TrainingState | None] | None
    ) -> TrainingState | None:
        own, state = (None, None) if data is None else data
        kept: list[TrainingState] = []
        trained = train(
            runtime,
            self.federation,
            self.plan,
            own,
            n_trained_tables=self.done,
            state=state,
            on_state=kept.append,
            indicator_cache=None if self.keepings is None else self.keepings[runtime.index],
        )
        reveal_validation_results(runtime, self.federation, self.plan, trained, own)
        return kept[-1] if kept else None

    def keeping(self, data: Sequence[tuple[TrainingData, Any]], folder: Path) -> Training:
        """Return the same with kept indicators, as participants with these folders agree on."""
        parties, found = self.federation.parties, dict[int, tuple[Plan, IndicatorCacheConfig]]()
        channels = create_memory_channels([*parties, DEALER_NAME], peer_timeout=10)
        ids = Ids.from_texts(range(N))

        def party(k: int) -> None:
            columns = data[k][0].columns
            keeper = Keeper(
                str(folder / parties[k]), columns, ids, discard_event, {DEALER_NAME: "its"}
            )
            found[k] = keeper.agree(channels[parties[k]], self.federation, N)

        def dealer() -> None:
            found[-1] = receive_seeds(channels[DEALER_NAME], self.federation, N)

        bodies = {name: partial(party, k) for k, name in enumerate(parties)}
        run_threads({**bodies, DEALER_NAME: dealer})
        (kept,) = {plan.cached_owners for plan, _ in found.values()}
        plan = replace(self.plan, cached_owners=kept)
        return replace(self, plan=plan, keepings={k: own for k, (_, own) in found.items()})

    def at_another_rate(self) -> Training:
        """Return one table of the same training, at another learning rate."""
        params = self.plan.params.model_copy(update={"tables": 1, "learning_rate": 0.4})
        plan = replace(self.plan, params=params)
        return replace(self, federation=replace(self.federation, params=params), plan=plan)

    def rest(self, tables: int) -> Training:
        """Return the training of so many more tables."""
        done = self.plan.params.tables
        params = self.plan.params.model_copy(update={"tables": done + tables})
        return replace(self, plan=replace(self.plan, params=params), done=done)


def training(
    protocol: str,
    task: str,
    n: int,
    honest: int,
    tables: int = 2,
    depth: int = DEPTH,
    ragged: bool = False,
    weighted: bool = False,
    chosen: Mapping[str, Any] | None = None,
    watched: bool = False,
    **terms: Any,
) -> tuple[Training, list[tuple[TrainingData, TrainingState | None]]]:
    """Return a training of n participants, the last of which is active, and their data.

    Each has two columns: one that the label depends on, and one of noise. If they are `ragged`, the
    noise has two values, and all are told exactly how many cuts a column has. If rows are
    `weighted`, twins have the same weight. If it is `watched`, there are validation rows, and the
    label's holder says when to stop. `chosen` are other hyper-parameters.
    """
    names = tuple(f"party{k + 1}" for k in range(n))
    params = Params(
        task="classification" if task == THREE else task,
        classes=3 if task == THREE else 2,
        tables=tables,
        depth=depth,
        buckets=BUCKETS,
        learning_rate=0.7,
        patience=9 if watched else None,
        **(chosen or {}),
    )
    for seed in count():
        columns, label = _table(task, n, honest, seed)
        if ragged:
            for own in columns:
                own[1] = own[1] > 0
        parties = [
            bucket_columns(name, ["signal", "noise"], own, BUCKETS)
            for name, own in zip(names, columns, strict=True)
        ]
        counts = tuple(count for party in parties for count in party.cut_counts)
        weight = _weight(seed) if weighted else None
        alone = params.model_copy(update={"patience": None})
        signs = terms.get("monotone", ())
        if _is_clear(parties, label, alone, honest, counts, weight, signs):
            break
    federation = TrainingSpec(
        protocol=protocol,
        params=params,
        parties=names,
        features=tuple(Feature(f, name) for name in names for f in ("signal", "noise")),
        active=n - 1,
        prediction_bits=params.objective.prediction_bits,
        announced_cut_counts=counts if ragged else None,
        is_weighted=weighted,
        **terms,
    )
    data = [TrainingData(own, None) for own in parties[:-1]]
    data.append(TrainingData(parties[-1], label, weight))
    rows = np.concatenate([np.arange(N), SET_ASIDE if watched else SET_ASIDE[:0]])
    plan = federation.make_plan(len(rows), n_validation=len(rows) - N)
    return Training(federation, plan), [(_rows(own, rows), None) for own in data]


def _rows(data: TrainingData, rows: IndexArray) -> TrainingData:
    columns = replace(data.columns, buckets=data.columns.buckets[:, rows])
    return TrainingData(
        columns, None if data.label is None else data.label[rows], data.sample_weight
    )


def _table(task: str, n: int, honest: int, seed: int) -> tuple[list[FloatArray], FloatArray]:
    """Return everybody's columns, and a label that depends on all of them."""
    rng = np.random.default_rng(seed)
    columns = [np.tile(rng.normal(size=(2, N // 2)), 2) for _ in range(n)]
    columns[honest] = rng.normal(size=(2, N))
    score = 0.3 * np.tile(rng.normal(size=N // 2), 2)
    for k, own in enumerate(columns):
        score += (2.0 if k == honest else 1.0) * _of_both_twins(own[0])
    if task == "regression":
        return columns, score
    ends = np.quantile(score, (1 / 3, 2 / 3) if task == THREE else 0.5)
    return columns, np.searchsorted(np.atleast_1d(ends), score).astype(float)


def _weight(seed: int) -> FloatArray:
    drawn = np.random.default_rng(seed + 1000).exponential(size=N // 2)
    return normalise_weights(np.tile(drawn, 2))


def _is_clear(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    params: Params,
    honest: int,
    cut_counts: Sequence[int],
    weight: FloatArray | None = None,
    monotone: Sequence[int] = (),
) -> bool:
    """Tell whether the first table tests a feature of the honest participant, and nothing is close.

    Rounding at random must not choose between two candidates: neither among all, nor, since the
    paper's protocol reveals the best cut of each, among those of one feature.
    """
    gaps = []

    def best_test(
        sums: FloatArray, params: Params, counts: Sequence[int], signs: IndexArray
    ) -> tuple[int, int]:
        scores = reference.score_candidates(sums, params, signs)
        scores[np.arange(scores.shape[1]) >= np.array(counts)[:, None]] = np.inf
        by_feature = np.sort(scores, axis=1)
        best = np.sort(by_feature[:, 0])
        # Cuts that would break constraints are worth the same, and do not win.
        free = by_feature[(signs == 0) | (by_feature[:, 0] == best[0])]
        ranks = np.diff(best) if signs.any() else np.diff(best[:2])  # no two such features, either
        gaps.extend([*(free[:, 1] - free[:, 0]) / -best[0], *ranks / -best[0]])
        feature, bucket = divmod(int(np.argmin(scores)), scores.shape[1])
        return feature, bucket

    with mock.patch.object(reference, "find_best_split", best_test):
        model = reference.train_plaintext(
            parties, label, params, weight, cut_counts=cut_counts, monotone=monotone
        )
    return bool((model.feature[0] // 2 == honest).any()) and min(gaps) > 1e-3


def _of_both_twins(column: FloatArray) -> FloatArray:
    return np.asarray(column + np.roll(column, N // 2))


def twins(data: TrainingData) -> TrainingData:
    """Exchange the columns of twins: every row changes, and no sum."""
    both = twins_trained(data).columns.buckets
    aside = np.roll(both[:, N:], (both.shape[1] - N) // 2, axis=1)
    buckets = np.concatenate([both[:, :N], aside], axis=1)
    return replace(data, columns=replace(data.columns, buckets=buckets))


def twins_trained(data: TrainingData) -> TrainingData:
    """Exchange those of twins that are trained on; validation rows stay as they are."""
    buckets = data.columns.buckets.copy()
    buckets[:, :N] = np.roll(buckets[:, :N], N // 2, axis=1)
    return replace(data, columns=replace(data.columns, buckets=buckets))


def mirror(data: TrainingData) -> TrainingData:
    """Turn columns round: what was below a cut is above it, so its owner's bucket is another."""
    last = np.array(data.columns.cut_counts)[:, None]
    buckets = (last - data.columns.buckets).astype(np.uint8)
    return replace(data, columns=replace(data.columns, buckets=buckets))


def other_weights(data: TrainingData) -> TrainingData:
    """Change every weight, by so little that no other test is better."""
    assert data.sample_weight is not None
    factors = np.random.default_rng(5).uniform(0.9999, 1.0001, size=N)
    return replace(data, sample_weight=normalise_weights(data.sample_weight * factors))


def one_bucket(data: TrainingData) -> TrainingData:
    """Move one sample to another bucket, in the column of noise."""
    buckets = data.columns.buckets.copy()
    buckets[1, 0] = (buckets[1, 0] + 1) % BUCKETS
    return replace(data, columns=replace(data.columns, buckets=buckets))


def other_label(data: TrainingData) -> TrainingData:
    """Turn the label round: the same tests, and leaf values of the other sign.

    Of three classes, each becomes the next: leaf values are those of the class before.
    """
    label = data.label
    assert label is not None
    if np.isin(label, range(3)).all():
        n_classes = len(np.unique(label))
        return replace(data, label=(label + 1) % n_classes)
    return replace(data, label=-label)


@dataclass(frozen=True)
class Prediction:
    """Batches of predictions, as in a service."""

    parties: tuple[str, ...]
    queries: tuple[PredictionQuery, ...]

    def __call__(
        self, runtime: Runtime, data: tuple[ModelPart, Sequence[FloatArray]] | None
    ) -> list[FloatArray | ExplainedPredictions | None]:
        part, batches = (None, [None] * len(self.queries)) if data is None else data
        unit = reveal_label_unit(runtime, self.queries[0], part)
        return [
            answer_query(runtime, query, self.parties, part, columns, unit)
            for query, columns in zip(self.queries, batches, strict=True)
        ]


def prediction(
    protocol: str,
    n: int,
    honest: int,
    recipient: int,
    sizes: Sequence[int] = (24,),
    classes: int = 2,
    explain: ExplainBy | None = None,
    task: str = "classification",
) -> tuple[Prediction, list[tuple[ModelPart, list[FloatArray]]]]:
    """Return predictions in which the outcomes of the honest participant's tests cancel out.

    Two tables test its feature and then the next participant's. What the first adds for the honest
    outcome, the second takes away. Leaf values add up to whole units of what is revealed. So do
    contributions, if they are explained; by participant, the second table tests another feature of
    the honest one, a copy of the first: what these contribute, each for itself, does not cancel.
    """
    rng = np.random.default_rng(10 * n + honest)
    names = tuple(f"party{k + 1}" for k in range(n))
    objective = create_objective(task, classes)
    bits, outputs = objective.prediction_bits, objective.n_outputs
    columns = ("x", "copy of x") if explain == "participant" else ("x",)
    features = tuple(Feature(column, name) for name in names for column in columns)
    first, last = honest * len(columns), honest * len(columns) + len(columns) - 1
    other = (honest + 1) % n * len(columns)
    tests = np.array([[first, other], [last, other]])
    leaves = _cut(_cancelling(rng, outputs), n, rng)
    reasons: list[PartExplanation | None] = [None] * n
    if explain is not None:
        levels = [_cancelling(rng, outputs) for _ in range(2)]
        contributions = _cut(np.stack(levels, axis=2), n, rng)
        means = _cut(rng.integers(-9, 9, size=(2, outputs)) << GUARD_BITS, n, rng)
        shares = np.full(tests.shape, np.nan)
        both = zip(contributions, means, strict=True)
        reasons = [PartExplanation(shares, added, mean) for added, mean in both]
    data = []
    for k, name in enumerate(names):
        own = tests // len(columns) == k
        part = ModelPart(
            protocol=protocol,
            task=task,
            features=features,
            party=name,
            feature=tests,
            bucket=np.where(own, 1, -1),
            threshold=np.where(own, 0.0, np.nan),
            leaf_shares=leaves[k],
            fraction_bits=bits + GUARD_BITS,
            label_unit=LabelUnit((-1.5,) * outputs) if k == n - 1 else None,
            explanation=reasons[k],
        )
        rows = [rng.normal(size=(1, size)).repeat(len(columns), axis=0) for size in sizes]
        data.append((part, rows))
    query = PredictionQuery(
        protocol, objective, (2, 2, 0), n - 1, recipient, bits, explain, len(features)
    )
    queries = tuple(replace(query, shape=(2, 2, size)) for size in sizes)
    return Prediction(names, queries), data


def _cancelling(rng: np.random.Generator, outputs: int) -> npt.NDArray[np.int64]:
    """Return values of two tables' leaves, (2, outputs, 4), in whole units of what is revealed.

    Their sum depends on the second test's outcome alone.
    """
    first = rng.integers(-9, 9, size=(outputs, 2, 2)) << GUARD_BITS
    rest = rng.integers(-9, 9, size=(outputs, 1, 2)) << GUARD_BITS
    return np.stack([first, rest - first]).reshape(2, outputs, 4)


def _cut(values: npt.NDArray[np.int64], n: int, rng: np.random.Generator) -> npt.NDArray[np.uint32]:
    """Return everybody's shares of values."""
    whole = values.astype(np.int32).view(np.uint32)
    shares = rng.integers(0, 2**32, size=(n - 1, *values.shape), dtype=np.uint32)
    return np.concatenate([shares, [whole - shares.sum(0, dtype=np.uint32)]])


def other_leaves(part: ModelPart) -> ModelPart:
    """Move leaf values by less than rounding to what is revealed shows, in two tables together.

    And, where scores are explained, what explains them.
    """
    rng = np.random.default_rng(0)
    most = (1 << (GUARD_BITS - 2)) - 1

    def moved(shares: npt.NDArray[np.uint32], most: int = most) -> npt.NDArray[np.uint32]:
        return shares + rng.integers(-most, most, size=shares.shape).astype(np.int32).view(
            np.uint32
        )

    part = replace(part, leaf_shares=moved(part.leaf_shares))
    if part.explanation is None:
        return part
    # By participant, those of two levels may add up, too.
    added, means = moved(part.explanation.contributions, most // 2), moved(part.explanation.means)
    return replace(part, explanation=replace(part.explanation, contributions=added, means=means))


def two_stages() -> Any:
    """Make tournaments of a few candidates take stages of all kinds, as those of many do.

    Of cuts in twos, of a feature's cuts, and of features in twos.
    """

    def stages(cuts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        return _stages([count for count in cuts if count], (2, max(cuts)), (2,))

    return mock.patch("privet.protocols.masked.candidates.plan_stages", stages)


@cache
def uniform_session(protocol: str, case: int) -> Session:
    """Return what became of one of the trainings and predictions to be tested.

    Short ones take stages of all kinds.
    """
    program, data = uniform_cases(protocol)[case]
    with two_stages() if case < 4 else nullcontext():
        return perform(program, data, Randomness("uniform"))


def _longer(program: Training, data: list[Any], tables: int) -> tuple[Training, list[Any]]:
    """Return the same training of more tables, of which later ones need not be clear."""
    params = program.plan.params.model_copy(update={"tables": tables})
    return replace(program, plan=replace(program.plan, params=params)), data


@cache
def uniform_cases(protocol: str) -> list[tuple[Any, list[Any]]]:
    """Return trainings and predictions whose every step opens enough to be tested."""
    tasks: tuple[str, str] = ("regression", "classification")
    if protocol == "masked":
        terms: dict[str, Any] = {"reveal_loss": True, "has_explanations": True}
        found = [training(protocol, task, 3, 0, tables=16, **terms) for task in tasks]
    else:
        found = [training(protocol, task, 3, 0, tables=2) for task in tasks]
    predictions = [prediction(protocol, 3, 0, 1, sizes=(30,) * 8)]
    if protocol != "masked":
        return [*found, *predictions]
    predictions.append(prediction(protocol, 3, 0, 1, sizes=(10,) * 4, explain="feature"))
    # With validation rows one number a table is rounded: of so many tables, enough to be tested.
    watch: dict[str, Any] = {"watched": True, "reveal_validation": True}
    watched = [_longer(*training("masked", task, 3, 0, **watch), tables=64) for task in tasks]
    # So do constraints with pairs of leaves.
    constrained = [
        _longer(*training("masked", task, 3, 0, monotone=NOISE_RISES), tables=48) for task in tasks
    ]
    return [*found, *predictions, *watched, *constrained]
