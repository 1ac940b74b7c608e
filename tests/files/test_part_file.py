"""Parts of models in files: read back as they were, or refused by name."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.boosting.model import Feature
from privet.boosting.part import LabelUnit, ModelPart
from privet.errors import ModelError
from privet.files.job import Job
from privet.files.part_file import PartFile, load_part, save_part


def part(unit: LabelUnit | None = None) -> ModelPart:
    return ModelPart(
        protocol="paper",
        task="regression",
        features=(Feature("a", "bank"), Feature("b", "shop"), Feature("c", "bank")),
        party="bank",
        feature=np.array([[0, 1], [2, 0], [1, 1]]),
        bucket=np.array([[3, -1], [0, 30], [-1, -1]]),
        threshold=np.array([[0.1, np.nan], [-np.inf, np.inf], [np.nan, np.nan]]),
        leaf_shares=np.array([[0, 1, 2**32 - 1, 2**31]] * 3, dtype=np.uint32),
        fraction_bits=20,
        unit=unit,
    )


def file(unit: LabelUnit | None = None, run: str = "a run") -> PartFile:
    contact = {"address": "127.0.0.1:1", "fingerprint": "0" * 64}
    job = Job.parse(
        {
            "name": "churn",
            "task": "regression",
            "dealer": contact,
            "participants": [
                {"name": "bank", "address": "127.0.0.1:2", "fingerprint": "1" * 64},
                {"name": "shop", "role": "active", "address": "b:3", "fingerprint": "2" * 64},
            ],
        }
    )
    return PartFile(part(unit), job, "data", run)


@pytest.mark.parametrize("unit", [None, LabelUnit(0.1, 4.0)])
def test_a_part_comes_back(tmp_path: Path, unit: LabelUnit | None) -> None:
    path = tmp_path / "bank.part"
    save_part(file(unit), path)
    found = load_part(path)
    for name, value in vars(part(unit)).items():
        assert np.array_equal(getattr(found.part, name), value, equal_nan=name == "threshold"), name
    assert found.part.leaf_shares.dtype == np.uint32
    assert (found.job, found.data, found.run) == (file().job, "data", "a run")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_models_name_is_that_of_its_run() -> None:
    assert file().model == file(LabelUnit(0.1, 4.0)).model
    assert file().model != file(run="another").model


def rewritten(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a part and seal it again, as somebody with another program might."""
    save_part(file(), path)
    record = json.loads(path.read_text())
    change(record)
    record["seal"] = ""
    sealed = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    record["seal"] = hashlib.sha256(sealed.encode()).hexdigest()
    path.write_text(json.dumps(record))


def test_rewriting_leaves_the_seal_intact(tmp_path: Path) -> None:
    rewritten(tmp_path / "bank.part", lambda record: None)
    assert load_part(tmp_path / "bank.part").model == file().model


def test_a_changed_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "bank.part"
    save_part(file(), path)
    text = path.read_text()
    assert str(2**31) in text
    path.write_text(text.replace(str(2**31), str(2**31 + 1)))
    with pytest.raises(ModelError, match="does not fit its seal"):
        load_part(path)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("format", "privet-model", "not a part file"),
        ("version", 1, "part file version 1; this software reads version 2: use the release"),
        ("colour", "red", "damaged: .*colour"),
        ("model", "another", "damaged: its name is not that of its content"),
        ("job", {}, "damaged: .*participants"),
        ("part.party", "shop", "damaged: thresholds of other tests than shop's"),
        ("part.features", [{"name": "a", "owner": "bank"}], "not one of the 1"),
        ("part.fraction_bits", 64, "damaged: .*fraction_bits"),
        ("part.tables", [], "damaged: .*tables"),
        ("part.tables.0.leaf_shares", [1], "damaged"),
        ("part.tables.0.leaf_shares", [1, 2, 3, 2**32], "damaged"),
        ("part.tables.0.own", [None], "damaged"),
    ],
)
def test_what_is_no_part_is_refused(tmp_path: Path, key: str, value: Any, complaint: str) -> None:
    path = tmp_path / "bank.part"
    *steps, last = key.split(".")

    def change(record: Any) -> None:
        for step in steps:
            record = record[int(step) if step.isdigit() else step]
        record[last] = value

    rewritten(path, change)
    with pytest.raises(ModelError, match=complaint):
        load_part(path)
