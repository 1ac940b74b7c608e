from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privet import DataError, Frame, ParameterError
from privet.arrays import IndexArray
from privet.config.table import TableSpec
from privet.data import sharded_table
from privet.data.reader import read_column_names, read_new_rows, read_selected_rows, read_table
from privet.data.sharded_table import write_sharded_table
from privet.data.sources import base as source_module
from privet.data.sources.open import open_source
from privet.errors import UnavailableError

ROWS = 53
NOON = datetime(2024, 2, 29, 12, tzinfo=timezone.utc)
TYPED = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int32()),
        "whole": pa.array([None, *range(1, ROWS)], pa.uint64()),
        "single": pa.array(np.linspace(0, 1, ROWS), pa.float32()),
        "half": pa.array(np.linspace(0, 1, ROWS).astype(np.float16)),
        "double": np.random.default_rng(0).normal(size=ROWS),
        "price": pa.array([Decimal(row) / 4 for row in range(ROWS)], pa.decimal128(20, 2)),
        "large": pa.array([Decimal(row) / 4 for row in range(ROWS)], pa.decimal256(50, 2)),
        "yes": [row % 3 == 0 for row in range(ROWS)],
        "word": ["äb"[row % 2] for row in range(ROWS)],
        "long": pa.array(["cd"[row % 2] for row in range(ROWS)], pa.large_string()),
        "day": [date(2024, 1, 1) + timedelta(row) for row in range(ROWS)],
        "moment": [NOON + timedelta(row) for row in range(ROWS)],
        "fine": pa.array([row * 10**9 + 1 for row in range(ROWS)], pa.timestamp("ns")),
        "time": [time(row % 24, 1) for row in range(ROWS)],
        "span": pa.array(range(ROWS), pa.duration("s")),
        "nothing": pa.nulls(ROWS),
        "coded": pa.array(["xyz"[row % 3] for row in range(ROWS)]).dictionary_encode(),
    }
)
CSV = "name;zip;note;when;size;churned\n" + "".join(
    f"n{row};0{row % 4};text {row};{row % 28 + 1}.1.2020;{row},5;{('yes', 'no')[row % 3 > 0]}\n"
    for row in range(ROWS)
)


@pytest.fixture(params=[None, 3], ids=["whole batches", "batches of 3 rows"], autouse=True)
def batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param is not None:
        monkeypatch.setattr(source_module, "_CELLS", 1)
        monkeypatch.setattr(source_module, "_MIN_ROWS_PER_BATCH", request.param)
        monkeypatch.setattr(sharded_table, "_ROWS_IN_A_GROUP", 5)


def write_typed_table(tmp_path: Path) -> TableSpec:
    pq.write_table(TYPED, tmp_path / "table.parquet", row_group_size=20)
    return TableSpec(path=str(tmp_path / "table.parquet"), id="id")


def write_text_table(tmp_path: Path) -> TableSpec:
    (tmp_path / "table.csv").write_text(CSV)
    return TableSpec(
        path=str(tmp_path / "table.csv"),
        separator=";",
        quote="",
        decimal=",",
        id="name",
        label="churned",
        drop=["note", "chur*"],
        categorical=["zip"],
        types={"when": "date %d.%m.%Y", "note": "category"},
        missing={"size": ["9,5"], "no*": ["?"]},
    )


def assert_same_frame(found: Frame, expected: Frame) -> None:
    assert (found.names, found.schemas) == (expected.names, expected.schemas)
    assert (found.label_schema, found.warnings == ()) == (
        expected.label_schema,
        expected.warnings == (),
    )
    np.testing.assert_array_equal(found.columns, expected.columns)
    assert found.ids is not None
    assert expected.ids is not None
    assert found.ids.tolist() == expected.ids.tolist()
    for found_values, expected_values in (
        (found.label, expected.label),
        (found.weight, expected.weight),
    ):
        assert (found_values is None) == (expected_values is None)
        if found_values is not None and expected_values is not None:
            np.testing.assert_array_equal(found_values, expected_values)


@pytest.mark.parametrize("write", [write_typed_table, write_text_table])
@pytest.mark.parametrize("shards", [1, 4, 53])
def test_rewritten_table_has_the_same_frame(tmp_path: Path, write: Any, shards: int) -> None:
    spec = write(tmp_path)
    written = write_sharded_table(spec, tmp_path / "shards", shards)
    files = sorted(path.name for path in (tmp_path / "shards").iterdir())
    assert files == [f"{number:05}-of-{shards:05}.parquet" for number in range(shards)]
    assert_same_frame(read_table(written), read_table(spec))
    assert sorted(path.name for path in tmp_path.iterdir())[0] == "shards", (
        "a temporary file is left"
    )


def test_types_are_kept(tmp_path: Path) -> None:
    written = write_sharded_table(write_typed_table(tmp_path), tmp_path / "shards", 3)
    before = open_source(tmp_path / "table.parquet")
    after = open_source(str(written.path))
    assert [after.get_plain_type(name) for name in after.list_columns()] == [
        before.get_plain_type(name) for name in before.list_columns()
    ]
    tables = [
        pa.Table.from_batches(one.iter_batches(one.list_columns())) for one in (before, after)
    ]
    assert tables[0].equals(tables[1].combine_chunks())


@pytest.mark.parametrize("write", [write_typed_table, write_text_table])
@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("count", [4, 30, ROWS])
def test_rows_in_another_order(tmp_path: Path, write: Any, shards: int, count: int) -> None:
    spec = write(tmp_path)
    order: IndexArray = np.random.default_rng(count).permutation(ROWS)[:count]
    written = write_sharded_table(spec, tmp_path / "shards", shards, order)
    found, source = open_source(str(written.path)), open_source(spec.location, spec)
    before, after = (
        pa.Table.from_batches(one.iter_batches(found.list_columns())).combine_chunks()
        for one in (source, found)
    )
    assert after.equals(before.take(order))
    for number, path in enumerate(sorted((tmp_path / "shards").iterdir())):
        rows = pq.ParquetFile(path).metadata.num_rows
        assert rows == count * (number + 1) // shards - count * number // shards
    assert not list((tmp_path / "shards").glob("*.rows"))


def test_missing_shard_file_is_an_error(tmp_path: Path) -> None:
    """Every reader rejects the table: of all rows, selected rows, new rows and column names."""
    written = write_sharded_table(write_typed_table(tmp_path), tmp_path / "shards", 4)
    first = read_selected_rows(written, np.arange(3), (), rules=[()])
    assert first.collect().n_samples == 3
    (tmp_path / "shards" / "00003-of-00004.parquet").unlink()
    complaint = rf"^{tmp_path}/shards: 1 of 4 files is missing, '00003-of-00004\.parquet': put back"
    reads: list[Callable[[], object]] = [
        lambda: read_table(written),
        lambda: read_selected_rows(written, np.arange(3), (), rules=[()]),
        lambda: read_new_rows(written, ()),
        lambda: read_column_names(written),
    ]
    for read in reads:
        with pytest.raises(DataError, match=complaint):
            read()


def test_size_of_row_groups(tmp_path: Path) -> None:
    """Row groups have one size, regardless of the batches."""
    write_sharded_table(write_typed_table(tmp_path), tmp_path / "shards", 2)
    for path, rows in zip(sorted((tmp_path / "shards").iterdir()), (26, 27), strict=True):
        metadata = pq.ParquetFile(path).metadata
        groups = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
        group_rows = min(sharded_table._ROWS_IN_A_GROUP, rows)
        assert groups == [group_rows] * (rows // group_rows) + [rows % group_rows] * (
            rows % group_rows > 0
        )


def test_invalid_arguments_are_rejected(tmp_path: Path) -> None:
    spec = write_typed_table(tmp_path)
    for shards in (0, 1001):
        with pytest.raises(ParameterError, match=f"shards: {shards} is not 1 to 1000"):
            write_sharded_table(spec, tmp_path / "shards", shards)
    with pytest.raises(DataError, match="shards: 54, and there are 53 rows"):
        write_sharded_table(spec, tmp_path / "shards", 54)
    (tmp_path / "shards").mkdir()
    write_sharded_table(spec, tmp_path / "shards", 2)  # into an empty folder
    with pytest.raises(UnavailableError, match="shards: is there already; give the name of a new"):
        write_sharded_table(spec, tmp_path / "shards", 2)
    with pytest.raises(UnavailableError, match=r"table.parquet: is there already"):
        write_sharded_table(spec, tmp_path / "table.parquet", 2)
    with pytest.raises(UnavailableError, match="cannot be written: No such file or directory"):
        write_sharded_table(spec, tmp_path / "not" / "there", 2)


@pytest.mark.parametrize(
    ("counted", "order"), [(ROWS - 1, None), (ROWS + 1, None), (ROWS, np.arange(ROWS) + 1)]
)
def test_table_that_changes_meanwhile_is_rejected(
    tmp_path: Path, counted: int, order: IndexArray | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_text_table(tmp_path)
    monkeypatch.setattr(sharded_table, "_count", lambda *_: counted)
    with pytest.raises(DataError, match=r"table.csv: has other rows than a moment ago"):
        write_sharded_table(spec, tmp_path / "shards", 2, order)
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_bad_row_leaves_no_output(tmp_path: Path) -> None:
    spec = write_text_table(tmp_path)
    (tmp_path / "table.csv").write_text(CSV.replace("text 40", "a;b"))
    with pytest.raises(DataError, match=r"table.csv: row 41 has 7 cells, and the header has 6"):
        write_sharded_table(spec, tmp_path / "shards", 2)
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]
