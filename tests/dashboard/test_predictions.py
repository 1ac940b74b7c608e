"""Predictions in a file and their feature attributions."""

from __future__ import annotations

from pathlib import Path

import pytest

from privet.dashboard.predictions import find_predictions, read_attributions
from privet.errors import DataError, ParameterError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "predictions.csv"
    path.write_text(
        "id,class,probability of yes,contribution of age,contribution of income,base\n"
        "17,yes,0.9,0.5,-2.0,1.25\n175,no,0.2,-0.5,0.25,1.25\n"
    )
    return path


def test_attributions_are_sorted_and_add_up_to_the_score(file: Path) -> None:
    result = read_attributions(file, "17")
    assert result["predicted"] == {"id": "17", "class": "yes", "probability of yes": "0.9"}
    (output,) = result["outputs"]
    assert [each["name"] for each in output["contributions"]] == ["income", "age"]
    assert output["score"] == 1.25 + 0.5 - 2.0


def test_several_classes(tmp_path: Path) -> None:
    path = tmp_path / "predictions.csv"
    path.write_text(
        "id,class,contribution of age to a,contribution of age to b,base of a,base of b\n"
        "1,a,2.0,-1.0,0.5,0.25\n"
    )
    outputs = read_attributions(path, "1")["outputs"]
    assert [(each["of"], each["score"]) for each in outputs] == [("a", 2.5), ("b", -0.75)]
    assert outputs[1]["contributions"] == [{"name": "age", "value": -1.0}]


def test_find_rows_by_id_prefix(file: Path) -> None:
    assert find_predictions(file)["found"] == 2
    found = find_predictions(file, "175")
    assert found["rows"] == [["175", "no", "0.2"]]
    assert (found["found"], found["all"]) == (1, 2)


def test_missing_rows_and_files_are_reported(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="'18' is not among"):
        read_attributions(file, "18")
    with pytest.raises(DataError, match="cannot be read any more"):
        find_predictions(tmp_path / "gone.csv")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(DataError, match="no rows"):
        find_predictions(tmp_path / "empty.csv")
