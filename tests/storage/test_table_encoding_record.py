from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet import ModelError
from privet.boosting.preparation import TableEncoding
from privet.data.encoding import Encoder
from privet.spec.column_types import ColumnType
from privet.spec.sampling import WeightMean, WeightNormaliser
from privet.storage.json_records import TableEncodingRecord

FINITE = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(0, allow_infinity=False, exclude_min=True)
ENCODERS = (
    Encoder("a", ColumnType("number")),
    Encoder("ö", ColumnType("category", one_hot=True), ("x", "")),
    Encoder("day", ColumnType("date", "%d.%m.%Y")),
)


@given(
    cuts=st.lists(st.sets(FINITE | st.just(-np.inf), max_size=6), min_size=4, max_size=4),
    weights=st.tuples(POSITIVE, POSITIVE, st.lists(POSITIVE, max_size=3)),
)
def test_record_is_read_back_exactly(
    cuts: list[set[float]], weights: tuple[float, float, list[float]]
) -> None:
    thresholds = np.full((4, 6), np.inf)
    for row, cut_values in zip(thresholds, cuts, strict=True):
        row[: len(cut_values)] = sorted(cut_values)
    largest, mean, by_class = weights
    weighting = WeightNormaliser(WeightMean(largest, mean), tuple(by_class))
    label_type = ColumnType("time", "%H")
    encoding = TableEncoding("bank", ENCODERS, thresholds, ("no", "yes"), label_type, weighting)
    loaded = TableEncodingRecord.from_json(
        TableEncodingRecord.from_encoding(encoding).model_dump_json().encode()
    )
    np.testing.assert_array_equal(loaded.thresholds, thresholds)  # to the last bit
    assert (loaded.owner, loaded.encoders, loaded.classes) == ("bank", ENCODERS, ("no", "yes"))
    assert (loaded.label_type, loaded.weighting) == (label_type, weighting)


def test_record_of_a_passive_participant() -> None:
    encoding = TableEncoding("shop", (), np.empty((0, 7)))
    loaded = TableEncodingRecord.from_json(
        TableEncodingRecord.from_encoding(encoding).model_dump_json().encode()
    )
    assert loaded.thresholds.shape == (0, 7)
    assert (loaded.classes, loaded.label_type, loaded.weighting) == ((), None, None)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("thresholds", [[0.5, 1.0, 2.0]], "3 thresholds of 2"),
        ("thresholds", [], "thresholds of shape .* for 1 features"),
        ("thresholds", [["NaN"]], "damaged"),
        ("candidates", 10**9, "candidates"),
        ("weighting", {"largest": 0.0, "of_largest": 1.0, "by_class": []}, "largest"),
        ("more", 1, "more"),
    ],
)
def test_damaged_records_are_rejected(key: str, value: Any, complaint: str) -> None:
    encoding = TableEncoding("shop", ENCODERS[:1], np.array([[0.5, np.inf]]))
    record = json.loads(TableEncodingRecord.from_encoding(encoding).model_dump_json())
    with pytest.raises(ModelError, match=complaint):
        TableEncodingRecord.from_json(json.dumps({**record, key: value}).encode())
