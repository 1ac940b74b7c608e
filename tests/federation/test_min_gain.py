"""Minimum gain: levels without a split in model files, inspection and predictions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from privet.cli.app import app
from privet.storage.model_part import load_part
from tests.federation.harness import change, model_of, prepare, rows, run


@pytest.mark.parametrize("gain", [2.0, 1e9])
def test_levels_without_a_split(tmp_path: Path, gain: float) -> None:
    local = prepare(tmp_path, tables=3)
    change(local.job_path, ("[params]", f"[params]\nmin_gain = {gain}\nsubsample = 0.9"))
    run(local, "train").checked()
    is_empty = np.isposinf(model_of(local).threshold)
    assert is_empty.all() if gain == 1e9 else is_empty.any() and not is_empty.all()
    importances = []
    for name in local.party_names:
        part = load_part(local.get_part_path(name)).part
        assert (np.isposinf(part.threshold) == is_empty).all()
        shown = CliRunner().invoke(app, ["inspect", str(local.get_part_path(name)), "--json"])
        summary = json.loads(shown.output)
        texts = np.array([[test["test"] for test in table] for table in summary["tables"]])
        first = part.features[0]
        expected_text = f"{first.name}: any value" if first.owner == name else "nothing"
        assert (texts[is_empty] == expected_text).all()
        importances.append(summary["importances"])
    assert importances[0] == importances[1]
    assert (importances[0] == []) == bool(is_empty.all())
    found = run(local, "predict").checked()
    (predictions,) = [found[name][1] for name in local.party_names if found[name][1] is not None]
    expected = model_of(local).predict(rows(2, 7).columns)
    values = [float(line.split(",")[-1]) for line in predictions.to_csv().decode().splitlines()[1:]]
    assert values == pytest.approx(expected, abs=1e-2 * float(np.abs(expected).max()))
