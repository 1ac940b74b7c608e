"""Agreement with CatBoost's symmetric trees, another implementation of the same algorithm.

With CatBoost's randomness off, its L2 score, one Newton step a leaf, plain boosting and its
`Median` borders (quantiles of the samples, as in Privet):

* Regression: the algorithms coincide. With the same buckets the predictions agree to the
  precision of CatBoost's float32 features and its accumulations. With its own borders only columns
  with many ties differ, since Privet spends the cuts that ties leave over and CatBoost does not.
* Classification: CatBoost on a CPU scores a split by gradients and sample *counts*,
  G^2 / (n + l2), while the paper and Privet use Hessians, G^2 / (H + l2). Splits differ from the
  first table on, but the quality is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from catboost import CatBoostClassifier, CatBoostRegressor
from sklearn.metrics import roc_auc_score, root_mean_squared_error

from privet import DataSet, Params
from privet.arrays import FloatArray
from privet.boosting.binning import bucket_columns, find_buckets
from privet.boosting.simulation import train_locally
from privet.data.partition import split_rows


def make_catboost(params: Params, borders: int) -> Any:
    cls = CatBoostRegressor if params.task == "regression" else CatBoostClassifier
    return cls(
        iterations=params.tables,
        depth=params.depth,
        l2_leaf_reg=params.l2,
        learning_rate=params.learning_rate,
        border_count=borders,
        feature_border_type="Median",
        boost_from_average=params.task == "regression",
        score_function="L2",
        leaf_estimation_method="Newton",
        leaf_estimation_iterations=1,
        boosting_type="Plain",
        bootstrap_type="No",
        random_strength=0,
        thread_count=2,
        allow_writing_files=False,
        logging_level="Silent",
    )


def predict_with_both(
    data: DataSet, params: Params, *, same_buckets: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the test labels, Privet's predictions and CatBoost's."""
    rows, test = split_rows(data.frame, 0.2, seed=0)
    assert rows.label is not None
    assert test.label is not None
    party = bucket_columns("party1", rows.names, rows.columns, params.buckets)
    ours = train_locally([party], rows.label, params).predict(test.columns)
    train_X, test_X = rows.columns.T, test.columns.T
    if same_buckets:
        pairs = zip(test.columns, party.thresholds, strict=True)
        train_X = party.buckets.T.astype(np.float64)
        test_X = np.stack([find_buckets(c, t) for c, t in pairs], axis=1).astype(np.float64)
    # With bucket numbers as features, 254 borders include one between any two buckets.
    other = make_catboost(params, borders=254 if same_buckets else params.max_cut_count)
    other.fit(train_X, rows.label)
    if params.task == "regression":
        return test.label, ours, other.predict(test_X)
    return test.label, ours, other.predict_proba(test_X)[:, 1]


@pytest.mark.parametrize("learning_rate", [1.0, 0.3])
def test_california(real_data: Callable[[str], DataSet], learning_rate: float) -> None:
    params = Params(task="regression", tables=50, depth=5, learning_rate=learning_rate)
    label, ours, theirs = predict_with_both(real_data("california"), params, same_buckets=False)
    ratio = root_mean_squared_error(label, ours) / root_mean_squared_error(label, theirs)
    assert abs(ratio - 1) <= 0.03


def test_regression_on_the_same_buckets_is_the_same_model() -> None:
    """50 tables of 5 splits on data without ties: one different split would change whole leaves."""
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(8, 5000)).astype(np.float32).astype(np.float64)
    label = columns[0] * columns[1] + np.sin(2 * columns[2]) + 0.3 * rng.normal(size=5000)
    params = Params(task="regression", tables=50, depth=5)
    party = bucket_columns("party1", list("abcdefgh"), columns, params.buckets)
    ours = train_locally([party], label, params).predict(columns)
    other = make_catboost(params, borders=254).fit(party.buckets.T.astype(np.float64), label)
    theirs = other.predict(party.buckets.T.astype(np.float64))
    assert np.abs(ours - theirs).max() <= 1e-6


@pytest.mark.parametrize("learning_rate", [1.0, 0.3])
@pytest.mark.parametrize(("name", "depth"), [("credit", 4), ("breast-cancer", 3)])
@pytest.mark.parametrize("same_buckets", [True, False])
def test_classification(
    real_data: Callable[[str], DataSet],
    name: str,
    depth: int,
    learning_rate: float,
    same_buckets: bool,
) -> None:
    params = Params(task="classification", tables=10, depth=depth, learning_rate=learning_rate)
    label, ours, theirs = predict_with_both(real_data(name), params, same_buckets=same_buckets)
    assert abs(roc_auc_score(label, ours) - roc_auc_score(label, theirs)) <= 0.01
