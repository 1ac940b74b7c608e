"""The estimator of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from typing_extensions import Self

from privet.arrays import FloatArray
from privet.errors import DataError
from privet.estimator.base import FederatedEstimator
from privet.estimator.given import label_column
from privet.terms.objectives import MOST_CLASSES, by_class, likeliest


class PrivetClassifier(ClassifierMixin, FederatedEstimator):
    """Gradient boosted decision tables for one of 2 to 32 classes; see `FederatedEstimator`."""

    def fit(self, X: Any, y: Any) -> Self:
        """Train on one table `X`, or on a list of one table per party, and the label `y`."""
        label = label_column(y)
        check_classification_targets(label)
        classes, codes = np.unique(label, return_inverse=True)
        if len(classes) > MOST_CLASSES:
            raise DataError(f"y has {len(classes)} classes, and there are {MOST_CLASSES} at most")
        self._fit(X, codes.astype(np.float64), "classification", max(2, len(classes)))
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class, in the order of `classes_`: a row a sample."""
        return by_class(self._predict(X))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the likeliest class of every sample."""
        chosen = likeliest(self._predict(X))
        result: npt.NDArray[Any] = self.classes_[chosen]
        return result
