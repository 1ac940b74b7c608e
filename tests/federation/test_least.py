"""Federations whose levels may test nothing: files, inspection, predictions, resumption."""

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
def test_levels_that_test_nothing(tmp_path: Path, gain: float) -> None:
    local = prepare(tmp_path, tables=3)
    change(local.job_path, ("[params]", f"[params]\nmin_gain = {gain}\nsubsample = 0.9"))
    run(local, "train").checked()
    nothing = np.isposinf(model_of(local).threshold)
    assert nothing.all() if gain == 1e9 else nothing.any() and not nothing.all()
    shares = []
    for name in local.party_names:
        part = load_part(local.get_part_path(name)).part
        assert (np.isposinf(part.threshold) == nothing).all()
        shown = CliRunner().invoke(app, ["inspect", str(local.get_part_path(name)), "--json"])
        found = json.loads(shown.output)
        said = np.array([[test["test"] for test in table] for table in found["tables"]])
        first = part.features[0]
        words = f"{first.name}: any value" if first.owner == name else "nothing"
        assert (said[nothing] == words).all()
        shares.append(found["importances"])
    assert shares[0] == shares[1]
    assert (shares[0] == []) == bool(nothing.all())
    found = run(local, "predict").checked()
    (predictions,) = [found[name][1] for name in local.party_names if found[name][1] is not None]
    expected = model_of(local).predict(rows(2, 7).columns)
    got = [float(line.split(",")[-1]) for line in predictions.to_csv().decode().splitlines()[1:]]
    assert got == pytest.approx(expected, abs=1e-2 * float(np.abs(expected).max()))
