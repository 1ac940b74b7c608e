"""The reference implementation: training in plain numpy, and the gain of each level.

It requires all columns and the label in one process; in a federation, no process has them.

Reference: the paper's Algorithm 1 inside its Algorithm 2, with the score of equations (5) and (6)
and the leaf values of equation (3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from privet.arrays import BoolArray, BucketArray, FloatArray, IndexArray
from privet.boosting.binning import BucketedColumns
from privet.boosting.model import Feature, Model
from privet.spec.params import Params
from privet.spec.sampling import decide_early_stop, sample_table

TableCallback = Callable[[int, float | None], None]
"""Called after each table with the number of trained tables and the training loss, if known."""


class ModelWithLosses(NamedTuple):
    """A model, and the losses on validation rows after each trained table."""

    model: Model
    losses: list[float]


def train_plaintext(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    params: Params,
    sample_weight: FloatArray | None = None,
    on_table: TableCallback | None = None,
    cut_counts: Sequence[int] | None = None,
    monotone: Sequence[int] = (),
) -> Model:
    """Train a model on all parties' columns in one place; see `train_plaintext_with_losses`."""
    return train_plaintext_with_losses(
        parties, label, params, sample_weight, on_table, cut_counts, monotone=monotone
    ).model


def train_plaintext_with_losses(
    parties: Sequence[BucketedColumns],
    label: FloatArray,
    params: Params,
    sample_weight: FloatArray | None = None,
    on_table: TableCallback | None = None,
    cut_counts: Sequence[int] | None = None,
    n_validation: int = 0,
    monotone: Sequence[int] = (),
    resume_from: Model | None = None,
) -> ModelWithLosses:
    """Train a model on the columns of all parties in one place.

    `sample_weight` are the training rows' weights, divided by their mean (`normalise_weights`).
    `cut_counts` is the number of candidate splits of each feature, by default B - 1. `monotone` is
    the constraint of each feature (`spec.plan`). The last `n_validation` rows are validation rows:
    with `patience`, their loss determines how many tables to keep. `resume_from` is a model of the
    same rows with fewer tables; the returned losses are those after the added tables.

    1. Set the scores of all rows to the base score.
    2. For each table: compute gradients and Hessians at the current scores; grow the table on the
       rows and features that are sampled for it; add its leaf values to the scores of all rows.
    """
    buckets = np.concatenate([party.buckets for party in parties])
    thresholds = np.concatenate([party.thresholds for party in parties])
    # The last bucket has no upper threshold: a level without a split sends all rows left.
    thresholds = np.pad(thresholds, ((0, 0), (0, 1)), constant_values=np.inf)
    objective = params.objective
    n_samples = len(label) - n_validation
    target = objective.make_targets(label)
    start = params.compute_initial_scores(label[:n_samples], sample_weight)

    counts = np.full(len(buckets), params.max_cut_count) if cut_counts is None else cut_counts
    counts = np.asarray(counts, dtype=np.intp)
    signs = np.array(monotone or [0] * len(buckets), dtype=np.intp)

    shape = (params.tables, params.depth)
    feature, bucket = np.empty(shape, dtype=np.intp), np.empty(shape, dtype=np.intp)
    leaf_values = np.empty((params.tables, objective.n_outputs, params.n_leaves))
    score = np.repeat(start[:, None], target.shape[1], axis=1)
    done = 0 if resume_from is None else resume_from.n_tables
    if resume_from is not None:
        feature[:done], bucket[:done] = resume_from.feature, resume_from.bucket
        leaf_values[:done] = resume_from.leaf_values
    for table in range(done):
        score += leaf_values[table][:, find_leaf_indices(buckets, feature[table], bucket[table])]
    losses: list[float] = []
    kept = params.tables
    for table in range(done, params.tables):
        rows, features = sample_table(params, n_samples, counts, table)
        g, h = objective.compute_gradients(
            score[:, :n_samples][:, rows], target[:, :n_samples][:, rows]
        )
        if sample_weight is not None:
            g, h = g * sample_weight[rows], h * sample_weight[rows]
        drawn = buckets[features, :n_samples][:, rows]
        splits, values = grow_table(
            drawn,
            round_for_exact_sums(g),
            round_for_exact_sums(h),
            params,
            counts[features],
            signs[features],
        )
        feature[table], bucket[table] = np.arange(len(buckets))[features][splits[0]], splits[1]
        feature[table, splits[1] == params.max_cut_count] = 0  # levels without a split
        leaf_values[table] = values
        score += values[:, find_leaf_indices(buckets, feature[table], bucket[table])]
        if on_table is not None:
            trained = score[:, :n_samples], target[:, :n_samples]
            on_table(table + 1, objective.compute_mean_loss(*trained, sample_weight))
        if n_validation:
            losses.append(objective.compute_mean_loss(score[:, n_samples:], target[:, n_samples:]))
        if params.patience is not None:
            n_best = decide_early_stop(losses, params.patience, params.tables)
            if n_best:
                kept = n_best
                break

    feature, bucket, leaf_values = feature[:kept], bucket[:kept], leaf_values[:kept]
    model = Model(
        task=params.task,
        features=tuple(Feature(name, party.owner) for party in parties for name in party.names),
        base_score=start,
        feature=feature,
        bucket=bucket,
        threshold=thresholds[feature, bucket],
        leaf_values=leaf_values,
    )
    return ModelWithLosses(model, losses)


def find_leaf_indices(buckets: BucketArray, features: IndexArray, cuts: IndexArray) -> IndexArray:
    """Return the leaf of each row in a table."""
    leaf = np.zeros(buckets.shape[1], dtype=np.intp)
    for feature, cut in zip(features, cuts, strict=True):
        leaf = 2 * leaf + (buckets[feature] > cut)
    return leaf


def grow_table(
    buckets: BucketArray,
    g: FloatArray,
    h: FloatArray,
    params: Params,
    cut_counts: Sequence[int] | IndexArray | None = None,
    monotone: IndexArray | None = None,
) -> tuple[tuple[IndexArray, IndexArray], FloatArray]:
    """Grow one table on gradients and Hessians (K, N).

    Return its splits (features, buckets) and its leaf values (K, 2^D).

    1. All samples are in node 0 of level 0.
    2. For each level: sum g and h by feature, node and bucket; choose the split of the best score;
       node k becomes 2k for the samples going left and 2k + 1 for the others. Only the samples
       going left are summed again: a right child is its parent less its left sibling.
    3. A leaf value is the Newton step of its samples, times the learning rate; or 0, if the sum of
       their Hessians is less than `min_child_weight`.
    4. Leaf values are put in the order of the monotone constraints, if there are any.
    """
    n_samples = g.shape[1]
    node = np.zeros(n_samples, dtype=np.intp)
    features = np.empty(params.depth, dtype=np.intp)
    cuts = np.empty(params.depth, dtype=np.intp)
    all_samples = np.ones(n_samples, dtype=np.bool_)
    sums = sum_by_bucket(buckets, all_samples, node, 1, g, h, params.buckets)
    for level in range(params.depth):
        features[level], cuts[level] = find_best_split(sums, params, cut_counts, monotone)
        goes_left = buckets[features[level]] <= cuts[level]
        if level + 1 < params.depth:
            left = sum_by_bucket(buckets, goes_left, node, 1 << level, g, h, params.buckets)
            children = np.stack((left, sums - left), axis=4)
            sums = children.reshape(*children.shape[:3], 2 << level, params.buckets)
        node = 2 * node + ~goes_left

    total_g, total_h = (
        np.stack([np.bincount(node, weights=row, minlength=params.n_leaves) for row in rows])
        for rows in (g, h)
    )
    counted = total_h >= params.min_child_weight
    values: FloatArray = -params.learning_rate * total_g / (total_h + params.l2) * counted
    if monotone is not None:
        values = order_leaf_values(
            values, np.where(cuts == params.max_cut_count, 0, monotone[features])
        )
    return (features, cuts), values


def order_leaf_values(values: FloatArray, signs: Sequence[int] | IndexArray) -> FloatArray:
    """Return leaf values, (K, 2^D), in the order that each level's constraint requires.

    For each level: if the values of two leaves that differ only in its outcome are in the wrong
    order, replace both by their mean. No later level undoes this (docs/decisions/0034-monotone.md).
    """
    shape = values.shape
    for level, sign in enumerate(signs):
        low, high = np.moveaxis(values.reshape(len(values), 1 << level, 2, -1), 2, 0)
        wrong = (high - low) * sign < 0
        mean = (low + high) / 2
        values = np.stack([np.where(wrong, mean, side) for side in (low, high)], axis=2)
    return values.reshape(shape)


def sum_by_bucket(
    buckets: BucketArray,
    chosen: BoolArray,
    node: IndexArray,
    n_nodes: int,
    g: FloatArray,
    h: FloatArray,
    n_buckets: int,
) -> FloatArray:
    """Sum g and h of the chosen samples: (2, n_features, outputs, n_nodes, n_buckets)."""
    rows = np.flatnonzero(chosen)
    offset = node[rows] * n_buckets
    gradients = np.stack((g[:, rows], h[:, rows]))
    outputs, size = len(g), n_nodes * n_buckets
    sums = np.empty((2, len(buckets), outputs, size))
    for j, column in enumerate(buckets):
        cell = offset + column[rows]
        for kind, output in np.ndindex(2, outputs):
            weights = gradients[kind, output]
            sums[kind, j, output] = np.bincount(cell, weights=weights, minlength=size)
    return sums.reshape(2, len(buckets), outputs, n_nodes, n_buckets)


def find_best_split(
    sums: FloatArray,
    params: Params,
    cut_counts: Sequence[int] | IndexArray | None = None,
    monotone: IndexArray | None = None,
) -> tuple[int, int]:
    """Return the feature and the bucket of the least score, the lowest ones among equals.

    If its gain is less than `min_gain`, return the first feature and its last bucket: all rows go
    left.
    """
    scores = score_candidates(sums, params, monotone)
    if cut_counts is not None:
        scores[np.arange(scores.shape[1]) >= np.array(cut_counts)[:, None]] = np.inf
    if params.min_gain and score_without_split(sums, params) < scores.min():
        return 0, params.max_cut_count
    feature, bucket = divmod(int(np.argmin(scores)), scores.shape[1])
    return feature, bucket


def score_without_split(sums: FloatArray, params: Params) -> float:
    """Return the score of a level without a split, less `min_gain`."""
    nodes = sums[:, 0].sum(axis=3)
    return float(compute_impurity(nodes, params).sum()) - params.min_gain


def score_candidates(
    sums: FloatArray, params: Params, monotone: IndexArray | None = None
) -> FloatArray:
    """Return the score of every feature and cut: (n_features, n_buckets - 1).

    A side whose sum of Hessians is less than `min_child_weight` adds nothing. A node whose sides'
    Newton steps are in the wrong order adds the impurity of the unsplit node.
    """
    left = np.cumsum(sums, axis=4)[..., :-1]
    total = sums.sum(axis=4, keepdims=True)
    right = total - left
    both = compute_impurity(left, params) + compute_impurity(right, params)
    if monotone is not None and monotone.any():
        # The right step less the left one, -G/y each, times both y.
        (left_g, left_h), (right_g, right_h) = left, right
        rise = left_g * (right_h + params.l2) - right_g * (left_h + params.l2)
        wrong = rise * monotone[:, None, None, None] < 0
        both = np.where(wrong, compute_impurity(total, params), both)
    result: FloatArray = both.sum(axis=(1, 2))
    return result


def compute_impurity(sums: FloatArray, params: Params) -> FloatArray:
    """Return the terms of a score for samples with these sums of g and h, (2, ...)."""
    g, h = sums
    result: FloatArray = -0.5 * g**2 / (h + params.l2) * (h >= params.min_child_weight)
    return result


def round_for_exact_sums(values: FloatArray) -> FloatArray:
    """Round values to a grid so coarse that float64 sums of any of them are exact.

    Then no sum depends on the order of the samples, a right child is *exactly* its parent less its
    left sibling, and candidates that divide the samples alike tie exactly. The rounding is at most
    2^-53 * 2N * max|value|: for a million samples, one part in 2^32 of the largest.
    """
    bound = float(np.max(np.abs(values), initial=0.0)) * values.shape[-1]
    step = 2.0 ** (np.frexp(bound)[1] - 52)
    if bound == 0.0 or step == 0.0:  # so small that the doubles themselves are the grid
        return values
    result: FloatArray = np.rint(values / step) * step
    return result


def compute_level_gains(
    model: Model,
    columns: FloatArray,
    label: FloatArray,
    params: Params,
    sample_weight: FloatArray | None = None,
) -> FloatArray:
    """Return the decrease of the loss by each level, to second order: (tables, depth).

    It is the decrease before the learning rate, on the rows that are sampled for the table. The
    scores are computed as in training, with the splits of the model.
    """
    objective = params.objective
    target = objective.make_targets(label)
    score = np.repeat(model.base_score[:, None], len(label), axis=1)
    leaves = model.find_leaf_indices(columns)
    gains = np.empty(model.feature.shape)
    for table, leaf in enumerate(leaves):
        rows = sample_table(params, len(label), (), table).rows
        g, h = objective.compute_gradients(score[:, rows], target[:, rows])
        if sample_weight is not None:
            g, h = g * sample_weight[rows], h * sample_weight[rows]
        # Level 0 has one node; the nodes after the last level are the leaves.
        levels = [leaf[rows] >> (model.depth - level) for level in range(model.depth + 1)]
        impurities = [_sum_impurities(node, g, h, params) for node in levels]
        gains[table] = -np.diff(impurities)
        score += model.leaf_values[table][:, leaf]
    return gains


def _sum_impurities(node: IndexArray, g: FloatArray, h: FloatArray, params: Params) -> float:
    """Return the sum of the impurities of these nodes."""
    sums: FloatArray = np.array(
        [[np.bincount(node, weights=row) for row in rows] for rows in (g, h)], dtype=np.float64
    )
    return float(compute_impurity(sums, params).sum())
