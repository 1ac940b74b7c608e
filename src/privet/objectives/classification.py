"""Classification: the logistic loss, for two classes, and for several one against the rest."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from privet.arrays import FloatArray
from privet.errors import DataError
from privet.objectives.base import _LARGEST_START, Functions, Losses, Objective, SharedReal, _mean
from privet.objectives.metrics import (
    Points,
    curves_of_two_classes,
    of_several_classes,
    of_two_classes,
)


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
    smaller_is_better = frozenset({"log_loss", "brier"})
    has_classes = True

    def largest_sum(
        self,
        n_samples: int,
        l2: Fraction,
        leaves: int,
        *,
        centred: bool,
        drawn: int | None = None,
    ) -> Fraction:
        """Return how many samples there are: no first derivative is larger than 1."""
        return Fraction(n_samples if drawn is None else drawn)

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

    def start(self, label: FloatArray, weight: FloatArray | None = None) -> FloatArray:
        """Return the log-odds of each output's share of the samples, 12 in size at most.

        Protocols compute with scores below 16.
        """
        shares = np.array([_mean(row, weight) for row in self.targets(label)])
        with np.errstate(divide="ignore"):  # of a class without a weight
            odds: FloatArray = np.log(shares) - np.log1p(-shares)
        return np.clip(odds, -_LARGEST_START, _LARGEST_START)

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

    def loss_on_shares(self, losses: Losses) -> SharedReal:
        """Return the logistic loss."""
        return losses.logistic()

    def losses(self, score: FloatArray, target: FloatArray) -> FloatArray:
        """Return the logistic loss."""
        result: FloatArray = np.logaddexp(0.0, score) - target * score
        return result

    def prediction(self, score: FloatArray) -> FloatArray:
        """Return the probability of class 1."""
        return sigmoid(score[0])

    def metrics(self, label: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
        """Return metrics of the probabilities, and of the class that is likelier."""
        return of_two_classes(label, predicted)

    def curves(self, label: FloatArray, predicted: FloatArray) -> dict[str, Points]:
        """Return curves of the probabilities."""
        return curves_of_two_classes(label, predicted)


class OneVsRest(Classification):
    """One of several classes, by the logistic loss of each against the rest.

    A sample has a score for every class. A table has the same tests for all of them; the score of a
    cut is the sum of theirs.
    """

    metric = "accuracy"
    smaller_is_better = frozenset({"log_loss"})

    def __init__(self, classes: int) -> None:
        self.outputs = classes

    def check_values(self, label: FloatArray) -> None:
        """Refuse what is not 0 to K - 1, and a class without a row."""
        known = np.isin(label, range(self.outputs))
        if not known.all():
            row = int(np.flatnonzero(~known)[0])
            raise DataError(
                f"the label of row {row + 1} is {label[row]:g}; {self.outputs} classes are 0 to "
                f"{self.outputs - 1}"
            )
        gone = sorted(set(range(self.outputs)) - set(label.astype(int).tolist()))
        if gone:
            raise DataError(
                f"no row of {len(label)} has the label {gone[0]}: there is nothing to learn of it"
            )

    def targets(self, label: FloatArray) -> FloatArray:
        """Return 1 for the class of each sample and 0 for the others."""
        classes = np.arange(self.outputs)[:, None]
        result: FloatArray = (label == classes).astype(np.float64)
        return result

    def prediction(self, score: FloatArray) -> FloatArray:
        """Return the probability of each class, (K, N): in proportion to that against the rest.

        By logarithms, since all of them may be tiny.
        """
        logarithms = -np.logaddexp(0.0, -score)
        parts = np.exp(logarithms - logarithms.max(axis=0))
        result: FloatArray = parts / parts.sum(axis=0)
        return result

    def metrics(self, label: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
        """Return metrics of the probabilities of all classes."""
        return of_several_classes(label, predicted)

    def curves(self, label: FloatArray, predicted: FloatArray) -> dict[str, Points]:
        """Return none: each class would have its own."""
        return {}


def sigmoid(score: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-score)), without overflow at either end."""
    result: FloatArray = 0.5 + 0.5 * np.tanh(0.5 * score)
    return result
