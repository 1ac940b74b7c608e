"""Cells of a table in memory or spilled to disk: the same numbers, one column at a time."""

from __future__ import annotations

import errno
import os
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privet import UnavailableError
from privet.arithmetic import large_arrays
from privet.arithmetic.large_arrays import allocate_array
from privet.boosting.preparation import prepare_data
from privet.config.table import TableSpec
from privet.data import columns as columns_module
from privet.data.columns import SpillStore, StoredColumn
from privet.data.reader import read_lazy_frame
from privet.spec.params import Params

ROWS, COLUMNS = 30_000, 24


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Treat all data as too large for memory; return the folder of temporary files."""
    monkeypatch.setattr(columns_module, "MAX_MEMORY_BYTES", 1)
    monkeypatch.setattr(large_arrays, "MAX_MEMORY_BYTES", 0)
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def check_columns() -> None:
    store, rng = SpillStore(), np.random.default_rng(3)
    columns = [StoredColumn(store) for _ in range(3)]
    expected: list[list[float]] = [[], [], []]
    for size in (5, 0, 1, 1000):
        for column, so_far in zip(columns, expected, strict=True):
            values = rng.normal(size=size)
            values[::7] = np.nan
            column.append(values)
            so_far.extend(values.tolist())
        for column, so_far in zip(columns, expected, strict=True):
            assert column.length == len(so_far)
            np.testing.assert_array_equal(column.read(), so_far)


def test_columns_that_grow_in_turn() -> None:
    check_columns()


def test_columns_on_disk(on_disk: Path) -> None:
    check_columns()
    assert not list(on_disk.iterdir())  # no file has a name


def test_large_arrays_are_memory_mapped(on_disk: Path) -> None:
    found = allocate_array((3, 5), np.uint8)
    assert isinstance(found, np.memmap)
    found[:] = np.arange(15).reshape(3, 5)
    assert found[2].tolist() == [10, 11, 12, 13, 14]
    assert not list(on_disk.iterdir())


def test_small_arrays_are_in_memory() -> None:
    assert not isinstance(allocate_array((3, 5), np.uint8), np.memmap)


def test_full_disk_is_reported(on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(UnavailableError, match=r"scratch: No space left .* TMPDIR name another"):
        allocate_array((3_000_000,), np.uint8)
    store = SpillStore()
    monkeypatch.setattr(store._file, "write", full)
    with pytest.raises(UnavailableError, match=r"No space left on device: 1 MB are to be kept"):
        StoredColumn(store).append(np.zeros(125_000))


@pytest.mark.parametrize("has_folder", [True, False])
def test_unusable_temporary_folder_is_reported(
    on_disk: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_folder: bool
) -> None:
    """The error does not name the table."""
    on_disk.rmdir()
    found = "scratch: No such file or directory"
    if not has_folder:
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(on_disk)])
        found = r"^the folder for temporary files: No usable .*scratch'\]"
    expected = f"{found}: [0-9]+ MB are to be kept there .* TMPDIR name another"
    with pytest.raises(UnavailableError, match=expected):
        allocate_array((3_000_000,), np.uint8)
    spec = table(tmp_path / "table.parquet")
    with pytest.raises(UnavailableError, match=expected) as failed:
        read_lazy_frame(spec)
    assert "table.parquet" not in str(failed.value)


def table(path: Path) -> TableSpec:
    rng = np.random.default_rng(1)
    words = np.array(["red", "green", "blue"])
    cells: dict[str, Any] = {f"x{j}": rng.normal(size=ROWS) for j in range(COLUMNS)}
    cells |= {"id": np.arange(ROWS), "y": rng.normal(size=ROWS)}
    cells |= {"word": words[rng.integers(3, size=ROWS)], "other": words[rng.integers(3, size=ROWS)]}
    pq.write_table(pa.table(cells), path)
    return TableSpec(path=str(path), id="id", label="y", types={"other": "one-hot"})


def test_preparation_of_a_table_larger_than_memory(
    tmp_path: Path, on_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Preparation needs the memory of a few columns, and gives the same result as in memory."""
    spec, params = table(tmp_path / "table.parquet"), Params(task="regression", validation=0.1)
    tracemalloc.start()
    found = prepare_data("bank", read_lazy_frame(spec), params)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    column = 8 * ROWS
    assert peak < 12 * column < COLUMNS * column
    assert isinstance(found.columns.buckets, np.memmap)
    monkeypatch.undo()
    expected = prepare_data("bank", read_lazy_frame(spec).collect().to_lazy(), params)
    assert not isinstance(expected.columns.buckets, np.memmap)
    assert found.columns.names == expected.columns.names
    np.testing.assert_array_equal(found.columns.buckets, expected.columns.buckets)
    np.testing.assert_array_equal(found.columns.thresholds, expected.columns.thresholds)
    assert found.encoders == expected.encoders
