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
from privet.estimators.inputs import parse_eval_set, to_label_array, to_weight_array
from privet.objectives.metrics import choose_likeliest_class, list_class_probabilities
from privet.objectives.regression import MAX_CLASSES
from privet.spec.params import with_hyper_parameters


class PrivetClassifier(ClassifierMixin, FederatedEstimator):
    """Gradient boosted decision tables for 2 to 32 classes; see `FederatedEstimator`.

    Parameters
    ----------
    class_weight : "balanced" or dict, optional
        The weight of the samples of each class. `"balanced"`: equal total weights of all classes.

    """

    @with_hyper_parameters(also=FederatedEstimator.__init__)
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

        A weight counts as a number of repetitions, and is multiplied by the weight of the class.
        `eval_set` is a pair of validation rows and their label: with `early_stopping_rounds`, or
        `patience`, their loss determines when training stops.
        """
        label = to_label_array(y)
        check_classification_targets(label)
        weight = to_weight_array(sample_weight)
        if self.class_weight is not None:
            by_class = compute_sample_weight(self.class_weight, label)
            weight = by_class if weight is None else weight * by_class
        classes, indices = np.unique(label, return_inverse=True)
        if len(classes) > MAX_CLASSES:
            raise DataError(f"y has {len(classes)} classes, and there are {MAX_CLASSES} at most")
        pair = parse_eval_set(eval_set)
        validation = (
            None if pair is None else (pair[0], _encode_classes(to_label_array(pair[1]), classes))
        )
        names = tuple(str(name) for name in classes)
        codes = indices.astype(np.float64)
        self._fit(X, codes, "classification", names, weight, validation, early_stopping_rounds)
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probabilities of the classes, in the order of `classes_`: one row a sample."""
        return list_class_probabilities(self._predict(X))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of every sample."""
        return self._choose_likeliest_classes(self._predict(X))

    def decision_function(self, X: Any) -> FloatArray:
        """Return the scores, which are log-odds: of the last of two classes, or of every class."""
        columns = self._make_features(X)
        scores = self.model_.predict_scores(columns)
        return scores[0] if len(scores) == 1 else np.ascontiguousarray(scores.T)

    def staged_predict_proba(self, X: Any) -> Iterator[FloatArray]:
        """Yield the probabilities after each table."""
        return map(list_class_probabilities, self._staged_predict(X))

    def staged_predict(self, X: Any) -> Iterator[npt.NDArray[Any]]:
        """Yield the likeliest classes after each table."""
        return map(self._choose_likeliest_classes, self._staged_predict(X))

    def _choose_likeliest_classes(self, predicted: FloatArray) -> npt.NDArray[Any]:
        result: npt.NDArray[Any] = self.classes_[choose_likeliest_class(predicted)]
        return result


def _encode_classes(label: npt.NDArray[Any], classes: npt.NDArray[Any]) -> FloatArray:
    """Return the code of each row's class among the classes of the training rows."""
    unknown = ~np.isin(label, classes)
    if unknown.any():
        value = label[np.flatnonzero(unknown)[0]]
        raise DataError(f"eval_set: the label {value} is none of y's classes")
    return np.searchsorted(classes, label).astype(np.float64)


class PrivetRegressor(RegressorMixin, FederatedEstimator):
    """Gradient boosted decision tables for a numeric label; see `FederatedEstimator`."""

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

        A weight counts as a number of repetitions. `eval_set` is a pair of validation rows and
        their label: with `early_stopping_rounds`, or `patience`, their loss determines when
        training stops.
        """
        pair = parse_eval_set(eval_set)
        validation = None if pair is None else (pair[0], to_label_array(pair[1]).astype(np.float64))
        label, weight = to_label_array(y).astype(np.float64), to_weight_array(sample_weight)
        self._fit(X, label, "regression", (), weight, validation, early_stopping_rounds)
        return self

    def predict(self, X: Any) -> FloatArray:
        """Return the predicted values."""
        return self._predict(X)

    def staged_predict(self, X: Any) -> Iterator[FloatArray]:
        """Yield the predicted values after each table."""
        return self._staged_predict(X)
