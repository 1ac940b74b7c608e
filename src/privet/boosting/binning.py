"""Bucketing: each participant cuts its own features into buckets before training.

Thresholds t_0 < t_1 < ... divide a feature into buckets: bucket b holds the values x with
t_(b-1) <= x < t_b. The split `x < t_b` sends buckets 0 to b to the left. Missing values count as
smaller than all others: they lie in bucket 0 and always go left.

Only the owner knows the actual cut count of a feature. The other participants learn the exact
count, a rounded one, or none (`spec.plan`). Cuts past the last threshold are `x < inf`: all rows go
left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from privet.arithmetic.large_arrays import allocate_array
from privet.arrays import BucketArray, FloatArray, IndexArray
from privet.errors import DataError

_CHUNK_ROWS = 1 << 18  # rows


@dataclass(frozen=True)
class BucketedColumns:
    """One participant's features, ready for training."""

    owner: str
    names: tuple[str, ...]
    buckets: BucketArray
    """The bucket of each feature and sample: (n_features, n_samples)."""
    thresholds: FloatArray
    """The thresholds of each feature, padded with inf: (n_features, B - 1)."""

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return int(self.buckets.shape[1])

    def first(self, n_samples: int) -> BucketedColumns:
        """Return the columns of only the first `n_samples` samples."""
        return replace(self, buckets=self.buckets[:, :n_samples])

    @property
    def cut_counts(self) -> tuple[int, ...]:
        """The cut count of each feature: 0 if it is constant."""
        return tuple(np.count_nonzero(self.thresholds < np.inf, axis=1).tolist())


def bucket_columns(
    owner: str,
    names: Sequence[str],
    columns: FloatArray,
    buckets: int,
    n_validation: int = 0,
) -> BucketedColumns:
    """Cut every row of `columns` (n_features, n_samples) into at most `buckets` buckets.

    Thresholds are fitted without the last `n_validation` samples, which are validation rows.
    """
    if len(names) != len(columns):
        raise DataError(f"{owner}: {len(names)} column names for {len(columns)} columns")
    return bucket_column_stream(owner, names, columns, columns.shape[1], buckets, n_validation)


def bucket_column_stream(
    owner: str,
    names: Sequence[str],
    columns: Iterable[FloatArray],
    n_samples: int,
    buckets: int,
    n_validation: int = 0,
) -> BucketedColumns:
    """Bucket features that arrive one at a time, so that only one is in memory."""
    thresholds = np.full((len(names), buckets - 1), np.inf)
    indices: BucketArray = allocate_array((len(names), n_samples), np.uint8)
    for row, (name, column) in enumerate(zip(names, columns, strict=True)):
        if np.isinf(column).any():
            sample = int(np.flatnonzero(np.isinf(column))[0])
            raise DataError(
                f"{owner}: column {name!r}, row {sample + 1} is infinite; "
                "use a finite number, or leave the cell empty where the value is missing"
            )
        cuts = find_thresholds(column[: len(column) - n_validation], buckets)
        thresholds[row, : len(cuts)] = cuts
        write_buckets(indices[row], column, cuts)
    return BucketedColumns(owner, tuple(names), indices, thresholds)


def find_thresholds(column: FloatArray, buckets: int) -> FloatArray:
    """Choose at most `buckets - 1` thresholds that cut the values into even parts.

    1. Cut at the quantiles, each moved to the border below its value, so that equal values stay
       together. With three buckets or more, reserve one cut to separate missing values.
    2. If one value fills several quantiles, cuts are left over. Spend them one by one on the
       fullest bucket that can be cut, as near to its median as equal values allow. A column
       with at most `buckets` distinct values therefore gets one bucket for each value.

    A threshold lies half way between two values; the one above the missing values is -inf.
    """
    if not len(column):
        return np.empty(0)
    ordered = np.where(np.isnan(column), -np.inf, column)
    ordered.sort()
    # below[i] samples are smaller than the i-th distinct value: a cut there separates the two.
    borders = np.flatnonzero(ordered[1:] != ordered[:-1])
    borders += 1
    below = np.concatenate(([0], borders, [len(ordered)]))
    first = 1 if buckets > 2 and len(below) > 2 and np.isneginf(ordered[0]) else 0
    even = buckets - first
    ranks = below[first] + np.arange(1, even) * (below[-1] - below[first]) // even
    cuts = {int(cut) for cut in np.searchsorted(below, ranks, side="right") - 1} | {first}
    cuts.discard(0)
    while len(cuts) < buckets - 1:
        cut = _split_fullest(below, sorted(cuts))
        if cut is None:
            break
        cuts.add(cut)
    chosen = np.array(sorted(cuts), dtype=np.intp)
    return _between(ordered[below[chosen - 1]], ordered[below[chosen]])


def _split_fullest(below: IndexArray, cuts: list[int]) -> int | None:
    """Return a cut of the fullest bucket of several values; None if there is no such bucket."""
    edges = [0, *cuts, len(below) - 1]
    parts = [(start, end) for start, end in pairwise(edges) if end - start > 1]
    if not parts:
        return None
    start, end = max(parts, key=lambda part: below[part[1]] - below[part[0]])
    inner = below[start + 1 : end]
    return start + 1 + int(np.argmin(np.abs(2 * inner - below[start] - below[end])))


def write_buckets(target: BucketArray, column: FloatArray, thresholds: FloatArray) -> None:
    """Write the bucket of every value, in chunks of rows to limit temporary memory."""
    for start in range(0, len(column), _CHUNK_ROWS):
        rows = slice(start, start + _CHUNK_ROWS)
        target[rows] = find_buckets(column[rows], thresholds)


def find_buckets(column: FloatArray, thresholds: FloatArray) -> BucketArray:
    """Return the bucket of every value: the number of thresholds that are not above it."""
    indices = np.searchsorted(thresholds, column, side="right")
    indices[np.isnan(column)] = 0
    return indices.astype(np.uint8)


def _between(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return a threshold in (low, high] for each pair: the middle, if a double lies between."""
    middle = low / 2 + high / 2  # (low + high) / 2 could overflow
    result: FloatArray = np.where(middle > low, middle, high)
    return np.where(np.isneginf(low), low, result)
