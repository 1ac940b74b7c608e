"""Sampling of rows and columns, validation rows, early stopping and sample weights.

They are relative: divided by their mean, so that all samples together count as much as without. So
no sum of derivatives is larger than without weights, and l2 means the same. On shares they are
rounded to 2^-20, and in a regression of many samples more coarsely: to 2^-13 of a million.

Everybody draws the same, the dealer too, from the hyper-parameter `seed` and the table's number.

They come after the training rows. Everybody draws them from a seed that all know, so nobody has a
choice, and nobody has to be told.
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
"""In means: products with a weight have bits enough for no more."""

ClassWeight: TypeAlias = Literal["balanced"] | Mapping[str, float]
"""The same total for every class; or a weight for classes by name, 1 for the others."""


def check_weights(sample_weight: FloatArray) -> None:
    """Raise DataError for what is no weight, and if nothing counts."""
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
    """The mean of all weights, such that those of some rows can be divided by it."""

    max_weight: float
    relative_mean: float
    """What the mean is in the largest one: a sum of weights as they are could overflow."""

    @classmethod
    def from_weights(cls, sample_weight: FloatArray) -> WeightMean:
        """Return the mean of weights; raise DataError if they cannot be used."""
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
        """Return weights in means."""
        found: FloatArray = sample_weight / self.max_weight / self.relative_mean
        return found


@dataclass(frozen=True)
class WeightNormaliser:
    """What all weights say of those of some rows."""

    mean: WeightMean
    class_weights: tuple[float, ...] = ()
    """What the rows of each class count times their own weights, if that is said."""

    def apply(self, sample_weight: FloatArray | None, label: FloatArray) -> FloatArray:
        """Return the weights of some rows in means, from their own, if they have any."""
        if self.class_weights:
            by_class: FloatArray = np.array(self.class_weights)[label.astype(np.intp)]
            sample_weight = by_class if sample_weight is None else by_class * sample_weight
        assert sample_weight is not None
        return self.mean.normalise(sample_weight)


def normalise_weights(sample_weight: FloatArray) -> FloatArray:
    """Return weights in means; raise DataError if they cannot be used."""
    return WeightMean.from_weights(sample_weight).normalise(sample_weight)


def compute_class_sample_weights(
    label: FloatArray, classes: Sequence[str], class_weight: ClassWeight
) -> FloatArray:
    """Return what class weights make of every sample, whose labels number the classes."""
    found: FloatArray = compute_class_weights(label, classes, class_weight)[label.astype(np.intp)]
    return found


def compute_class_weights(
    label: FloatArray, classes: Sequence[str], class_weight: ClassWeight
) -> FloatArray:
    """Return the weight of each class, from labels that number them."""
    if class_weight == "balanced":
        counts = np.bincount(label.astype(np.intp), minlength=len(classes))
        found: FloatArray = len(label) / (len(classes) * np.maximum(counts, 1))
        return found
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
    """Return weights in means; raise DataError if they cannot be used, or leave nothing to learn.

    With rows of weight 0 left out, a label must be one that can be learned.
    """
    found = normalise_weights(sample_weight)
    try:
        objective.check_label(label[found > 0])
    except DataError as error:
        raise DataError(f"without rows that have the weight 0, {error}") from None
    return found


_MIN_SAMPLED_ROWS = 2
"""As few as any training needs."""


class TableSample(NamedTuple):
    """What one table is trained on. Rows that are left out get their scores updated all the same.

    Both are indices in rising order, or a slice where nothing is left out.
    """

    rows: IndexSelection
    features: IndexSelection


def sample_table(
    params: Params, n_samples: int, cut_counts: Sequence[int] | IndexArray, table: int
) -> TableSample:
    """Return what a table is trained on, if the features have so many cuts, as far as all know."""
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
    """Return the features that a table may test.

    One without a cut cannot be tested, so it is not drawn.
    """
    if params.colsample == 1:
        return slice(len(cut_counts))
    testable = np.flatnonzero(cut_counts)
    order = _make_public_coin(params).permutation(Place("features", (table,), 0), len(testable))
    return testable[
        np.sort(order[: _compute_sample_size(params.colsample, len(testable), min_size=1)])
    ]


def count_sampled_rows(params: Params, n_samples: int) -> int:
    """Return how many rows every table is trained on."""
    return _compute_sample_size(params.subsample, n_samples, min_size=_MIN_SAMPLED_ROWS)


def _compute_sample_size(share: float, whole: int, min_size: int) -> int:
    return min(whole, max(min_size, round(Fraction(share) * whole)))


def _make_public_coin(params: Params) -> Prg:
    seed = hashlib.blake2b(
        str(params.seed).encode(), digest_size=SEED_BYTES, person=b"privet draws"
    )
    return Prg(seed.digest())


MAX_LABEL_DISTANCE = 8
"""A validation row's number lies no more than so many times as far from the start as any training
row's: protocols compute with numbers of that size."""


def count_validation_rows(n_rows: int, params: Params) -> int:
    """Return how many of these rows are set aside; raise DataError if too few are left."""
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
    """Return all rows: those to train on as they come, then those set aside, as they come."""
    count = count_validation_rows(n_rows, params)
    seed = hashlib.sha256(f"validation rows, seed {params.seed}".encode()).digest()
    drawn = Prg(seed).permutation(Place("validation rows", (), 0), n_rows)
    chosen = np.zeros(n_rows, dtype=np.bool_)
    chosen[drawn[:count]] = True
    return np.concatenate([np.flatnonzero(~chosen), np.flatnonzero(chosen)])


def check_patience(params: Params, n_validation: int) -> None:
    """Raise ParameterError for patience without validation rows."""
    if params.patience is not None and not n_validation:
        raise ParameterError(
            f"patience: {params.patience} tables without a smaller loss on validation rows, and "
            "there are none: set validation, too, or leave patience out"
        )


def check_validation_label(params: Params, label: FloatArray, n_validation: int) -> None:
    """Raise DataError unless a label can be learned from its first rows, and tested on the last."""
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
    """Return the number of tables with the smallest loss; the first, of equal ones."""
    return int(np.argmin(losses)) + 1


def decide_early_stop(losses: Sequence[float], patience: int, tables: int) -> int:
    """Return how many tables to keep, if training ends here, and 0 if it goes on.

    `losses` are those after each table. It ends when the last `patience` tables brought no smaller
    one, or when all tables are trained.
    """
    best = find_best_table_count(losses)
    ends = len(losses) == tables or len(losses) - best >= patience
    return best if ends else 0
