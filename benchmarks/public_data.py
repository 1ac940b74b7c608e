"""Public data sets in addition to the paper's.

`adult`, `bank` and both of `dry-bean` are read in their published form from the folder `raw` in
PRIVET_DATA; the others come with scikit-learn. A number at the end of a name is the class count.
Text becomes alphabetical codes; empty cells and `?` are missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from privet.data.datasets import DataSet, load_dataset
from privet.data.frame import Frame
from privet.errors import UnavailableError


@cache
def load(name: str) -> DataSet:
    """Return a data set by name."""
    return _LOADERS[name]() if name in _LOADERS else load_dataset(name)


def _raw(file_name: str, **options: Any) -> Any:
    import pandas as pd

    path = Path(os.environ.get("PRIVET_DATA", ".")) / "raw" / file_name
    if not path.exists():
        raise UnavailableError(f"there is no {path}: set PRIVET_DATA to the folder above raw")
    return pd.read_csv(path, skipinitialspace=True, na_values=["?"], **options)


def _adult() -> DataSet:
    table = _raw("adult.data.gz", header=None)
    table.columns = [f"column{number}" for number in range(1, 16)]
    return _classes("adult", table.iloc[:, :-1], table.iloc[:, -1] == ">50K")


def _bank() -> DataSet:
    table = _raw("bank.csv.gz", sep=";")
    return _classes("bank", table.drop(columns="y"), table["y"] == 1)


def _dry_bean() -> DataSet:
    """Return the two most common classes, which are similar."""
    table = _raw("dry_bean.csv.gz")
    table = table[table["Class"].isin(["DERMASON", "SIRA"])]
    features = table.drop(columns=["Bean ID", "Class"])
    return _classes("dry-bean", features, table["Class"] == "SIRA")


def _classes(name: str, features: Any, positive: Any) -> DataSet:
    columns = [_numbers(features[column]) for column in features]
    label = positive.to_numpy(dtype=np.float64)
    frame = Frame(tuple(map(str, features.columns)), np.stack(columns), label=label)
    return DataSet(name, "classification", frame)


def _dry_bean_7() -> DataSet:
    """Return all classes."""
    table = _raw("dry_bean.csv.gz")
    codes, names = table["Class"].factorize(sort=True)
    features = table.drop(columns=["Bean ID", "Class"])
    return _several("dry-bean-7", features.to_numpy(dtype=np.float64), codes, names)


def _numbers(column: Any) -> Any:
    """Return numbers as they are, and texts as codes."""
    if column.dtype.kind in "iuf":
        return column.to_numpy(dtype=np.float64)
    codes, _ = column.factorize(sort=True)
    return np.where(codes < 0, np.nan, codes)


def _diabetes() -> DataSet:
    from sklearn.datasets import load_diabetes

    return _made("diabetes", "regression", *load_diabetes(return_X_y=True))


def _friedman() -> DataSet:
    from sklearn.datasets import make_friedman1

    made = make_friedman1(n_samples=10_000, noise=1.0, random_state=5)
    return _made("friedman-1", "regression", *made)


def _hastie() -> DataSet:
    from sklearn.datasets import make_hastie_10_2

    data, label = make_hastie_10_2(n_samples=10_000, random_state=6)
    return _made("hastie-10-2", "classification", data, label > 0)


def _digits() -> DataSet:
    """Return images of digits: below 5, or not. Most pixels have few values."""
    from sklearn.datasets import load_digits

    data, label = load_digits(return_X_y=True)
    return _made("digits", "classification", data, label >= 5)


def _digits_10() -> DataSet:
    """Return images of digits, each a class."""
    from sklearn.datasets import load_digits

    data, label = load_digits(return_X_y=True)
    return _several("digits-10", data, label, range(10))


def _made_5() -> DataSet:
    """Return five classes of two clusters each."""
    from sklearn.datasets import make_classification

    data, label = make_classification(
        n_samples=12_000, n_features=20, n_informative=8, n_classes=5, random_state=7
    )
    return _several("made-5", data, label, range(5))


def _several(name: str, data: Any, label: Any, classes: Iterable[object]) -> DataSet:
    made = _made(name, "classification", data, label)
    return replace(made, classes=tuple(map(str, classes)))


def _made(name: str, task: str, data: Any, label: Any) -> DataSet:
    names = tuple(f"x{number}" for number in range(1, data.shape[1] + 1))
    columns = np.ascontiguousarray(data.T, dtype=np.float64)
    return DataSet(name, task, Frame(names, columns, label=label.astype(np.float64)))


_LOADERS: dict[str, Callable[[], DataSet]] = {
    "adult": _adult,
    "bank": _bank,
    "dry-bean": _dry_bean,
    "diabetes": _diabetes,
    "friedman-1": _friedman,
    "hastie-10-2": _hastie,
    "digits": _digits,
}
OTHERS = tuple(_LOADERS)
"""Names of regressions and of data sets with two classes."""
_LOADERS |= {"digits-10": _digits_10, "dry-bean-7": _dry_bean_7, "made-5": _made_5}
