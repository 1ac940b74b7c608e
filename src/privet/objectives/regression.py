"""The objectives that there are: a number, one of two classes, one of several."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from privet.arrays import FloatArray
from privet.errors import DataError, ModelError, ParameterError
from privet.objectives.base import Functions, Losses, Objective, SharedReal, _mean
from privet.objectives.classification import Classification, OneVsRest
from privet.objectives.metrics import of_numbers

MOST_CLASSES = 32
"""What a table costs grows with the classes."""


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
