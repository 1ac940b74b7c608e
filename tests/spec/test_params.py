"""Jobs, estimators and commands accept the same hyper-parameters with the same defaults."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import typer
from pydantic_core import PydanticUndefined
from typer.testing import CliRunner

from privet import Experiment, ParameterError, Params, PrivetClassifier, PrivetRegressor, run
from privet.cli.app import app, import_command
from privet.cli.simulate import simulate
from privet.config.job import Job
from privet.objectives.regression import OBJECTIVES
from privet.spec.params import list_hyper_parameters, with_hyper_parameters

LEARNED = ("task", "classes")
DEFAULTS = {
    name: field.default for name, field in Params.model_fields.items() if name not in LEARNED
}
ESTIMATORS = (PrivetClassifier, PrivetRegressor)
# For each hyper-parameter a value that is not its default.
OTHERS: dict[str, Any] = {
    "tables": 3,
    "depth": 2,
    "buckets": 8,
    "l2": 0.5,
    "learning_rate": 0.75,
    "base_score": 0.25,
    "min_child_weight": 1.5,
    "min_gain": 0.5,
    "subsample": 0.5,
    "colsample": 0.75,
    "validation": 0.25,
    "patience": 4,
    "masks": "uniform",
    "seed": 7,
}


def test_names_and_defaults() -> None:
    """Fixed values, so that no default changes unnoticed."""
    assert DEFAULTS == {
        "tables": 50,
        "depth": 5,
        "buckets": 32,
        "l2": 1.0,
        "learning_rate": 0.3,
        "base_score": None,
        "min_child_weight": 0.0,
        "min_gain": 0.0,
        "subsample": 1.0,
        "colsample": 1.0,
        "validation": 0.0,
        "patience": None,
        "masks": "auto",
        "seed": 0,
    }
    assert Params.model_fields["task"].default is PydanticUndefined
    assert Params.model_fields["classes"].default == 2
    assert {name: field.default for name, field in list_hyper_parameters().items()} == DEFAULTS
    assert OTHERS.keys() == DEFAULTS.keys()
    assert all(OTHERS[name] != default for name, default in DEFAULTS.items())
    for name, field in list_hyper_parameters().items():
        assert field.description, name


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimators_accept_all_hyper_parameters(estimator: Any) -> None:
    others: dict[str, Any] = {"protocol": "masked", "partition": 4, "cuts": None, "dealers": 1}
    others |= {"monotone_constraints": None, "verbose": False, "random_state": None}
    others |= {"importance_type": "split", "warm_start": False}
    if estimator is PrivetClassifier:
        others["class_weight"] = None
    parameters = inspect.signature(estimator).parameters
    assert {name: p.default for name, p in parameters.items()} == {**others, **DEFAULTS}
    assert {p.kind for p in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert estimator().get_params() == {**others, **DEFAULTS}
    assert estimator(**OTHERS).get_params() == {**others, **OTHERS}
    with pytest.raises(TypeError, match="colour"):
        estimator(colour=1)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimators_pass_hyper_parameters_to_training(
    estimator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training receives the given values, and the defaults of all others."""
    received: list[Params] = []

    class StopTraining(Exception):  # noqa: N818
        pass

    def stop(_: object, __: object, params: Params, *___: object, **____: object) -> None:
        received.append(params)
        raise StopTraining

    monkeypatch.setattr("privet.estimators.base.fit_parties", stop)
    X, y = np.arange(12.0).reshape(6, 2), [0, 1, 0, 1, 1, 1]
    for chosen in ({}, OTHERS, {"tables": np.int64(3), "l2": 2, "base_score": np.float32(0.5)}):
        with pytest.raises(StopTraining):
            estimator(**chosen).fit(X, y)
    task = "classification" if estimator is PrivetClassifier else "regression"
    assert received == [
        Params(task=task),
        Params(task=task, **OTHERS),
        Params(task=task, tables=3, l2=2.0, base_score=0.5),
    ]


def options() -> dict[str, Any]:
    """Return the options of `privet simulate`, by name."""
    return {option.name: option for option in import_command("simulate").params}


def test_simulate_has_an_option_for_each_hyper_parameter() -> None:
    others = inspect.signature(simulate).parameters.keys() - DEFAULTS.keys() - {"context"}
    by_name = options()
    assert by_name.keys() == others | DEFAULTS.keys()
    for name, default in DEFAULTS.items():
        option = by_name[name]
        assert option.default == default, name
        assert option.opts == ["--" + name.replace("_", "-")]
        if name != "seed":  # which also chooses the test rows
            assert option.help == Params.model_fields[name].description
        assert not option.required
    assert by_name["data"].opts == ["--data"]
    assert not by_name["data"].required  # a query is an alternative
    assert by_name["id_"].opts == ["--id"]
    assert by_name["protocol"].default == "masked"
    for name in others:
        assert by_name[name].help, name
    shown = CliRunner().invoke(app, ["simulate", "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    for internal in ("typing", "Annotated", "FieldInfo", "None"):
        assert internal not in shown.output


def test_simulate_passes_hyper_parameters_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[Experiment] = []

    def stop(experiment: Experiment, *_: object) -> None:
        received.append(experiment)
        raise typer.Exit

    monkeypatch.setattr("privet.cli.simulate.run", stop)
    command: Any = typer.main.get_command(app)
    given = [f"--{name.replace('_', '-')}={value}" for name, value in OTHERS.items()]
    for arguments in ([], given):
        command(["simulate", "--data=breast-cancer", *arguments], standalone_mode=False)
    assert [experiment.params for experiment in received] == [DEFAULTS, OTHERS]
    for name, value in OTHERS.items():
        assert type(received[1].params[name]) is type(value), name


def job(**params: Any) -> Job:
    peers = [{"address": f"127.0.0.1:{7400 + k}", "fingerprint": f"{k:064x}"} for k in range(3)]
    return Job.parse(
        {
            "name": "churn",
            "task": "regression",
            "params": params,
            "dealer": peers[0],
            "participants": [
                {"name": "bank", "role": "active", **peers[1]},
                {"name": "shop", **peers[2]},
            ],
        }
    )


def test_job_accepts_all_hyper_parameters() -> None:
    assert job().make_params() == Params(task="regression")
    assert job(**OTHERS).make_params() == Params(task="regression", **OTHERS)
    for name, value in OTHERS.items():
        required = {"validation": 0.5} if name == "patience" else {}
        changed = job(**required, **{name: value})
        assert changed.list_digest_settings()[name] == value
        assert (changed.digest == job(**required).digest) == (name in ("tables", "patience"))
    assert job().list_digest_settings().items() >= {"task": "regression", **DEFAULTS}.items()
    with pytest.raises(ParameterError, match=r"params\.colour: is not known"):
        job(colour=1)
    with pytest.raises(ParameterError, match=r"params\.task: is a key of the job itself"):
        job(task="regression")


def test_experiment_accepts_all_hyper_parameters() -> None:
    few = {**OTHERS, "tables": 1}
    experiment = Experiment(data="breast-cancer", n_parties=2, protocol="plain", params=few)
    _, report = run(experiment)
    assert report.params == Params(task="classification", **few)


def test_decorated_function_names_all_hyper_parameters() -> None:
    """The declared parameters come first, then the list; a call passes its arguments on."""

    @with_hyper_parameters(lambda field: str(field.annotation))
    def function(first: int, *, other: str = "x", **params: Any) -> dict[str, Any]:
        return {"first": first, "other": other, **params}

    signature = inspect.signature(function)
    assert list(signature.parameters) == ["first", "other", *DEFAULTS]
    assert {n: p.default for n, p in signature.parameters.items() if n in DEFAULTS} == DEFAULTS
    assert function.__annotations__["tables"] == str(int)
    assert "params" not in function.__annotations__
    assert function(1, l2=2.0) == {"first": 1, "other": "x", "l2": 2.0}


@pytest.mark.parametrize("task", list(OBJECTIVES))
def test_task_determines_objective(task: str) -> None:
    assert Params(task=task).objective is OBJECTIVES[task]
    params = Params(task=task, depth=3, buckets=8)
    assert (params.n_leaves, params.max_cut_count) == (8, 7)


def test_unknown_task_is_quoted_and_truncated() -> None:
    with pytest.raises(ParameterError, match="task: 'ranking' is none of regression, classif"):
        Params(task="ranking")
    with pytest.raises(ParameterError) as caught:
        Params(task="\x1b[2J" + "x" * 1000)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 200
