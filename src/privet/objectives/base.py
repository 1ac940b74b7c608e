"""The base class of objectives, and the functions that a protocol evaluates for them.

An objective defines valid labels, initial scores, the gradients and Hessians of its loss in
plaintext and on shares, their bounds, and the predictions of scores. Scores, targets, gradients and
Hessians have an axis of outputs: (K, N), with K = 1 for one score a sample.

To add one, define an `Objective` and add it to `regression.OBJECTIVES` (docs/development.md).
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

# The largest absolute value of a label or a score: squares of sums of 10^9 of them do not overflow.
MAX_LABEL = 1e100


@dataclass(frozen=True)
class SharedFixedPoint:
    """A share of real numbers in fixed point."""

    share: Share
    fraction_bits: int
    """The number of fraction bits."""

    def __sub__(self, other: SharedFixedPoint) -> SharedFixedPoint:
        """Subtract; the operand with fewer fraction bits is rescaled, which is exact."""
        bits = max(self.fraction_bits, other.fraction_bits)
        return SharedFixedPoint(self.rescale(bits) - other.rescale(bits), bits)

    def rescale(self, bits: int) -> Share:
        """Return the share with `bits` fraction bits, which must not be fewer than before."""
        return (
            self.share
            if bits == self.fraction_bits
            else self.share * (1 << (bits - self.fraction_bits))
        )


class SharedFunctions(ABC):
    """Functions that a protocol suite computes on shares, for gradients and Hessians."""

    @abstractmethod
    def evaluate_sigmoid(
        self, score: SharedFixedPoint
    ) -> tuple[SharedFixedPoint, SharedFixedPoint]:
        """Return the sigmoid, and its derivative."""


class SharedLosses(ABC):
    """Losses that a protocol suite computes on shares, summed over validation rows."""

    @abstractmethod
    def sum_half_squares(self) -> SharedFixedPoint:
        """Return half the squared differences of scores and targets."""

    @abstractmethod
    def sum_logistic_losses(self) -> SharedFixedPoint:
        """Return log(1 + exp(s)) - y s, for scores s and targets y that are 0 or 1."""


class Objective(ABC):
    """A learning objective, with its loss and metrics."""

    name: ClassVar[str]
    """Its name in jobs and files."""
    n_outputs: int = 1
    """K, the number of scores of a sample."""
    normalised_label: ClassVar[bool]
    """Whether the label is shared less its initial score, in a unit that only its holder knows."""
    constant_hessian: ClassVar[bool]
    """Whether all Hessians are 1, which is public."""
    max_hessian: ClassVar[Fraction]
    """Upper bound on a Hessian."""
    max_leaf_weight: ClassVar[int]
    """Upper bound on |G / (H + l2)| of a leaf, up to which protocols compute correctly."""
    ties_in_first_table: ClassVar[bool]
    """Whether many candidate splits of the first table have exactly equal gains."""
    prediction_bits: ClassVar[int]
    """Fraction bits of revealed scores, unless the job sets others."""
    primary_metric: ClassVar[str]
    """The metric to show if only one is shown."""
    error_metrics: ClassVar[frozenset[str]] = frozenset()
    """The metrics that are errors, so lower is better; for others, higher is better."""
    is_classification: ClassVar[bool] = False
    """Whether labels are classes, whose proportions a sample of rows should preserve."""

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
        """Return an upper bound on any sum of gradients, over any of the samples.

        `centred`: whether scores start from `compute_initial_scores`. `n_sampled`: the number of
        samples that a table is trained on, if not all.
        """

    def max_squared_gradients(self, n_samples: int) -> Fraction | None:
        """Return the largest valid sum of squared gradients in a table, or None.

        It is checked for tables that are trained on a part of the samples. None if
        `max_gradient_sum` needs no such check.
        """
        return None

    @abstractmethod
    def check_label_values(self, label: FloatArray) -> None:
        """Raise DataError for finite labels that are not valid for this objective."""

    @abstractmethod
    def compute_initial_scores(
        self, label: FloatArray, sample_weight: FloatArray | None = None
    ) -> FloatArray:
        """Return the default initial scores, equal for all samples: (K,)."""

    @abstractmethod
    def compute_gradients(
        self, score: FloatArray, target: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the gradients and Hessians of the loss with respect to the scores: (K, N) each."""

    @abstractmethod
    def compute_shared_gradients(
        self, functions: SharedFunctions, score: SharedFixedPoint, target: SharedFixedPoint
    ) -> tuple[SharedFixedPoint, SharedFixedPoint | None]:
        """Return the gradients and Hessians on shares; None for Hessians that are all 1."""

    @abstractmethod
    def compute_shared_loss(self, losses: SharedLosses) -> SharedFixedPoint:
        """Return the loss, summed over all outputs of validation rows: one number."""

    @abstractmethod
    def compute_losses(self, score: FloatArray, target: FloatArray) -> FloatArray:
        """Return the loss of every score: (K, N)."""

    @abstractmethod
    def predict_from_scores(self, score: FloatArray) -> FloatArray:
        """Return the predictions of scores, (K, N)."""

    @abstractmethod
    def compute_metrics(self, label: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
        """Return the metrics of predictions, by name."""

    def compute_mean_loss(
        self, score: FloatArray, target: FloatArray, sample_weight: FloatArray | None = None
    ) -> float:
        """Return the mean loss over samples, summed over outputs."""
        losses = self.compute_losses(score, target)
        return float(np.average(losses.sum(axis=0), weights=sample_weight))

    def compute_curves(self, label: FloatArray, predicted: FloatArray) -> dict[str, CurvePoints]:
        """Return the points of curves of prediction quality, by name."""
        return {}

    def make_targets(self, label: FloatArray) -> FloatArray:
        """Return the targets of the scores, one row per output: (K, N)."""
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
