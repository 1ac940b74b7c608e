"""The base class of objectives, and the functions that a protocol evaluates for them.

An objective says which labels it takes, where scores start, the derivatives of its loss in the
clear and on shares, how large they can be, and what a score means. Scores, targets and derivatives
have an axis of outputs: (K, N), with K = 1 where one number is learned of every sample.

To add one, make an `Objective` and put it into `objectives.OBJECTIVES` (docs/development.md).
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
from privet.objectives.metrics import CurvePoints

# The largest label or score in size: squares of sums of 10^9 of them do not overflow.
MAX_LABEL = 1e100


@dataclass(frozen=True)
class SharedFixedPoint:
    """A share of real numbers in fixed point."""

    share: Share
    fraction_bits: int
    """Fraction bits."""

    def __sub__(self, other: SharedFixedPoint) -> SharedFixedPoint:
        """Subtract; the one with fewer fraction bits gets more, which is exact."""
        bits = max(self.fraction_bits, other.fraction_bits)
        return SharedFixedPoint(self.rescale(bits) - other.rescale(bits), bits)

    def rescale(self, bits: int) -> Share:
        """Return the share with so many fraction bits, no fewer than it has."""
        return (
            self.share
            if bits == self.fraction_bits
            else self.share * (1 << (bits - self.fraction_bits))
        )


class SharedFunctions(ABC):
    """What a protocol suite can compute on shares, for an objective to make derivatives of."""

    @abstractmethod
    def evaluate_sigmoid(
        self, score: SharedFixedPoint
    ) -> tuple[SharedFixedPoint, SharedFixedPoint]:
        """Return the sigmoid, and its derivative."""


class SharedLosses(ABC):
    """Losses that a protocol suite can compute on shares, summed over validation rows."""

    @abstractmethod
    def sum_half_squares(self) -> SharedFixedPoint:
        """Return half the squared differences of scores and targets."""

    @abstractmethod
    def sum_logistic_losses(self) -> SharedFixedPoint:
        """Return log(1 + exp(s)) - y s, for scores s and targets y that are 0 or 1."""


class Objective(ABC):
    """What is learned."""

    name: ClassVar[str]
    """Its name in jobs and files."""
    n_outputs: int = 1
    """K: how many scores a sample has."""
    normalised_label: ClassVar[bool]
    """Whether the label is shared less its start, and in a unit that its holder alone knows."""
    constant_hessian: ClassVar[bool]
    """Whether all second derivatives are 1, which everybody knows."""
    max_hessian: ClassVar[Fraction]
    """No second derivative is larger."""
    max_leaf_weight: ClassVar[int]
    """No G / (H + l2) of a leaf is larger in size: protocols compute rightly up to it."""
    ties_in_first_table: ClassVar[bool]
    """Whether many candidates of the first table have exactly equal scores."""
    prediction_bits: ClassVar[int]
    """Fraction bits of revealed scores, unless a job says otherwise."""
    primary_metric: ClassVar[str]
    """Which of its metrics to show where there is room for one."""
    error_metrics: ClassVar[frozenset[str]] = frozenset()
    """Which of its metrics are errors; the others are better the larger they are."""
    is_classification: ClassVar[bool] = False
    """Whether labels are classes, of which a sample of rows should have the same shares."""

    @abstractmethod
    def max_gradient_sum(
        self,
        n_samples: int,
        l2: Fraction,
        n_leaves: int,
        *,
        centred: bool,
        n_sampled: int | None = None,
    ) -> Fraction:
        """Return what no sum of first derivatives, over any of the samples, passes.

        `centred` tells whether scores start from `compute_initial_scores`; `n_sampled`, how many
        samples a table is trained on, if it is not all of them.
        """

    def max_squared_gradients(self, n_samples: int) -> Fraction | None:
        """Return what the squares of first derivatives must add up to, at most, in every table.

        If it is trained on a part of the samples; None where `max_gradient_sum` needs no such
        check.
        """
        return None

    @abstractmethod
    def check_label_values(self, label: FloatArray) -> None:
        """Raise DataError for finite labels that are not this objective's."""

    @abstractmethod
    def compute_initial_scores(
        self, label: FloatArray, sample_weight: FloatArray | None = None
    ) -> FloatArray:
        """Return the scores that all samples start from, unless somebody says otherwise: (K,)."""

    @abstractmethod
    def compute_gradients(
        self, score: FloatArray, target: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the first and second derivatives of the loss by the scores: (K, N) each."""

    @abstractmethod
    def compute_shared_gradients(
        self, functions: SharedFunctions, score: SharedFixedPoint, target: SharedFixedPoint
    ) -> tuple[SharedFixedPoint, SharedFixedPoint | None]:
        """Return the same on shares; None where the second derivatives are all 1."""

    @abstractmethod
    def compute_shared_loss(self, losses: SharedLosses) -> SharedFixedPoint:
        """Return the loss, summed over all outputs of validation rows: one number."""

    @abstractmethod
    def compute_losses(self, score: FloatArray, target: FloatArray) -> FloatArray:
        """Return the loss of every score: (K, N)."""

    @abstractmethod
    def predict_from_scores(self, score: FloatArray) -> FloatArray:
        """Return what scores, (K, N), say of the samples."""

    @abstractmethod
    def compute_metrics(self, label: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
        """Return how good predictions are."""

    def compute_mean_loss(
        self, score: FloatArray, target: FloatArray, sample_weight: FloatArray | None = None
    ) -> float:
        """Return the mean over samples of the loss; of several outputs, of the sum of theirs."""
        losses = self.compute_losses(score, target)
        return float(np.average(losses.sum(axis=0), weights=sample_weight))

    def compute_curves(self, label: FloatArray, predicted: FloatArray) -> dict[str, CurvePoints]:
        """Return points of curves that show how good predictions are, by name."""
        return {}

    def make_targets(self, label: FloatArray) -> FloatArray:
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
        if (np.abs(label) > MAX_LABEL).any():
            row = int(np.flatnonzero(np.abs(label) > MAX_LABEL)[0])
            raise DataError(
                f"the label of row {row + 1} is {label[row]:g}; above {MAX_LABEL:g} in size, "
                "squares of sums overflow: use a larger unit"
            )
        self.check_label_values(label)


_MAX_INITIAL_SCORE = 12.0


def _mean(values: FloatArray, sample_weight: FloatArray | None) -> float:
    """Return the mean, summed exactly: the order of the samples does not matter."""
    if sample_weight is None:
        return math.fsum(values) / len(values)
    return math.fsum(values * sample_weight) / math.fsum(sample_weight)
