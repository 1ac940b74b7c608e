"""Saving and loading models and estimators."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from privet.boosting.model import Model
from privet.data.encoding import Encoder
from privet.errors import ModelError, ParameterError
from privet.estimators.base import FederatedEstimator
from privet.estimators.estimators import PrivetClassifier, PrivetRegressor
from privet.spec.column_types import NUMBER
from privet.storage import model as model_file
from privet.storage.model import EstimatorRecord

_ESTIMATOR_CLASSES: dict[str, type[FederatedEstimator]] = {
    "classifier": PrivetClassifier,
    "regressor": PrivetRegressor,
}
_PAIRS = "pairs"


def make_estimator_record(estimator: FederatedEstimator) -> EstimatorRecord:
    """Return the record of a fitted estimator: everything except its model."""
    kind = next(name for name, cls in _ESTIMATOR_CLASSES.items() if isinstance(estimator, cls))
    names = getattr(estimator, "feature_names_in_", None)
    classes = getattr(estimator, "classes_", np.empty(0, dtype="U1"))
    return EstimatorRecord(
        kind=kind,  # type: ignore[arg-type]
        parameters={
            name: _to_json_value(name, value) for name, value in estimator.get_params().items()
        },
        partition=estimator.partition_,
        feature_names=None if names is None else [str(name) for name in names],
        classes=_to_json_value("classes", classes.tolist()),
        class_type=classes.dtype.str,
    )


def build_estimator(model: Model, record: EstimatorRecord) -> FederatedEstimator:
    """Return the estimator of a record; raise ModelError if it does not fit the model."""
    columns = [i for part in record.partition.values() for i in part]
    owners = [party for party, part in record.partition.items() for _ in part]
    if sorted(columns) != list(range(len(columns))) or owners != [f.owner for f in model.features]:
        raise ModelError("damaged: the parties' columns are not the model's")
    names = record.feature_names or [f"x{i}" for i in range(len(columns))]
    if [names[i] for i in columns] != list(model.feature_names):
        raise ModelError("damaged: the columns' names are not the model's features'")
    parameters = {name: _from_json_value(value) for name, value in record.parameters.items()}
    try:
        estimator = _ESTIMATOR_CLASSES[record.kind](**parameters)
    except (TypeError, ParameterError) as error:
        raise ModelError(f"its estimator cannot be made here: {error}") from None
    estimator.model_ = model
    estimator.partition_ = record.partition
    estimator.n_features_in_ = len(columns)
    if record.feature_names is not None:
        estimator.feature_names_in_ = np.asarray(record.feature_names, dtype=object)
    encoders = model.encoders or tuple(Encoder(name, NUMBER) for name in model.feature_names)
    by_column = dict(zip(columns, encoders, strict=True))
    estimator.encoders_ = tuple(by_column[i] for i in range(len(columns)))
    if isinstance(estimator, PrivetClassifier):
        if tuple(map(str, record.classes)) != model.classes:
            raise ModelError("damaged: the estimator's classes are not the model's")
        estimator.classes_ = np.array(record.classes, dtype=record.class_type)
    return estimator


def _to_json_value(name: str, value: Any) -> Any:
    """Return a parameter as a JSON value."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {
            _PAIRS: [[_to_json_value(name, k), _to_json_value(name, v)] for k, v in value.items()]
        }
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_to_json_value(name, item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ParameterError(
        f"{name}: {type(value).__name__} cannot be saved; use numbers, text, lists and mappings"
    )


def _from_json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {_from_json_value(k): _from_json_value(v) for k, v in value.get(_PAIRS, [])}
    return [_from_json_value(item) for item in value] if isinstance(value, list) else value


def save_model(model: Model | FederatedEstimator, path: str | Path) -> None:
    """Write a model or a fitted estimator to a file, atomically.

    The file of an estimator also contains its parameters, partition, column names and classes. All
    commands read it as a file of its model.
    """
    if isinstance(model, Model):
        model_file.write_model_file(model, path)
        return
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    model_file.write_model_file(model.model_, path, make_estimator_record(model))


def load_model(path: str | Path) -> Any:
    """Read a file of `save_model`: a `Model` or an estimator.

    Reading does not execute code from the file. Raises ModelError if the file is not a valid model.
    """
    model, record = model_file.read_model_and_estimator(path)
    if record is None:
        return model

    try:
        return build_estimator(model, record)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
