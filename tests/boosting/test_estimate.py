"""What a training will take, said before it starts, is what it takes."""

from __future__ import annotations

import pytest

from privet import Experiment, run
from privet.boosting.estimate import Estimate


@pytest.mark.parametrize("protocol", ["masked", "paper"])
def test_the_estimate_is_exact(protocol: str) -> None:
    params = {"tables": 2, "depth": 2, "buckets": 8}
    experiment = Experiment(data="breast-cancer", n_parties=3, protocol=protocol, params=params)
    told: list[Estimate] = []
    report = run(experiment, on_estimate=told.append)[1]
    (estimate,) = told
    assert estimate.rounds == report.rounds.total
    assert estimate.online == report.bytes.online_total + report.bytes.setup_total
    assert estimate.offline == report.bytes.offline_total
    assert estimate.memory > 0
