"""Training with lattice masks: splits, costs, noise, and the choice of masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from privet import DataSet, Experiment, run
from privet.boosting.cost_estimate import CostEstimate, count_training_cost, estimate_cost
from privet.boosting.model import Feature
from privet.boosting.model_part import join_parts
from privet.boosting.simulation import train_federated, train_locally
from privet.boosting.training import TrainingSpec
from privet.errors import ParameterError
from privet.protocols.masked.precision.rows import compute_max_noise
from privet.protocols.masked.precision.scores import Scales
from privet.protocols.masked.protocol import MaskedProtocol
from privet.spec.params import Params
from privet.spec.plan import Ownership, Plan
from privet.transport import frames
from tests.boosting.test_federation import bucketed, columns, label_of, trial
from tests.runtime.harness import check_count, play


def metered(federated: Any) -> tuple[int, int, int]:
    """Return rounds, and bytes between participants and from dealers."""
    meters = federated.program_result.meters
    online = [meter.sum_traffic("online") for meter in meters]
    dealt = sum(meter.sum_traffic("offline").received for meter in meters)
    return online[0].rounds, sum(each.sent for each in online), dealt


@pytest.mark.parametrize("dealers", [1, 3])
@pytest.mark.parametrize("sizes", [[3, 3], [1, 2, 3], [5, 1, 0, 0]])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_splits_match_reference(task: str, sizes: list[int], dealers: int) -> None:
    """With one dealer and with three, and with the estimated rounds and bytes."""
    x = columns(6)
    label = label_of(x, task)
    params = Params(task=task, tables=3, depth=3, buckets=16, learning_rate=0.5, masks="lattice")
    parties = bucketed(x, sizes, 16)
    reference = train_locally(parties, label, params)
    due: list[CostEstimate] = []
    federated = train_federated(
        parties, label, params, "masked", n_dealers=dealers, on_estimate=due.append
    )
    model = join_parts(federated.parts)
    assert (model.feature == reference.feature).all()
    assert (model.bucket == reference.bucket).all()
    unit = label.std() if task == "regression" else 1.0
    assert np.abs(model.leaf_values - reference.leaf_values).max() < unit * 2.0**-12
    assert metered(federated) == (due[0].rounds, due[0].online_bytes, due[0].offline_bytes)
    between = sum(
        meter.sum_traffic("online").sent for meter in federated.program_result.dealer_meters
    )
    assert between == due[0].dealer_bytes
    assert (between > 0) == (dealers == 3)


@pytest.mark.parametrize("dealers", [1, 3])
def test_offline_preprocessing(dealers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Preprocessing files of one dealer and of three, sent in many frames."""
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", 1000)
    x = columns(4)
    label = label_of(x, "regression")
    params = Params(task="regression", tables=2, depth=2, buckets=8, masks="lattice")
    parties = bucketed(x, [2, 2], 8)
    reference = train_locally(parties, label, params)
    federated = train_federated(parties, label, params, "masked", offline=True, n_dealers=dealers)
    model = join_parts(federated.parts)
    assert (model.feature == reference.feature).all()
    assert (model.bucket == reference.bucket).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_weights(classes: int) -> None:
    """In a classification, gradients are masked before they are weighted, and again after."""
    x = columns(4)
    label = np.digitize(x[0] + x[1], np.linspace(-0.5, 0.5, classes - 1)).astype(float)
    weight = np.random.default_rng(2).uniform(0.2, 3.0, len(label))
    params = Params(
        task="classification", classes=classes, tables=2, depth=3, buckets=8, masks="lattice"
    )
    parties = bucketed(x, [2, 2], 8)
    reference = train_locally(parties, label, params, sample_weight=weight)
    due: list[CostEstimate] = []
    federated = train_federated(
        parties, label, params, "masked", sample_weight=weight, on_estimate=due.append
    )
    model = join_parts(federated.parts)
    assert due[0].masks == "lattice"
    assert (model.feature == reference.feature).all()
    assert (model.bucket == reference.bucket).all()
    assert np.abs(model.leaf_values - reference.leaf_values).max() < 2.0**-12
    assert metered(federated) == (due[0].rounds, due[0].online_bytes, due[0].offline_bytes)


SETTINGS: list[dict[str, Any]] = [
    {"min_child_weight": 4.0, "min_gain": 0.1},
    {"colsample": 0.5, "seed": 3},
    {"validation": 0.25},
    {"l2": 20.0, "depth": 1},
    {"l2": 0.05, "depth": 4},
]


@pytest.mark.parametrize(
    ("task", "chosen"),
    [
        ("classification", {"classes": 3}),
        *((task, settings) for task in ("regression", "classification") for settings in SETTINGS),
    ],
    ids=str,
)
def test_other_settings(task: str, chosen: dict[str, Any]) -> None:
    x = columns(5)
    label = label_of(x, task)
    if "classes" in chosen:
        label = np.digitize(x[0] + x[1], [-0.5, 0.5]).astype(float)
    values = {"tables": 2, "depth": 3, "buckets": 8, **chosen}
    params = Params(task=task, masks="lattice", **values)
    parties = bucketed(x, [2, 3], 8)
    reference = train_locally(parties, label, params)
    due: list[CostEstimate] = []
    federated = train_federated(parties, label, params, "masked", on_estimate=due.append)
    model = join_parts(federated.parts)
    assert (model.feature == reference.feature).all()
    assert (model.bucket == reference.bucket).all()
    assert metered(federated) == (due[0].rounds, due[0].online_bytes, due[0].offline_bytes)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_step_costs_match_counter(task: str) -> None:
    """Also with a revealed loss."""
    program, inputs = trial([2, 1, 1], 0, "masked", reveal_loss=True, task=task, masks="lattice")
    assert program.plan.n_lattice_errors == 9
    check_count(program, play(program, 3, inputs))


@pytest.mark.parametrize("name", ["california", "credit"])
def test_paper_datasets(name: str, real_data: Callable[[str], DataSet]) -> None:
    """With thousands of rows, in several blocks; `make bench-masks` compares all tables."""
    real_data(name)  # or skip
    params = {"tables": 2, "depth": 4, "learning_rate": 1.0, "masks": "lattice"}
    report = run(Experiment(data=name, n_parties=3, network="memory", params=params))[1]
    assert report.same_tests == 1.0
    for metric, value in report.metrics.items():
        assert value == pytest.approx(report.plain_metrics[metric], abs=0.001)


# Noise.


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("samples", [100, 16_512, 200_000, 1_000_000])
@pytest.mark.parametrize("errors", [6, 24])
def test_noise_is_bounded(task: str, samples: int, errors: int) -> None:
    """Eight standard deviations of H are at most l2 / 25.

    Sums of g move no more than random rounding moves them with uniform masks.
    """
    params = Params(task=task)
    plan = Plan(params, Ownership((0, 1), 1), samples)
    uniform = Scales.from_plan(plan).units
    units = Scales.from_plan(replace(plan, n_lattice_errors=errors)).units
    variance = 10 * errors * samples * params.depth
    noise = compute_max_noise(replace(plan, n_lattice_errors=errors))
    assert (noise // 8) ** 2 >= variance
    bits, ring = units.row_formats[1]
    assert Fraction(noise, 1 << bits) <= Fraction(1, 25)
    assert ring.bits <= 44
    assert units.g_bits == uniform.g_bits
    g_bits, _ = units.row_formats[0]
    # Random rounding has a variance of a sixth of a squared unit, on average.
    assert 10 * errors / 4.0**g_bits <= 1.01 / 6 / 4.0**uniform.g_bits or g_bits == 26


# The choice of masks.


def federation(task: str, features: int, parties: int, **params: Any) -> TrainingSpec:
    names = tuple(f"party{k}" for k in range(parties))
    chosen = Params(task=task, **params)
    return TrainingSpec(
        protocol="masked",
        params=chosen,
        parties=names,
        features=tuple(Feature(str(j), names[j % parties]) for j in range(features)),
        active=0,
        prediction_bits=chosen.objective.prediction_bits,
    )


@pytest.mark.parametrize(
    ("task", "rows", "features", "parties", "settings"),
    [
        ("regression", 16_512, 8, 4, {"tables": 50, "depth": 5}),
        ("classification", 24_000, 23, 4, {"tables": 10, "depth": 4}),
        ("classification", 455, 30, 4, {"tables": 10, "depth": 3}),
        ("regression", 10_000, 1000, 4, {"tables": 1, "depth": 2}),
    ],
)
def test_auto_chooses_uniform_masks_for_small_runs(
    task: str, rows: int, features: int, parties: int, settings: dict[str, Any]
) -> None:
    """California, Credit and Breast Cancer have the costs of uniform masks."""
    auto, uniform = (
        federation(task, features, parties, masks=masks, **settings)
        for masks in ("auto", "uniform")
    )
    assert auto.make_plan(rows).n_lattice_errors == 0
    assert estimate_cost(auto, auto.make_plan(rows)) == estimate_cost(
        uniform, uniform.make_plan(rows)
    )


def test_auto_chooses_lattice_masks_for_many_rows() -> None:
    """They are chosen if they save messages, or a matrix that does not fit memory."""
    assert federation("regression", 20, 2).make_plan(200_000).n_lattice_errors == 6
    chosen = federation("classification", 100, 2)
    plan = chosen.make_plan(1_000_000)
    assert plan.n_lattice_errors == 6
    setup, _ = count_training_cost(chosen, plan)
    forced = federation("classification", 100, 2, masks="uniform")
    before, _ = count_training_cost(forced, forced.make_plan(1_000_000))
    assert 300 * setup.online_bytes < before.online_bytes
    # With kept indicators a training run and the next one have the same masks.
    assert chosen.make_plan(1_000_000, cached_owners=(0, 1)).n_lattice_errors == 6


def test_subsample_is_rejected() -> None:
    forced = federation("regression", 100, 2, masks="lattice", subsample=0.5)
    with pytest.raises(ParameterError, match=r"masks: .* no lattice masks with subsample"):
        forced.make_plan(100_000)
    assert federation("regression", 100, 2, subsample=0.5).make_plan(100_000).n_lattice_errors == 0


def test_weights_of_a_regression_are_rejected() -> None:
    weighted = replace(federation("regression", 100, 2, masks="lattice"), is_weighted=True)
    with pytest.raises(ParameterError, match="no lattice masks with a regression's weights: leave"):
        weighted.make_plan(100_000)
    assert (
        replace(weighted, params=Params(task="regression")).make_plan(100_000).n_lattice_errors == 0
    )


def test_paper_rejects_lattice_masks() -> None:
    other = replace(federation("regression", 2, 2, masks="lattice"), protocol="paper")
    with pytest.raises(ParameterError, match="masks: PaperProtocol has uniform ones alone"):
        other.make_plan(100)


def test_memory_does_not_grow_with_cuts_times_rows() -> None:
    wide = federation("classification", 100, 2, masks="lattice").make_plan(1_000_000)
    narrow = federation("classification", 10, 2, masks="lattice").make_plan(1_000_000)
    assert MaskedProtocol.estimate_memory(wide) - MaskedProtocol.estimate_memory(narrow) < 500e6
