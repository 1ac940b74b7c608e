"""Columns of every type, and the errors for cells of another type."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privet.data.columns import MISSING_TEXTS, ColumnBuilder
from privet.errors import DataError, ParameterError
from privet.spec.column_types import ColumnType

NAN = np.nan


def read(
    *batches: list[Any] | pa.Array, declared: str | None = None, **options: Any
) -> ColumnBuilder:
    cells = ColumnBuilder("x", None if declared is None else ColumnType.parse(declared), **options)
    for batch in batches:
        cells.append(batch if isinstance(batch, pa.Array) else pa.array(batch))
    return cells


def values(cells: ColumnBuilder) -> list[float]:
    found: list[float] = cells.read().tolist()
    return found


def check(cells: ColumnBuilder, type_name: str, expected: list[float]) -> None:
    np.testing.assert_array_equal(values(cells), expected)
    assert cells.column_type is not None
    assert str(cells.column_type) == type_name


@pytest.mark.parametrize(
    ("cells", "type_name", "expected"),
    [
        ([1, None, 3], "number", [1, NAN, 3]),
        ([1.5, float("nan")], "number", [1.5, NAN]),
        ([Decimal("1.25")], "number", [1.25]),
        ([True, False, None], "boolean", [1, 0, NAN]),
        ([date(1970, 1, 2), None], "date", [1, NAN]),
        ([datetime(1970, 1, 1, 0, 1), None], "time", [60, NAN]),
        ([datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))], "time", [0]),
        ([time(0, 1, 2, 500_000)], "time", [62.5]),
        ([timedelta(days=1, milliseconds=1)], "time", [86400.001]),
        (["1", " 2.5 ", "-3e2", "", "NA", None], "number", [1, 2.5, -300, NAN, NAN, NAN]),
        (["true", "FALSE", ""], "boolean", [1, 0, NAN]),
        (["1970-01-03", ""], "date", [2, NAN]),
        (["1970-01-01 00:00:05", "1970-01-01T00:01"], "time", [5, 60]),
        (["1970-01-01T01:00:00+01:00", "1970-01-01T00:00:01Z"], "time", [0, 1]),
        (["b", "a", "", "b"], "category", [0, 1, NAN, 0]),
    ],
)
def test_column_type_follows_from_cells(
    cells: list[Any], type_name: str, expected: list[float]
) -> None:
    check(read(cells), type_name, expected)


def test_batches_form_one_column() -> None:
    check(read(["", ""], ["1"], ["2", ""]), "number", [NAN, NAN, 1, 2, NAN])
    cells = read(["b"], ["a", "b"], [""], ["c"])
    assert cells.categories == ("b", "a", "c")
    check(cells, "category", [0, 1, 0, NAN, 2])


def test_column_without_values_has_no_type() -> None:
    cells = read(["", None], pa.nulls(2))
    np.testing.assert_array_equal(values(cells), [NAN] * 4)
    assert cells.column_type is None


@pytest.mark.parametrize("cell", MISSING_TEXTS)
def test_default_missing_texts(cell: str) -> None:
    check(read(["a", cell, f" {cell} "]), "category", [0, NAN, NAN])


def test_owner_declares_more_missing_texts() -> None:
    assert read(["a", "?"]).categories == ("a", "?")
    check(read(["a", "?", " ? "], missing=["?"]), "category", [0, NAN, NAN])
    check(read(["1", "?"], missing=["?"]), "number", [1, NAN])


@pytest.mark.parametrize(
    ("batches", "declared", "type_name", "expected"),
    [
        ([["1"], ["2", "-999"]], None, "number", [1, 2, NAN]),
        ([["-999", "1"]], "number", "number", [NAN, 1]),  # as for rows to predict
        ([[1, -999, None]], None, "number", [1, NAN, NAN]),
        ([[1.5, -999.0]], None, "number", [1.5, NAN]),
        ([[0, 1, -999]], "boolean", "boolean", [0, 1, NAN]),
        ([[7, -999]], "category", "category", [0, NAN]),
        ([[date(1970, 1, 2), date(1900, 1, 1)]], None, "date", [1, NAN]),
    ],
)
def test_missing_text_may_be_a_number_or_a_date(
    batches: list[Any], declared: str | None, type_name: str, expected: list[float]
) -> None:
    check(read(*batches, declared=declared, missing=["-999", "1900-01-01"]), type_name, expected)


def test_later_batches_are_read_by_the_same_rules() -> None:
    with pytest.raises(DataError, match=r"row 2: '1\.234' is not a number"):
        read(["1,5"], ["1.234"], decimal=",")
    with pytest.raises(DataError, match="row 2: 'NAN' is not a number"):
        read(["1"], ["NAN"])


@pytest.mark.parametrize(
    ("cells", "declared", "type_name", "expected"),
    [
        ([2, 1, None, 2], "category", "category", [0, 1, NAN, 0]),
        ([2.0, 1.0, float("nan")], "category", "category", [0, 1, NAN]),
        ([True, None], "category", "category", [0, NAN]),
        (["1", "x", "2020-01-01"], "category", "category", [0, 1, 2]),
        (["31.12.1970", "01.01.1970", ""], "date %d.%m.%Y", "date (%d.%m.%Y)", [364, 0, NAN]),
        (["1.3.1970", "29.02.1972"], "date %d.%m.%Y", "date (%d.%m.%Y)", [59, 789]),
        (["01.01.1970 01:00"], "time %d.%m.%Y %H:%M", "time (%d.%m.%Y %H:%M)", [3600]),
        (["1", "0", "True"], "boolean", "boolean", [1, 0, 1]),
        ([1, 0, None], "boolean", "boolean", [1, 0, NAN]),
    ],
)
def test_declared_columns(
    cells: list[Any], declared: str, type_name: str, expected: list[float]
) -> None:
    check(read(cells, declared=declared), type_name, expected)


@pytest.mark.parametrize(
    ("alike", "name"),
    [([[7], [7.0], ["7"], ["7.0"], [" 7 "], [Decimal("7.00")]], "7"), ([[True], ["TRUE"]], "true")],
)
def test_category_is_the_same_in_every_type(alike: list[list[Any]], name: str) -> None:
    for cells in alike:
        assert read(cells, declared="category").categories == (name,), cells


def test_too_many_categories_are_rejected_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("privet.data.columns._MAX_CATEGORIES", 10)
    with pytest.raises(DataError, match="has 12 categories in its first 12 rows: leave it out"):
        read([f"x{i}" for i in range(12)])
    read([f"x{i % 5}" for i in range(40)])


def test_decimal_comma_must_be_declared() -> None:
    check(read(["1,5", "2", "-0,25"], decimal=","), "number", [1.5, 2, -0.25])
    with pytest.raises(DataError, match=r"'1\.500,5' is not a number"):
        read(["1,5", "1.500,5"], decimal=",")


@pytest.mark.parametrize(
    ("batches", "complaint"),
    [
        ([["1", "x"]], "row 2: 'x' is not a number; correct it, .* missing = \\['x'\\]; or if it"),
        ([["1"], ["2", "?"]], "row 3: '\\?' is not a number"),
        ([["x", "1"]], "row 2: '1' is no category; correct it"),
        ([["x"], ["y", "7"]], "row 3: '7' is no category, as 'x' above it is; correct"),
        ([["x", "1" * 10_000]], "row 2: '1{80}' is no category; correct it"),
        ([["1", "1,234"]], "row 2: '1,234' is not a number; write numbers without separators"),
        (
            [["1,234", "5,678"]],
            "row 1: '1,234' looks like a number; write numbers without",
        ),
        ([["1 234.5"]], "row 1: '1 234.5' looks like a number; write numbers without separators"),
        ([["3,14"]], "row 1: '3,14' looks like a number; write numbers .* or say decimal = ','"),
        ([["2020-01-31", "31.01.2020"]], "row 2: '31.01.2020' is not a date; write all dates"),
        (
            [["31.01.2020"]],
            "row 1: '31.01.2020' looks like a date; write all .* types = { 'x' = 'date %d",
        ),
        ([["2020-01-31", "2020-02-30"]], "row 2: '2020-02-30' is not a date"),
        ([["2020-01-31", "2020-01-31 10:00"]], "row 2: .* is not a date"),
        ([["true", "maybe"]], "row 2: 'maybe' is not a boolean; correct it"),
        ([["1", "inf"]], "row 2 is infinite"),
        ([[1.0, float("-inf")]], "row 2 is infinite"),
        ([pa.array([[1]])], "holds list<.*>: turn it into"),
        ([pa.array([b"x"])], "holds binary: turn it into"),
    ],
)
def test_cells_of_another_type_are_rejected(batches: list[Any], complaint: str) -> None:
    with pytest.raises(DataError, match=f"^column 'x'.*{complaint}"):
        read(*batches)


@pytest.mark.parametrize(
    ("cells", "declared", "complaint"),
    [
        (["a"], "number", "row 1: 'a' is not a number"),
        (["2020-01-31"], "date %d.%m.%Y", r"row 1: '2020-01-31' is not a date \(%d.%m.%Y\)"),
        (["28.02.2020", "30.02.2020"], "date %d.%m.%Y", "row 2: '30.02.2020' is not a date"),
        (["31/4/21 01:00 -0100"], "time %d/%m/%y %H:%M %z", "row 1: '31/4/21 01:00 -0100' is not"),
        ([1], "date", "holds int64, and date was expected"),
        ([2], "boolean", "holds int64, and boolean was expected"),
        ([1.5], "category", "column 'x': 1.5 is a fraction, or not exact as one, which is no cat"),
        ([float("inf")], "category", "column 'x': inf is a fraction, or not exact"),
        ([1e300], "category", "column 'x': 1e.300 is a fraction, or not exact"),
    ],
)
def test_cells_of_another_type_than_declared_are_rejected(
    cells: list[Any], declared: str, complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        read(cells, declared=declared)


@pytest.mark.parametrize("declared", ["nothing", "number %d", "", "category x"])
def test_invalid_declarations_are_rejected(declared: str) -> None:
    with pytest.raises(ParameterError, match=r"types: .* is none of number, boolean, date"):
        ColumnType.parse(declared)


@pytest.mark.parametrize("form", ["%Q", "%T", "dd.mm.yyyy", "%H:%M:%S.%f", "%d%"])
def test_invalid_date_formats_are_rejected(form: str) -> None:
    with pytest.raises(ParameterError, match="is no format of dates"):
        ColumnType.parse(f"time {form}")


def test_whole_numbers_beyond_2_to_the_53_raise_a_warning() -> None:
    for cells in ([1, 2**53], ["1", str(2**53)], ["1", "", str(2**60)]):
        assert len(read(cells).warnings) == 1, cells
        assert "is beyond 2^53" in read(cells).warnings[0]
    for others in ([2**53 - 1], [2.0**60], ["1e30", "3"]):
        assert read(others).warnings == []
    assert "row 2 " in read([1, 2**53, 2**54]).warnings[0]
