"""Sampling of rows and columns, validation rows, early stopping and sample weights.

All roles, including the dealer, draw the same rows and columns from the public hyper-parameter
`seed`. Therefore no participant can choose them, and no message is needed.

Weights are relative: they are divided by their mean, so that the total weight equals the sample
count. No sum of gradients or Hessians is then larger than without weights, and l2 has the same
meaning. On shares weights are rounded to 2^-20, and more coarsely in a regression with many samples
(to 2^-13 with a million).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from privet.arithmetic.fixed_point import round_scaled
from privet.arithmetic.prg import SEED_BYTES, Place, Prg
from privet.arrays import FloatArray, IndexArray, IndexSelection
from privet.errors import DataError, ParameterError
from privet.objectives.base import Objective
from privet.spec.params import Params

SAMPLE_WEIGHT_BITS = 20
"""Fraction bits of weights on shares."""
MAX_SAMPLE_WEIGHT = 1 << 12
"""In multiples of the mean: products with a weight have no bits for more."""

ClassWeight: TypeAlias = Literal["balanced"] | Mapping[str, float]
"""The same total weight for every class; or weights by class name, 1 for all other classes."""


def check_weights(sample_weight: FloatArray) -> None:
    """Raise DataError if a weight is invalid or if all weights are zero."""
    good = np.isfinite(sample_weight) & (sample_weight >= 0)
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise DataError(
            f"the weight of row {row + 1} is {sample_weight[row]:g}; weights are 0 or more, and "
            f"finite ({np.count_nonzero(~good)} of {len(sample_weight)} are not)"
        )
    if not sample_weight.any():
        raise DataError(
            f"all {len(sample_weight)} weights are zero: there is nothing to learn from"
        )


@dataclass(frozen=True)
class WeightMean:
    """The mean of all weights, by which the weights of any rows can be divided."""

    max_weight: float
    relative_mean: float
    """The mean divided by the largest weight: a plain sum of weights could overflow."""

    @classmethod
    def from_weights(cls, sample_weight: FloatArray) -> WeightMean:
        """Return the mean of weights; raise DataError if they are not usable."""
        check_weights(sample_weight)
        largest = float(sample_weight.max())
        mean = float(np.mean(sample_weight / largest))
        if 1.0 / mean > MAX_SAMPLE_WEIGHT:
            row = int(np.argmax(sample_weight))
            raise DataError(
                f"the weight of row {row + 1} is {1.0 / mean:,.0f} times the mean, and sums are "
                f"right up to {MAX_SAMPLE_WEIGHT:,} times: bring weights closer together"
            )
        return cls(largest, mean)

    def normalise(self, sample_weight: FloatArray) -> FloatArray:
        """Return weights in multiples of the mean."""
        normalised: FloatArray = sample_weight / self.max_weight / self.relative_mean
        return normalised


@dataclass(frozen=True)
class WeightNormaliser:
    """Normalises the weights of some rows by the mean of all weights and by class weights."""

    mean: WeightMean
    class_weights: tuple[float, ...] = ()
    """The factor on the weights of each class, if class weights are set."""

    def apply(self, sample_weight: FloatArray | None, label: FloatArray) -> FloatArray:
        """Return normalised weights of rows from their sample weights, if any, and labels."""
        if self.class_weights:
            by_class: FloatArray = np.array(self.class_weights)[label.astype(np.intp)]
            sample_weight = by_class if sample_weight is None else by_class * sample_weight
        assert sample_weight is not None
        return self.mean.normalise(sample_weight)


def normalise_weights(sample_weight: FloatArray) -> FloatArray:
    """Return weights in multiples of the mean; raise DataError if they are not usable."""
    return WeightMean.from_weights(sample_weight).normalise(sample_weight)


def compute_class_sample_weights(
    label: FloatArray, classes: Sequence[str], class_weight: ClassWeight
) -> FloatArray:
    """Return the class weight of every sample; labels are class numbers."""
    by_class = compute_class_weights(label, classes, class_weight)
    by_sample: FloatArray = by_class[label.astype(np.intp)]
    return by_sample


def compute_class_weights(
    label: FloatArray, classes: Sequence[str], class_weight: ClassWeight
) -> FloatArray:
    """Return the weight of each class; labels are class numbers."""
    if class_weight == "balanced":
        counts = np.bincount(label.astype(np.intp), minlength=len(classes))
        balanced: FloatArray = len(label) / (len(classes) * np.maximum(counts, 1))
        return balanced
    for name in class_weight:
        if name not in classes:
            raise DataError(
                f"class_weight: the label has no class {name!r}; it has "
                f"{', '.join(map(repr, classes))}"
            )
    return np.array([class_weight.get(name, 1.0) for name in classes], dtype=np.float64)


def check_and_normalise_weights(
    sample_weight: FloatArray, label: FloatArray, objective: Objective
) -> FloatArray:
    """Return weights in multiples of the mean; raise DataError if they are not usable.

    The label must also be valid without the rows of weight 0.
    """
    normalised = normalise_weights(sample_weight)
    try:
        objective.check_label(label[normalised > 0])
    except DataError as error:
        raise DataError(f"without rows that have the weight 0, {error}") from None
    return normalised


_MIN_SAMPLED_ROWS = 2
"""The fewest rows of any training run."""


class TableSample(NamedTuple):
    """The rows and features that one table is trained on. Scores of all rows are updated.

    Both are indices in rising order, or a slice if nothing is left out.
    """

    rows: IndexSelection
    features: IndexSelection


def sample_table(
    params: Params, n_samples: int, cut_counts: Sequence[int] | IndexArray, table: int
) -> TableSample:
    """Return the rows and features of a table from the public cut counts of the features."""
    return TableSample(
        _sample_rows(params, n_samples, table), sample_features(params, cut_counts, table)
    )


def _sample_rows(params: Params, n_samples: int, table: int) -> IndexSelection:
    if params.subsample == 1:
        return slice(n_samples)
    order = _make_public_coin(params).permutation(Place("rows", (table,), 0), n_samples)
    return np.sort(order[: count_sampled_rows(params, n_samples)])


def sample_features(
    params: Params, cut_counts: Sequence[int] | IndexArray, table: int
) -> IndexSelection:
    """Return the features that a table can split on.

    A feature without a cut is never drawn.
    """
    if params.colsample == 1:
        return slice(len(cut_counts))
    splittable = np.flatnonzero(cut_counts)
    order = _make_public_coin(params).permutation(Place("features", (table,), 0), len(splittable))
    return splittable[
        np.sort(order[: _compute_sample_size(params.colsample, len(splittable), min_size=1)])
    ]


def count_sampled_rows(params: Params, n_samples: int) -> int:
    """Return the number of rows that every table is trained on."""
    return _compute_sample_size(params.subsample, n_samples, min_size=_MIN_SAMPLED_ROWS)


def _compute_sample_size(fraction: float, total: int, min_size: int) -> int:
    return min(total, max(min_size, round(Fraction(fraction) * total)))


def _make_public_coin(params: Params) -> Prg:
    seed = hashlib.blake2b(
        str(params.seed).encode(), digest_size=SEED_BYTES, person=b"privet draws"
    )
    return Prg(seed.digest())


MAX_LABEL_DISTANCE = 8
"""The largest distance of a validation label from the initial score, in multiples of the largest
such distance of a training label. Protocols compute with numbers of that size."""


def count_validation_rows(n_rows: int, params: Params) -> int:
    """Return the number of validation rows; raise DataError if too few rows are left."""
    if not params.validation:
        return 0
    count = round_scaled(Fraction(params.validation) * n_rows)
    if count < 1 or n_rows - count < 2:
        raise DataError(
            f"validation: {params.validation:g} of {n_rows} rows would leave {n_rows - count} to "
            f"train on and {count} to validate with; at least 2 and 1 are needed"
        )
    return count


def order_rows(n_rows: int, params: Params) -> IndexArray:
    """Return all row positions: training rows, then validation rows, each in input order."""
    count = count_validation_rows(n_rows, params)
    seed = hashlib.sha256(f"validation rows, seed {params.seed}".encode()).digest()
    drawn = Prg(seed).permutation(Place("validation rows", (), 0), n_rows)
    chosen = np.zeros(n_rows, dtype=np.bool_)
    chosen[drawn[:count]] = True
    return np.concatenate([np.flatnonzero(~chosen), np.flatnonzero(chosen)])


def check_patience(params: Params, n_validation: int) -> None:
    """Raise ParameterError if `patience` is set without validation rows."""
    if params.patience is not None and not n_validation:
        raise ParameterError(
            f"patience: {params.patience} tables without a smaller loss on validation rows, and "
            "there are none: set validation, too, or leave patience out"
        )


def check_validation_label(params: Params, label: FloatArray, n_validation: int) -> None:
    """Raise DataError unless the label suits training on its first rows and validation on the rest.

    The last `n_validation` rows are the validation rows.
    """
    if not n_validation:
        return
    training, rest = label[:-n_validation], label[-n_validation:]
    objective = params.objective
    try:
        objective.check_label_values(training)
    except DataError as error:
        raise DataError(
            f"without the {n_validation} validation rows, {error}; use another seed, or set fewer "
            "rows aside (validation)"
        ) from None
    if objective.is_classification:
        if (rest == rest[0]).all():
            raise DataError(
                f"all {n_validation} validation rows are of one class: use another seed, or set "
                "more rows aside (validation)"
            )
        return
    start = float(params.compute_initial_scores(training)[0])
    most = MAX_LABEL_DISTANCE * float(np.max(np.abs(training - start)))
    if float(np.max(np.abs(rest - start))) > most:
        raise DataError(
            f"the label of a validation row is more than {MAX_LABEL_DISTANCE} times as far from "
            f"{start:g}, "
            "where scores start, as that of any training row: check that row, or use another seed"
        )


def find_best_table_count(losses: Sequence[float]) -> int:
    """Return the number of tables with the smallest loss; the first of equal losses."""
    return int(np.argmin(losses)) + 1


def decide_early_stop(losses: Sequence[float], patience: int, tables: int) -> int:
    """Return the number of tables to keep if training ends here, and 0 if it continues.

    `losses` contains the loss after each table. Training ends when the last `patience` tables
    brought no smaller loss, or when all tables are trained.
    """
    best = find_best_table_count(losses)
    ends = len(losses) == tables or len(losses) - best >= patience
    return best if ends else 0
