"""The scikit-learn estimators `PrivetClassifier` and `PrivetRegressor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from typing_extensions import Self

from privet.arrays import FloatArray
from privet.errors import DataError
from privet.estimators.base import FederatedEstimator
from privet.estimators.inputs import label_column, only_pair, weight_column
from privet.objectives.metrics import by_class, likeliest
from privet.objectives.regression import MOST_CLASSES
from privet.spec.params import spelled_out


class PrivetClassifier(ClassifierMixin, FederatedEstimator):
    """Gradient boosted decision tables for one of 2 to 32 classes; see `FederatedEstimator`.

    Parameters
    ----------
    class_weight : "balanced" or dict, optional
        How much the samples of a class count: all classes the same in total, or by class.

    """

    @spelled_out(also=FederatedEstimator.__init__)
    def __init__(self, *, class_weight: Any = None, **params: Any) -> None:
        super().__init__(**params)
        self.class_weight = class_weight

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

        A sample counts as often as its weight says, times that of its class. `eval_set` is a pair
        of more rows and their label, to watch the loss on: with `early_stopping_rounds`, or
        `patience`, training stops by it.
        """
        label = label_column(y)
        check_classification_targets(label)
        weight = weight_column(sample_weight)
        if self.class_weight is not None:
            by_class = compute_sample_weight(self.class_weight, label)
            weight = by_class if weight is None else weight * by_class
        classes, codes = np.unique(label, return_inverse=True)
        if len(classes) > MOST_CLASSES:
            raise DataError(f"y has {len(classes)} classes, and there are {MOST_CLASSES} at most")
        pair = only_pair(eval_set)
        watched = None if pair is None else (pair[0], _codes(label_column(pair[1]), classes))
        names = tuple(str(name) for name in classes)
        numbers = codes.astype(np.float64)
        self._fit(X, numbers, "classification", names, weight, watched, early_stopping_rounds)
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class, in the order of `classes_`: a row a sample."""
        return by_class(self._predict(X))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of every sample."""
        return self._likeliest(self._predict(X))

    def decision_function(self, X: Any) -> FloatArray:
        """Return the scores, which are log-odds: of the last of two classes, or of each of more."""
        columns = self._columns(X)
        scores = self.model_.score(columns)
        return scores[0] if len(scores) == 1 else np.ascontiguousarray(scores.T)

    def staged_predict_proba(self, X: Any) -> Iterator[FloatArray]:
        """Yield `predict_proba` with the first table alone, with the first two, and so on."""
        return map(by_class, self._staged(X))

    def staged_predict(self, X: Any) -> Iterator[npt.NDArray[Any]]:
        """Yield `predict` with the first table alone, with the first two, and so on."""
        return map(self._likeliest, self._staged(X))

    def _likeliest(self, predicted: FloatArray) -> npt.NDArray[Any]:
        result: npt.NDArray[Any] = self.classes_[likeliest(predicted)]
        return result


def _codes(label: npt.NDArray[Any], classes: npt.NDArray[Any]) -> FloatArray:
    """Return the number of each row's class, of those that are trained on."""
    unknown = ~np.isin(label, classes)
    if unknown.any():
        value = label[np.flatnonzero(unknown)[0]]
        raise DataError(f"eval_set: the label {value} is none of y's classes")
    return np.searchsorted(classes, label).astype(np.float64)


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
