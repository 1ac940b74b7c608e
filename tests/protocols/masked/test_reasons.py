"""Contributions derived and looked up on shares, against the same in the clear."""

from __future__ import annotations

import numpy as np
import pytest

from privet.arithmetic.rings import Z32, Z64, signed
from privet.arithmetic.shapley import (
    compute_coalition_weights,
    compute_shapley_of_elements,
    compute_shapley_of_reals,
)
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray, IndexArray
from privet.boosting.explanation import compute_partial_means
from privet.protocols.masked import inference
from privet.protocols.masked.protocol import MaskedProtocol
from privet.protocols.protocol import RIGHT_FRACTION_BITS, AppliedSplits, SplitGroups
from privet.runtime.runtime import Runtime
from tests.gates.test_masked import on_shares

TABLES, OUTPUTS = 5, 2
LARGEST = (1 << 24) - 1


def derived(
    n: int, depth: int, largest: int = LARGEST
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, int]:
    """Return contributions and means on shares and in the clear, and the rounds of deriving."""
    rng = np.random.default_rng(depth)
    leaves = rng.integers(-largest, largest, (TABLES, OUTPUTS, 1 << depth), endpoint=True)
    leaves[0] = np.where(np.arange(1 << depth) % 2, largest, -largest)
    chances = rng.integers(0, 1 << RIGHT_FRACTION_BITS, (TABLES, (1 << depth) - 1), endpoint=True)
    chances[1] = 0
    chances[2] = 1 << RIGHT_FRACTION_BITS
    features = features_of(depth)

    def body(runtime: Runtime, values: Share, likely: Share) -> list[Share]:
        known = None if runtime.index < 0 else features
        found = MaskedProtocol.derive_contributions(runtime, values, likely, known)
        return [found.contributions, found.means]

    inputs = [(leaves.astype(np.uint32), Z32), (chances.astype(np.uint32), Z32)]
    (contributions, means), cost, _ = on_shares(body, inputs, n)
    exact = compute_partial_means(leaves.astype(float), chances / (1 << RIGHT_FRACTION_BITS))
    expected = [
        compute_shapley_of_reals(own, tests) for own, tests in zip(exact, features, strict=True)
    ]
    return (
        signed(contributions).astype(float),
        signed(means).astype(float),
        np.array(expected),
        exact[:, :, -1],
        cost.rounds,
    )


def features_of(depth: int) -> IndexArray:
    """Return features, among which some tables test one again: next to it, or apart."""
    features = np.tile(np.arange(depth), (TABLES, 1))
    if depth > 1:
        features[1, 1] = features[1, 0]
        features[2, -1] = features[2, 0]
        features[3] = 7
    return features


@pytest.mark.parametrize(("n", "depth"), [(2, 1), (2, 3), (2, 6), (3, 4), (5, 2)])
@pytest.mark.parametrize("largest", [LARGEST, 1 << 16])
def test_contributions_are_those_in_the_clear(n: int, depth: int, largest: int) -> None:
    """To what rounding does: of each level, of Shapley's weights, and to leaf values' units."""
    found, means, expected, mean, rounds = derived(n, depth, largest)
    level = (1 + n / 8) / (1 << inference.EXTRA_MEAN_BITS)
    weight = (largest << depth) / (1 << inference.SHAPLEY_WEIGHT_BITS)
    assert np.abs(means - mean).max() <= depth * level + n / 2
    assert np.abs(found - expected).max() <= 2 * depth * level + weight + n / 2
    if n == 2:
        assert rounds == 1 + depth


def test_tables_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tables at a time: the same contributions, in three times the rounds."""
    whole, *_, once = derived(2, 3, 1 << 16)
    monkeypatch.setattr(inference, "_BLOCK", 2 * OUTPUTS * 27)
    found, *_, rounds = derived(2, 3, 1 << 16)
    assert np.abs(found - whole).max() <= 4
    assert rounds == 3 * once


@pytest.mark.parametrize("n", [2, 3])
def test_contributions_are_looked_up_beside_leaf_values(n: int) -> None:
    rng = np.random.default_rng(n)
    depth, count = 3, 40
    shape = (TABLES, depth, count)
    leaves = rng.integers(-99, 99, (TABLES, OUTPUTS, 1 << depth))
    added = rng.integers(-99, 99, (TABLES, OUTPUTS, depth, 1 << depth))
    fails = rng.integers(0, 2, shape).astype(np.uint8)
    owners, groups = rng.integers(0, n, shape[:2]), rng.integers(0, 4, shape[:2])

    def body(runtime: Runtime, values: Share, contributions: Share) -> list[Share]:
        own, of_tests = None, None
        if runtime.index >= 0:
            own, of_tests = fails * (owners == runtime.index)[:, :, None], groups
        tests = AppliedSplits(shape, None if own is None else owners, own)
        found = MaskedProtocol.infer_with_contributions(
            runtime, tests, values, contributions, SplitGroups(5, of_tests)
        )
        return [*found, MaskedProtocol.infer(runtime, tests, values)]

    inputs = [(leaves.astype(np.uint32), Z32), (added.astype(np.uint32), Z32)]
    (scores, contributions, plain), cost, _ = on_shares(body, inputs, n)
    assert np.array_equal(scores, plain)
    assert cost.rounds == 2
    expected = np.zeros((5, OUTPUTS, count))
    leaf = fails[:, 0] * 4 + fails[:, 1] * 2 + fails[:, 2]
    for table, level in np.ndindex(TABLES, depth):
        expected[groups[table, level]] += added[table, :, level, leaf[table]].T
    assert np.array_equal(signed(contributions), expected)
    assert not contributions[4].any()  # what nothing tests contributes nothing


def test_weights_add_up() -> None:
    """Over all coalitions of the others: to one for each player."""
    for players in range(1, 11):
        subsets = np.array([1])
        for _ in range(players - 1):
            subsets = np.convolve(subsets, [1, 1])
        assert (
            sum(
                w * int(c) for w, c in zip(compute_coalition_weights(players), subsets, strict=True)
            )
            == 1
        )


def test_ten_levels_fit() -> None:
    """The largest combination of the largest means is below half of what is left of a word."""
    means = np.where(np.arange(3**10) % 2, LARGEST, -LARGEST) << inference.EXTRA_MEAN_BITS
    found = compute_shapley_of_elements(
        means.astype(np.uint64), range(10), Z64, inference.SHAPLEY_WEIGHT_BITS
    )
    exact = (
        compute_shapley_of_reals(means.astype(float), range(10))
        * 2.0**inference.SHAPLEY_WEIGHT_BITS
    )
    assert np.abs(exact).max() < 2.0**62
    assert np.abs(signed(found) - exact).max() < 2.0**40
