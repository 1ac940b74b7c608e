from __future__ import annotations

import gzip
import re
import uuid
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from privet import DataError, ParameterError
from privet.data.reader import read_frame
from privet.data.sources import base
from privet.data.sources.base import TableFormatOptions
from privet.data.sources.open import open_source

Writer = Callable[[pa.Table, Path], None]


def write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path)


def write_arrow_file(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def write_arrow_stream(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


def write_feather(table: pa.Table, path: Path) -> None:
    feather.write_feather(table, path, compression="lz4")


WRITERS = [write_parquet, write_arrow_file, write_arrow_stream, write_feather]
every_format = pytest.mark.parametrize("write", WRITERS)

TABLE = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int32()),
        "word": ["ä", None, ""],
        "part": [0.5, None, -1.5],
        "yes": [True, None, False],
        "price": pa.array([Decimal("1.50"), None, Decimal("2.25")]),
        "day": [date(2024, 2, 29), None, date(1969, 1, 1)],
        "moment": pa.array(
            [datetime(2024, 2, 29, 12, tzinfo=timezone.utc), None, None], pa.timestamp("us", "UTC")
        ),
        "nothing": pa.nulls(3),
    }
)


@every_format
@pytest.mark.parametrize("outer", [bytes, gzip.compress])
def test_columns_and_types(tmp_path: Path, write: Writer, outer: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "table"
    write(TABLE, path)
    path.write_bytes(outer(path.read_bytes()))
    table = open_source(path)
    assert table.display_name == str(path)
    assert table.list_columns() == TABLE.schema.names
    assert pa.Table.from_batches(table.iter_batches(table.list_columns())) == TABLE
    assert pa.Table.from_batches(table.iter_batches(["yes", "id"])) == TABLE.select(["yes", "id"])
    assert pa.Table.from_batches(table.iter_batches(["yes", "id"])) == TABLE.select(["yes", "id"])


@every_format
def test_dots_in_column_names(tmp_path: Path, write: Writer) -> None:
    """In Parquet, such names also denote nested columns."""
    path = tmp_path / "table"
    write(pa.table({"a": [1], "a.b": [2], "c": [{"d": 3}], "c.d": [4]}), path)
    (batch,) = open_source(path).iter_batches(["c.d", "a", "a.b"])
    assert batch.to_pydict() == {"c.d": [4], "a": [1], "a.b": [2]}


@pytest.mark.parametrize("write", [write_arrow_file, write_arrow_stream, write_parquet])
def test_types_become_plain(tmp_path: Path, write: Writer) -> None:
    words, runs = ["a", "b", None, "a"], [7.0, 7.0, 7.0, 8.0]
    columns: dict[str, tuple[pa.Array, list[Any], pa.DataType]] = {}
    columns["coded"] = (pa.array(words).dictionary_encode(), words, pa.string())
    if write is not write_parquet:
        encoded = pa.RunEndEncodedArray.from_arrays([3, 4], [7.0, 8.0])
        columns["runs"] = (encoded, runs, pa.float64())
    path = tmp_path / "table"
    write(pa.table({name: column for name, (column, _, _) in columns.items()}), path)
    (batch,) = open_source(path).iter_batches(list(columns))
    for name, (_, values, arrow_type) in columns.items():
        assert batch[name].to_pylist() == values
        assert batch[name].type == arrow_type


@pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 20, reason="pyarrow casts no views yet")
def test_views_become_text(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_arrow_file(pa.table({"a": pa.array(["x", None], pa.string_view())}), path)
    (batch,) = open_source(path).iter_batches(["a"])
    assert batch["a"].equals(pa.array(["x", None], pa.large_string()))


@pytest.mark.skipif(not hasattr(pa, "uuid"), reason="this pyarrow has no UUIDs")
@pytest.mark.parametrize("write", [write_arrow_file, write_arrow_stream, write_parquet])
def test_uuids_become_text(tmp_path: Path, write: Writer) -> None:
    ids = [uuid.UUID(int=7), None, uuid.UUID("0123ABCD-4567-89ab-cdef-0123456789ab")]
    raw = pa.array([None if one is None else one.bytes for one in ids], pa.binary(16))
    path = tmp_path / "table"
    write(pa.table({"id": pa.ExtensionArray.from_storage(pa.uuid(), raw), "raw": raw}), path)
    (batch,) = open_source(path).iter_batches(["id"])
    assert batch["id"].to_pylist() == [None if one is None else str(one) for one in ids]
    with pytest.raises(DataError, match=r"column 'raw' holds fixed_size_binary\[16\]: write it"):
        open_source(path).iter_batches(["raw"])


@pytest.mark.skipif(not hasattr(pa, "json_"), reason="this pyarrow has no JSON")
def test_json_has_no_plain_type(tmp_path: Path) -> None:
    path = tmp_path / "table"
    column = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}']))
    write_arrow_file(pa.table({"odd": column}), path)
    with pytest.raises(DataError, match=r"column 'odd' holds extension<arrow.json>, several val"):
        open_source(path).iter_batches(["odd"])


@every_format
@pytest.mark.parametrize(
    ("values", "arrow_type", "complaint"),
    [
        ([[1]], pa.list_(pa.int64()), "several values in a cell: make columns of them, or leave"),
        ([{"a": 1}], pa.struct({"a": pa.int64()}), "several values in a cell"),
        ([[("a", 1)]], pa.map_(pa.string(), pa.int64()), "several values in a cell"),
        ([b"\xff"], pa.binary(), "write it as numbers, text, dates or timestamps, or leave it out"),
    ],
)
def test_columns_without_a_plain_type(
    tmp_path: Path, write: Writer, values: list[Any], arrow_type: pa.DataType, complaint: str
) -> None:
    """Such a column is an error only if it is requested."""
    path = tmp_path / "table"
    write(pa.table({"odd": pa.array(values, arrow_type), "a": [1]}), path)
    table = open_source(path)
    assert table.list_columns() == ["odd", "a"]
    assert [batch.to_pydict() for batch in table.iter_batches(["a"])] == [{"a": [1]}]
    held = "" if pa.types.is_nested(arrow_type) else re.escape(str(arrow_type))
    with pytest.raises(DataError, match=rf"^{path}: column 'odd' holds {held}.*{complaint}"):
        table.iter_batches(["a", "odd"])


@every_format
def test_times_of_day_and_durations_are_seconds(tmp_path: Path, write: Writer) -> None:
    path = tmp_path / "table"
    columns = [
        pa.array([61_500, None], pa.time32("ms")),
        pa.array([61_500_000, None], pa.time64("us")),
        pa.array([61_500_000_000, None], pa.duration("ns")),
    ]
    write(pa.table(columns, names=["a", "b", "c"]), path)
    frame = read_frame(path)
    assert {schema.column_type.name for schema in frame.schemas} == {"time"}
    np.testing.assert_array_equal(frame.columns, [[61.5, np.nan]] * 3)


@every_format
def test_batches_are_bounded(
    tmp_path: Path, write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are small even if the row groups or batches of the file are large."""
    monkeypatch.setattr(base, "_CELLS", 2000)
    path = tmp_path / "table"
    numbers = np.arange(10_000)
    write(pa.table({"a": numbers, "b": -numbers}), path)
    batches = list(open_source(path).iter_batches(["b", "a"]))
    assert max(batch.num_rows for batch in batches) <= 1000
    assert pa.Table.from_batches(batches).to_pydict() == {
        "b": (-numbers).tolist(),
        "a": numbers.tolist(),
    }


def write_csv(table: pa.Table, path: Path) -> None:
    pacsv.write_csv(table, path)


@pytest.mark.parametrize("write", [*WRITERS, write_csv])
def test_memory_does_not_grow_with_the_table(tmp_path: Path, write: Writer) -> None:
    path = tmp_path / "table"
    rng = np.random.default_rng(0)
    pieces = [pa.table({"a": rng.normal(size=100_000)}) for _ in range(80)]
    write(pa.concat_tables(pieces), path)
    del pieces
    held, before = 0, pa.total_allocated_bytes()
    for batch in open_source(path).iter_batches(["a"]):
        held = max(held, pa.total_allocated_bytes() - before)
        del batch
    assert path.stat().st_size > 60_000_000
    # A batch has 8 MB, or is a block of 2 MB of text; the next ones and raw bytes come on top.
    assert held < 32_000_000


@every_format
@pytest.mark.parametrize("option", [{"separator": ","}, {"names": ["a"]}, {"encoding": "latin-1"}])
def test_csv_options_are_rejected(tmp_path: Path, write: Writer, option: dict[str, Any]) -> None:
    path = tmp_path / "table"
    write(TABLE, path)
    (name,) = option
    with pytest.raises(
        ParameterError, match=rf"^{name}: is for CSV files, and {path} is (Parq|Arr)"
    ):
        open_source(path, TableFormatOptions(**option))
    open_source(path, TableFormatOptions(decimal=","))


@every_format
def test_table_without_rows_is_rejected(tmp_path: Path, write: Writer) -> None:
    path = tmp_path / "table"
    write(TABLE.slice(0, 0), path)
    table = open_source(path)
    with pytest.raises(DataError, match=rf"^{path}: the table has no rows$"):
        list(table.iter_batches(["id"]))


@pytest.mark.parametrize("write", WRITERS[:-1])  # Feather writes no such file
def test_duplicate_column_names_are_rejected(tmp_path: Path, write: Writer) -> None:
    path = tmp_path / "table"
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    write(table, path)
    with pytest.raises(DataError, match=rf"^{path}: the column 'a' is there twice"):
        open_source(path)


@every_format
def test_truncated_files_are_rejected(tmp_path: Path, write: Writer) -> None:
    """A truncated file gives a one-line error, on opening or on reading."""
    whole, path = tmp_path / "whole", tmp_path / "cut"
    rng = np.random.default_rng(0)
    write(pa.table({"a": rng.normal(size=5000), "b": rng.normal(size=5000)}), whole)
    content = whole.read_bytes()
    for share in (0.02, 0.5, 0.9, 0.999):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(DataError, match=rf"^{path}: ") as caught:
            list(open_source(path).iter_batches(["b"]))
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"PAR1not really", "cannot be read: "),
        (b"PAR1", "cannot be read: "),
        (b"ARROW1\0\0not really", "cannot be read: "),
        (b"\xff\xff\xff\xffnot really", "cannot be read: "),
        (b"FEA1....", "this is Feather of version 1: write the table as CSV, Parquet or Arrow"),
        (b"PK\x03\x04....", "this is a zip archive, or an Excel workbook: write the table as CSV"),
        (
            gzip.compress(b"ORC....", mtime=0),
            "this is ORC: write the table as CSV, Parquet or Arrow",
        ),
    ],
)
def test_unreadable_files_are_rejected(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "table"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"^{path}: {complaint}") as caught:
        open_source(path)
    assert len(str(caught.value).splitlines()) == 1
