"""Encoding of categories by rank, also for new rows; splits in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privet.boosting.binning import bucket_columns
from privet.data.columns import ColumnBuilder
from privet.data.encoding import Encoder, encode_frame, fit_encoders
from privet.data.frame import Frame
from privet.errors import DataError
from privet.spec.column_types import CATEGORY, NUMBER, ColumnSchema, ColumnType

NAN = np.nan


def frame(**columns: Any) -> Frame:
    """Read columns of text or numbers."""
    import pyarrow as pa

    rows, schemas = [], []
    for name, cells in columns.items():
        declared = ColumnType.parse(name.split("_")[0]) if name.startswith("category") else None
        column = ColumnBuilder(name, declared)
        column.append(pa.array(cells))
        rows.append(column.read())
        schemas.append(column.schema)
    return Frame(tuple(columns), np.stack(rows), schemas=tuple(schemas))


def test_categories_become_ranks_by_frequency() -> None:
    rows = frame(job=["cook", "clerk", "clerk", "", "smith"], age=[1, 2, 3, 4, 5])
    encoders = fit_encoders(rows.to_lazy().columns, buckets=8)
    assert encoders[0].categories == ("clerk", "cook", "smith")  # equally frequent ones by name
    assert encoders[1] == Encoder("age", NUMBER)
    found = encode_frame(rows, encoders)
    np.testing.assert_array_equal(found.columns, [[1, 0, 0, NAN, 2], [1, 2, 3, 4, 5]])
    assert found.names == ("job", "age")


def test_rare_and_unseen_categories_share_a_rank() -> None:
    rows = frame(job=["a"] * 4 + ["b"] * 3 + ["c"] * 2 + ["d"])
    encoders = fit_encoders(rows.to_lazy().columns, buckets=4)
    assert encoders[0].categories == ("a", "b")
    new = frame(job=["d", "b", "never", "c", None, "a"])
    np.testing.assert_array_equal(encode_frame(new, encoders).columns, [[2, 1, 2, 2, NAN, 0]])


def test_missing_and_other_categories_have_separate_buckets() -> None:
    cells = ["a"] * 4 + ["b"] * 3 + ["c"] * 2 + ["d"] * 2 + [None]
    rows = frame(job=cells)
    columns = encode_frame(rows, fit_encoders(rows.to_lazy().columns, buckets=4)).columns
    bucketed = bucket_columns("bank", ["job"], columns, 4)
    assert len({*bucketed.buckets[0]}) == 4


def test_one_hot_features_are_numbered_not_named() -> None:
    rows = frame(job=["cook", "clerk", "clerk", ""])
    rows = Frame(
        rows.names,
        rows.columns,
        schemas=(ColumnSchema(ColumnType.parse("one-hot"), rows.schemas[0].categories),),
    )
    encoders = fit_encoders(rows.to_lazy().columns, buckets=8)
    found = encode_frame(rows, encoders)
    assert found.names == ("job 1", "job 2")
    np.testing.assert_array_equal(found.columns, [[0, 1, 1, 0], [1, 0, 0, 0]])
    assert encoders[0].describe_split("job 2", 0.5) == "job is not 'cook'"


def test_encoders_select_and_order_columns() -> None:
    encoders = fit_encoders(frame(a=["x", "y"], b=[1, 2]).to_lazy().columns, buckets=8)
    found = encode_frame(frame(c=[0, 0], b=[3, 4], a=["y", "x"]), encoders)
    assert found.names == ("a", "b")
    np.testing.assert_array_equal(found.columns, [[1, 0], [3, 4]])
    with pytest.raises(DataError, match="there is no column 'a', which the model needs"):
        encode_frame(frame(b=[1]), encoders)


def test_column_of_another_type_is_rejected() -> None:
    encoders = fit_encoders(frame(a=["x", "y"], b=[1, 2]).to_lazy().columns, buckets=8)
    with pytest.raises(DataError, match="column 'a' holds a number, and was a category when"):
        encode_frame(frame(a=[1, 2], b=[1, 2]), encoders)
    with pytest.raises(DataError, match="column 'b' holds a boolean, and was a number when"):
        encode_frame(frame(b=[True, False]), encoders[1:])
    with pytest.raises(DataError, match="column 'b' holds a category, and was a number when"):
        encode_frame(frame(a=["x", "y"], b=["p", "q"]), encoders)


@pytest.mark.parametrize(
    ("encoder", "threshold", "words"),
    [
        (Encoder("age", NUMBER), 31.25, "age < 31.25"),
        (Encoder("age", NUMBER), np.inf, "age: any value"),
        (Encoder("age", NUMBER), -np.inf, "age is missing"),
        (Encoder("born", ColumnType("date")), 364.0, "born < 1970-12-31"),
        (Encoder("born", ColumnType("date")), 0.5, "born < 1970-01-01 12:00"),
        (Encoder("seen", ColumnType("time")), 61.0, "seen < 1970-01-01 00:01:01"),
        (Encoder("born", ColumnType("date")), 1e12, "born < 1e+12"),
        (Encoder("job", CATEGORY, ("a", "b", "c")), 0.5, "job is 'a'"),
        (Encoder("job", CATEGORY, ("a", "b", "c")), 1.5, "job is not 'c', nor of the rest"),
        (Encoder("job", CATEGORY, ("a", "b", "c")), 2.5, "job is 'a' or 'b' or 'c'"),
        (Encoder("job", CATEGORY, tuple("abcdefgh")), 3.5, "job is 'a' or 'b' or 'c' or 1 more"),
    ],
)
def test_splits_in_words(encoder: Encoder, threshold: float, words: str) -> None:
    assert encoder.describe_split(encoder.column, threshold) == words


def test_restricted_encoder_knows_only_categories_in_splits() -> None:
    """It encodes these categories in the same way, and no others."""
    texts, values = ("Ulm", "Bonn", "Jena"), np.array([0.0, 1.0, 2.0, np.nan])
    schema = ColumnSchema(ColumnType("category", one_hot=True), texts)
    full = Encoder("town", schema.column_type, texts)
    restricted = full.restrict_to_splits({"town 2": [0.5]})
    assert restricted.categories == ("", "Bonn", "")
    assert restricted.feature_names == full.feature_names
    found = restricted.encode(schema, values)
    assert found.tolist() == [[0.0] * 4, full.encode(schema, values)[1].tolist(), [0.0] * 4]
    ranks = Encoder("town", ColumnType("category"), texts)
    assert ranks.restrict_to_splits({"town": [0.5, -np.inf, np.inf]}).categories == ("Ulm",)
    assert ranks.restrict_to_splits({}).categories == ()
    number = Encoder("age", ColumnType("number"))
    assert number.restrict_to_splits({"age": [0.5]}) is number
