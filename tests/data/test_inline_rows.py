"""Inline rows from JSON, parsed like the cells of a table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privet.config.table import TableSpec
from privet.data.encoding import Encoder
from privet.data.reader import Cell, InlineRows
from privet.errors import DataError
from privet.spec.column_types import ColumnType

NUMBER = Encoder("a", ColumnType("number"))
CATEGORY = Encoder("a", ColumnType("category"), ("3", "true"))
ONE_HOT = Encoder("a", ColumnType("category", one_hot=True), ("red", "blue"))


def make_rows(*cells: Cell, missing: tuple[str, ...] = ()) -> InlineRows:
    spec = TableSpec(path="table.csv", missing=list(missing))
    return InlineRows(spec, [{"a": cell} for cell in cells])


@pytest.mark.parametrize(
    ("cells", "encoder", "expected"),
    [
        ((1, 2.5, None), NUMBER, [1.0, 2.5, math.nan]),
        ((2**63, -(2**70)), NUMBER, [2.0**63, -(2.0**70)]),
        (("1.5", "", " 7 "), NUMBER, [1.5, math.nan, 7.0]),
        ((None, None), NUMBER, [math.nan] * 2),
        (("3", "4", None, "NA"), CATEGORY, [0.0, 2.0, math.nan, math.nan]),
        ((3, 4), CATEGORY, [0.0, 2.0]),
        ((True, False), CATEGORY, [1.0, 2.0]),
        ((True, None), Encoder("a", ColumnType("boolean")), [1.0, math.nan]),
        (("31.12.1970",), Encoder("a", ColumnType("date", "%d.%m.%Y")), [364.0]),
    ],
)
def test_cells_are_parsed(cells: tuple[Cell, ...], encoder: Encoder, expected: list[float]) -> None:
    np.testing.assert_array_equal(make_rows(*cells).encode((encoder,)), [expected])


def test_one_hot_features() -> None:
    found = make_rows("blue", "green", "red").encode((ONE_HOT,))
    assert found.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


def test_missing_texts_of_the_table_apply() -> None:
    found = make_rows(-999, 3, missing=("-999",)).encode((NUMBER,))
    np.testing.assert_array_equal(found, [[math.nan, 3.0]])


@pytest.mark.parametrize(
    ("cells", "encoder", "complaint"),
    [
        ((10**400,), NUMBER, "column 'a', row 1 is infinite"),
        (("inf",), NUMBER, "column 'a', row 1 is infinite"),
        ((1, "2"), NUMBER, "column 'a' mixes text, numbers and truth values"),
        ((1, True), NUMBER, "column 'a' mixes text, numbers and truth values"),
        ((1, "x"), CATEGORY, "column 'a' mixes text, numbers and truth values"),
        ((3.5,), CATEGORY, "3.5 is a fraction"),
        (("1", "many"), NUMBER, "column 'a', row 2: 'many' is not a number"),
    ],
)
def test_invalid_cells_are_rejected(
    cells: tuple[Cell, ...], encoder: Encoder, complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        make_rows(*cells).encode((encoder,))


def test_another_model_encodes_the_rows_again() -> None:
    rows = make_rows("blue", "red")
    assert rows.encode((Encoder("a", ColumnType("category"), ("red", "blue")),)).tolist() == [
        [1, 0]
    ]
    assert rows.encode((Encoder("a", ColumnType("category"), ("blue", "red")),)).tolist() == [
        [0, 1]
    ]
