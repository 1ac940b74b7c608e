"""The two tasks: which labels they take, their loss, its derivatives, and what a score means."""

from __future__ import annotations

import math

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.params import LARGEST, Params
from privet.config import Task
from privet.errors import DataError


def check_label(label: FloatArray, task: Task) -> None:
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
            f"({np.count_nonzero(~finite)} of {len(label)} have none): drop those rows everywhere"
        )
    if (np.abs(label) > LARGEST).any():
        row = int(np.flatnonzero(np.abs(label) > LARGEST)[0])
        raise DataError(
            f"the label of row {row + 1} is {label[row]:g}; above {LARGEST:g} in size, squares of "
            "sums overflow: use a larger unit"
        )
    if task == "classification" and not np.isin(label, (0.0, 1.0)).all():
        row = int(np.flatnonzero(~np.isin(label, (0.0, 1.0)))[0])
        raise DataError(
            f"the label of row {row + 1} is {label[row]:g}; a classification needs 0 and 1"
        )
    if (label == label[0]).all():
        what = f"constant, {label[0]:g}" if task == "regression" else "of a single class"
        raise DataError(f"the label is {what}, in all {len(label)} rows: there is nothing to learn")


def initial_score(label: FloatArray, params: Params) -> float:
    """Return the score that every sample starts from."""
    if params.base_score is not None:
        return params.base_score
    # Summed exactly, so that the order of the samples does not matter here either.
    return math.fsum(label) / len(label) if params.task == "regression" else 0.0


def gradients(score: FloatArray, label: FloatArray, task: Task) -> tuple[FloatArray, FloatArray]:
    """Return the first and second derivatives of the loss by the score, sample by sample."""
    if task == "regression":
        return score - label, np.ones_like(score)
    probability = sigmoid(score)
    return probability - label, probability * (1.0 - probability)


def mean_loss(score: FloatArray, label: FloatArray, task: Task) -> float:
    """Return the mean of half the squared error, or of the logistic loss."""
    if task == "regression":
        return float(np.mean(0.5 * (score - label) ** 2))
    return float(np.mean(np.logaddexp(0.0, score) - label * score))


def sigmoid(score: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-score)), without overflow at either end."""
    result: FloatArray = 0.5 + 0.5 * np.tanh(0.5 * score)
    return result
