"""The measurements for decisions 0001 (buckets) and 0003 (defaults).

PRIVET_DATA=... python benchmarks/choices.py buckets
PRIVET_DATA=... python benchmarks/choices.py defaults
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable
from itertools import product

import numpy as np
from sklearn.metrics import roc_auc_score, root_mean_squared_error

from privet import DataSet, Params, load_dataset
from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns, find_buckets, find_thresholds
from privet.boosting.reference import train_plaintext
from privet.data.partition import split_rows

Cutter = Callable[[FloatArray, int], FloatArray]
PAPER: dict[str, tuple[int, int]] = {  # tables and depth
    "california": (50, 5),
    "credit": (10, 4),
    "breast-cancer": (10, 3),
}


def quantiles(column: FloatArray, buckets: int) -> FloatArray:
    """Cut at the quantiles of the samples; ties leave some cuts unused."""
    values = np.unique(column)
    at = np.sort(column)[np.arange(1, buckets) * len(column) // buckets]
    cuts = np.unique(np.searchsorted(values, at))
    return _middles(values, cuts[cuts > 0])


def distinct_quantiles(column: FloatArray, buckets: int) -> FloatArray:
    """Cut at the quantiles of the distinct values, regardless of their counts."""
    values = np.unique(column)
    return _middles(values, np.unique(np.arange(1, buckets) * len(values) // buckets))


def halving(column: FloatArray, buckets: int) -> FloatArray:
    """Split greedily the bucket with the largest gain in the sum of log counts."""
    values, counts = np.unique(column, return_counts=True)
    below = np.concatenate(([0], np.cumsum(counts)))

    def best(start: int, end: int) -> list[tuple[float, int, int, int]]:
        inner = np.arange(start + 1, end)
        if not len(inner):
            return []
        left, right = below[inner] - below[start], below[end] - below[inner]
        gain = np.log(left) + np.log(right) - np.log(below[end] - below[start])
        cut = int(inner[np.argmax(gain)])
        return [(-float(gain.max()), cut, start, end)]

    heap = best(0, len(values))
    cuts: list[int] = []
    while heap and len(cuts) < buckets - 1:
        _, cut, start, end = heapq.heappop(heap)
        cuts.append(cut)
        for part in best(start, cut) + best(cut, end):
            heapq.heappush(heap, part)
    return _middles(values, np.array(sorted(cuts), dtype=np.intp))


def _middles(values: FloatArray, cuts: np.ndarray) -> FloatArray:
    cuts = cuts[cuts > 0]
    result: FloatArray = (values[cuts - 1] + values[cuts]) / 2
    return result


def quality(data: DataSet, params: Params, seed: int, cutter: Cutter = find_thresholds) -> float:
    """Return the RMSE or the AUC on the test rows of one split."""
    rows, test = split_rows(data.frame, 0.2, seed)
    assert rows.label is not None
    thresholds = np.full((len(rows.names), params.max_cut_count), np.inf)
    for j, column in enumerate(rows.columns):
        cuts = cutter(column, params.buckets)
        thresholds[j, : len(cuts)] = cuts
    pairs = zip(rows.columns, thresholds, strict=True)
    buckets = np.stack([find_buckets(column, cuts) for column, cuts in pairs])
    model = train_plaintext(
        [BucketedColumns("p", rows.names, buckets, thresholds)], rows.label, params
    )
    metric = root_mean_squared_error if params.task == "regression" else roc_auc_score
    return float(metric(test.label, model.predict(test.columns)))


def buckets(data: dict[str, DataSet]) -> None:
    """Print the metric of each way of cutting with the paper's parameters."""
    for cutter in (find_thresholds, quantiles, halving, distinct_quantiles):
        cells = []
        for name, (tables, depth) in PAPER.items():
            splits = range(20 if name == "breast-cancer" else 8)
            means = [
                np.mean(
                    [
                        quality(
                            data[name],
                            Params(
                                task=data[name].task, tables=tables, depth=depth, learning_rate=rate
                            ),
                            seed,
                            cutter,
                        )
                        for seed in splits
                    ]
                )
                for rate in (1.0, 0.3)
            ]
            cells.append(f"{means[0]:.4f} / {means[1]:.4f}")
        print(f"| {cutter.__name__} | {' | '.join(cells)} |", flush=True)


def defaults(data: dict[str, DataSet]) -> None:
    """Print the metric of table counts and learning rates at the default depth."""
    for tables, rate in product((50, 100), (0.1, 0.2, 0.3, 0.5, 1.0)):
        means = [
            np.mean(
                [
                    quality(d, Params(task=d.task, tables=tables, learning_rate=rate), seed)
                    for seed in range(4)
                ]
            )
            for d in data.values()
        ]
        print(f"| {tables} | {rate} | {' | '.join(f'{m:.4f}' for m in means)} |", flush=True)


if __name__ == "__main__":
    choices = {"buckets": buckets, "defaults": defaults}
    if len(sys.argv) != 2 or sys.argv[1] not in choices:
        sys.exit(__doc__)
    choices[sys.argv[1]]({name: load_dataset(name) for name in PAPER})
