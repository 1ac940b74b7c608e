"""Training and prediction by the paper's protocol: quality, cost, reveals, messages."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.runtime.harness import check_count, play

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns, bucket_columns
from privet.boosting.cost_estimate import count_training_cost
from privet.boosting.model import Feature, Model
from privet.boosting.model_part import LabelUnit, ModelPart, join_parts
from privet.boosting.prediction import PredictionQuery, predict, reveal_label_unit
from privet.boosting.simulation import SimulatedTraining, train_federated, train_locally
from privet.boosting.training import TrainingData, TrainingSpec
from privet.errors import ModelError, ParameterError
from privet.objectives.classification import compute_sigmoid
from privet.objectives.regression import OBJECTIVES
from privet.protocols.paper.protocol import find_best_split
from privet.runtime.cost import Cost, count_program_cost
from privet.runtime.local.launcher import simulate
from privet.runtime.runtime import Runtime
from privet.spec.params import Params
from privet.spec.plan import Ownership, Plan

N = 512


def columns(count: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(count, N))


def label_of(x: FloatArray, task: str) -> FloatArray:
    score: FloatArray = 2 * x[0] + x[1] * x[2] + 0.3 * np.random.default_rng(9).normal(size=N)
    return score if task == "regression" else (score > 0).astype(float)


def bucketed(x: FloatArray, sizes: list[int], buckets: int = 8) -> list[BucketedColumns]:
    """Give each party as many columns as `sizes` says."""
    ends = np.cumsum(sizes)
    return [
        bucket_columns(
            f"party{k + 1}", [f"x{j}" for j in range(end - size, end)], x[end - size : end], buckets
        )
        for k, (size, end) in enumerate(zip(sizes, ends.tolist(), strict=True))
    ]


@pytest.mark.parametrize("sizes", [[3, 3], [2, 1, 3], [1, 1, 2, 2], [1] * 6, [5, 1], [3, 3, 0]])
def test_regression_splits_match_reference(sizes: list[int]) -> None:
    """2, 3, 4 and 6 parties; parties with one column; an active participant without features."""
    x = columns(6)
    label = 100 * label_of(x, "regression") + 7
    params = Params(task="regression", tables=3, depth=2, buckets=8, learning_rate=0.5)
    parties = bucketed(x, sizes)
    reference = train_locally(parties, label, params)
    new = columns(6, seed=1)
    split = np.split(new, np.cumsum(sizes)[:-1])
    federated = train_federated(parties, label, params, "paper", new_columns=split)
    model = join_parts(federated.parts)
    assert (model.feature == reference.feature).all()
    assert (model.bucket == reference.bucket).all()
    assert (model.threshold == reference.threshold).all()
    # A quotient's error is about 2^-15 of the label's unit; a stored value adds n / 2 units.
    bound = 512 * (2.0**-15 + len(sizes) / 2 * 2.0**-18)
    assert np.abs(model.leaf_values - reference.leaf_values).max() < bound
    assert federated.predictions is not None
    assert_rounded(federated.predictions, model, new, 12, federated.parts[-1].label_unit)


def assert_rounded(
    predictions: FloatArray, model: Model, x: FloatArray, bits: int, unit: LabelUnit | None
) -> None:
    """Predictions are the model's scores, rounded exactly, halves up."""
    assert unit is not None
    # A classification's scores are rounded directly, a regression's in the label's unit.
    (start,) = unit.initial_scores if model.task == "regression" else (0.0,)
    (score,) = (model.predict_scores(x) - start) / unit.scale
    rounded = np.floor(score * 2.0**bits + 0.5) * 2.0**-bits * unit.scale + start
    expected = rounded if model.task == "regression" else compute_sigmoid(rounded)
    assert predictions == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_classification_accuracy_matches_reference() -> None:
    x = columns(6)
    label = label_of(x, "classification")
    params = Params(task="classification", tables=6, depth=2, buckets=8, base_score=0.3)
    parties = bucketed(x, [2, 2, 2])
    federated = train_federated(parties, label, params, "paper", new_columns=[x[:2], x[2:4], x[4:]])
    assert federated.predictions is not None
    plain = train_locally(parties, label, params).predict(x)
    accuracy = ((federated.predictions >= 0.5) == label).mean()
    assert abs(accuracy - ((plain >= 0.5) == label).mean()) <= 0.01
    assert np.abs(federated.predictions - plain).mean() < 0.02
    assert join_parts(federated.parts).base_score == pytest.approx([0.3], abs=2.0**-17)


def test_ties_missing_values_and_constants() -> None:
    x = columns(4)
    x[1] = np.round(x[1])
    x[2, ::3] = np.nan
    x[3] = 5.0
    label = np.where(np.isnan(x[2]), 3.0, 0.0) + x[1] + 0.1 * x[0]
    params = Params(task="regression", tables=4, depth=3, buckets=16, learning_rate=1.0)
    parties = bucketed(x, [2, 2], buckets=16)
    model = train_locally(parties, label, params, "paper")
    plain = train_locally(parties, label, params)
    assert 3 not in model.feature  # a constant column has no split
    error, best = (np.mean((m.predict_scores(x) - label) ** 2) for m in (model, plain))
    assert error < 2 * best + 0.05 * np.var(label)


def trial(
    sizes: list[int],
    seed: int,
    protocol: str = "paper",
    *,
    reveal_loss: bool = False,
    **changes: Any,
) -> tuple[SimulatedTraining, list[tuple[TrainingData, FloatArray | None]]]:
    x = columns(sum(sizes), seed)
    values = {"task": "classification", "tables": 2, "depth": 2, "buckets": 8, **changes}
    params = Params.parse(values)
    parties = bucketed(x, sizes, params.buckets)
    training_spec = TrainingSpec(
        protocol,
        params,
        tuple(party.owner for party in parties),
        tuple(Feature(name, party.owner) for party in parties for name in party.names),
        len(sizes) - 1,
        params.objective.prediction_bits,
        reveal_loss,
    )
    label = label_of(x, params.task)
    labels = [None] * (len(sizes) - 1) + [label]
    inputs: list[tuple[TrainingData, FloatArray | None]] = [
        (TrainingData(party, party_label), np.asarray(party.thresholds[:, :5]))
        for party, party_label in zip(parties, labels, strict=True)
    ]
    return SimulatedTraining(training_spec, training_spec.make_plan(N), 5), inputs


def within(steps: dict[str, Cost], step: str) -> Cost:
    """Return the cost of a step, including the steps inside it."""
    inside = [cost for name, cost in steps.items() if f"{name}/".startswith(f"{step}/")]
    return sum(inside, start=Cost())


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_measured_cost_equals_counted_cost(task: str, rate: float) -> None:
    """The measured cost equals the counted cost: of every step, and of the setup and a table."""
    program, inputs = trial([2, 1, 2], 0, task=task, learning_rate=rate)
    views = play(program, 3, inputs)
    steps = check_count(program, views)
    setup, table = count_training_cost(program.training_spec, program.plan)
    assert within(steps, "setup") == setup == Cost(1, 2 * 8 * N, 0)  # the label
    assert within(steps, "table") == table * 2
    assert within(steps, "predict") != Cost()


def test_known_costs() -> None:
    """Fixed values, which were computed without a counter."""
    owners = Ownership(tuple(k % 3 for k in range(8)), 2)
    params = Params(task="regression", depth=5, learning_rate=1.0)
    training_spec = trial([2, 1, 2], 0)[0].training_spec
    setup, table = count_training_cost(training_spec, Plan(params, owners, 16_512))
    assert (setup, table) == (Cost(1, 264_192, 0), Cost(1237, 435_425_348, 113_338_765))
    owners = Ownership(tuple(k % 4 for k in range(30)), 3)
    params = Params(task="classification", depth=3, learning_rate=1.0)
    training_spec = trial([2, 1, 1, 1], 0)[0].training_spec
    setup, table = count_training_cost(training_spec, Plan(params, owners, 455))
    assert (setup, table) == (Cost(1, 10_920, 0), Cost(1035, 94_089_144, 10_887_088))


def test_rounds_of_a_level_do_not_grow_with_features_or_nodes() -> None:
    """Messages are below the size from which an opening takes two delays."""

    def rounds(n_features: int, n_nodes: int) -> int:
        params = Params(task="regression", depth=3, buckets=8)
        plan = Plan(params, Ownership((0,) * n_features, 1), 100)
        nodes = Share.unknown((2, n_nodes, 100), Z64)
        return count_program_cost(find_best_split, 4, plan, {}, nodes).rounds

    assert rounds(8, 1) == rounds(8, 4) == rounds(5, 2)
    # Only the tree of comparisons over the features is deeper, by its logarithm.
    assert rounds(16, 1) - rounds(8, 1) == 11


def test_ledger_contains_only_the_paper_s_disclosures() -> None:
    program, inputs = trial([2, 1, 2], 0)
    views = play(program, 3, inputs)
    all_parties = ("party1", "party2", "party3")
    features = ("table/level/best bucket/argmin", "table/level/best feature/argmin")
    for view in views:
        assert [
            (e.disclosure, e.recipients, e.n_elements, e.step) for e in view.ledger.summarise()
        ] == [
            ("best bucket of every feature", all_parties, 5 * 2 * 2, features[0]),
            ("split feature", all_parties, 2 * 2, features[1]),
            ("numbers within bounds", all_parties, 2, "table/leaves/check"),
            ("predictions", ("party3",), 5, "predict"),
        ]


def test_part_contains_local_thresholds_and_no_leaf_values() -> None:
    program, inputs = trial([2, 1, 2], 0)
    parts = [result.part for result in simulate(program, 3, inputs).results]
    model = join_parts(parts)
    for part in parts:
        local = np.isin(
            part.feature, [j for j, f in enumerate(part.features) if f.owner == part.party]
        )
        assert (np.isnan(part.threshold) == ~local).all()
        assert ((part.bucket == -1) == ~local).all()
        assert (part.label_unit is None) == (part.party != "party3")
        # A share is uniform: as a number, it is nowhere near the leaf value.
        assert (
            np.abs(part.encoding.decode(part.leaf_shares)).min() > np.abs(model.leaf_values).max()
        )


def test_parts_of_different_models_are_rejected() -> None:
    program, inputs = trial([2, 1, 2], 0, tables=1)
    first, second, third = (result.part for result in simulate(program, 3, inputs).results)
    other = replace(second, feature=(second.feature + 1) % 5)
    with pytest.raises(ModelError, match="party1 and party2 are of different models"):
        join_parts([first, other, third])
    with pytest.raises(ModelError, match="0 of the parts"):
        join_parts([first, second])


def ask(
    runtime: Runtime, data: tuple[ModelPart, FloatArray] | None, query: PredictionQuery
) -> FloatArray | None:
    part, x = (None, None) if data is None else data
    unit = reveal_label_unit(runtime, query, part)
    return predict(runtime, query, ("party1", "party2", "party3"), part, x, unit)


@pytest.mark.parametrize("recipient", [0, 2])
def test_only_the_recipient_receives_predictions(recipient: int) -> None:
    program, inputs = trial([2, 1, 2], 0, task="regression")
    parts = [result.part for result in simulate(program, 3, inputs).results]
    new = np.random.default_rng(3).normal(size=(5, 40))
    query = PredictionQuery("paper", OBJECTIVES["regression"], (2, 2, 40), 2, recipient, 12)
    split = [new[:2], new[2:3], new[3:]]
    data = list(zip(parts, split, strict=True))
    outcome = simulate(partial(ask, query=query), 3, data)
    for index, result in enumerate(outcome.results):
        if index != recipient:
            assert result is None
    assert_rounded(outcome.results[recipient], join_parts(parts), new, 12, parts[2].label_unit)
    disclosures = [(e.disclosure, e.recipients) for e in outcome.ledgers[1].entries]
    recipients = (f"party{recipient + 1}",)
    unit = [("centre and scale of the label", recipients)] if recipient != 2 else []
    assert disclosures == [*unit, ("predictions", recipients)]


def test_wrong_column_count_is_rejected() -> None:
    program, inputs = trial([2, 1, 2], 0, tables=1)
    part = simulate(program, 3, inputs).results[0].part
    with pytest.raises(ModelError, match="party1: 3 columns for 2 features"):
        part.find_rows_going_right(np.zeros((3, 4)))


@pytest.mark.parametrize("scale", [1e-9, 1.0, 3e7])
def test_label_unit_for_any_scale(scale: float) -> None:
    label = np.array([1.0, 2.0, 6.0]) * scale
    unit = LabelUnit.from_label(label, 3.0 * scale)
    normalised = unit.normalise(label)
    typical, largest = np.sqrt(np.mean(normalised**2)), np.abs(normalised).max()
    assert typical <= 0.5
    assert largest <= 4.0
    assert typical > 0.25 or largest > 2.0
    assert unit.restore(normalised[None])[0] == pytest.approx(label, rel=1e-12)


def test_paper_protocol_rejects_a_million_rows() -> None:
    params = Params(task="regression")
    parties = ("party1", "party2")
    training_spec = TrainingSpec("paper", params, parties, (Feature("x", "party1"),), 1, 12)
    training_spec.make_plan((1 << 20) - 1)
    with pytest.raises(ParameterError, match="protocol: paper divides by values up to 1048576"):
        training_spec.make_plan(1 << 20)
