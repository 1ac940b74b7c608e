"""The estimator of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from typing_extensions import Self

from privet.arrays import FloatArray
from privet.estimator.base import FederatedEstimator
from privet.estimator.given import label_column, weight_column
from privet.estimator.watched import only_pair


class PrivetRegressor(RegressorMixin, FederatedEstimator):
    """Gradient boosted decision tables for a number; see `FederatedEstimator`."""

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        eval_set: Any = None,
        early_stopping_rounds: int | None = None,
    ) -> Self:
        """Train on one table `X`, or on a list of one table per party, and the label `y`.

        A sample counts as often as its weight says. `eval_set` is a pair of more rows and their
        label, to watch the loss on: with `early_stopping_rounds`, or `patience`, training stops by
        it.
        """
        pair = only_pair(eval_set)
        watched = None if pair is None else (pair[0], label_column(pair[1]).astype(np.float64))
        label, weight = label_column(y).astype(np.float64), weight_column(sample_weight)
        self._fit(X, label, "regression", (), weight, watched, early_stopping_rounds)
        return self

    def predict(self, X: Any) -> FloatArray:
        """Return the predicted values."""
        return self._predict(X)

    def staged_predict(self, X: Any) -> Iterator[FloatArray]:
        """Yield `predict` with the first table alone, with the first two, and so on."""
        return self._staged(X)
