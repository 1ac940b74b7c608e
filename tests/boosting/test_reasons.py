"""Contributions in the clear, against Shapley values worked out from their definition."""

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

OWNED = (slice(0, 2), slice(2, 4))
N = 120


def bucketed(columns: FloatArray, buckets: int) -> list[BucketedColumns]:
    names = [f"x{j}" for j in range(len(columns))]
    return [
        bucket_columns(f"party{k}", names[own], columns[own], buckets)
        for k, own in enumerate(OWNED)
    ]


class Game:
    """A table and a sample: features outside a coalition are drawn from rows, each for itself."""

    def __init__(self, model: Model, table: int, rows: FloatArray, sample: FloatArray) -> None:
        self.leaf_values = model.leaf_values[table]
        levels = zip(model.feature[table].tolist(), model.threshold[table], strict=True)
        self.tests: list[tuple[int, float]] = list(levels)
        self.players = sorted({j for j, _ in self.tests})
        self.outcomes = {j: Counter(self.of(j, x) for x in rows[j]) for j in self.players}
        self.own = {j: self.of(j, sample[j]) for j in self.players}

    def of(self, feature: int, x: float) -> tuple[bool, ...]:
        return tuple(x >= threshold for j, threshold in self.tests if j == feature)

    def value(self, coalition: Sequence[int]) -> FloatArray:
        total = np.zeros(len(self.leaf_values))
        others = [j for j in self.players if j not in coalition]
        for drawn in product(*(self.outcomes[j].items() for j in others)):
            share = np.prod([count / N for _, count in drawn])
            known = {j: list(self.own[j]) for j in coalition}
            known |= {j: list(bits) for j, (bits, _) in zip(others, drawn, strict=True)}
            leaf = int("".join(str(int(known[j].pop(0))) for j, _ in self.tests), 2)
            total += share * self.leaf_values[:, leaf]
        return total

    def contribution(self, player: int) -> FloatArray:
        others, n = [j for j in self.players if j != player], len(self.players)
        found = np.zeros(len(self.leaf_values))
        for size in range(n):
            weight = factorial(size) * factorial(n - 1 - size) / factorial(n)
            for coalition in combinations(others, size):
                found += weight * (self.value([*coalition, player]) - self.value(coalition))
        return found


def by_definition(
    model: Model, rows: FloatArray, sample: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Shapley values of a sample, (K, features), and the base: coalition by coalition."""
    found = np.zeros((len(model.base_score), len(model.features)))
    base = model.base_score.copy()
    for table in range(model.n_tables):
        game = Game(model, table, rows, sample)
        base += game.value([])
        for j in game.players:
            found[:, j] += game.contribution(j)
    return found, base


def trained(task: str, depth: int, classes: int = 2) -> tuple[Model, FloatArray]:
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
    model, columns = trained(task, depth, classes)
    if depth > 4:  # of four features, so some table tests one of them twice
        assert all(len(set(tests)) < depth for tests in model.feature.tolist())
    found = explain_scores(model, columns)
    score = model.predict_scores(columns)
    assert np.abs(found.base[:, None] + found.contributions.sum(axis=1) - score).max() < 1e-12
    for sample in range(0, N, 17):
        expected, base = by_definition(model, columns, columns[:, sample])
        assert np.abs(found.contributions[:, :, sample] - expected).max() < 1e-9
        assert np.abs(found.base - base).max() < 1e-9


def test_the_mean_contribution_of_a_feature_is_zero() -> None:
    """Over rows that fall as the training rows do, each feature for itself."""
    model, columns = trained("regression", 3)
    rng = np.random.default_rng(0)
    shuffled = np.stack([rng.choice(column, 20_000) for column in columns])
    found = explain_scores(model, shuffled).contributions
    spread = found.std(axis=2) / np.sqrt(shuffled.shape[1])
    assert (np.abs(found.mean(axis=2)) < 5 * spread + 1e-12).all()


def test_a_model_without_shares_of_passing_rows_cannot_explain() -> None:
    model, columns = trained("regression", 2)
    with pytest.raises(ModelError, match="share of its training rows"):
        explain_scores(replace(model, left_fraction=None), columns)


def test_shares_of_passing_rows_are_checked() -> None:
    model, _ = trained("regression", 2)
    assert model.left_fraction is not None
    for wrong in (
        model.left_fraction[:, :1],
        model.left_fraction + 1,
        model.left_fraction * np.nan,
    ):
        with pytest.raises(ModelError, match="between 0 and 1"):
            replace(model, left_fraction=wrong)
    assert replace(model, left_fraction=None) != model
