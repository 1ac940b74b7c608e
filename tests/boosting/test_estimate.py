"""What a training will take, said before it starts, is what it takes."""

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
def test_the_estimate_is_exact(protocol: str) -> None:
    params = {"tables": 2, "depth": 2, "buckets": 8}
    experiment = Experiment(
        data="breast-cancer", n_parties=3, protocol=protocol, network="memory", params=params
    )
    told: list[CostEstimate] = []
    report = run(experiment, on_estimate=told.append)[1]
    (found,) = told
    assert found.rounds == report.rounds.total
    assert found.online_bytes == report.bytes.online_total + report.bytes.setup_total
    assert found.offline_bytes == report.bytes.offline_total
    assert found.memory_bytes > 0


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("reveal_loss", [False, True])
def test_the_estimate_of_a_training(task: str, reveal_loss: bool) -> None:
    """Whether the loss is revealed, too, and wherever it goes on from."""
    program, inputs = trial([2, 1, 2], 0, "masked", task=task, tables=3, reveal_loss=reveal_loss)
    steps = measured_steps(play(program, 3, inputs))
    setup, tables = within(steps, "setup"), within(steps, "table")
    assert tables.rounds % 3 == tables.online_bytes % 3 == tables.offline_bytes % 3 == 0
    for done in range(3):
        found = estimate_cost(program.training_spec, program.plan, done)
        left = [
            x // 3 * (3 - done) for x in (tables.rounds, tables.online_bytes, tables.offline_bytes)
        ]
        assert Cost(found.rounds, found.online_bytes, found.offline_bytes) == setup + Cost(*left)
    nothing = estimate_cost(program.training_spec, program.plan, 3)
    assert (nothing.rounds, nothing.online_bytes, nothing.offline_bytes) == (0, 0, 0)


def test_the_time_by_where_the_dealer_is() -> None:
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
    # On a link of its own, the dealer's 50 s go on beside all that, and are the most of it.
    assert replace(own, dealing=0.0) == ahead
    assert own.total == own.dealing == pytest.approx(50 + 0.005 + REFERENCE_SPEED.start)
    # On one link the bytes add up.
    assert shared.transfer_seconds == 60.0
    assert shared.total == pytest.approx(5 + 60 + (1 - OVERLAP_FRACTION) * shared.compute_seconds)
    # A dealer that keeps up costs nothing on a link of its own.
    little = replace(cost, offline_bytes=1_000_000)
    assert (
        estimate_time(little, 0.005, 1e6, dealer="own").total
        == estimate_time(little, 0.005, 1e6).total
    )
