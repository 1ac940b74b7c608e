"""Metrics of predictions, and curves for reports."""

from __future__ import annotations

import numpy as np

from privet.arrays import FloatArray, IndexArray

CurvePoints = list[tuple[float, float]]
MAX_CURVE_POINTS = 200
_CALIBRATION_BINS = 10


def compute_regression_metrics(label: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
    """Return root mean squared and mean absolute error, and R2 unless the label is constant."""
    from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

    constant = bool((label == label[0]).all())
    return {
        "rmse": float(root_mean_squared_error(label, predicted)),
        "mae": float(mean_absolute_error(label, predicted)),
        "r2": None if constant else float(r2_score(label, predicted)),
    }


def compute_binary_metrics(label: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
    """Return metrics of probabilities of class 1; ranking metrics are None for a single class.

    `ks` is the largest difference between the fractions of both classes above a threshold.
    """
    from sklearn.metrics import (
        accuracy_score,
        average_precision_score,
        brier_score_loss,
        log_loss,
        roc_auc_score,
    )

    ranking: dict[str, float | None] = dict.fromkeys(("auc", "ks", "average_precision"))
    if not (label == label[0]).all():
        ranking = {
            "auc": float(roc_auc_score(label, predicted)),
            "ks": max(above for _, above in compute_ks_curve(label, predicted)),
            "average_precision": float(average_precision_score(label, predicted)),
        }
    return {
        "accuracy": float(accuracy_score(label, predicted >= 0.5)),
        **ranking,
        "log_loss": float(log_loss(label, predicted, labels=[0.0, 1.0])),
        "brier": float(brier_score_loss(label, predicted)),
    }


def compute_binary_curves(label: FloatArray, predicted: FloatArray) -> dict[str, CurvePoints]:
    """Return points of curves, at most 200 each; no curves for a single class.

    `roc`: false and true positive rates. `precision_recall`: recall and precision. `ks`: the
    threshold, and the fraction of class 1 above it less that of class 0. `calibration`: the mean
    prediction and the fraction of class 1, of ten groups of samples by their prediction.
    """
    from sklearn.metrics import precision_recall_curve, roc_curve

    if (label == label[0]).all():
        return {}
    false, true, _ = roc_curve(label, predicted)
    precision, recall, _ = precision_recall_curve(label, predicted)
    return {
        "roc": _thinned(false, true),
        "precision_recall": _thinned(recall[::-1], precision[::-1]),
        "ks": _thinned(*np.array(compute_ks_curve(label, predicted)).T),
        "calibration": _calibration(label, predicted),
    }


def compute_ks_curve(label: FloatArray, predicted: FloatArray) -> CurvePoints:
    """Return, for every threshold, the fraction of class 1 above it less that of class 0."""
    from sklearn.metrics import roc_curve

    false, true, thresholds = roc_curve(label, predicted, drop_intermediate=False)
    finite = np.minimum(thresholds, 1.0)  # no sample reaches the first threshold
    return list(zip(finite.tolist(), (true - false).tolist(), strict=True))


def _calibration(label: FloatArray, predicted: FloatArray) -> CurvePoints:
    groups = np.array_split(np.argsort(predicted, kind="stable"), _CALIBRATION_BINS)
    return [(float(predicted[g].mean()), float(label[g].mean())) for g in groups if len(g)]


def _thinned(x: FloatArray, y: FloatArray) -> CurvePoints:
    """Return evenly chosen points, at most `MAX_CURVE_POINTS`, with the first and the last."""
    chosen = np.unique(
        np.linspace(0, len(x) - 1, min(MAX_CURVE_POINTS, len(x))).round().astype(int)
    )
    return list(zip(x[chosen].tolist(), y[chosen].tolist(), strict=True))


def compute_multiclass_metrics(label: FloatArray, predicted: FloatArray) -> dict[str, float | None]:
    """Return accuracy, log loss and the mean one-vs-rest AUC of probabilities (K, N).

    The AUC is None unless every class has a sample.
    """
    from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

    classes = np.arange(len(predicted))
    has_all_classes = bool(np.isin(classes, label).all())
    areas = [roc_auc_score(label == k, predicted[k]) for k in classes] if has_all_classes else None
    return {
        "accuracy": float(accuracy_score(label, choose_likeliest_class(predicted))),
        "log_loss": float(log_loss(label, predicted.T, labels=classes)),
        "auc": None if areas is None else float(np.mean(areas)),
    }


def list_class_probabilities(predicted: FloatArray) -> FloatArray:
    """Return the probability of each class, (N, K), from an objective's predictions."""
    if predicted.ndim == 1:
        return np.stack((1.0 - predicted, predicted), axis=1)
    return np.ascontiguousarray(predicted.T)


def choose_likeliest_class(predicted: FloatArray) -> IndexArray:
    """Return the likeliest class of each sample: the last one, of equally likely classes."""
    probabilities = list_class_probabilities(predicted)
    last = probabilities.shape[1] - 1
    result: IndexArray = last - np.argmax(probabilities[:, ::-1], axis=1)
    return result
