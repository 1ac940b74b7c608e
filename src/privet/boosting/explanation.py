"""Feature attributions (Shapley values), in plaintext and as a secure program.

A table is a function of the outcomes of its splits. Its players are its features: two splits of
one feature are one player, and their outcomes have a joint distribution. A coalition's value is the
table's mean if the features outside the coalition are drawn independently of each other from the
distribution of the training rows. Contributions add up to the score less the *base*: the mean score
if all features are drawn in this way.

Of the training rows, only the fraction that goes left at each split is needed, which the feature's
owner knows: splits of one feature are nested, so these fractions determine their joint
distribution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from privet.arithmetic.rings import Z32
from privet.arithmetic.shapley import compute_shapley_of_reals
from privet.arithmetic.shares import Share
from privet.arrays import BucketArray, FloatArray, IndexArray
from privet.boosting.model import Model
from privet.boosting.model_part import ModelPart, PartExplanation
from privet.errors import ModelError
from privet.gates.masked.routing import share_trivially
from privet.protocols.protocol import RIGHT_FRACTION_BITS, SecureProtocol
from privet.runtime.runtime import Runtime
from privet.spec.plan import Plan

_BLOCK = 1 << 20  # (table, sample) pairs in a block of rows


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """The decomposition of scores: each score is the base plus all of its contributions."""

    contributions: FloatArray
    """The contribution of each feature, or each participant: (K, features, n_samples)."""
    base: FloatArray
    """The base of each output: (K,)."""


def compute_left_fractions(
    feature: IndexArray, bucket: IndexArray, buckets: Mapping[int, BucketArray]
) -> FloatArray:
    """Return the fraction of training rows going left at each split, (tables, depth).

    `buckets` are those of all training rows in each local feature; the fraction is NaN for the
    splits on other features.
    """
    result = np.full(feature.shape, np.nan)
    for table, level in np.argwhere(np.isin(feature, list(buckets))):
        rows = buckets[int(feature[table, level])]
        result[table, level] = np.count_nonzero(rows <= bucket[table, level]) / len(rows)
    return result


def compute_right_fractions(feature: IndexArray, left_fraction: FloatArray) -> FloatArray:
    """Return the fraction of rows going right at each split, given the outcomes of earlier levels.

    The shape is (tables, 2^D - 1): level m has one fraction for each of the 2^m combinations of
    earlier outcomes, from index 2^m - 1 on. Only earlier splits on the same feature matter. A row
    goes right if its feature reaches the threshold: earlier splits with outcome right bound the
    feature from below, those with outcome left from above. The fraction is NaN if `left_fraction`
    is; it is 0 after a combination of outcomes that is impossible.
    """
    tables, depth = feature.shape
    right = 1 - left_fraction
    result = []
    for level in range(depth):
        outcomes = np.arange(1 << level)
        most, least = np.ones((tables, 1 << level)), np.zeros((tables, 1 << level))
        for earlier in range(level):
            same = (feature[:, earlier] == feature[:, level])[:, None]
            went_right = ((outcomes >> (level - 1 - earlier)) & 1).astype(np.bool_)
            earlier_right = right[:, [earlier]]
            most = np.where(same & went_right, np.minimum(most, earlier_right), most)
            least = np.where(same & ~went_right, np.maximum(least, earlier_right), least)
        possible = most > least
        inside = np.minimum(np.maximum(right[:, [level]], least), most) - least
        fraction = inside / np.where(possible, most - least, 1)
        result.append(np.where(possible, fraction, 0 * right[:, [level]]))
    return np.concatenate(result, axis=1)


def compute_partial_means(leaf_values: FloatArray, right_fractions: FloatArray) -> FloatArray:
    """Return the partial means, (tables, K, 3^D), of leaf values, (tables, K, 2^D).

    Each level has three entries: left, right, and the mean over both. They are computed from the
    last level to the first.
    """
    tables, outputs, leaves = leaf_values.shape
    means = leaf_values.reshape(tables, outputs, leaves, 1)
    for level in reversed(range(leaves.bit_length() - 1)):
        earlier = 1 << level
        sides = means.reshape(tables, outputs, earlier, 2, -1)
        left, right = sides[:, :, :, 0], sides[:, :, :, 1]
        fraction = right_fractions[:, earlier - 1 : 2 * earlier - 1].reshape(tables, 1, earlier, 1)
        mean = left + fraction * (right - left)
        means = np.stack([left, right, mean], axis=3).reshape(tables, outputs, earlier, -1)
    return means.reshape(tables, outputs, -1)


def explain_scores(model: Model, columns: FloatArray) -> Explanation:
    """Return the contribution of each feature of a model to the scores of samples, in plaintext."""
    if model.left_fraction is None:
        raise ModelError(
            "the model does not say which share of its training rows passes each test: train it "
            "again with this version"
        )
    right_fractions = compute_right_fractions(model.feature, model.left_fraction)
    means = compute_partial_means(model.leaf_values, right_fractions)
    tables = [
        compute_shapley_of_reals(table_means, features)
        for table_means, features in zip(means, model.feature, strict=True)
    ]
    n_samples = columns.shape[1]
    contributions = np.zeros((means.shape[1], len(model.features), n_samples))
    step = max(1, _BLOCK // model.n_tables)
    for start in range(0, n_samples, step):
        block = slice(start, start + step)
        leaves = model.find_leaf_indices(columns[:, block])
        for shapley, features, leaf in zip(tables, model.feature, leaves, strict=True):
            for level, feature in enumerate(features):
                contributions[:, feature, block] += shapley[:, level, leaf]
    return Explanation(contributions, model.base_score + means[:, :, -1].sum(axis=0))


def derive_explanation(
    runtime: Runtime,
    protocol_type: type[SecureProtocol],
    plan: Plan,
    n_tables: int,
    part: ModelPart | None,
    buckets: Mapping[int, BucketArray],
) -> ModelPart | None:
    """Return the local part of a model with its `PartExplanation`; None to the dealer.

    1. For each split on its own features, a participant computes the fraction of training rows
       going right, given the outcomes of earlier levels. `buckets` are those of the training rows
       in the local features.
    2. From these fractions and [leaf values], the suite derives [contributions] of the features.

    Reveals: nothing.
    """
    leaves = plan.params.n_leaves
    if part is None:
        values = Share.unknown((n_tables, plan.objective.n_outputs, leaves), Z32)
        features = right_fractions = None
    else:
        values, features = Share(part.leaf_shares, Z32), part.feature
        left_fraction = compute_left_fractions(features, part.bucket, buckets)
        fractions = np.nan_to_num(compute_right_fractions(features, left_fraction))
        right_fractions = np.rint(fractions * (1 << RIGHT_FRACTION_BITS)).astype(np.uint32)
    with runtime.step("reasons"):
        shared = share_trivially(runtime, right_fractions, (n_tables, leaves - 1), Z32)
        derived = protocol_type.derive_contributions(runtime, values, shared, features)
    if part is None:
        return None
    explanation = PartExplanation(left_fraction, derived.contributions.part, derived.means.part)
    return replace(part, explanation=explanation)
