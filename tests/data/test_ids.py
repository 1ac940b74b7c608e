"""Ids: the same text for a sample, regardless of the type and notation in its table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privet.data.frame import IdRule, Ids, make_match_keys
from privet.errors import DataError


def read(*columns: pa.Array, rules: Sequence[Sequence[IdRule]] | None = None) -> Ids:
    named = {f"c{i}": pa.chunked_array([column]) for i, column in enumerate(columns)}
    return Ids.from_columns(named, rules)


def keys(*columns: pa.Array, rules: Sequence[Sequence[IdRule]] | None = None) -> list[str]:
    found: list[str] = read(*columns, rules=rules).match_keys.to_pylist()
    return found


@pytest.mark.parametrize(
    "column",
    [
        pa.array([7, 12], pa.int64()),
        pa.array([7, 12], pa.uint8()),
        pa.array([7.0, 12.0]),
        pa.array([Decimal(7), Decimal(12)], pa.decimal128(38, 0)),
        pa.array([Decimal(7), Decimal(12)], pa.decimal128(12, 2)),
        pa.array(["7", "12"]),
        pa.array(["7.0", "12.00"]),
        pa.array(["7", "12"]).dictionary_encode(),
    ],
    ids=str,
)
def test_number_is_the_same_id_in_every_type(column: pa.Array) -> None:
    assert keys(column) == ["7", "12"]


def test_large_whole_numbers_are_exact() -> None:
    assert keys(pa.array([2**63 - 1, 2**53 + 1])) == ["9223372036854775807", "9007199254740993"]
    large = 10**38 - 1
    assert keys(pa.array([Decimal(large)], pa.decimal128(38, 0))) == [str(large)]


@pytest.mark.parametrize("value", [7.5, 2.0**53, float("inf")])
def test_floats_that_are_not_integers_are_rejected(value: float) -> None:
    with pytest.raises(DataError, match=r"'c0' holds fractions, or .* row 2 has"):
        read(pa.array([1.0, value]))


def test_decimals_that_are_not_integers_are_rejected() -> None:
    with pytest.raises(DataError, match="'c0' holds fractions; write ids as text"):
        read(pa.array([Decimal("7.50")]))


def test_text_that_resembles_a_number_is_unchanged() -> None:
    assert keys(pa.array(["007", "1.0.0", "7.5", ".0"])) == ["007", "1.0.0", "7.5", ".0"]


def test_dates_are_ids_but_lists_are_not() -> None:
    assert keys(pa.array([date(2020, 1, 31)])) == ["2020-01-31"]
    with pytest.raises(DataError, match=r"'c0' holds list<.*>; ids are text or whole numbers"):
        read(pa.array([[1]]))


@pytest.mark.parametrize(
    ("rules", "text", "key"),
    [
        (["strip"], " A b ", "A b"),
        (["casefold"], "STRASSE", "strasse"),
        (["casefold"], "Straße", "strasse"),
        (["digits"], "+49 (0)30/12-3", "49030123"),
        (["strip", "casefold"], " É ", "é"),
        ([], "e\u0301", "\u00e9"),
    ],
)
def test_rules_change_the_match_key_but_not_the_id(
    rules: list[IdRule], text: str, key: str
) -> None:
    ids = read(pa.array([text]), rules=[rules])
    assert ids.match_keys.to_pylist() == [key]
    assert ids.tolist() == [text.strip()]  # blanks around it are not part of the id


def test_ids_of_several_columns_are_unambiguous() -> None:
    rows = [("ab", "c"), ("a", "bc"), ("a:1:b", "c"), ("1:a", "b"), ("a", "1:b")]
    first, second = (pa.array(column) for column in zip(*rows, strict=True))
    assert len(set(keys(first, second))) == len(rows)
    assert keys(first, second) != keys(second, first)
    assert read(first, second).tolist()[0] == "ab, c"


def test_each_column_has_separate_rules() -> None:
    one = keys(pa.array(["A B"]), pa.array(["A B"]), rules=[["casefold"], []])
    assert one == keys(pa.array(["a b"]), pa.array(["A B"]))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["a", " ", None, ""], "'c0' is empty in 3 rows, first in row 2: give every row an id"),
        (["x", "a", "a"], "1 id is there more than once: 'a'; the first in rows 2 and 3: keep"),
        (["b", "a", "b", "a"], "2 ids are there more than once: 'b', 'a'; the first in rows 1 and"),
        (["a", "a", "b", "b", "c", "c", "d", "d"], "4 ids are .*: 'a', 'b', 'c', ...; the first"),
    ],
)
def test_empty_and_duplicate_ids_are_counted_and_shown(
    cells: list[str | None], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(pa.array(cells))


def test_ids_that_a_rule_makes_empty_or_equal_are_rejected() -> None:
    with pytest.raises(DataError, match="empty in 1 row, first in row 2"):
        read(pa.array(["1", "none"]), rules=[["digits"]])
    with pytest.raises(DataError, match="1 id is there more than once: 'A'; the first in rows 1"):
        read(pa.array(["A", "a"]), rules=[["casefold"]])


def test_take_and_find_mismatches() -> None:
    ids = read(pa.array(["a", "b", "c"]))
    reversed_ids = ids.take(np.array([2, 1, 0]))
    assert reversed_ids.tolist() == reversed_ids.match_keys.to_pylist() == ["c", "b", "a"]
    assert ids.find_mismatches(reversed_ids).tolist() == [0, 2]


def test_digest_depends_on_match_keys_their_order_and_the_key() -> None:
    def digest(texts: list[Any], key: bytes = b"") -> bytes:
        return Ids.from_texts(texts).digest(key)

    assert digest([1, 2]) == digest(["1", "2"])
    others = [digest(["2", "1"]), digest(["12"]), digest(["1", "2"], b"k"), digest(["1", "2", ""])]
    assert len({digest(["1", "2"]), *others}) == 5
    many = [str(i) for i in range(70_000)]
    assert digest(many) != digest([*many[:-1], "x"])


def test_requested_id_has_the_match_key_of_its_row() -> None:
    rules: list[list[IdRule]] = [["strip", "casefold"], ["digits"]]
    rows = read(pa.array(["A b", "\u00c9", "7.0"]), pa.array(["1-2", "3", "x9"]), rules=rules)
    requested = [("a B ", "12"), ("e\u0301", "3"), ("7", "9"), ("7", "9"), ("", "")]
    assert make_match_keys(requested, rules)[:4] == [
        *rows.match_keys.to_pylist(),
        rows.match_keys[2].as_py(),
    ]
    assert make_match_keys([("7.0",), ("x",)], [[]]) == ["7", "x"]
    assert make_match_keys([], [[]]) == []
