"""Weights: how much each sample counts, which the label's holder alone knows.

They are relative: divided by their mean, so that all samples together count as much as without. So
no sum of derivatives is larger than without weights, and l2 means the same. On shares they are
rounded to 2^-20, and in a regression of many samples more coarsely: to 2^-13 of a million.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from privet.arrays import FloatArray
from privet.errors import DataError
from privet.terms.objective import Objective

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
