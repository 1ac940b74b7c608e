"""Encoders, which turn columns into features, and labels into classes.

A category becomes its rank by how many samples have it, so that a test parts the frequent ones from
the rest. As many categories are told apart as buckets allow, one of which is for all the rest, and
one for missing values. New rows may have categories that nobody has seen: they go to the rest.

Numbers, dates and times stay as they are, and bucketing finds thresholds among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

import numpy as np

from privet.arrays import FloatArray, IndexArray
from privet.data.frame import Column, Frame, listing
from privet.errors import DataError
from privet.objectives.regression import MOST_CLASSES, OBJECTIVES
from privet.spec.column_types import NUMBERS, Content, Kind

_NAMES_SHOWN = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Encoder:
    """What a column became."""

    column: str
    kind: Kind
    categories: tuple[str, ...] = ()
    """Those that are told apart, the most frequent first."""

    @classmethod
    def learn(
        cls, name: str, content: Content, read: Callable[[], FloatArray], buckets: int
    ) -> Encoder:
        """Learn from the rows of a training, whose cells are read if there is a need to."""
        if content.kind.name != "category":
            return cls(name, content.kind)
        values = read()
        counts = np.bincount(values[~np.isnan(values)].astype(np.intp), minlength=1)
        there = [(-int(count), content.texts[i]) for i, count in enumerate(counts) if count]
        most = max(1, buckets - 2)
        return cls(name, content.kind, tuple(text for _, text in sorted(there)[:most]))

    @property
    def features(self) -> tuple[str, ...]:
        """What all participants call it; categories that are features are numbered, not named."""
        if not self.kind.one_hot:
            return (self.column,)
        return tuple(f"{self.column} {rank}" for rank in range(1, len(self.categories) + 1))

    def encode(self, content: Content, values: FloatArray) -> FloatArray:
        """Return the features of a column's cells: (n_features, n_samples)."""
        features = list(self.encode_each(content, values))
        if len(features) == 1:  # without a copy
            return features[0][None]
        return np.array(features).reshape(len(features), len(values))

    def encode_each(self, content: Content, values: FloatArray) -> Iterator[FloatArray]:
        """Yield the features of a column's cells, each made when it is asked for."""
        if content.kind.name != self.kind.name:
            raise DataError(
                f"column {self.column!r} holds a {content.kind}, and was a {self.kind} when the "
                "model was trained"
            )
        if self.kind.name != "category":
            yield values
            return
        rank, rest = {text: i for i, text in enumerate(self.categories)}, len(self.categories)
        ranks = np.array([*(rank.get(text, rest) for text in content.texts), np.nan])
        gone = np.isnan(values)
        found: FloatArray = ranks[np.where(gone, -1, values).astype(np.intp)]
        if self.kind.one_hot:
            yield from ((found == number).astype(np.float64) for number in range(rest))
        else:
            yield found

    def needed_for(self, thresholds: Mapping[str, Sequence[float]]) -> Encoder:
        """Return an encoder that these tests tell nothing from, and that knows no more than needed.

        `thresholds` are those of the tests of each feature. Categories that no test tells from the
        rest are left out; of features for each category, those that are not tested have no name.
        """
        if self.kind.name != "category":
            return self
        if self.kind.one_hot:
            named = zip(self.features, self.categories, strict=True)
            return replace(
                self, categories=tuple(text if thresholds.get(name) else "" for name, text in named)
            )
        finite = [t for t in thresholds.get(self.column, ()) if math.isfinite(t)]
        return replace(self, categories=self.categories[: math.ceil(max(finite, default=0))])

    def describe(self, feature: str, threshold: float) -> str:
        """Say a test of one of its features in words."""
        if math.isinf(threshold):
            return f"{self.column}: any value" if threshold > 0 else f"{self.column} is missing"
        if self.kind.one_hot:
            return f"{self.column} is not {self.categories[self.features.index(feature)]!r}"
        if self.kind.name == "category":
            return self._in_list(math.ceil(threshold))
        return f"{self.column} < {in_words(self.kind, threshold)}"

    def _in_list(self, count: int) -> str:
        passed, rest = self.categories[:count], self.categories[count:]
        if 0 < len(rest) < len(passed):
            return f"{self.column} is not {' or '.join(_shown(rest))}, nor of the rest"
        return f"{self.column} is {' or '.join(_shown(passed))}"


def features_of(encoders: Iterable[Encoder]) -> tuple[str, ...]:
    """Return the features that encoders make, in order."""
    return tuple(name for encoder in encoders for name in encoder.features)


def in_words(kind: Kind, value: float, digits: int = 6) -> str:
    """Say a number, or the date or time that it stands for."""
    try:
        if kind.name == "date":
            return f"{_EPOCH + timedelta(days=value):%Y-%m-%d %H:%M}".removesuffix(" 00:00")
        if kind.name == "time":
            return f"{_EPOCH + timedelta(seconds=value):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        pass
    return f"{value:.{digits}g}"


def _shown(names: Sequence[str]) -> list[str]:
    more = len(names) - _NAMES_SHOWN
    shown = [repr(name) for name in names[:_NAMES_SHOWN]]
    return [*shown, f"{more} more"] if more > 0 else shown


def learn(columns: Iterable[Column], buckets: int) -> tuple[Encoder, ...]:
    """Return what there is to know of every column, from the rows of a training."""
    return tuple(Encoder.learn(each.name, each.content, each.read, buckets) for each in columns)


def encode(frame: Frame, encoders: Sequence[Encoder]) -> Frame:
    """Return the features of a frame's rows."""
    position = {name: i for i, name in enumerate(frame.names)}
    names, rows = features_of(encoders), list[FloatArray]()
    for encoder in encoders:
        if encoder.column not in position:
            raise DataError(f"there is no column {encoder.column!r}, which the model needs")
        i = position[encoder.column]
        rows.append(encoder.encode(frame.contents[i], frame.columns[i]))
    if names == frame.names and all(e.kind.name != "category" for e in encoders):
        return replace(frame, contents=())  # as it is, without a copy
    columns = np.concatenate(rows) if rows else np.empty((0, frame.n_samples))
    return replace(frame, names=names, columns=columns, contents=())


_SHOWN = 8
_WAS_THERE = "was not before: the table changed while it was in use; start again"


def task_of(frame: Frame) -> str:
    """Return what a label seems to ask for: text, and 0 and 1, are classes, all else numbers."""
    assert frame.label is not None
    if frame.label_content.kind.name in ("category", "boolean"):
        return "classification"
    there = frame.label[~np.isnan(frame.label)]
    return "classification" if np.isin(there, (0.0, 1.0)).all() else "regression"


def settle_label(
    frame: Frame, task: str, positive: str | None = None, agreed: int | None = None
) -> tuple[Frame, list[str]]:
    """Return a frame whose label is what a task takes, and the names of the classes.

    Classes are in the order of their names or numbers, or the one of two named positive is the
    last. There must be as many as were agreed on, if that was done.
    """
    label, content = frame.label, frame.label_content
    assert label is not None
    kind = content.kind.name
    if task != "classification":
        if positive is not None:
            raise DataError(f"positive: a {task} has no classes; leave it out")
        if kind != "number":
            raise DataError(
                f"the label is a {content.kind}, and a {task} needs numbers; is it a "
                "classification?"
            )
        OBJECTIVES[task].check_label(label)
        return frame, []
    gone = np.flatnonzero(np.isnan(label))
    if len(gone):
        raise DataError(
            f"the label of row {gone[0] + 1} is missing; every sample needs one ({len(gone)} of "
            f"{len(label)} have none): drop those rows everywhere"
        )
    values = np.unique(label)
    named = {_name(content, value): value for value in values}
    classes = sorted(named) if content.texts else list(named)
    complaint = _complaint(len(classes), agreed)
    if complaint:
        first = {name: int(np.argmax(label == named[name])) + 1 for name in classes[:_SHOWN]}
        shown = ", ".join(f"{name!r} (row {row})" for name, row in first.items())
        more = f" and {len(classes) - _SHOWN} more" if len(classes) > _SHOWN else ""
        raise DataError(
            f"the label has {len(classes)} value{'s' * (len(classes) != 1)}, {shown}{more}: "
            f"{complaint}"
        )
    for value in values:
        if named[name := _name(content, value)] != value:
            rows = [int(np.argmax(label == each)) + 1 for each in (value, named[name])]
            raise DataError(
                f"the label has two values that are both written {name!r}, in rows {rows[0]} and "
                f"{rows[1]}: write them alike if they are one class, or else further apart"
            )
    if positive is not None:
        if kind == "boolean":
            positive = positive.lower()
        if len(classes) > 2:
            raise DataError(f"positive: is for two classes, not {len(classes)}; leave it out")
        if positive not in classes:
            raise DataError(f"the label has no value {positive!r}; it has {listing(classes)}")
        classes.sort(key=lambda name: name == positive)
    place = {named[name]: k for k, name in enumerate(classes)}
    codes = np.array([place[value] for value in values], dtype=np.float64)
    coded = codes[np.searchsorted(values, label)]
    return replace(frame, label=coded, label_content=NUMBERS), classes


def code_some(
    label: FloatArray, content: Content, classes: Sequence[str], rows: IndexArray
) -> FloatArray:
    """Return the label of some rows, with these numbers, as `settle_label` made it of all rows.

    `classes` are what it found; none in a regression.
    """
    gone = np.flatnonzero(np.isnan(label))
    if len(gone):
        raise DataError(f"the label of row {rows[gone[0]] + 1} is missing, and {_WAS_THERE}")
    if not classes:
        return label
    values, where = np.unique(label, return_inverse=True)
    names = [_name(content, value) for value in values]
    place = {name: k for k, name in enumerate(classes)}
    for k, name in enumerate(names):
        if name not in place:
            row = rows[int(np.argmax(where == k))]
            raise DataError(f"the label of row {row + 1} is {name!r}, and {_WAS_THERE}")
    coded: FloatArray = np.array([place[name] for name in names], dtype=np.float64)[where]
    return coded


def _complaint(found: int, agreed: int | None) -> str:
    """Say what is wrong with so many classes, if anything is."""
    if found < 2:
        return "a classification needs two or more"
    if found > MOST_CLASSES:
        return f"a classification has {MOST_CLASSES} classes at most; is it a regression?"
    if agreed is None or found == agreed:
        return ""
    advice = f"set classes = {found} in everybody's job"
    if found > agreed:
        return f"all agreed on {agreed} classes; {advice}, or put values together"
    return f"all agreed on {agreed} classes; {advice}, or get rows of those that are missing"


def _name(content: Content, value: float) -> str:
    if content.texts:
        return content.texts[int(value)]
    if content.kind.name == "boolean":
        return "true" if value else "false"
    return in_words(content.kind, value, digits=15)
