"""What its owner learns of a column before training, and applies to new rows: categories by number.

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

from privet.arrays import FloatArray
from privet.data.kinds import Content, Kind
from privet.errors import DataError

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
