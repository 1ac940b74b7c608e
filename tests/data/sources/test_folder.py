from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privet import DataError
from privet.data.sources.base import TableFormatOptions, TableSource
from privet.data.sources.open import open_source


def write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def read(source: TableSource, *columns: str) -> dict[str, list[Any]]:
    table = pa.Table.from_batches(source.iter_batches(columns or source.list_columns()))
    found: dict[str, list[Any]] = table.to_pydict()
    return found


def test_files_are_read_by_name(tmp_path: Path) -> None:
    """Columns can differ in order; metadata of other programs are ignored."""
    write(tmp_path / "b.parquet", x=[3.0], y=["c"])
    write(tmp_path / "a.parquet", x=[1.0, 2.0], y=["a", "b"])
    write(tmp_path / "deep" / "c.parquet", y=["d"], x=[4.0])
    for name in ("_SUCCESS", ".hidden", "_delta_log/0.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    source = open_source(tmp_path)
    assert source.display_name == str(tmp_path)
    assert source.list_columns() == ["x", "y"]
    assert read(source) == {"x": [1.0, 2.0, 3.0, 4.0], "y": ["a", "b", "c", "d"]}
    assert read(open_source(f"{tmp_path}/"), "y") == {"y": ["a", "b", "c", "d"]}
    assert read(open_source(tmp_path.as_uri()), "y", "x") == read(source, "y", "x")


def test_folder_names_become_columns(tmp_path: Path) -> None:
    """Hive, Spark and pyarrow write such folders."""
    table = pa.table(
        {
            "x": [1.0, 2.0, 3.0, 4.0],
            "year": [2023, 2024, None, 2023],
            "place": ["Köln/Süd", "Rome", "Rome", "a=b"],
        }
    )
    pq.write_to_dataset(table, tmp_path, partition_cols=["year", "place"])
    source = open_source(tmp_path)
    assert source.list_columns() == ["x", "year", "place"]
    (rows, expected) = (
        sorted(zip(*found.values(), strict=True), key=lambda row: row[0])
        for found in (read(source), table.to_pydict())
    )
    assert rows == expected
    assert next(source.iter_batches(["year", "place"])).schema.types == [pa.int64(), pa.string()]
    assert sorted(read(source, "place")["place"]) == ["Köln/Süd", "Rome", "Rome", "a=b"]


def test_folder_values_that_are_not_all_integers(tmp_path: Path) -> None:
    write(tmp_path / "code=007" / "a", x=[1.0])
    write(tmp_path / "code=8" / "b", x=[2.0])
    assert read(open_source(tmp_path)) == {"x": [1.0, 2.0], "code": ["007", "8"]}


def test_folders_of_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x;y\n1;2\n")
    (tmp_path / "b.csv").write_text("y;x\n3;4\n")
    assert read(open_source(tmp_path)) == {"x": ["1", "4"], "y": ["2", "3"]}
    (tmp_path / "b.csv").write_text("y;x\n3;4;5\n")
    complaint = rf"^{tmp_path}/b\.csv: row 1 has 3 cells"
    with pytest.raises(DataError, match=complaint):
        read(open_source(tmp_path, TableFormatOptions(separator=";")))


def test_a_file_without_rows(tmp_path: Path) -> None:
    write(tmp_path / "a", x=pa.array([], pa.int64()))
    with pytest.raises(DataError, match=rf"^{tmp_path}: the table has no rows$"):
        read(open_source(tmp_path))
    write(tmp_path / "b", x=[1])
    assert read(open_source(tmp_path)) == {"x": [1]}


@pytest.mark.parametrize(
    "names",
    [
        ["00000.parquet", "00002.parquet"],
        ["part-00000-of-00003.parquet"],
        ["00001-of-00003.csv.parquet"],
        ["1-of-3.parquet"],
        ["00000-of-00001.parquet", "more.parquet"],
        ["a/00000-of-00001.parquet", "b/00000-of-00002.parquet", "b/00001-of-00002.parquet"],
    ],
)
def test_names_without_a_missing_shard(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        write(tmp_path / name, x=[1])
    assert read(open_source(tmp_path)) == {"x": [1] * len(names)}


@pytest.mark.parametrize(
    ("names", "place", "complaint"),
    [
        (["00000-of-00002"], "", r"1 of 2 files is missing, '00001-of-00002\.parquet': put back"),
        (
            ["00001-of-00003"],
            "",
            r"2 of 3 files are missing, '00000-of-00003\.parquet', '00002-of-00003\.parquet': put",
        ),
        (
            ["00000-of-00002", "00001-of-00002", "00002-of-00002"],
            "",
            r"'00002-of-00002\.parquet' is none of 2 files: remove it$",
        ),
        (["00007-of-01000"], "", r"999 of 1000 files are missing, (\S+, ){2}\S+ and 996 more: put"),
        (
            ["a/00000-of-00001", "b/00000-of-00002"],
            "/b",
            r"1 of 2 files is missing, '00001-of-00002\.parquet'",
        ),
        (
            ["00000-of-00001", "00000-of-00002", "00001-of-00002", "00000-of-00003"],
            "",
            "there are files of 1, 2 and 3 in one folder, by their names: keep those of one table$",
        ),
    ],
)
@pytest.mark.parametrize("address", [False, True])
def test_missing_shards_are_rejected(
    tmp_path: Path, names: list[str], place: str, complaint: str, address: bool
) -> None:
    """It is rejected under a local path and under a URL."""
    for name in names:
        write(tmp_path / f"{name}.parquet", x=[1])
    where = tmp_path.as_uri() if address else str(tmp_path)
    with pytest.raises(DataError, match=rf"^{where}{place}: {complaint}"):
        open_source(where)


@pytest.mark.parametrize(
    ("first", "second", "arrow_type"),
    [
        (pa.array([1]), pa.array([0.5]), pa.float64()),
        (pa.nulls(1), pa.array(["a"]), pa.string()),
        (
            pa.array(["a"]).dictionary_encode(),
            pa.array(["b"], pa.large_string()),
            pa.large_string(),
        ),
        (pa.array([1], pa.int8()), pa.array([1], pa.int64()), pa.int64()),
    ],
)
def test_files_with_a_common_type(
    tmp_path: Path, first: pa.Array, second: pa.Array, arrow_type: pa.DataType
) -> None:
    write(tmp_path / "a", x=first)
    write(tmp_path / "b", x=second)
    batches = list(open_source(tmp_path).iter_batches(["x"]))
    assert [batch.schema.types for batch in batches] == [[arrow_type], [arrow_type]]
    assert read(open_source(tmp_path)) == {"x": first.to_pylist() + second.to_pylist()}


def test_files_without_a_common_type(tmp_path: Path) -> None:
    write(tmp_path / "a", x=[1], y=[1])
    write(tmp_path / "b", x=["one"], y=[2])
    source = open_source(tmp_path)
    assert read(source, "y") == {"y": [1, 2]}
    complaint = rf"^{tmp_path}/b: column 'x' holds string, and int64 in files before: write all"
    with pytest.raises(DataError, match=complaint):
        source.iter_batches(["x"])


def test_files_with_different_columns(tmp_path: Path) -> None:
    write(tmp_path / "a", x=[1], y=[1])
    write(tmp_path / "b", x=[2])
    complaint = rf"^{tmp_path}/b: there is no column 'y', which {tmp_path}/a has$"
    with pytest.raises(DataError, match=complaint):
        open_source(tmp_path)
    write(tmp_path / "b", x=[2], y=[3], z=[4])
    complaint = rf"^{tmp_path}/b: there is a column 'z', which {tmp_path}/a does not have$"
    with pytest.raises(DataError, match=complaint):
        open_source(tmp_path)


def test_files_of_different_formats(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", x=[1])
    (tmp_path / "b.csv").write_text("x\n1\n")
    complaint = rf"^{tmp_path}/b\.csv: this is CSV, and {tmp_path}/a\.parquet is Parquet: keep"
    with pytest.raises(DataError, match=complaint):
        open_source(tmp_path)


def test_folders_with_different_columns(tmp_path: Path) -> None:
    write(tmp_path / "year=1" / "a", x=[1])
    write(tmp_path / "z" / "b", x=[1])
    complaint = rf"^{tmp_path}/z/b: its folders name none, and those of {tmp_path}/year=1/a name 'y"
    with pytest.raises(DataError, match=complaint):
        open_source(tmp_path)


def test_a_column_in_files_and_folders(tmp_path: Path) -> None:
    write(tmp_path / "x=1" / "a", x=[1])
    complaint = rf"^{tmp_path}: the column 'x' is in the files and in the folders' names$"
    with pytest.raises(DataError, match=complaint):
        open_source(tmp_path)


def test_a_folder_without_tables(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(DataError, match=rf"^{tmp_path}: there is no table in this folder$"):
        open_source(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a", x=[1])
    (tmp_path / "b").write_bytes((tmp_path / "a").read_bytes()[:-20])
    with pytest.raises(DataError, match=rf"^{tmp_path}/b: cannot be read: "):
        open_source(tmp_path)
