"""What levels gain, on shares: as in the clear, at the label's holder, in no round more."""

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


def telling(
    sizes: list[int], told: bool = True, **changes: Any
) -> tuple[SimulatedTraining, list[Any]]:
    """Return a trial that has gains revealed, without predictions."""
    program, inputs = trial(sizes, 0, "masked", **changes)
    federation = replace(program.training_spec, reveal_gain=told)
    return SimulatedTraining(federation, federation.make_plan(N)), [
        (own, None) for own, _ in inputs
    ]


def unit_of(program: SimulatedTraining, views: list[View]) -> float:
    """Return the unit that a score is told in, in the square of the label's."""
    scales = Scales.from_plan(program.plan)
    scale: float = views[-1].result.part.label_unit.scale
    return float((1 << count_hidden_gain_bits(scales)) / compute_score_units(scales)) * scale**2


def in_the_clear(program: SimulatedTraining, inputs: list[Any], views: list[View]) -> FloatArray:
    """Return what the same tables gain, with the score of all rows as one node taken as zero."""
    params, label = program.plan.params, inputs[-1][0].label
    columns = np.concatenate(
        [make_representative_values(own.columns, own.columns.n_samples) for own, _ in inputs]
    )
    model = join_parts([view.result.part for view in views])
    gains = compute_level_gains(model, columns, label, params)
    scores = np.repeat(model.base_score[:, None], N, axis=1)
    target = params.objective.make_targets(label)
    for table, leaf in enumerate(model.find_leaf_indices(columns)):
        derivatives = np.array(params.objective.compute_gradients(scores, target))
        root = -compute_impurity(derivatives.sum(axis=2), params).sum()
        assert root <= 0.02 * gains[table, 0]  # so little is taken as zero
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
def test_gains_are_those_of_the_reference(changes: dict[str, Any]) -> None:
    """To the rounding of two scores, each to the nearest unit."""
    program, inputs = telling([2, 1, 3], tables=4, depth=3, learning_rate=0.5, **changes)
    views = play(program, 3, inputs)
    found, unit = views[-1].result.part.gains, unit_of(program, views)
    expected = in_the_clear(program, inputs, views)
    assert found.shape == expected.shape == (4, 3)
    assert np.abs(found - expected).max() < 0.51 * unit
    assert found.max() > 1000 * unit
    in_units = 2 * found / unit
    assert in_units == pytest.approx(np.rint(in_units), abs=1e-6)


def test_levels_that_test_nothing_gain_nothing() -> None:
    program, inputs = telling([2, 2], task="regression", min_gain=1e9)
    part = play(program, 2, inputs)[-1].result.part
    assert np.isposinf(part.threshold).all()
    assert (part.gains == 0).all()


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("n", [2, 3])
def test_the_cost_is_as_computed(task: str, n: int) -> None:
    """No round, and a few hundred bytes a level."""
    program, inputs = telling([2] * n, task=task)
    views = play(program, n, inputs)
    check_count(program, views)
    cost = estimate_cost(program.training_spec, program.plan)
    assert measured(views) == Cost(cost.rounds, cost.online_bytes, cost.offline_bytes)
    without, _ = telling([2] * n, told=False, task=task)
    before = estimate_cost(without.training_spec, without.plan)
    levels = program.plan.params.tables * program.plan.params.depth
    assert cost.rounds == before.rounds
    assert 0 < cost.online_bytes - before.online_bytes < 200 * levels


def test_a_single_candidate_feature() -> None:
    """There is nothing to compare: the score is masked for this alone."""
    program, inputs = telling([2, 2], task="regression", colsample=0.25)
    views = play(program, 2, inputs)
    check_count(program, views)
    expected = in_the_clear(program, inputs, views)
    unit = unit_of(program, views)
    assert np.abs(views[-1].result.part.gains - expected).max() < 0.51 * unit


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_who_learns_what(task: str) -> None:
    program, inputs = telling([2, 2, 2], task=task)
    views = play(program, 3, inputs)
    for view in views:
        found = [(e.disclosure, e.recipients, e.n_elements) for e in view.ledger.entries]
        assert found.count(("gain of a test", ("party3",), 1)) == 4
        assert {what for what, *_ in found} == {
            *("split feature", "split bucket", "numbers within bounds", "gain of a test"),
        }
    assert [view.result.part.gains is None for view in views] == [True, True, False]
