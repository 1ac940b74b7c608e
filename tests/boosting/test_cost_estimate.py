"""Cost estimates equal the measured cost of a training run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.boosting.test_federation import trial, within
from tests.runtime.harness import measured_steps, play

from privet import Experiment, run
from privet.boosting.cost_estimate import (
    DEALER_PLACEMENTS,
    OVERLAP_FRACTION,
    REFERENCE_SPEED,
    CostEstimate,
    estimate_cost,
    estimate_time,
)
from privet.runtime.cost import Cost


@pytest.mark.parametrize("protocol", ["masked", "paper"])
def test_estimate_equals_report(protocol: str) -> None:
    params = {"tables": 2, "depth": 2, "buckets": 8}
    experiment = Experiment(
        data="breast-cancer", n_parties=3, protocol=protocol, network="memory", params=params
    )
    estimates: list[CostEstimate] = []
    report = run(experiment, on_estimate=estimates.append)[1]
    (estimate,) = estimates
    assert estimate.rounds == report.rounds.total
    assert estimate.online_bytes == report.bytes.online_total + report.bytes.setup_total
    assert estimate.offline_bytes == report.bytes.offline_total
    assert estimate.memory_bytes > 0


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("reveal_loss", [False, True])
def test_estimate_of_remaining_tables(task: str, reveal_loss: bool) -> None:
    """With and without a revealed loss, and after any number of trained tables."""
    program, inputs = trial([2, 1, 2], 0, "masked", task=task, tables=3, reveal_loss=reveal_loss)
    steps = measured_steps(play(program, 3, inputs))
    setup, tables = within(steps, "setup"), within(steps, "table")
    assert tables.rounds % 3 == tables.online_bytes % 3 == tables.offline_bytes % 3 == 0
    for done in range(3):
        estimate = estimate_cost(program.training_spec, program.plan, done)
        remaining = [
            x // 3 * (3 - done) for x in (tables.rounds, tables.online_bytes, tables.offline_bytes)
        ]
        assert Cost(estimate.rounds, estimate.online_bytes, estimate.offline_bytes) == setup + Cost(
            *remaining
        )
    no_tables = estimate_cost(program.training_spec, program.plan, 3)
    assert (no_tables.rounds, no_tables.online_bytes, no_tables.offline_bytes) == (0, 0, 0)


def test_time_by_dealer_placement() -> None:
    cost = CostEstimate(
        rounds=1000,
        online_bytes=10_000_000,
        offline_bytes=50_000_000,
        memory_bytes=0,
        n_multiplications=10**9,
    )
    ahead, own, shared = (
        estimate_time(cost, 0.005, 1e6, dealer=dealer) for dealer in DEALER_PLACEMENTS
    )
    assert (ahead.delays, ahead.transfer_seconds, ahead.dealing) == (5.0, 10.0, 0.0)
    assert ahead.total == pytest.approx(5 + 10 + (1 - OVERLAP_FRACTION) * ahead.compute_seconds)
    # On its own link, the dealer's 50 s run in parallel and determine the total.
    assert replace(own, dealing=0.0) == ahead
    assert own.total == own.dealing == pytest.approx(50 + 0.005 + REFERENCE_SPEED.start)
    # On one link the bytes add up.
    assert shared.transfer_seconds == 60.0
    assert shared.total == pytest.approx(5 + 60 + (1 - OVERLAP_FRACTION) * shared.compute_seconds)
    # A dealer on its own link costs no time if it is faster than the participants.
    little = replace(cost, offline_bytes=1_000_000)
    assert (
        estimate_time(little, 0.005, 1e6, dealer="own").total
        == estimate_time(little, 0.005, 1e6).total
    )
