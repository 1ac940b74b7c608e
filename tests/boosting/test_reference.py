from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import roc_auc_score, root_mean_squared_error

from privet import DataSet, Model, Params
from privet.arrays import BucketArray, FloatArray
from privet.boosting.binning import BucketedColumns, bucket_columns
from privet.boosting.reference import (
    find_best_split,
    round_for_exact_sums,
    score_candidates,
    sum_by_bucket,
    train_plaintext,
)
from privet.data.partition import split_rows
from privet.objectives.regression import OBJECTIVES

L2 = Params(task="regression", l2=1.0)


def grow_table_literally(
    buckets: BucketArray, g: FloatArray, h: FloatArray, params: Params
) -> tuple[list[tuple[int, int]], list[Fraction]]:
    """Run Algorithm 1 literally, in exact rational arithmetic, one candidate at a time."""
    nodes = [list(range(buckets.shape[1]))]
    splits = []

    def total(values: FloatArray, samples: list[int]) -> Fraction:
        return sum((Fraction(values[i]) for i in samples), Fraction(0))

    def weight(samples: list[int]) -> Fraction:
        """Return -G / (H + l2), or 0 if H is below the minimum."""
        if total(h, samples) < Fraction(params.min_child_weight):
            return Fraction(0)
        return -total(g, samples) / (total(h, samples) + Fraction(params.l2))

    def impurity(samples: list[int]) -> Fraction:
        return total(g, samples) * weight(samples) / 2

    def split(samples: list[int], feature: int, bucket: int) -> tuple[list[int], list[int]]:
        return (
            [i for i in samples if buckets[feature, i] <= bucket],
            [i for i in samples if buckets[feature, i] > bucket],
        )

    for _ in range(params.depth):
        candidates = itertools.product(range(len(buckets)), range(params.buckets - 1))
        best = min(  # the first of equals
            candidates,
            key=lambda cut: sum(impurity(part) for node in nodes for part in split(node, *cut)),
        )
        splits.append(best)
        nodes = [part for node in nodes for part in split(node, *best)]
    rate = Fraction(params.learning_rate)
    values = [rate * weight(s) for s in nodes]
    return splits, values


@st.composite
def small_problems(draw: st.DrawFn) -> tuple[BucketedColumns, FloatArray, Params]:
    n_samples, n_features = draw(st.integers(2, 12)), draw(st.integers(1, 4))
    columns = draw(
        arrays(
            np.float64,
            (n_features, n_samples),
            elements=st.sampled_from([0.0, 1.0, 2.0, 3.0, np.nan]),
        )
    )
    task = draw(st.sampled_from(["regression", "classification"]))
    label = np.array(draw(st.permutations([0.0, 1.0] * 6)))[:n_samples]
    params = Params.parse(
        {
            "task": task,
            "tables": 1,
            "depth": draw(st.integers(1, 3)),
            "buckets": draw(st.sampled_from([2, 3, 4, 5])),
            "l2": draw(st.sampled_from([0.25, 1.0])),
            "learning_rate": draw(st.sampled_from([1.0, 0.5])),
            "min_child_weight": draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])),
            "base_score": 0.25 if task == "regression" else 0.0,
        }
    )
    names = [f"x{i}" for i in range(n_features)]
    return bucket_columns("party1", names, columns, params.buckets), label, params


@given(small_problems())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_agrees_with_literal_algorithm_1(
    problem: tuple[BucketedColumns, FloatArray, Params],
) -> None:
    """The splits are equal, including ties; leaf values are equal up to the last bits.

    The gradients here (quarters and halves) are exact, and so are their sums. Scores are rounded:
    of two candidates that divide the nodes differently and have the same exact score, either one
    could be chosen. The examples are fixed, so that the test is not flaky.
    """
    party, label, params = problem
    model = train_plaintext([party], label, params)
    target = params.objective.make_targets(label)
    (g,), (h,) = params.objective.compute_gradients(
        np.broadcast_to(model.base_score[:, None], target.shape), target
    )
    splits, values = grow_table_literally(party.buckets, g, h, params)
    chosen = list(zip(model.feature[0].tolist(), model.bucket[0].tolist(), strict=True))
    assert chosen == splits
    for value, exact in zip(model.leaf_values[0, 0], values, strict=True):
        # One rounding each of the quotient's two operands, of the quotient and of the product.
        assert abs(Fraction(value) - exact) <= abs(exact) * Fraction(4, 2**53)


@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 3), st.integers(1, 200)),
        elements=st.floats(-1e6, 1e6),
    )
)
@example(np.array([[2.2e-313, 5e-324]]))
@example(np.full((1, 3), 1e100))
def test_sums_are_exact_in_any_order(values: FloatArray) -> None:
    """Sums of the samples are exact, for every output."""
    rounded = round_for_exact_sums(values)
    bound = 2.0**-53 * 2 * values.shape[1] * np.abs(values).max()
    assert np.abs(rounded - values).max() <= bound
    for row in rounded:
        exact = sum((Fraction(v) for v in row), Fraction(0))
        assert Fraction(float(np.sum(row))) == exact
        assert Fraction(float(np.cumsum(row[::-1])[-1])) == exact


def test_rounding_of_zeros() -> None:
    assert round_for_exact_sums(np.zeros((1, 5))).tolist() == [[0.0] * 5]


def test_ties_choose_the_lowest_feature_then_bucket() -> None:
    """A column, its mirror image and one with a gap divide the samples alike."""
    column = np.array([0, 0, 1, 1], dtype=np.uint8)
    g = np.array([[0.1, 0.7, -0.3, -0.2]])
    all_samples, node = np.ones(4, dtype=np.bool_), np.zeros(4, dtype=np.intp)
    for order in itertools.permutations([column, 1 - column, 2 * column]):
        sums = sum_by_bucket(
            np.stack(order), all_samples, node, 1, round_for_exact_sums(g), np.ones((1, 4)), 4
        )
        scores = score_candidates(sums, L2)
        assert len(np.unique(scores[np.isclose(scores, scores.min())])) == 1
        assert find_best_split(sums, L2) == (0, 0)


def test_level_without_a_gain_has_no_split() -> None:
    """Splitting pure noise costs regularisation, so a cut that sends all rows left is best."""
    party = bucket_columns("party1", ["a"], np.array([[0.0, 1.0]]), 3)
    label = np.array([5.0, 5.0 + 1e-9])
    model = train_plaintext(
        [party], label, Params(task="regression", tables=1, depth=1, base_score=0.0)
    )
    assert model.threshold[0, 0] == math.inf
    assert model.leaf_values[0, 0, 1] == 0.0


@pytest.mark.parametrize("outputs", [1, 3])
def test_histograms_of_siblings_add_up(outputs: int) -> None:
    """Sums by subtraction equal the separate sums of every node."""
    rng = np.random.default_rng(5)
    buckets = rng.integers(0, 8, (3, 500)).astype(np.uint8)
    g, h = (
        round_for_exact_sums(rng.normal(size=(outputs, 500))),
        round_for_exact_sums(rng.random((outputs, 500))),
    )
    node = rng.integers(0, 4, 500)
    goes_left = rng.random(500) < 0.3
    parent = sum_by_bucket(buckets, np.ones(500, np.bool_), node, 4, g, h, 8)
    left = sum_by_bucket(buckets, goes_left, node, 4, g, h, 8)
    right = sum_by_bucket(buckets, ~goes_left, node, 4, g, h, 8)
    assert parent.shape == (2, 3, outputs, 4, 8)
    assert (parent - left == right).all()
    # Outputs are summed separately, and their scores are added up.
    for k in range(outputs):
        single = sum_by_bucket(buckets, goes_left, node, 4, g[k : k + 1], h[k : k + 1], 8)
        assert (single[:, :, 0] == left[:, :, k]).all()
    scores = sum(score_candidates(parent[:, :, k : k + 1], L2) for k in range(outputs))
    assert score_candidates(parent, L2) == pytest.approx(scores, rel=1e-12)


def test_loss_decreases_and_is_reported() -> None:
    rng = np.random.default_rng(1)
    columns = rng.normal(size=(5, 400))
    label = (columns[0] + columns[1] * columns[2] > 0).astype(float)
    progress: list[tuple[int, float | None]] = []
    params = Params(task="classification", tables=8, depth=3, buckets=16)
    party = bucket_columns("party1", list("abcde"), columns, 16)
    model = train_plaintext(
        [party], label, params, on_table=lambda *arguments: progress.append(arguments)
    )
    assert [done for done, _ in progress] == list(range(1, 9))
    losses = [loss for _, loss in progress if loss is not None]
    assert len(losses) == 8
    assert losses == sorted(losses, reverse=True)
    # The scores during training are the model's scores of the same rows.
    objective = OBJECTIVES["classification"]
    exact = objective.compute_mean_loss(
        model.predict_scores(columns), objective.make_targets(label)
    )
    assert losses[-1] == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_the_order_of_the_samples_does_not_matter(task: str) -> None:
    """Neither does the sign of a column: all sums are exact, to the last bit."""
    rng = np.random.default_rng(3)
    for _ in range(10):
        columns = rng.normal(size=(4, 512))  # a multiple of the buckets, so mirrored cuts agree
        label = rng.normal(size=512)
        if task == "classification":
            label = (label < 0).astype(np.float64)
        order = rng.permutation(512)
        params = Params(task=task, tables=4, depth=3, buckets=16)

        def fit(columns: FloatArray, label: FloatArray, params: Params = params) -> Model:
            return train_plaintext([bucket_columns("p", list("abcd"), columns, 16)], label, params)

        model, shuffled = fit(columns, label), fit(columns[:, order], label[order])
        assert model == shuffled
        mirrored = fit(-columns, label)
        assert (mirrored.feature == model.feature).all()
        assert (mirrored.bucket == 14 - model.bucket).all()


def test_the_partition_of_columns_does_not_matter() -> None:
    rng = np.random.default_rng(2)
    columns, label = rng.normal(size=(6, 300)), rng.normal(size=300)
    params = Params(task="regression", tables=3, depth=3, buckets=8)
    names = list("abcdef")
    together = train_plaintext([bucket_columns("p", names, columns, 8)], label, params)
    apart = train_plaintext(
        [
            bucket_columns("p", names[:1], columns[:1], 8),
            bucket_columns("q", [], columns[:0], 8),
            bucket_columns("r", names[1:], columns[1:], 8),
        ],
        label,
        params,
    )
    assert [f.owner for f in apart.features] == ["p"] + ["r"] * 5
    assert (apart.feature == together.feature).all()
    assert (apart.leaf_values == together.leaf_values).all()


def _fit(data: DataSet, seed: int = 0, **params: object) -> tuple[Model, FloatArray, FloatArray]:
    frame, test = split_rows(data.frame, 0.2, seed)
    assert frame.label is not None
    assert test.label is not None
    parsed = Params.parse({"task": data.task, **params})
    party = bucket_columns("party1", frame.names, frame.columns, parsed.buckets)
    model = train_plaintext([party], frame.label, parsed)
    return model, model.predict(test.columns), test.label


def test_accuracy_of_the_paper(real_data: Callable[[str], DataSet]) -> None:
    _, predicted, label = _fit(real_data("breast-cancer"), tables=10, depth=3, learning_rate=1.0)
    assert roc_auc_score(label, predicted) >= 0.99
    _, predicted, label = _fit(real_data("california"), tables=50, depth=5, learning_rate=1.0)
    assert root_mean_squared_error(label, predicted) <= 0.52
    _, predicted, label = _fit(real_data("credit"), tables=10, depth=4, learning_rate=1.0)
    assert roc_auc_score(label, predicted) >= 0.76
