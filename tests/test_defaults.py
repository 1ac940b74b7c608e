"""Python and the command line have the same defaults."""

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


def test_command_line_and_experiment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiments: list[Experiment] = []

    def stop(experiment: Experiment, *_: object) -> None:
        experiments.append(experiment)
        raise typer.Exit

    monkeypatch.setattr("privet.cli.simulate.run", stop)
    command: Any = typer.main.get_command(app)
    command(["simulate", "--data=breast-cancer"], standalone_mode=False)
    defaults = {name: field.default for name, field in list_hyper_parameters().items()}
    assert experiments == [Experiment(data="breast-cancer", params=defaults)]


def test_number_of_splits() -> None:
    assert (
        _option("splits").default == inspect.signature(privet.compare).parameters["splits"].default
    )


@pytest.mark.parametrize("estimator", [PrivetClassifier, PrivetRegressor])
def test_estimators(estimator: Any) -> None:
    parameters = inspect.signature(estimator).parameters
    for name in ("protocol", "cuts"):
        assert parameters[name].default == Experiment.model_fields[name].default, name


def test_number_of_parties(cancer: Frame) -> None:
    ownership = Experiment(data="breast-cancer").assign_columns(cancer)
    fitted = PrivetClassifier(protocol="plain", tables=1).fit(cancer.columns.T, cancer.label)
    assert [len(columns) for columns in ownership.values()] == [
        len(columns) for columns in fitted.partition_.values()
    ]
    assert _option("parties").show_default == str(len(ownership))


def test_test_rows(cancer: Frame) -> None:
    experiment = Experiment(data="breast-cancer")
    _, test = split_rows(cancer)
    _, expected = split_rows(cancer, experiment.test_size, experiment.seed)
    assert (test.columns == expected.columns).all()


def test_simulate_differs_only_in_the_network() -> None:
    """A custom program runs in threads, since it need not be picklable; an experiment does not."""
    parameters = inspect.signature(privet.simulate).parameters
    defaults = {name: parameters[name].default for name in ("network", "dealer_link", "ahead")}
    differs = {
        name: (default, Experiment.model_fields[name].default)
        for name, default in defaults.items()
        if default != Experiment.model_fields[name].default
    }
    assert differs == {"network": ("memory", "loopback")}


@pytest.fixture(scope="module")
def cancer() -> Frame:
    return privet.load_dataset("breast-cancer").frame
