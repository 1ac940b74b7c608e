"""Options of `privet simulate` that say what a table is."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from privet.cli.app import app
from privet.errors import DataError


def test_a_table_as_people_have_it(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    rows = (
        f"{i};{'cook' if i % 3 else '?'};{i % 7},5;x{i};{'yes' if i % 5 < 2 else 'no'}"
        for i in range(60)
    )
    path.write_text("nr;job;spent;note;left\n" + "\n".join(rows) + "\n")
    said = ["--label", "left", "--positive", "no", "--id", "nr", "--decimal", ",", "--drop", "no*"]
    said += ["--missing", "job=?", "--parties", "2", "--tables", "2", "--protocol", "plain"]
    shown = CliRunner().invoke(app, ["simulate", "--data", str(path), *said])
    assert shown.exit_code == 0, shown.output
    assert "positive class: 'no', not 'yes'" in shown.output
    chosen = CliRunner().invoke(
        app, ["simulate", "--data", str(path), "--columns", "job,spent", *said[:8], *said[10:]]
    )
    assert chosen.exit_code == 0, chosen.output
    bad = CliRunner().invoke(app, ["simulate", "--data", str(path), *said[:8]])
    assert isinstance(bad.exception, DataError)
    assert "column 'note' has another category in each of 60 rows" in str(bad.exception)
