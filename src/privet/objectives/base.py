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
from privet.objectives.metrics import Points

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


class Losses(ABC):
    """Losses that a protocol suite can compute on shares, summed over validation rows."""

    @abstractmethod
    def half_squares(self) -> SharedReal:
        """Return half the squared differences of scores and targets."""

    @abstractmethod
    def logistic(self) -> SharedReal:
        """Return log(1 + exp(s)) - y s, for scores s and targets y that are 0 or 1."""


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
    def largest_sum(
        self,
        n_samples: int,
        l2: Fraction,
        leaves: int,
        *,
        centred: bool,
        drawn: int | None = None,
    ) -> Fraction:
        """Return what no sum of first derivatives, over any of the samples, passes.

        `centred` tells whether scores start from `start`; `drawn`, how many samples a table is
        trained on, if it is not all of them.
        """

    def largest_squares(self, n_samples: int) -> Fraction | None:
        """Return what the squares of first derivatives must add up to, at most, in every table.

        If it is trained on a part of the samples; None where `largest_sum` needs no such check.
        """
        return None

    @abstractmethod
    def check_values(self, label: FloatArray) -> None:
        """Raise DataError for finite labels that are not this objective's."""

    @abstractmethod
    def start(self, label: FloatArray, weight: FloatArray | None = None) -> FloatArray:
        """Return the scores that all samples start from, unless somebody says otherwise: (K,)."""

    @abstractmethod
    def derivatives(self, score: FloatArray, target: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the first and second derivatives of the loss by the scores: (K, N) each."""

    @abstractmethod
    def derivatives_on_shares(
        self, functions: Functions, score: SharedReal, target: SharedReal
    ) -> tuple[SharedReal, SharedReal | None]:
        """Return the same on shares; None where the second derivatives are all 1."""

    @abstractmethod
    def loss_on_shares(self, losses: Losses) -> SharedReal:
        """Return the loss, summed over all outputs of validation rows: one number."""

    @abstractmethod
    def losses(self, score: FloatArray, target: FloatArray) -> FloatArray:
        """Return the loss of every score: (K, N)."""

    @abstractmethod
    def prediction(self, score: FloatArray) -> FloatArray:
        """Return what scores, (K, N), say of the samples."""

    @abstractmethod
    def metrics(self, label: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
        """Return how good predictions are."""

    def mean_loss(
        self, score: FloatArray, target: FloatArray, weight: FloatArray | None = None
    ) -> float:
        """Return the mean over samples of the loss; of several outputs, of the sum of theirs."""
        losses = self.losses(score, target)
        return float(np.average(losses.sum(axis=0), weights=weight))

    def curves(self, label: FloatArray, predicted: FloatArray) -> dict[str, Points]:
        """Return points of curves that show how good predictions are, by name."""
        return {}

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


_LARGEST_START = 12.0


def _mean(values: FloatArray, weight: FloatArray | None) -> float:
    """Return the mean, summed exactly: the order of the samples does not matter."""
    if weight is None:
        return math.fsum(values) / len(values)
    return math.fsum(values * weight) / math.fsum(weight)
