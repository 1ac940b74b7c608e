"""`min_child_weight`, `min_gain`, and the gains of levels."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.boosting.test_federation import N, bucketed, columns, label_of, trial
from tests.boosting.test_sampling import count_table_cost
from tests.gates.test_masked import on_shares
from tests.runtime.harness import check_count, play

from privet import ParameterError, Params
from privet.arithmetic.rings import Z64
from privet.boosting import reference
from privet.boosting.cost_estimate import CostEstimate
from privet.boosting.model_part import join_parts
from privet.boosting.reference import compute_level_gains
from privet.boosting.simulation import train_federated, train_locally
from privet.gates.masked.comparison import make_lifted_one, multiply_by_step
from privet.gates.masked.value import mask_value
from privet.protocols.masked.leaves import classify_hessians
from privet.protocols.masked.precision.scores import Scales
from privet.spec.plan import Ownership, Plan

TASKS = ["regression", "classification"]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("sizes", [[3, 3], [2, 1, 3]])
@pytest.mark.parametrize("least", [0.3, 4.0, 9.0])
def test_splits_match_reference(task: str, sizes: list[int], least: float) -> None:
    x = columns(6)
    label = label_of(x, task)
    params = Params(
        task=task, tables=4, depth=4, buckets=16, learning_rate=0.5, min_child_weight=least
    )
    parties = bucketed(x, sizes, 16)
    plain, model = (
        train_locally(parties, label, params),
        train_locally(parties, label, params, "masked"),
    )
    assert (model.feature == plain.feature).all()
    assert (model.bucket == plain.bucket).all()
    assert np.abs(model.leaf_values - plain.leaf_values).max() < 1e-4
    if least == 9.0:
        free = train_locally(parties, label, params.model_copy(update={"min_child_weight": 0.0}))
        assert (plain.leaf_values == 0).sum() > (free.leaf_values == 0).sum()


def test_weight_of_a_regression_is_the_sample_count() -> None:
    """The comparison is exact: leaves of three samples count, leaves of two do not."""
    x = np.array([[0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]]) * 1.0
    label = np.array([[1.0, 10.0], [-10.0, 3.0]])[x[0].astype(int), x[1].astype(int)]
    params = Params(
        task="regression", tables=1, depth=2, buckets=2, learning_rate=1.0, l2=0.125, base_score=0.0
    )
    parties = bucketed(x, [1, 1], 2)
    for least, below in ((2.0, []), (2.5, [0]), (3.0, [0])):
        chosen = params.model_copy(update={"min_child_weight": least})
        for protocol in ("plain", "masked"):
            model = train_locally(parties, label, chosen, protocol)
            assert sorted(model.feature[0].tolist()) == [0, 1]
            values = np.abs(model.leaf_values[0, 0])
            assert np.flatnonzero(values < 1e-2).tolist() == below, (protocol, least)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("l2", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("least", [0.2, 1.0, 7.0, 25.0])
@pytest.mark.parametrize("n_samples", [100, 24_000, 600_000])
def test_comparison_with_min_child_weight(
    task: str, l2: float, least: float, n_samples: int
) -> None:
    """All sums above the minimum count, below it only the nearest; classes are unchanged."""
    params = Params.parse({"task": task, "l2": l2})
    plan = Plan(params, Ownership((0, 1), 1), n_samples)
    bounded = Plan(params.model_copy(update={"min_child_weight": least}), plan.ownership, n_samples)
    scales = Scales.from_plan(bounded)
    units, thresholds = scales.units, scales.thresholds
    least_units = int(np.ceil(least * 2**units.h_bits))
    unit = (2 << thresholds.dropped_bits) + units.h_slack
    nearby = [
        least_units - unit - 1,
        least_units - units.h_slack - 1,
        least_units - units.h_slack,
        least_units,
        least_units + 1,
    ]
    spread = np.linspace(0, units.max_hessian_sum, 40).astype(np.int64).tolist()
    h = np.array([x for x in (*nearby, *spread) if 0 <= x <= units.max_hessian_sum])

    def body(runtime: Any, share: Any) -> Any:
        reached = classify_hessians(runtime, scales, mask_value(runtime, share))
        ones = make_lifted_one(runtime, share.shape, Z64)
        return [
            multiply_by_step(runtime, reached, ones, factors=factors)
            for factors in (thresholds.counted_factors, thresholds.class_factors)
        ]

    (factors, powers), _, _ = on_shares(body, [(h.astype(units.h_ring.dtype), units.h_ring)], 2)
    counted = factors > 0
    assert counted[h >= least_units].all()
    assert not counted[h < (least_units if task == "regression" else least_units - unit)].any()
    assert (factors[counted] == powers[counted]).all()
    # Classes are the same as without the minimum, up to a unit of the compared values.
    free = Scales.from_plan(plan).thresholds
    assert set(powers.tolist()) <= set(free.counted_factors)
    y = h * 2.0**scales.y_bits + scales.l2
    exact = np.clip(
        np.floor(np.log(y / scales.l2) / np.log(scales.class_ratio)), 0, scales.n_class_bounds
    )
    sure = np.abs(np.log(y / scales.l2) / np.log(scales.class_ratio) % 1 - 0.5) < 0.4
    assert (
        powers[sure] == float(scales.class_ratio) ** (scales.n_class_bounds - exact[sure])
    ).all()


@pytest.mark.parametrize("task", TASKS)
def test_cost_of_min_child_weight(task: str) -> None:
    """No additional round, and two bits for each side of each cut and node, with 24 features."""
    free, bounded = count_table_cost(task), count_table_cost(task, min_child_weight=2.0)
    assert bounded.rounds <= free.rounds + 1  # an opening can become large enough for slices
    depth, cuts = 5, 24 * 31
    levels = range(1 if task == "regression" else 0, depth)  # those of the root are compared once
    sides = sum(2 * cuts << level for level in levels) + (1 << depth)
    # Each of three participants sends its bits to two others, or fewer in slices.
    assert 0 < bounded.online_bytes - free.online_bytes <= 6 * sides / 4 * 1.01
    program, inputs = trial([2, 1, 2], 0, "masked", task=task, min_child_weight=2.0)
    check_count(program, play(program, 3, inputs))


@pytest.mark.parametrize("name", ["min_child_weight", "min_gain"])
def test_paper_protocol_supports_neither(name: str) -> None:
    x = columns(2)
    params = Params.parse({"task": "regression", name: 1.0})
    with pytest.raises(ParameterError, match=f"{name}: the protocol paper has no such bound"):
        train_locally(bucketed(x, [1, 1], 32), x[0], params, "paper")


@pytest.mark.parametrize(("task", "most"), [("regression", N), ("classification", N // 4)])
def test_min_child_weight_above_the_total_is_rejected(task: str, most: int) -> None:
    x = columns(2)
    parties, label = bucketed(x, [1, 1], 8), (x[0] > 0).astype(float)
    params = Params(task=task, tables=1, depth=1, buckets=8, min_child_weight=float(most))
    train_locally(parties, label, params, "masked")
    beyond = params.model_copy(update={"min_child_weight": most + 0.1})
    with pytest.raises(ParameterError, match=f"is more than 512 rows add up to, {most} at most"):
        train_locally(parties, label, beyond, "masked")


# Levels without a split.


@pytest.mark.parametrize(
    ("task", "unit"), [("regression", 1.0), ("regression", 300.0), ("classification", 1.0)]
)
@pytest.mark.parametrize("draws", [{}, {"subsample": 0.5, "colsample": 0.5, "seed": 3}])
@pytest.mark.parametrize("gain", [0.5, 8.0, 1e9])
def test_levels_below_min_gain_have_no_split(
    task: str, unit: float, draws: dict[str, Any], gain: float
) -> None:
    """The same levels as in the reference have no split, in any unit of the label."""
    x = columns(6)
    label = label_of(x, task) * unit
    params = Params.parse(
        {
            "task": task,
            "tables": 4,
            "depth": 3,
            "buckets": 16,
            "learning_rate": 0.5,
            "min_gain": gain * unit**2,
            **draws,
        }
    )
    parties = bucketed(x, [2, 1, 3], 16)
    plain = train_locally(parties, label, params)
    estimates: list[CostEstimate] = []
    federated = train_federated(parties, label, params, "masked", on_estimate=estimates.append)
    model = join_parts(federated.parts)
    assert (model.feature == plain.feature).all()
    assert (model.bucket == plain.bucket).all()
    assert (model.threshold == plain.threshold).all()
    assert np.abs(model.leaf_values - plain.leaf_values).max() < 1e-4 * unit
    online = [meter.sum_traffic("online") for meter in federated.program_result.meters]
    assert {traffic.rounds for traffic in online} == {estimates[0].rounds}
    assert sum(traffic.sent for traffic in online) == estimates[0].online_bytes
    no_split = plain.bucket == 15
    assert (np.isposinf(plain.threshold) == no_split).all()
    assert no_split.sum() == {0.5: 0, 1e9: 12}.get(gain, no_split.sum())
    if gain == 8.0:
        assert no_split.sum() > 0
    # All participants know the levels without a split; otherwise only the owner's thresholds.
    for part in federated.parts:
        assert (np.isposinf(part.threshold) == no_split).all()
        local = np.array([f.owner == part.party for f in part.features])[part.feature]
        assert (np.isnan(part.threshold) == ~(local | no_split)).all()


def test_min_gain_is_compared_with_the_loss_decrease() -> None:
    """In the reference, at a learning rate of 1, the loss decreases by the gain (second order)."""
    x = columns(3)
    label = label_of(x, "regression")
    base = {"task": "regression", "tables": 1, "depth": 1, "learning_rate": 1.0, "base_score": 0.0}
    (party,) = bucketed(x, [3], 32)

    def penalised(model: Any) -> float:
        values = model.leaf_values[0, 0]
        return float(
            0.5 * np.sum((model.predict_scores(x)[0] - label) ** 2) + 0.5 * np.sum(values**2)
        )

    best = train_locally([party], label, Params.parse(base))
    no_split = train_locally([party], label, Params.parse({**base, "min_gain": 1e9}))
    assert np.isposinf(no_split.threshold).all()
    gain = penalised(no_split) - penalised(best)
    for factor, is_split in ((1 - 1e-9, True), (1 + 1e-9, False)):
        chosen = Params.parse({**base, "min_gain": gain * factor})
        assert np.isfinite(train_locally([party], label, chosen).threshold).all() == is_split


def test_cost_of_min_gain() -> None:
    """It costs about as much as one more cut, and nothing without `min_gain`."""
    for task in TASKS:
        free, with_gain = count_table_cost(task), count_table_cost(task, min_gain=1.0)
        assert with_gain.rounds <= free.rounds + 1
        assert free.online_bytes < with_gain.online_bytes < 1.01 * free.online_bytes


# Gains of levels.


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("draws", [{}, {"subsample": 0.5, "min_child_weight": 3.0}])
def test_level_gains_match_the_chosen_splits(task: str, draws: dict[str, Any]) -> None:
    """They equal those that the reference computes while it chooses splits."""
    x = columns(4)
    label = label_of(x, task)
    params = Params.parse({"task": task, "tables": 3, "depth": 3, "buckets": 16, **draws})
    expected: list[float] = []

    def recording_find_best_split(sums: Any, chosen: Params, *rest: Any) -> tuple[int, int]:
        split = original(sums, chosen, *rest)
        before = reference.score_without_split(sums, chosen)
        expected.append(before - float(reference.score_candidates(sums, chosen)[split]))
        return split

    original = reference.find_best_split
    with mock.patch.object(reference, "find_best_split", recording_find_best_split):
        model = train_locally(bucketed(x, [2, 2], 16), label, params)
    gains = compute_level_gains(model, x, label, params)
    assert gains.reshape(-1) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    shares = model.compute_importances(gains)
    assert shares.sum() == pytest.approx(1.0)
    by_hand = [gains[model.feature == j].sum() / gains.sum() for j in range(4)]
    assert shares == pytest.approx(by_hand)
