"""The objectives that there are: a number, one of two classes, one of several."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from privet.arrays import FloatArray
from privet.errors import DataError, ModelError, ParameterError
from privet.terms.metrics import (
    Points,
    curves_of_two_classes,
    of_numbers,
    of_several_classes,
    of_two_classes,
)
from privet.terms.objective import Functions, Losses, Objective, SharedReal

MOST_CLASSES = 32
"""What a table costs grows with the classes."""
_LARGEST_START = 12.0


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
    smaller_is_better = frozenset({"rmse", "mae"})

    def largest_sum(
        self,
        n_samples: int,
        l2: Fraction,
        leaves: int,
        *,
        centred: bool,
        drawn: int | None = None,
    ) -> Fraction:
        """Return N/2, or about half of it where scores start from the mean.

        Let q be the sum of squared residuals. The label's unit makes it at most N/4 at first, and
        training never raises it. A sum of a residuals is at most sqrt(a q), which is N/2. If all of
        them add up to g, it is at most sqrt(a (N - a) q / N) + (a / N) |g|, by the same inequality
        for residuals less their mean: N/4 + |g|. From the mean, g is 0 at first; what a leaf of n
        samples leaves over is at most sqrt(n q_leaf) l2 / (n + l2) <= sqrt(l2 q_leaf) / 2, so all
        leaves of a table sqrt(l2 leaves q) / 2.

        A table that is trained on a part of the samples may raise the residuals of the others, so
        then q is checked; and nothing is known of g.
        """
        if drawn is not None:
            squares = math.ceil(drawn * self.largest_squares(n_samples) * (1 << 20))
            return Fraction(math.isqrt(squares) + 1, 1 << 10)
        half = Fraction(n_samples, 2)
        if not centred:
            return half
        rest = Fraction(math.isqrt(math.ceil(l2 * leaves * n_samples)) + 1, 4)
        return min(half, half / 2 + rest)

    def largest_squares(self, n_samples: int) -> Fraction:
        """Return N/4, what they are at first at most, and as much more as a check may be off."""
        return Fraction(n_samples, 4) * Fraction(65, 64) ** 2

    def check_values(self, label: FloatArray) -> None:
        """Refuse a label that is everywhere the same."""
        if (label == label[0]).all():
            raise DataError(
                f"the label is constant, {label[0]:g}, in all {len(label)} rows: there is nothing "
                "to learn"
            )

    def start(self, label: FloatArray, weight: FloatArray | None = None) -> FloatArray:
        """Return the mean, summed exactly: the order of the samples does not matter."""
        return np.array([_mean(label, weight)])

    def derivatives(self, score: FloatArray, target: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the residual, and ones."""
        return score - target, np.ones_like(score)

    def derivatives_on_shares(
        self, functions: Functions, score: SharedReal, target: SharedReal
    ) -> tuple[SharedReal, None]:
        """Return the residual."""
        return score - target, None

    def loss_on_shares(self, losses: Losses) -> SharedReal:
        """Return half the squared error."""
        return losses.half_squares()

    def losses(self, score: FloatArray, target: FloatArray) -> FloatArray:
        """Return half the squared error."""
        result: FloatArray = 0.5 * (score - target) ** 2
        return result

    def prediction(self, score: FloatArray) -> FloatArray:
        """Return the score."""
        values: FloatArray = score[0]
        return values

    def metrics(self, label: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
        """Return the errors, and R2."""
        return of_numbers(label, predicted)


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


def _mean(values: FloatArray, weight: FloatArray | None) -> float:
    """Return the mean, summed exactly: the order of the samples does not matter."""
    if weight is None:
        return math.fsum(values) / len(values)
    return math.fsum(values * weight) / math.fsum(weight)


def sigmoid(score: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-score)), without overflow at either end."""
    result: FloatArray = 0.5 + 0.5 * np.tanh(0.5 * score)
    return result


OBJECTIVES: dict[str, Objective] = {
    objective.name: objective for objective in (Regression(), Classification())
}
"""All objectives, by the name that a job calls them by."""
SEVERAL: dict[str, Callable[[int], Objective]] = {Classification.name: OneVsRest}
"""What makes objectives of more than two classes, by the same names."""


def objective_of(task: str, classes: int = 2) -> Objective:
    """Return the objective of a task, for so many classes; raise ParameterError if it has none."""
    if classes == 2:
        return OBJECTIVES[task]
    if task not in SEVERAL:
        raise ParameterError(f"classes: a {task} is not one of {classes} classes; leave it out")
    return SEVERAL[task](classes)


def objective_with(task: str, outputs: int) -> Objective:
    """Return the objective of a task with so many scores a sample; raise ModelError for none."""
    several = task in SEVERAL and 2 < outputs <= MOST_CLASSES
    found = objective_of(task, outputs if several else 2)
    if found.outputs != outputs:
        raise ModelError(f"a {task} does not have {outputs} outputs")
    return found
