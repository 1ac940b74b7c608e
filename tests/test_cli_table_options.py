"""Options of `privet simulate` that describe a table."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from privet.cli.app import app
from privet.errors import DataError


def test_table_with_uncommon_format(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    rows = (
        f"{i};{'cook' if i % 3 else '?'};{i % 7},5;x{i};{'yes' if i % 5 < 2 else 'no'}"
        for i in range(60)
    )
    path.write_text("nr;job;spent;note;left\n" + "\n".join(rows) + "\n")
    options = [
        "--label",
        "left",
        "--positive",
        "no",
        "--id",
        "nr",
        "--decimal",
        ",",
        "--drop",
        "no*",
    ]
    options += ["--missing", "job=?", "--parties", "2", "--tables", "2", "--protocol", "plain"]
    result = CliRunner().invoke(app, ["simulate", "--data", str(path), *options])
    assert result.exit_code == 0, result.output
    assert "positive class: 'no', not 'yes'" in result.output
    selected = CliRunner().invoke(
        app,
        ["simulate", "--data", str(path), "--columns", "job,spent", *options[:8], *options[10:]],
    )
    assert selected.exit_code == 0, selected.output
    failed = CliRunner().invoke(app, ["simulate", "--data", str(path), *options[:8]])
    assert isinstance(failed.exception, DataError)
    assert "column 'note' has another category in each of 60 rows" in str(failed.exception)
