"""Gains of levels on shares: as in plaintext, only for the label holder, without another round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privet.arrays import FloatArray
from privet.boosting.cost_estimate import estimate_cost
from privet.boosting.model_part import join_parts
from privet.boosting.prediction import make_representative_values
from privet.boosting.reference import compute_impurity, compute_level_gains
from privet.boosting.simulation import SimulatedTraining
from privet.protocols.masked.candidates import compute_score_units, count_hidden_gain_bits
from privet.protocols.masked.precision.scores import Scales
from privet.runtime.cost import Cost
from tests.boosting.test_federation import N, trial
from tests.runtime.harness import View, check_count, measured, play


def trial_with_gains(
    sizes: list[int], reveal_gain: bool = True, **changes: Any
) -> tuple[SimulatedTraining, list[Any]]:
    """Return a training run with revealed gains, without predictions."""
    program, inputs = trial(sizes, 0, "masked", **changes)
    federation = replace(program.training_spec, reveal_gain=reveal_gain)
    return SimulatedTraining(federation, federation.make_plan(N)), [
        (data, None) for data, _ in inputs
    ]


def unit_of(program: SimulatedTraining, views: list[View]) -> float:
    """Return the unit of revealed scores, in the square of the label's unit."""
    scales = Scales.from_plan(program.plan)
    scale: float = views[-1].result.part.label_unit.scale
    return float((1 << count_hidden_gain_bits(scales)) / compute_score_units(scales)) * scale**2


def compute_plaintext_gains(
    program: SimulatedTraining, inputs: list[Any], views: list[View]
) -> FloatArray:
    """Return the gains of the same tables in plaintext, with the score of the root as zero."""
    params, label = program.plan.params, inputs[-1][0].label
    columns = np.concatenate(
        [make_representative_values(data.columns, data.columns.n_samples) for data, _ in inputs]
    )
    model = join_parts([view.result.part for view in views])
    gains = compute_level_gains(model, columns, label, params)
    scores = np.repeat(model.base_score[:, None], N, axis=1)
    target = params.objective.make_targets(label)
    for table, leaf in enumerate(model.find_leaf_indices(columns)):
        g_and_h = np.array(params.objective.compute_gradients(scores, target))
        root = -compute_impurity(g_and_h.sum(axis=2), params).sum()
        assert root <= 0.02 * gains[table, 0]  # small enough to be taken as zero
        gains[table, 0] += root
        scores += model.leaf_values[table][:, leaf]
    return gains


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "regression"},
        {"task": "classification"},
        {"task": "regression", "min_gain": 0.5, "min_child_weight": 2.0},
    ],
    ids=["regression", "classification", "constraints"],
)
def test_gains_match_reference(changes: dict[str, Any]) -> None:
    """They agree up to the rounding of two scores, each to the nearest unit."""
    program, inputs = trial_with_gains([2, 1, 3], tables=4, depth=3, learning_rate=0.5, **changes)
    views = play(program, 3, inputs)
    found, unit = views[-1].result.part.gains, unit_of(program, views)
    expected = compute_plaintext_gains(program, inputs, views)
    assert found.shape == expected.shape == (4, 3)
    assert np.abs(found - expected).max() < 0.51 * unit
    assert found.max() > 1000 * unit
    in_units = 2 * found / unit
    assert in_units == pytest.approx(np.rint(in_units), abs=1e-6)


def test_levels_without_split_have_no_gain() -> None:
    program, inputs = trial_with_gains([2, 2], task="regression", min_gain=1e9)
    part = play(program, 2, inputs)[-1].result.part
    assert np.isposinf(part.threshold).all()
    assert (part.gains == 0).all()


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("n", [2, 3])
def test_cost_matches_estimate(task: str, n: int) -> None:
    """Revealed gains cost no round, and fewer than 200 bytes a level."""
    program, inputs = trial_with_gains([2] * n, task=task)
    views = play(program, n, inputs)
    check_count(program, views)
    cost = estimate_cost(program.training_spec, program.plan)
    assert measured(views) == Cost(cost.rounds, cost.online_bytes, cost.offline_bytes)
    without, _ = trial_with_gains([2] * n, reveal_gain=False, task=task)
    before = estimate_cost(without.training_spec, without.plan)
    levels = program.plan.params.tables * program.plan.params.depth
    assert cost.rounds == before.rounds
    assert 0 < cost.online_bytes - before.online_bytes < 200 * levels


def test_a_single_candidate_feature() -> None:
    """Without a comparison the score is masked only to be revealed."""
    program, inputs = trial_with_gains([2, 2], task="regression", colsample=0.25)
    views = play(program, 2, inputs)
    check_count(program, views)
    expected = compute_plaintext_gains(program, inputs, views)
    unit = unit_of(program, views)
    assert np.abs(views[-1].result.part.gains - expected).max() < 0.51 * unit


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_disclosures(task: str) -> None:
    program, inputs = trial_with_gains([2, 2, 2], task=task)
    views = play(program, 3, inputs)
    for view in views:
        entries = [(e.disclosure, e.recipients, e.n_elements) for e in view.ledger.entries]
        assert entries.count(("gain of a test", ("party3",), 1)) == 4
        assert {disclosure for disclosure, *_ in entries} == {
            *("split feature", "split bucket", "numbers within bounds", "gain of a test"),
        }
    assert [view.result.part.gains is None for view in views] == [True, True, False]
