"""The named data sets of the paper's evaluation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from privet.data.frame import Frame, Ids
from privet.data.reader import read_frame
from privet.errors import DataError, UnavailableError

# The names of the UCI data set; the copy on OpenML names the same columns x1 to x23.
_CREDIT_COLUMNS = (
    *("LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"),
    *(f"PAY_{month}" for month in (0, 2, 3, 4, 5, 6)),
    *(f"BILL_AMT{month}" for month in range(1, 7)),
    *(f"PAY_AMT{month}" for month in range(1, 7)),
)
_BINARY_CLASSES = ("0", "1")


@dataclass(frozen=True)
class DataSet:
    """A labelled frame with the name of its task."""

    name: str
    task: str
    """The name of the objective."""
    frame: Frame
    classes: tuple[str, ...] = ()
    """The class names of a classification, the positive class last of two; otherwise empty."""


def load_dataset(name: str) -> DataSet:
    """Load a data set by name.

    `california` and `credit` are read from the folder in the environment variable PRIVET_DATA. If
    their file is not there, scikit-learn downloads it and keeps it in its cache.
    """
    if name not in _LOADERS:
        raise DataError(f"there is no data set {name!r}; there are {', '.join(DATASETS)}")
    return _LOADERS[name]()


def _load_breast_cancer() -> DataSet:
    from sklearn import datasets

    bunch = datasets.load_breast_cancer()
    frame = _make_frame(bunch.data, bunch.target, bunch.feature_names)
    return DataSet("breast-cancer", "classification", frame, _BINARY_CLASSES)


def _load_california() -> DataSet:
    def fetch() -> Frame:
        from sklearn import datasets

        bunch = datasets.fetch_california_housing()
        return _make_frame(bunch.data, bunch.target, bunch.feature_names)

    return DataSet(
        "california", "regression", _load_file_or_fetch("california_housing.csv.gz", fetch)
    )


def _load_credit() -> DataSet:
    def fetch() -> Frame:
        from sklearn import datasets

        bunch = datasets.fetch_openml(data_id=42477, as_frame=False, parser="liac-arff")
        return _make_frame(bunch.data.astype(float), bunch.target.astype(float), _CREDIT_COLUMNS)

    return DataSet(
        "credit",
        "classification",
        _load_file_or_fetch("credit_default.csv.gz", fetch),
        _BINARY_CLASSES,
    )


def _load_file_or_fetch(file_name: str, fetch: Callable[[], Frame]) -> Frame:
    """Read a file from the folder in PRIVET_DATA, or download its data."""
    folder = os.environ.get("PRIVET_DATA")
    if folder and (path := Path(folder) / file_name).exists():
        return read_frame(path, id="id", label="label")
    try:
        return fetch()
    except OSError as error:  # urllib raises it without a network
        reason = f"not in {folder} (PRIVET_DATA)" if folder else "PRIVET_DATA is not set"
        raise UnavailableError(
            f"{file_name} is not to be had: {reason}, and the download failed ({error}); "
            "put the file into a folder and set PRIVET_DATA to that folder"
        ) from error


def _make_regression(name: str, n_features: int, seed: int) -> DataSet:
    from sklearn import datasets

    data, target = datasets.make_regression(
        n_samples=20_000, n_features=n_features, n_informative=10, noise=10.0, random_state=seed
    )
    return DataSet(name, "regression", _make_frame(data, target))


def _make_classification(name: str, n_features: int, seed: int) -> DataSet:
    from sklearn import datasets

    data, target = datasets.make_classification(
        n_samples=20_000, n_features=n_features, n_informative=10, random_state=seed
    )
    return DataSet(name, "classification", _make_frame(data, target), _BINARY_CLASSES)


def _make_frame(
    data: np.ndarray, target: np.ndarray, names: Iterable[object] | None = None
) -> Frame:
    columns = np.ascontiguousarray(data.T, dtype=np.float64)
    labels = [f"x{i}" for i in range(1, len(columns) + 1)] if names is None else names
    return Frame(
        names=tuple(str(name) for name in labels),
        columns=columns,
        ids=Ids.from_texts(range(columns.shape[1])),
        label=target.astype(np.float64),
    )


_LOADERS: dict[str, Callable[[], DataSet]] = {
    "breast-cancer": _load_breast_cancer,
    "california": _load_california,
    "credit": _load_credit,
    "syn-a": lambda: _make_regression("syn-a", 80, seed=1),
    "syn-b": lambda: _make_regression("syn-b", 60, seed=2),
    "syn-c": lambda: _make_classification("syn-c", 40, seed=3),
}
DATASETS = tuple(_LOADERS)
