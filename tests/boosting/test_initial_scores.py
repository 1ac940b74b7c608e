"""Initial scores, which only the label holder knows."""

from __future__ import annotations

import numpy as np
import pytest

from privet.boosting.binning import bucket_columns
from privet.boosting.model_part import join_parts
from privet.boosting.simulation import train_federated, train_locally
from privet.spec.params import Params

N = 3000


@pytest.mark.parametrize("tables", [1, 5, 20])
def test_mean_prediction_matches_rare_positives(tables: int) -> None:
    rng = np.random.default_rng(1)
    columns = rng.normal(size=(4, N))
    label = np.zeros(N)
    label[np.argsort(columns[0] + 2 * rng.normal(size=N))[-N // 50 :]] = 1.0  # 2 percent
    parties = [
        bucket_columns(name, ["x", "y"], part, 16)
        for name, part in (("bank", columns[:2]), ("shop", columns[2:]))
    ]
    params = Params(task="classification", tables=tables, depth=3, buckets=16)
    plain = train_locally(parties, label, params)
    federated = train_federated(
        parties, label, params, "masked", new_columns=[columns[:2], columns[2:]]
    )
    assert federated.predictions is not None
    for mean in (plain.predict(columns).mean(), federated.predictions.mean()):
        assert mean == pytest.approx(0.02, rel=0.1)
    assert (join_parts(federated.parts).feature == plain.feature).all()
    assert [part.label_unit is None for part in federated.parts] == [True, False]


def test_initial_scores_cost_and_reveal_nothing() -> None:
    """Training with other initial scores sends the same bytes and has the same disclosures."""
    rng = np.random.default_rng(2)
    columns = rng.normal(size=(2, 200))
    parties = [bucket_columns(n, ["x"], columns[[k]], 8) for k, n in enumerate(("bank", "shop"))]
    params = Params(task="classification", tables=2, depth=2, buckets=8)
    results = []
    for base_score in (None, 0.0):
        label = (columns[0] > 1.0).astype(float)
        changed = params.model_copy(update={"base_score": base_score})
        outcome = train_federated(parties, label, changed, "masked").program_result
        disclosures = {(entry.disclosure, entry.recipients) for entry in outcome.ledgers[0].entries}
        results.append(
            (
                disclosures,
                outcome.meters[0].sum_traffic().sent,
                outcome.meters[0].sum_traffic().rounds,
            )
        )
    assert results[0] == results[1]
