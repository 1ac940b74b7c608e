"""Objectives: what is learned. Each owns all that depends on it.

An objective says which labels it takes, where scores start, the derivatives of its loss in the
clear and on shares, how large they can be, and what a score means. Scores, targets and derivatives
have an axis of outputs: (K, N), with K = 1 where one number is learned of every sample.

To add one, make an `Objective` and put it into `OBJECTIVES` (docs/development.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privet.arithmetic.shares import Share
from privet.arrays import FloatArray
from privet.errors import DataError

# The largest label or score in size: squares of sums of 10^9 of them do not overflow.
LARGEST = 1e100


@dataclass(frozen=True)
class SharedReal:
    """A share of real numbers in fixed point."""

    share: Share
    bits: int
    """Fraction bits."""

    def __sub__(self, other: SharedReal) -> SharedReal:
        """Subtract; the one with fewer fraction bits gets more, which is exact."""
        bits = max(self.bits, other.bits)
        return SharedReal(self.at(bits) - other.at(bits), bits)

    def at(self, bits: int) -> Share:
        """Return the share with so many fraction bits, no fewer than it has."""
        return self.share if bits == self.bits else self.share * (1 << (bits - self.bits))


class Functions(ABC):
    """What a protocol suite can compute on shares, for an objective to make derivatives of."""

    @abstractmethod
    def sigmoid(self, score: SharedReal) -> tuple[SharedReal, SharedReal]:
        """Return the sigmoid, and its derivative."""


class Objective(ABC):
    """What is learned."""

    name: ClassVar[str]
    """Its name in jobs and files."""
    outputs: int = 1
    """K: how many scores a sample has."""
    own_unit: ClassVar[bool]
    """Whether the label is shared less its start, and in a unit that its holder alone knows."""
    unit_curvature: ClassVar[bool]
    """Whether all second derivatives are 1, which everybody knows."""
    largest_curvature: ClassVar[Fraction]
    """No second derivative is larger."""
    largest_weight: ClassVar[int]
    """No G / (H + l2) of a leaf is larger in size: protocols compute rightly up to it."""
    even_start: ClassVar[bool]
    """Whether many candidates of the first table have exactly equal scores."""
    prediction_bits: ClassVar[int]
    """Fraction bits of revealed scores, unless a job says otherwise."""
    metric: ClassVar[str]
    """Which of its metrics to show where there is room for one."""
    smaller_is_better: ClassVar[frozenset[str]] = frozenset()
    """Which of its metrics are errors; the others are better the larger they are."""
    has_classes: ClassVar[bool] = False
    """Whether labels are classes, of which a sample of rows should have the same shares."""

    @abstractmethod
    def largest_sum(self, n_samples: int, l2: Fraction, leaves: int, *, centred: bool) -> Fraction:
        """Return what no sum of first derivatives, over any of the samples, passes.

        `centred` tells whether scores start from `start`.
        """

    @abstractmethod
    def check_values(self, label: FloatArray) -> None:
        """Raise DataError for finite labels that are not this objective's."""

    @abstractmethod
    def start(self, label: FloatArray) -> float:
        """Return the score that all samples start from, unless somebody says otherwise."""

    @abstractmethod
    def derivatives(self, score: FloatArray, target: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the first and second derivatives of the loss by the scores: (K, N) each."""

    @abstractmethod
    def derivatives_on_shares(
        self, functions: Functions, score: SharedReal, target: SharedReal
    ) -> tuple[SharedReal, SharedReal | None]:
        """Return the same on shares; None where the second derivatives are all 1."""

    @abstractmethod
    def mean_loss(self, score: FloatArray, target: FloatArray) -> float:
        """Return the mean of the loss."""

    @abstractmethod
    def prediction(self, score: FloatArray) -> FloatArray:
        """Return what scores, (K, N), say of the samples."""

    @abstractmethod
    def metrics(self, label: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
        """Return how good predictions are."""

    def targets(self, label: FloatArray) -> FloatArray:
        """Return what the scores are compared with, an output a row: (K, N)."""
        return label.reshape(1, -1)

    def check_label(self, label: FloatArray) -> None:
        """Raise DataError unless `label` is one finite number per sample that can be learned."""
        if label.ndim != 1:
            raise DataError(f"the label must be one column, not of shape {label.shape}")
        if len(label) < 2:
            raise DataError(f"the label has {len(label)} row(s); training needs at least 2 samples")
        finite = np.isfinite(label)
        if not finite.all():
            row = int(np.flatnonzero(~finite)[0])
            raise DataError(
                f"the label of row {row + 1} is {label[row]}; every sample needs a finite label "
                f"({np.count_nonzero(~finite)} of {len(label)} have none): drop those rows "
                "everywhere"
            )
        if (np.abs(label) > LARGEST).any():
            row = int(np.flatnonzero(np.abs(label) > LARGEST)[0])
            raise DataError(
                f"the label of row {row + 1} is {label[row]:g}; above {LARGEST:g} in size, squares "
                "of sums overflow: use a larger unit"
            )
        self.check_values(label)


class Regression(Objective):
    """A number, by half the squared error."""

    name = "regression"
    own_unit = True
    unit_curvature = True
    largest_curvature = Fraction(1)
    largest_weight = 8  # a label is at most 4 in size
    even_start = False
    prediction_bits = 12
    metric = "rmse"
    smaller_is_better = frozenset({"rmse"})

    def largest_sum(self, n_samples: int, l2: Fraction, leaves: int, *, centred: bool) -> Fraction:
        """Return N/2, or about half of it where scores start from the mean.

        Let q be the sum of squared residuals. The label's unit makes it at most N/4 at first, and
        training never raises it. A sum of a residuals is at most sqrt(a q), which is N/2. If all of
        them add up to g, it is at most sqrt(a (N - a) q / N) + (a / N) |g|, by the same inequality
        for residuals less their mean: N/4 + |g|. From the mean, g is 0 at first; what a leaf of n
        samples leaves over is at most sqrt(n q_leaf) l2 / (n + l2) <= sqrt(l2 q_leaf) / 2, so all
        leaves of a table sqrt(l2 leaves q) / 2.
        """
        half = Fraction(n_samples, 2)
        if not centred:
            return half
        rest = Fraction(math.isqrt(math.ceil(l2 * leaves * n_samples)) + 1, 4)
        return min(half, half / 2 + rest)

    def check_values(self, label: FloatArray) -> None:
        """Refuse a label that is everywhere the same."""
        if (label == label[0]).all():
            raise DataError(
                f"the label is constant, {label[0]:g}, in all {len(label)} rows: there is nothing "
                "to learn"
            )

    def start(self, label: FloatArray) -> float:
        """Return the mean, summed exactly: the order of the samples does not matter."""
        return math.fsum(label) / len(label)

    def derivatives(self, score: FloatArray, target: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the residual, and ones."""
        return score - target, np.ones_like(score)

    def derivatives_on_shares(
        self, functions: Functions, score: SharedReal, target: SharedReal
    ) -> tuple[SharedReal, None]:
        """Return the residual."""
        return score - target, None

    def mean_loss(self, score: FloatArray, target: FloatArray) -> float:
        """Return the mean of half the squared error."""
        return float(np.mean(0.5 * (score - target) ** 2))

    def prediction(self, score: FloatArray) -> FloatArray:
        """Return the score."""
        values: FloatArray = score[0]
        return values

    def metrics(self, label: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
        """Return the root mean squared error."""
        from sklearn.metrics import root_mean_squared_error

        return {"rmse": float(root_mean_squared_error(label, predicted))}


class Classification(Objective):
    """One of two classes, by the logistic loss."""

    name = "classification"
    own_unit = False
    unit_curvature = False
    largest_curvature = Fraction(1, 4)
    # Below, unless more than 64 samples of a leaf are wrong and all but certain.
    largest_weight = 64
    even_start = True  # all samples have one of two gradients
    prediction_bits = 10
    metric = "auc"
    has_classes = True

    def largest_sum(self, n_samples: int, l2: Fraction, leaves: int, *, centred: bool) -> Fraction:
        """Return N: no first derivative is larger than 1."""
        return Fraction(n_samples)

    def check_values(self, label: FloatArray) -> None:
        """Refuse what is not 0 and 1, and a single class."""
        known = np.isin(label, (0.0, 1.0))
        if not known.all():
            row = int(np.flatnonzero(~known)[0])
            raise DataError(
                f"the label of row {row + 1} is {label[row]:g}; a classification needs 0 and 1"
            )
        if (label == label[0]).all():
            raise DataError(
                f"the label is of a single class, in all {len(label)} rows: there is nothing to "
                "learn"
            )

    def start(self, label: FloatArray) -> float:
        """Return 0, which says nothing about the label."""
        return 0.0

    def derivatives(self, score: FloatArray, target: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return p - y and p (1 - p)."""
        p = sigmoid(score)
        return p - target, p * (1.0 - p)

    def derivatives_on_shares(
        self, functions: Functions, score: SharedReal, target: SharedReal
    ) -> tuple[SharedReal, SharedReal]:
        """Return p - y and p (1 - p)."""
        p, slope = functions.sigmoid(score)
        return p - target, slope

    def mean_loss(self, score: FloatArray, target: FloatArray) -> float:
        """Return the mean of the logistic loss."""
        return float(np.mean(np.logaddexp(0.0, score) - target * score))

    def prediction(self, score: FloatArray) -> FloatArray:
        """Return the probability of class 1."""
        return sigmoid(score[0])

    def metrics(self, label: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
        """Return the accuracy, and the area under the curve unless there is one class."""
        from sklearn.metrics import accuracy_score, roc_auc_score

        one_class = (label == label[0]).all()
        return {
            "accuracy": float(accuracy_score(label, predicted >= 0.5)),
            "auc": None if one_class else float(roc_auc_score(label, predicted)),
        }


def sigmoid(score: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-score)), without overflow at either end."""
    result: FloatArray = 0.5 + 0.5 * np.tanh(0.5 * score)
    return result


OBJECTIVES: dict[str, Objective] = {
    objective.name: objective for objective in (Regression(), Classification())
}
"""All objectives, by the name that a job calls them by."""


def objective_for(label: FloatArray) -> Objective:
    """Return the objective that a label seems to ask for: 0 and 1 alone are classes."""
    binary = np.isin(label, (0.0, 1.0)).all()
    return OBJECTIVES["classification" if binary else "regression"]
