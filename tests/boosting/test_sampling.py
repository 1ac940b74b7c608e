"""Row and feature sampling: `subsample` and `colsample`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.boosting.test_cut_disclosure import BUCKETS, table
from tests.boosting.test_federation import N, bucketed, columns, label_of, trial
from tests.privacy.cases import training
from tests.runtime.harness import check_count, play

from privet import ParameterError, Params
from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns
from privet.boosting.cost_estimate import CostEstimate, count_training_cost, estimate_cost
from privet.boosting.model import Feature
from privet.boosting.model_part import LabelUnit, join_parts
from privet.boosting.simulation import train_federated, train_locally
from privet.boosting.training import TrainingSpec
from privet.boosting.training import train as train_on_shares
from privet.errors import ResultError
from privet.protocols.masked import bounds as residuals
from privet.protocols.masked.bounds import plan_residual_checks
from privet.protocols.masked.precision.rows import GradientUnits
from privet.protocols.masked.precision.scores import Scales
from privet.runtime.cost import Cost
from privet.runtime.local.launcher import simulate
from privet.runtime.runtime import Runtime
from privet.spec.plan import Ownership, Plan
from privet.spec.sampling import sample_table

TASKS = ["regression", "classification"]
FRACTIONS = [(0.5, 1.0), (1.0, 0.5), (0.3, 0.5)]


def select(party: BucketedColumns, rows: Any, features: list[int]) -> BucketedColumns:
    return replace(
        party,
        names=tuple(party.names[j] for j in features),
        buckets=party.buckets[features][:, rows],
        thresholds=party.thresholds[features],
    )


@pytest.mark.parametrize("task", TASKS)
def test_table_depends_only_on_its_sample(task: str) -> None:
    """In the reference, the model equals that of only the sampled rows and features."""
    x = columns(6)
    label = label_of(x, task)
    params = Params(
        task=task, tables=1, depth=3, buckets=16, subsample=0.3, colsample=0.5, base_score=0.25
    )
    (party,) = bucketed(x, [6], 16)
    model = train_locally([party], label, params)
    rows, features = sample_table(params, N, (15,) * 6, 0)
    chosen = np.arange(6)[features].tolist()
    assert len(label[rows]) == 154
    assert len(chosen) == 3
    unsampled = params.model_copy(update={"subsample": 1.0, "colsample": 1.0})
    expected = train_locally(
        [select(party, rows, chosen)], label[rows], unsampled, cut_disclosure="hidden"
    )
    assert (np.array(chosen)[expected.feature] == model.feature).all()
    assert (expected.threshold == model.threshold).all()
    assert (expected.leaf_values == model.leaf_values).all()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("sizes", [[3, 3], [2, 1, 3], [1, 1, 2, 2, 0]])
@pytest.mark.parametrize(("subsample", "colsample"), FRACTIONS)
def test_splits_match_reference(
    sizes: list[int], task: str, subsample: float, colsample: float
) -> None:
    """Scores of rows outside the sample are updated; otherwise the next tables would differ."""
    x = columns(6)
    label = label_of(x, task)
    params = Params(
        task=task,
        tables=5,
        depth=3,
        buckets=16,
        learning_rate=0.5,
        subsample=subsample,
        colsample=colsample,
        seed=len(sizes),
    )
    parties = bucketed(x, sizes, 16)
    plain, model = (
        train_locally(parties, label, params),
        train_locally(parties, label, params, "masked"),
    )
    assert (model.feature == plain.feature).all()
    assert (model.bucket == plain.bucket).all()
    assert np.abs(model.leaf_values - plain.leaf_values).max() < 1e-4
    sampled = [np.arange(6)[sample_table(params, N, (15,) * 6, k).features] for k in range(5)]
    for features, used in zip(sampled, model.feature, strict=True):
        assert set(used) <= set(features)
    unsampled = params.model_copy(update={"subsample": 1.0, "colsample": 1.0})
    assert (train_locally(parties, label, unsampled).leaf_values != plain.leaf_values).any()


@pytest.mark.parametrize("subsample", [0.1, 0.04, 0.01])
@pytest.mark.parametrize("task", TASKS)
def test_small_samples_of_many_rows(task: str, subsample: float) -> None:
    """Sums of Hessians are sized for all rows, sums of gradients for the sampled rows."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 3000))
    label = 2 * x[0] + x[1]
    if task == "classification":
        label = (label > 0).astype(float)
    params = Params(task=task, tables=3, depth=2, buckets=8, subsample=subsample)
    parties = bucketed(x, [2, 2], 8)
    plain, model = (
        train_locally(parties, label, params),
        train_locally(parties, label, params, "masked"),
    )
    assert (model.feature == plain.feature).all()
    assert (model.bucket == plain.bucket).all()
    assert np.abs(model.leaf_values - plain.leaf_values).max() < 1e-4


def test_several_classes() -> None:
    x = columns(6)
    score = label_of(x, "regression")
    label = np.searchsorted(np.quantile(score, (0.3, 0.7)), score).astype(float)
    params = Params(
        task="classification", classes=3, tables=3, depth=2, buckets=8, subsample=0.5, colsample=0.7
    )
    parties = bucketed(x, [3, 3], 8)
    plain, model = (
        train_locally(parties, label, params),
        train_locally(parties, label, params, "masked"),
    )
    assert (model.feature == plain.feature).all()
    assert (model.bucket == plain.bucket).all()
    assert np.abs(model.leaf_values - plain.leaf_values).max() < 1e-4


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("subsample", "colsample"), FRACTIONS)
@pytest.mark.parametrize("ahead", [False, True])
def test_cost_is_as_estimated(task: str, subsample: float, colsample: float, ahead: bool) -> None:
    """If features have different cut counts, the cost of every table differs."""
    parties, label = table(task)
    params = Params(
        task=task, tables=6, depth=2, buckets=BUCKETS, subsample=subsample, colsample=colsample
    )
    estimates: list[CostEstimate] = []
    federated = train_federated(
        parties,
        label,
        params,
        "masked",
        cut_disclosure="exact",
        offline=ahead,
        on_estimate=estimates.append,
    )
    plain, model = (
        train_locally(parties, label, params, cut_disclosure="exact"),
        join_parts(federated.parts),
    )
    assert (model.feature == plain.feature).all()
    assert (model.bucket == plain.bucket).all()
    online = [meter.sum_traffic("online") for meter in federated.program_result.meters]
    assert {traffic.rounds for traffic in online} == {estimates[0].rounds}
    assert sum(traffic.sent for traffic in online) == estimates[0].online_bytes
    if not ahead:
        offline = sum(
            meter.sum_traffic("offline").received for meter in federated.program_result.meters
        )
        assert offline == estimates[0].offline_bytes


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("done", [0, 1, 3])
def test_cost_of_remaining_tables(task: str, done: int) -> None:
    """Each table samples features with different cut counts."""
    program, data = training(
        "masked", task, 3, 0, tables=4, ragged=True, chosen={"colsample": 0.6, "subsample": 0.6}
    )
    assert len({program.plan.list_sampled_cut_counts(k) for k in range(4)}) > 2
    estimate = estimate_cost(program.federation, program.plan, done)
    states = [None] * 3
    if done:
        first = program.plan.params.model_copy(update={"tables": done})
        first_part = replace(program, plan=replace(program.plan, params=first))
        states = [view.result for view in play(first_part, 3, data)]
    remainder = replace(program, done=done)
    resumed = [(local, state) for (local, _), state in zip(data, states, strict=True)]
    views = play(remainder, 3, resumed)
    steps = check_count(remainder, views)
    assert sum(steps.values(), start=Cost()) == Cost(
        estimate.rounds, estimate.online_bytes, estimate.offline_bytes
    )
    complete = [view.result for view in play(program, 3, data)]
    for view, other in zip(views, complete, strict=True):
        assert (view.result.part.feature == other.part.feature).all()
        assert (view.result.part.bucket == other.part.bucket).all()


@pytest.mark.parametrize("task", TASKS)
def test_on_kept_indicators(task: str, tmp_path: Any) -> None:
    """Those of all rows and features are kept, whatever a table draws."""
    program, data = training("masked", task, 3, 1, chosen={"colsample": 0.6, "subsample": 0.6})
    expected = play(program, 3, data)
    for kept in ((), (0, 1, 2)):
        keeping = program.keeping(data, tmp_path)
        assert keeping.plan.cached_owners == kept
        for view, other in zip(play(keeping, 3, data), expected, strict=True):
            assert (view.result.part.feature == other.result.part.feature).all()
            assert (view.result.part.bucket == other.result.part.bucket).all()


def count_table_cost(task: str, **changes: Any) -> Cost:
    """Return the cost of a table with 24,000 rows and 24 features of three participants."""
    params = Params.parse({"task": task, **changes})
    training_spec = TrainingSpec(
        protocol="masked",
        params=params,
        parties=("a", "b", "c"),
        features=tuple(Feature(str(j), "abc"[j % 3]) for j in range(24)),
        active=2,
        prediction_bits=10,
    )
    return count_training_cost(training_spec, training_spec.make_plan(24_000))[1]


@pytest.mark.parametrize("task", TASKS)
def test_sampling_reduces_cost(task: str) -> None:
    """Half the rows save nearly half of the online bytes; half the features save dealer bytes."""
    full, rows, features = (
        count_table_cost(task, **changes)
        for changes in ({}, {"subsample": 0.5}, {"colsample": 0.5})
    )
    # Outcomes are computed for all rows, and the cost of cuts is unchanged.
    assert 0.5 * full.online_bytes < rows.online_bytes < 0.65 * full.online_bytes
    assert features.offline_bytes < full.offline_bytes
    # A regression divides by the root's counts in every table.
    for cost in (rows, features):
        assert cost.rounds <= full.rounds + (2 if task == "regression" else 0)


def test_loss_is_that_of_the_sampled_rows() -> None:
    program, inputs = trial(
        [2, 1, 2], 0, "masked", reveal_loss=True, task="regression", subsample=0.25
    )
    losses: list[float | None] = []

    def recording_program(runtime: Runtime, data: Any) -> None:
        record = losses.append if runtime.index == 0 else None
        train_on_shares(
            runtime,
            program.training_spec,
            program.plan,
            None if data is None else data[0],
            on_state=record and (lambda state: record(state.loss)),
        )

    simulate(recording_program, 3, inputs)
    squares = squared_deviations(inputs)
    assert losses[0] == pytest.approx(squares[program.plan.sample_table(0).rows].mean(), rel=1e-3)
    assert losses[0] != pytest.approx(squares.mean(), rel=1e-2)
    assert losses[1] is not None
    assert losses[1] < squares.mean()


def squared_deviations(inputs: Any) -> FloatArray:
    """Return the squared deviations of the label from its mean, in its unit."""
    label = inputs[-1][0].label
    unit = LabelUnit.from_label(label, label.mean())
    result: FloatArray = unit.normalise(label) ** 2
    return result


@pytest.mark.parametrize("name", ["subsample", "colsample"])
def test_paper_protocol_does_not_support_sampling(name: str) -> None:
    x = columns(2)
    params = Params.parse({"task": "regression", name: 0.5})
    with pytest.raises(ParameterError, match=f"{name}: the protocol paper trains every table on"):
        train_locally(bucketed(x, [1, 1], 32), x[0], params, "paper")


# Residuals of rows outside the samples.


def test_growing_residuals_end_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is lowered for the test, since honest data hardly reach the real one, N/4."""
    program, inputs = trial([2, 1, 2], 0, "masked", task="regression", subsample=0.9, tables=1)
    original = plan_residual_checks

    def limited(share: float) -> Any:
        def bounds(plan: Plan, units: GradientUnits) -> list[tuple[int, int]]:
            return [(drop, int(share * limit)) for drop, limit in original(plan, units)]

        return bounds

    squares = squared_deviations(inputs)[program.plan.sample_table(0).rows]
    actual = float(squares.sum()) / (N / 4)
    assert 0.5 < actual < 0.95
    monkeypatch.setattr(residuals, "plan_residual_checks", limited(actual * 1.02))
    simulate(program, 3, inputs)
    monkeypatch.setattr(residuals, "plan_residual_checks", limited(actual * 0.9))
    with pytest.raises(ResultError, match="errors of the rows drawn for a table, larger than"):
        simulate(program, 3, inputs)


def make_plan(n_samples: int, **changes: Any) -> Plan:
    params = Params.parse({"task": "regression", "subsample": 0.5, **changes})
    return Plan(params, Ownership((0, 1), 1), n_samples)


@pytest.mark.parametrize("n_samples", [4, 60, 1000, 20_000, 10**6, 2 * 10**6])
@pytest.mark.parametrize("subsample", [1e-3, 0.3, 0.8])
def test_residual_checks_do_not_overflow(n_samples: int, subsample: float) -> None:
    """For any residuals: from the largest allowed ones to the largest in their ring."""
    chosen = make_plan(n_samples, subsample=subsample, tables=1)
    scales, n = Scales.from_plan(chosen), chosen.n_sampled
    units = scales.units
    bounds = plan_residual_checks(chosen, units)
    signed = 1 << (units.g_ring.bits - 2)
    # The first bound is on a sum that fits for all residuals; it rejects each single residual
    # that is not signed in its ring.
    drop, limit = bounds[0]
    assert n * (3 * signed / 2**drop + 1) ** 2 < 2**63
    assert (signed / 2**drop - 1) ** 2 > limit
    # Residuals that pass it fit the second bound, in which they are off by up to a unit, too.
    fine, last = bounds[-1]
    root = (np.sqrt(limit) + np.sqrt(n)) * 2.0 ** (drop - fine) + np.sqrt(n)
    assert root**2 < 2**63
    # Residuals that pass that fit the sums; the residuals at the start of training pass.
    allowed = (np.sqrt(last) + np.sqrt(n)) * 2**fine
    assert np.sqrt(n) * allowed <= units.max_gradient_sum < signed
    assert allowed / 2**units.g_bits <= np.sqrt(float(scales.max_score))
    start = np.sqrt(n_samples) / 2 * float(units.label_stretch) * 2**units.g_bits
    for lost, most in bounds:
        assert (start + np.sqrt(n)) / 2**lost + np.sqrt(n) <= np.sqrt(most)


def test_table_limit_prevents_score_overflow() -> None:
    """Scores between two checks of a row do not overflow, up to the reported number of tables."""
    with pytest.raises(ParameterError, match=r"masked can train (\d+) tables at most") as caught:
        GradientUnits.choose_narrow(make_plan(100, tables=10_000, learning_rate=1.0))
    most = int(str(caught.value).split("can train ")[1].split()[0])
    assert most > 500
    units = GradientUnits.choose_narrow(make_plan(100, tables=most, learning_rate=1.0))
    with pytest.raises(ParameterError, match="at most"):
        GradientUnits.choose_narrow(make_plan(100, tables=most + 1, learning_rate=1.0))
    ring = 2.0 ** (units.g_ring.bits - units.g_bits)
    farthest = float(units.label_stretch) * (4 + most * 8)
    assert farthest <= 0.75 * ring
    GradientUnits.choose_narrow(make_plan(10**5, tables=10_000, learning_rate=1.0))
    GradientUnits.choose_narrow(
        make_plan(100, tables=10_000, learning_rate=1.0, task="classification")
    )
