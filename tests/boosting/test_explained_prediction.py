"""Explained predictions on shares: the same predictions, with contributions that add up to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from tests.boosting.test_multiclass import PARTITION, bucketed, make_labelled_columns

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
    """A training run with explanations, and new rows."""

    params: Params
    by: ExplainBy
    federated: FederatedResult
    estimate: CostEstimate
    new: FloatArray

    @cached_property
    def model(self) -> Model:
        """The model of all parts."""
        return join_parts(self.federated.parts)

    @property
    def unit(self) -> float:
        """The rounding unit of predictions and contributions."""
        unit = self.federated.parts[-1].label_unit
        assert unit is not None
        return unit.scale / (1 << self.params.objective.prediction_bits)

    def query(self, *, explained: bool, recipient: int = 2) -> PredictionQuery:
        """Return the query for the new rows."""
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
    columns, label = make_labelled_columns(classes)
    if task == "regression":
        label = columns[0] * columns[2] - 3 * columns[4]
    params = Params(task=task, classes=classes, tables=4, depth=depth, buckets=8)
    new = np.random.default_rng(5).normal(size=(6, 50))
    estimates: list[CostEstimate] = []
    federated = train_federated(
        bucketed(columns, 8),
        label,
        params,
        "masked",
        new_columns=[new[part] for part in PARTITION],
        explain=by,
        on_estimate=estimates.append,
    )
    return Case(params, by, federated, estimates[0], new)


def explain_in_plaintext(case: Case) -> Explanation:
    """Return the plaintext contributions, grouped as in the case."""
    exact = explain_scores(case.model, case.new)
    if case.by == "feature":
        return exact
    added = [exact.contributions[:, part].sum(axis=1) for part in PARTITION]
    return Explanation(np.stack(added, axis=1), exact.base)


def test_contributions_match_plaintext(case: Case) -> None:
    """The error is half a rounding unit, the spread difference, and the error of deriving."""
    found, exact = case.federated.explanation, explain_in_plaintext(case)
    assert found is not None
    with_splits = np.unique(case.model.feature)
    count = (
        len(with_splits) if case.by == "feature" else len({j // 2 for j in with_splits.tolist()})
    )
    assert found.contributions.shape == exact.contributions.shape
    spread = (count + 2) / 2 / count
    assert np.abs(found.contributions - exact.contributions).max() <= (0.6 + spread) * case.unit
    assert np.abs(found.base - exact.base).max() <= 0.6 * case.unit
    without_splits = np.setdiff1d(range(6), with_splits)
    if case.by == "feature":
        assert not found.contributions[:, without_splits].any()


def test_contributions_add_up(case: Case) -> None:
    """Contributions and the base add up to the score of the prediction."""
    found, predicted = case.federated.explanation, case.federated.predictions
    assert found is not None
    assert predicted is not None
    score = found.base[:, None] + found.contributions.sum(axis=1)
    assert np.abs(case.params.objective.predict_from_scores(score) - predicted).max() < 1e-12


def test_cost_is_as_estimated(case: Case) -> None:
    """The cost is as estimated; deriving takes at least one round a level and one more."""
    sums = np.zeros(3, dtype=int)
    for meter in case.federated.program_result.meters:
        for within in ("setup", "table", "reasons"):
            online, offline = (
                meter.sum_traffic("online", within),
                meter.sum_traffic("offline", within),
            )
            sums += online.rounds, online.sent, offline.received
        assert meter.sum_traffic("online", "reasons").rounds >= 1 + case.params.depth
    cost = case.estimate
    assert (cost.rounds, cost.online_bytes, cost.offline_bytes) == (sums[0] // 3, sums[1], sums[2])


def predict_with_and_without_explanation(case: Case, recipient: int) -> list[Any]:
    """Predict rows with and without explanations, with the same parts."""

    def program(runtime: Runtime, data: Any) -> Any:
        part, columns = (None, None) if data is None else data
        plain = case.query(explained=False, recipient=recipient)
        explained = case.query(explained=True, recipient=recipient)
        unit = reveal_label_unit(runtime, plain, part)
        return (
            predict(runtime, plain, NAMES, part, columns, unit),
            predict_explained(runtime, explained, NAMES, part, columns, unit),
        )

    inputs = [
        (part, case.new[columns])
        for part, columns in zip(case.federated.parts, PARTITION, strict=True)
    ]
    return simulate(program, 3, inputs, names=NAMES).results


@pytest.mark.parametrize("recipient", [0, 2])
def test_explained_predictions_are_unchanged(case: Case, recipient: int) -> None:
    """Predictions are equal with and without explanations; only the recipient receives them."""
    for k, (predictions, explained) in enumerate(
        predict_with_and_without_explanation(case, recipient)
    ):
        if k != recipient:
            assert predictions is None
            assert explained is None
            continue
        assert np.array_equal(predictions, explained.predictions)
        assert case.federated.predictions is not None
        assert np.array_equal(predictions, case.federated.predictions)
        before = case.federated.explanation
        assert before is not None
        assert np.array_equal(explained.explanation.contributions, before.contributions)
        assert np.array_equal(explained.explanation.base, before.base)


def test_paper_protocol_does_not_support_explanations() -> None:
    columns, label = make_labelled_columns(2)
    params = Params(task="classification", tables=1, depth=1, buckets=4)
    with pytest.raises(ParameterError, match="explain: the protocol paper"):
        train_federated(bucketed(columns, 4), label, params, "paper", explain="feature")
