from __future__ import annotations

import urllib.error
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import numpy as np
import pytest

from privet import DATASETS, DataError, DataSet, UnavailableError, load_dataset


@pytest.mark.parametrize(
    ("name", "task", "n_features", "n_samples"),
    [
        ("breast-cancer", "classification", 30, 569),
        ("california", "regression", 8, 20_640),
        ("credit", "classification", 23, 30_000),
        ("syn-a", "regression", 80, 20_000),
        ("syn-b", "regression", 60, 20_000),
        ("syn-c", "classification", 40, 20_000),
    ],
)
def test_the_papers_data_sets(
    real_data: Callable[[str], DataSet], name: str, task: str, n_features: int, n_samples: int
) -> None:
    data = real_data(name)
    assert (data.name, data.task) == (name, task)
    assert data.frame.columns.shape == (n_features, n_samples)
    assert np.isfinite(data.frame.columns).all()
    assert data.frame.label is not None
    assert data.frame.ids is not None
    if task == "classification":
        assert set(data.frame.label) == {0.0, 1.0}


def test_published_counts_and_means(real_data: Callable[[str], DataSet]) -> None:
    """Compare with the values that the sources of the data publish."""
    california = real_data("california").frame
    assert california.names[0] == "MedInc"
    assert california.columns[0].mean() == pytest.approx(3.870671, abs=1e-6)
    credit = real_data("credit").frame
    assert credit.label is not None
    assert credit.label.sum() == 6636
    assert credit.columns[4].mean() == pytest.approx(35.4855, abs=1e-4)


def test_synthetic_data_are_the_same_every_time() -> None:
    first, second = load_dataset("syn-c"), load_dataset("syn-c")
    assert (first.frame.columns == second.frame.columns).all()


def test_unknown_name_is_rejected() -> None:
    with pytest.raises(DataError, match=f"'adult'; there are {', '.join(DATASETS)}"):
        load_dataset("adult")


def _no_network(**_: object) -> NoReturn:
    raise urllib.error.URLError("no route to host")


@pytest.mark.parametrize(
    ("name", "fetcher", "file_name"),
    [
        ("california", "fetch_california_housing", "california_housing.csv.gz"),
        ("credit", "fetch_openml", "credit_default.csv.gz"),
    ],
)
def test_missing_file_without_network_is_an_error(
    name: str, fetcher: str, file_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"sklearn.datasets.{fetcher}", _no_network)
    monkeypatch.setenv("PRIVET_DATA", str(tmp_path))
    with pytest.raises(UnavailableError, match=f"{file_name}.*{tmp_path}.*no route to host"):
        load_dataset(name)
    monkeypatch.delenv("PRIVET_DATA")
    with pytest.raises(UnavailableError, match=f"{file_name}.*PRIVET_DATA is not set"):
        load_dataset(name)


def test_download_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenML's copy of the credit data gets the names of the original."""
    data, target = np.ones((3, 23)), np.array(["0", "1", "0"])
    options_used: dict[str, object] = {}

    def fetch(**options: object) -> SimpleNamespace:
        options_used.update(options)
        return SimpleNamespace(data=data, target=target)

    monkeypatch.delenv("PRIVET_DATA", raising=False)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    frame = load_dataset("credit").frame
    assert options_used["data_id"] == 42477
    assert frame.names[:7] == ("LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE", "PAY_0", "PAY_2")
    assert frame.label is not None
    assert frame.label.tolist() == [0.0, 1.0, 0.0]


def test_file_and_download_have_the_same_names(
    real_data: Callable[[str], DataSet],
) -> None:
    from privet.data.datasets import _CREDIT_COLUMNS

    assert real_data("credit").frame.names == _CREDIT_COLUMNS
