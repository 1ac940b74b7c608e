"""Contributions that are derived and looked up on shares, compared with plaintext."""

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


def derive(
    n: int, depth: int, largest: int = LARGEST
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, int]:
    """Return contributions and means, on shares and in plaintext, and the number of rounds."""
    rng = np.random.default_rng(depth)
    leaves = rng.integers(-largest, largest, (TABLES, OUTPUTS, 1 << depth), endpoint=True)
    leaves[0] = np.where(np.arange(1 << depth) % 2, largest, -largest)
    right_fractions = rng.integers(
        0, 1 << RIGHT_FRACTION_BITS, (TABLES, (1 << depth) - 1), endpoint=True
    )
    right_fractions[1] = 0
    right_fractions[2] = 1 << RIGHT_FRACTION_BITS
    features = features_of(depth)

    def body(runtime: Runtime, values: Share, fractions: Share) -> list[Share]:
        known = None if runtime.index < 0 else features
        shared = MaskedProtocol.derive_contributions(runtime, values, fractions, known)
        return [shared.contributions, shared.means]

    inputs = [(leaves.astype(np.uint32), Z32), (right_fractions.astype(np.uint32), Z32)]
    (contributions, means), cost, _ = on_shares(body, inputs, n)
    exact = compute_partial_means(
        leaves.astype(float), right_fractions / (1 << RIGHT_FRACTION_BITS)
    )
    expected = [
        compute_shapley_of_reals(means_of_table, features_of_table)
        for means_of_table, features_of_table in zip(exact, features, strict=True)
    ]
    return (
        signed(contributions).astype(float),
        signed(means).astype(float),
        np.array(expected),
        exact[:, :, -1],
        cost.rounds,
    )


def features_of(depth: int) -> IndexArray:
    """Return features of which some tables use one twice: in adjacent levels, or apart."""
    features = np.tile(np.arange(depth), (TABLES, 1))
    if depth > 1:
        features[1, 1] = features[1, 0]
        features[2, -1] = features[2, 0]
        features[3] = 7
    return features


@pytest.mark.parametrize(("n", "depth"), [(2, 1), (2, 3), (2, 6), (3, 4), (5, 2)])
@pytest.mark.parametrize("largest", [LARGEST, 1 << 16])
def test_contributions_match_plaintext(n: int, depth: int, largest: int) -> None:
    """They agree up to rounding of each level, of Shapley weights, and to units of leaf values."""
    found, means, expected, mean, rounds = derive(n, depth, largest)
    level = (1 + n / 8) / (1 << inference.EXTRA_MEAN_BITS)
    weight = (largest << depth) / (1 << inference.SHAPLEY_WEIGHT_BITS)
    assert np.abs(means - mean).max() <= depth * level + n / 2
    assert np.abs(found - expected).max() <= 2 * depth * level + weight + n / 2
    if n == 2:
        assert rounds == 1 + depth


def test_tables_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two tables give the same contributions, in three times the rounds."""
    whole, *_, once = derive(2, 3, 1 << 16)
    monkeypatch.setattr(inference, "_BLOCK", 2 * OUTPUTS * 27)
    found, *_, rounds = derive(2, 3, 1 << 16)
    assert np.abs(found - whole).max() <= 4
    assert rounds == 3 * once


@pytest.mark.parametrize("n", [2, 3])
def test_contributions_are_looked_up_with_leaf_values(n: int) -> None:
    rng = np.random.default_rng(n)
    depth, count = 3, 40
    shape = (TABLES, depth, count)
    leaves = rng.integers(-99, 99, (TABLES, OUTPUTS, 1 << depth))
    added = rng.integers(-99, 99, (TABLES, OUTPUTS, depth, 1 << depth))
    goes_right = rng.integers(0, 2, shape).astype(np.uint8)
    owners, groups = rng.integers(0, n, shape[:2]), rng.integers(0, 4, shape[:2])

    def body(runtime: Runtime, values: Share, contributions: Share) -> list[Share]:
        local, group_of_split = None, None
        if runtime.index >= 0:
            local, group_of_split = goes_right * (owners == runtime.index)[:, :, None], groups
        splits = AppliedSplits(shape, None if local is None else owners, local)
        shares = MaskedProtocol.infer_with_contributions(
            runtime, splits, values, contributions, SplitGroups(5, group_of_split)
        )
        return [*shares, MaskedProtocol.infer(runtime, splits, values)]

    inputs = [(leaves.astype(np.uint32), Z32), (added.astype(np.uint32), Z32)]
    (scores, contributions, plain), cost, _ = on_shares(body, inputs, n)
    assert np.array_equal(scores, plain)
    assert cost.rounds == 2
    expected = np.zeros((5, OUTPUTS, count))
    leaf = goes_right[:, 0] * 4 + goes_right[:, 1] * 2 + goes_right[:, 2]
    for table, level in np.ndindex(TABLES, depth):
        expected[groups[table, level]] += added[table, :, level, leaf[table]].T
    assert np.array_equal(signed(contributions), expected)
    assert not contributions[4].any()  # no split is in this group


def test_coalition_weights_add_up_to_one() -> None:
    """They add up to one for each player, over all coalitions of the others."""
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
    """The largest combination of the largest means is below 2^62, so it fits a word."""
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
