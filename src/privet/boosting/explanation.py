"""Feature attributions (Shapley values), in plaintext and as a secure program.

A table is a function of the outcomes of its tests. Its players are the features that it tests: two
tests of one feature are one player, whose outcomes have a joint distribution. A coalition's value
is the table's mean where the features outside fall, each independently of all others, as the
training rows fall. Contributions add up to the score less the *base*: the score where all fall so.

What is needed of the training rows is the share of them that passes each test, which its owner
knows: tests of one feature are nested, so their joint distribution follows from it.
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

_BLOCK = 1 << 20  # (table, sample) pairs whose leaves are found at a time


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Scores taken apart: each is the base and all contributions added up."""

    contributions: FloatArray
    """Of every feature, or every participant: (K, features, n_samples)."""
    base: FloatArray
    """(K,)."""


def compute_left_fractions(
    feature: IndexArray, bucket: IndexArray, buckets: Mapping[int, BucketArray]
) -> FloatArray:
    """Return the share of training rows that pass each test, (tables, depth).

    `buckets` are those of all training rows in each feature that we hold; NaN for other tests.
    """
    result = np.full(feature.shape, np.nan)
    for table, level in np.argwhere(np.isin(feature, list(buckets))):
        rows = buckets[int(feature[table, level])]
        result[table, level] = np.count_nonzero(rows <= bucket[table, level]) / len(rows)
    return result


def compute_right_fractions(feature: IndexArray, pass_share: FloatArray) -> FloatArray:
    """Return how probable it is that tests fail, given the outcomes of earlier levels.

    (tables, 2^D - 1): those of level m, for 2^m combinations of outcomes before, from 2^m - 1 on.
    Only earlier tests of the same feature matter. A test fails where the feature reaches its
    threshold: those that failed before bound what may be from below, those that passed from above.
    NaN where the share is; 0 after outcomes that cannot be together.
    """
    tables, depth = feature.shape
    fail = 1 - pass_share
    found = []
    for level in range(depth):
        outcomes = np.arange(1 << level)
        most, least = np.ones((tables, 1 << level)), np.zeros((tables, 1 << level))
        for before in range(level):
            same = (feature[:, before] == feature[:, level])[:, None]
            failed = ((outcomes >> (level - 1 - before)) & 1).astype(np.bool_)
            earlier = fail[:, [before]]
            most = np.where(same & failed, np.minimum(most, earlier), most)
            least = np.where(same & ~failed, np.maximum(least, earlier), least)
        possible = most > least
        inside = np.minimum(np.maximum(fail[:, [level]], least), most) - least
        chance = inside / np.where(possible, most - least, 1)
        found.append(np.where(possible, chance, 0 * fail[:, [level]]))
    return np.concatenate(found, axis=1)


def compute_partial_means(leaf_values: FloatArray, right_fractions: FloatArray) -> FloatArray:
    """Return the partial means, (tables, K, 3^D), of leaf values, (tables, K, 2^D).

    From the last level to the first, beside what is known of a level stands the mean over it.
    """
    tables, outputs, leaves = leaf_values.shape
    means = leaf_values.reshape(tables, outputs, leaves, 1)
    for level in reversed(range(leaves.bit_length() - 1)):
        earlier = 1 << level
        sides = means.reshape(tables, outputs, earlier, 2, -1)
        passed, failed = sides[:, :, :, 0], sides[:, :, :, 1]
        chance = right_fractions[:, earlier - 1 : 2 * earlier - 1].reshape(tables, 1, earlier, 1)
        mean = passed + chance * (failed - passed)
        means = np.stack([passed, failed, mean], axis=3).reshape(tables, outputs, earlier, -1)
    return means.reshape(tables, outputs, -1)


def explain_scores(model: Model, columns: FloatArray) -> Explanation:
    """Return what each feature of a model contributes to the scores of samples, in the clear."""
    if model.left_fraction is None:
        raise ModelError(
            "the model does not say which share of its training rows passes each test: train it "
            "again with this version"
        )
    chances = compute_right_fractions(model.feature, model.left_fraction)
    means = compute_partial_means(model.leaf_values, chances)
    tables = [
        compute_shapley_of_reals(own, tests)
        for own, tests in zip(means, model.feature, strict=True)
    ]
    n_samples = columns.shape[1]
    found = np.zeros((means.shape[1], len(model.features), n_samples))
    step = max(1, _BLOCK // model.n_tables)
    for start in range(0, n_samples, step):
        block = slice(start, start + step)
        leaves = model.find_leaf_indices(columns[:, block])
        for reasons, tests, leaf in zip(tables, model.feature, leaves, strict=True):
            for level, feature in enumerate(tests):
                found[:, feature, block] += reasons[:, level, leaf]
    return Explanation(found, model.base_score + means[:, :, -1].sum(axis=0))


def derive_explanation(
    runtime: Runtime,
    protocol_type: type[SecureProtocol],
    plan: Plan,
    n_tables: int,
    part: ModelPart | None,
    buckets: Mapping[int, BucketArray],
) -> ModelPart | None:
    """Return our part of a model with what explains its tables, and None to the dealer.

    1. Of each of its tests, an owner knows how probable it is that a training row fails it, given
       the outcomes of earlier levels. `buckets` are those of the rows in our own features.
    2. From these and the leaf values, on shares, the suite derives what features contribute.

    Reveals: nothing.
    """
    leaves = plan.params.n_leaves
    if part is None:
        values = Share.unknown((n_tables, plan.objective.n_outputs, leaves), Z32)
        features = own = None
    else:
        values, features = Share(part.leaf_shares, Z32), part.feature
        pass_share = compute_left_fractions(features, part.bucket, buckets)
        chances = np.nan_to_num(compute_right_fractions(features, pass_share))
        own = np.rint(chances * (1 << RIGHT_FRACTION_BITS)).astype(np.uint32)
    with runtime.step("reasons"):
        shared = share_trivially(runtime, own, (n_tables, leaves - 1), Z32)
        found = protocol_type.derive_contributions(runtime, values, shared, features)
    if part is None:
        return None
    reasons = PartExplanation(pass_share, found.contributions.part, found.means.part)
    return replace(part, explanation=reasons)
