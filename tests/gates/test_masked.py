"""Gates on masked values: results against plain arithmetic, and measured against counted cost."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import Z1, Z8, Z16, Z32, Z36, Z64, Ring, get_integer_ring, signed
from privet.arithmetic.shares import Elements, Share, stack
from privet.gates.arithmetic import reveal_to_all, truncate_locally
from privet.gates.gate import run_deferred, run_together
from privet.gates.masked.comparison import (
    MaskedComparison,
    choose_digit_count,
    compare,
    count_thresholds_reached,
    make_lifted_one,
    multiply_by_step,
)
from privet.gates.masked.fourier import SCALE_BITS, FourierSeries, evaluate_fourier
from privet.gates.masked.functions import (
    N_SIGMOID_HARMONICS,
    RECIPROCAL_HIGH,
    RECIPROCAL_LOW,
    SCORE_BITS,
    build_reciprocal_series,
    compute_sigmoid_coefficients,
    compute_softplus_coefficients,
    evaluate_sigmoid,
    evaluate_softplus,
)
from privet.gates.masked.histogram import IndicatorProducts, histogram
from privet.gates.masked.indicators import publish_indicators
from privet.gates.masked.polynomial import polynomial, square_lifted
from privet.gates.masked.routing import look_up_leaves, route_rows, share_trivially
from privet.gates.masked.selection import LookupResult, blind_conditionally, look_up, select
from privet.gates.masked.truncation import (
    defer_borrow_comparison,
    divide_exactly,
    divide_masked_exactly,
    reduce_ring,
    round_exactly,
)
from privet.gates.masked.value import (
    LiftedValue,
    MaskedValue,
    lift,
    lift_signed,
    map_together,
    mask,
    mask_constant,
    mask_value,
)
from privet.runtime.cost import Cost
from privet.runtime.runtime import Runtime
from tests.gates.test_gates import split
from tests.runtime.harness import View, check_count, measured_steps, nonuniform, play
from tests.runtime.test_party import opening_cost

PARTIES = (2, 3, 5)
COUNT = 60


def on_shares(
    body: Callable[..., Any], inputs: list[tuple[np.ndarray, Ring]], n: int
) -> tuple[Any, Cost, list[View]]:
    """Run `body(runtime, *shares)` on shares that were split beforehand; add up its results.

    Check that every step has the cost that a counter counts.
    """
    cut = [split(value, ring, n, seed) for seed, (value, ring) in enumerate(inputs)]

    def program(runtime: Runtime, parts: list[np.ndarray] | None) -> Any:
        if parts is None:
            body(runtime, *(Share.unknown(value.shape, ring) for value, ring in inputs))
            return None
        shares = [Share(p, ring) for p, (_, ring) in zip(parts, inputs, strict=True)]
        found = body(runtime, *shares)
        return [(x.part, x.ring) for x in (found if isinstance(found, list) else [found])]

    views = play(program, n, [[parts[k] for parts in cut] for k in range(n)])
    totals = [
        ring.reduce_modulus(ring.sum(np.stack([view.result[i][0] for view in views]), 0))
        for i, (_, ring) in enumerate(views[0].result)
    ]
    for view in views:
        assert view.ledger.entries == []
    cost = sum(check_count(program, views).values(), start=Cost())
    return (totals if len(totals) > 1 else totals[0]), cost, views


def dealt(*arrays: tuple[Ring, int]) -> Cost:
    """The cost of corrections for arrays of some rings and sizes."""
    return Cost(offline_bytes=sum(ring.count_packed_bytes(size) for ring, size in arrays))


def opened(n: int, *vectors: tuple[Ring, int]) -> Cost:
    """The cost of opening vectors together; slices of odd widths are packed one by one."""
    if len({ring for ring, _ in vectors}) == 1:
        vectors = ((vectors[0][0], sum(size for _, size in vectors)),)
    cost = opening_cost(sum(ring.count_packed_bytes(size) for ring, size in vectors), n)
    if cost.rounds == 1:
        return cost
    sliced = sum(
        ring.count_packed_bytes(size * (k + 1) // n - size * k // n)
        for ring, size in vectors
        for k in range(n)
    )
    return Cost(2, 2 * (n - 1) * sliced)


def integer(runtime: Runtime, x: LiftedValue) -> Share:
    """A lifted value as a share."""
    return polynomial(runtime, [x], [(1, (0,))])


def entries_of(selection: LookupResult, table: np.ndarray, factor: int) -> Share:
    """A table's entries at opened positions, times a factor."""
    each: list[Share] = [selection.select_at(t, factor) * table[t] for t in range(len(table))]
    return stack(each).sum(0)


def integers(low: int, high: int, shape: Any = COUNT, seed: int = 0) -> np.ndarray:
    """Random integers, with the extreme ones among them."""
    rng = np.random.default_rng(seed)
    values = rng.integers(low, high, shape, endpoint=True)
    ends = rng.choice([low, high, 0 if low <= 0 <= high else low], shape)
    return np.asarray(np.where(rng.random(shape) < 0.3, ends, values))


RINGS = [get_integer_ring(bits) for bits in (8, 11, 16, 32, 33, 36, 47, 64)]


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)
def test_masking_and_lifting(n: int, ring: Ring) -> None:
    """A value of w - 1 bits is lifted to the same integer under any mask."""
    x = integers(0, (1 << (ring.bits - 1)) - 1)

    def body(runtime: Runtime, share: Share) -> Any:
        return integer(runtime, lift(runtime, mask_value(runtime, share)))

    found, cost, _ = on_shares(body, [(x.astype(ring.dtype), ring)], n)
    assert (signed(found) == x).all()
    masks = 1 if ring is Z64 else 2
    assert cost == opened(n, (ring, COUNT)) + dealt(*[(Z64, COUNT)] * masks)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(
    ("ring", "shift"), [(Z16, 3), (Z32, 11), (Z36, 20), (Z64, 1), (Z64, 45), (RINGS[6], 9)]
)
def test_lifting_divides(n: int, ring: Ring, shift: int) -> None:
    x = integers(0, (1 << (ring.bits - 1)) - 1)

    def body(runtime: Runtime, share: Share) -> Any:
        return integer(runtime, lift(runtime, mask_value(runtime, share), shift=shift))

    found, cost, _ = on_shares(body, [(x.astype(ring.dtype), ring)], n)
    assert np.isin(signed(found) - (x >> shift), (0, 1)).all()
    assert cost == opened(n, (ring, COUNT)) + dealt((Z64, COUNT), (Z64, COUNT))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(
    ("ring", "shift", "larger"), [(Z16, 0, Z32), (Z16, 3, Z36), (Z36, 4, Z36), (Z64, 28, Z36)]
)
def test_lifting_of_negative_values(n: int, ring: Ring, shift: int, larger: Ring) -> None:
    """To rings of sizes between, and to one in which the top bit of the mask vanishes."""
    x = integers(-(1 << (ring.bits - 2)), (1 << (ring.bits - 2)) - 1)

    def body(runtime: Runtime, share: Share) -> Any:
        lifted = lift_signed(runtime, mask_value(runtime, share), shift=shift, ring=larger)
        return integer(runtime, lifted)

    found, cost, _ = on_shares(body, [(x.astype(ring.dtype), ring)], n)
    difference = (found.astype(np.int64) - (x >> shift)) % (1 << larger.bits)
    assert np.isin(difference, (0, 1) if shift else (0,)).all()
    masks = 2 if ring.bits - shift < larger.bits else 1
    assert cost == opened(n, (ring, COUNT)) + dealt(*[(larger, COUNT)] * masks)


@pytest.mark.parametrize("n", PARTIES)
def test_masked_values(n: int) -> None:
    """Masked values are added, subtracted, rearranged and turned into shares like plain values."""
    x, y = integers(-(2**30), 2**30), integers(-(2**30), 2**30, seed=1)

    def body(runtime: Runtime, a: Share, b: Share) -> list[Share]:
        first, second = mask(runtime, a, b)
        known = mask_constant(runtime, np.arange(COUNT, dtype=np.uint32), Z32)
        assert known.is_constant
        assert not first.is_constant
        values = (
            first,
            first + 5,
            first + np.arange(COUNT),
            first - second,
            first[2:7],
            first.map(lambda v: v.reshape(2, -1).sum(1)),
            map_together(stack, first, second),
            known,
            first - known,
        )
        return [value.to_share(runtime) for value in values]

    inputs: list[tuple[np.ndarray, Ring]] = [(x.astype(np.uint32), Z32), (y.astype(np.uint32), Z32)]
    found, cost, _ = on_shares(body, inputs, n)
    numbers = np.arange(COUNT)
    expected = (
        x,
        x + 5,
        x + numbers,
        x - y,
        x[2:7],
        x.reshape(2, -1).sum(1),
        np.stack([x, y]),
        numbers,
        x - numbers,
    )
    for result, value in zip(found, expected, strict=True):
        assert (signed(result) == value.astype(np.int32)).all()
    assert cost == opened(n, (Z32, COUNT), (Z32, COUNT))


@pytest.mark.parametrize("n", PARTIES)
def test_on_masks_is_called_with_the_masks(n: int) -> None:
    """Participants can work on their shares of the masks during the opening; dealers never wait."""
    x, y = integers(0, 2**30), integers(0, 2**14, seed=1)
    seen: dict[tuple[str, int], list[np.ndarray]] = {}

    def body(runtime: Runtime, a: Share, b: Share) -> Any:
        def record_as(name: str) -> Callable[[list[Elements]], None]:
            def record(masks: list[Elements]) -> None:
                seen[name, runtime.index] = [m.array.copy() for m in masks]

            return record

        masked = mask(runtime, a, b, on_masks=record_as("mask"))
        wide = [v * 2**20 for v in (a, a)]
        small = reduce_ring(
            runtime, *wide, dropped_bits=(20, 24), rings=(Z32, Z36), on_masks=record_as("shrink")
        )
        return [v.to_share(runtime) for v in (*masked, *small)]

    inputs: list[tuple[np.ndarray, Ring]] = [(x.view(np.uint64), Z64), (y.astype(np.uint16), Z16)]
    found, _, _ = on_shares(body, inputs, n)
    assert (found[0] == x.view(np.uint64)).all()
    assert (found[1] == y).all()
    for name, rings in (("mask", (Z64, Z16)), ("shrink", (Z32, Z36))):
        for k, ring in enumerate(rings):
            total = ring.sum(np.stack([seen[name, index][k] for index in range(n)]), 0)
            assert len(np.unique(total)) > COUNT // 2


@pytest.mark.parametrize("n", PARTIES)
def test_polynomials(n: int) -> None:
    """5 x^2 y - 3 x y + 7 z + 2 y, of lifted values with one mask and with two."""
    x, y, z = integers(0, 2**15 - 1), integers(0, 2**20, seed=1), integers(0, 2**40, seed=2)

    def body(runtime: Runtime, *shares: Share) -> Any:
        values = [lift(runtime, masked) for masked in mask(runtime, *shares)]
        terms = [(5, (0, 0, 1)), (-3, (0, 1)), (7, (2,)), (2, (1,))]
        return polynomial(runtime, values, terms)

    inputs: list[tuple[np.ndarray, Ring]] = [
        (x.astype(np.uint16), Z16),
        (y.astype(np.uint32), Z32),
        (z.astype(np.uint64), Z64),
    ]
    found, cost, _ = on_shares(body, inputs, n)
    assert (signed(found) == 5 * x * x * y - 3 * x * y + 7 * z + 2 * y).all()
    # Two masks each, except of z: 3 products of x and x, 2 * 2 of x and y, 3 * 2 of x, x and y.
    masking = opened(n, (Z16, COUNT), (Z32, COUNT), (Z64, COUNT))
    assert cost == masking + dealt(*[(Z64, COUNT)] * 5) + dealt((Z64, 13 * COUNT))


@pytest.mark.parametrize("n", PARTIES)
def test_polynomials_broadcast(n: int) -> None:
    x, y = integers(0, 2**15 - 1, (3, 1)), integers(-(2**14), 2**14 - 1, (2, 1, 4), seed=1)

    def body(runtime: Runtime, a: Share, b: Share) -> Any:
        first, second = mask(runtime, a, b)
        values = [lift(runtime, first), lift_signed(runtime, second).scale(3) + 1]
        return polynomial(runtime, values, [(2, (0, 1)), (10, ())])

    inputs: list[tuple[np.ndarray, Ring]] = [(x.astype(np.uint16), Z16), (y.astype(np.uint16), Z16)]
    found, cost, _ = on_shares(body, inputs, n)
    assert (signed(found) == 2 * x * (3 * y + 1) + 10).all()
    lifted = dealt(*[(Z64, 3)] * 2, *[(Z64, 8)] * 2)
    assert cost == opened(n, (Z16, 3), (Z16, 8)) + lifted + dealt((Z64, 4 * 24))


def near_thresholds(thresholds: tuple[int, ...], low: int, high: int) -> np.ndarray:
    """Every threshold, the values next to it, and the ends of the range of comparisons."""
    near = [t + d for t in thresholds for d in (-1, 0, 1)]
    return np.array([low, high, *(v for v in near if low <= v <= high)])


def table_bits(width: int, digits: int) -> list[tuple[Ring, int]]:
    """The rings and lengths of the tables that digits are looked up in, computed independently.

    The lower width - 1 bits are cut into nearly equal digits, the longer ones on top. Digit j
    counts 2^(j-1) times in a sum modulo 2^L, so its table needs j - 1 bits fewer.
    """
    lengths = sorted(len(part) for part in np.array_split(np.arange(width - 1), digits))
    return [
        (get_integer_ring(digits - max(0, j - 1)), 1 << length) for j, length in enumerate(lengths)
    ]


def compare_cost(n: int, width: int, digits: int, thresholds: int, count: int) -> Cost:
    """The cost of a comparison: a table for each digit, and L opened bits a comparison bit."""
    tables = dealt(*((ring, rows * count) for ring, rows in table_bits(width, digits)))
    return opened(n, (get_integer_ring(digits), thresholds * count)) + tables


WIDTHS = [(16, 2), (16, 4), (31, 4), (31, 5), (9, 3), (10, 2), (36, 5), (2, 1), (8, 7), (12, 8)]
"""With digits of equal and of unequal lengths, and of one bit."""


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(("width", "digits"), WIDTHS)
@pytest.mark.parametrize("ring", [Z36, Z64], ids=lambda ring: ring.name)
def test_comparing(n: int, width: int, digits: int, ring: Ring) -> None:
    """At and next to every threshold, on the low bits of a ring, with any upper bits."""
    top = 1 << (width - 1)
    rising = sorted({0, 1, min(2, top - 1), min(100, top - 1), top // 2, top - 1})
    x = np.concatenate([near_thresholds(tuple(rising), 0, top - 1), integers(0, top - 1)])
    upper = integers(0, (1 << (63 - width)) - 1, x.shape, seed=3) << width
    factors = tuple(range(len(rising) + 1))

    def body(runtime: Runtime, share: Share) -> Share:
        reached = compare(
            runtime,
            mask_value(runtime, share),
            thresholds=tuple(rising),
            width=width,
            digits=digits,
        )
        assert reached.shape == (len(rising), len(x))
        return multiply_by_step(
            runtime, reached, make_lifted_one(runtime, x.shape, Z8), factors=factors
        )

    found, cost, _ = on_shares(body, [((x + upper).astype(np.uint64), ring)], n)
    assert (found == sum((x >= t).astype(int) for t in rising)).all()
    bits = Cost(offline_bytes=len(rising) * (1 << (digits - 1)) * len(x))
    compared = compare_cost(n, width, digits, len(rising), len(x))
    assert cost == opened(n, (ring, len(x))) + compared + bits


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(("width", "digits"), [(36, 5), (36, 7), (27, 4), (10, 2)])
def test_signs(n: int, width: int, digits: int) -> None:
    """Negative values do not reach zero, from the lowest to the highest value of a width."""
    half, ring = 1 << (width - 1), get_integer_ring(width)
    x = np.concatenate([near_thresholds((0,), -half, half - 1), integers(-half, half - 1, 300)])

    def body(runtime: Runtime, share: Share) -> Share:
        masked = mask_value(runtime, share)
        reached = compare(runtime, masked, thresholds=(0,), width=width, digits=digits)
        return multiply_by_step(
            runtime, reached, make_lifted_one(runtime, x.shape, Z8), factors=(0, 1)
        )

    found, _, _ = on_shares(body, [(x.astype(ring.dtype), ring)], n)
    assert (found == (x >= 0)).all()


@pytest.mark.parametrize("digits", [2, 3, 5])
def test_comparing_under_any_mask(digits: int) -> None:
    """All values of a width of 6 under all masks: no borrow or wrap-around is missed."""
    width, ring = 6, get_integer_ring(6)
    x = np.repeat(np.arange(-32, 32), 64 * 4)

    def body(runtime: Runtime, share: Share) -> Share:
        masked = mask_value(runtime, share)
        reached = compare(runtime, masked, thresholds=(0,), width=width, digits=digits)
        return multiply_by_step(
            runtime, reached, make_lifted_one(runtime, x.shape, Z8), factors=(0, 1)
        )

    found, _, views = on_shares(body, [(x.astype(np.uint8), ring)], 2)
    assert (found == (x >= 0)).all()
    (masked, *_) = views[0].opened
    pairs = set(zip(x.tolist(), ring.reduce_modulus(masked).tolist(), strict=True))
    assert len(pairs) > 64 * 64 * 0.95  # all but 2% of all pairs, on average


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("width", [16, 31, 9, 48])
def test_counting_thresholds(n: int, width: int) -> None:
    top = 1 << (width - 1)
    rising = tuple(sorted({0, 1, 2, 100, top - 1}))
    x = np.concatenate([near_thresholds(rising, 0, top - 1), integers(0, top - 1)])

    def body(runtime: Runtime, share: Share) -> Share:
        return count_thresholds_reached(
            runtime, mask_value(runtime, share), thresholds=rising, width=width
        )

    found, cost, _ = on_shares(body, [(x.astype(np.uint64), Z64)], n)
    assert (found == sum((x >= t).astype(int) for t in rising)).all()
    digits = choose_digit_count(width)
    bits = Cost(offline_bytes=len(rising) * (1 << (digits - 1)) * len(x))
    compared = compare_cost(n, width, digits, len(rising), len(x))
    assert cost == opened(n, (Z64, len(x))) + compared + bits


def test_chosen_digit_count_is_the_cheapest() -> None:
    """No other count that fits a byte, with digits of up to 9 bits, needs fewer corrections."""
    for width in range(2, 65):
        options = {
            digits: sum(ring.bits * rows for ring, rows in table_bits(width, digits))
            + 8 * (1 << (digits - 1))
            for digits in range(1, min(8, width - 1) + 1)
            if -(-(width - 1) // digits) <= 9
        }
        assert options[choose_digit_count(width)] == min(options.values()), width


STEP_RINGS = [get_integer_ring(bits) for bits in (8, 24, 32, 36, 47, 64)]


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("ring", STEP_RINGS, ids=lambda ring: ring.name)
@pytest.mark.parametrize("masks", [0, 1, 2, 4])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_multiply_by_step(n: int, ring: Ring, masks: int, count: int) -> None:
    """Lifted values of several masks, times factors that depend on the thresholds reached."""
    rising = (3, 50, 127)[:count]
    t = integers(0, 127, 40, seed=4)
    t[:9] = near_thresholds((3, 50, 127), 0, 127)[:9]
    x = integers(0, 7, 40, seed=5)
    factors = (5, -3, 1 << 40, 9)[: count + 1]
    source = {1: ring, 2: get_integer_ring(7), 4: get_integer_ring(7)}.get(masks, ring)

    def body(runtime: Runtime, a: Share, b: Share) -> list[Share]:
        masked_t, masked_x = mask(runtime, a, b)
        if count:
            reached = compare(runtime, masked_t, thresholds=rising, width=8, digits=2)
        else:
            reached = MaskedComparison((0, 40), 1)
        if masks == 0:
            value = make_lifted_one(runtime, (40,), ring)
        else:
            value = lift(runtime, masked_x, ring=ring)
            value = square_lifted(runtime, value) if masks == 4 else value
        assert len(value.masks) == masks
        return [multiply_by_step(runtime, reached, value, factors=factors), value.to_share(runtime)]

    inputs: list[tuple[np.ndarray, Ring]] = [
        (t.astype(np.uint8), Z8),
        (x.astype(source.dtype), source),
    ]
    (found, plain), cost, _ = on_shares(body, inputs, n)
    values = {0: np.ones(40, dtype=int), 4: x * x}.get(masks, x)
    assert (plain == ring.reduce_modulus(ring.to_elements(values))).all()
    n_reached = (t[:, None] >= np.array(rising, dtype=int)).sum(axis=1)
    expected = [
        int(factors[e]) * int(v) % (1 << ring.bits) for e, v in zip(n_reached, values, strict=True)
    ]
    assert found.tolist() == expected
    dealt_masks = dealt(*[(ring, 40)] * masks)
    masking = opened(n, (Z8, 40), (source, 40)) + dealt_masks
    compared = compare_cost(n, 8, 2, count, 40) + dealt((ring, (1 + masks) * 2 * count * 40))
    assert cost == masking + (compared if count else Cost())


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("digits", [3, 5])
def test_conditional_blinds(n: int, digits: int) -> None:
    """Zero exactly where it must be; elsewhere uniform, and different in any two places."""
    ring, rows = get_integer_ring(48), 3
    x = integers(-(2**34), 2**34, 600)
    x[:10] = 0

    def body(runtime: Runtime, share: Share) -> Share:
        masked = mask_value(runtime, share)
        reached = compare(runtime, masked, thresholds=(0,), width=36, digits=digits)
        return blind_conditionally(runtime, reached[0], n_rows=rows, ring=ring)

    found, cost, _ = on_shares(body, [(x.astype(np.uint64), Z36)], n)
    assert found.shape == (2, rows, 600)
    reaches = x >= 0
    assert not found[0][:, reaches].any()
    assert not found[1][:, ~reaches].any()
    blinded = np.concatenate([found[0][:, ~reaches].reshape(-1), found[1][:, reaches].reshape(-1)])
    assert len(blinded) == rows * 600
    assert len(np.unique(blinded)) == len(blinded)  # of 48 bits, by chance 1 in 10^8
    words = [np.ascontiguousarray(blinded >> np.uint64(s)).astype(np.uint16) for s in (0, 16, 32)]
    assert nonuniform([np.concatenate(words)]) == []
    blinds = dealt((ring, (1 << (digits - 1)) * 2 * rows * 600))
    assert cost == opened(n, (Z36, 600)) + compare_cost(n, 36, digits, 1, 600) + blinds


@pytest.mark.parametrize("n", PARTIES)
def test_comparing_masked_values(n: int) -> None:
    """Differences of masked values are masked, so they are compared without an opening."""
    x = integers(-(2**46), 2**46)
    x[:10] = x[10:20]

    def body(runtime: Runtime, share: Share) -> Share:
        masked: MaskedValue = mask_value(runtime, share)
        difference = masked.map(lambda a: a[:30]) - masked.map(lambda a: a[30:])
        return count_thresholds_reached(runtime, difference, thresholds=(0,), width=48)

    x[30:40] = x[:10]
    found, _, _ = on_shares(body, [(x.view(np.uint64), Z64)], n)
    assert (found == (x[:30] >= x[30:])).all()


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("drop", [0, 3, 16])
def test_comparing_the_high_bits(n: int, drop: int) -> None:
    """Masked values without low bits compare correctly, except within a unit of the threshold."""
    x = integers(-(2**46), 2**46)

    def body(runtime: Runtime, share: Share) -> Share:
        masked = mask_value(runtime, share).drop_low_bits(drop)
        return count_thresholds_reached(runtime, masked, thresholds=(0, 1000), width=48)

    found, _, _ = on_shares(body, [(x.view(np.uint64), Z64)], n)
    for sample, count in zip(x.tolist(), found.tolist(), strict=True):
        # Rounded down, or up by one.
        options = {sum(v >= t for t in (0, 1000)) for v in (sample >> drop, (sample >> drop) + 1)}
        assert count in (options if drop else {sum(sample >= t for t in (0, 1000))})


def test_repr_of_a_comparison_does_not_show_its_bits() -> None:
    """Only the dealer may know them, so they must not be in an error message or a log."""
    masks = (Elements(np.full((1, 3), 7, dtype=np.uint8), Z8),) * 2
    assert "7, 7" not in repr(MaskedComparison((1, 3), 2, masks=masks))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("size", [1, 2, 16])
def test_lookups(n: int, size: int) -> None:
    """Entries of a table at shared positions, times values with one mask or two."""
    rng = np.random.default_rng(size)
    position = rng.integers(0, size, COUNT)
    x, y = integers(0, 2**31 - 1), integers(0, 2**15 - 1, seed=1)
    table = rng.integers(-1000, 1000, size)

    def body(runtime: Runtime, p: Share, a: Share, b: Share) -> list[Share]:
        masked_a, masked_b = mask(runtime, a, b)
        factors: list[MaskedValue | LiftedValue] = [masked_a, lift(runtime, masked_b)]
        selection = look_up(runtime, p, factors, size=size)
        return [entries_of(selection, table, i) for i in range(2)]

    inputs: list[tuple[np.ndarray, Ring]] = [
        (position.astype(np.uint8), Z8),
        (x.astype(np.uint32), Z32),
        (y.astype(np.uint16), Z16),
    ]
    (first, second), cost, _ = on_shares(body, inputs, n)
    assert (signed(first) == (table[position] * x).astype(np.int32)).all()
    assert (signed(second) == table[position] * y).all()
    masking = opened(n, (Z32, COUNT), (Z16, COUNT)) + dealt((Z64, COUNT), (Z64, COUNT))
    hot = dealt((Z32, 2 * size * COUNT), (Z64, 3 * size * COUNT))
    assert cost == masking + opened(n, (Z8, COUNT)) + hot


CUTS = (7, 0, 1, 5)
"""Cut counts of features; a constant feature has none."""


def sums_by_cut(bucket: np.ndarray, cuts: tuple[int, ...], x: np.ndarray) -> np.ndarray:
    """Sums over the samples left of each cut of each feature, (C, K), by plain arithmetic."""
    rows = [
        [row[bucket[j] <= cut].sum() for row in x]
        for j, count in enumerate(cuts)
        for cut in range(count)
    ]
    return np.array(rows, dtype=np.int64)


def some_buckets(cuts: tuple[int, ...], samples: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, count + 1, samples) for count in cuts]).astype(np.uint8)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("cuts", [(7, 7, 7, 7), CUTS], ids=["even", "ragged"])
def test_histograms(n: int, early: bool, cuts: tuple[int, ...]) -> None:
    """Sums over the samples left of each cut, by buckets that only their owners know.

    The masks are multiplied during the opening, or after it.
    """
    rng = np.random.default_rng(n)
    owners, samples = (0, n - 1, 0, 1), 50
    bucket = some_buckets(cuts, samples, n)
    g = rng.integers(-(2**34), 2**34, (3, samples))
    h = rng.integers(0, 2, (3, samples))

    def body(runtime: Runtime, a: Share, b: Share) -> list[Share]:
        local_buckets = {j: bucket[j] for j, owner in enumerate(owners) if owner == runtime.index}
        indicators = publish_indicators(
            runtime, local_buckets, owners, cut_counts=cuts, n_samples=samples, ring=Z36
        )
        products = IndicatorProducts(runtime, indicators)
        masked_g, masked_h = mask(runtime, a, b, on_masks=products.start if early else None)
        return histogram(runtime, products, masked_g, masked_h)

    inputs: list[tuple[np.ndarray, Ring]] = [(g.view(np.uint64), Z36), (h.astype(np.uint16), Z16)]
    (sums_g, sums_h), _, views = on_shares(body, inputs, n)
    assert (Z36.reduce_modulus(sums_by_cut(bucket, cuts, g).view(np.uint64)) == sums_g).all()
    assert (sums_by_cut(bucket, cuts, h) == sums_h).all()
    sent = sum(Z36.count_packed_bytes(count * samples) for count in cuts)
    sums = dealt((Z36, sum(cuts) * 3), (Z16, sum(cuts) * 3))
    assert measured_steps(views) == {
        "mask": opened(n, (Z36, 3 * samples), (Z16, 3 * samples)),
        "publish indicators": Cost(1, (n - 1) * sent, 0),
        "histogram": sums,
    }


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("features", [slice(4), np.array([1, 3]), np.array([0, 2, 3])])
@pytest.mark.parametrize("rows", [slice(50), np.array([0, 3, 4, 17, 49])])
def test_histograms_of_some_rows_and_features(n: int, rows: Any, features: Any) -> None:
    """Indicators are published once, for all rows and features."""
    owners, samples = (0, n - 1, 0, 1), 50
    bucket = some_buckets(CUTS, samples, n)
    chosen = tuple(np.array(CUTS)[features].tolist())
    x = integers(-(2**34), 2**34, (2, samples))[:, rows]

    def body(runtime: Runtime, share: Share) -> list[Share]:
        local_buckets = {j: bucket[j] for j, owner in enumerate(owners) if owner == runtime.index}
        indicators = publish_indicators(
            runtime, local_buckets, owners, cut_counts=CUTS, n_samples=samples, ring=Z36
        )
        products = IndicatorProducts(runtime, indicators.select(rows, features))
        return histogram(runtime, products, *mask(runtime, share, on_masks=products.start))

    found, _, views = on_shares(body, [(x.astype(np.int64).view(np.uint64), Z36)], n)
    expected = sums_by_cut(bucket[features][:, rows], chosen, x).view(np.uint64)
    assert (found == Z36.reduce_modulus(expected)).all()
    assert measured_steps(views)["histogram"] == dealt((Z36, sum(chosen) * 2))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("ring", [get_integer_ring(27), Z32], ids=lambda ring: ring.name)
def test_histograms_in_narrow_rings(n: int, ring: Ring) -> None:
    """Indicators are published in the ring of the widest sums."""
    owners, samples = (1, 0, 0, 1), 30
    bucket = some_buckets(CUTS, samples, n)
    x = integers(-(2**20), 2**20, (2, samples))

    def body(runtime: Runtime, share: Share) -> list[Share]:
        local_buckets = {j: bucket[j] for j, owner in enumerate(owners) if owner == runtime.index}
        indicators = publish_indicators(
            runtime, local_buckets, owners, cut_counts=CUTS, n_samples=samples, ring=ring
        )
        products = IndicatorProducts(runtime, indicators)
        return histogram(runtime, products, mask_value(runtime, share))

    found, _, views = on_shares(body, [(x.astype(ring.dtype), ring)], n)
    assert (found == ring.reduce_modulus(ring.to_elements(sums_by_cut(bucket, CUTS, x)))).all()
    sent = sum(ring.count_packed_bytes(count * samples) for count in CUTS)
    assert measured_steps(views)["publish indicators"] == Cost(1, (n - 1) * sent, 0)


@pytest.mark.parametrize("n", PARTIES)
def test_histograms_of_public_values(n: int) -> None:
    """One of two vectors is a constant, which has no mask, or both are."""
    rng = np.random.default_rng(n)
    owners, samples = (0, n - 1, 0, 1), 50
    bucket = some_buckets(CUTS, samples, n)
    g = rng.integers(-(2**34), 2**34, (2, samples))
    known = rng.integers(0, 2**15, (1, samples)).astype(np.uint16)

    def body(runtime: Runtime, a: Share) -> list[Share]:
        local_buckets = {j: bucket[j] for j, owner in enumerate(owners) if owner == runtime.index}
        indicators = publish_indicators(
            runtime, local_buckets, owners, cut_counts=CUTS, n_samples=samples, ring=Z36
        )
        products = IndicatorProducts(runtime, indicators)
        constants = mask_constant(runtime, known, Z16)
        masked_g, *_ = mask(runtime, a, on_masks=products.start)
        first = histogram(runtime, products, constants, masked_g)
        return [*first, *histogram(runtime, IndicatorProducts(runtime, indicators), constants)]

    found, _, _ = on_shares(body, [(g.view(np.uint64), Z36)], n)
    expected = sums_by_cut(bucket, CUTS, known.astype(np.int64)) % 2**16
    assert (found[0] == expected).all()
    assert (found[2] == expected).all()
    assert (Z36.reduce_modulus(sums_by_cut(bucket, CUTS, g).view(np.uint64)) == found[1]).all()


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(
    "rings",
    [(Z16,), (Z36,), (Z36, get_integer_ring(29)), (Z64, Z16, get_integer_ring(33))],
    ids=lambda rings: "-".join(ring.name for ring in rings),
)
def test_route_rows(n: int, rings: tuple[Ring, ...]) -> None:
    """With vectors over several rings, the widest first, and the same bits."""
    rng = np.random.default_rng(0)
    vectors = [
        rng.integers(0, 2**63, (4 - k, COUNT)).astype(ring.dtype) for k, ring in enumerate(rings)
    ]
    goes_right = rng.integers(0, 2, COUNT).astype(np.uint8)

    def body(runtime: Runtime, *shares: Share) -> list[Share]:
        local_bits = goes_right if runtime.index == 1 else None
        bits, *masked = mask(runtime, share_trivially(runtime, local_bits, (COUNT,), Z1), *shares)
        return route_rows(runtime, bits, *masked)

    found, cost, _ = on_shares(body, list(zip(vectors, rings, strict=True)), n)
    for kept, x, ring in zip(found if len(rings) > 1 else [found], vectors, rings, strict=True):
        assert (kept == ring.reduce_modulus(x) * (1 - goes_right).astype(ring.dtype)).all()
    sizes = [(ring, len(x) * COUNT) for x, ring in zip(vectors, rings, strict=True)]
    assert cost == opened(n, (Z1, COUNT), *sizes) + dealt((rings[0], COUNT), *sizes)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("ring", [Z64, Z32, Z36], ids=lambda ring: ring.name)
def test_leaf_lookup(n: int, depth: int, outputs: int, ring: Ring) -> None:
    """With splits of one owner, and of several."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**63, (outputs, 1 << depth), dtype=np.uint64).astype(ring.dtype)
    goes_right = rng.integers(0, 2, (depth, COUNT)).astype(np.uint8)
    leaf = sum(goes_right[level].astype(int) << (depth - 1 - level) for level in range(depth))
    owners = rng.integers(0, n, depth)

    def body(runtime: Runtime, share: Share) -> list[Share]:
        bits_of_one = goes_right if runtime.index == 0 else None
        masked_one = mask_value(runtime, share_trivially(runtime, bits_of_one, (depth, COUNT), Z1))
        bits_of_all = (
            goes_right * (owners == runtime.index)[:, None] if runtime.index >= 0 else None
        )
        masked_all = mask_value(runtime, share_trivially(runtime, bits_of_all, (depth, COUNT), Z1))
        masked = mask_value(runtime, share)
        return [look_up_leaves(runtime, b, masked) for b in (masked_one, masked_all)]

    found, cost, _ = on_shares(body, [(values, ring)], n)
    for result in found:
        assert (result == ring.reduce_modulus(values[:, leaf])).all()
    masking = opened(n, (Z1, depth * COUNT)) * 2 + opened(n, (ring, outputs << depth))
    looked = dealt((ring, COUNT << depth), (ring, outputs * COUNT << depth)) * 2
    assert cost == masking + looked


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("bits", [40, 46, 48])
def test_sigmoid_series(n: int, bits: int) -> None:
    """The sigmoid and its derivative on all of [-16, 16], within the stated error."""
    x = np.linspace(-16, 16, 401)
    fixed = np.rint(x * 2.0**SCORE_BITS).astype(np.int64).astype(np.uint32)

    def body(runtime: Runtime, share: Share) -> Share:
        return evaluate_sigmoid(runtime, mask_value(runtime, share), bits=bits)

    found, cost, _ = on_shares(body, [(fixed, Z32)], n)
    p, h = signed(found) / 2.0**bits
    true = 1 / (1 + np.exp(-x))
    # 56 coefficients, each off by half a unit at most, times derived sines and cosines up to 1; and
    # 56 of these, off by half a unit, times coefficients that add up to less than 2. Copies of the
    # sigmoid 32 away add exp(|x| - 32), and the omitted harmonics 3e-8 and 2e-7.
    sine_bits = bits // 2 - 1
    rounding = 28 * 2.0 ** -(bits - sine_bits) + 2 * 2.0**-sine_bits
    copies = np.exp(np.abs(x) - 32)
    assert (np.abs(p - true) <= rounding + copies + 3e-8).all()
    assert (np.abs(h - true * (1 - true)) <= rounding + copies + 2e-7).all()
    assert N_SIGMOID_HARMONICS == 28
    assert cost == opened(n, (Z32, 401)) + dealt((Z64, 2 * 28 * 401))


def test_sigmoid_coefficients() -> None:
    """The coefficients, in closed form, have the error stated in the gate's docstring."""
    x = np.linspace(-16, 16, 2001)
    w = (2 * np.arange(28) + 1) * 2 * np.pi / 64
    b, slope = (np.array(values) / 2.0**31 for values in compute_sigmoid_coefficients())
    true = 1 / (1 + np.exp(-x))
    copies = np.exp(np.abs(x) - 32)
    p = 0.5 + np.sin(np.outer(x, w)) @ b
    h = np.cos(np.outer(x, w)) @ slope
    assert (np.abs(p - true) <= copies + 3e-8).all()
    assert (np.abs(h - true * (1 - true)) <= copies + 2e-7).all()
    assert b == pytest.approx(np.pi / 16 / np.sinh(np.pi * w), abs=2.0**-31)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("bits", [9, 20, 28, 32])
@pytest.mark.parametrize("scaled", [False, True])
def test_fourier_series(n: int, bits: int, scaled: bool) -> None:
    """Two series of the same harmonics, with sines, cosines and constants, within the rounding of
    coefficients and derived sines and cosines."""
    rng = np.random.default_rng(bits)
    ring, multiples = get_integer_ring(bits), (1, 2, 5)
    x = rng.integers(0, 1 << bits, (2, 50))
    a, b = rng.integers(-(3 << 28), 3 << 28, (2, 2, 3))
    constants = (1 << 29, -12345678)
    series = [
        FourierSeries(multiples, constants[0], tuple(a[0].tolist()), (0, 0, 0), 28),
        FourierSeries(multiples, constants[1], tuple(a[1].tolist()), tuple(b[1].tolist()), 28),
    ]
    scale = rng.integers(0, 1 << SCALE_BITS, (2, 1), endpoint=True) if scaled else None
    if scale is not None:
        scale[0] = 1 << SCALE_BITS

    def body(runtime: Runtime, share: Share) -> Share:
        masked = mask_value(runtime, share)
        return evaluate_fourier(runtime, masked, series, scale, correlation_bits=30, public_bits=26)

    found, cost, _ = on_shares(body, [(x.astype(ring.dtype), ring)], n)
    angle = 2 * np.pi * x / 2.0**bits
    factor = 1.0 if scale is None else scale / 2.0**SCALE_BITS
    for row, each in enumerate(series):
        exact = np.full(x.shape, each.constant / 2.0**28)
        for k, multiple in enumerate(multiples):
            exact += each.sines[k] / 2.0**28 * np.sin(multiple * angle)
            exact += each.cosines[k] / 2.0**28 * np.cos(multiple * angle)
        # Two coefficients a harmonic are off by half a unit of 26 bits, and by the rounding of
        # public terms of 30 bits and of the product with a scale of 28 bits, times 6; two derived
        # terms are off by half a unit of 30 bits, times 6.
        bound = 7 * 2.0**-27 + 3 * 2 * (6 * 2.0**-29 + 6 * 2.0**-30)
        bound += 2.0**-30 * 8 * bool(scaled)
        assert np.abs(signed(found[row]) / 2.0**56 - exact * factor).max() <= bound
    assert cost == opened(n, (ring, 100)) + dealt((Z64, 2 * 3 * 100))


PERIODS = [Fraction(3, 2), Fraction(22, 15), Fraction(19, 13), Fraction(8, 5)]


@pytest.mark.parametrize("ratio", range(2, 8))
@pytest.mark.parametrize("period", PERIODS, ids=str)
def test_reciprocal_series(ratio: int, period: Fraction) -> None:
    """Relative error up to 2^-24 from LOW / R to HIGH, and coefficients whose products do not
    overflow."""
    series = build_reciprocal_series(ratio, period)
    x = np.linspace(float(RECIPROCAL_LOW) / ratio, float(RECIPROCAL_HIGH), 4001)
    angle = 2 * np.pi * x / float(period)
    value = np.full(x.shape, series.constant / 2.0**series.coefficient_bits)
    for k, a, b in zip(series.harmonics, series.sines, series.cosines, strict=True):
        value += (a * np.sin(k * angle) + b * np.cos(k * angle)) / 2.0**series.coefficient_bits
    assert np.abs(value * x - 1).max() <= 2.0**-24
    assert len(series.harmonics) == 2 * ratio + 4
    assert (
        max(map(abs, (series.constant, *series.sines, *series.cosines)))
        < 16 << series.coefficient_bits
    )


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("bits", [31, 40])
def test_softplus_series(n: int, bits: int) -> None:
    """The even part of the logistic loss on all of [-16, 16]."""
    x = np.linspace(-16, 16, 401)
    fixed = np.rint(x * 2.0**SCORE_BITS).astype(np.int64).astype(np.uint32)

    def body(runtime: Runtime, share: Share) -> Share:
        return evaluate_softplus(runtime, mask_value(runtime, share), bits=bits)

    found, cost, _ = on_shares(body, [(fixed, Z32)], n)
    loss = signed(found) / 2.0**bits
    # 36 coefficients, off by half a unit at most, times derived sines and cosines up to 1; and
    # these, off by half a unit, times coefficients of which sine and cosine add up to less than
    # 8 sqrt(2).
    sine_bits = bits // 2 - 1
    rounding = 18 * 2.0 ** -(bits - sine_bits) + 4 * 2**0.5 * 2.0**-sine_bits
    assert (np.abs(loss - np.logaddexp(x / 2, -x / 2)) <= rounding + 3e-6).all()
    assert len(compute_softplus_coefficients()) == 18
    assert cost == opened(n, (Z32, 401)) + dealt((Z64, 2 * 18 * 401))


def test_softplus_coefficients() -> None:
    """The coefficients, in closed form, have the error stated in the gate's docstring."""
    x = np.linspace(-16, 16, 2001)
    w = (2 * np.arange(18) + 1) * 2 * np.pi / 64
    factors = np.array(compute_softplus_coefficients()) / 2.0**28
    found = 8 + np.cos(np.outer(x, w)) @ factors
    error = np.abs(found - np.logaddexp(x / 2, -x / 2)).max()
    assert 1e-6 < error < 3e-6


@pytest.mark.parametrize("n", PARTIES)
def test_reduce_ring(n: int) -> None:
    """Over the whole ring of the result, rounded down or up, and unbiased."""
    x = integers(-(2**35) + 1, 2**35 - 1, 4000) * 2**28 // 2**7

    def body(runtime: Runtime, share: Share) -> Any:
        (masked,) = reduce_ring(runtime, share, dropped_bits=(21,), rings=(Z36,))
        return masked.to_share(runtime)

    found, cost, _ = on_shares(body, [(x.view(np.uint64), Z64)], n)
    error = signed((found - (x >> 21).view(np.uint64)) << np.uint64(28)) >> 28
    assert np.isin(error, (0, 1)).all()
    exact = (x - ((x >> 21) << 21)) / 2.0**21
    assert abs(np.mean(error - exact)) < 5 / np.sqrt(12 * 4000)
    assert cost == opened(n, (get_integer_ring(36 + 21), 4000)) + dealt((Z36, 4000))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("bits", [0, 1, 2])
def test_reduce_ring_by_few_bits(n: int, bits: int) -> None:
    """Only the bits that matter are opened."""
    x = integers(-(2**34), 2**34)

    def body(runtime: Runtime, share: Share) -> Any:
        (masked,) = reduce_ring(runtime, share, dropped_bits=(bits,), rings=(Z36,))
        return masked.to_share(runtime)

    found, cost, _ = on_shares(body, [(x.view(np.uint64), Z64)], n)
    rounded = Z36.reduce_modulus(found - (x >> bits).view(np.uint64))
    assert np.isin(rounded, (0, 1) if bits else (0,)).all()
    assert cost == opened(n, (get_integer_ring(36 + bits), COUNT)) + dealt((Z36, COUNT))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(
    ("wide", "bits", "ring"),
    [
        (Z64, 0, Z64),
        (Z64, 1, Z36),
        (Z64, 2, Z32),
        (Z64, 28, Z36),
        (Z64, 48, Z16),
        (Z36, 9, get_integer_ring(27)),
        (Z32, 4, get_integer_ring(28)),
        (get_integer_ring(47), 7, Z36),
        (get_integer_ring(33), 5, get_integer_ring(28)),
        (Z16, 3, Z8),
    ],
)
def test_truncate_locally(n: int, wide: Ring, bits: int, ring: Ring) -> None:
    """Without a message: within n / 2 units, and unbiased to within half of a dropped bit."""
    size = 1 << min(ring.bits + bits - 2, 61)
    x = integers(-size, size, 4000)
    found, cost, _ = on_shares(
        lambda runtime, share: truncate_locally(runtime, share, bits, ring),
        [(wide.reduce_modulus(x.astype(wide.dtype)), wide)],
        n,
    )
    shift = np.uint64(64 - ring.bits)
    difference = found.astype(np.uint64) - (x >> bits).view(np.uint64)
    error = (signed(difference << shift) >> shift.astype(np.int64)) - (x % (1 << bits)) / 2.0**bits
    assert np.abs(error).max() <= n / 2
    # With an odd number of participants, the mean loss is not an integer: half a bit is left.
    odd = n % 2 * bool(bits) * 2.0 ** -(bits + 1)
    assert abs(np.mean(error) + odd) <= 5 * np.sqrt(n / 12 / 4000)
    assert cost == Cost()


@pytest.mark.parametrize("n", PARTIES)
def test_reduce_ring_of_several_values(n: int) -> None:
    """To several rings, in one opening."""
    x, y = integers(-(2**40), 2**40), integers(0, 2**45, seed=1)

    def body(runtime: Runtime, a: Share, b: Share) -> Any:
        found = reduce_ring(runtime, a, b, dropped_bits=(20, 31), rings=(Z36, Z16))
        return [masked.to_share(runtime) for masked in found]

    inputs: list[tuple[np.ndarray, Ring]] = [(x.view(np.uint64), Z64), (y.view(np.uint64), Z64)]
    (first, second), cost, _ = on_shares(body, inputs, n)
    assert np.isin(Z36.reduce_modulus(first - (x >> 20).view(np.uint64)), (0, 1)).all()
    assert np.isin(second.astype(int) - (y >> 31), (0, 1)).all()
    wide = [(get_integer_ring(bits), COUNT) for bits in (36 + 20, 16 + 31)]
    assert cost == opened(n, *wide) + dealt((Z36, COUNT), (Z16, COUNT))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("bits", [1, 20, 41])
def test_exact_quotients(n: int, bits: int) -> None:
    """Under any mask, also for numbers just below and at a multiple."""
    rng = np.random.default_rng(0)
    unit = 1 << bits
    multiples = rng.integers(0, 1 << (62 - bits), 40).astype(np.uint64) * np.uint64(unit)
    x = np.concatenate([multiples, multiples + np.uint64(unit - 1), multiples + np.uint64(1)])

    def body(runtime: Runtime, share: Share) -> Share:
        masked = mask_value(runtime, share)
        return divide_masked_exactly(
            runtime, masked, bits, run_deferred(runtime, defer_borrow_comparison(masked, bits))
        )

    found, _, views = on_shares(body, [(x, Z64)], n)
    assert (found == x >> np.uint64(bits)).all()
    assert not nonuniform([c for view in views for c in view.opened])


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("bits", [1, 6, 8])
def test_round_exactly(n: int, bits: int) -> None:
    """To the nearest multiple, halves up, under any mask: the same every time."""
    x = np.concatenate([np.arange(-600, 600), [-(2**31), 2**31 - 1 - 2**bits]])

    def body(runtime: Runtime, share: Share) -> Share:
        return round_exactly(runtime, share, dropped_bits=bits)

    for _ in range(2):
        found, cost, _ = on_shares(body, [(x.astype(np.int32).view(np.uint32), Z32)], n)
        assert (signed(found) == np.floor(x / 2**bits + 0.5) * 2**bits).all()
    assert cost == opened(n, (Z8, len(x))) + dealt((Z32, len(x) << bits))


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("bits", [1, 2, 8, 13])
def test_divide_exactly(n: int, bits: int) -> None:
    """Halves go up, for any shares: a function of the value alone, which keeps order."""
    rng = np.random.default_rng(3)
    near = np.arange(-40, 41) << max(0, bits - 2)
    values = np.concatenate([near, near + 1, rng.integers(-(1 << 40), 1 << 40, size=300)])
    values = values[np.abs(values) < (1 << 30) << bits]

    def body(runtime: Runtime, share: Share) -> Share:
        return divide_exactly(runtime, share, bits, Z32)

    found, cost, _ = on_shares(body, [(Z64.to_elements(values), Z64)], n)
    expected = np.floor_divide(values + (1 << (bits - 1)), 1 << bits)
    assert (found.astype(np.int32) == expected).all()
    assert cost.rounds == 2


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(("ring", "larger"), [(Z16, Z36), (Z16, Z64), (Z36, Z36), (Z64, Z64)])
@pytest.mark.parametrize("shift", [0, 3])
def test_squares(n: int, ring: Ring, larger: Ring, shift: int) -> None:
    """Squares of lifted values with one mask and with two stay lifted, and can be scaled."""
    limit = min((1 << (ring.bits - 2)) - 1, (1 << (larger.bits // 2 - 3)) - 1)
    x = integers(-limit, limit)

    def body(runtime: Runtime, share: Share) -> list[Share]:
        lifted = lift_signed(runtime, mask_value(runtime, share), shift=shift, ring=larger)
        squared = square_lifted(runtime, lifted)
        assert len(squared.masks) == 2 * len(lifted.masks)
        return [
            lifted.to_share(runtime),
            squared.to_share(runtime),
            (squared.scale(3) + 7).to_share(runtime),
        ]

    (root, squares, more), cost, _ = on_shares(body, [(x.astype(ring.dtype), ring)], n)
    spare = np.uint64(64 - larger.bits)
    value = signed(root.astype(np.uint64) << spare) >> spare.astype(np.int64)
    assert np.isin(value - (x >> shift), (0, 1) if shift else (0,)).all()
    assert (squares == value * value).all()
    assert (more == 3 * value * value + 7).all()
    masks = 2 if ring.bits - shift < larger.bits else 1
    assert cost == opened(n, (ring, COUNT)) + dealt(*[(larger, COUNT)] * 2 * masks)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("ring", [Z16, get_integer_ring(29), Z36, Z64], ids=lambda ring: ring.name)
@pytest.mark.parametrize("count", [1, 9])
def test_select(n: int, ring: Ring, count: int) -> None:
    """Sums of values times the elements of a vector: one of them, none, or a mixture."""
    rng = np.random.default_rng(count)
    x = rng.integers(0, 1 << 63, (count, 2, 4)).astype(ring.dtype)
    hot = np.zeros((3, count), dtype=ring.dtype)
    hot[0, count // 2] = 1
    hot[2] = rng.integers(0, 1 << 63, count).astype(ring.dtype)

    def body(runtime: Runtime, a: Share, b: Share) -> list[Share]:
        masked_hot, values = mask(runtime, a, b)
        return [select(runtime, masked_hot[row], values) for row in range(3)]

    found, cost, _ = on_shares(body, [(hot, ring), (x, ring)], n)
    assert (found[0] == ring.reduce_modulus(x[count // 2])).all()
    assert not found[1].any()
    mixed = sum(x[i].astype(object) * int(hot[2, i]) for i in range(count)) % (1 << ring.bits)
    assert (found[2].astype(object) == mixed).all()
    assert cost == opened(n, (ring, 3 * count), (ring, 8 * count)) + dealt(*[(ring, 8)] * 3)


@pytest.mark.parametrize("n", PARTIES)
def test_two_gates_with_one_opening(n: int) -> None:
    """Results are those of separate gates; corrections count in each gate, the opening outside."""
    x, y = integers(-(2**34), 2**34), integers(0, 2**15 - 1, 90, seed=1)
    p = np.arange(90) % 4

    def body(apart: bool) -> Callable[..., list[Share]]:
        def run(runtime: Runtime, a: Share, b: Share, position: Share) -> list[Share]:
            masked, small = mask(runtime, a, b)
            comparing = compare.defer(masked, thresholds=(0, 77), width=36, digits=5)
            looking = look_up.defer(position, [small], size=4)
            if apart:
                reached, selection = (
                    run_deferred(runtime, comparing),
                    run_deferred(runtime, looking),
                )
            else:
                with runtime.step("both"):
                    reached, selection = run_together(runtime, comparing, looking)
            found = multiply_by_step(
                runtime, reached, make_lifted_one(runtime, x.shape, Z8), factors=(0, 1, 2)
            )
            return [found, entries_of(selection, np.array([1, 10, 100, 1000]), 0)]

        return run

    inputs: list[tuple[np.ndarray, Ring]] = [
        (x.astype(np.uint64), Z36),
        (y.astype(np.uint16), Z16),
        (p.astype(np.uint8), Z8),
    ]
    costs = {}
    for apart in (True, False):
        (counts, entries), cost, views = on_shares(body(apart), inputs, n)
        assert (counts == (x >= 0).astype(int) + (x >= 77)).all()
        assert (entries == (y * 10**p) % 2**16).all()
        costs[apart] = cost
    steps = measured_steps(views)
    opening = opened(n, (get_integer_ring(5), 2 * COUNT), (Z8, 90))
    assert steps["both"] == opening
    assert steps["both/compare"] == Cost(
        offline_bytes=compare_cost(n, 36, 5, 2, COUNT).offline_bytes
    )
    assert steps["both/lookup"] == dealt((Z16, 2 * 4 * 90))
    separate = opened(n, (get_integer_ring(5), 2 * COUNT)) + opened(n, (Z8, 90))
    assert costs[True].rounds - costs[False].rounds == separate.rounds - opening.rounds == 1
    assert (
        costs[True].online_bytes - costs[False].online_bytes
        == separate.online_bytes - opening.online_bytes
    )


@pytest.mark.parametrize("n", PARTIES)
def test_reveal_to_all(n: int) -> None:
    """All participants learn and record the value, with a separate or a shared opening."""
    x = np.array([3, 250, 0])
    cut = split(x.astype(np.uint8), Z8, n, 0)

    def program(runtime: Runtime, part: np.ndarray | None) -> Any:
        share = Share.unknown((3,), Z8) if part is None else Share(part, Z8)
        with runtime.step("end"):
            first = reveal_to_all(runtime, share, disclosure="counts")
            revealing, masking = reveal_to_all.defer(share, disclosure="counts"), mask.defer(share)
            second, (masked,) = run_together(runtime, revealing, masking)
        return first, second, masked.public

    views = play(program, n, cut)
    participants = tuple(f"party{k + 1}" for k in range(n))
    for view in views:
        first, second, public = view.result
        assert first.tolist() == second.tolist() == x.tolist()
        assert [
            (e.disclosure, e.recipients, e.n_elements, e.step) for e in view.ledger.entries
        ] == [
            ("counts", participants, 3, "end/tell all"),
            ("counts", participants, 3, "end"),
        ]
        assert (public.array == views[0].result[2].array).all()
    assert check_count(program, views) == {
        "end/tell all": opened(n, (Z8, 3)),
        "end": opened(n, (Z8, 3), (Z8, 3)),
    }
