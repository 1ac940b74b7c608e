"""Adding tables to an existing model (`warm_start`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privet import ParameterError, PrivetClassifier, PrivetRegressor, load_model, save_model
from privet.arrays import FloatArray
from privet.boosting.binning import bucket_columns
from privet.boosting.simulation import train_federated, train_locally_with_losses
from privet.spec.params import Params

N = 240
ESTIMATORS = [PrivetClassifier, PrivetRegressor]
SMALL: dict[str, Any] = {"depth": 2, "buckets": 8, "partition": 2}


def make_rows(estimator: Any, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Return rows and a label for the estimator."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(N, 4))
    y = X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * random.normal(size=N)
    return X, (y > 0).astype(np.float64) if estimator is PrivetClassifier else y


def fit_in_two_steps(estimator: Any, *, weight: FloatArray | None = None, **params: Any) -> Any:
    """Return an estimator that was fitted with 3 tables, then with 5."""
    X, y = make_rows(estimator)
    fitted = estimator(tables=3, warm_start=True, **SMALL, **params).fit(X, y, weight)
    first = fitted.model_
    fitted.set_params(tables=5).fit(X, y, weight)
    assert (fitted.model_.leaf_values[:3] == first.leaf_values).all()
    return fitted


def fit_at_once(estimator: Any, *, weight: FloatArray | None = None, **params: Any) -> Any:
    """Return an estimator that was fitted with 5 tables."""
    return estimator(tables=5, **SMALL, **params).fit(*make_rows(estimator), weight)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("sampling", [{}, {"subsample": 0.5, "colsample": 0.5, "random_state": 3}])
@pytest.mark.parametrize("weighted", [False, True])
def test_plaintext_model_is_the_same(
    estimator: Any, sampling: dict[str, Any], weighted: bool
) -> None:
    weight = np.linspace(0.5, 2, N) if weighted else None
    resumed = fit_in_two_steps(estimator, weight=weight, protocol="plain", **sampling)
    complete = fit_at_once(estimator, weight=weight, protocol="plain", **sampling)
    assert resumed.model_ == complete.model_
    assert resumed.report_.losses == complete.report_.losses
    assert len(resumed.report_.losses) == 5
    for kind in ("split", "gain"):
        by_kind = [
            e.set_params(importance_type=kind).feature_importances_ for e in (resumed, complete)
        ]
        assert (by_kind[0] == by_kind[1]).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_masked_model_is_the_same_except_for_rounding(estimator: Any) -> None:
    resumed, complete = fit_in_two_steps(estimator), fit_at_once(estimator)
    assert (resumed.model_.feature == complete.model_.feature).all()
    assert (resumed.model_.bucket == complete.model_.bucket).all()
    assert (resumed.model_.threshold == complete.model_.threshold).all()
    assert np.abs(resumed.model_.leaf_values - complete.model_.leaf_values).max() < 2.0**-12
    assert (resumed.model_.left_fraction == complete.model_.left_fraction).all()
    # Only the tables that were missing were trained: two of five.
    assert 0 < resumed.report_.rounds < complete.report_.rounds / 2


def test_warm_start_can_be_set_before_the_second_fit() -> None:
    X, y = make_rows(PrivetRegressor)
    fitted = PrivetRegressor(protocol="plain", tables=3, **SMALL).fit(X, y)
    fitted.set_params(tables=5, warm_start=True).fit(X, y)
    assert fitted.model_ == fit_at_once(PrivetRegressor, protocol="plain").model_


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_fit_with_the_same_tables_does_nothing(protocol: str) -> None:
    X, y = make_rows(PrivetRegressor)
    fitted = PrivetRegressor(protocol=protocol, tables=2, warm_start=True, **SMALL).fit(X, y)
    model, report = fitted.model_, fitted.report_
    fitted.fit(X, y)
    assert fitted.model_ is model
    assert fitted.report_ is report
    fitted.set_params(warm_start=False).fit(X, y)
    assert fitted.model_ is not model


Change = Callable[[Any, FloatArray, FloatArray], Any]
CHANGES: list[tuple[Change, str]] = [
    (lambda e, X, y: e.set_params(tables=2).fit(X, y), "tables: 2, .* there has 3"),
    (lambda e, X, y: e.set_params(l2=2.0).fit(X, y), r"l2 is 2\.0, and was 1\.0"),
    (lambda e, X, y: e.set_params(depth=3).fit(X, y), "depth is 3, and was 2"),
    (lambda e, X, y: e.set_params(random_state=7).fit(X, y), "seed is 7, and was 0"),
    (lambda e, X, y: e.set_params(protocol="masked").fit(X, y), "protocol is 'masked'"),
    (lambda e, X, y: e.set_params(cuts="exact").fit(X, y), "cuts is 'exact', and was None"),
    (lambda e, X, y: e.set_params(partition=3).fit(X, y), "partition is"),
    (
        lambda e, X, y: e.set_params(monotone_constraints={0: 1}).fit(X, y),
        r"monotone_constraints is \[1, 0, 0, 0\]",
    ),
    (lambda e, X, y: e.fit(X[1:], y[1:]), f"{N - 1} rows and 4 columns, .* on {N} rows and 4"),
    (lambda e, X, y: e.fit(X[:, 1:], y), f"{N} rows and 3 columns, .* on {N} rows and 4"),
    (lambda e, X, y: e.fit(X[::-1], y), "not the rows, labels and weights"),
    (lambda e, X, y: e.fit(X, y[::-1]), "not the rows, labels and weights"),
    (lambda e, X, y: e.fit(X, y, np.linspace(1, 2, N)), "not the rows, labels and weights"),
    (lambda e, X, y: e.fit(X, y, eval_set=(X, y)), "does not go with validation rows"),
    (lambda e, X, y: e.set_params(validation=0.2).fit(X, y), "does not go with validation rows"),
    (lambda e, X, y: e.fit(X, y, early_stopping_rounds=2), "does not go with .* early stopping"),
    (lambda e, X, y: e.set_params(patience=2).fit(X, y), "does not go with .* early stopping"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_other_changes_are_rejected(change: Change, message: str) -> None:
    """The existing model is unchanged: it predicts, and training can resume."""
    X, y = make_rows(PrivetRegressor)
    fitted = PrivetRegressor(protocol="plain", tables=3, warm_start=True, **SMALL).fit(X, y)
    params, expected = fitted.get_params(), fitted.predict(X)
    fitted.set_params(tables=5)
    with pytest.raises(ParameterError, match=message):
        change(fitted, X, y)
    assert (fitted.predict(X) == expected).all()
    fitted.set_params(**{**params, "tables": 5}).fit(X, y)
    assert fitted.model_ == fit_at_once(PrivetRegressor, protocol="plain").model_


def test_changed_classes_are_rejected() -> None:
    X, y = make_rows(PrivetClassifier)
    fitted = PrivetClassifier(protocol="plain", tables=3, warm_start=True, **SMALL).fit(X, y)
    with pytest.raises(ParameterError, match=r"labels is \('no', 'yes'\)"):
        fitted.set_params(tables=5).fit(X, np.where(y > 0, "yes", "no"))
    assert fitted.classes_.tolist() == [0, 1]


def test_validated_model_does_not_resume() -> None:
    X, y = make_rows(PrivetRegressor)
    fitted = PrivetRegressor(protocol="plain", tables=3, **SMALL).fit(X, y, eval_set=(X, y))
    with pytest.raises(ParameterError, match=f"trained on {2 * N} rows"):
        fitted.set_params(tables=5, warm_start=True).fit(X, y)


def test_loaded_model_does_not_resume(tmp_path: Any) -> None:
    X, y = make_rows(PrivetRegressor)
    fitted = PrivetRegressor(protocol="plain", tables=3, warm_start=True, **SMALL).fit(X, y)
    save_model(fitted, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert isinstance(loaded, PrivetRegressor)
    assert loaded.get_params() == fitted.get_params()
    with pytest.raises(ParameterError, match="a model from a file"):
        loaded.set_params(tables=5).fit(X, y)
    assert (loaded.predict(X) == fitted.predict(X)).all()


def test_cost_of_resuming_is_as_estimated() -> None:
    X, y = make_rows(PrivetRegressor)
    parties = [
        bucket_columns(name, [f"{name}{i}" for i in range(2)], part, 8)
        for name, part in (("a", X.T[:2]), ("b", X.T[2:]))
    ]
    params = Params(task="regression", tables=1, depth=2, buckets=8)
    first = train_federated(parties, y, params, "masked")
    more = params.model_copy(update={"tables": 3})
    estimates: list[Any] = []
    second = train_federated(
        parties, y, more, "masked", resume_from=first.states, on_estimate=estimates.append
    )
    assert [state.part.n_tables for state in second.states] == [3, 3]
    meters = second.program_result.meters
    assert meters[0].sum_traffic("online").rounds == estimates[0].rounds
    assert sum(meter.sum_traffic("online").sent for meter in meters) == estimates[0].online_bytes
    assert (
        sum(meter.sum_traffic("offline").received for meter in meters) == estimates[0].offline_bytes
    )
    model = train_locally_with_losses(parties, y, params, "plain").model
    with pytest.raises(ParameterError, match="masked goes on from the parties' states"):
        train_locally_with_losses(parties, y, more, "masked", resume_from=model)
