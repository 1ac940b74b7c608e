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

from privet.arithmetic.fixed_point import nearest
from privet.arithmetic.prg import SEED_BYTES, Place, Prg
from privet.arrays import FloatArray, IndexArray, Indices
from privet.errors import DataError, ParameterError
from privet.objectives.base import Objective
from privet.spec.params import Params

WEIGHT_BITS = 20
"""Fraction bits of weights on shares."""
LARGEST_WEIGHT = 1 << 12
"""In means: products with a weight have bits enough for no more."""

ClassWeight: TypeAlias = Literal["balanced"] | Mapping[str, float]
"""The same total for every class; or a weight for classes by name, 1 for the others."""


def check_weights(weight: FloatArray) -> None:
    """Raise DataError for what is no weight, and if nothing counts."""
    good = np.isfinite(weight) & (weight >= 0)
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise DataError(
            f"the weight of row {row + 1} is {weight[row]:g}; weights are 0 or more, and finite "
            f"({np.count_nonzero(~good)} of {len(weight)} are not)"
        )
    if not weight.any():
        raise DataError(f"all {len(weight)} weights are zero: there is nothing to learn from")


@dataclass(frozen=True)
class Mean:
    """The mean of all weights, such that those of some rows can be divided by it."""

    largest: float
    of_largest: float
    """What the mean is in the largest one: a sum of weights as they are could overflow."""

    @classmethod
    def of(cls, weight: FloatArray) -> Mean:
        """Return the mean of weights; raise DataError if they cannot be used."""
        check_weights(weight)
        largest = float(weight.max())
        mean = float(np.mean(weight / largest))
        if 1.0 / mean > LARGEST_WEIGHT:
            row = int(np.argmax(weight))
            raise DataError(
                f"the weight of row {row + 1} is {1.0 / mean:,.0f} times the mean, and sums are "
                f"right up to {LARGEST_WEIGHT:,} times: bring weights closer together"
            )
        return cls(largest, mean)

    def divide(self, weight: FloatArray) -> FloatArray:
        """Return weights in means."""
        found: FloatArray = weight / self.largest / self.of_largest
        return found


@dataclass(frozen=True)
class Weighting:
    """What all weights say of those of some rows."""

    mean: Mean
    by_class: tuple[float, ...] = ()
    """What the rows of each class count times their own weights, if that is said."""

    def apply(self, weight: FloatArray | None, label: FloatArray) -> FloatArray:
        """Return the weights of some rows in means, from their own, if they have any."""
        if self.by_class:
            by_class: FloatArray = np.array(self.by_class)[label.astype(np.intp)]
            weight = by_class if weight is None else by_class * weight
        assert weight is not None
        return self.mean.divide(weight)


def relative_weights(weight: FloatArray) -> FloatArray:
    """Return weights in means; raise DataError if they cannot be used."""
    return Mean.of(weight).divide(weight)


def class_weights(label: FloatArray, classes: Sequence[str], wanted: ClassWeight) -> FloatArray:
    """Return what class weights make of every sample, whose labels number the classes."""
    found: FloatArray = weights_by_class(label, classes, wanted)[label.astype(np.intp)]
    return found


def weights_by_class(label: FloatArray, classes: Sequence[str], wanted: ClassWeight) -> FloatArray:
    """Return the weight of each class, from labels that number them."""
    if wanted == "balanced":
        counts = np.bincount(label.astype(np.intp), minlength=len(classes))
        found: FloatArray = len(label) / (len(classes) * np.maximum(counts, 1))
        return found
    for name in wanted:
        if name not in classes:
            raise DataError(
                f"class_weight: the label has no class {name!r}; it has "
                f"{', '.join(map(repr, classes))}"
            )
    return np.array([wanted.get(name, 1.0) for name in classes], dtype=np.float64)


def usable_weights(weight: FloatArray, label: FloatArray, objective: Objective) -> FloatArray:
    """Return weights in means; raise DataError if they cannot be used, or leave nothing to learn.

    With rows of weight 0 left out, a label must be one that can be learned.
    """
    found = relative_weights(weight)
    try:
        objective.check_label(label[found > 0])
    except DataError as error:
        raise DataError(f"without rows that have the weight 0, {error}") from None
    return found


_LEAST_ROWS = 2
"""As few as any training needs."""


class Draw(NamedTuple):
    """What one table is trained on. Rows that are left out get their scores updated all the same.

    Both are indices in rising order, or a slice where nothing is left out.
    """

    rows: Indices
    features: Indices


def draw(params: Params, n_samples: int, cuts: Sequence[int] | IndexArray, table: int) -> Draw:
    """Return what a table is trained on, if the features have so many cuts, as far as all know."""
    return Draw(_draw_rows(params, n_samples, table), draw_features(params, cuts, table))


def _draw_rows(params: Params, n_samples: int, table: int) -> Indices:
    if params.subsample == 1:
        return slice(n_samples)
    order = _coin(params).permutation(Place("rows", (table,), 0), n_samples)
    return np.sort(order[: drawn_rows(params, n_samples)])


def draw_features(params: Params, cuts: Sequence[int] | IndexArray, table: int) -> Indices:
    """Return the features that a table may test.

    One without a cut cannot be tested, so it is not drawn.
    """
    if params.colsample == 1:
        return slice(len(cuts))
    testable = np.flatnonzero(cuts)
    order = _coin(params).permutation(Place("features", (table,), 0), len(testable))
    return testable[np.sort(order[: _share(params.colsample, len(testable), least=1)])]


def drawn_rows(params: Params, n_samples: int) -> int:
    """Return how many rows every table is trained on."""
    return _share(params.subsample, n_samples, least=_LEAST_ROWS)


def _share(share: float, whole: int, least: int) -> int:
    return min(whole, max(least, round(Fraction(share) * whole)))


def _coin(params: Params) -> Prg:
    seed = hashlib.blake2b(
        str(params.seed).encode(), digest_size=SEED_BYTES, person=b"privet draws"
    )
    return Prg(seed.digest())


FURTHEST = 8
"""A validation row's number lies no more than so many times as far from the start as any training
row's: protocols compute with numbers of that size."""


def count_validation(n_rows: int, params: Params) -> int:
    """Return how many of these rows are set aside; raise DataError if too few are left."""
    if not params.validation:
        return 0
    count = nearest(Fraction(params.validation) * n_rows)
    if count < 1 or n_rows - count < 2:
        raise DataError(
            f"validation: {params.validation:g} of {n_rows} rows would leave {n_rows - count} to "
            f"train on and {count} to validate with; at least 2 and 1 are needed"
        )
    return count


def rows_in_order(n_rows: int, params: Params) -> IndexArray:
    """Return all rows: those to train on as they come, then those set aside, as they come."""
    count = count_validation(n_rows, params)
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


def check_split(params: Params, label: FloatArray, n_validation: int) -> None:
    """Raise DataError unless a label can be learned from its first rows, and tested on the last."""
    if not n_validation:
        return
    training, rest = label[:-n_validation], label[-n_validation:]
    objective = params.objective
    try:
        objective.check_values(training)
    except DataError as error:
        raise DataError(
            f"without the {n_validation} validation rows, {error}; use another seed, or set fewer "
            "rows aside (validation)"
        ) from None
    if objective.has_classes:
        if (rest == rest[0]).all():
            raise DataError(
                f"all {n_validation} validation rows are of one class: use another seed, or set "
                "more rows aside (validation)"
            )
        return
    start = float(params.start(training)[0])
    most = FURTHEST * float(np.max(np.abs(training - start)))
    if float(np.max(np.abs(rest - start))) > most:
        raise DataError(
            f"the label of a validation row is more than {FURTHEST} times as far from {start:g}, "
            "where scores start, as that of any training row: check that row, or use another seed"
        )


def best_of(losses: Sequence[float]) -> int:
    """Return the number of tables with the smallest loss; the first, of equal ones."""
    return int(np.argmin(losses)) + 1


def tables_to_keep(losses: Sequence[float], patience: int, tables: int) -> int:
    """Return how many tables to keep, if training ends here, and 0 if it goes on.

    `losses` are those after each table. It ends when the last `patience` tables brought no smaller
    one, or when all tables are trained.
    """
    best = best_of(losses)
    ends = len(losses) == tables or len(losses) - best >= patience
    return best if ends else 0
