"""Weights as scikit-learn means them: how often a sample is there."""

from __future__ import annotations

import numpy as np

from privet.arrays import FloatArray
from privet.terms.params import Params
from privet.terms.weights import check_weights


def as_if_repeated(
    X: FloatArray, label: FloatArray, weight: FloatArray, params: Params
) -> tuple[FloatArray, FloatArray, FloatArray, Params]:
    """Return what trains as if every sample were there as often as its weight says.

    Trainings take weights in means; what is added to sums of them is, too. Samples without a
    weight are left out: they would have a say in the buckets.
    """
    check_weights(weight)
    there = weight > 0
    mean = float(np.mean(weight[there]))
    compared = ("l2", "min_child_weight", "min_gain")
    relative = params.model_copy(update={name: getattr(params, name) / mean for name in compared})
    return X[there], label[there], weight[there], relative
