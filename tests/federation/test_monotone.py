"""Monotone constraints in a federation: each participant's, about its own columns, by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from privet.boosting.model import Model
from privet.cli.app import app
from privet.config.job import Job
from privet.errors import CorrelationError, InputError, ParameterError
from privet.experiments.local_federation import LocalFederation
from privet.federation.monitoring.events import Event
from tests.federation.harness import (
    NAMES,
    change,
    common_rows,
    deal_for,
    file_of,
    model_in_the_clear,
    model_of,
    prepare,
    run,
)

SIGNS = (-1, 1, 0, 0, 1)
"""Of a, b, c at the bank and d, e at the shop: a and e against what the label depends on."""


def constrain(local: LocalFederation, bank: str = "a = -1, b = 1", shop: str = "e = 1") -> None:
    for name, constraints in (("bank", bank), ("shop", shop)):
        if constraints:
            entry = f'name = "{name}"'
            change(local.job_path, (entry, f"{entry}\nmonotone = {{ {constraints} }}"))


def out_of_order(model: Model) -> int:
    rises = [
        np.diff(model.leaf_values[table].reshape(1 << level, 2, -1), axis=1) * SIGNS[feature]
        for table, features in enumerate(model.feature)
        for level, feature in enumerate(features)
    ]
    return sum(int((rise < 0).sum()) for rise in rises)


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("cuts", ["rounded", "hidden"])
def test_a_federation_keeps_them(tmp_path: Path, task: str, cuts: str) -> None:
    """The dealer, too, which knows no names of columns, deals for them."""
    local = prepare(tmp_path, tables=3, task=task, cuts=cuts)
    constrain(local)
    found = run(local, "train").checked()
    model, plain = model_of(local), model_in_the_clear(local, common_rows(local))
    assert (model.feature == plain.feature).all()
    assert (model.threshold == plain.threshold).all()
    assert model.leaf_values == pytest.approx(plain.leaf_values, abs=1e-3)
    assert out_of_order(model) == 0
    for name in NAMES:  # nothing more is revealed
        report, _ = found[name]
        assert not [reveal.what for reveal in report.reveals if "order" in reveal.what]
    assert run(local, "predict").checked()["shop"][1] is not None
    change(local.job_path, ("monotone = { e = 1 }", ""))
    assert "was trained by another job" in str(run(local, "train").errors["shop"])


def test_a_training_is_cut_short_and_gone_on_with(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=3)
    constrain(local)
    done = []

    def stop(event: Event) -> None:
        if event.kind == "table":
            done.append(event)
            if len(done) == 2:
                raise KeyboardInterrupt

    assert "bank" in run(local, "train", tells={"bank": stop}).errors
    run(local, "train").checked()
    assert model_of(local).n_tables == 3
    assert out_of_order(model_of(local)) == 0


def test_dealt_ahead(tmp_path: Path) -> None:
    """Which columns are constrained, the dealer is told by position, and files say so."""
    local = prepare(tmp_path, tables=1)
    constrain(local)
    told = (7, 7, 7, 7, 7)
    deal_for(local, cuts=told, monotone=(1, -1, 0, 0, 1))
    change_cuts = run(local, "train", absent=("dealer",))
    for name in NAMES:
        error = change_cuts.errors[name]
        assert isinstance(error, CorrelationError), error
    assert "constraints: [1, -1, 0, 0, 1], and here it is [-1, 1, 0, 0, 1]" in str(
        change_cuts.errors["bank"]
    )
    assert "--monotone=-1,1,0,0,1" in str(change_cuts.errors["bank"])
    deal_for(local, cuts=told, monotone=SIGNS)
    run(local, "train", absent=("dealer",)).checked()
    assert out_of_order(model_of(local)) == 0


def test_a_command_that_deals_ahead(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    constrain(local)
    dealer = local.folder / "dealer"
    command = [
        *("dealer", "--job", str(local.job_path), "--ahead", str(tmp_path / "dealt")),
        *("--key", str(dealer / "dealer.key"), "--certificate", str(dealer / "dealer.crt")),
        *("--samples", "40", "--features", "3,2", "--cuts", "7"),
    ]
    missing = CliRunner().invoke(app, command)
    assert isinstance(missing.exception, ParameterError)
    assert "give --monotone, 1, -1 or 0 for each column" in str(missing.exception)
    wrong = CliRunner().invoke(app, [*command, "--monotone=-1,1,0,0,0"])
    assert "is not 5 numbers, one for each column" in str(wrong.exception)
    assert CliRunner().invoke(app, [*command, "--monotone=-1,1,0,0,1"]).exit_code == 0
    for name in NAMES:
        (tmp_path / "dealt" / f"{name}.correlations").replace(file_of(local, name))
    run(local, "train", absent=("dealer",)).checked()


def test_an_estimate(tmp_path: Path) -> None:
    """With constraints, more; of the same columns, the same."""
    local = prepare(tmp_path)
    command = ["estimate", "--job", str(local.job_path), "--samples", "40", "--features", "3,2"]
    free = CliRunner().invoke(app, [*command, "--json"])
    constrain(local)
    first = CliRunner().invoke(app, [*command, "--json"])
    given = CliRunner().invoke(app, [*command, "--json", "--monotone=-1,1,0,1,0"])
    assert first.exit_code == given.exit_code == 0
    assert first.output == given.output != free.output
    few = CliRunner().invoke(app, [*command[:-1], "1,4"])
    assert "1 of bank, and the job constrains 2 of its columns" in str(few.exception)


@pytest.mark.parametrize(
    ("bank", "shop", "words"),
    [
        ("d = 1", "", "bank has no feature 'd', it is shop's: name a column of numbers"),
        ("", "height = 1", "shop has no feature 'height', it is nobody's"),
        ("label = 1", "", "bank has no feature 'label', it is nobody's"),
    ],
)
def test_columns_that_are_not_there(tmp_path: Path, bank: str, shop: str, words: str) -> None:
    """All say so, before anything is computed."""
    local = prepare(tmp_path, tables=1)
    constrain(local, bank, shop)
    errors = run(local, "train").errors
    for name in NAMES:
        assert isinstance(errors[name], ParameterError), errors[name]
        assert words in str(errors[name])
    assert isinstance(errors["dealer"], ParameterError)
    assert "which has 0 of these" in str(errors["dealer"])


@pytest.mark.parametrize("kind", ["category", "one-hot"])
def test_categories_do_not_grow(tmp_path: Path, kind: str) -> None:
    local = prepare(tmp_path, tables=1)
    constrain(local, "b = 1", "")
    change(
        local.folder / "bank" / "party.toml",
        ('id = "id"', f'id = "id"\ntypes = {{ b = "{kind}" }}'),
    )
    error = run(local, "train").errors["bank"]
    assert isinstance(error, ParameterError)
    assert "monotone: column 'b' holds categories, which do not grow" in str(error)


@pytest.mark.parametrize("sign", ["2", "0", "true", '"up"'])
def test_what_is_no_constraint(tmp_path: Path, sign: str) -> None:
    local = prepare(tmp_path, tables=1)
    constrain(local, f"a = {sign}", "")
    with pytest.raises(InputError, match="monotone"):
        Job.read(local.job_path)


def test_what_cannot_be_constrained(tmp_path: Path) -> None:
    local = prepare(tmp_path / "paper", tables=1, protocol="paper")
    constrain(local)
    with pytest.raises(InputError, match="monotone: the protocol paper has no constraints"):
        Job.read(local.job_path)
    local = prepare(tmp_path / "several", tables=1)
    constrain(local)
    change(local.job_path, ("[params]", "classes = 3\n\n[params]"))
    with pytest.raises(InputError, match="monotone: 3 classes have no score"):
        Job.read(local.job_path)
