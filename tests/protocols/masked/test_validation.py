"""The loss on validation rows on shares: results as in plaintext, disclosures and costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns
from privet.boosting.cost_estimate import count_training_cost, estimate_cost
from privet.boosting.model_part import join_parts
from privet.boosting.prediction import make_representative_values
from privet.boosting.reference import train_plaintext_with_losses
from privet.boosting.simulation import SimulatedTraining, train_federated, train_locally_with_losses
from privet.errors import DataError, ParameterError, ResultError
from privet.protocols.masked.protocol import MaskedProtocol
from privet.runtime.cost import Cost
from privet.runtime.run import DEALER_NAME
from privet.spec.params import Params
from tests.boosting.test_federation import N, bucketed, columns, label_of, trial, within
from tests.runtime.harness import check_count, measured, play

V = 128


def with_validation_rows(
    task: str, **changes: Any
) -> tuple[list[BucketedColumns], FloatArray, Params]:
    x = columns(6)
    label = label_of(x, "regression" if task == "three" else task)
    if task == "three":
        label = np.searchsorted(np.quantile(label, (1 / 3, 2 / 3)), label).astype(float)
    if task == "regression":
        label = 1000 * label + 70
    values = {"tables": 4, "depth": 3, "buckets": 16, "learning_rate": 0.5, "validation": V / N}
    learned = {"task": "classification", "classes": 3} if task == "three" else {"task": task}
    return bucketed(x, [2, 1, 3], 16), label, Params.parse({**learned, **values, **changes})


@pytest.mark.parametrize("task", ["regression", "classification", "three"])
def test_losses_match_reference(task: str) -> None:
    """They agree up to rounding to 2^-16 or less of the square of the label's unit."""
    parties, label, params = with_validation_rows(task)
    plain = train_locally_with_losses(parties, label, params)
    found = train_federated(parties, label, params, "masked", reveal_validation=True)
    assert (join_parts(found.parts).feature == plain.model.feature).all()
    unit = found.parts[-1].label_unit
    assert unit is not None
    step = 2.0**-16 * unit.scale**2
    assert len(found.losses) == params.tables
    # Leaf values differ by about 2^-16, and the loss by that times a mean residual below 1/4.
    assert found.losses == pytest.approx(plain.losses, abs=0.75 * step)
    assert [loss / step % 1 for loss in found.losses] == pytest.approx([0] * 4, abs=1e-6)
    # Predictions of validation rows, as the label holder receives them.
    rows = np.concatenate([make_representative_values(party, V) for party in parties])
    assert found.validation_predictions is not None
    expected = join_parts(found.parts).predict(rows)
    assert np.abs(found.validation_predictions - expected).max() < unit.scale * 2.0**-10


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_validation_rows_are_not_trained_on(task: str) -> None:
    """Their labels change neither a table nor the label's unit."""
    parties, label, params = with_validation_rows(task)
    other = label.copy()
    other[N - V :] = np.roll(label[N - V :], 1)
    one, two = (train_federated(parties, y, params, "masked") for y in (label, other))
    assert (join_parts(one.parts).feature == join_parts(two.parts).feature).all()
    assert join_parts(one.parts).leaf_values == pytest.approx(
        join_parts(two.parts).leaf_values, abs=0.1
    )
    assert one.parts[-1].label_unit == two.parts[-1].label_unit
    assert one.losses != two.losses
    assert train_plaintext_with_losses(parties, label, params, n_validation=V).losses != one.losses


def trial_with_validation(
    sizes: list[int], task: str, **changes: Any
) -> tuple[SimulatedTraining, list[Any]]:
    """Return a training run with validation rows, without predictions of other rows."""
    program, inputs = trial(sizes, 0, "masked", task=task, **changes)
    federation = replace(program.training_spec, reveal_validation=True)
    plan = federation.make_plan(N)
    return SimulatedTraining(federation, plan), [(data, None) for data, _ in inputs]


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("n", [2, 3])
def test_cost_matches_estimate(task: str, n: int) -> None:
    program, inputs = trial_with_validation([2] * n, task, validation=V / N, patience=5)
    views = play(program, n, inputs)
    steps = check_count(program, views)
    setup, table = count_training_cost(program.training_spec, program.plan)
    assert within(steps, "setup") == setup
    assert within(steps, "table") == table * 2
    cost = estimate_cost(program.training_spec, program.plan)
    assert measured(views) == Cost(cost.rounds, cost.online_bytes, cost.offline_bytes)
    # Three rounds for the loss, and one each to reveal it and to announce whether to stop.
    assert within(steps, "table/validation").rounds == 2 * 3
    assert within(steps, "table/stop") == Cost(2, 2 * 4 * (n - 1))


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_validation_rows_cost_less_than_training_rows(task: str) -> None:
    """Validation rows are in no histogram, and have no published indicators and no children."""
    program, _ = trial_with_validation([2, 2], task, validation=0.5)
    setup, table = count_training_cost(program.training_spec, program.plan)
    params = program.plan.params.model_copy(update={"validation": 0.0})
    federation = replace(program.training_spec, params=params)
    whole_setup, whole_table = count_training_cost(federation, federation.make_plan(N))
    assert setup.online_bytes < 0.6 * whole_setup.online_bytes
    assert table.online_bytes < whole_table.online_bytes


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_disclosures(task: str) -> None:
    program, inputs = trial_with_validation([2, 2, 2], task, validation=V / N, patience=5)
    views = play(program, 3, inputs)
    for view in views:
        entries = [(e.disclosure, e.recipients, e.n_elements) for e in view.ledger.entries]
        participants = ("party1", "party2", "party3")
        assert entries.count(("validation loss", ("party3",), 1)) == 2
        early_stop = "number of tables to keep, or none yet"
        assert entries.count((early_stop, (*participants, DEALER_NAME), 1)) == 2
        assert entries.count(("predictions of validation rows", ("party3",), V)) == 1
        assert {disclosure for disclosure, *_ in entries} == {
            *("split feature", "split bucket", "numbers within bounds", "validation loss"),
            *(early_stop, "predictions of validation rows"),
        }
    assert views[-1].result.losses
    assert all(
        view.result.losses == [] and view.result.validation_predictions is None
        for view in views[:2]
    )


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("offline", [False, True])
def test_early_stopping_keeps_the_best_tables(
    task: str, offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With offline preprocessing for all tables, the rest of the files is not used."""
    losses = iter([0.5, 0.4, 0.45, 0.6, 0.1])
    monkeypatch.setattr(MaskedProtocol, "decode_validation_loss", lambda *_: next(losses))
    parties, label, params = with_validation_rows(task, tables=9, patience=2)
    found = train_federated(
        parties, label, params, "masked", offline=offline, new_columns=None, network="memory"
    )
    assert [part.n_tables for part in found.parts] == [2, 2, 2]
    assert len(found.losses) == 4
    all_tables = train_locally_with_losses(
        parties, label, params.model_copy(update={"patience": None})
    ).model
    assert (join_parts(found.parts).feature == all_tables.feature[:2]).all()


def test_reference_stops_at_the_same_table() -> None:
    """A model overfits a label of noise, so its loss on other rows soon grows."""
    parties, _, params = with_validation_rows(
        "classification", tables=30, patience=3, learning_rate=1.0
    )
    label = np.random.default_rng(3).integers(0, 2, N).astype(float)
    plain = train_locally_with_losses(parties, label, params)
    assert plain.model.n_tables == int(np.argmin(plain.losses)) + 1
    assert len(plain.losses) == plain.model.n_tables + 3 < 30
    found = train_federated(parties, label, params, "masked")
    assert found.losses == pytest.approx(plain.losses, abs=1e-3)
    assert join_parts(found.parts).n_tables == plain.model.n_tables


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_scores_out_of_range_end_training(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training ends before a loss is revealed."""
    parties, label, params = with_validation_rows(task)
    monkeypatch.setattr("privet.protocols.masked.validation.MAX_SCORE", 1)
    monkeypatch.setattr("privet.protocols.masked.validation.MAX_RESIDUAL", 1)
    with pytest.raises(ResultError, match=r"validation rows' (scores|residuals) of 1 and"):
        train_federated(parties, label, params, "masked")


def test_unsupported_settings_are_rejected() -> None:
    parties, label, params = with_validation_rows("regression")
    with pytest.raises(ParameterError, match="validation: the protocol paper"):
        train_locally_with_losses(parties, label, params, "paper")
    without = params.model_copy(update={"validation": 0.0, "patience": 2})
    with pytest.raises(ParameterError, match="patience"):
        train_locally_with_losses(parties, label, without, "masked")
    outlier = label.copy()
    outlier[-1] = 1e6
    with pytest.raises(DataError, match="more than 8 times"):
        train_locally_with_losses(parties, outlier, params, "masked")


def test_explicit_validation_rows() -> None:
    """With `n_validation`, the last rows are validation rows."""
    parties, label, params = with_validation_rows("classification")
    params = params.model_copy(update={"validation": 0.0, "patience": 9})
    plain = train_locally_with_losses(parties, label, params, n_validation=100)
    found = train_locally_with_losses(parties, label, params, "masked", n_validation=100)
    assert found.losses == pytest.approx(plain.losses, abs=1e-4)
