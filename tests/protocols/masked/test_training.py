"""Training and prediction with `masked`: splits, costs, disclosures and rounds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from privet import DataSet, Experiment, run
from privet.arithmetic.rings import Z32, Z64
from privet.boosting.cost_estimate import count_training_cost
from privet.boosting.model_part import GUARD_BITS, join_parts
from privet.boosting.prediction import PredictionQuery
from privet.boosting.simulation import train_federated, train_locally
from privet.objectives.regression import OBJECTIVES
from privet.protocols.masked.precision.scores import Scales
from privet.runtime.cost import Cost
from privet.runtime.local.launcher import simulate
from privet.spec.params import Params
from tests.boosting.test_federation import (
    N,
    ask,
    assert_rounded,
    bucketed,
    columns,
    label_of,
    trial,
    within,
)
from tests.gates.test_masked import compare_cost, dealt, opened
from tests.runtime.harness import check_count, play


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize(
    "sizes", [[3, 3], [2, 1, 3], [1, 1, 2, 2], [1] * 6, [5, 1], [3, 3, 0], [1] * 6 + [0, 0]]
)
def test_splits_match_reference(sizes: list[int], task: Any) -> None:
    """With 2 to 8 participants, with single columns, and a label holder without features."""
    x = columns(6)
    label = label_of(x, task)
    if task == "regression":
        label = 1000 * label + 70
    params = Params(task=task, tables=3, depth=3, buckets=16, learning_rate=0.5)
    parties = bucketed(x, sizes, 16)
    reference = train_locally(parties, label, params)
    new = columns(6, seed=1)
    split = np.split(new, np.cumsum(sizes)[:-1])
    federated = train_federated(parties, label, params, "masked", new_columns=split)
    model = join_parts(federated.parts)
    assert (model.feature == reference.feature).all()
    assert (model.bucket == reference.bucket).all()
    assert (model.threshold == reference.threshold).all()
    unit, bits = (2**12, 12) if task == "regression" else (1.0, 10)
    rounding = len(sizes) / 2 * 2.0 ** -(bits + GUARD_BITS)
    assert np.abs(model.leaf_values - reference.leaf_values).max() < unit * (2.0**-16 + rounding)
    assert federated.predictions is not None
    assert_rounded(federated.predictions, model, new, bits, federated.parts[-1].label_unit)


@pytest.mark.parametrize(
    ("buckets", "depth", "l2"), [(2, 1, 1.0), (256, 2, 1.0), (8, 6, 0.1), (5, 3, 30.0)]
)
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_buckets_depths_and_regularisation(task: Any, buckets: int, depth: int, l2: float) -> None:
    x = columns(3)
    label = label_of(x, task)
    params = Params(task=task, tables=2, depth=depth, buckets=buckets, l2=l2)
    parties = bucketed(x, [1, 2], buckets)
    reference, model = (
        train_locally(parties, label, params),
        train_locally(parties, label, params, "masked"),
    )
    # Buckets are not compared: with a large l2 no split is better than none, and these tie.
    assert (model.feature == reference.feature).all()
    assert np.abs(model.predict_scores(x) - reference.predict_scores(x)).max() < 4e-4


def test_two_samples_and_one_candidate() -> None:
    x, label = np.array([[1.0, 2.0], [5.0, 5.0]]), np.array([3.0, 5.0])
    params = Params(task="regression", tables=2, depth=1, buckets=2, learning_rate=1.0)
    parties = bucketed(x, [1, 1], 2)
    reference, model = (
        train_locally(parties, label, params),
        train_locally(parties, label, params, "masked"),
    )
    assert model.predict_scores(x) == pytest.approx(reference.predict_scores(x), abs=1e-4)


def test_duplicate_features() -> None:
    """Copies of a column tie in every score: rounding can choose only among them."""
    x = columns(3)
    x = np.concatenate([x, x, x])
    label = label_of(x, "regression")
    params = Params(task="regression", tables=4, depth=3, buckets=16)
    parties = bucketed(x, [4, 5], 16)
    model, reference = (
        train_locally(parties, label, params, "masked"),
        train_locally(parties, label, params),
    )
    assert reference.feature.max() < 3
    assert (model.feature % 3 == reference.feature).all()
    assert (model.bucket == reference.bucket).all()
    assert model.compare_splits(reference, x) == 1.0


def test_ties_missing_values_and_constants() -> None:
    x = columns(4)
    x[1] = np.round(x[1])
    x[2, ::3] = np.nan
    x[3] = 5.0
    label = np.where(np.isnan(x[2]), 3.0, 0.0) + x[1] + 0.1 * x[0]
    params = Params(task="regression", tables=4, depth=3, buckets=16, learning_rate=1.0)
    parties = bucketed(x, [2, 2], buckets=16)
    model, reference = (
        train_locally(parties, label, params, "masked"),
        train_locally(parties, label, params),
    )
    assert (model.feature == reference.feature).all()
    assert (model.bucket == reference.bucket).all()


def root_cost(scales: Scales, n: int, cuts: int) -> Cost:
    """Return the cost of dividing by the counts of both sides of the root's cuts."""
    counts, sides = scales.units.h_ring, 2 * cuts
    thresholds, width = scales.thresholds.values, scales.thresholds.width
    assert width <= 19  # two digits suffice
    compared = compare_cost(n, width, 2, len(thresholds), sides)
    # y has two masks in a ring wider than that of counts, otherwise one. Every threshold has two
    # bits, and a product of each with every mask.
    wide = scales.wide_ring
    masks = 2 if wide.bits > counts.bits else 1
    m = dealt(*[(wide, sides)] * masks, (wide, (1 + masks) * 2 * len(thresholds) * sides))
    m += opened(n, (scales.narrow_ring, sides))
    terms = dealt((Z64, 2 * (2 * scales.class_ratio + 4) * sides))
    z = opened(n, (scales.reciprocal_ring, sides)) + dealt((Z64, sides), (Z64, sides))
    return dealt((counts, cuts)) + opened(n, (counts, cuts)) + compared + m + terms + z


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("sizes", [[3, 2], [2, 1, 2]])
@pytest.mark.parametrize("reveal_loss", [False, True])
def test_cost_matches_estimate(task: str, sizes: list[int], reveal_loss: bool) -> None:
    """Check the cost of every step, and of setup and a table, from which costs are estimated."""
    n = len(sizes)
    program, inputs = trial(sizes, 0, "masked", reveal_loss=reveal_loss, task=task, depth=3)
    views = play(program, n, inputs)
    steps = check_count(program, views)
    setup, table = count_training_cost(program.training_spec, program.plan)
    assert within(steps, "setup") == setup
    assert within(steps, "table") == table * 2
    assert within(steps, "predict").rounds == 3
    # The label, and the indicators of five features at seven cuts, to all other participants.
    scales = Scales.from_plan(program.plan)
    assert scales.units.g_ring is Z32
    label = scales.score_ring if task == "regression" else Z64
    sent = label.count_packed_bytes(N) + 5 * Z32.count_packed_bytes(7 * N)
    shared = Cost(2, (n - 1) * sent, 0)
    assert setup == shared + (root_cost(scales, n, 5 * 7) if task == "regression" else Cost())
    assert (steps["table"].rounds if "table" in steps else 0) == 2 * reveal_loss


def test_only_features_and_buckets_are_revealed() -> None:
    program, inputs = trial([2, 1, 2], 0, "masked", tables=3)
    views = play(program, 3, inputs)
    participants = ("party1", "party2", "party3")
    depth = program.plan.params.depth
    feature = views[0].result.part.feature.reshape(-1)
    owners = [participants[program.plan.ownership.features[j]] for j in feature]
    expected = []
    for level, owner in enumerate(owners):
        expected += [("split feature", participants, 1), ("split bucket", (owner,), 1)]
        if level % depth == depth - 1:
            # Counts of up to 128 numbers each: of 512 scores, the squares of 35 cuts at two levels,
            # and both signs of 4 leaves' sums.
            expected.append(("numbers within bounds", participants, 4 + 2 + 1))
    expected.append(("predictions", ("party3",), 5))
    for view in views:
        assert [(e.disclosure, e.recipients, e.n_elements) for e in view.ledger.entries] == expected
        steps = {e.step for e in view.ledger.entries if e.disclosure == "numbers within bounds"}
        assert steps == {"table/leaves"}


@pytest.mark.parametrize("recipient", [0, 2])
def test_prediction_takes_three_rounds(recipient: int) -> None:
    program, inputs = trial([2, 1, 2], 0, "masked", task="classification", tables=4, depth=3)
    parts = [result.part for result in simulate(program, 3, inputs).results]
    new = np.random.default_rng(3).normal(size=(5, 40))
    query = PredictionQuery("masked", OBJECTIVES["classification"], (4, 3, 40), 2, recipient, 10)
    data = list(zip(parts, [new[:2], new[2:3], new[3:]], strict=True))
    outcome = simulate(partial(ask, query=query), 3, data)
    assert_rounded(outcome.results[recipient], join_parts(parts), new, 10, parts[2].label_unit)
    assert outcome.meters[0].sum_traffic().rounds == 3


@pytest.mark.parametrize(
    ("name", "tables", "depth"),
    [
        ("california", 4, 5),
        ("credit", 2, 4),
        ("breast-cancer", 10, 3),
        pytest.param("syn-a", 1, 2, marks=pytest.mark.slow),
        pytest.param("syn-b", 1, 3, marks=pytest.mark.slow),
        ("syn-c", 1, 3),
    ],
)
def test_paper_datasets(
    name: str, tables: int, depth: int, real_data: Callable[[str], DataSet]
) -> None:
    """With the paper's parameters, but fewer tables; docs/masked.md contains all results."""
    real_data(name)  # or skip
    params = {"tables": tables, "depth": depth, "buckets": 32, "l2": 1.0, "learning_rate": 1.0}
    report = run(Experiment(data=name, n_parties=3, network="memory", params=params))[1]
    assert report.same_tests >= 0.99
    bounds = {"rmse": 0.001, "mae": 0.001, "r2": 0.001, "auc": 0.0005, "accuracy": 0.002}
    bounds |= {"ks": 0.002, "average_precision": 0.0005, "log_loss": 0.001, "brier": 0.0005}
    for metric, value in report.metrics.items():
        assert value == pytest.approx(report.plain_metrics[metric], abs=bounds[metric])
