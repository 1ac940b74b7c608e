"""`privet inspect`: the visible content of a part, and all of a whole model."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from privet import Feature, Model, ModelError, ParameterError, UnavailableError, save_model
from privet.boosting.summary import format_leaf_path, summarise_model, summarise_part
from privet.cli.app import app
from privet.experiments.local_federation import LocalFederation
from privet.experiments.plots import plot_model
from privet.storage.model_part import load_part
from tests.federation.harness import prepare, run

MODEL = Model(
    task="classification",
    features=(Feature("age", "bank"), Feature("$income$ <net>", "shop")),
    base_score=np.zeros(1),
    feature=np.array([[0, 1, 0], [1, 1, 1]]),
    bucket=np.zeros((2, 3), dtype=np.intp),
    threshold=np.array([[30.5, 7.25, -np.inf], [1.0, 2.0, np.inf]]),
    leaf_values=np.arange(16.0).reshape(2, 1, 8) / 8 - 1,
    classes=("no", "yes"),
)


def read_text(path: Path) -> str:
    """Return all text of an SVG plot, which matplotlib stores in comments."""
    ElementTree.parse(path)  # noqa: S314
    return "\n".join(re.findall(r"<!-- (.*?) -->", path.read_text()))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> LocalFederation:
    federation = prepare(tmp_path_factory.mktemp("inspect"), tables=3)
    run(federation, "train").checked()
    return federation


def test_a_whole_model(tmp_path: Path) -> None:
    save_model(MODEL, tmp_path / "model.json")
    result = CliRunner().invoke(
        app, ["inspect", str(tmp_path / "model.json")], env={"COLUMNS": "200"}
    )
    assert result.exit_code == 0
    assert "a whole model: classification, 2 tables" in result.output
    for text in ("age < 30.5", "$income$ <net> < 7.25", "age is missing", ": any value", "0.600"):
        assert text in result.output
    result = CliRunner().invoke(app, ["inspect", str(tmp_path / "model.json"), "--json"])
    found = json.loads(result.output)
    assert found["leaf_values"] == MODEL.leaf_values.tolist()
    assert found["tables"][0][0] == {
        "feature": "age",
        "owner": "bank",
        "threshold": "30.5",
        "test": "age < 30.5",
    }


def test_plots_of_a_whole_model(tmp_path: Path) -> None:
    save_model(MODEL, tmp_path / "model.json")
    (tmp_path / "report.json").write_text(json.dumps({"validation": {"losses": [0.5, 0.25]}}))
    command = ["inspect", str(tmp_path / "model.json"), f"--report={tmp_path / 'report.json'}"]
    for folder in ("one", "two"):
        result = CliRunner().invoke(app, [*command, f"--plot={tmp_path / folder}"])
        assert result.exit_code == 0
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["importances.svg", "loss.svg", "table-1.svg", "table-2.svg"]
    for name in files:  # the same model gives the same files
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    first = read_text(tmp_path / "one" / "table-1.svg")
    for text in ("row: age &lt; 30.5", "column: $income$ &lt;net&gt; &lt; 7.25", "-0.875", "+-"):
        assert text in first, first
    importances = read_text(tmp_path / "one" / "importances.svg")
    assert "$income$ &lt;net&gt; (shop)" in importances


def test_several_classes_have_a_grid_each(tmp_path: Path) -> None:
    names = ("ash", "elm", "$oak$")
    values = np.concatenate([MODEL.leaf_values, -MODEL.leaf_values, 0 * MODEL.leaf_values], axis=1)
    several = replace(MODEL, base_score=np.zeros(3), leaf_values=values, classes=names)
    plot_model(summarise_model(several), tmp_path)
    text = read_text(tmp_path / "table-1.svg")
    for name in names:
        assert name in text
    assert text.splitlines().count("0.875") == 1


def test_plots_of_a_part(local: LocalFederation, tmp_path: Path) -> None:
    """Plots show local splits in words, only the owners of other splits, and no leaf values."""
    file = load_part(local.get_part_path("bank"))
    summary = summarise_part(file.part, file.encoders)
    assert summary.leaf_values is None
    result = CliRunner().invoke(
        app, ["inspect", str(local.get_part_path("bank")), f"--plot={tmp_path}"]
    )
    assert result.exit_code == 0
    assert len(list(tmp_path.iterdir())) == 4
    for number, splits in enumerate(summary.tables, start=1):
        text = read_text(tmp_path / f"table-{number}.svg")
        for split in splits:
            is_local = split.feature.owner == "bank"
            assert (split.threshold is not None) == is_local
            expected = split.text if is_local else f"{split.feature.name} of shop: hidden"
            assert expected.replace("<", "&lt;") in text
        assert not re.search(r"\d\.\d{3}$", text, re.MULTILINE)


def test_each_participant_sees_only_its_thresholds(local: LocalFederation) -> None:
    summaries = [
        summarise_part(file.part, file.encoders)
        for file in (load_part(local.get_part_path(name)) for name in local.party_names)
    ]
    assert summaries[0].importances == summaries[1].importances
    for first, second in zip(summaries[0].tables, summaries[1].tables, strict=True):
        for first_split, second_split in zip(first, second, strict=True):
            assert first_split.feature == second_split.feature
            assert (first_split.description is None) != (second_split.description is None)


def test_leaf_paths() -> None:
    assert [format_leaf_path(leaf, 2) for leaf in range(4)] == ["++", "+-", "-+", "--"]
    assert format_leaf_path(0, 0) == ""
    assert summarise_model(MODEL).importances[0] == (MODEL.features[1], 3 / 5)


@pytest.mark.parametrize(
    ("report", "complaint"),
    [
        (None, "report: .*No such file"),
        ("losses", "not a report, which is JSON"),
        ("[1]", "has no losses"),
        ('{"losses": []}', "has no losses"),
        ('{"losses": ["low"], "validation": null}', "has no losses"),
    ],
)
def test_reports_without_losses(report: str | None, complaint: str, tmp_path: Path) -> None:
    save_model(MODEL, tmp_path / "model.json")
    path = tmp_path / "report.json"
    if report is not None:
        path.write_text(report)
    command = ["inspect", str(tmp_path / "model.json"), f"--report={path}"]
    result = CliRunner().invoke(app, [*command, f"--plot={tmp_path / 'out'}"])
    assert isinstance(result.exception, ParameterError)
    assert re.search(complaint, str(result.exception))
    result = CliRunner().invoke(app, command)
    assert "report: is for pictures" in str(result.exception)


def test_missing_model_and_library_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = CliRunner().invoke(app, ["inspect", str(tmp_path / "gone")])
    assert isinstance(result.exception, ModelError)
    save_model(MODEL, tmp_path / "model.json")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    command = ["inspect", str(tmp_path / "model.json"), f"--plot={tmp_path / 'out'}"]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, UnavailableError)
    assert not (tmp_path / "out").exists()
