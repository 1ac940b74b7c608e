"""Whoever leaves something out gets the same in Python and on the command line."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import typer

import privet
from privet import Experiment, Frame, PrivetClassifier, PrivetRegressor
from privet.cli.app import app, import_command
from privet.data.partition import split_rows
from privet.spec.params import list_hyper_parameters


def _option(name: str) -> Any:
    (found,) = (option for option in import_command("simulate").params if option.name == name)
    return found


def test_the_command_line_has_the_defaults_of_an_experiment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Experiment] = []

    def stop(experiment: Experiment, *_: object) -> None:
        given.append(experiment)
        raise typer.Exit

    monkeypatch.setattr("privet.cli.simulate.run", stop)
    command: Any = typer.main.get_command(app)
    command(["simulate", "--data=breast-cancer"], standalone_mode=False)
    defaults = {name: field.default for name, field in list_hyper_parameters().items()}
    assert given == [Experiment(data="breast-cancer", params=defaults)]


def test_the_same_number_of_splits() -> None:
    assert (
        _option("splits").default == inspect.signature(privet.compare).parameters["splits"].default
    )


@pytest.mark.parametrize("estimator", [PrivetClassifier, PrivetRegressor])
def test_estimators_have_them(estimator: Any) -> None:
    parameters = inspect.signature(estimator).parameters
    for name in ("protocol", "cuts"):
        assert parameters[name].default == Experiment.model_fields[name].default, name


def test_the_same_number_of_parties(cancer: Frame) -> None:
    held = Experiment(data="breast-cancer").assign_columns(cancer)
    fitted = PrivetClassifier(protocol="plain", tables=1).fit(cancer.columns.T, cancer.label)
    assert [len(columns) for columns in held.values()] == [
        len(columns) for columns in fitted.partition_.values()
    ]
    assert _option("parties").show_default == str(len(held))


def test_the_same_test_rows(cancer: Frame) -> None:
    left_out = Experiment(data="breast-cancer")
    _, test = split_rows(cancer)
    _, spelled = split_rows(cancer, left_out.test_size, left_out.seed)
    assert (test.columns == spelled.columns).all()


def test_a_program_of_one_s_own_differs_in_one_thing() -> None:
    """It runs in threads, where it need not be picklable; an experiment in processes."""
    own = inspect.signature(privet.simulate).parameters
    shared = {name: own[name].default for name in ("network", "dealer_link", "ahead")}
    differs = {
        name: (default, Experiment.model_fields[name].default)
        for name, default in shared.items()
        if default != Experiment.model_fields[name].default
    }
    assert differs == {"network": ("memory", "loopback")}


@pytest.fixture(scope="module")
def cancer() -> Frame:
    return privet.load_dataset("breast-cancer").frame
