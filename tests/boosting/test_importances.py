"""Mean absolute contributions to scores of validation rows, at the label's holder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.boosting.test_federation import N, trial
from tests.runtime.harness import check_count, measured, play

from privet.arrays import FloatArray
from privet.boosting.cost_estimate import estimate_cost
from privet.boosting.explanation import explain_scores
from privet.boosting.model_part import join_parts
from privet.boosting.prediction import (
    ValidationResult,
    make_representative_values,
    reveal_validation_results,
)
from privet.boosting.training import TrainingData, TrainingSpec, train
from privet.runtime.cost import Cost
from privet.runtime.runtime import Runtime
from privet.spec.plan import ExplainBy, Plan

V = 100


@dataclass(frozen=True)
class Training:
    """A training, with what comes after it."""

    federation: TrainingSpec
    plan: Plan

    def __call__(self, runtime: Runtime, data: TrainingData | None) -> tuple[Any, ValidationResult]:
        trained = train(runtime, self.federation, self.plan, data)
        return trained.part, reveal_validation_results(
            runtime, self.federation, self.plan, trained, data
        )


def telling(by: ExplainBy | None, **changes: Any) -> tuple[Training, list[TrainingData]]:
    """Return a training of three that tells mean contributions on its last rows."""
    program, inputs = trial([2, 1, 3], 0, "masked", validation=V / N, depth=3, **changes)
    federation = replace(program.training_spec, has_explanations=True, importances_by=by)
    return Training(federation, federation.make_plan(N)), [own for own, _ in inputs]


def in_the_clear(parts: list[Any], data: list[TrainingData], by: ExplainBy) -> FloatArray:
    """Return the same of the joined model, (groups, outputs)."""
    columns = np.concatenate([make_representative_values(own.columns, V) for own in data])
    found = explain_scores(join_parts(parts), columns).contributions
    if by == "participant":
        ends = np.cumsum([0, *(len(own.columns.names) for own in data)])
        found = np.stack([found[:, a:b].sum(1) for a, b in pairwise(ends)], 1)
    means: FloatArray = np.abs(found).mean(axis=2).T
    return means


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("by", ["feature", "participant"])
def test_they_are_those_of_the_joined_model(task: str, by: ExplainBy) -> None:
    """To the unit that predictions are rounded to; the label's holder alone learns them."""
    program, data = telling(by, task=task)
    views = play(program, 3, data)
    parts = [view.result[0] for view in views]
    found = [view.result[1].importances for view in views]
    assert found[:2] == [None, None]
    assert len(found[2]) == (6 if by == "feature" else 3)
    expected = in_the_clear(parts, data, by)
    unit = parts[-1].label_unit.scale * 2.0**-program.federation.prediction_bits
    assert expected.max() > 20 * unit
    assert np.abs(np.array(list(found[2].values())) - expected).max() < 1.5 * unit
    for view in views:
        entries = [e for e in view.ledger.entries if e.disclosure == "mean absolute contributions"]
        assert [(e.recipients, e.n_elements) for e in entries] == [(("party3",), len(expected))]


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_the_cost_is_as_computed(task: str) -> None:
    """The lookup, two openings of each contribution, one of their sums, and the reveal."""
    program, data = telling("feature", task=task)
    views = play(program, 3, data)
    check_count(program, views)
    cost = estimate_cost(program.federation, program.plan)
    assert measured(views) == Cost(cost.rounds, cost.online_bytes, cost.offline_bytes)
    without, _ = telling(None, task=task)
    before = estimate_cost(without.federation, without.plan)
    assert cost.rounds - before.rounds == 5
    assert cost.online_bytes > before.online_bytes
