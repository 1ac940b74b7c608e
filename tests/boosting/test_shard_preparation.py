"""Shards are prepared with the encoders of all rows, with the same result as preparing all rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet import DataError
from privet.arrays import IndexArray
from privet.boosting.preparation import (
    ExpectedIds,
    PreparedData,
    TableEncoding,
    prepare_data,
    prepare_shard,
)
from privet.boosting.training import TrainingData
from privet.config.table import TableSpec
from privet.data.reader import IdRules, read_lazy_frame
from privet.spec.params import Params
from privet.spec.plan import split_into_shards
from privet.spec.sampling import order_rows
from privet.storage.json_records import TableEncodingRecord

ROWS = 60


def column(values: Callable[[int], Any]) -> list[Any]:
    return [values(row) for row in range(ROWS)]


NUMBERS = np.random.default_rng(5).normal(size=ROWS).tolist()
TABLE = {
    "id": column(str),
    "number": [repr(value) for value in NUMBERS],
    "holes": column(lambda row: "" if row % 3 == 0 or row < 20 else str(row * 7 % 11)),
    "gone": column(lambda row: "NA"),
    "truth": column(lambda row: ("true", "false", "1", "0")[row // 15]),
    "word": column(lambda row: ("red", "True", "false", "blue", "", "green")[row // 10]),
    "rare": column(lambda row: f"w{row % 40}" if row < 50 else "w1"),
    "code": column(lambda row: ("7.0", "7", "8", "TRUE", "?")[row % 5]),
    "flag": column(lambda row: ("a", "b", "c", "")[row // 15]),
    "day": column(lambda row: f"2020-{1 + row % 12:02}-{1 + row % 28:02}" if row > 10 else ""),
    "hour": column(lambda row: f"2020-01-{1 + row % 28:02} 1{row % 10}:00"),
    "date": column(lambda row: f"{1 + row % 28:02}.0{1 + row % 9}.2020"),
    "y": column(lambda row: ("no", "yes")[row > 25]),
    "kind": column(lambda row: ("b", "c", "a")[row * row % 7 % 3] if row < 45 else "b"),
    "count": column(lambda row: str(row % 3 + 1)),
    "bit": column(lambda row: ("true", "0", "1", "false")[row % 4]),
    "amount": column(lambda row: str(row**1.5)),
    "weight": column(lambda row: str(0.1 + row % 7 / 3)),
}
LABELS_AND_WEIGHTS = ("y", "kind", "count", "bit", "amount", "weight")
TABLE_OPTIONS = {
    "id": "id",
    "categorical": ["code"],
    "types": {"flag": "one-hot", "date": "date %d.%m.%Y"},
    "missing": {"code": ["?"]},
}
TWO = Params(task="classification", buckets=8)
THREE = TWO.model_copy(update={"classes": 3})
REGRESSION = Params(task="regression", buckets=8)


def make_table_spec(path: Path, *kept: str, **options: Any) -> TableSpec:
    return TableSpec(
        path=str(path),
        drop=[name for name in LABELS_AND_WEIGHTS if name not in kept],
        **{**TABLE_OPTIONS, **options},
    )


def prepare_all(table_spec: TableSpec, params: Params, aligned: IndexArray) -> PreparedData:
    rows = read_lazy_frame(table_spec).take(aligned)
    return prepare_data("bank", rows, params, table_spec.positive, table_spec.class_weight)


def check_shards(
    table_spec: TableSpec, params: Params, count: int, aligned: IndexArray | None = None
) -> PreparedData:
    aligned = np.arange(ROWS) if aligned is None else aligned
    prepared = prepare_all(table_spec, params, aligned)
    record = TableEncodingRecord.from_encoding(TableEncoding.from_prepared(prepared))
    encoding = TableEncodingRecord.from_json(record.model_dump_json().encode())  # as workers get it
    order = aligned[order_rows(len(aligned), params)]
    n_samples = len(order) - round(params.validation * len(order))
    for shard in split_into_shards(n_samples, len(order) - n_samples, count):
        positions = shard.positions(n_samples)
        shard_data = prepare_shard(table_spec, encoding, order[positions], shard.n_validation)
        check_slice(shard_data, prepared, positions, shard.n_samples)
    return prepared


def check_slice(
    shard_data: TrainingData, all_rows: PreparedData, positions: IndexArray, n_samples: int
) -> None:
    columns, expected = shard_data.columns, all_rows.columns
    assert (columns.owner, columns.names) == (expected.owner, expected.names)
    assert columns.buckets.dtype == expected.buckets.dtype
    np.testing.assert_array_equal(columns.buckets, expected.buckets[:, positions])
    np.testing.assert_array_equal(columns.thresholds, expected.thresholds)
    for actual, expected_values, rows in (
        (shard_data.label, all_rows.label, positions),
        (shard_data.sample_weight, all_rows.sample_weight, positions[:n_samples]),
    ):
        assert (actual is None) == (expected_values is None)
        if actual is not None and expected_values is not None:
            assert actual.dtype == expected_values.dtype
            np.testing.assert_array_equal(actual, expected_values[rows])  # to the last bit


def write_csv(path: Path) -> Path:
    pacsv.write_csv(pa.table(TABLE), path)
    return path


def write_parquet(path: Path) -> Path:
    typed = {**TABLE, "number": NUMBERS, "id": list(range(ROWS))}
    typed["holes"] = [int(cell) if cell else None for cell in TABLE["holes"]]
    typed["truth"] = [cell in ("true", "1") for cell in TABLE["truth"]]
    typed["gone"] = pa.nulls(ROWS)
    typed["amount"] = [float(cell) for cell in TABLE["amount"]]
    typed["rare"] = pa.array(TABLE["rare"]).dictionary_encode()
    pq.write_table(pa.table(typed), path, row_group_size=7)
    return path


def write_folder(path: Path) -> Path:
    path.mkdir()
    table = pa.table(TABLE)
    for part in range(4):
        pq.write_table(table.slice(15 * part, 15), path / f"{part}.parquet", row_group_size=4)
    return path


@pytest.fixture(params=[write_csv, write_parquet, write_folder])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    written: Path = request.param(tmp_path / "table")
    return written


@pytest.mark.parametrize(
    ("options", "params"),
    [
        ({}, TWO),
        ({"label": "y"}, TWO),
        ({"label": "y", "positive": "no"}, TWO),
        ({"label": "bit", "positive": "False"}, TWO),
        ({"label": "kind"}, THREE),
        ({"label": "count"}, THREE),
        ({"label": "amount"}, REGRESSION),
        ({"label": "amount", "weight": "weight"}, REGRESSION),
        ({"label": "y", "class_weight": "balanced"}, TWO),
        ({"label": "y", "positive": "no", "class_weight": {"yes": 3.1}}, TWO),
        ({"label": "kind", "class_weight": "balanced", "weight": "weight"}, THREE),
    ],
)
@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_shard_is_a_slice_of_all_rows(
    path: Path, options: dict[str, Any], params: Params, validation: float
) -> None:
    kept = [value for value in options.values() if isinstance(value, str)]
    check_shards(
        make_table_spec(path, *kept, **options),
        params.model_copy(update={"validation": validation}),
        5,
    )


def test_shards_without_some_classes_and_categories(path: Path) -> None:
    """Check that the table contains all cases of the other tests."""
    prepared = check_shards(make_table_spec(path, "y", label="y"), TWO, 5)
    assert prepared.label is not None
    first = slice(ROWS // 5)
    assert set(prepared.label[first]) == {0.0}
    encoders = {encoder.column: encoder for encoder in prepared.encoders}
    assert encoders["word"].categories == ("True", "blue", "false", "green", "red")
    assert len(encoders["rare"].categories) == 6
    assert encoders["code"].categories == ("7", "8", "true")
    assert prepared.columns.names.index("flag 3") > 0
    assert {encoder.column_type.name for encoder in prepared.encoders} == {
        *("number", "boolean", "category", "date", "time")
    }


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_rows_in_any_order(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write = data.draw(st.sampled_from([write_csv, write_parquet, write_folder]))
    path = write(tmp_path_factory.mktemp("any") / "table")
    aligned = data.draw(st.permutations(range(ROWS)))[: data.draw(st.integers(50, ROWS))]
    params = TWO.model_copy(update={"validation": 0.3, "seed": data.draw(st.integers(0, 5))})
    table_spec = make_table_spec(
        path, "y", "weight", label="y", weight="weight", class_weight="balanced"
    )
    check_shards(table_spec, params, data.draw(st.integers(1, 9)), np.array(aligned))


def test_errors_name_the_row_of_the_table(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "table.csv")
    table_spec = make_table_spec(path, "y", label="y")
    encoding = TableEncoding.from_prepared(prepare_all(table_spec, TWO, np.arange(ROWS)))
    good = path.read_text().splitlines()
    rows = np.array([57, 41, 50])

    def get_error(before: str, after: str) -> str:
        changed = [*good]
        assert before in changed[51]
        changed[51] = changed[51].replace(before, after)
        path.write_text("\n".join(changed))
        with pytest.raises(DataError) as caught:
            prepare_shard(table_spec, encoding, rows)
        return str(caught.value)

    number = TABLE["number"][50]
    assert get_error(number, "x").startswith(
        f"{path}: column 'number', row 51: 'x' is not a number"
    )
    assert get_error(number, "inf").startswith(f"{path}: column 'number', row 51 is infinite")
    assert get_error('"yes"', '"maybe"').startswith(f"{path}: the label of row 51 is 'maybe', and ")
    assert get_error('"yes"', "").startswith(f"{path}: the label of row 51 is missing, and ")
    path.write_text("\n".join(good[:50]))
    with pytest.raises(DataError, match="row 58 is not there any more, but 49 rows"):
        prepare_shard(table_spec, encoding, rows)


def test_changed_rows_are_rejected(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "table.csv")
    table_spec = make_table_spec(path, "y", label="y")
    rules: IdRules = [["strip"]]
    prepared = prepare_data("bank", read_lazy_frame(table_spec, rules), TWO)
    encoding, rows = TableEncoding.from_prepared(prepared), np.array([57, 41, 50])
    assert prepared.ids is not None
    same = ExpectedIds(rules, prepared.ids.take(rows).digest())
    prepare_shard(table_spec, encoding, rows, expected_ids=same)
    with pytest.raises(DataError, match=r"table.csv: other rows than before are in these places"):
        prepare_shard(table_spec, encoding, rows[::-1], expected_ids=same)
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([header, lines[-1], *lines[:-1]]))
    with pytest.raises(DataError, match=r"table.csv: other rows than before are in these places"):
        prepare_shard(table_spec, encoding, rows, expected_ids=same)
    path.write_text("\n".join([header, *lines[:50], lines[41], *lines[51:]]))
    with pytest.raises(DataError, match=r"table.csv: other rows than before are in these places"):
        prepare_shard(table_spec, encoding, rows, expected_ids=same)


def test_participant_without_features(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "table.csv")
    check_shards(TableSpec(path=str(path), id="id", columns=[]), TWO, 3)
