"""The scikit-learn face: estimators that train a federation inside one process.

PrivetClassifier(partition=3).fit(X, y)              # columns spread evenly over 3 parties
PrivetRegressor().fit([X_bank, X_telecom, X_shop], y)  # one table per party, label with the last
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    assert_all_finite,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from typing_extensions import Self

from privet.arrays import FloatArray
from privet.boosting.binning import bucket_columns
from privet.boosting.model import Model
from privet.boosting.trainer import DEFAULT_PROTOCOL, train
from privet.data.partition import N_PARTIES
from privet.errors import DataError, ParameterError
from privet.terms.cuts import Cuts
from privet.terms.objectives import MOST_CLASSES, by_class, likeliest
from privet.terms.params import Params, hyper_parameters, spelled_out

_CHECKS: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}


class FederatedEstimator(BaseEstimator):
    """What the classifier and the regressor share: parameters, attributes, and parties.

    Parameters
    ----------
    protocol : str
        How the parties compute. `"masked"`: on secret shares, as threads of this process.
        `"paper"`: the same by the paper's protocol, much slower. `"plain"`: in the clear, the
        reference for both. The parts of the model that the parties end with are joined, so that
        `predict` is in the clear.
    partition : int, sequence or mapping
        Which columns of a single table belong to which party. A number: that many parties, evenly.
        A sequence of sequences, or a mapping from party names to sequences: the columns of each
        party, by position or name. The last party holds the label. Not used when `fit` is given
        one table per party.
    cuts : str, optional
        What the parties tell each other of how many cuts each column has: `"exact"`, `"rounded"`
        (up to 1, 3, 7, 15, ...) or `"hidden"`. By default, `"rounded"`; with `"paper"`, `"hidden"`.
    **params
        The hyper-parameters, by name, as in `privet.Params`.

    Attributes
    ----------
    model_ : Model
    partition_ : dict
        The columns of each party, by position.
    feature_importances_ : array
        The share of all tests that each column has.
    n_features_in_ : int
    feature_names_in_ : array, where the columns have names

    """

    n_features_in_: int
    feature_names_in_: npt.NDArray[np.object_]

    @spelled_out()
    def __init__(
        self,
        *,
        protocol: str = DEFAULT_PROTOCOL,
        partition: int | Sequence[Sequence[Any]] | Mapping[str, Sequence[Any]] = N_PARTIES,
        cuts: Cuts | None = None,
        **params: Any,
    ) -> None:
        self.protocol = protocol
        self.partition = partition
        self.cuts = cuts
        for name, field in hyper_parameters().items():
            setattr(self, name, params.pop(name, field.default))
        if params:
            raise TypeError(f"{type(self).__name__} has no parameter {next(iter(params))!r}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def feature_importances_(self) -> FloatArray:
        """The share of all tests that each column has, in the order of the columns."""
        check_is_fitted(self)
        result = np.empty(self.n_features_in_)
        result[self._order] = self.model_.importances()
        return result

    @property
    def _order(self) -> npt.NDArray[np.intp]:
        """The position of every feature of the model among the columns given to `fit`."""
        return np.concatenate([np.asarray(p, dtype=np.intp) for p in self.partition_.values()])

    def _fit(self, X: Any, label: FloatArray, task: str, classes: int = 2) -> None:
        params = self._params(task, classes)
        X, partition = self._join(X)
        check_consistent_length(X, label)
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(X.shape[1])])
        parties = [
            bucket_columns(
                party, [names[i] for i in part], np.ascontiguousarray(X[:, part].T), params.buckets
            )
            for party, part in partition.items()
        ]
        self.model_: Model = train(parties, label, params, self.protocol, cuts=self.cuts)
        self.partition_ = partition

    def _params(self, task: str, classes: int) -> Params:
        values: dict[str, object] = {"task": task, "classes": classes}
        for name, field in hyper_parameters().items():
            # A grid search hands over numpy's numbers.
            value = getattr(self, name)
            if isinstance(value, np.generic):
                value = value.item()
            if (
                isinstance(value, int)
                and not isinstance(value, bool)
                and field.annotation is not int
            ):
                value = float(value)
            values[name] = value
        return Params.parse(values)

    def _predict(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        X = self._rejoin(X)
        return self.model_.predict(np.ascontiguousarray(X[:, self._order].T))

    def _join(self, X: Any) -> tuple[FloatArray, dict[str, list[int]]]:
        """Check what was given to `fit`; return all columns side by side, and whose they are."""
        if not _is_table_list(X):
            joined: FloatArray = validate_data(self, X, ensure_min_samples=2, **_CHECKS)
            return joined, self._resolve_partition(joined.shape[1])
        if len(X) < 2:
            raise DataError("a federation has at least 2 parties; give one table for each")
        joined, names = _side_by_side(X)
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        self.n_features_in_ = joined.shape[1]
        ends = np.cumsum([np.shape(table)[1] for table in X]).tolist()
        parts = zip([0, *ends], ends, strict=False)
        return joined, {f"party{i}": list(range(*part)) for i, part in enumerate(parts, start=1)}

    def _rejoin(self, X: Any) -> FloatArray:
        """Check what was given to `predict` against what was given to `fit`."""
        if not _is_table_list(X):
            joined: FloatArray = validate_data(self, X, reset=False, **_CHECKS)
            return joined
        widths = [np.shape(table)[1] for table in X]
        expected = [len(part) for part in self.partition_.values()]
        if widths != expected:
            raise DataError(f"the parties' tables have {widths} columns, at fit {expected}")
        joined, names = _side_by_side(X)
        known = getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and names != list(known):
            raise DataError(
                "the columns' names differ from those at fit: "
                + ", ".join(f"{a!r} for {b!r}" for a, b in zip(names, known, strict=True) if a != b)
            )
        return joined

    def _resolve_partition(self, n_features: int) -> dict[str, list[int]]:
        """Return the columns of each party by position: every column once."""
        partition = self.partition
        parts: Mapping[str, Sequence[Any]]
        if isinstance(partition, (int, np.integer)) and not isinstance(partition, bool):
            even = np.array_split(range(n_features), max(1, partition))
            parts = {f"party{number}": part.tolist() for number, part in enumerate(even, start=1)}
        elif isinstance(partition, Mapping):
            parts = partition
        elif isinstance(partition, (list, tuple)):
            parts = {f"party{number}": part for number, part in enumerate(partition, start=1)}
        else:
            parts = {"": 0}  # type: ignore[dict-item]
        if any(isinstance(part, str) or np.ndim(part) != 1 for part in parts.values()):
            raise ParameterError(
                f"partition: give a number, or the columns of each party as a list, not {partition}"
            )
        if len(parts) < 2:
            raise ParameterError(f"partition: a federation has at least 2 parties, got {partition}")
        names = {name: i for i, name in enumerate(getattr(self, "feature_names_in_", ()))}
        result = {
            str(party): [self._position(column, names, n_features) for column in columns]
            for party, columns in parts.items()
        }
        given = Counter(position for part in result.values() for position in part)
        for position in range(n_features):
            if given[position] != 1:
                what = list(names)[position] if names else position
                raise ParameterError(
                    f"partition: column {what!r} is given to {given[position]} parties; "
                    "every column belongs to one"
                )
        return result

    @staticmethod
    def _position(column: Any, names: dict[str, int], n_features: int) -> int:
        if column in names:
            return names[column]
        if isinstance(column, (int, np.integer)) and 0 <= column < n_features:
            return int(column)
        raise ParameterError(f"partition: there is no column {column!r}")


class PrivetRegressor(RegressorMixin, FederatedEstimator):
    """Gradient boosted decision tables for a number; see `FederatedEstimator`."""

    def fit(self, X: Any, y: Any) -> Self:
        """Train on one table `X`, or on a list of one table per party, and the label `y`."""
        self._fit(X, _label_column(y).astype(np.float64), "regression")
        return self

    def predict(self, X: Any) -> FloatArray:
        """Return the predicted values."""
        return self._predict(X)


class PrivetClassifier(ClassifierMixin, FederatedEstimator):
    """Gradient boosted decision tables for one of 2 to 32 classes; see `FederatedEstimator`."""

    def fit(self, X: Any, y: Any) -> Self:
        """Train on one table `X`, or on a list of one table per party, and the label `y`."""
        label = _label_column(y)
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


def _label_column(y: Any) -> npt.NDArray[Any]:
    if y is None:
        raise DataError("training requires y to be passed, but the target y is None")
    label: npt.NDArray[Any] = column_or_1d(y, warn=True)
    assert_all_finite(label, input_name="y")
    return label


def _is_table_list(X: Any) -> bool:
    """Tell one table per party from one table, which may be a list of rows."""
    return isinstance(X, (list, tuple)) and len(X) > 0 and all(np.ndim(part) == 2 for part in X)


def _side_by_side(tables: Sequence[Any]) -> tuple[FloatArray, list[str] | None]:
    """Check one table per party; return their columns and, where they have them, their names."""
    arrays = [check_array(table, ensure_min_features=0, **_CHECKS) for table in tables]
    for number, array in enumerate(arrays, start=1):
        if len(array) != len(arrays[0]):
            raise DataError(
                f"party1 has {len(arrays[0])} samples, party{number} {len(array)}: "
                "all parties need the same samples in the same order"
            )
    joined = np.concatenate(arrays, axis=1)
    names = [
        name for table in tables for name in getattr(table, "columns", ()) if isinstance(name, str)
    ]
    if names and len(names) != joined.shape[1]:
        raise DataError("some columns have names and others do not; name all of them or none")
    return joined, names or None
