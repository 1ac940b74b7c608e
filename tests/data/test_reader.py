from __future__ import annotations

import gzip
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privet import DataError, Frame, ParameterError, read_frame
from privet.config.table import TableSpec
from privet.data.encoding import fit_encoders
from privet.data.reader import read_column_names, read_lazy_frame, read_new_rows, read_table

CSV = "id,age,income,label\n007,31,1.5e3,0\n8,,2000,1\nx9,-4.25,NA,1\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "table"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def parquet(tmp_path: Path) -> Callable[..., Path]:
    def parquet(compression: str = "snappy", **columns: Any) -> Path:
        path = tmp_path / "table"
        pq.write_table(pa.table(columns), path, compression=compression)
        return path

    return parquet


def check(frame: Frame) -> None:
    assert frame.names == ("age", "income")
    assert frame.columns.dtype == np.float64
    np.testing.assert_array_equal(frame.columns, [[31, np.nan, -4.25], [1500, 2000, np.nan]])
    assert frame.ids is not None
    assert frame.ids.tolist() == ["007", "8", "x9"]
    assert frame.label is not None
    assert frame.label.tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "content",
    [
        CSV.encode(),
        gzip.compress(CSV.encode()),
        b"\xef\xbb\xbf" + CSV.encode(),
        CSV.replace("\n", "\r\n").encode(),
        CSV.rstrip().encode(),
        CSV.replace("31", '"31"').replace(",,", ',"",').encode(),
        b"\n" + CSV.encode() + b"\n",
    ],
    ids=["plain", "gzip", "byte-order-mark", "crlf", "no-last-newline", "quoted", "blank-lines"],
)
def test_csv(write: Callable[[bytes], Path], content: bytes) -> None:
    check(read_frame(write(content), id="id", label="label"))


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("outer", [bytes, gzip.compress])
def test_parquet(
    parquet: Callable[..., Path], compression: str, outer: Callable[[bytes], bytes]
) -> None:
    path = parquet(
        compression,
        id=["007", "8", "x9"],
        age=[31.0, None, -4.25],
        income=pa.array([Decimal("1500.00"), Decimal("2000.00"), None]),
        label=pa.array([False, True, True]),
    )
    path.write_bytes(outer(path.read_bytes()))
    check(read_frame(path, id="id", label="label"))


def test_parquet_types(parquet: Callable[..., Path]) -> None:
    path = parquet(
        id=[1, 2],
        small=pa.array([1, None], pa.int8()),
        nothing=pa.array([None, None], pa.null()),
        text=["1.5", " 2 "],
        coded=pa.array(["7", "8"]).dictionary_encode(),
    )
    frame = read_frame(path, id="id")
    np.testing.assert_array_equal(frame.columns, [[1, np.nan], [np.nan, np.nan], [1.5, 2], [7, 8]])
    assert frame.ids is not None
    assert frame.ids.tolist() == ["1", "2"]  # as a CSV file would have them


def test_columns_are_chosen_and_ordered(write: Callable[[str], Path]) -> None:
    frame = read_frame(write("city,a,b\nRome,1,2\nOslo,3,4\n"), columns=["b", "a"])
    assert frame.names == ("b", "a")
    assert frame.columns.tolist() == [[2, 4], [1, 3]]
    assert frame.ids is None
    assert frame.label is None


def test_table_with_only_a_label(write: Callable[[str], Path]) -> None:
    frame = read_frame(write("id,label\n1,0\n2,1\n"), id="id", label="label")
    assert frame.names == ()
    assert frame.n_samples == 2


def test_type_that_changes_late(write: Callable[[str], Path]) -> None:
    """A column has only integers for megabytes, then a fraction, then a word."""
    rows = ["1"] * 1_000_000
    rows[700_000] = "2.5"
    assert read_frame(write("a\n" + "\n".join(rows) + "\n")).columns[0, 700_000] == 2.5
    rows[900_000] = "many"
    with pytest.raises(DataError, match="column 'a', row 900001: 'many' is not a number"):
        read_frame(write("a\n" + "\n".join(rows) + "\n"))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "the file is empty"),
        (" \n\n", "the file is empty"),
        ("id,a,label\n", "no rows"),
        ("a,b,a\n1,2,3\n", "column 'a' is there twice, as number 1 and 3"),
        ("id,a,label\n1,5,0\n2,five,1\n", "column 'a', row 2: 'five' is not a number"),
        ("id,a,label\n1,5,0\n2,1.234,5,1\n", "row 2 has 4 cells, and the header has 3"),
        ("id,a,label\n1,5,0\n2,true,1\n", "column 'a', row 2: 'true' is not a number"),
        ("id,a,label\n1,5,0\n1,5,zero\n", "column 'label', row 2: 'zero' is not a number"),
        ("id,a,label\n1,inf,0\n", "column 'a', row 1 is infinite"),
        ("id,a,label\n1,2,-Infinity\n", "column 'label', row 1 is infinite"),
        ("id,a,label\n1,2,0\n1,3,1\n", "1 id is there more than once: '1'"),
        ("id,a,label\n1,2,0\n,3,1\n", "id column 'id' is empty in 1 row, first in row 2"),
        ("key,a,label\n1,2,0\n", "no column 'id'; there are 'key', 'a', 'label'"),
        ("id,a\n1,2\n", "no column 'label'"),
        ("id,,label\n1,2,0\n", "column 2 is called '', which is no name"),
        (b"id,a,label\n1,\xff,0\n", "column 'a', row 1 is not UTF-8"),
        (gzip.compress(CSV.encode(), mtime=0)[:-9], "cannot be read: Truncated"),
        (b"PAR1not really", "cannot be read"),
    ],
)
def test_unreadable_files_are_rejected(
    write: Callable[[str | bytes], Path], content: str | bytes, complaint: str
) -> None:
    path = write(content)
    with pytest.raises(DataError, match=complaint) as caught:
        read_frame(path, id="id", label="label")
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).count(str(path)) == 1


def test_a_column_has_one_use(write: Callable[[str], Path]) -> None:
    path = write("a,b\n1,2\n")
    uses: list[dict[str, Any]] = [{"label": "a", "columns": ["a", "b"]}, {"label": "a", "id": "a"}]
    for use in uses:
        with pytest.raises(DataError, match="'a' is asked for twice"):
            read_frame(path, **use)


@pytest.mark.parametrize("cell", ["", " ", "NA", " NA ", "NaN", "nan", "null", '""', '"NA"'])
def test_missing_values(
    write: Callable[[str], Path], parquet: Callable[..., Path], cell: str
) -> None:
    np.testing.assert_array_equal(
        read_frame(write(f"a,b\n1,{cell}\n3,4\n")).columns, [[1, 3], [np.nan, 4]]
    )
    text = read_frame(parquet(b=[cell.strip('"'), "4"])).columns
    np.testing.assert_array_equal(text, [[np.nan, 4]])


def test_an_empty_line_of_one_column_is_a_row(write: Callable[[str], Path]) -> None:
    np.testing.assert_array_equal(read_frame(write("a\n1\n\n3\n")).columns, [[1, np.nan, 3]])


def test_id_may_be_a_missing_text(write: Callable[[str], Path]) -> None:
    frame = read_frame(write("id,a\nNA,1\nnull,2\n"), id="id")
    assert frame.ids is not None
    assert frame.ids.tolist() == ["NA", "null"]


def test_a_line_break_inside_quotes(write: Callable[[str], Path]) -> None:
    frame = read_frame(write('id,a\n"x\ny",1\nz,2\n'), id="id")
    assert frame.n_samples == 2


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv: No such file"):
        read_frame(tmp_path / "none.csv")


def test_columns_by_pattern(write: Callable[[str], Path]) -> None:
    path = write("id,zip,income_1,income_2,age,y[1]\n1,8000,1,2,3,4\n2,8001,5,6,7,8\n")

    def names(**options: Any) -> tuple[str, ...]:
        return read_frame(path, id="id", **options).names

    assert names() == ("zip", "income_1", "income_2", "age", "y[1]")
    assert names(columns=["age", "income_*"]) == ("age", "income_1", "income_2")
    assert names(drop=["income_?", "y[1]"]) == ("zip", "age")
    assert names(columns=["*"], drop=["zip"]) == ("income_1", "income_2", "age", "y[1]")
    for key in ("columns", "drop", "categorical"):
        with pytest.raises(DataError, match=f"{key}: there is no column 'salary'; there are"):
            names(**{key: ["salary"]})
    with pytest.raises(DataError, match="types: there is no column 'salary'"):
        names(types={"salary": "number"})


def test_columns_of_every_type(write: Callable[[str], Path]) -> None:
    path = write(
        "job,zip,opened,seen,member,y\n"
        "cook,8001,31.12.1970,1970-01-01 00:01,true,no\n"
        "?,8002,01.01.1970,,false,yes\n"
    )
    frame = read_frame(
        path,
        label="y",
        categorical=["zip"],
        types={"opened": "date %d.%m.%Y"},
        missing={"job": ["?"]},
    )
    type_names = [schema.column_type.name for schema in frame.schemas]
    assert type_names == ["category", "category", "date", "time", "boolean"]
    expected = [[0, np.nan], [0, 1], [364, 0], [60, np.nan], [1, 0]]
    np.testing.assert_array_equal(frame.columns, expected)
    assert [schema.categories for schema in frame.schemas[:2]] == [("cook",), ("8001", "8002")]
    assert frame.label_schema.categories == ("no", "yes")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"types": {"a": "length"}}, "types: 'length' is none of number, boolean"),
        ({"query": "SELECT 1"}, "path, query: give one of them"),
        ({"separator": "x"}, "separator: "),
        ({"encoding": "ebcdic"}, "encoding: "),
        ({"colour": "red"}, "colour: is not known"),
    ],
)
def test_invalid_specification_is_rejected(
    write: Callable[[str], Path], options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ParameterError, match=complaint):
        read_frame(write("a,b\n1,2\n"), **options)


def test_new_rows_are_encoded_like_training_rows(write: Callable[[str], Path]) -> None:
    rows = read_frame(write("id,job,n\n1,cook,1\n2,clerk,2\n3,clerk,3\n"), id="id")
    encoders = fit_encoders(rows.to_lazy().columns, buckets=8)
    new = TableSpec(path=str(write("n;other;id;job\n5;x;7;clerk\n6;;8;smith\n")), id="id")
    found = read_new_rows(new, encoders)
    assert found.names == ("job", "n")
    np.testing.assert_array_equal(found.columns, [[0, 2], [5, 6]])
    assert found.ids is not None
    assert found.ids.tolist() == ["7", "8"]
    for content, complaint in (
        ("id,job\n1,x\n", "there is no column 'n'"),
        ("id,job,n\n1,x,many\n", "column 'n', row 1: 'many' is not a number"),
    ):
        path = str(write(content))
        with pytest.raises(DataError, match=rf"^{path}: {complaint}"):
            read_new_rows(TableSpec(path=path, id="id"), encoders)


def test_text_column_that_became_numeric_is_rejected(
    write: Callable[[str], Path], tmp_path: Path
) -> None:
    def encoders(cells: str) -> Any:
        rows = read_frame(write(cells), id="id", categorical=["zip"])
        return fit_encoders(rows.to_lazy().columns, buckets=8)

    path = tmp_path / "new.parquet"
    pq.write_table(pa.table({"id": ["1"], "zip": [8000]}), path)
    new = TableSpec(path=str(path), id="id")
    with pytest.raises(DataError, match="column 'zip' holds int64, and was text when the model"):
        read_new_rows(new, encoders("id,zip\n1,SW1\n2,E14\n"))
    known = read_new_rows(new, encoders("id,zip\n1,8000.0\n2,8000\n3,E14\n"))
    assert known.columns.tolist() == [[0.0]]


def test_name_takes_precedence_over_a_pattern(write: Callable[[str], Path]) -> None:
    frame = read_frame(write("a,b\n1,2\n3,4\n"), types={"*": "category", "b": "number"})
    assert [schema.column_type.name for schema in frame.schemas] == ["category", "number"]


def test_columns_that_look_like_ids(write: Callable[[str], Path]) -> None:
    def table(name: str, cell: str) -> Path:
        return write(f"{name},a\n" + "".join(f"{cell}{i},{i % 3}\n" for i in range(20)))

    with pytest.raises(DataError, match=r"'mail' has another category in each of 20 rows"):
        read_frame(table("mail", "x"))
    with pytest.raises(DataError, match=r"column 'ID' holds ids, which are no feature"):
        read_frame(table("ID", ""))
    (warning,) = read_frame(table("number", "")).warnings
    assert "column 'number' holds another whole number in each of 20 rows" in warning
    assert read_frame(table("number", "0.")).warnings == ()
    assert read_frame(table("mail", "x"), drop=["mail"]).names == ("a",)


def test_read_column_names(write: Callable[[str], Path]) -> None:
    path = str(write("a;b\n1;2\n"))
    assert read_column_names(TableSpec(path=path)) == ["a", "b"]


def test_new_rows_may_come_in_another_format(write: Callable[[str | bytes], Path]) -> None:
    """CSV options of the specification are ignored then."""
    path = write("id;city;spent\n1;Z\xfcrich;1,5\n2;Bern;2,5\n".encode("latin-1"))
    spec = TableSpec(path=str(path), id="id", separator=";", encoding="latin-1", decimal=",")
    encoders = fit_encoders(read_lazy_frame(spec).columns, 8)
    new = path.with_name("new")
    pq.write_table(pa.table({"spent": [3.5], "city": ["Z\xfcrich"], "id": [7]}), new)
    found = read_new_rows(spec.with_path(new), encoders)
    np.testing.assert_array_equal(found.columns, [[1], [3.5]])
    with pytest.raises(ParameterError, match="separator: is for CSV files"):
        read_table(spec.with_path(new))
