"""`privet simulate` with assigned columns and with --compare."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from privet import Comparison
from tests.test_cli import exit_code, privet

FEW = ("--tables", "4", "--depth", "2", "--buckets", "8")
COLUMNS = ("--columns", "shop=spent,vis*", "--columns", "bank=age", "--columns", "nobody=zip")


@pytest.fixture(autouse=True)
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(4, 400))
    label = (columns[0] + 3 * columns[1] > 0).astype(int)
    rows = [",".join(map(str, [*row, y])) for row, y in zip(columns.T, label, strict=True)]
    header = "age,spent,visits,zip,label"
    (tmp_path / "people.csv").write_text("\n".join([header, *rows]) + "\n")
    monkeypatch.chdir(tmp_path)


def test_a_comparison(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    process = privet(
        *("simulate", "--data", "people.csv", *COLUMNS, *FEW, "--compare", "--splits", "3"),
        *("--report", "c.json", "--plot", "c.svg"),
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    assert "6 trainings of 4 tables, in the clear, over 3 splits" in process.stderr
    assert "training 6/6" in process.stderr
    assert "100%" in process.stderr
    comparison = Comparison.model_validate_json((tmp_path / "c.json").read_bytes())
    alone, both = comparison.groups
    assert [alone.participants, both.participants] == [["bank"], ["shop", "bank"]]
    auc, gain = both.metrics["auc"], both.gains["auc"]
    assert auc.mean is not None
    assert auc.high is not None
    assert gain.mean is not None
    assert gain.high is not None
    shown = (
        f"│ bank [+] shop │       3 │ {auc.mean:.4f} ± {auc.high - auc.mean:.4f} │ *"
        f"[+]{gain.mean:.4f} ± {gain.high - gain.mean:.4f} │"
    )
    assert re.search(shown, process.stdout), process.stdout
    assert "people.csv: auc on 80 test rows, after 320 training rows" in process.stdout
    words = " ".join(process.stdout.split())
    assert comparison.reference in words
    assert comparison.method in words
    assert "A gain whose interval holds 0 may be none." in words
    assert (tmp_path / "c.svg").read_bytes().startswith(b"<?xml")


def test_metrics_of_any_size_have_four_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for scale, digits in ((1e6, r"\d,\d{3},\d{3}"), (1e-6, r"0\.0{5}\d{4}")):
        cells = "\n".join(f"{i % 7},{i % 5},{(i % 7) * scale + scale}" for i in range(100))
        (tmp_path / "t.csv").write_text(f"a,b,label\n{cells}\n")
        options = ("--data", "t.csv", "--parties", "2", "--compare", *FEW)
        assert exit_code(monkeypatch, "simulate", *options) == 0
        out = capsys.readouterr().out
        assert re.search(rf"│ party2 alone +│ *1 │ {digits} ± ", out), out
        assert "rmse (smaller is better) on 20 test rows" in out
        assert "A gain is how much smaller rmse gets." in out


def test_a_partition_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "who.toml").write_text(
        'active = "shop"\n[columns]\nshop = ["spent"]\nbank = ["age", "visits"]\nnobody = ["zip"]\n'
    )
    options = ("--data", "people.csv", "--partition", "who.toml", "--protocol", "plain", *FEW)
    for more, owners in ((), ["bank", "bank", "shop"]), (("--active", "bank"), ["shop", "bank"]):
        assert exit_code(monkeypatch, "simulate", *options, *more, "--report", "r.json") == 0
        report = json.loads((tmp_path / "r.json").read_text())
        assert list(dict.fromkeys(report["feature_owners"])) == list(dict.fromkeys(owners))
    capsys.readouterr()
    assert exit_code(monkeypatch, "simulate", *options, "--columns", "bank=age") == 3
    assert "partition: --columns says it as well as who.toml" in capsys.readouterr().err


def test_repeated_columns_of_one_participant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--data", "people.csv", "--protocol", "plain", "--report", "r.json", *FEW)
    columns = ("--columns", "shop= spent , zip", "--columns", "bank=", "--columns", "shop=age,v*")
    assert exit_code(monkeypatch, "simulate", *options, *columns, "--active", "bank") == 0
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["feature_names"] == ["age", "spent", "visits", "zip"]
    assert set(report["feature_owners"]) == {"shop"}
    assert report["n_parties"] == 2


@pytest.mark.parametrize(
    ("options", "code", "complaint"),
    [
        (["--compare", "--protocol", "masked"], 3, "protocol: everything that is compared is"),
        (["--compare", "--network", "lan"], 3, "network: everything"),
        (["--compare", "--cuts", "exact"], 3, "cuts: everything"),
        (["--compare", "--ahead"], 3, "ahead: everything"),
        (["--compare", "--save", "m.json"], 3, "save: many models are compared"),
        (["--compare", "--splits", "1"], 3, "splits: an interval takes at least 2"),
        (["--compare", "--plot", "c.pdf"], 3, "plot: c.pdf ends in none of .svg, .png"),
        (["--compare", "--plot", "c.svg", "--report", "c.svg"], 3, "plot: c.svg is where the"),
        (["--compare", "--report", "no/where.json"], 6, "not a directory"),
        (["--splits", "3"], 3, "splits: belongs to a comparison; add --compare"),
        (["--plot", "c.svg"], 3, "plot: belongs to a comparison"),
        (["--columns", "bank", "--columns", "a=b"], 3, "columns: 'bank' is not a participant and"),
        (["--columns", "bank=a*", "--parties", "2"], 3, "n_parties: columns says who takes part"),
        (["--columns", "bank=age", "--columns", "shop=spend"], 3, "'spend' of shop stands for no"),
        (["--columns", "bank=age", "--columns", "shop=spent"], 3, "'visits', 'zip' left over"),
        (["--active", "bank"], 3, "active: 'bank' is none of party1, party2, party3, party4"),
        (["--partition", "who.toml"], 3, "who.toml: No such file"),
        (["--stratify", "--task", "regression"], 3, "stratify: a regression has no classes"),
    ],
)
def test_invalid_options_are_rejected(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
    complaint: str,
) -> None:
    assert exit_code(monkeypatch, "simulate", "--data", "people.csv", *options) == code
    assert complaint in capsys.readouterr().err


def test_compare_accepts_the_plain_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--data", "people.csv", "--compare", "--protocol", "plain", "--splits", "2", *FEW)
    assert exit_code(monkeypatch, "simulate", *options) == 0


def test_help_explains_comparisons() -> None:
    shown = " ".join(re.sub("[│╭╮╰╯─]", " ", privet("simulate", "--help").stdout).split())
    for words in (
        "Is it worth it?",
        "With n participants, n + 1 trainings a split.",
        "'nobody' gets what is to be dropped",
        "published figures",
        "--no-stratify",
    ):
        assert words in shown, words
