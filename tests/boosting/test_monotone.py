"""Monotone constraints: in the reference and on shares, exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.boosting.test_federation import N, bucketed, columns, label_of
from tests.gates.test_masked import on_shares

from privet import ParameterError, Params
from privet.arithmetic.rings import get_integer_ring
from privet.arrays import FloatArray, IndexArray
from privet.boosting import reference
from privet.boosting.cost_estimate import CostEstimate, count_training_cost, estimate_cost
from privet.boosting.model import Feature, Model
from privet.boosting.model_part import join_parts
from privet.boosting.simulation import train_federated, train_locally
from privet.boosting.training import TrainingSpec
from privet.gates.masked.value import lift_signed, mask_value
from privet.protocols.masked.candidates import SideOrderScale, order_leaf_values
from privet.protocols.masked.precision.scores import Scales
from privet.runtime.cost import Cost
from privet.spec.plan import Ownership, Plan, list_constraints_by_feature

TASKS = ["regression", "classification"]
SIGNS = (1, -1, 0, 0, 1, 0)
"""For the label of `label_of`: one constraint agrees with the data, two do not."""


def count_wrong_pairs(model: Model, signs: tuple[int, ...]) -> int:
    """Count pairs of leaves that differ in one constrained split only, and are in wrong order."""
    count = 0
    for table, leaves in enumerate(model.leaf_values):
        for level, feature in enumerate(model.feature[table]):
            if np.isposinf(model.threshold[table, level]):  # no split
                continue
            pairs = leaves.reshape(-1, 1 << level, 2, 1 << (model.depth - level - 1))
            rise = (pairs[:, :, 1] - pairs[:, :, 0]) * signs[feature]
            count += int((rise < 0).sum())
    return count


def make_sweep(x: FloatArray, feature: int, points: int = 40) -> list[FloatArray]:
    """Return tables that differ in one column only, which increases from missing to infinity."""
    rng = np.random.default_rng(5)
    ends = np.nanmin(x[feature]) - 1, np.nanmax(x[feature]) + 1
    grid = [np.nan, -np.inf, *np.linspace(*ends, points), np.inf]
    others = x[:, rng.integers(x.shape[1], size=25)]
    tables = []
    for value in grid:
        table = others.copy()
        table[feature] = value
        tables.append(table)
    return tables


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("sizes", [[3, 3], [2, 1, 3]])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"min_child_weight": 4.0},
        {"min_gain": 4.0},
        {"subsample": 0.6, "colsample": 0.5, "seed": 3, "min_gain": 2.0},
        {"l2": 8.0, "depth": 3},
    ],
)
def test_splits_match_reference(task: str, sizes: list[int], changes: dict[str, Any]) -> None:
    """Leaf values are in order, exactly; costs are as estimated."""
    x = columns(6)
    label = label_of(x, task)
    params = Params.parse(
        {"task": task, "tables": 4, "depth": 4, "buckets": 16, "learning_rate": 0.5, **changes}
    )
    parties = bucketed(x, sizes, 16)
    plain = train_locally(parties, label, params, monotone=SIGNS)
    estimates: list[CostEstimate] = []
    federated = train_federated(
        parties, label, params, "masked", monotone=SIGNS, on_estimate=estimates.append
    )
    model = join_parts(federated.parts)
    assert (model.feature == plain.feature).all()
    assert (model.bucket == plain.bucket).all()
    assert np.abs(model.leaf_values - plain.leaf_values).max() < 1e-4
    assert count_wrong_pairs(plain, SIGNS) == count_wrong_pairs(model, SIGNS) == 0
    meters = federated.program_result.meters
    assert {meter.sum_traffic("online").rounds for meter in meters} == {estimates[0].rounds}
    assert sum(meter.sum_traffic("online").sent for meter in meters) == estimates[0].online_bytes
    assert (
        sum(meter.sum_traffic("offline").received for meter in meters) == estimates[0].offline_bytes
    )
    if not changes:  # without constraints, they are not
        assert count_wrong_pairs(train_locally(parties, label, params), SIGNS) > 0


@pytest.mark.parametrize("task", TASKS)
def test_weights_and_a_base_score(task: str) -> None:
    """Sums of weighted residuals have no bound if a table can increase them."""
    x = columns(6)
    label = label_of(x, task)
    weight: FloatArray | None = np.random.default_rng(2).exponential(size=N)
    params = Params(task=task, tables=3, depth=3, buckets=16, base_score=0.25)
    parties = bucketed(x, [3, 3], 16)
    if task == "regression":
        with pytest.raises(ParameterError, match=r"monotone: masked has no bound .*the weights"):
            train_locally(parties, label, params, "masked", sample_weight=weight, monotone=SIGNS)
        weight = None
    plain = train_locally(parties, label, params, sample_weight=weight, monotone=SIGNS)
    model = train_locally(parties, label, params, "masked", sample_weight=weight, monotone=SIGNS)
    assert (model.feature == plain.feature).all()
    assert (model.bucket == plain.bucket).all()
    assert count_wrong_pairs(model, SIGNS) == 0


@pytest.mark.parametrize("task", TASKS)
def test_predictions_are_monotone(task: str) -> None:
    """Revealed predictions are monotone in each constrained column; missing values come first."""
    x = columns(6)
    x[0, ::9] = np.nan
    label = label_of(np.nan_to_num(x), task)
    params = Params(task=task, tables=6, depth=4, buckets=16, learning_rate=0.7)
    parties = bucketed(x, [2, 1, 3], 16)
    features = [j for j, sign in enumerate(SIGNS) if sign]
    tables = [make_sweep(x, j) for j in features]
    new = np.concatenate([part for found in tables for part in found], axis=1)
    split = np.split(new, [2, 3])
    result = train_federated(
        parties, label, params, "masked", monotone=SIGNS, new_columns=split
    ).predictions
    assert result is not None
    plain = train_locally(parties, label, params, monotone=SIGNS).predict(new)
    for predictions in (result, plain):
        swept = predictions.reshape(len(features), -1, 25)
        rises = np.diff(swept, axis=1) * np.array([SIGNS[j] for j in features])[:, None, None]
        assert (rises >= 0).all()
        assert (rises > 0).any(axis=(1, 2))[
            0
        ]  # the column with the constraint that agrees with the data


def compute_scores_by_row(
    x: IndexArray, g: FloatArray, h: FloatArray, node: IndexArray
) -> FloatArray:
    """Return the scores of all cuts, summed row by row, for `SIGNS` and an l2 of 1."""

    def part(rows: Any) -> tuple[float, float]:
        total_g, total_h = float(g[rows].sum()), float(h[rows].sum()) + 1.0
        return -total_g / total_h, -0.5 * total_g**2 / total_h

    scores = np.zeros((len(x), 7))
    for j, cut in np.ndindex(scores.shape):
        for k in range(4):
            inside = node == k
            (left, of_left), (right, of_right) = (
                part(inside & side) for side in (x[j] <= cut, x[j] > cut)
            )
            wrong = (right - left) * SIGNS[j] < 0
            scores[j, cut] += part(inside)[1] if wrong else of_left + of_right
    return scores


def test_candidate_scores() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(8, size=(6, 200))
    g, h = rng.normal(size=200) + 0.3 * x[0], rng.uniform(0.05, 0.25, size=200)
    node = rng.integers(4, size=200)
    sums = reference.sum_by_bucket(
        x.astype(np.uint8), np.ones(200, dtype=bool), node, 4, g[None], h[None], 8
    )
    params = Params(task="classification", buckets=8)
    found = reference.score_candidates(sums, params, np.array(SIGNS))
    expected = compute_scores_by_row(x, g, h, node)
    assert found == pytest.approx(expected, rel=1e-9)
    free = reference.score_candidates(sums, params)
    assert (found[[2, 3, 5]] == free[[2, 3, 5]]).all()
    assert (found[[0, 1, 4]] != free[[0, 1, 4]]).any(axis=1).all()


def order_exactly(values: list[Fraction], signs: list[int]) -> list[Fraction]:
    """Return leaf values in order, pair by pair, in exact fractions."""
    values = list(values)
    depth = len(signs)
    for level, sign in enumerate(signs):
        bit = 1 << (depth - 1 - level)
        for low in range(len(values)):
            high = low | bit
            if low != high and (values[high] - values[low]) * sign < 0:
                values[low] = values[high] = (values[low] + values[high]) / 2
    return values


leaf_tables = st.integers(1, 4).flatmap(
    lambda depth: st.tuples(
        st.lists(st.integers(-40, 40), min_size=1 << depth, max_size=1 << depth),
        st.lists(st.sampled_from([-1, 0, 1]), min_size=depth, max_size=depth),
    )
)


@given(leaf_tables)
def test_one_pass_orders_all_levels(case: tuple[list[int], list[int]]) -> None:
    """In the reference, for any values: no level undoes the order of another level."""
    values, signs = case
    found = reference.order_leaf_values(np.array([values], dtype=np.float64), signs)[0]
    assert found.tolist() == [float(x) for x in order_exactly([Fraction(v) for v in values], signs)]
    shape = (2,) * len(signs)
    for level, sign in enumerate(signs):
        assert (np.diff(found.reshape(shape), axis=level) * sign >= 0).all()
    assert found.sum() == pytest.approx(sum(values))
    if all(
        (np.diff(np.reshape(values, shape), axis=level) * sign >= 0).all()
        for level, sign in enumerate(signs)
    ):
        assert found.tolist() == values


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("depth", [1, 3, 5])
def test_leaves_are_ordered_exactly_on_shares(n: int, depth: int) -> None:
    """For small values with many ties, and for the largest possible ones; two openings a level."""
    rng = np.random.default_rng(depth)
    ring = get_integer_ring(27)
    for limit in (3, 1 << 25):
        values = rng.integers(-limit + 1, limit, size=1 << depth)
        signs = rng.choice([-1, 0, 1], size=depth).tolist()

        def body(runtime: Any, share: Any, signs: list[int] = signs) -> Any:
            known = signs if runtime.index >= 0 else [0] * depth  # the dealer does not know them
            found = order_leaf_values(runtime, mask_value(runtime, share), known)
            return lift_signed(runtime, found).to_share(runtime)

        total, cost, _ = on_shares(body, [(values.astype(np.uint32)[None], ring)], n)
        expected = order_exactly([Fraction(int(v)) for v in values], signs)
        assert total[0].astype(np.int64).tolist() == [int(v * (1 << depth)) for v in expected]
        assert cost.rounds == 1 + 2 * depth


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("n_samples", [100, 24_000, 600_000])
@pytest.mark.parametrize("l2", [0.1, 1.0, 1000.0])
def test_differences_fit_their_ring(task: str, n_samples: int, l2: float) -> None:
    """The largest difference fits its ring with its sign, and 64 bits before truncation."""
    params = Params.parse({"task": task, "l2": l2})
    scales = Scales.from_plan(Plan(params, Ownership((0, 1), 1), n_samples, monotone=(1, 0)))
    shift, drop, ring = scale = SideOrderScale.from_scales(scales)
    largest = scales.units.max_gradient_sum * (
        (scales.units.max_hessian_sum << scales.y_bits) + 2 * scales.l2
    )
    assert largest >> (shift + drop) < 1 << (ring.bits - 1)
    assert ring.bits + drop <= 64
    assert ring.bits <= 48
    assert 1 <= scale.n_digits <= 8


def count_table_cost(task: str, monotone: tuple[int, ...]) -> Cost:
    """Return the cost of a table with 24,000 rows and 24 features of three participants."""
    training_spec = TrainingSpec(
        protocol="masked",
        params=Params.parse({"task": task}),
        parties=("a", "b", "c"),
        features=tuple(Feature(str(j), "abc"[j % 3]) for j in range(24)),
        active=2,
        prediction_bits=10,
        monotone=monotone,
    )
    return count_training_cost(training_spec, training_spec.make_plan(24_000))[1]


@pytest.mark.parametrize("task", TASKS)
def test_cost_of_constraints(task: str) -> None:
    """An opening a level, two to order leaves, two to round; bytes grow with constrained cuts."""
    free, unconstrained = count_table_cost(task, ()), count_table_cost(task, (0,) * 24)
    assert unconstrained == free
    one, two = (count_table_cost(task, (1,) * k + (0,) * (24 - k)) for k in (1, 2))
    all_features = count_table_cost(task, (1, -1) * 12)
    depth = 5
    assert one.rounds == free.rounds + 3 * depth + 2
    # Openings that are large enough travel in slices, in two rounds.
    assert one.rounds <= all_features.rounds <= one.rounds + depth
    assert one.online_bytes < 1.03 * free.online_bytes
    per_feature = two.online_bytes - one.online_bytes
    assert 16 * per_feature < all_features.online_bytes - one.online_bytes < 24 * per_feature


def test_cost_depends_on_sampled_constrained_features() -> None:
    """Tables that sample a constrained feature cost more than others."""
    params = Params(task="regression", tables=6, depth=2, buckets=8, colsample=0.4, seed=1)
    training_spec = TrainingSpec(
        protocol="masked",
        params=params,
        parties=("a", "b"),
        features=tuple(Feature(str(j), "ab"[j % 2]) for j in range(5)),
        active=1,
        prediction_bits=10,
        monotone=(1, 0, 0, 0, 0),
    )
    plan = training_spec.make_plan(N)
    samples_constrained = [
        0 in np.arange(5)[plan.sample_table(table).features] for table in range(6)
    ]
    assert True in samples_constrained
    assert False in samples_constrained
    costs = [count_training_cost(training_spec, plan, table)[1] for table in range(6)]
    expected = sum(costs, start=count_training_cost(training_spec, plan)[0])
    assert estimate_cost(training_spec, plan).online_bytes == expected.online_bytes
    assert len({cost.online_bytes for cost in costs}) == 2


def test_invalid_constraints_are_rejected() -> None:
    x = columns(2)
    parties, label = bucketed(x, [1, 1], 8), (x[0] > 0).astype(float)
    params = Params(task="classification", tables=1, depth=1, buckets=8)
    for protocol in ("plain", "masked"):
        with pytest.raises(ParameterError, match="monotone: 3 constraints for 2 features"):
            train_locally(parties, label, params, protocol, monotone=(1, 0, 0))
        with pytest.raises(ParameterError, match="monotone: 2 is none of 1"):
            train_locally(parties, label, params, protocol, monotone=(2, 0))
        several = Params(task="classification", classes=3, tables=1, depth=1, buckets=8)
        with pytest.raises(ParameterError, match="monotone: 3 classes have no score"):
            train_locally(
                parties, np.arange(N, dtype=np.float64) % 3, several, protocol, monotone=(1, 0)
            )
    with pytest.raises(ParameterError, match="monotone: the protocol paper has no constraints"):
        train_locally(parties, label, params, "paper", monotone=(1, 0))


def test_constraints_by_name() -> None:
    features = [("bank", "age"), ("bank", "income"), ("shop", "visits")]
    wanted = {"bank": {"income": 1}, "shop": {"visits": -1}}
    assert list_constraints_by_feature(features, wanted) == [0, 1, -1]
    assert list_constraints_by_feature(features, {}) == [0, 0, 0]
    with pytest.raises(ParameterError, match="bank has no feature 'visits', it is shop's"):
        list_constraints_by_feature(features, {"bank": {"visits": 1}})
    with pytest.raises(ParameterError, match="bank has no feature 'height', it is nobody's"):
        list_constraints_by_feature(features, {"bank": {"height": 1}})
