"""Training with disclosed cut counts: the same splits, for fewer bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privet import DataError, ParameterError, Params
from privet.boosting.binning import BucketedColumns, bucket_columns
from privet.boosting.cost_estimate import CostEstimate, estimate_cost
from privet.boosting.model import Feature
from privet.boosting.model_part import join_parts
from privet.boosting.simulation import train_federated, train_locally
from privet.boosting.training import TrainingSpec, resolve_cut_disclosure
from privet.spec.plan import CutDisclosure

N, BUCKETS = 240, 10
DISCLOSURES: tuple[CutDisclosure, ...] = ("exact", "rounded", "hidden")
CUT_COUNTS = (9, 1, 4, 0, 2)


def table(task: str) -> tuple[list[BucketedColumns], np.ndarray]:
    """Return five columns of two parties; one is constant, one has missing values."""
    rng = np.random.default_rng(5)
    columns = np.stack(
        [
            rng.normal(size=N),
            rng.integers(0, 2, N),
            rng.integers(0, 5, N),
            np.full(N, 7.0),
            np.where(rng.random(N) < 0.3, np.nan, rng.integers(0, 2, N)),
        ]
    )
    score = columns[0] + columns[1] - 0.5 * columns[2] + np.nan_to_num(columns[4], nan=2.0)
    score += 0.2 * rng.normal(size=N)
    label = score if task == "regression" else (score > np.median(score)).astype(float)
    parties = [
        bucket_columns("bank", ["a", "b"], columns[:2], BUCKETS),
        bucket_columns("shop", ["c", "d", "e"], columns[2:], BUCKETS),
    ]
    return parties, label


def test_cut_counts_of_columns() -> None:
    parties, _ = table("regression")
    assert tuple(n for party in parties for n in party.cut_counts) == CUT_COUNTS


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_splits_match_reference_with_every_disclosure(task: str) -> None:
    parties, label = table(task)
    params = Params(task=task, tables=5, depth=3, buckets=BUCKETS, learning_rate=0.8)
    sent = []
    for cuts in DISCLOSURES:
        estimates: list[CostEstimate] = []
        found = train_federated(
            parties, label, params, "masked", cut_disclosure=cuts, on_estimate=estimates.append
        )
        plain, model = (
            train_locally(parties, label, params, cut_disclosure=cuts),
            join_parts(found.parts),
        )
        assert np.array_equal(model.feature, plain.feature)
        assert np.array_equal(model.bucket, plain.bucket)
        np.testing.assert_allclose(model.leaf_values, plain.leaf_values, atol=1e-4)
        meters = found.program_result.meters
        online = [meter.sum_traffic("online") for meter in meters]
        assert {traffic.rounds for traffic in online} == {estimates[0].rounds}
        assert sum(traffic.sent for traffic in online) == estimates[0].online_bytes
        offline = sum(meter.sum_traffic("offline").received for meter in meters)
        assert offline == estimates[0].offline_bytes
        sent.append(estimates[0].online_bytes)
        for ledger in found.program_result.ledgers:
            disclosed = [
                (e.recipients, e.n_elements)
                for e in ledger.entries
                if e.disclosure == "numbers of cuts"
            ]
            assert disclosed == ([] if cuts == "hidden" else [(("bank", "shop"), 5)])
    assert sent[0] < sent[1] < sent[2]


@pytest.mark.parametrize("cuts", DISCLOSURES)
def test_level_without_a_split(cuts: CutDisclosure) -> None:
    """With strong regularisation no split gains, so a cut past the last threshold is best.

    Whether such a cut exists depends on the disclosed cut counts.
    """
    rng = np.random.default_rng(0)
    columns = rng.integers(0, 3, size=(2, N)).astype(float)  # two cuts, disclosed as three
    label = 5.0 + 0.01 * rng.normal(size=N)
    parties = [bucket_columns(name, ["a"], x[None], 8) for name, x in zip("ab", columns)]  # noqa: B905
    params = Params(task="regression", tables=1, depth=2, buckets=8, l2=50.0, base_score=0.0)
    plain = train_locally(parties, label, params, cut_disclosure=cuts)
    model = train_locally(parties, label, params, "masked", cut_disclosure=cuts)
    assert np.array_equal(model.feature, plain.feature)
    assert np.array_equal(np.isinf(model.threshold), np.isinf(plain.threshold))
    assert np.isinf(plain.threshold).any() == (cuts != "exact")


def test_single_cut() -> None:
    """With a single candidate there is no comparison, but still a table."""
    x = np.tile([0.0, 1.0], N // 2)
    parties = [
        bucket_columns("bank", ["a"], np.ones((1, N)), 4),
        bucket_columns("shop", ["b"], x[None], 4),
    ]
    params = Params(task="regression", tables=2, depth=1, buckets=4)
    model = train_locally(parties, 3.0 * x, params, "masked", cut_disclosure="exact")
    assert model.feature.tolist() == [[1], [1]]
    assert model.threshold.tolist() == [[0.5], [0.5]]


@pytest.mark.parametrize("protocol", ["masked", "plain"])
def test_only_constant_columns_are_rejected(protocol: str) -> None:
    parties = [bucket_columns(name, ["a"], np.ones((1, 6)), 4) for name in ("bank", "shop")]
    params = Params(task="regression", tables=1, depth=1, buckets=4)
    label = np.arange(6.0)
    with pytest.raises(DataError, match="every column of all participants is constant"):
        train_locally(parties, label, params, protocol, cut_disclosure="exact")
    model = train_locally(parties, label, params, protocol)  # rounded counts, which are never 0
    assert model.predict(np.ones((2, 1))) == pytest.approx([2.5], abs=1e-4)


def test_paper_protocol_discloses_no_cut_counts() -> None:
    assert (
        resolve_cut_disclosure("paper", None)
        == resolve_cut_disclosure("paper", "hidden")
        == "hidden"
    )
    assert resolve_cut_disclosure("masked", None) == "rounded"
    parties, label = table("regression")
    params = Params(task="regression", tables=1, depth=1, buckets=BUCKETS)
    with pytest.raises(ParameterError, match="cuts: the protocol paper has hidden alone"):
        train_locally(parties, label, params, "paper", cut_disclosure="exact")
    found = train_federated(parties, label, params, "paper")
    assert all(e.disclosure != "numbers of cuts" for e in found.program_result.ledgers[0].entries)


def test_estimate_with_all_cuts_is_an_upper_bound() -> None:
    """`privet estimate` assumes all cuts if cut counts are unknown."""
    rng = np.random.default_rng(1)
    params = Params(task="classification", tables=1, depth=4)
    for n_features in (2, 7, 30):
        training_spec = TrainingSpec(
            protocol="masked",
            params=params,
            parties=("a", "b", "c"),
            features=tuple(Feature(str(j), "abc"[j % 3]) for j in range(n_features)),
            active=2,
            prediction_bits=10,
        )
        upper_bound = estimate_cost(training_spec, training_spec.make_plan(5000))
        for _ in range(6):
            counts = tuple(rng.choice([1, 3, 7, 15, 31], size=n_features).tolist())
            fewer = replace(training_spec, announced_cut_counts=counts)
            found = estimate_cost(fewer, fewer.make_plan(5000))
            assert found.rounds <= upper_bound.rounds
            assert found.online_bytes <= upper_bound.online_bytes
            assert found.offline_bytes <= upper_bound.offline_bytes
            assert found.memory_bytes <= upper_bound.memory_bytes
