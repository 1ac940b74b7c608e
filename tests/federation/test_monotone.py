"""Monotone constraints: each participant constrains its columns by name."""

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
    model_of,
    prepare,
    preprocess_offline,
    preprocessing_file,
    run,
    train_in_plaintext,
)

SIGNS = (-1, 1, 0, 0, 1)
"""For a, b, c of the bank and d, e of the shop; a and e contradict the label."""


def constrain(local: LocalFederation, bank: str = "a = -1, b = 1", shop: str = "e = 1") -> None:
    for name, constraints in (("bank", bank), ("shop", shop)):
        if constraints:
            entry = f'name = "{name}"'
            change(local.job_path, (entry, f"{entry}\nmonotone = {{ {constraints} }}"))


def count_violations(model: Model) -> int:
    rises = [
        np.diff(model.leaf_values[table].reshape(1 << level, 2, -1), axis=1) * SIGNS[feature]
        for table, features in enumerate(model.feature)
        for level, feature in enumerate(features)
    ]
    return sum(int((rise < 0).sum()) for rise in rises)


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("cuts", ["rounded", "hidden"])
def test_constraints_hold(tmp_path: Path, task: str, cuts: str) -> None:
    """The dealer supplies correlated randomness for them without knowing column names."""
    local = prepare(tmp_path, tables=3, task=task, cuts=cuts)
    constrain(local)
    found = run(local, "train").checked()
    model, plain = model_of(local), train_in_plaintext(local, common_rows(local))
    assert (model.feature == plain.feature).all()
    assert (model.threshold == plain.threshold).all()
    assert model.leaf_values == pytest.approx(plain.leaf_values, abs=1e-3)
    assert count_violations(model) == 0
    for name in NAMES:  # nothing more is revealed
        report, _ = found[name]
        assert not [reveal.what for reveal in report.reveals if "order" in reveal.what]
    assert run(local, "predict").checked()["shop"][1] is not None
    change(local.job_path, ("monotone = { e = 1 }", ""))
    assert "was trained by another job" in str(run(local, "train").errors["shop"])


def test_interrupted_training_resumes_with_constraints(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=3)
    constrain(local)
    done = []

    def stop(event: Event) -> None:
        if event.kind == "table":
            done.append(event)
            if len(done) == 2:
                raise KeyboardInterrupt

    assert "bank" in run(local, "train", handlers={"bank": stop}).errors
    run(local, "train").checked()
    assert model_of(local).n_tables == 3
    assert count_violations(model_of(local)) == 0


def test_offline_training_checks_constraints(tmp_path: Path) -> None:
    """The dealer gets the constraints by column position; preprocessing files contain them."""
    local = prepare(tmp_path, tables=1)
    constrain(local)
    cut_counts = (7, 7, 7, 7, 7)
    preprocess_offline(local, cuts=cut_counts, monotone=(1, -1, 0, 0, 1))
    failed = run(local, "train", absent=("dealer",))
    for name in NAMES:
        error = failed.errors[name]
        assert isinstance(error, CorrelationError), error
    assert "constraints: [1, -1, 0, 0, 1], and here it is [-1, 1, 0, 0, 1]" in str(
        failed.errors["bank"]
    )
    assert "--monotone=-1,1,0,0,1" in str(failed.errors["bank"])
    preprocess_offline(local, cuts=cut_counts, monotone=SIGNS)
    run(local, "train", absent=("dealer",)).checked()
    assert count_violations(model_of(local)) == 0


def test_offline_preprocessing_command_requires_constraints(tmp_path: Path) -> None:
    local = prepare(tmp_path, tables=1)
    constrain(local)
    dealer = local.folder / "dealer"
    command = [
        *("dealer", "--job", str(local.job_path), "--ahead", str(tmp_path / "dealt")),
        *("--key", str(dealer / "dealer.key"), "--certificate", str(dealer / "dealer.crt")),
        *("--samples", "40", "--features", "3,2", "--cuts", "7"),
    ]
    without = CliRunner().invoke(app, command)
    assert isinstance(without.exception, ParameterError)
    assert "give --monotone, 1, -1 or 0 for each column" in str(without.exception)
    invalid = CliRunner().invoke(app, [*command, "--monotone=-1,1,0,0,0"])
    assert "is not 5 numbers, one for each column" in str(invalid.exception)
    assert CliRunner().invoke(app, [*command, "--monotone=-1,1,0,0,1"]).exit_code == 0
    for name in NAMES:
        (tmp_path / "dealt" / f"{name}.correlations").replace(preprocessing_file(local, name))
    run(local, "train", absent=("dealer",)).checked()


def test_an_estimate(tmp_path: Path) -> None:
    """Constraints change the cost; for as many columns of each participant it is the same."""
    local = prepare(tmp_path)
    command = ["estimate", "--job", str(local.job_path), "--samples", "40", "--features", "3,2"]
    free = CliRunner().invoke(app, [*command, "--json"])
    constrain(local)
    first = CliRunner().invoke(app, [*command, "--json"])
    explicit = CliRunner().invoke(app, [*command, "--json", "--monotone=-1,1,0,1,0"])
    assert first.exit_code == explicit.exit_code == 0
    assert first.output == explicit.output != free.output
    few = CliRunner().invoke(app, [*command[:-1], "1,4"])
    assert "1 of bank, and the job constrains 2 of its columns" in str(few.exception)


@pytest.mark.parametrize(
    ("bank", "shop", "message"),
    [
        ("d = 1", "", "bank has no feature 'd', it is shop's: name a column of numbers"),
        ("", "height = 1", "shop has no feature 'height', it is nobody's"),
        ("label = 1", "", "bank has no feature 'label', it is nobody's"),
    ],
)
def test_unknown_columns_are_rejected(tmp_path: Path, bank: str, shop: str, message: str) -> None:
    """Every member reports the error before any computation."""
    local = prepare(tmp_path, tables=1)
    constrain(local, bank, shop)
    errors = run(local, "train").errors
    for name in NAMES:
        assert isinstance(errors[name], ParameterError), errors[name]
        assert message in str(errors[name])
    assert isinstance(errors["dealer"], ParameterError)
    assert "which has 0 of these" in str(errors["dealer"])


@pytest.mark.parametrize("kind", ["category", "one-hot"])
def test_categorical_columns_are_rejected(tmp_path: Path, kind: str) -> None:
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
def test_invalid_constraints_are_rejected(tmp_path: Path, sign: str) -> None:
    local = prepare(tmp_path, tables=1)
    constrain(local, f"a = {sign}", "")
    with pytest.raises(InputError, match="monotone"):
        Job.read(local.job_path)


def test_unsupported_jobs_are_rejected(tmp_path: Path) -> None:
    local = prepare(tmp_path / "paper", tables=1, protocol="paper")
    constrain(local)
    with pytest.raises(InputError, match="monotone: the protocol paper has no constraints"):
        Job.read(local.job_path)
    local = prepare(tmp_path / "several", tables=1)
    constrain(local)
    change(local.job_path, ("[params]", "classes = 3\n\n[params]"))
    with pytest.raises(InputError, match="monotone: 3 classes have no score"):
        Job.read(local.job_path)
