"""Gradient boosted decision tables over columns that several organisations hold."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from privet.errors import (
    DataError,
    InputError,
    ModelError,
    ParameterError,
    PrivetError,
    UnavailableError,
)
from privet.version import __version__

if TYPE_CHECKING:
    from privet.boosting.model import Feature, Model
    from privet.data.datasets import DATASETS, DataSet, load_dataset
    from privet.data.frame import Frame
    from privet.data.reader import read_frame
    from privet.estimators import PrivetClassifier, PrivetRegressor
    from privet.estimators.persistence import load_model, save_model
    from privet.experiments.comparison import Comparison, compare
    from privet.experiments.experiment import Experiment, Scenario, run
    from privet.experiments.report import Report
    from privet.runtime.local.launcher import Outcome, simulate
    from privet.spec.params import Params

# Imported on first use: they import numpy, scikit-learn, TLS and multiprocessing, which takes
# seconds that a command without need of them should not spend.
_LAZY_IMPORTS = {
    "DATASETS": "privet.data.datasets",
    "Comparison": "privet.experiments.comparison",
    "DataSet": "privet.data.datasets",
    "Experiment": "privet.experiments.experiment",
    "Feature": "privet.boosting.model",
    "Frame": "privet.data.frame",
    "Model": "privet.boosting.model",
    "Outcome": "privet.runtime.local.launcher",
    "Params": "privet.spec.params",
    "PrivetClassifier": "privet.estimators",
    "PrivetRegressor": "privet.estimators",
    "Report": "privet.experiments.report",
    "Scenario": "privet.experiments.experiment",
    "compare": "privet.experiments.comparison",
    "load_dataset": "privet.data.datasets",
    "load_model": "privet.estimators.persistence",
    "read_frame": "privet.data.reader",
    "run": "privet.experiments.experiment",
    "save_model": "privet.estimators.persistence",
    "simulate": "privet.runtime.local.launcher",
}

__all__ = [
    "DATASETS",
    "Comparison",
    "DataError",
    "DataSet",
    "Experiment",
    "Feature",
    "Frame",
    "InputError",
    "Model",
    "ModelError",
    "Outcome",
    "ParameterError",
    "Params",
    "PrivetClassifier",
    "PrivetError",
    "PrivetRegressor",
    "Report",
    "Scenario",
    "UnavailableError",
    "__version__",
    "compare",
    "load_dataset",
    "load_model",
    "read_frame",
    "run",
    "save_model",
    "simulate",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'privet' has no attribute {name!r}")
    return getattr(import_module(_LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
