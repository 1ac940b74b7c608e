"""Mean absolute contributions to scores of validation rows, at the label holder."""

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
class TrainingWithValidation:
    """A training run, followed by the results on validation rows."""

    federation: TrainingSpec
    plan: Plan

    def __call__(self, runtime: Runtime, data: TrainingData | None) -> tuple[Any, ValidationResult]:
        trained = train(runtime, self.federation, self.plan, data)
        return trained.part, reveal_validation_results(
            runtime, self.federation, self.plan, trained, data
        )


def make_program(
    by: ExplainBy | None, **changes: Any
) -> tuple[TrainingWithValidation, list[TrainingData]]:
    """Return a program of three participants that reveals mean contributions of validation rows."""
    program, inputs = trial([2, 1, 3], 0, "masked", validation=V / N, depth=3, **changes)
    training_spec = replace(program.training_spec, has_explanations=True, importances_by=by)
    return TrainingWithValidation(training_spec, training_spec.make_plan(N)), [
        data for data, _ in inputs
    ]


def compute_plaintext_importances(
    parts: list[Any], data: list[TrainingData], by: ExplainBy
) -> FloatArray:
    """Return the mean contributions of the joined model, (groups, outputs)."""
    columns = np.concatenate([make_representative_values(party.columns, V) for party in data])
    found = explain_scores(join_parts(parts), columns).contributions
    if by == "participant":
        ends = np.cumsum([0, *(len(party.columns.names) for party in data)])
        found = np.stack([found[:, a:b].sum(1) for a, b in pairwise(ends)], 1)
    means: FloatArray = np.abs(found).mean(axis=2).T
    return means


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("by", ["feature", "participant"])
def test_importances_match_the_joined_model(task: str, by: ExplainBy) -> None:
    """They are accurate to the rounding unit of predictions; only the label holder learns them."""
    program, data = make_program(by, task=task)
    views = play(program, 3, data)
    parts = [view.result[0] for view in views]
    importances = [view.result[1].importances for view in views]
    assert importances[:2] == [None, None]
    assert len(importances[2]) == (6 if by == "feature" else 3)
    expected = compute_plaintext_importances(parts, data, by)
    unit = parts[-1].label_unit.scale * 2.0**-program.federation.prediction_bits
    assert expected.max() > 20 * unit
    assert np.abs(np.array(list(importances[2].values())) - expected).max() < 1.5 * unit
    for view in views:
        entries = [e for e in view.ledger.entries if e.disclosure == "mean absolute contributions"]
        assert [(e.recipients, e.n_elements) for e in entries] == [(("party3",), len(expected))]


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_cost_is_as_estimated(task: str) -> None:
    """5 rounds: the lookup, two openings of each contribution, one of their sums, the reveal."""
    program, data = make_program("feature", task=task)
    views = play(program, 3, data)
    check_count(program, views)
    cost = estimate_cost(program.federation, program.plan)
    assert measured(views) == Cost(cost.rounds, cost.online_bytes, cost.offline_bytes)
    without, _ = make_program(None, task=task)
    before = estimate_cost(without.federation, without.plan)
    assert cost.rounds - before.rounds == 5
    assert cost.online_bytes > before.online_bytes
