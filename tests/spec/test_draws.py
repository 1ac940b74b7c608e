"""What each table is trained on: drawn by everybody alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privet.spec.params import Params
from privet.spec.sampling import count_sampled_rows, sample_table


def params(**changes: Any) -> Params:
    return Params.parse({"task": "regression", **changes})


def test_everything_unless_said_otherwise() -> None:
    rows, features = sample_table(params(), 10, (3, 0, 3), 4)
    assert np.arange(10)[rows].tolist() == list(range(10))
    assert np.arange(3)[features].tolist() == [0, 1, 2]


def test_what_is_drawn_stays_the_same() -> None:
    """Literally: a model that was trained before can be trained again, on any machine."""
    chosen = params(subsample=0.4, colsample=0.5, seed=7)
    rows, features = sample_table(chosen, 10, (7,) * 6, 0)
    assert np.arange(10)[rows].tolist() == [1, 3, 5, 8]
    assert np.arange(6)[features].tolist() == [1, 2, 4]


@pytest.mark.parametrize(
    ("share", "n", "count"),
    [(0.5, 9, 4), (0.5, 10, 5), (0.01, 100, 2), (0.999, 3, 3), (0.34, 5, 2)],
)
def test_how_many_rows(share: float, n: int, count: int) -> None:
    chosen = params(subsample=share)
    assert count_sampled_rows(chosen, n) == count
    for table in range(20):
        rows = np.arange(n)[sample_table(chosen, n, (3,), table).rows]
        assert len(rows) == count
        assert (np.diff(rows) > 0).all()


def test_features_without_a_cut_are_not_drawn() -> None:
    cuts = (0, 7, 0, 3, 1, 0)
    found = [
        np.arange(6)[sample_table(params(colsample=0.5), 9, cuts, k).features] for k in range(40)
    ]
    assert {len(features) for features in found} == {2}
    assert {j for features in found for j in features.tolist()} == {1, 3, 4}
    (alone,) = np.arange(6)[sample_table(params(colsample=0.01), 9, (0, 0, 0, 0, 3, 0), 5).features]
    assert alone == 4


def test_every_table_and_seed_draws_anew() -> None:
    """All rows about as often; tables, seeds, rows and features have nothing to do with another."""
    n, tables = 40, 400
    counts = np.zeros(n)
    seen = set()
    for table in range(tables):
        rows, features = sample_table(params(subsample=0.5, colsample=0.5), n, (3,) * n, table)
        counts[rows] += 1
        seen |= {tuple(np.arange(n)[rows]), tuple(np.arange(n)[features])}
    other = sample_table(params(subsample=0.5, seed=1), n, (3,) * n, 0).rows
    seen.add(tuple(np.arange(n)[other]))
    assert len(seen) == 2 * tables + 1
    # Six standard deviations of a binomial.
    assert np.abs(counts - tables / 2).max() < 6 * np.sqrt(tables / 4)
