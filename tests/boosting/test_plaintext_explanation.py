"""Contributions in plaintext, compared with Shapley values computed from their definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from math import factorial

import numpy as np
import pytest

from privet import ModelError, Params
from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns, bucket_columns
from privet.boosting.explanation import explain_scores
from privet.boosting.model import Model
from privet.boosting.simulation import train_locally

PARTITION = (slice(0, 2), slice(2, 4))
N = 120


def bucketed(columns: FloatArray, buckets: int) -> list[BucketedColumns]:
    names = [f"x{j}" for j in range(len(columns))]
    return [
        bucket_columns(f"party{k}", names[part], columns[part], buckets)
        for k, part in enumerate(PARTITION)
    ]


class Game:
    """The game of a table and a sample: features outside a coalition are drawn independently."""

    def __init__(self, model: Model, table: int, rows: FloatArray, sample: FloatArray) -> None:
        self.leaf_values = model.leaf_values[table]
        levels = zip(model.feature[table].tolist(), model.threshold[table], strict=True)
        self.splits: list[tuple[int, float]] = list(levels)
        self.players = sorted({j for j, _ in self.splits})
        self.outcomes = {j: Counter(self.get_outcomes(j, x) for x in rows[j]) for j in self.players}
        self.sample_outcomes = {j: self.get_outcomes(j, sample[j]) for j in self.players}

    def get_outcomes(self, feature: int, x: float) -> tuple[bool, ...]:
        return tuple(x >= threshold for j, threshold in self.splits if j == feature)

    def value(self, coalition: Sequence[int]) -> FloatArray:
        total = np.zeros(len(self.leaf_values))
        others = [j for j in self.players if j not in coalition]
        for drawn in product(*(self.outcomes[j].items() for j in others)):
            share = np.prod([count / N for _, count in drawn])
            known = {j: list(self.sample_outcomes[j]) for j in coalition}
            known |= {j: list(bits) for j, (bits, _) in zip(others, drawn, strict=True)}
            leaf = int("".join(str(int(known[j].pop(0))) for j, _ in self.splits), 2)
            total += share * self.leaf_values[:, leaf]
        return total

    def contribution(self, player: int) -> FloatArray:
        others, n = [j for j in self.players if j != player], len(self.players)
        total = np.zeros(len(self.leaf_values))
        for size in range(n):
            weight = factorial(size) * factorial(n - 1 - size) / factorial(n)
            for coalition in combinations(others, size):
                total += weight * (self.value([*coalition, player]) - self.value(coalition))
        return total


def compute_by_definition(
    model: Model, rows: FloatArray, sample: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the Shapley values of a sample, (K, features), and the base, by coalitions."""
    contributions = np.zeros((len(model.base_score), len(model.features)))
    base = model.base_score.copy()
    for table in range(model.n_tables):
        game = Game(model, table, rows, sample)
        base += game.value([])
        for j in game.players:
            contributions[:, j] += game.contribution(j)
    return contributions, base


def train_model(task: str, depth: int, classes: int = 2) -> tuple[Model, FloatArray]:
    rng = np.random.default_rng(depth + classes)
    columns = rng.normal(size=(4, N))
    columns[1] = np.round(columns[1])
    columns[2, ::7] = np.nan
    score = columns[0] + np.abs(columns[1]) * np.nan_to_num(columns[2], nan=-1.0) + columns[3] ** 2
    label = score
    if task == "classification":
        label = np.argsort(np.argsort(score)) * classes // N
    params = Params(task=task, classes=classes, tables=5, depth=depth, buckets=8)
    return train_locally(bucketed(columns, 8), label.astype(float), params), columns


@pytest.mark.parametrize(
    ("task", "depth", "classes"),
    [("regression", 1, 2), ("regression", 4, 2), ("regression", 6, 2), ("classification", 3, 3)],
)
def test_contributions_are_shapley_values(task: str, depth: int, classes: int) -> None:
    model, columns = train_model(task, depth, classes)
    if depth > 4:  # there are four features, so each table has two splits on one of them
        assert all(len(set(features)) < depth for features in model.feature.tolist())
    found = explain_scores(model, columns)
    score = model.predict_scores(columns)
    assert np.abs(found.base[:, None] + found.contributions.sum(axis=1) - score).max() < 1e-12
    for sample in range(0, N, 17):
        expected, base = compute_by_definition(model, columns, columns[:, sample])
        assert np.abs(found.contributions[:, :, sample] - expected).max() < 1e-9
        assert np.abs(found.base - base).max() < 1e-9


def test_mean_contribution_of_a_feature_is_zero() -> None:
    """The mean is over rows whose features are drawn independently from the training rows."""
    model, columns = train_model("regression", 3)
    rng = np.random.default_rng(0)
    shuffled = np.stack([rng.choice(column, 20_000) for column in columns])
    found = explain_scores(model, shuffled).contributions
    spread = found.std(axis=2) / np.sqrt(shuffled.shape[1])
    assert (np.abs(found.mean(axis=2)) < 5 * spread + 1e-12).all()


def test_model_without_left_fractions_cannot_be_explained() -> None:
    model, columns = train_model("regression", 2)
    with pytest.raises(ModelError, match="share of its training rows"):
        explain_scores(replace(model, left_fraction=None), columns)


def test_invalid_left_fractions_are_rejected() -> None:
    model, _ = train_model("regression", 2)
    assert model.left_fraction is not None
    for wrong in (
        model.left_fraction[:, :1],
        model.left_fraction + 1,
        model.left_fraction * np.nan,
    ):
        with pytest.raises(ModelError, match="between 0 and 1"):
            replace(model, left_fraction=wrong)
    assert replace(model, left_fraction=None) != model
