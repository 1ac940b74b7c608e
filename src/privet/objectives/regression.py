"""The regression objective, and the registry of all objectives."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from privet.arrays import FloatArray
from privet.errors import DataError, ModelError, ParameterError
from privet.objectives.base import Objective, SharedFixedPoint, SharedFunctions, SharedLosses, _mean
from privet.objectives.classification import Classification, OneVsRest
from privet.objectives.metrics import compute_regression_metrics

MAX_CLASSES = 32
"""The largest number of classes; the cost of a table grows with it."""


class Regression(Objective):
    """Regression by half the squared error."""

    name = "regression"
    normalised_label = True
    constant_hessian = True
    max_hessian = Fraction(1)
    max_leaf_weight = 8  # a label is at most 4 in absolute value
    ties_in_first_table = False
    prediction_bits = 12
    primary_metric = "rmse"
    error_metrics = frozenset({"rmse", "mae"})

    def max_gradient_sum(
        self,
        n_samples: int,
        l2: Fraction,
        n_leaves: int,
        *,
        centred: bool,
        n_sampled: int | None = None,
    ) -> Fraction:
        """Return N/2, or about half of it if scores start from the mean.

        Let q be the sum of squared residuals. The label's unit makes it at most N/4 at first, and
        training never raises it. A sum of a residuals is at most sqrt(a q), which is at most N/2.
        If all residuals add up to g, it is at most sqrt(a (N - a) q / N) + (a / N) |g|, by the same
        inequality for residuals less their mean: N/4 + |g|. From the mean, g is 0 at first. The sum
        of residuals that a leaf of n samples leaves over is at most
        sqrt(n q_leaf) l2 / (n + l2) <= sqrt(l2 q_leaf) / 2, and that of all leaves of a table is at
        most sqrt(l2 leaves q) / 2.

        A table that is trained on a part of the samples can raise the residuals of the others.
        Then q is checked, and g is not bounded.
        """
        if n_sampled is not None:
            squares = math.ceil(n_sampled * self.max_squared_gradients(n_samples) * (1 << 20))
            return Fraction(math.isqrt(squares) + 1, 1 << 10)
        half = Fraction(n_samples, 2)
        if not centred:
            return half
        rest = Fraction(math.isqrt(math.ceil(l2 * n_leaves * n_samples)) + 1, 4)
        return min(half, half / 2 + rest)

    def max_squared_gradients(self, n_samples: int) -> Fraction:
        """Return N/4, the bound of the initial sum, times the tolerance of the check."""
        return Fraction(n_samples, 4) * Fraction(65, 64) ** 2

    def check_label_values(self, label: FloatArray) -> None:
        """Refuse a constant label."""
        if (label == label[0]).all():
            raise DataError(
                f"the label is constant, {label[0]:g}, in all {len(label)} rows: there is nothing "
                "to learn"
            )

    def compute_initial_scores(
        self, label: FloatArray, sample_weight: FloatArray | None = None
    ) -> FloatArray:
        """Return the mean, summed exactly: the order of the samples does not matter."""
        return np.array([_mean(label, sample_weight)])

    def compute_gradients(
        self, score: FloatArray, target: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the residual, and ones."""
        return score - target, np.ones_like(score)

    def compute_shared_gradients(
        self, functions: SharedFunctions, score: SharedFixedPoint, target: SharedFixedPoint
    ) -> tuple[SharedFixedPoint, None]:
        """Return the residual."""
        return score - target, None

    def compute_shared_loss(self, losses: SharedLosses) -> SharedFixedPoint:
        """Return half the squared error."""
        return losses.sum_half_squares()

    def compute_losses(self, score: FloatArray, target: FloatArray) -> FloatArray:
        """Return half the squared error."""
        result: FloatArray = 0.5 * (score - target) ** 2
        return result

    def predict_from_scores(self, score: FloatArray) -> FloatArray:
        """Return the score."""
        values: FloatArray = score[0]
        return values

    def compute_metrics(self, label: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
        """Return the errors, and R2."""
        return compute_regression_metrics(label, predicted)


OBJECTIVES: dict[str, Objective] = {
    objective.name: objective for objective in (Regression(), Classification())
}
"""All objectives, by their names in jobs."""

MULTICLASS_OBJECTIVES: dict[str, Callable[[int], Objective]] = {Classification.name: OneVsRest}
"""The constructors of objectives of more than two classes, by the same names."""


def create_objective(task: str, n_classes: int = 2) -> Objective:
    """Return the objective of a task with `n_classes` classes, or raise ParameterError."""
    if n_classes == 2:
        return OBJECTIVES[task]
    if task not in MULTICLASS_OBJECTIVES:
        raise ParameterError(f"classes: a {task} is not one of {n_classes} classes; leave it out")
    return MULTICLASS_OBJECTIVES[task](n_classes)


def create_objective_with_outputs(task: str, outputs: int) -> Objective:
    """Return the objective of a task with `outputs` scores a sample, or raise ModelError."""
    several = task in MULTICLASS_OBJECTIVES and 2 < outputs <= MAX_CLASSES
    found = create_objective(task, outputs if several else 2)
    if found.n_outputs != outputs:
        raise ModelError(f"a {task} does not have {outputs} outputs")
    return found
