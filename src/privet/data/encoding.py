"""Encoding of columns as features, and of labels as classes.

A category becomes its rank by frequency, so that a split separates frequent categories from the
others. The number of buckets limits the distinct categories: one bucket is for all other categories
and one for missing values. A category that training did not see counts as one of the others.

Numbers, dates and times stay unchanged; bucketing finds thresholds among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

import numpy as np

from privet.arrays import FloatArray, IndexArray
from privet.data.frame import Frame, LazyColumn, format_names
from privet.errors import DataError
from privet.objectives.regression import MAX_CLASSES, OBJECTIVES
from privet.spec.column_types import NUMBER_SCHEMA, ColumnSchema, ColumnType

_NAMES_SHOWN = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Encoder:
    """The fitted encoding of a column."""

    column: str
    column_type: ColumnType
    categories: tuple[str, ...] = ()
    """The distinct categories, the most frequent first."""

    @classmethod
    def fit(
        cls, name: str, schema: ColumnSchema, read: Callable[[], FloatArray], buckets: int
    ) -> Encoder:
        """Fit an encoder to the training rows; call `read` only for categories."""
        if schema.column_type.name != "category":
            return cls(name, schema.column_type)
        values = read()
        counts = np.bincount(values[~np.isnan(values)].astype(np.intp), minlength=1)
        by_frequency = [
            (-int(count), schema.categories[i]) for i, count in enumerate(counts) if count
        ]
        max_categories = max(1, buckets - 2)
        return cls(
            name,
            schema.column_type,
            tuple(text for _, text in sorted(by_frequency)[:max_categories]),
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The feature names for all participants; one-hot categories have numbers, not names."""
        if not self.column_type.one_hot:
            return (self.column,)
        return tuple(f"{self.column} {rank}" for rank in range(1, len(self.categories) + 1))

    def encode(self, schema: ColumnSchema, values: FloatArray) -> FloatArray:
        """Return the features of a column's cells: (n_features, n_samples)."""
        features = list(self.iter_features(schema, values))
        if len(features) == 1:  # without a copy
            return features[0][None]
        return np.array(features).reshape(len(features), len(values))

    def iter_features(self, schema: ColumnSchema, values: FloatArray) -> Iterator[FloatArray]:
        """Yield the features of a column's cells, computed one at a time."""
        if schema.column_type.name != self.column_type.name:
            raise DataError(
                f"column {self.column!r} holds a {schema.column_type}, and was a "
                f"{self.column_type} when the model was trained"
            )
        if self.column_type.name != "category":
            yield values
            return
        rank, other = {text: i for i, text in enumerate(self.categories)}, len(self.categories)
        ranks = np.array([*(rank.get(text, other) for text in schema.categories), np.nan])
        missing = np.isnan(values)
        found: FloatArray = ranks[np.where(missing, -1, values).astype(np.intp)]
        if self.column_type.one_hot:
            yield from ((found == number).astype(np.float64) for number in range(other))
        else:
            yield found

    def restrict_to_splits(self, thresholds: Mapping[str, Sequence[float]]) -> Encoder:
        """Return the smallest encoder that gives the same results for these splits.

        `thresholds` are the split thresholds of each feature. The new encoder leaves out categories
        that no split separates from the others; one-hot features without a split lose the name of
        their category.
        """
        if self.column_type.name != "category":
            return self
        if self.column_type.one_hot:
            named = zip(self.feature_names, self.categories, strict=True)
            return replace(
                self, categories=tuple(text if thresholds.get(name) else "" for name, text in named)
            )
        finite = [t for t in thresholds.get(self.column, ()) if math.isfinite(t)]
        return replace(self, categories=self.categories[: math.ceil(max(finite, default=0))])

    def describe_split(self, feature: str, threshold: float) -> str:
        """Describe a split on one of the features in words."""
        if math.isinf(threshold):
            return f"{self.column}: any value" if threshold > 0 else f"{self.column} is missing"
        if self.column_type.one_hot:
            return f"{self.column} is not {self.categories[self.feature_names.index(feature)]!r}"
        if self.column_type.name == "category":
            return self._describe_category_split(math.ceil(threshold))
        return f"{self.column} < {format_value(self.column_type, threshold)}"

    def _describe_category_split(self, count: int) -> str:
        going_left, going_right = self.categories[:count], self.categories[count:]
        if 0 < len(going_right) < len(going_left):
            return f"{self.column} is not {' or '.join(_abbreviate(going_right))}, nor of the rest"
        return f"{self.column} is {' or '.join(_abbreviate(going_left))}"


def list_feature_names(encoders: Iterable[Encoder]) -> tuple[str, ...]:
    """Return the feature names of all encoders, in order."""
    return tuple(name for encoder in encoders for name in encoder.feature_names)


def format_value(column_type: ColumnType, value: float, digits: int = 6) -> str:
    """Format a number, or the date or time that it represents."""
    try:
        if column_type.name == "date":
            return f"{_EPOCH + timedelta(days=value):%Y-%m-%d %H:%M}".removesuffix(" 00:00")
        if column_type.name == "time":
            return f"{_EPOCH + timedelta(seconds=value):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        pass
    return f"{value:.{digits}g}"


def _abbreviate(names: Sequence[str]) -> list[str]:
    more = len(names) - _NAMES_SHOWN
    shown = [repr(name) for name in names[:_NAMES_SHOWN]]
    return [*shown, f"{more} more"] if more > 0 else shown


def fit_encoders(columns: Iterable[LazyColumn], buckets: int) -> tuple[Encoder, ...]:
    """Fit an encoder to every column of the training rows."""
    return tuple(Encoder.fit(each.name, each.schema, each.read, buckets) for each in columns)


def encode_frame(frame: Frame, encoders: Sequence[Encoder]) -> Frame:
    """Return a frame with the features of the rows."""
    position = {name: i for i, name in enumerate(frame.names)}
    names, rows = list_feature_names(encoders), list[FloatArray]()
    for encoder in encoders:
        if encoder.column not in position:
            raise DataError(f"there is no column {encoder.column!r}, which the model needs")
        i = position[encoder.column]
        rows.append(encoder.encode(frame.schemas[i], frame.columns[i]))
    if names == frame.names and all(e.column_type.name != "category" for e in encoders):
        return replace(frame, schemas=())  # without a copy
    columns = np.concatenate(rows) if rows else np.empty((0, frame.n_samples))
    return replace(frame, names=names, columns=columns, schemas=())


_MAX_VALUES_SHOWN = 8
_LABEL_CHANGED = "was not before: the table changed while it was in use; start again"


def infer_task(frame: Frame) -> str:
    """Guess the task from the label: text, booleans, 0 and 1 are classes, not other numbers."""
    assert frame.label is not None
    if frame.label_schema.column_type.name in ("category", "boolean"):
        return "classification"
    values = frame.label[~np.isnan(frame.label)]
    return "classification" if np.isin(values, (0.0, 1.0)).all() else "regression"


def prepare_label(
    frame: Frame, task: str, positive: str | None = None, n_classes: int | None = None
) -> tuple[Frame, list[str]]:
    """Return a frame with the label encoded for the task, and the names of the classes.

    Classes are in the order of their names or numbers, except that `positive` comes last. If
    `n_classes` is set, the label must have this number of classes.
    """
    label, schema = frame.label, frame.label_schema
    assert label is not None
    type_name = schema.column_type.name
    if task != "classification":
        if positive is not None:
            raise DataError(f"positive: a {task} has no classes; leave it out")
        if type_name != "number":
            raise DataError(
                f"the label is a {schema.column_type}, and a {task} needs numbers; is it a "
                "classification?"
            )
        OBJECTIVES[task].check_label(label)
        return frame, []
    missing = np.flatnonzero(np.isnan(label))
    if len(missing):
        raise DataError(
            f"the label of row {missing[0] + 1} is missing; every sample needs one ({len(missing)} "
            f"of {len(label)} have none): drop those rows everywhere"
        )
    values = np.unique(label)
    values_by_name = {_name_class(schema, value): value for value in values}
    classes = sorted(values_by_name) if schema.categories else list(values_by_name)
    problem = _explain_class_count(len(classes), n_classes)
    if problem:
        first_rows = {
            name: int(np.argmax(label == values_by_name[name])) + 1
            for name in classes[:_MAX_VALUES_SHOWN]
        }
        shown = ", ".join(f"{name!r} (row {row})" for name, row in first_rows.items())
        more = (
            f" and {len(classes) - _MAX_VALUES_SHOWN} more"
            if len(classes) > _MAX_VALUES_SHOWN
            else ""
        )
        raise DataError(
            f"the label has {len(classes)} value{'s' * (len(classes) != 1)}, {shown}{more}: "
            f"{problem}"
        )
    for value in values:
        if values_by_name[name := _name_class(schema, value)] != value:
            rows = [int(np.argmax(label == each)) + 1 for each in (value, values_by_name[name])]
            raise DataError(
                f"the label has two values that are both written {name!r}, in rows {rows[0]} and "
                f"{rows[1]}: write them alike if they are one class, or else further apart"
            )
    if positive is not None:
        if type_name == "boolean":
            positive = positive.lower()
        if len(classes) > 2:
            raise DataError(f"positive: is for two classes, not {len(classes)}; leave it out")
        if positive not in classes:
            raise DataError(f"the label has no value {positive!r}; it has {format_names(classes)}")
        classes.sort(key=lambda name: name == positive)
    positions = {values_by_name[name]: k for k, name in enumerate(classes)}
    codes = np.array([positions[value] for value in values], dtype=np.float64)
    coded = codes[np.searchsorted(values, label)]
    return replace(frame, label=coded, label_schema=NUMBER_SCHEMA), classes


def encode_selected_labels(
    label: FloatArray, schema: ColumnSchema, classes: Sequence[str], rows: IndexArray
) -> FloatArray:
    """Encode the label of selected rows as `prepare_label` encoded the label of all rows.

    `classes` are the names that it returned; empty for a regression.
    """
    missing = np.flatnonzero(np.isnan(label))
    if len(missing):
        raise DataError(f"the label of row {rows[missing[0]] + 1} is missing, and {_LABEL_CHANGED}")
    if not classes:
        return label
    values, indices = np.unique(label, return_inverse=True)
    names = [_name_class(schema, value) for value in values]
    positions = {name: k for k, name in enumerate(classes)}
    for k, name in enumerate(names):
        if name not in positions:
            row = rows[int(np.argmax(indices == k))]
            raise DataError(f"the label of row {row + 1} is {name!r}, and {_LABEL_CHANGED}")
    coded: FloatArray = np.array([positions[name] for name in names], dtype=np.float64)[indices]
    return coded


def _explain_class_count(n_found: int, n_expected: int | None) -> str:
    """Return an error text for a wrong number of classes; empty if it is right."""
    if n_found < 2:
        return "a classification needs two or more"
    if n_found > MAX_CLASSES:
        return f"a classification has {MAX_CLASSES} classes at most; is it a regression?"
    if n_expected is None or n_found == n_expected:
        return ""
    advice = f"set classes = {n_found} in everybody's job"
    if n_found > n_expected:
        return f"all agreed on {n_expected} classes; {advice}, or put values together"
    return f"all agreed on {n_expected} classes; {advice}, or get rows of those that are missing"


def _name_class(schema: ColumnSchema, value: float) -> str:
    if schema.categories:
        return schema.categories[int(value)]
    if schema.column_type.name == "boolean":
        return "true" if value else "false"
    return format_value(schema.column_type, value, digits=15)
