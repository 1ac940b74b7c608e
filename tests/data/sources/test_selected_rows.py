from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet import DataError
from privet.data.reader import SelectedRowsSource
from privet.data.sources import base as source_module
from privet.data.sources.base import TableSource
from privet.data.sources.open import open_source
from privet.data.sources.postgres import PostgresQuery

ROWS = 100
TABLE = pa.table({"x": range(ROWS), "word": [f"w{row}" for row in range(ROWS)]})


def write_csv(path: Path) -> None:
    pacsv.write_csv(TABLE, path)


def write_parquet(path: Path) -> None:
    pq.write_table(TABLE, path, row_group_size=9)


def write_arrow(path: Path) -> None:
    with pa.ipc.new_file(path, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=11)


def write_folder(path: Path) -> None:
    for year in range(5):
        (path / f"year={year}").mkdir(parents=True)
        part = TABLE.slice(20 * year, 20)
        pq.write_table(part, path / f"year={year}" / "a.parquet", row_group_size=6)


def write_folder_of_csv(path: Path) -> None:
    for part in range(5):
        path.mkdir(exist_ok=True)
        pacsv.write_csv(TABLE.slice(20 * part, 20), path / f"{part}.csv")


WRITERS = (write_csv, write_parquet, write_arrow, write_folder, write_folder_of_csv)


def read(source: TableSource, rows: Any, *columns: str) -> dict[str, list[Any]]:
    selected = SelectedRowsSource(source, np.array(rows, dtype=np.intp))
    found = pa.Table.from_batches(selected.iter_batches(columns or ["word", "x"]))
    return {
        name: [int(str(cell).strip("w")) for cell in found[name].to_pylist()]
        for name in found.column_names
    }


@pytest.fixture(scope="module", params=WRITERS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TableSource:
    path = tmp_path_factory.mktemp("selected") / "table"
    request.param(path)
    return open_source(path)


@given(rows=st.sets(st.integers(0, ROWS - 1), min_size=1))
def test_any_rows(source: TableSource, rows: set[int]) -> None:
    expected = sorted(rows)
    assert read(source, expected) == {"word": expected, "x": expected}


def test_rows_beyond_the_table_are_rejected(source: TableSource) -> None:
    with pytest.raises(DataError, match=r"row 101 is not there any more, but 100 rows: the table"):
        read(source, [3, 100])
    with pytest.raises(DataError, match="the table has no rows"):
        read(source, [])
    for rows in ([4, 3], [3, 3], [-1, 3]):
        with pytest.raises(ValueError, match="not sorted"):
            read(source, rows)


def test_batches_are_bounded(source: TableSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_CELLS", 8)
    monkeypatch.setattr(source_module, "_MIN_ROWS_PER_BATCH", 4)
    rows = np.arange(1, ROWS, 2)
    batches = list(SelectedRowsSource(source, rows).iter_batches(["x", "word"]))
    assert max(batch.num_rows for batch in batches) <= 4
    assert sum(batch.num_rows for batch in batches) == len(rows)


def test_columns_of_folder_names(tmp_path: Path) -> None:
    write_folder(tmp_path / "table")
    found = read(open_source(tmp_path / "table"), [0, 19, 20, 45, 99], "year")
    assert found == {"year": [0, 0, 1, 2, 4]}


def test_other_row_groups_are_not_read(tmp_path: Path) -> None:
    """Damage in other row groups is not noticed."""
    path = tmp_path / "table.parquet"
    write_parquet(path)
    content = bytearray(path.read_bytes())
    metadata = pq.ParquetFile(path).metadata
    for group in (g for g in range(metadata.num_row_groups) if g not in (2, 5)):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            content[start : start + chunk.total_compressed_size] = (
                b"\xff" * chunk.total_compressed_size
            )
    path.write_bytes(content)
    source = open_source(path)
    rows = [18, 26, 45, 53]
    assert read(source, rows) == {"word": rows, "x": rows}
    with pytest.raises(DataError, match="cannot be read"):
        read(source, [17, 18])


def test_other_files_are_not_opened(tmp_path: Path) -> None:
    write_folder(tmp_path)
    source = open_source(tmp_path)
    for year in (0, 1, 3):
        (tmp_path / f"year={year}" / "a.parquet").unlink()
    assert read(source, [40, 59, 80], "x") == {"x": [40, 59, 80]}
    with pytest.raises(DataError, match=r"year=3/a.parquet: No such file"):
        read(source, [40, 60], "x")


@pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 20, reason="pyarrow casts no views yet")
def test_types_that_arrow_cannot_take(tmp_path: Path) -> None:
    runs = pc.run_end_encode(pa.array([7.0, 7.0, 8.0, 8.0]))
    columns = {"runs": runs, "view": pa.array(["a", None, "c", "d"], pa.string_view())}
    path = tmp_path / "table"
    with pa.ipc.new_file(path, pa.table(columns).schema) as writer:
        writer.write_table(pa.table(columns))
    (batch,) = SelectedRowsSource(open_source(path), np.array([1, 3])).iter_batches(
        ["runs", "view"]
    )
    assert batch.to_pydict() == {"runs": [7.0, 8.0], "view": [None, "d"]}


def test_rows_of_a_query(postgres: Callable[..., None]) -> None:
    source = open_source(
        PostgresQuery(sql="SELECT x, 'w' || x AS word FROM generate_series(0, 99) AS x")
    )
    assert read(source, [3, 50, 99]) == {"word": [3, 50, 99], "x": [3, 50, 99]}
