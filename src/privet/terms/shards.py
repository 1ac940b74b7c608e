"""Shards: the rows of a training in parts, cut alike by everybody.

Rows have an order that all share: as they stand, or as they were aligned. A shard is a stretch of
those to train on, and one of those to validate with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privet.arrays import IndexArray, Indices
from privet.errors import DataError

MOST_SHARDS = 1000


@dataclass(frozen=True)
class Shard:
    """One part of the rows."""

    number: int
    """Which one it is, from 0."""
    trained: range
    """Where its rows to train on are, among all of these."""
    validated: range
    """Where its rows to validate with are, among all of these."""

    @property
    def n_samples(self) -> int:
        """How many rows it has to train on."""
        return len(self.trained)

    @property
    def n_validation(self) -> int:
        """How many rows it has to validate with."""
        return len(self.validated)

    @property
    def n_rows(self) -> int:
        """How many rows it has."""
        return self.n_samples + self.n_validation

    def positions(self, n_samples: int) -> IndexArray:
        """Return where its rows are among all, if there are so many to train on."""
        trained, validated = (np.array(r, dtype=np.intp) for r in (self.trained, self.validated))
        return np.concatenate([trained, n_samples + validated])

    def drawn(self, rows: Indices) -> Indices:
        """Return its own among the rows that a table draws, counted within the shard."""
        if isinstance(rows, slice):
            return slice(self.n_samples)
        start, stop = np.searchsorted(rows, [self.trained.start, self.trained.stop])
        found: IndexArray = rows[start:stop] - self.trained.start
        return found


def cut_rows(n_samples: int, n_validation: int, count: int) -> list[Shard]:
    """Return shards whose sizes differ by a row at most; raise DataError if one would be empty."""
    for what, rows in (("train on", n_samples), ("validate with", n_validation)):
        if rows < count and (rows or what == "train on"):
            raise DataError(f"shards: {count}, and there are {rows} rows to {what}: use fewer")
    return [
        Shard(number, _stretch(n_samples, number, count), _stretch(n_validation, number, count))
        for number in range(count)
    ]


def _stretch(rows: int, number: int, count: int) -> range:
    return range(rows * number // count, rows * (number + 1) // count)
