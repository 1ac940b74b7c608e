"""The command line: output and exit codes, mostly of real processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from privet import __version__, load_model
from privet.cli import app, simulate


def privet(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in a subprocess."""
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "privet", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=60,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        check=False,
    )


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    """Run the command in this process, without start-up time."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["privet", *arguments])
    with pytest.raises(SystemExit) as exit_info:
        app.main()
    return exit_info.value.code


def test_version_and_help() -> None:
    assert privet("--version").stdout == f"privet {__version__}\n"
    process = privet("simulate", "--help")
    assert process.returncode == 0
    assert "--learning-rate" in process.stdout


def test_simulate(tmp_path: Path) -> None:
    process = privet(
        "simulate",
        *("--data", "breast-cancer", "--parties", "4", "--protocol", "plain"),
        *("--tables", "12", "--depth", "3", "--buckets", "32", "--l2", "1.0"),
        *("--learning-rate", "1.0", "--test-size", "0.2", "--seed", "0"),
        *("--report", "report.json", "--save", "model.json"),
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    model = load_model(tmp_path / "model.json")
    assert report["metrics"]["auc"] >= 0.99
    assert "12/12" in process.stderr
    assert "loss 0." in process.stderr
    assert f"{report['metrics']['auc']:.4f}" in process.stdout
    assert f"{report['metrics']['accuracy']:.4f}" in process.stdout
    owner = model.features[model.feature[0, 0]].owner
    assert f"{model.describe_split(0, 0)} ({owner})" in process.stdout
    assert "and 2 more tables" in process.stdout


def test_closed_pipe_does_not_prevent_output_files(tmp_path: Path) -> None:
    options = "--data breast-cancer --protocol plain --tables 10 --depth 3 --save m.json"
    command = f"{sys.executable} -m privet simulate {options} | true"
    subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, timeout=60, check=False)  # noqa: S603
    assert load_model(tmp_path / "m.json").n_tables == 10


def test_the_base_score_is_passed_on(tmp_path: Path) -> None:
    process = privet(
        *("simulate", "--data", "breast-cancer", "--protocol", "plain"),
        *("--tables", "10", "--depth", "3", "--base-score", "0.5", "--save", "m.json"),
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    assert load_model(tmp_path / "m.json").base_score.tolist() == [0.5]


def test_names_are_not_interpreted_as_markup(tmp_path: Path) -> None:
    """A column name that looks like markup is text."""
    rows = "\n".join(f"{i},{i % 7},{int(i > 20)}" for i in range(40))
    (tmp_path / "t.csv").write_text(f"[red]a[/red],b,label\n{rows}\n")
    few = ("--tables", "10", "--depth", "1", "--learning-rate", "1")
    process = privet("simulate", "--data", "t.csv", "--parties", "2", *few, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert "[red]a[/red] < " in process.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--data", "breast-cancer", "--buckets", "1"], 3, "buckets: "),
        (["--data", "breast-cancer", "--protocol", "magic"], 3, "protocol: 'magic'"),
        (["--data", "breast-cancer", "--parties", "1"], 3, "n_parties: "),
        (["--data", "breast-cancer", "--test-size", "2"], 3, "test_size: "),
        (["--data", "breast-cancer", "--seed", "-1"], 3, "seed: "),
        (["--data", "breast-cancer", "--learning-rate", "1e-300"], 3, "learning_rate: "),
        (["--data", "breast-cancer", "--save", "x", "--report", "x"], 3, "save: "),
        (["--data", "nowhere.csv"], 4, "neither a file nor a data set"),
        (["--data", "bad.csv"], 4, "bad.csv: column 'a', row 2: 'x' is not a number"),
        (["--data", "breast-cancer", "--report", "no/where.json"], 6, "not a directory"),
        (["--data", "breast-cancer", "--tables", "many"], 2, "--tables"),
        (["--data", "breast-cancer", "--colour", "red"], 2, "--colour"),
        ([], 3, "data, query: give one of them"),
    ],
)
def test_errors_have_a_message_and_a_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    complaint: str,
) -> None:
    (tmp_path / "bad.csv").write_text("a,label\n1,0\nx,1\n")
    monkeypatch.chdir(tmp_path)
    assert exit_code(monkeypatch, "simulate", *arguments) == code
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("wait", ["nan", "-1", "0"])
@pytest.mark.parametrize("command", ["train", "dealer", "predict", "align"])
def test_invalid_timeout_is_rejected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, wait: str
) -> None:
    """A timeout of NaN would never pass."""
    files = ["--model=part"] if command == "predict" else ["--job=job.toml"]
    files += ["--party=party.toml"] if command != "dealer" else []
    assert exit_code(monkeypatch, command, *files, f"--wait={wait}") == 3
    assert f"wait: {wait} is not a number of seconds" in capsys.readouterr().err


def test_error_in_a_subprocess() -> None:
    process = privet("simulate", "--data", "nowhere.csv")
    assert process.returncode == 4
    assert process.stderr.splitlines()[-1].startswith("error: 'nowhere.csv' is neither a file")
    assert "Traceback" not in process.stderr


def test_interrupt_ends_without_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulate, "run", interrupt)
    assert exit_code(monkeypatch, "simulate", "--data", "breast-cancer") == 130
    assert "Traceback" not in capsys.readouterr().err


def test_offline_preprocessing_is_shown_separately(tmp_path: Path) -> None:
    process = privet(
        "simulate",
        *("--data", "breast-cancer", "--parties", "2", "--tables", "1", "--depth", "1"),
        *("--network", "1,1000", "--ahead", "--report", "report.json"),
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    seconds, estimated = report["seconds"], report["estimated_seconds"]
    for row in (
        f"│ offline .dealt ahead. │ *{seconds['ahead']:.2f} s │",
        f"│ correlations dealt ahead .* {estimated['ahead']:.1f} s │ *{seconds['train']:.1f} s │",
        f"│ dealer on a link of its own │ *{estimated['own']:.1f} s │ *│",
        f"│ dealer on the shared link .* {estimated['shared']:.1f} s │ *│",
    ):
        assert re.search(row, process.stdout), row
    process = privet("simulate", "--data", "breast-cancer", "--dealer-link", "moon", cwd=tmp_path)
    assert process.returncode == 3
    assert "dealer_link: 'moon' is none of own, shared, none" in process.stderr


def test_secure_protocol_shows_costs_and_disclosures(tmp_path: Path) -> None:
    process = privet(
        "simulate",
        *("--data", "breast-cancer", "--parties", "3", "--protocol", "paper"),
        *("--tables", "1", "--depth", "2", "--buckets", "8"),
        *("--report", "report.json", "--save", "model.json"),
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    assert "1/1 tables" in process.stderr
    assert "loss" not in process.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    size = report["bytes"]
    assert load_model(tmp_path / "model.json").n_tables == 1
    for row in (
        f"│ auc .* {report['metrics']['auc']:.4f} │ {report['plain_metrics']['auc']:.4f} │",
        f"│ online .* {size['online_total'] / 1e6:,.1f} MB │ *{report['rounds']['total']} │",
        f"│ offline .* {size['offline_total'] / 1e6:,.1f} MB │",
        "│ best bucket of every feature │ all    │       60 │",
        "│ predictions                  │ party3 │      114 │",
    ):
        assert re.search(row, process.stdout), row


def test_keys_are_created_and_renewed(tmp_path: Path) -> None:
    made = privet("keys", "ann", cwd=tmp_path)
    assert made.returncode == 0
    before = (tmp_path / "ann.crt").read_bytes()
    renewed = privet("keys", "ann", "--renew", cwd=tmp_path)
    assert (renewed.returncode, renewed.stdout) == (0, made.stdout)
    assert "renewed for 3649 days; the fingerprint stays" in renewed.stderr
    assert (tmp_path / "ann.crt").read_bytes().endswith(before)
    assert privet("keys", "bob", "--renew", cwd=tmp_path).returncode == 6
