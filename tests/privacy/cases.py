"""Programs and data to explain: training, predictions, and other data with the same outputs.

Rows are in pairs of twins: a row and the row N / 2 later are equal except in the honest
participant's columns. Exchanging these columns between twins changes every row of the honest
participant, and no sum that another participant learns.
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
from privet.protocols.masked.argmax import _plan_among_features, _plan_within_features
from privet.runtime.run import DEALER_NAME
from privet.runtime.runtime import Runtime
from privet.spec.params import Params
from privet.spec.plan import ExplainBy, Plan
from privet.spec.sampling import normalise_weights
from privet.transport.memory import create_memory_channels
from tests.privacy.stage import Randomness, Session, perform, run_threads

N = 64
SET_ASIDE = np.concatenate([np.arange(8), N // 2 + np.arange(8)])
"""Training rows that are repeated as validation rows, with their twins."""
THREE = "three classes"
"""A task of several outputs in these tests."""
ALL_TERMS: dict[str, Any] = {
    "reveal_loss": True,
    "reveal_gain": True,
    "has_explanations": True,
    "watched": True,
    "reveal_validation": True,
    "importances_by": "feature",
}
"""Settings with which `masked` reveals more than a model."""
NOISE_RISES = (0, 1) * 3
"""Constraints on the noise columns of three participants."""
BUCKETS = 4
DEPTH = 2


@dataclass(frozen=True)
class Training:
    """A training run, or the rest of one, that returns the state to resume from."""

    federation: TrainingSpec
    plan: Plan
    done: int = 0
    """The number of tables that are trained already."""
    keepings: Mapping[int, IndicatorCacheConfig] | None = None
    """What each participant has of kept indicators, and, as -1, the dealer."""

    def __call__(
        self, runtime: Runtime, data: tuple[TrainingData, TrainingState | None] | None
    ) -> TrainingState | None:
        local, state = (None, None) if data is None else data
        states: list[TrainingState] = []
        trained = train(
            runtime,
            self.federation,
            self.plan,
            local,
            n_trained_tables=self.done,
            state=state,
            on_state=states.append,
            indicator_cache=None if self.keepings is None else self.keepings[runtime.index],
        )
        reveal_validation_results(runtime, self.federation, self.plan, trained, local)
        return states[-1] if states else None

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
        """Return the same training run with one table and another learning rate."""
        params = self.plan.params.model_copy(update={"tables": 1, "learning_rate": 0.4})
        plan = replace(self.plan, params=params)
        return replace(self, federation=replace(self.federation, params=params), plan=plan)

    def resume(self, tables: int) -> Training:
        """Return the run that resumes this one and trains more tables."""
        trained = self.plan.params.tables
        params = self.plan.params.model_copy(update={"tables": trained + tables})
        plan = replace(self.plan, params=params)
        return replace(self, plan=plan, done=trained)


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
    """Return a training run of n participants and their data; the last is the label holder.

    Each participant has two columns: one on which the label depends, and one of noise. If `ragged`,
    the noise has two values, and exact cut counts are disclosed. If `weighted`, twins have the same
    weight. If `watched`, there are validation rows and early stopping. `chosen` are other
    hyper-parameters.
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
            for party_columns in columns:
                party_columns[1] = party_columns[1] > 0
        parties = [
            bucket_columns(name, ["signal", "noise"], party_columns, BUCKETS)
            for name, party_columns in zip(names, columns, strict=True)
        ]
        counts = tuple(count for party in parties for count in party.cut_counts)
        weight = _make_weights(seed) if weighted else None
        without_patience = params.model_copy(update={"patience": None})
        signs = terms.get("monotone", ())
        if _is_unambiguous(parties, label, without_patience, honest, counts, weight, signs):
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
    data = [TrainingData(party, None) for party in parties[:-1]]
    data.append(TrainingData(parties[-1], label, weight))
    rows = np.concatenate([np.arange(N), SET_ASIDE if watched else SET_ASIDE[:0]])
    plan = federation.make_plan(len(rows), n_validation=len(rows) - N)
    return Training(federation, plan), [(_select_rows(each, rows), None) for each in data]


def _select_rows(data: TrainingData, rows: IndexArray) -> TrainingData:
    columns = replace(data.columns, buckets=data.columns.buckets[:, rows])
    return TrainingData(
        columns, None if data.label is None else data.label[rows], data.sample_weight
    )


def _table(task: str, n: int, honest: int, seed: int) -> tuple[list[FloatArray], FloatArray]:
    """Return the columns of all participants, and a label that depends on all of them."""
    rng = np.random.default_rng(seed)
    columns = [np.tile(rng.normal(size=(2, N // 2)), 2) for _ in range(n)]
    columns[honest] = rng.normal(size=(2, N))
    score = 0.3 * np.tile(rng.normal(size=N // 2), 2)
    for k, party_columns in enumerate(columns):
        score += (2.0 if k == honest else 1.0) * _add_twins(party_columns[0])
    if task == "regression":
        return columns, score
    ends = np.quantile(score, (1 / 3, 2 / 3) if task == THREE else 0.5)
    return columns, np.searchsorted(np.atleast_1d(ends), score).astype(float)


def _make_weights(seed: int) -> FloatArray:
    drawn = np.random.default_rng(seed + 1000).exponential(size=N // 2)
    return normalise_weights(np.tile(drawn, 2))


def _is_unambiguous(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    params: Params,
    honest: int,
    cut_counts: Sequence[int],
    weight: FloatArray | None = None,
    monotone: Sequence[int] = (),
) -> bool:
    """Return whether the first table splits on a feature of the honest participant, without ties.

    Random rounding must not choose between two candidates: neither among all, nor, since `paper`
    reveals the best cut of each feature, among those of one feature.
    """
    gaps = []

    def find_best_split(
        sums: FloatArray, params: Params, counts: Sequence[int], signs: IndexArray
    ) -> tuple[int, int]:
        scores = reference.score_candidates(sums, params, signs)
        scores[np.arange(scores.shape[1]) >= np.array(counts)[:, None]] = np.inf
        by_feature = np.sort(scores, axis=1)
        best = np.sort(by_feature[:, 0])
        # Cuts that would violate constraints have equal scores, and never win.
        valid = by_feature[(signs == 0) | (by_feature[:, 0] == best[0])]
        ranks = np.diff(best) if signs.any() else np.diff(best[:2])  # nor of two such features
        gaps.extend([*(valid[:, 1] - valid[:, 0]) / -best[0], *ranks / -best[0]])
        feature, bucket = divmod(int(np.argmin(scores)), scores.shape[1])
        return feature, bucket

    with mock.patch.object(reference, "find_best_split", find_best_split):
        model = reference.train_plaintext(
            parties, label, params, weight, cut_counts=cut_counts, monotone=monotone
        )
    return bool((model.feature[0] // 2 == honest).any()) and min(gaps) > 1e-3


def _add_twins(column: FloatArray) -> FloatArray:
    return np.asarray(column + np.roll(column, N // 2))


def twins(data: TrainingData) -> TrainingData:
    """Exchange the columns of twins: every row changes, and no sum."""
    both = twins_trained(data).columns.buckets
    validation = np.roll(both[:, N:], (both.shape[1] - N) // 2, axis=1)
    buckets = np.concatenate([both[:, :N], validation], axis=1)
    return replace(data, columns=replace(data.columns, buckets=buckets))


def twins_trained(data: TrainingData) -> TrainingData:
    """Exchange the columns of twins only in training rows."""
    buckets = data.columns.buckets.copy()
    buckets[:, :N] = np.roll(buckets[:, :N], N // 2, axis=1)
    return replace(data, columns=replace(data.columns, buckets=buckets))


def mirror(data: TrainingData) -> TrainingData:
    """Mirror columns: rows below a cut are above it, so the split has another bucket."""
    last = np.array(data.columns.cut_counts)[:, None]
    buckets = (last - data.columns.buckets).astype(np.uint8)
    return replace(data, columns=replace(data.columns, buckets=buckets))


def other_weights(data: TrainingData) -> TrainingData:
    """Change every weight by so little that the best splits stay the same."""
    assert data.sample_weight is not None
    factors = np.random.default_rng(5).uniform(0.9999, 1.0001, size=N)
    return replace(data, sample_weight=normalise_weights(data.sample_weight * factors))


def one_bucket(data: TrainingData) -> TrainingData:
    """Move one sample to another bucket of the noise column."""
    buckets = data.columns.buckets.copy()
    buckets[1, 0] = (buckets[1, 0] + 1) % BUCKETS
    return replace(data, columns=replace(data.columns, buckets=buckets))


def other_label(data: TrainingData) -> TrainingData:
    """Negate the label: the same splits, and leaf values of the opposite sign.

    With three classes, each becomes the next: leaf values are those of the class before.
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
    """Return predictions in which the outcomes of the honest participant's splits cancel out.

    Two tables split on its feature and then on the next participant's. The second table subtracts
    what the first adds for the honest outcome. Leaf values add up to whole units of revealed
    scores, and so do contributions, if there are any. By participant, the second table splits on
    another feature of the honest participant, a copy of the first: the contributions of the single
    features do not cancel.
    """
    rng = np.random.default_rng(10 * n + honest)
    names = tuple(f"party{k + 1}" for k in range(n))
    objective = create_objective(task, classes)
    bits, outputs = objective.prediction_bits, objective.n_outputs
    columns = ("x", "copy of x") if explain == "participant" else ("x",)
    features = tuple(Feature(column, name) for name in names for column in columns)
    first, last = honest * len(columns), honest * len(columns) + len(columns) - 1
    other = (honest + 1) % n * len(columns)
    split_features = np.array([[first, other], [last, other]])
    leaves = _share(_make_cancelling_values(rng, outputs), n, rng)
    explanations: list[PartExplanation | None] = [None] * n
    if explain is not None:
        levels = [_make_cancelling_values(rng, outputs) for _ in range(2)]
        contributions = _share(np.stack(levels, axis=2), n, rng)
        means = _share(rng.integers(-9, 9, size=(2, outputs)) << GUARD_BITS, n, rng)
        fractions = np.full(split_features.shape, np.nan)
        parts = zip(contributions, means, strict=True)
        explanations = [PartExplanation(fractions, added, mean) for added, mean in parts]
    data = []
    for k, name in enumerate(names):
        is_local = split_features // len(columns) == k
        part = ModelPart(
            protocol=protocol,
            task=task,
            features=features,
            party=name,
            feature=split_features,
            bucket=np.where(is_local, 1, -1),
            threshold=np.where(is_local, 0.0, np.nan),
            leaf_shares=leaves[k],
            fraction_bits=bits + GUARD_BITS,
            label_unit=LabelUnit((-1.5,) * outputs) if k == n - 1 else None,
            explanation=explanations[k],
        )
        rows = [rng.normal(size=(1, size)).repeat(len(columns), axis=0) for size in sizes]
        data.append((part, rows))
    query = PredictionQuery(
        protocol, objective, (2, 2, 0), n - 1, recipient, bits, explain, len(features)
    )
    queries = tuple(replace(query, shape=(2, 2, size)) for size in sizes)
    return Prediction(names, queries), data


def _make_cancelling_values(rng: np.random.Generator, outputs: int) -> npt.NDArray[np.int64]:
    """Return leaf values of two tables, (2, outputs, 4), in whole units of revealed scores.

    Their sum depends only on the second split's outcome.
    """
    first = rng.integers(-9, 9, size=(outputs, 2, 2)) << GUARD_BITS
    total = rng.integers(-9, 9, size=(outputs, 1, 2)) << GUARD_BITS
    return np.stack([first, total - first]).reshape(2, outputs, 4)


def _share(
    values: npt.NDArray[np.int64], n: int, rng: np.random.Generator
) -> npt.NDArray[np.uint32]:
    """Return the shares of all participants."""
    elements = values.astype(np.int32).view(np.uint32)
    shares = rng.integers(0, 2**32, size=(n - 1, *values.shape), dtype=np.uint32)
    return np.concatenate([shares, [elements - shares.sum(0, dtype=np.uint32)]])


def other_leaves(part: ModelPart) -> ModelPart:
    """Move leaf values by so little that rounded sums of two tables stay the same.

    Contributions move, too, if there are any.
    """
    rng = np.random.default_rng(0)
    largest = (1 << (GUARD_BITS - 2)) - 1

    def move(shares: npt.NDArray[np.uint32], limit: int = largest) -> npt.NDArray[np.uint32]:
        return shares + rng.integers(-limit, limit, size=shares.shape).astype(np.int32).view(
            np.uint32
        )

    part = replace(part, leaf_shares=move(part.leaf_shares))
    if part.explanation is None:
        return part
    # By participant, the contributions of two levels can add up.
    added, means = move(part.explanation.contributions, largest // 2), move(part.explanation.means)
    return replace(part, explanation=replace(part.explanation, contributions=added, means=means))


def two_stages() -> Any:
    """Make the argmax of a few candidates use stages of all kinds, as with many candidates.

    The stages are of two cuts, of the cuts of a feature, and of two features.
    """

    def plan_small_stages(cut_counts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        counts = [count for count in cut_counts if count]
        return (
            *_plan_within_features(counts, (2, max(counts))),
            *_plan_among_features(len(counts), (2,)),
        )

    return mock.patch("privet.protocols.masked.candidates.plan_stages", plan_small_stages)


@cache
def uniform_session(protocol: str, case: int) -> Session:
    """Return the session of one case; short training runs use stages of all kinds."""
    program, data = uniform_cases(protocol)[case]
    with two_stages() if case < 4 else nullcontext():
        return perform(program, data, Randomness("uniform"))


def _longer(program: Training, data: list[Any], tables: int) -> tuple[Training, list[Any]]:
    """Return the same training run with more tables, of which later ones can have ties."""
    params = program.plan.params.model_copy(update={"tables": tables})
    return replace(program, plan=replace(program.plan, params=params)), data


@cache
def uniform_cases(protocol: str) -> list[tuple[Any, list[Any]]]:
    """Return training runs and predictions in which every step opens enough to be tested."""
    tasks: tuple[str, str] = ("regression", "classification")
    if protocol == "masked":
        settings: dict[str, Any] = {"reveal_loss": True, "has_explanations": True}
        runs = [training(protocol, task, 3, 0, tables=16, **settings) for task in tasks]
    else:
        runs = [training(protocol, task, 3, 0, tables=2) for task in tasks]
    predictions = [prediction(protocol, 3, 0, 1, sizes=(30,) * 8)]
    if protocol != "masked":
        return [*runs, *predictions]
    predictions.append(prediction(protocol, 3, 0, 1, sizes=(10,) * 4, explain="feature"))
    # Validation rows round only one number a table, so many tables are needed.
    validation: dict[str, Any] = {"watched": True, "reveal_validation": True}
    validated = [
        _longer(*training("masked", task, 3, 0, **validation), tables=64) for task in tasks
    ]
    # The same holds for the pairs of leaves of constraints.
    constrained = [
        _longer(*training("masked", task, 3, 0, monotone=NOISE_RISES), tables=48) for task in tasks
    ]
    return [*runs, *predictions, *validated, *constrained]
