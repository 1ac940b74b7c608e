"""The sampled rows and features of each table, which all roles draw alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privet.spec.params import Params
from privet.spec.sampling import count_sampled_rows, sample_table


def params(**changes: Any) -> Params:
    return Params.parse({"task": "regression", **changes})


def test_defaults_select_all_rows_and_features() -> None:
    rows, features = sample_table(params(), 10, (3, 0, 3), 4)
    assert np.arange(10)[rows].tolist() == list(range(10))
    assert np.arange(3)[features].tolist() == [0, 1, 2]


def test_samples_are_reproducible() -> None:
    """Fixed results, so that a training run can be repeated on any machine."""
    chosen = params(subsample=0.4, colsample=0.5, seed=7)
    rows, features = sample_table(chosen, 10, (7,) * 6, 0)
    assert np.arange(10)[rows].tolist() == [1, 3, 5, 8]
    assert np.arange(6)[features].tolist() == [1, 2, 4]


@pytest.mark.parametrize(
    ("fraction", "n", "count"),
    [(0.5, 9, 4), (0.5, 10, 5), (0.01, 100, 2), (0.999, 3, 3), (0.34, 5, 2)],
)
def test_sampled_row_count(fraction: float, n: int, count: int) -> None:
    chosen = params(subsample=fraction)
    assert count_sampled_rows(chosen, n) == count
    for table in range(20):
        rows = np.arange(n)[sample_table(chosen, n, (3,), table).rows]
        assert len(rows) == count
        assert (np.diff(rows) > 0).all()


def test_features_without_cuts_are_not_sampled() -> None:
    cuts = (0, 7, 0, 3, 1, 0)
    samples = [
        np.arange(6)[sample_table(params(colsample=0.5), 9, cuts, k).features] for k in range(40)
    ]
    assert {len(features) for features in samples} == {2}
    assert {j for features in samples for j in features.tolist()} == {1, 3, 4}
    single = np.arange(6)[sample_table(params(colsample=0.01), 9, (0, 0, 0, 0, 3, 0), 5).features]
    assert single.tolist() == [4]


def test_tables_and_seeds_draw_independent_samples() -> None:
    """All rows are drawn about equally often; tables, seeds, rows and features are independent."""
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
