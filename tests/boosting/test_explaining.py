"""Explained predictions on shares: the same predictions, and contributions that add up to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from tests.boosting.test_outputs import OWNED, bucketed, labelled

from privet import ParameterError, Params
from privet.arrays import FloatArray
from privet.boosting.cost_estimate import CostEstimate
from privet.boosting.explanation import Explanation, explain_scores
from privet.boosting.model import Model
from privet.boosting.model_part import join_parts
from privet.boosting.prediction import (
    PredictionQuery,
    predict,
    predict_explained,
    reveal_label_unit,
)
from privet.boosting.simulation import FederatedResult, train_federated
from privet.runtime.local.launcher import simulate
from privet.runtime.runtime import Runtime
from privet.spec.plan import ExplainBy

NAMES = ("party0", "party1", "party2")


@dataclass(frozen=True)
class Case:
    """A training that explains, and rows that it has not seen."""

    params: Params
    by: ExplainBy
    found: FederatedResult
    estimate: CostEstimate
    new: FloatArray

    @cached_property
    def model(self) -> Model:
        """What the parts make."""
        return join_parts(self.found.parts)

    @property
    def unit(self) -> float:
        """What predictions and contributions are rounded to."""
        unit = self.found.parts[-1].label_unit
        assert unit is not None
        return unit.scale / (1 << self.params.objective.prediction_bits)

    def query(self, *, explained: bool, recipient: int = 2) -> PredictionQuery:
        """Return what all know of a prediction of the new rows."""
        shape = (self.params.tables, self.params.depth, self.new.shape[1])
        bits = self.params.objective.prediction_bits
        query = PredictionQuery("masked", self.params.objective, shape, 2, recipient, bits)
        return replace(query, explain=self.by, n_features=6) if explained else query


@pytest.fixture(
    scope="module",
    params=[
        ("regression", 2, 4, "feature"),
        ("regression", 2, 7, "participant"),
        ("classification", 2, 3, "feature"),
        ("classification", 3, 3, "participant"),
        ("classification", 3, 4, "feature"),
    ],
    ids=lambda p: "-".join(map(str, p)),
)
def case(request: pytest.FixtureRequest) -> Case:
    task, classes, depth, by = request.param
    columns, label = labelled(classes)
    if task == "regression":
        label = columns[0] * columns[2] - 3 * columns[4]
    params = Params(task=task, classes=classes, tables=4, depth=depth, buckets=8)
    new = np.random.default_rng(5).normal(size=(6, 50))
    estimates: list[CostEstimate] = []
    found = train_federated(
        bucketed(columns, 8),
        label,
        params,
        "masked",
        new_columns=[new[own] for own in OWNED],
        explain=by,
        on_estimate=estimates.append,
    )
    return Case(params, by, found, estimates[0], new)


def grouped(case: Case) -> Explanation:
    """Contributions in the clear, by what the case has them by."""
    exact = explain_scores(case.model, case.new)
    if case.by == "feature":
        return exact
    added = [exact.contributions[:, own].sum(axis=1) for own in OWNED]
    return Explanation(np.stack(added, axis=1), exact.base)


def test_contributions_are_those_in_the_clear(case: Case) -> None:
    """To half a unit of rounding, what of it is spread, and what was lost in deriving."""
    found, exact = case.found.explanation, grouped(case)
    assert found is not None
    tested = np.unique(case.model.feature)
    count = len(tested) if case.by == "feature" else len({j // 2 for j in tested.tolist()})
    assert found.contributions.shape == exact.contributions.shape
    spread = (count + 2) / 2 / count
    assert np.abs(found.contributions - exact.contributions).max() <= (0.6 + spread) * case.unit
    assert np.abs(found.base - exact.base).max() <= 0.6 * case.unit
    untested = np.setdiff1d(range(6), tested)
    if case.by == "feature":
        assert not found.contributions[:, untested].any()


def test_contributions_add_up(case: Case) -> None:
    """To what is predicted, less the base."""
    found, predicted = case.found.explanation, case.found.predictions
    assert found is not None
    assert predicted is not None
    score = found.base[:, None] + found.contributions.sum(axis=1)
    assert np.abs(case.params.objective.predict_from_scores(score) - predicted).max() < 1e-12


def test_what_it_costs(case: Case) -> None:
    """As counted before, and nothing without: deriving takes a round a level and one more."""
    sums = np.zeros(3, dtype=int)
    for meter in case.found.program_result.meters:
        for within in ("setup", "table", "reasons"):
            online, offline = (
                meter.sum_traffic("online", within),
                meter.sum_traffic("offline", within),
            )
            sums += online.rounds, online.sent, offline.received
        assert meter.sum_traffic("online", "reasons").rounds >= 1 + case.params.depth
    cost = case.estimate
    assert (cost.rounds, cost.online_bytes, cost.offline_bytes) == (sums[0] // 3, sums[1], sums[2])


def both(case: Case, recipient: int) -> list[Any]:
    """Predict rows with and without explanations, with the same parts."""

    def program(runtime: Runtime, data: Any) -> Any:
        part, columns = (None, None) if data is None else data
        plain = case.query(explained=False, recipient=recipient)
        asked = case.query(explained=True, recipient=recipient)
        unit = reveal_label_unit(runtime, plain, part)
        return (
            predict(runtime, plain, NAMES, part, columns, unit),
            predict_explained(runtime, asked, NAMES, part, columns, unit),
        )

    inputs = [(part, case.new[own]) for part, own in zip(case.found.parts, OWNED, strict=True)]
    return simulate(program, 3, inputs, names=NAMES).results


@pytest.mark.parametrize("recipient", [0, 2])
def test_predictions_are_the_same(case: Case, recipient: int) -> None:
    """With and without explanations, and every time: the recipient alone has any."""
    for k, (predictions, explained) in enumerate(both(case, recipient)):
        if k != recipient:
            assert predictions is None
            assert explained is None
            continue
        assert np.array_equal(predictions, explained.predictions)
        assert case.found.predictions is not None
        assert np.array_equal(predictions, case.found.predictions)
        before = case.found.explanation
        assert before is not None
        assert np.array_equal(explained.explanation.contributions, before.contributions)
        assert np.array_equal(explained.explanation.base, before.base)


def test_paper_refuses() -> None:
    columns, label = labelled(2)
    params = Params(task="classification", tables=1, depth=1, buckets=4)
    with pytest.raises(ParameterError, match="explain: the protocol paper"):
        train_federated(bucketed(columns, 4), label, params, "paper", explain="feature")
