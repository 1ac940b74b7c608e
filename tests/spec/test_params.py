"""There is one list of hyper-parameters: whoever takes some takes these, with these defaults."""

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
# For every hyper-parameter, another value than its default.
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


def test_the_list() -> None:
    """Literally, so that a default does not change unnoticed."""
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
def test_estimators_have_it(estimator: Any) -> None:
    own: dict[str, Any] = {"protocol": "masked", "partition": 4, "cuts": None, "dealers": 1}
    own |= {"monotone_constraints": None, "verbose": False, "random_state": None}
    own |= {"importance_type": "split", "warm_start": False}
    if estimator is PrivetClassifier:
        own["class_weight"] = None
    parameters = inspect.signature(estimator).parameters
    assert {name: p.default for name, p in parameters.items()} == {**own, **DEFAULTS}
    assert {p.kind for p in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert estimator().get_params() == {**own, **DEFAULTS}
    assert estimator(**OTHERS).get_params() == {**own, **OTHERS}
    with pytest.raises(TypeError, match="colour"):
        estimator(colour=1)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimators_train_with_it(estimator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reaches the training is what was given, and the defaults for the rest."""
    given: list[Params] = []

    class EnoughError(Exception):
        pass

    def stop(_: object, __: object, params: Params, *___: object, **____: object) -> None:
        given.append(params)
        raise EnoughError

    monkeypatch.setattr("privet.estimators.base.fit_parties", stop)
    X, y = np.arange(12.0).reshape(6, 2), [0, 1, 0, 1, 1, 1]
    for chosen in ({}, OTHERS, {"tables": np.int64(3), "l2": 2, "base_score": np.float32(0.5)}):
        with pytest.raises(EnoughError):
            estimator(**chosen).fit(X, y)
    task = "classification" if estimator is PrivetClassifier else "regression"
    assert given == [
        Params(task=task),
        Params(task=task, **OTHERS),
        Params(task=task, tables=3, l2=2.0, base_score=0.5),
    ]


def options() -> dict[str, Any]:
    """The options of `privet simulate`, by name."""
    return {option.name: option for option in import_command("simulate").params}


def test_simulate_has_it() -> None:
    own = inspect.signature(simulate).parameters.keys() - DEFAULTS.keys() - {"context"}
    found = options()
    assert found.keys() == own | DEFAULTS.keys()
    for name, default in DEFAULTS.items():
        option = found[name]
        assert option.default == default, name
        assert option.opts == ["--" + name.replace("_", "-")]
        if name != "seed":  # which also chooses the test rows
            assert option.help == Params.model_fields[name].description
        assert not option.required
    assert found["data"].opts == ["--data"]
    assert not found["data"].required  # a query does as well
    assert found["id_"].opts == ["--id"]
    assert found["protocol"].default == "masked"
    for name in own:
        assert found[name].help, name
    shown = CliRunner().invoke(app, ["simulate", "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    for internal in ("typing", "Annotated", "FieldInfo", "None"):
        assert internal not in shown.output


def test_simulate_passes_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Experiment] = []

    def stop(experiment: Experiment, *_: object) -> None:
        given.append(experiment)
        raise typer.Exit

    monkeypatch.setattr("privet.cli.simulate.run", stop)
    command: Any = typer.main.get_command(app)
    spelled = [f"--{name.replace('_', '-')}={value}" for name, value in OTHERS.items()]
    for arguments in ([], spelled):
        command(["simulate", "--data=breast-cancer", *arguments], standalone_mode=False)
    assert [experiment.params for experiment in given] == [DEFAULTS, OTHERS]
    for name, value in OTHERS.items():
        assert type(given[1].params[name]) is type(value), name


def job(**params: Any) -> Job:
    contacts = [{"address": f"127.0.0.1:{7400 + k}", "fingerprint": f"{k:064x}"} for k in range(3)]
    return Job.parse(
        {
            "name": "churn",
            "task": "regression",
            "params": params,
            "dealer": contacts[0],
            "participants": [
                {"name": "bank", "role": "active", **contacts[1]},
                {"name": "shop", **contacts[2]},
            ],
        }
    )


def test_a_job_has_it() -> None:
    assert job().make_params() == Params(task="regression")
    assert job(**OTHERS).make_params() == Params(task="regression", **OTHERS)
    for name, value in OTHERS.items():
        rest = {"validation": 0.5} if name == "patience" else {}
        changed = job(**rest, **{name: value})
        assert changed.list_digest_settings()[name] == value
        assert (changed.digest == job(**rest).digest) == (name in ("tables", "patience"))
    assert job().list_digest_settings().items() >= {"task": "regression", **DEFAULTS}.items()
    with pytest.raises(ParameterError, match=r"params\.colour: is not known"):
        job(colour=1)
    with pytest.raises(ParameterError, match=r"params\.task: is a key of the job itself"):
        job(task="regression")


def test_an_experiment_has_it() -> None:
    few = {**OTHERS, "tables": 1}
    experiment = Experiment(data="breast-cancer", n_parties=2, protocol="plain", params=few)
    _, report = run(experiment)
    assert report.params == Params(task="classification", **few)


def test_a_function_that_takes_them_spells_them_out() -> None:
    """Its own parameters first, then the list; called, it takes what it is given."""

    @with_hyper_parameters(lambda field: str(field.annotation))
    def function(own: int, *, other: str = "x", **params: Any) -> dict[str, Any]:
        return {"own": own, "other": other, **params}

    signature = inspect.signature(function)
    assert list(signature.parameters) == ["own", "other", *DEFAULTS]
    assert {n: p.default for n, p in signature.parameters.items() if n in DEFAULTS} == DEFAULTS
    assert function.__annotations__["tables"] == str(int)
    assert "params" not in function.__annotations__
    assert function(1, l2=2.0) == {"own": 1, "other": "x", "l2": 2.0}


@pytest.mark.parametrize("task", list(OBJECTIVES))
def test_an_objective_comes_with_the_task(task: str) -> None:
    assert Params(task=task).objective is OBJECTIVES[task]
    params = Params(task=task, depth=3, buckets=8)
    assert (params.n_leaves, params.max_cut_count) == (8, 7)


def test_an_unknown_task_is_quoted_and_cut() -> None:
    with pytest.raises(ParameterError, match="task: 'ranking' is none of regression, classif"):
        Params(task="ranking")
    with pytest.raises(ParameterError) as caught:
        Params(task="\x1b[2J" + "x" * 1000)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 200
