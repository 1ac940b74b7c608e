"""SecDisc: sums of shared gradients by bucket, with the buckets known to their owner alone.

Reference: the paper's Section V.B.3, Algorithm 5, on SecPerm (`gates/permute.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privet.arithmetic.shares import Share
from privet.arrays import BucketArray, IndexArray
from privet.gates.permute import Permutation, permute
from privet.runtime.runtime import Runtime


def bucket_ends(n_samples: int, buckets: int) -> list[int]:
    """Return where each bucket ends among the sorted samples: N / B of them each, or one more.

    The paper takes N to be a multiple of B.
    """
    return [n_samples * (b + 1) // buckets for b in range(buckets)]


def sort_order(bucket: BucketArray) -> Permutation:
    """Return the permutation that sorts one feature: all that SecDisc needs of it."""
    return np.argsort(bucket, kind="stable")


def nearest_cuts(bucket: BucketArray, buckets: int) -> IndexArray:
    """Return, for each end of SecDisc's buckets, the owner's own bucket that ends nearest to it.

    SecDisc cuts the sorted samples at public positions, wherever equal values lie; a test cannot
    part equal values. So the owner of a test takes the border of its own buckets, between two
    values, that is nearest to the position. A constant feature has no border.
    """
    below = np.cumsum(np.bincount(bucket, minlength=buckets))
    borders = np.flatnonzero((below[:-1] > 0) & (below[:-1] < len(bucket)))
    ends = np.array(bucket_ends(len(bucket), buckets)[:-1])
    if not len(borders):
        return np.full(len(ends), buckets - 2, dtype=np.intp)
    nearest = np.argmin(np.abs(below[borders] - ends[:, None]), axis=1)
    cuts: IndexArray = borders[nearest].astype(np.intp)
    return cuts


def discretize(
    runtime: Runtime,
    vectors: Share,
    orders: Sequence[Permutation | None],
    owners: Sequence[int],
    buckets: int,
) -> Share:
    """Sum K shared vectors, (K, N), by the buckets of J features: (J, K, B).

    1. The owner of feature j permutes the vectors to the order of its values (SecPerm).
    2. Everybody adds up slices of N / B elements.

    All features and vectors go together. Reveals: nothing. Error: none.
    """
    with runtime.step("discretize"):
        shape = (len(owners), *vectors.shape)
        repeated = vectors.reshape(1, *vectors.shape).broadcast_to(shape)
        permuted = permute(runtime, repeated, orders, owners)
        return permuted.sum_slices(bucket_ends(vectors.shape[-1], buckets))
