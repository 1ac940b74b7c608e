"""Classification by the logistic loss: of two classes, and of several classes one-vs-rest."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from privet.arrays import FloatArray
from privet.errors import DataError
from privet.objectives.base import (
    _MAX_INITIAL_SCORE,
    Objective,
    SharedFixedPoint,
    SharedFunctions,
    SharedLosses,
    _mean,
)
from privet.objectives.metrics import (
    CurvePoints,
    compute_binary_curves,
    compute_binary_metrics,
    compute_multiclass_metrics,
)


class Classification(Objective):
    """One of two classes, by the logistic loss."""

    name = "classification"
    normalised_label = False
    constant_hessian = False
    max_hessian = Fraction(1, 4)
    # Only exceeded if more than 64 samples of a leaf are wrong and almost certain.
    max_leaf_weight = 64
    ties_in_first_table = True  # all samples have one of two gradients
    prediction_bits = 10
    primary_metric = "auc"
    error_metrics = frozenset({"log_loss", "brier"})
    is_classification = True

    def max_gradient_sum(
        self,
        n_samples: int,
        l2: Fraction,
        n_leaves: int,
        *,
        centred: bool,
        n_sampled: int | None = None,
    ) -> Fraction:
        """Return the number of samples, because no gradient is larger than 1."""
        return Fraction(n_samples if n_sampled is None else n_sampled)

    def check_label_values(self, label: FloatArray) -> None:
        """Refuse labels other than 0 and 1, and a single class."""
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

    def compute_initial_scores(
        self, label: FloatArray, sample_weight: FloatArray | None = None
    ) -> FloatArray:
        """Return the log-odds of each output's fraction of the samples, between -12 and 12.

        Protocols require scores below 16.
        """
        fractions = np.array([_mean(row, sample_weight) for row in self.make_targets(label)])
        with np.errstate(divide="ignore"):  # for a class of weight zero
            odds: FloatArray = np.log(fractions) - np.log1p(-fractions)
        return np.clip(odds, -_MAX_INITIAL_SCORE, _MAX_INITIAL_SCORE)

    def compute_gradients(
        self, score: FloatArray, target: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return p - y and p (1 - p)."""
        p = compute_sigmoid(score)
        return p - target, p * (1.0 - p)

    def compute_shared_gradients(
        self, functions: SharedFunctions, score: SharedFixedPoint, target: SharedFixedPoint
    ) -> tuple[SharedFixedPoint, SharedFixedPoint]:
        """Return p - y and p (1 - p)."""
        p, slope = functions.evaluate_sigmoid(score)
        return p - target, slope

    def compute_shared_loss(self, losses: SharedLosses) -> SharedFixedPoint:
        """Return the logistic loss."""
        return losses.sum_logistic_losses()

    def compute_losses(self, score: FloatArray, target: FloatArray) -> FloatArray:
        """Return the logistic loss."""
        result: FloatArray = np.logaddexp(0.0, score) - target * score
        return result

    def predict_from_scores(self, score: FloatArray) -> FloatArray:
        """Return the probability of class 1."""
        return compute_sigmoid(score[0])

    def compute_metrics(self, label: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
        """Return metrics of the probabilities, and of the likelier class."""
        return compute_binary_metrics(label, predicted)

    def compute_curves(self, label: FloatArray, predicted: FloatArray) -> dict[str, CurvePoints]:
        """Return curves of the probabilities."""
        return compute_binary_curves(label, predicted)


class OneVsRest(Classification):
    """One of several classes, by the logistic loss of each against the rest.

    A sample has a score for every class. A table has the same splits for all classes; the gain of a
    candidate split is the sum of their gains.
    """

    primary_metric = "accuracy"
    error_metrics = frozenset({"log_loss"})

    def __init__(self, classes: int) -> None:
        self.n_outputs = classes

    def check_label_values(self, label: FloatArray) -> None:
        """Refuse labels other than 0 to K - 1, and a class without rows."""
        known = np.isin(label, range(self.n_outputs))
        if not known.all():
            row = int(np.flatnonzero(~known)[0])
            raise DataError(
                f"the label of row {row + 1} is {label[row]:g}; {self.n_outputs} classes are 0 to "
                f"{self.n_outputs - 1}"
            )
        unused = sorted(set(range(self.n_outputs)) - set(label.astype(int).tolist()))
        if unused:
            raise DataError(
                f"no row of {len(label)} has the label {unused[0]}: there is nothing to learn of it"
            )

    def make_targets(self, label: FloatArray) -> FloatArray:
        """Return 1 for the class of each sample and 0 for the others."""
        classes = np.arange(self.n_outputs)[:, None]
        result: FloatArray = (label == classes).astype(np.float64)
        return result

    def predict_from_scores(self, score: FloatArray) -> FloatArray:
        """Return class probabilities, (K, N): the one-vs-rest probabilities, scaled to sum to 1.

        They are computed from logarithms, because all one-vs-rest probabilities can be tiny.
        """
        logarithms = -np.logaddexp(0.0, -score)
        parts = np.exp(logarithms - logarithms.max(axis=0))
        result: FloatArray = parts / parts.sum(axis=0)
        return result

    def compute_metrics(self, label: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
        """Return metrics of the probabilities of all classes."""
        return compute_multiclass_metrics(label, predicted)

    def compute_curves(self, label: FloatArray, predicted: FloatArray) -> dict[str, CurvePoints]:
        """Return no curves, because each class would need separate ones."""
        return {}


def compute_sigmoid(score: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-score)), without overflow at either end."""
    result: FloatArray = 0.5 + 0.5 * np.tanh(0.5 * score)
    return result
