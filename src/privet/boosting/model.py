"""A model: decision tables of D splits and 2^D leaf values, and the scores of samples.

The outcomes of the splits, level 0 first, are the binary digits of a sample's leaf index: 0 if the
sample goes left (`feature < threshold`, or the feature is missing), 1 if it goes right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from privet.arrays import BoolArray, FloatArray, IndexArray
from privet.data.encoding import Encoder, list_feature_names
from privet.errors import DataError, ModelError
from privet.objectives.base import MAX_LABEL, Objective
from privet.objectives.regression import OBJECTIVES, create_objective_with_outputs
from privet.schema import is_printable
from privet.spec.column_types import NUMBER

# The arrays of a model and their types; a model holds read-only copies.
_ARRAYS = {
    "base_score": np.float64,
    "feature": np.intp,
    "bucket": np.intp,
    "threshold": np.float64,
    "leaf_values": np.float64,
    "left_fraction": np.float64,
}
_BLOCK = 1 << 20  # (table, sample) pairs that are scored at a time


@dataclass(frozen=True)
class Feature:
    """A column of the federation: its name, and the participant that holds it."""

    name: str
    owner: str

    def __post_init__(self) -> None:
        # Names are sent to other participants and printed on their terminals.
        for text in (self.name, self.owner):
            if not is_printable(text):
                raise DataError(f"{text!r} cannot be the name of a column or a participant")


@dataclass(frozen=True, eq=False)
class Model:
    """Gradient boosted decision tables.

    Each level of a table has one split: a feature and the last of its buckets that goes left, which
    its owner knows as a threshold. With the threshold `-inf`, only missing values go left; with
    `inf`, all rows do.
    """

    task: str
    """The name of the objective."""
    features: tuple[Feature, ...]
    base_score: FloatArray
    """The scores before the first table: (outputs,)."""
    feature: IndexArray
    """The index of the feature that each level splits on: (tables, depth)."""
    bucket: IndexArray
    """The last bucket that goes left: (tables, depth)."""
    threshold: FloatArray
    """The threshold of each split: (tables, depth)."""
    leaf_values: FloatArray
    """The values added to the scores, after the learning rate: (tables, outputs, 2^depth)."""
    encoders: tuple[Encoder, ...] = ()
    """The encoders of the columns; empty if all columns are numbers."""
    classes: tuple[str, ...] = ()
    """The names of the label's classes, if known, in the order of the probabilities."""
    left_fraction: FloatArray | None = None
    """The fraction of training rows going left at each split, if known: (tables, depth)."""

    def __post_init__(self) -> None:
        present = {
            name: dtype for name, dtype in _ARRAYS.items() if getattr(self, name) is not None
        }
        for name, dtype in present.items():
            array = np.array(getattr(self, name), dtype=dtype)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if len(set(self.features)) < len(self.features):
            raise ModelError("two features have the same name and owner")
        if self.feature.ndim != 2 or self.n_tables < 1 or self.depth < 1:
            raise ModelError("a model has at least one table of at least one test")
        tables, depth = self.feature.shape
        if self.bucket.shape != (tables, depth) or self.threshold.shape != (tables, depth):
            raise ModelError("features, buckets and thresholds differ in number")
        if self.task not in OBJECTIVES:
            raise ModelError(f"{self.task!r} is none of {', '.join(OBJECTIVES)}")
        if self.base_score.ndim != 1:
            raise ModelError("base scores are not one number for each output")
        outputs = self.objective.n_outputs
        if self.leaf_values.shape != (tables, outputs, 1 << depth):
            raise ModelError(
                f"{depth} tests need {1 << depth} leaf values for each of {outputs} output(s) in "
                "every table"
            )
        if self.feature.min() < 0 or self.feature.max() >= len(self.features):
            raise ModelError(f"a test names a feature that is not one of the {len(self.features)}")
        if self.encoders and self.feature_names != list_feature_names(self.encoders):
            raise ModelError("its encoders make other features than it tests")
        self._check_classes()
        if self.bucket.min() < 0:
            raise ModelError("a test names a negative bucket")
        if np.isnan(self.threshold).any():
            raise ModelError("a threshold is not a number")
        if not all((np.abs(x) <= MAX_LABEL).all() for x in (self.leaf_values, self.base_score)):
            raise ModelError("a leaf value or the base score is not finite, or too large")
        self._check_left_fraction()

    def _check_left_fraction(self) -> None:
        fraction = self.left_fraction
        if fraction is None:
            return
        if fraction.shape != self.feature.shape or not ((fraction >= 0) & (fraction <= 1)).all():
            raise ModelError("shares of rows that pass are not one between 0 and 1 for each test")

    def _check_classes(self) -> None:
        expected = max(2, self.objective.n_outputs) if self.objective.is_classification else 0
        if self.classes and len(self.classes) != expected:
            raise ModelError(f"{len(self.classes)} names for {expected} classes")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Model):
            return NotImplemented
        scalars = ("task", "features", "encoders", "classes")
        return all(getattr(self, name) == getattr(other, name) for name in scalars) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in _ARRAYS
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def objective(self) -> Objective:
        """The objective that the model was trained for."""
        return create_objective_with_outputs(self.task, len(self.base_score))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features, in the order of the columns for prediction."""
        return tuple(feature.name for feature in self.features)

    @property
    def n_tables(self) -> int:
        """The number of tables."""
        return int(self.feature.shape[0])

    @property
    def depth(self) -> int:
        """The number of splits of a table."""
        return int(self.feature.shape[1])

    def find_rows_going_right(self, table: int, level: int, columns: FloatArray) -> BoolArray:
        """Return the samples that go right at one split; missing values go left."""
        result: BoolArray = columns[self.feature[table, level]] >= self.threshold[table, level]
        return result

    def find_leaf_indices(self, columns: FloatArray) -> IndexArray:
        """Return the leaf of every sample in every table, (tables, n_samples).

        `columns` has one row for each feature, in the order of `features`: (n_features, n_samples).
        """
        self._check_columns(columns)
        leaf = np.zeros((self.n_tables, columns.shape[1]), dtype=np.intp)
        for level in range(self.depth):
            # A missing value compares false and therefore goes left, as the smallest value does.
            goes_right = columns[self.feature[:, level]] >= self.threshold[:, level, None]
            leaf = 2 * leaf + goes_right
        return leaf

    def predict_scores(self, columns: FloatArray) -> FloatArray:
        """Return the scores of every sample: the base score plus a leaf value from every table.

        (outputs, n_samples).
        """
        self._check_columns(columns)
        n_samples = columns.shape[1]
        result = np.repeat(self.base_score[:, None], n_samples, axis=1)
        step = max(1, _BLOCK // max(1, self.n_tables))
        for start in range(0, n_samples, step):
            block = slice(start, start + step)
            leaf = self.find_leaf_indices(columns[:, block])[:, None]
            result[:, block] += np.take_along_axis(self.leaf_values, leaf, axis=2).sum(axis=0)
        return result

    def staged_scores(self, columns: FloatArray) -> Iterator[FloatArray]:
        """Yield the scores of every sample after each table."""
        score = np.repeat(self.base_score[:, None], columns.shape[1], axis=1)
        for values, leaf in zip(self.leaf_values, self.find_leaf_indices(columns), strict=True):
            score = score + values[:, leaf]
            yield score

    def predict(self, columns: FloatArray) -> FloatArray:
        """Return the prediction for every sample: a value, or the probabilities of the classes."""
        return self.objective.predict_from_scores(self.predict_scores(columns))

    def _check_columns(self, columns: FloatArray) -> None:
        if columns.ndim != 2 or len(columns) != len(self.features):
            raise ModelError(
                f"the model has {len(self.features)} features, a row each; "
                f"the data have the shape {columns.shape}"
            )

    def compare_splits(self, other: Model, columns: FloatArray) -> float:
        """Return the fraction of levels at which two models divide the samples in the same way.

        Both splits are the same, or they divide these samples alike, such as those on a column and
        on its copy or its negation.
        """
        self._check_columns(columns)
        same = (self.feature == other.feature) & (self.bucket == other.bucket)
        for table, level in np.argwhere(~same):
            first, second = (
                model.find_rows_going_right(table, level, columns) for model in (self, other)
            )
            same[table, level] = len(np.unique(first == second)) == 1
        return float(np.mean(same))

    def compute_importances(self, gains: FloatArray | None = None) -> FloatArray:
        """Return the fraction of all splits, or of their total gain, that each feature has.

        Without `gains`, (tables, depth), splits are counted: all participants know the features of
        the splits, but not the gains.
        """
        return compute_importances(self.feature, self.threshold, len(self.features), gains)

    def describe_split(self, table: int, level: int) -> str:
        """Describe a split in words, without its owner."""
        feature = int(self.feature[table, level])
        name = self.features[feature].name
        encoders = [encoder for encoder in self.encoders for _ in encoder.feature_names]
        encoder = encoders[feature] if encoders else Encoder(name, NUMBER)
        return encoder.describe_split(name, float(self.threshold[table, level]))


def compute_importances(
    feature: IndexArray,
    threshold: FloatArray,
    n_features: int,
    gains: FloatArray | None = None,
) -> FloatArray:
    """Return the fraction of all splits, or of their total gain, that each feature has.

    A level at which all rows go left is not counted. A gain can be negative, if no split has a
    larger one; it counts as 0.
    """
    weights = np.ones(feature.shape) if gains is None else np.maximum(gains, 0.0)
    weights = np.where(np.isposinf(threshold), 0.0, weights)
    total = np.bincount(feature.ravel(), weights=weights.ravel(), minlength=n_features)
    result: FloatArray = total / (weights.sum() or 1.0)
    return result
