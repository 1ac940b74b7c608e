"""Training on weighted samples, in plaintext and on shares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privet import DataError, ParameterError, Params
from privet.arrays import FloatArray
from privet.boosting.binning import BucketedColumns, bucket_columns
from privet.boosting.cost_estimate import CostEstimate, estimate_cost
from privet.boosting.model import Feature
from privet.boosting.model_part import join_parts
from privet.boosting.simulation import train_federated, train_locally
from privet.boosting.training import TrainingData, TrainingSpec
from privet.boosting.training import train as train_on_shares
from privet.protocols.masked.precision.rows import GradientUnits
from privet.protocols.masked.protocol import MaskedProtocol
from privet.runtime.local.launcher import simulate
from privet.runtime.runtime import Runtime
from privet.spec.plan import Ownership, Plan
from privet.spec.sampling import normalise_weights

N = 300
TASKS = [("regression", 2), ("classification", 2), ("classification", 3)]


def table(task: str, classes: int, seed: int = 0) -> tuple[list[BucketedColumns], FloatArray]:
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(4, N))
    score = columns[0] + columns[1] * columns[2] + 0.5 * rng.normal(size=N)
    label = 100 * score + 40
    if task == "classification":
        label = np.searchsorted(np.quantile(score, [0.4, 0.8][: classes - 1]), score).astype(float)
    parties = [
        bucket_columns(name, [f"x{k}", f"y{k}"], columns[2 * k : 2 * k + 2], 8)
        for k, name in enumerate(("bank", "shop"))
    ]
    return parties, label


def weights(kind: str, label: FloatArray) -> FloatArray:
    rng = np.random.default_rng(1)
    if kind == "by class":
        return np.where(label >= np.median(label), 9.0, 1.0)
    if kind == "unequal":
        found = np.where(rng.random(N) < 0.03, 100.0, 0.1)
        found[::7] = 0.0
        return found
    return rng.exponential(size=N)


@pytest.mark.parametrize(("task", "classes"), TASKS)
@pytest.mark.parametrize("kind", ["any", "by class", "unequal"])
def test_splits_match_reference(task: str, classes: int, kind: str) -> None:
    parties, label = table(task, classes)
    params = Params(task=task, classes=classes, tables=3, depth=3, buckets=8)
    weight = weights(kind, label)
    plain = train_locally(parties, label, params, sample_weight=weight)
    model = join_parts(
        train_federated(parties, label, params, "masked", sample_weight=weight).parts
    )
    assert (model.feature == plain.feature).all()
    assert (model.bucket == plain.bucket).all()
    unit = 1024.0 if task == "regression" else 1.0
    assert np.abs(model.leaf_values - plain.leaf_values).max() < 2.0**-15 * unit
    assert model.base_score == pytest.approx(plain.base_score, abs=2.0**-16)
    unweighted = train_locally(parties, label, params)
    assert not np.array_equal(unweighted.leaf_values, plain.leaf_values)


@pytest.mark.parametrize(("task", "classes"), TASKS)
def test_weight_equals_number_of_copies(task: str, classes: int) -> None:
    """Except for l2: normalised weights add up to the number of rows."""
    parties, label = table(task, classes)
    copies = np.random.default_rng(2).integers(1, 4, size=N)
    params = Params(task=task, classes=classes, tables=3, depth=3, buckets=8)
    rows = np.repeat(np.arange(N), copies)
    repeated = [replace(party, buckets=party.buckets[:, rows]) for party in parties]
    expected = train_locally(repeated, label[rows], params)
    adjusted = params.model_copy(update={"l2": params.l2 / copies.mean()})
    found = train_locally(parties, label, adjusted, sample_weight=copies.astype(float))
    assert (found.feature == expected.feature).all()
    assert found.leaf_values == pytest.approx(expected.leaf_values, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("task", "classes"), TASKS)
def test_cost_is_as_estimated(task: str, classes: int) -> None:
    """Weights cost a round for each table and one before; the cost is as estimated."""
    parties, label = table(task, classes)
    params = Params(task=task, classes=classes, tables=2, depth=2, buckets=8)
    rounds = []
    for weight in (None, weights("any", label)):
        estimates: list[CostEstimate] = []
        federated = train_federated(
            parties, label, params, "masked", sample_weight=weight, on_estimate=estimates.append
        )
        (cost,) = estimates
        meters = federated.program_result.meters
        steps = ("setup", "table")
        assert cost.rounds == sum(meters[0].sum_traffic("online", step).rounds for step in steps)
        sent = [meter.sum_traffic("online", step).sent for meter in meters for step in steps]
        dealt = [meter.sum_traffic("offline", step).received for meter in meters for step in steps]
        assert (cost.online_bytes, cost.offline_bytes) == (sum(sent), sum(dealt))
        rounds.append(cost.rounds)
    assert rounds[1] - rounds[0] == params.tables + 1


@pytest.mark.parametrize(("task", "classes"), TASKS)
def test_the_loss_is_weighted(task: str, classes: int) -> None:
    parties, label = table(task, classes)
    params = Params(task=task, classes=classes, tables=2, depth=2, buckets=8)
    weight = normalise_weights(weights("any", label))
    training_spec = TrainingSpec(
        protocol="masked",
        params=params,
        parties=("bank", "shop"),
        features=tuple(Feature(name, party.owner) for party in parties for name in party.names),
        active=1,
        prediction_bits=12,
        is_weighted=True,
        reveal_loss=True,
    )
    assert estimate_cost(training_spec, training_spec.make_plan(N)).rounds > 0

    def program(runtime: Runtime, data: TrainingData | None) -> tuple[list[float | None], float]:
        losses: list[float | None] = []
        plan = training_spec.make_plan(N)
        part = train_on_shares(
            runtime, training_spec, plan, data, on_state=lambda state: losses.append(state.loss)
        ).part
        scale = 1.0 if part is None or part.label_unit is None else part.label_unit.scale
        return losses, scale * float(MaskedProtocol.compute_label_stretch(plan))

    data = [TrainingData(parties[0], None), TrainingData(parties[1], label, weight)]
    results = simulate(program, 2, data).results
    model = train_locally(
        parties, label, params.model_copy(update={"tables": 1}), sample_weight=weight
    )
    target = params.objective.make_targets(label)
    buckets = np.concatenate([party.buckets for party in parties])
    leaf = sum(
        (buckets[model.feature[0, level]] > model.bucket[0, level]).astype(int) << (1 - level)
        for level in range(2)
    )
    expected = []
    for score in (
        model.base_score[:, None] + 0 * target,
        model.base_score[:, None] + model.leaf_values[0][:, leaf],
    ):
        g, _ = params.objective.compute_gradients(score, target)
        expected.append(float(np.average((g**2).sum(axis=0), weights=weight)))
    scale = results[1][1]
    for losses, _ in results:
        assert [loss * scale**2 for loss in losses] == pytest.approx(
            expected, rel=1e-3, abs=2.0**-14 * scale**2
        )


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("samples", [2, 300, 2049, 16_512, 32_768, 100_000, 1_000_000])
def test_gradients_have_the_widest_ring(task: str, samples: int) -> None:
    """Indicators are opened over it, and bits are multiplied with gradients and Hessians."""
    params = Params(task=task, depth=5)
    units = GradientUnits.choose_narrow(Plan(params, Ownership((0,), 0), samples, is_weighted=True))
    assert units.h_ring.bits <= units.g_ring.bits
    assert units.max_hessian_sum < 1 << (units.h_ring.bits - 1)


def test_weights_of_many_rows() -> None:
    """With the weight precision for few rows, the sums would overflow their ring."""
    rng = np.random.default_rng(3)
    columns = rng.normal(size=(4, 5000))
    label = columns[0] + columns[1] * columns[2] + 0.5 * rng.normal(size=5000)
    parties = [
        bucket_columns(name, [f"x{k}", f"y{k}"], columns[2 * k : 2 * k + 2], 8)
        for k, name in enumerate(("bank", "shop"))
    ]
    params = Params(task="regression", tables=2, depth=3, buckets=8)
    weight = rng.exponential(size=5000)
    plain = train_locally(parties, label, params, sample_weight=weight)
    model = join_parts(
        train_federated(parties, label, params, "masked", sample_weight=weight).parts
    )
    assert (model.feature == plain.feature).all()
    assert (model.bucket == plain.bucket).all()
    assert np.abs(model.leaf_values - plain.leaf_values).max() < 2.0**-15


def test_invalid_weights_are_rejected_before_training() -> None:
    parties, label = table("classification", 2)
    params = Params(task="classification", tables=1, depth=1, buckets=8)
    with pytest.raises(DataError, match="weights for 300 samples"):
        train_locally(parties, label, params, sample_weight=np.ones(3))
    with pytest.raises(DataError, match="all 300 weights are zero"):
        train_federated(parties, label, params, "masked", sample_weight=np.zeros(N))
    with pytest.raises(ParameterError, match="weighted: the protocol paper has no weights"):
        train_federated(parties, label, params, "paper", sample_weight=np.ones(N))
