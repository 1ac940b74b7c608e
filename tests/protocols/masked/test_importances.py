"""Means of absolute contributions on shares, compared with plaintext."""

from __future__ import annotations

import numpy as np
import pytest

from privet.arithmetic.rings import Z32
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray
from privet.protocols.masked import inference
from privet.protocols.masked.inference import reveal_mean_contributions, sum_absolute_contributions
from privet.runtime.runtime import Runtime
from tests.gates.test_gates import split
from tests.runtime.harness import View, check_count, play

BITS, KEPT = 16, 10


def compute_means(values: np.ndarray, n: int, recipient: int) -> list[View]:
    """Compute means on shares, and check that every step has the cost that a counter reports."""
    parts = split(values.astype(np.int32).view(np.uint32), Z32, n, 0)

    def program(runtime: Runtime, part: np.ndarray | None) -> FloatArray | None:
        shared = Share.unknown(values.shape, Z32) if part is None else Share(part, Z32)
        total = sum_absolute_contributions(runtime, shared)
        return reveal_mean_contributions(runtime, total, values.shape[2], (BITS, KEPT), recipient)

    views = play(program, n, parts)
    check_count(program, views)
    return views


@pytest.mark.parametrize(("n", "rows"), [(2, 1), (2, 100), (3, 64), (4, 333)])
def test_means_match_plaintext(n: int, rows: int) -> None:
    rng = np.random.default_rng(rows)
    values = rng.integers(-(1 << 22), 1 << 22, (4, 2, rows))
    values[0] = 0
    values[1] = rng.integers(-1, 2, (2, rows))
    values[2, 0] = -((1 << 29) - 1)
    views = compute_means(values, n, recipient=1)
    exact = np.abs(values).mean(axis=2) / (1 << BITS)
    for k, view in enumerate(views):
        if k != 1:
            assert view.result is None
            continue
        assert view.result.shape == (4, 2)
        assert np.abs(view.result - exact).max() < 2.0**-KEPT
        # Only multiples of a unit of at least half the agreed resolution are revealed.
        unit = 2.0 ** (rows.bit_length() - 1 - KEPT) / rows
        assert unit > 2.0 ** -(KEPT + 1)
        assert np.array_equal(np.rint(view.result / unit), view.result / unit)
    for view in views:
        (entry,) = view.ledger.entries
        disclosed = (entry.disclosure, entry.recipients, entry.n_elements)
        assert disclosed == ("mean absolute contributions", ("party2",), 8)


def test_rows_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).integers(-(1 << 20), 1 << 20, (2, 1, 50))
    monkeypatch.setattr(inference, "_SIGN_BLOCK_SIZE", 2 * 20)
    views = compute_means(values, 2, recipient=0)
    exact = np.abs(values).mean(axis=2) / (1 << BITS)
    assert np.abs(views[0].result - exact).max() < 2.0**-KEPT
    # Two rounds for each of three blocks, one for the sums, and the reveal.
    assert views[0].meter.sum_traffic().rounds == 3 * 2 + 2
