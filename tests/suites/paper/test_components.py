"""Each component of the paper: its value within its bound, its cost against the meter."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import Z64, signed
from privet.arithmetic.shares import Share
from privet.gates.gate import Cost
from privet.runtime.runtime import Runtime
from privet.suites.paper.argmin import argmin, argmin_cost
from privet.suites.paper.discretize import (
    bucket_ends,
    discretize,
    discretize_cost,
    nearest_cuts,
    sort_order,
)
from privet.suites.paper.division import (
    FIXED,
    START_BITS,
    divide,
    divide_cost,
    reciprocal,
    reciprocal_bits,
    reciprocal_cost,
)
from privet.suites.paper.infer import infer, infer_cost
from privet.suites.paper.sigmoid import sigmoid, sigmoid_cost
from privet.suites.paper.split import split, split_cost
from privet.suites.plan import AppliedTests
from tests.gates.test_gates import run
from tests.gates.test_gates import split as cut
from tests.runtime.harness import View, play
from tests.runtime.test_party import measured

PARTIES = (2, 3, 5)


def on_shares(
    component: Any, value: np.ndarray, n: int, own: list[Any] | None = None
) -> tuple[list[View], Cost]:
    """Run `component(runtime, [value], own data)` at n participants and the dealer."""
    parts = cut(value, Z64, n, seed=0)

    def program(runtime: Runtime, data: Any) -> Any:
        share, mine = Share.unknown(value.shape, Z64), None
        if data is not None:
            share, mine = Share(data[0], Z64), data[1]
        result = component(runtime, share, mine)
        return result.part if isinstance(result, Share) and data is not None else result

    views = play(program, n, list(zip(parts, own or [None] * n, strict=True)))
    return views, measured(views)


def total(views: list[View]) -> np.ndarray:
    return Z64.sum(np.stack([view.result for view in views]), 0)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("least", [1.0, 0.01, 2.0])
def test_reciprocal(n: int, least: float) -> None:
    """From the least to the largest value: Newton's error, and the rounding of the last steps."""
    y = np.concatenate([least * np.geomspace(1, 100, 50), np.geomspace(1, 1 << 20, 200) + least])
    y = FIXED.decode(FIXED.encode(np.minimum(y, 1 << 20)))
    bits = reciprocal_bits(least)
    gate = partial(reciprocal, bits=bits)
    result, cost, _ = run(gate, [FIXED.encode(y)], [Z64], n, Z64)
    found = signed(result) / 2.0**bits
    units = n - n // 2
    start = units * 2.0 ** (START_BITS - bits)
    # After 20 squarings exp(-y) is left, for a start that rounding made a little larger or smaller;
    # the last iteration's rounding adds to it, and the one's before, squared.
    rounding = units * (1 + y) * 2.0**-bits
    rounding += 4 * rounding**2
    assert (1 - found * y <= np.exp(-y * (1 - start)) + rounding).all()
    assert (1 - found * y >= np.exp(-y * (1 + start)) - rounding).all()
    assert cost == reciprocal_cost(y.shape, n)


def test_the_reciprocal_of_one_is_off_by_a_third() -> None:
    """The paper's start and iterations: 1/e of the error is left at y = 1, nothing from 16 up."""
    y = np.array([1.0, 2.0, 4.0, 16.0, 1000.0])
    result, _, _ = run(partial(reciprocal, bits=30), [FIXED.encode(y)], [Z64], 3, Z64)
    error = 1 - signed(result) / 2.0**30 * y
    assert error == pytest.approx(np.exp(-y), abs=0.001)


@pytest.mark.parametrize("n", PARTIES)
def test_divide(n: int) -> None:
    rng = np.random.default_rng(n)
    y = rng.uniform(16, 20_000, 300)
    x = y * rng.uniform(-1, 1, 300)
    inputs = [FIXED.encode(x), FIXED.encode(y)]
    result, cost, _ = run(divide, inputs, [Z64, Z64], n, Z64)
    units = n - n // 2
    relative = np.exp(-y * (1 - units / 1024)) + 1.01 * units * (1 + y) * 2.0**-30
    bound = np.abs(x / y) * relative + (units + 1) * FIXED.unit
    assert (np.abs(FIXED.decode(result) - x / y) <= bound).all()
    assert cost == divide_cost(x.shape, n)


@pytest.mark.parametrize("n", PARTIES)
def test_sigmoid(n: int) -> None:
    x = np.linspace(-12, 12, 481)
    result, cost, _ = run(sigmoid, [FIXED.encode(x)], [Z64], n, Z64)
    true = 1 / (1 + np.exp(-x))
    assert np.abs(FIXED.decode(result) - true).max() < 0.0066
    assert cost == sigmoid_cost(x.shape, n)


def test_sigmoid_far_out_stays_on_its_side() -> None:
    x = np.array([-44.0, -20.0, -13.0, 13.0, 20.0, 44.0])
    result, _, _ = run(sigmoid, [FIXED.encode(x)], [Z64], 3, Z64)
    assert ((FIXED.decode(result) - 0.5) * np.sign(x) > 0.28).all()


def test_more_squarings_come_closer() -> None:
    x = np.linspace(-6, 6, 121)
    true = 1 / (1 + np.exp(-x))
    errors = []
    for squarings in (1, 2, 3, 4):
        gate = partial(sigmoid, squarings=squarings)
        result, cost, _ = run(gate, [FIXED.encode(x)], [Z64], 2, Z64)
        errors.append(np.abs(FIXED.decode(result) - true).max())
        assert cost == sigmoid_cost(x.shape, 2, squarings)
    assert errors[0] > 2 * errors[1] > 6 * errors[2] > 18 * errors[3]


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(("count", "buckets"), [(64, 8), (101, 8), (5, 8), (33, 2)])
def test_discretize(n: int, count: int, buckets: int) -> None:
    """N a multiple of B, N not one, N less than B."""
    rng = np.random.default_rng(count)
    owners = [0, 1, 1, n - 1]
    bucket = rng.integers(0, buckets, (len(owners), count)).astype(np.uint8)
    vectors = rng.integers(0, 1 << 63, (3, count), dtype=np.uint64)
    orders = [sort_order(column) for column in bucket]

    def component(runtime: Runtime, share: Share, own: Any) -> Share:
        known = [
            o if owner == runtime.index else None for o, owner in zip(orders, owners, strict=True)
        ]
        return discretize(runtime, share, known, owners, buckets)

    views, cost = on_shares(component, vectors, n)
    ends = bucket_ends(count, buckets)
    expected = np.zeros((len(owners), 3, buckets), dtype=np.uint64)
    for j, order in enumerate(orders):
        for b, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            expected[j, :, b] = vectors[:, order[start:end]].sum(axis=1)
    assert (total(views) == expected).all()
    assert cost == discretize_cost(len(owners), (3, count), n)


def test_buckets_are_as_even_as_can_be() -> None:
    for count, buckets in ((64, 8), (101, 8), (5, 8), (16512, 32)):
        sizes = np.diff([0, *bucket_ends(count, buckets)])
        assert sizes.sum() == count
        assert sizes.max() - sizes.min() <= 1


def test_a_test_never_parts_equal_values() -> None:
    """The owner takes the border nearest to where SecDisc cut."""
    bucket = np.repeat([0, 1, 2, 3], [10, 70, 10, 10]).astype(np.uint8)
    # Cuts at 25, 50 and 75 of 100; the borders are at 10, 80 and 90.
    assert nearest_cuts(bucket, 4).tolist() == [0, 1, 1]
    assert nearest_cuts(np.zeros(100, dtype=np.uint8), 4).tolist() == [2, 2, 2]  # none: all pass
    even = np.repeat(np.arange(8), 4).astype(np.uint8)
    assert nearest_cuts(even, 8).tolist() == list(range(7))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("shape", [(1, 1), (4, 2), (3, 7), (1, 31)])
def test_argmin(n: int, shape: tuple[int, int]) -> None:
    """The first of equal ones, and nothing but the positions is revealed."""
    rng = np.random.default_rng(0)
    values = rng.integers(-4, 4, shape) * (1 << 58)

    def component(runtime: Runtime, share: Share, _: Any) -> Any:
        return argmin(runtime, share, "position")

    views, cost = on_shares(component, values.view(np.uint64), n)
    for view in views:
        assert view.result.tolist() == np.argmin(values, axis=1).tolist()
        (entry,) = view.ledger.entries
        assert (entry.what, len(entry.to), entry.count) == ("position", n, shape[0])
    assert cost == argmin_cost(shape, n)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("nodes", [1, 4])
def test_split(n: int, nodes: int) -> None:
    rng = np.random.default_rng(0)
    gradients = rng.integers(0, 1 << 63, (2, nodes, 40), dtype=np.uint64)
    passes = rng.random(40) < 0.3

    def component(runtime: Runtime, share: Share, own: Any) -> Share:
        return split(runtime, share, passes if runtime.index == 1 else None, owner=1)

    views, cost = on_shares(component, gradients, n)
    children = total(views)
    assert (children[:, 0::2] == gradients * passes.astype(np.uint64)).all()
    assert (children[:, 1::2] == gradients * (~passes).astype(np.uint64)).all()
    assert cost == split_cost((2, nodes, 40), n)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(("tables", "depth"), [(1, 1), (3, 2), (2, 5)])
def test_infer(n: int, tables: int, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sample gets the sum of the leaf values it reaches, in one block or in several."""
    rng = np.random.default_rng(0)
    count = 50
    leaves = rng.integers(0, 1 << 63, (tables, 1 << depth), dtype=np.uint64)
    fails = rng.integers(0, 2, (tables, depth, count)).astype(np.uint8)
    owners = rng.integers(0, n, (tables, depth))
    index = np.zeros((tables, count), dtype=np.intp)
    for level in range(depth):
        index = 2 * index + fails[:, level]
    expected = np.take_along_axis(leaves, index, axis=1).sum(axis=0)

    def component(runtime: Runtime, share: Share, own: Any) -> Share:
        tests = AppliedTests((tables, depth, count), None, None)
        if runtime.index >= 0:
            mine = fails * (owners == runtime.index)[..., None].astype(np.uint8)
            tests = AppliedTests(tests.shape, owners, mine)
        return infer(runtime, tests, share)

    for block in (1 << 22, 20 * tables * depth << depth):
        monkeypatch.setattr("privet.suites.paper.infer._BLOCK", block)
        views, cost = on_shares(component, leaves, n)
        assert (total(views) == expected).all()
        assert cost == infer_cost(AppliedTests((tables, depth, count), None, None), n)
