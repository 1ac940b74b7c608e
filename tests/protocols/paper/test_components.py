"""The components of `paper`: results within their error bounds, and costs as measured."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import Z32, Z64, Ring, signed
from privet.arithmetic.shares import Share
from privet.gates.arithmetic import multiply_fixed_point, truncate
from privet.gates.beaver import multiply, square
from privet.protocols.paper.algorithms import (
    FIXED_POINT,
    N_NEWTON_ITERATIONS,
    RECIPROCAL_START_BITS,
    bucket_ends,
    choose_reciprocal_bits,
    compute_reciprocal,
    compute_sigmoid,
    divide,
    find_nearest_cuts,
    infer_scores,
    reveal_argmin,
    sort_feature,
    split_nodes,
    sum_by_bucket,
)
from privet.protocols.paper.gates import less_than
from privet.protocols.protocol import AppliedSplits
from privet.runtime.cost import Cost, count_program_cost
from privet.runtime.runtime import Runtime
from tests.gates.test_gates import run
from tests.gates.test_gates import split as cut
from tests.runtime.harness import View, check_count, play

PARTIES = (2, 3, 5)


def on_shares(
    component: Any, value: np.ndarray, n: int, ring: Ring = Z64
) -> tuple[list[View], Cost]:
    """Run `component(runtime, [value])` at n participants, the dealer and a counter.

    Check that every step has the cost that the counter reports.
    """
    parts = cut(value, ring, n, seed=0)

    def program(runtime: Runtime, part: Any) -> Any:
        share = Share.unknown(value.shape, ring) if part is None else Share(part, ring)
        result = component(runtime, share)
        return result.part if isinstance(result, Share) and part is not None else result

    views = play(program, n, parts)
    return views, sum(check_count(program, views).values(), start=Cost())


def total(views: list[View], ring: Ring = Z64) -> np.ndarray:
    return ring.sum(np.stack([view.result for view in views]), 0)


def cost(n: int, program: Any, *shapes: tuple[int, ...], ring: Ring = Z64, **options: Any) -> Cost:
    """Return the cost of a program on values of some shapes."""
    return count_program_cost(
        partial(program, **options), n, *(Share.unknown(s, ring) for s in shapes)
    )


def fixed_product(n: int, shape: tuple[int, ...]) -> Cost:
    """Return the cost of a product of fixed-point numbers."""
    return cost(n, multiply_fixed_point, shape, shape, bits=20)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("min_divisor", [1.0, 0.01, 2.0])
def test_reciprocal(n: int, min_divisor: float) -> None:
    """From the smallest to the largest divisor: Newton's error, and rounding of the last steps."""
    y = np.concatenate(
        [min_divisor * np.geomspace(1, 100, 50), np.geomspace(1, 1 << 20, 200) + min_divisor]
    )
    y = FIXED_POINT.decode(FIXED_POINT.encode(np.minimum(y, 1 << 20)))
    bits = choose_reciprocal_bits(min_divisor)
    gate = partial(compute_reciprocal, bits=bits)
    result, measured_cost, _ = run(gate, [FIXED_POINT.encode(y)], [Z64], n, Z64)
    reciprocal = signed(result) / 2.0**bits
    units = n - n // 2
    start = units * 2.0 ** (RECIPROCAL_START_BITS - bits)
    # After 20 squarings an error of exp(-y) is left, for a start that rounding has changed; add the
    # rounding of the last iteration, and that of the one before, squared.
    rounding = units * (1 + y) * 2.0**-bits
    rounding += 4 * rounding**2
    assert (1 - reciprocal * y <= np.exp(-y * (1 - start)) + rounding).all()
    assert (1 - reciprocal * y >= np.exp(-y * (1 + start)) - rounding).all()
    assert measured_cost == fixed_product(n, y.shape) * (2 * N_NEWTON_ITERATIONS)


def test_reciprocal_error_near_one() -> None:
    """With the paper's start and iterations, the error is 1/e at y = 1, and vanishes from 16 on."""
    y = np.array([1.0, 2.0, 4.0, 16.0, 1000.0])
    result, _, _ = run(partial(compute_reciprocal, bits=30), [FIXED_POINT.encode(y)], [Z64], 3, Z64)
    error = 1 - signed(result) / 2.0**30 * y
    assert error == pytest.approx(np.exp(-y), abs=0.001)


@pytest.mark.parametrize("n", PARTIES)
def test_divide(n: int) -> None:
    rng = np.random.default_rng(n)
    y = rng.uniform(16, 20_000, 300)
    x = y * rng.uniform(-1, 1, 300)
    inputs = [FIXED_POINT.encode(x), FIXED_POINT.encode(y)]
    result, measured_cost, _ = run(divide, inputs, [Z64, Z64], n, Z64)
    units = n - n // 2
    relative = np.exp(-y * (1 - units / 1024)) + 1.01 * units * (1 + y) * 2.0**-30
    bound = np.abs(x / y) * relative + (units + 1) * FIXED_POINT.resolution
    assert (np.abs(FIXED_POINT.decode(result) - x / y) <= bound).all()
    assert measured_cost == fixed_product(n, x.shape) * (2 * N_NEWTON_ITERATIONS + 1)


@pytest.mark.parametrize("n", PARTIES)
def test_sigmoid(n: int) -> None:
    x = np.linspace(-12, 12, 481)
    result, measured_cost, _ = run(compute_sigmoid, [FIXED_POINT.encode(x)], [Z64], n, Z64)
    true = 1 / (1 + np.exp(-x))
    assert np.abs(FIXED_POINT.decode(result) - true).max() < 0.0066
    assert measured_cost == sigmoid_cost(x.shape, n, 2)


def sigmoid_cost(shape: tuple[int, ...], n: int, squarings: int) -> Cost:
    both = (2, *shape)
    power = cost(n, square, both) + cost(n, truncate, both, dropped_bits=20)
    quotient = fixed_product(n, shape) * (2 * N_NEWTON_ITERATIONS + 1)
    return cost(n, truncate, shape, dropped_bits=3) + power * squarings + quotient


def test_sigmoid_of_large_scores_keeps_its_side() -> None:
    x = np.array([-44.0, -20.0, -13.0, 13.0, 20.0, 44.0])
    result, _, _ = run(compute_sigmoid, [FIXED_POINT.encode(x)], [Z64], 3, Z64)
    assert ((FIXED_POINT.decode(result) - 0.5) * np.sign(x) > 0.28).all()


def test_more_squarings_reduce_the_error() -> None:
    x = np.linspace(-6, 6, 121)
    true = 1 / (1 + np.exp(-x))
    errors = []
    for squarings in (1, 2, 3, 4):
        gate = partial(compute_sigmoid, squarings=squarings)
        result, measured_cost, _ = run(gate, [FIXED_POINT.encode(x)], [Z64], 2, Z64)
        errors.append(np.abs(FIXED_POINT.decode(result) - true).max())
        assert measured_cost == sigmoid_cost(x.shape, 2, squarings)
    assert errors[0] > 2 * errors[1] > 6 * errors[2] > 18 * errors[3]


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(("count", "buckets"), [(64, 8), (101, 8), (5, 8), (33, 2)])
def test_discretize(n: int, count: int, buckets: int) -> None:
    """N is a multiple of B, not a multiple, or less than B."""
    rng = np.random.default_rng(count)
    owners = [0, 1, 1, n - 1]
    bucket = rng.integers(0, buckets, (len(owners), count)).astype(np.uint8)
    vectors = rng.integers(0, 1 << 63, (3, count), dtype=np.uint64)
    orders = [sort_feature(column) for column in bucket]

    def component(runtime: Runtime, share: Share) -> Share:
        local = [
            o if owner == runtime.index else None for o, owner in zip(orders, owners, strict=True)
        ]
        return sum_by_bucket(runtime, share, local, owners, buckets)

    views, measured_cost = on_shares(component, vectors, n)
    ends = bucket_ends(count, buckets)
    expected = np.zeros((len(owners), 3, buckets), dtype=np.uint64)
    for j, order in enumerate(orders):
        for b, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            expected[j, :, b] = vectors[:, order[start:end]].sum(axis=1)
    assert (total(views) == expected).all()
    sent = len(owners) * (3 * 8 * count + 4 * count)
    assert measured_cost == Cost(1, (n - 1) * sent, len(owners) * 3 * 8 * count)


def test_buckets_are_even() -> None:
    for count, buckets in ((64, 8), (101, 8), (5, 8), (16512, 32)):
        sizes = np.diff([0, *bucket_ends(count, buckets)])
        assert sizes.sum() == count
        assert sizes.max() - sizes.min() <= 1


def test_splits_never_separate_equal_values() -> None:
    """The owner uses the boundary nearest to the cut of SecDisc."""
    bucket = np.repeat([0, 1, 2, 3], [10, 70, 10, 10]).astype(np.uint8)
    # Cuts at 25, 50 and 75 of 100; the boundaries are at 10, 80 and 90.
    assert find_nearest_cuts(bucket, 4).tolist() == [0, 1, 1]
    assert find_nearest_cuts(np.zeros(100, dtype=np.uint8), 4).tolist() == [
        2,
        2,
        2,
    ]  # no boundary: all rows go left
    even = np.repeat(np.arange(8), 4).astype(np.uint8)
    assert find_nearest_cuts(even, 8).tolist() == list(range(7))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("shape", [(1, 1), (4, 2), (3, 7), (1, 31)])
def test_argmin(n: int, shape: tuple[int, int]) -> None:
    """The first of equal values wins, and only the positions are revealed."""
    rng = np.random.default_rng(0)
    values = rng.integers(-4, 4, shape) * (1 << 58)

    def component(runtime: Runtime, share: Share) -> Any:
        return reveal_argmin(runtime, share, "position")

    views, measured_cost = on_shares(component, values.view(np.uint64), n)
    for view in views:
        assert view.result.tolist() == np.argmin(values, axis=1).tolist()
        (entry,) = view.ledger.entries
        assert (entry.disclosure, len(entry.recipients), entry.n_elements) == (
            "position",
            n,
            shape[0],
        )
    expected = Cost(1, n * (n - 1) * 8 * shape[0], 0)  # the positions
    rows, columns = shape
    while columns > 1:
        pairs = (rows, columns // 2)
        expected += cost(n, less_than, pairs, pairs) + cost(n, multiply, (1, *pairs), (2, *pairs))
        columns -= columns // 2
    assert measured_cost == expected


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("nodes", [1, 4])
def test_split(n: int, nodes: int) -> None:
    rng = np.random.default_rng(0)
    gradients = rng.integers(0, 1 << 63, (2, nodes, 40), dtype=np.uint64)
    goes_left = rng.random(40) < 0.3

    def component(runtime: Runtime, share: Share) -> Share:
        return split_nodes(runtime, share, goes_left if runtime.index == 1 else None, owner=1)

    views, measured_cost = on_shares(component, gradients, n)
    children = total(views)
    assert (children[:, 0::2] == gradients * goes_left.astype(np.uint64)).all()
    assert (children[:, 1::2] == gradients * (~goes_left).astype(np.uint64)).all()
    shared = Cost(1, (n - 1) * 8 * 2 * 40, 0)
    assert measured_cost == shared + cost(n, multiply, (2, nodes, 1, 40), (1, 1, 2, 40))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(("tables", "depth"), [(1, 1), (3, 2), (2, 5)])
@pytest.mark.parametrize("ring", [Z64, Z32], ids=lambda ring: ring.name)
def test_infer(
    n: int, tables: int, depth: int, ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sample gets the sum of the leaf values it reaches, in one block or in several."""
    rng = np.random.default_rng(0)
    count = 50
    leaves = rng.integers(0, 1 << 63, (tables, 1 << depth)).astype(ring.dtype)
    goes_right = rng.integers(0, 2, (tables, depth, count)).astype(np.uint8)
    owners = rng.integers(0, n, (tables, depth))
    index = np.zeros((tables, count), dtype=np.intp)
    for level in range(depth):
        index = 2 * index + goes_right[:, level]
    expected = np.take_along_axis(leaves, index, axis=1).sum(axis=0, dtype=ring.dtype)

    def component(runtime: Runtime, share: Share) -> Share:
        splits = AppliedSplits((tables, depth, count), None, None)
        if runtime.index >= 0:
            local = goes_right * (owners == runtime.index)[..., None].astype(np.uint8)
            splits = AppliedSplits(splits.shape, owners, local)
        return infer_scores(runtime, splits, share)

    for block, sizes in ((1 << 22, [50]), (20 * tables * depth << depth, [20, 20, 10])):
        monkeypatch.setattr("privet.protocols.paper.algorithms._BLOCK", block)
        views, measured_cost = on_shares(component, leaves, n, ring)
        assert (total(views, ring) == expected).all()
        assert measured_cost == sum(
            (infer_cost((tables, size, 1 << depth), depth, n, ring) for size in sizes), Cost()
        )


def infer_cost(shape: tuple[int, int, int], factors: int, n: int, ring: Ring) -> Cost:
    """Return the cost of a block: indicators, their products in pairs, and with leaf values."""
    expected = Cost(1, (n - 1) * factors * ring.nbytes(shape), 0)
    while factors > 1:
        pairs = (factors // 2, *shape)
        expected += cost(n, multiply, pairs, pairs, ring=ring)
        factors -= factors // 2
    return expected + cost(n, multiply, shape, (shape[0], 1, shape[2]), ring=ring)
