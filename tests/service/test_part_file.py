"""Parts of models in files: read back as they were, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.boosting.model import Feature
from privet.boosting.part import LabelUnit, ModelPart
from privet.errors import ModelError
from privet.service.part_file import load_part, save_part


def part(unit: LabelUnit | None = None) -> ModelPart:
    return ModelPart(
        protocol="paper",
        task="regression",
        features=(Feature("a", "bank"), Feature("b", "shop"), Feature("c", "bank")),
        party="bank",
        feature=np.array([[0, 1], [2, 0], [1, 1]]),
        bucket=np.array([[3, -1], [0, 30], [-1, -1]]),
        threshold=np.array([[0.1, np.nan], [-np.inf, np.inf], [np.nan, np.nan]]),
        leaf_shares=np.array([[0, 1, 2**64 - 1, 2**63]] * 3, dtype=np.uint64),
        fraction_bits=20,
        unit=unit,
    )


@pytest.mark.parametrize("unit", [None, LabelUnit(0.1, 4.0)])
def test_a_part_comes_back(tmp_path: Path, unit: LabelUnit | None) -> None:
    path = tmp_path / "bank.json"
    save_part(part(unit), path)
    found = load_part(path)
    for name, value in vars(part(unit)).items():
        assert np.array_equal(getattr(found, name), value, equal_nan=name == "threshold"), name
    assert found.leaf_shares.dtype == np.uint64


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("format", "privet-model", "not a part file"),
        ("version", 2, "part file version 2; this software reads version 1"),
        ("party", "shop", "damaged: thresholds of other tests than shop's"),
        ("features", [{"name": "a", "owner": "bank"}], "not one of the 1"),
        ("fraction_bits", 64, "damaged: .*fraction_bits"),
        ("tables", [], "damaged: .*tables"),
        ("colour", "red", "damaged: .*colour"),
    ],
)
def test_what_is_no_part_is_refused(tmp_path: Path, key: str, value: Any, complaint: str) -> None:
    path = tmp_path / "bank.json"
    save_part(part(), path)
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, key: value}))
    with pytest.raises(ModelError, match=complaint):
        load_part(path)


def test_damaged_tables(tmp_path: Path) -> None:
    path = tmp_path / "bank.json"
    save_part(part(), path)
    record = json.loads(path.read_text())
    for key, value in (("leaf_shares", [1]), ("own", [None]), ("leaf_shares", [1, 2, 3, 2**64])):
        tables = [{**record["tables"][0], key: value}, *record["tables"][1:]]
        path.write_text(json.dumps({**record, "tables": tables}))
        with pytest.raises(ModelError, match="damaged"):
            load_part(path)
