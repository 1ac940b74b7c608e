"""The estimator of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from typing_extensions import Self

from privet.arrays import FloatArray
from privet.boosting.trainer import DEFAULT_PROTOCOL
from privet.data.partition import N_PARTIES
from privet.errors import DataError
from privet.estimator.base import FederatedEstimator
from privet.estimator.given import label_column, weight_column
from privet.terms.cuts import Cuts
from privet.terms.objectives import MOST_CLASSES, by_class, likeliest
from privet.terms.params import spelled_out


class PrivetClassifier(ClassifierMixin, FederatedEstimator):
    """Gradient boosted decision tables for one of 2 to 32 classes; see `FederatedEstimator`.

    Parameters
    ----------
    class_weight : "balanced" or dict, optional
        How much the samples of a class count: all classes the same in total, or by class.

    """

    @spelled_out()
    def __init__(
        self,
        *,
        protocol: str = DEFAULT_PROTOCOL,
        partition: int | Sequence[Sequence[Any]] | Mapping[str, Sequence[Any]] = N_PARTIES,
        cuts: Cuts | None = None,
        class_weight: Any = None,
        **params: Any,
    ) -> None:
        super().__init__(protocol=protocol, partition=partition, cuts=cuts, **params)
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on one table `X`, or on a list of one table per party, and the label `y`.

        A sample counts as often as its weight says, times that of its class.
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
        self._fit(X, codes.astype(np.float64), "classification", max(2, len(classes)), weight)
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
