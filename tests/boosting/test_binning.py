from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privet import DataError
from privet.arrays import FloatArray
from privet.boosting.binning import bucket_columns, find_buckets, find_thresholds

finite = st.floats(allow_nan=False, allow_infinity=False)
# Few distinct values make ties; NaN is a missing value.
cells = st.one_of(finite, st.sampled_from([0.0, -0.0, 1.0, 2.0, np.nan, 5e-324, 1e308, -1e308]))
columns = arrays(np.float64, st.integers(0, 60), elements=cells)
bucket_counts = st.integers(2, 12) | st.just(256)


def choose_by_distinct_values(column: FloatArray, buckets: int) -> FloatArray:
    """Choose thresholds from the distinct values and their counts, as in the specification."""
    values, counts = np.unique(column, return_counts=True)
    if len(values) and np.isnan(values[-1]):
        values = np.concatenate(([-np.inf], values[:-1]))
        counts = np.concatenate((counts[-1:], counts[:-1]))
    below = np.concatenate(([0], np.cumsum(counts)))
    first = 1 if buckets > 2 and len(values) > 1 and np.isneginf(values[0]) else 0
    even = buckets - first
    ranks = below[first] + np.arange(1, even) * (below[-1] - below[first]) // even
    cuts = {int(cut) for cut in np.searchsorted(below, ranks, side="right") - 1} | {first}
    cuts.discard(0)
    while len(cuts) < buckets - 1:
        edges = [0, *sorted(cuts), len(below) - 1]
        parts = [part for part in pairwise(edges) if part[1] - part[0] > 1]
        if not parts:
            break
        start, end = max(parts, key=lambda part: below[part[1]] - below[part[0]])
        inner = below[start + 1 : end]
        cuts.add(start + 1 + int(np.argmin(np.abs(2 * inner - below[start] - below[end]))))
    low, high = (values[np.array(sorted(cuts), dtype=int) - k] for k in (1, 0))
    middle = low / 2 + high / 2
    between: FloatArray = np.where(middle > low, middle, high)
    return np.where(np.isneginf(low), low, between)


@given(columns, bucket_counts)
def test_thresholds_match_the_specification(column: FloatArray, buckets: int) -> None:
    found = find_thresholds(column, buckets)
    np.testing.assert_array_equal(found, choose_by_distinct_values(column, buckets))


@given(columns, bucket_counts)
def test_bucket_invariants(column: FloatArray, buckets: int) -> None:
    thresholds = find_thresholds(column, buckets)
    bucket = find_buckets(column, thresholds)
    present = np.unique(column)  # NaN last, once

    assert len(thresholds) <= buckets - 1
    assert (np.diff(thresholds) > 0).all()
    # No bucket is empty, so every candidate except the padding splits the samples.
    assert set(bucket) == set(range(len(thresholds) + 1)) or not len(column)
    # A value with `x < t_b`, or a missing one, lies in bucket b or below.
    for b, threshold in enumerate(thresholds):
        assert (((column < threshold) | np.isnan(column)) == (bucket <= b)).all()
    # Equal values share a bucket, larger values have no lower bucket, missing values have 0.
    for value in present:
        same = np.isnan(column) if np.isnan(value) else column == value
        assert len(set(bucket[same])) == 1
    finite_bucket = bucket[~np.isnan(column)][np.argsort(column[~np.isnan(column)])]
    assert (np.diff(finite_bucket.astype(int)) >= 0).all()
    assert (bucket[np.isnan(column)] == 0).all()
    # The bucket count is as large as possible.
    assert len(thresholds) == max(0, min(len(present), buckets) - 1)


@given(columns, bucket_counts.filter(lambda b: b > 2))
def test_missing_values_have_a_separate_bucket(column: FloatArray, buckets: int) -> None:
    column = np.concatenate((column, [np.nan, 1.0]))
    assert find_thresholds(column, buckets)[0] == -np.inf
    with_two = find_thresholds(column, 2)
    assert len(with_two) == 1


@pytest.mark.parametrize("n_samples", [64, 1000, 1001])
@pytest.mark.parametrize("buckets", [2, 3, 10, 32])
def test_distinct_values_fill_buckets_evenly(n_samples: int, buckets: int) -> None:
    column = np.random.default_rng(0).permutation(n_samples).astype(float)
    sizes = np.bincount(find_buckets(column, find_thresholds(column, buckets)))
    assert len(sizes) == buckets
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("n_missing", [1, 100, 500])
def test_present_values_fill_buckets_evenly(n_missing: int) -> None:
    column = np.concatenate((np.full(n_missing, np.nan), np.arange(700.0)))
    sizes = np.bincount(find_buckets(column, find_thresholds(column, 8)))
    assert sizes.tolist() == [n_missing] + [100] * 7


def test_frequent_value_fills_only_one_bucket() -> None:
    column = np.concatenate((np.zeros(900), np.arange(1.0, 101.0)))
    sizes = np.bincount(find_buckets(column, find_thresholds(column, 5)))
    assert sizes.tolist() == [900, 25, 25, 25, 25]


def test_rare_value_has_a_bucket() -> None:
    column = np.zeros(10_000)
    column[17] = 1.0
    assert find_thresholds(column, 32).tolist() == [0.5]


def test_neighbouring_doubles_are_separated() -> None:
    low = 1.0
    high = np.nextafter(low, 2.0)
    (threshold,) = find_thresholds(np.array([low, high]), 4)
    assert low < threshold <= high


def test_bucket_columns() -> None:
    columns = np.array([[1.0, 2.0, 3.0], [7.0, 7.0, 7.0], [np.nan, 5.0, np.nan]])
    bucketed = bucket_columns("bank", ["a", "b", "c"], columns, 4)
    assert bucketed.buckets.tolist() == [[0, 1, 2], [0, 0, 0], [0, 1, 0]]
    assert bucketed.thresholds.tolist() == [
        [1.5, 2.5, np.inf],
        [np.inf, np.inf, np.inf],
        [-np.inf, np.inf, np.inf],
    ]
    assert bucketed.n_samples == 3


def test_256_buckets_fit_their_type() -> None:
    column = np.arange(10_000.0)
    bucket = bucket_columns("bank", ["a"], column[None], 256).buckets[0]
    assert bucket.min() == 0
    assert bucket.max() == 255


def test_infinite_value_is_rejected() -> None:
    with pytest.raises(DataError, match="bank: column 'b', row 2 is infinite"):
        bucket_columns("bank", ["a", "b"], np.array([[1.0, 2.0], [1.0, -np.inf]]), 4)


def test_name_count_must_match_columns() -> None:
    with pytest.raises(DataError, match="bank: 1 column names for 2 columns"):
        bucket_columns("bank", ["a"], np.ones((2, 3)), 4)
