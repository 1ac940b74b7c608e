"""Saving and loading what was trained: a model, or the estimator that has it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from privet.boosting.model import Model
from privet.errors import ModelError
from privet.files import model_file

if TYPE_CHECKING:
    from privet.estimator.base import FederatedEstimator


def save_model(model: Model | FederatedEstimator, path: str | Path) -> None:
    """Write a model or a fitted estimator to a file, atomically.

    Of an estimator the file has the parameters, the partition, the names of columns and the
    classes, too. Every command reads it as the model's.
    """
    if isinstance(model, Model):
        model_file.save_model(model, path)
        return
    from sklearn.utils.validation import check_is_fitted

    from privet.estimator.saved import record_of

    check_is_fitted(model)
    model_file.save_model(model.model_, path, record_of(model))


def load_model(path: str | Path) -> Any:
    """Read what `save_model` wrote: a `Model`, or the estimator.

    Reading runs no code of the file. Raises ModelError if it is not one, or not a sound one.
    """
    model, record = model_file.load_with_estimator(path)
    if record is None:
        return model
    from privet.estimator.saved import estimator_of

    try:
        return estimator_of(model, record)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
