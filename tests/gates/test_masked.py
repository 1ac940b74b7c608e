"""Gates on masked values: both halves against plain arithmetic, and the cost against the meter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.bit_planes import packed_length
from privet.arithmetic.rings import Z8, Z16, Z32, Z36, Z64, Ring, integers_modulo, signed
from privet.arithmetic.shares import Elements, Share, stack
from privet.gates.histogram import Products, histogram, publish
from privet.gates.lookup import lookup
from privet.gates.masked import (
    Lifted,
    Masked,
    combine,
    constant,
    lift,
    mask,
    mask_one,
    signed_lift,
)
from privet.gates.outcomes import Z1, keep, leaf_lookup, outcome_share
from privet.gates.polynomial import polynomial
from privet.gates.rounding import round_off
from privet.gates.shrink import shrink
from privet.gates.sigmoid_series import HARMONICS, SCORE_BITS, coefficients, sigmoid_series
from privet.gates.threshold import count_reached
from privet.gates.truncate import drop_bits
from privet.runtime.counter import Cost
from privet.runtime.runtime import Runtime
from tests.gates.test_gates import split
from tests.runtime.harness import View, check_count, measured_steps, play
from tests.runtime.test_party import opening_cost

PARTIES = (2, 3, 5)
COUNT = 60


def on_shares(
    body: Callable[..., Any], inputs: list[tuple[np.ndarray, Ring]], n: int
) -> tuple[Any, Cost, list[View]]:
    """Run `body(runtime, *shares)` on shares that were cut beforehand; add up what it returns.

    Every step costs what a counter says.
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
        ring.reduce(ring.sum(np.stack([view.result[i][0] for view in views]), 0))
        for i, (_, ring) in enumerate(views[0].result)
    ]
    for view in views:
        assert view.ledger.entries == []
    cost = sum(check_count(program, views).values(), start=Cost())
    return (totals if len(totals) > 1 else totals[0]), cost, views


def dealt(*arrays: tuple[Ring, int]) -> Cost:
    """What corrections of arrays of some rings and sizes cost."""
    return Cost(offline=sum(ring.wire_bytes(size) for ring, size in arrays))


def opened(n: int, *vectors: tuple[Ring, int]) -> Cost:
    """What opening some vectors together costs; slices of odd widths are packed one by one."""
    if len({ring for ring, _ in vectors}) == 1:
        vectors = ((vectors[0][0], sum(size for _, size in vectors)),)
    cost = opening_cost(sum(ring.wire_bytes(size) for ring, size in vectors), n)
    if cost.rounds == 1:
        return cost
    sliced = sum(
        ring.wire_bytes(size * (k + 1) // n - size * k // n)
        for ring, size in vectors
        for k in range(n)
    )
    return Cost(2, 2 * (n - 1) * sliced)


def integer(runtime: Runtime, x: Lifted) -> Share:
    """A lifted value as a share."""
    return polynomial(runtime, [x], [(1, (0,))])


def integers(low: int, high: int, shape: Any = COUNT, seed: int = 0) -> np.ndarray:
    """Random integers, among them the extreme ones."""
    rng = np.random.default_rng(seed)
    values = rng.integers(low, high, shape, endpoint=True)
    ends = rng.choice([low, high, 0 if low <= 0 <= high else low], shape)
    return np.asarray(np.where(rng.random(shape) < 0.3, ends, values))


RINGS = [integers_modulo(bits) for bits in (8, 11, 16, 32, 33, 36, 47, 64)]


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)
def test_masking_and_lifting(n: int, ring: Ring) -> None:
    """A value of w - 1 bits comes back as an integer, whatever its mask."""
    x = integers(0, (1 << (ring.bits - 1)) - 1)

    def body(runtime: Runtime, share: Share) -> Any:
        return integer(runtime, lift(runtime, mask_one(runtime, share)))

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
        return integer(runtime, lift(runtime, mask_one(runtime, share), shift=shift))

    found, cost, _ = on_shares(body, [(x.astype(ring.dtype), ring)], n)
    assert np.isin(signed(found) - (x >> shift), (0, 1)).all()
    assert cost == opened(n, (ring, COUNT)) + dealt((Z64, COUNT), (Z64, COUNT))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(
    ("ring", "shift", "larger"), [(Z16, 0, Z32), (Z16, 3, Z36), (Z36, 4, Z36), (Z64, 28, Z36)]
)
def test_lifting_of_negative_values(n: int, ring: Ring, shift: int, larger: Ring) -> None:
    """To rings between, and to one in which the top bit of the mask vanishes."""
    x = integers(-(1 << (ring.bits - 2)), (1 << (ring.bits - 2)) - 1)

    def body(runtime: Runtime, share: Share) -> Any:
        lifted = signed_lift(runtime, mask_one(runtime, share), shift=shift, ring=larger)
        return integer(runtime, lifted)

    found, cost, _ = on_shares(body, [(x.astype(ring.dtype), ring)], n)
    difference = (found.astype(np.int64) - (x >> shift)) % (1 << larger.bits)
    assert np.isin(difference, (0, 1) if shift else (0,)).all()
    masks = 2 if ring.bits - shift < larger.bits else 1
    assert cost == opened(n, (ring, COUNT)) + dealt(*[(larger, COUNT)] * masks)


@pytest.mark.parametrize("n", PARTIES)
def test_masked_values(n: int) -> None:
    """They are added to, subtracted, rearranged and turned into shares as what they stand for."""
    x, y = integers(-(2**30), 2**30), integers(-(2**30), 2**30, seed=1)

    def body(runtime: Runtime, a: Share, b: Share) -> list[Share]:
        one, two = mask(runtime, a, b)
        known = constant(runtime, np.arange(COUNT, dtype=np.uint32), Z32)
        assert known.constant
        assert not one.constant
        values = (
            one,
            one + 5,
            one + np.arange(COUNT),
            one - two,
            one[2:7],
            one.map(lambda v: v.reshape(2, -1).sum(1)),
            combine(stack, one, two),
            known,
            one - known,
        )
        return [value.share(runtime) for value in values]

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
def test_masks_can_be_worked_on_while_they_are_opened(n: int) -> None:
    """Everybody but a counter has what it needs of them: the dealer all, participants shares."""
    x, y = integers(0, 2**30), integers(0, 2**14, seed=1)
    seen: dict[tuple[str, int], list[np.ndarray]] = {}

    def body(runtime: Runtime, a: Share, b: Share) -> Any:
        def meanwhile(name: str) -> Callable[[list[Elements]], None]:
            def begin(masks: list[Elements]) -> None:
                seen[name, runtime.index] = [m.array.copy() for m in masks]

            return begin

        masked = mask(runtime, a, b, meanwhile=meanwhile("mask"))
        wide = [v * 2**20 for v in (a, a)]
        small = shrink(
            runtime, *wide, bits=(20, 24), rings=(Z32, Z36), meanwhile=meanwhile("shrink")
        )
        return [v.share(runtime) for v in (*masked, *small)]

    inputs: list[tuple[np.ndarray, Ring]] = [(x.view(np.uint64), Z64), (y.astype(np.uint16), Z16)]
    found, _, _ = on_shares(body, inputs, n)
    assert (found[0] == x.view(np.uint64)).all()
    assert (found[1] == y).all()
    for name, rings in (("mask", (Z64, Z16)), ("shrink", (Z32, Z36))):
        for k, ring in enumerate(rings):
            total = ring.sum(np.stack([seen[name, index][k] for index in range(n)]), 0)
            assert (ring.reduce(total) == ring.reduce(seen[name, -1][k])).all()
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
    # Two masks each but of z: 3 products of x's own, 2 * 2 of one of each, 3 * 2 of two of x's.
    masking = opened(n, (Z16, COUNT), (Z32, COUNT), (Z64, COUNT))
    assert cost == masking + dealt(*[(Z64, COUNT)] * 5) + dealt((Z64, 13 * COUNT))


@pytest.mark.parametrize("n", PARTIES)
def test_polynomials_broadcast(n: int) -> None:
    x, y = integers(0, 2**15 - 1, (3, 1)), integers(-(2**14), 2**14 - 1, (2, 1, 4), seed=1)

    def body(runtime: Runtime, a: Share, b: Share) -> Any:
        one, two = mask(runtime, a, b)
        values = [lift(runtime, one), signed_lift(runtime, two).times(3) + 1]
        return polynomial(runtime, values, [(2, (0, 1)), (10, ())])

    inputs: list[tuple[np.ndarray, Ring]] = [(x.astype(np.uint16), Z16), (y.astype(np.uint16), Z16)]
    found, cost, _ = on_shares(body, inputs, n)
    assert (signed(found) == 2 * x * (3 * y + 1) + 10).all()
    lifted = dealt(*[(Z64, 3)] * 2, *[(Z64, 8)] * 2)
    assert cost == opened(n, (Z16, 3), (Z16, 8)) + lifted + dealt((Z64, 4 * 24))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(("width", "digit"), [(16, 8), (16, 5), (31, 8), (9, 3)])
def test_thresholds(n: int, width: int, digit: int) -> None:
    x = integers(0, (1 << (width - 1)) - 1)
    thresholds = [0, 1, 2, 100, (1 << (width - 1)) - 1, int(x[0]), int(x[1]) + 1]

    def body(runtime: Runtime, share: Share) -> Share:
        masked = mask_one(runtime, share)
        return count_reached(
            runtime, masked, thresholds=tuple(thresholds), width=width, digit=digit
        )

    found, cost, _ = on_shares(body, [(x.astype(np.uint32), Z32)], n)
    assert (found == sum((x >= t).astype(int) for t in thresholds)).all()
    # For L digits, 2L - 1 tables with a row for each value of the digit, and as many bits to open;
    # the borrow is a sum of products of the upper digits' equal with a digit's greater.
    lengths = [min(digit, width - 1 - start) for start in range(0, width - 1, digit)]
    digits, count = len(lengths), packed_length(COUNT)
    rows = sum((1 << length) * (1 if i == 0 else 2) for i, length in enumerate(lengths))
    keys = (1 << (digits - 1)) + sum(1 << k for k in range(digits))
    numbers = (1 + keys * len(thresholds)) * COUNT
    bits = opening_cost((2 * digits - 1) * len(thresholds) * count, n)
    assert cost == opened(n, (Z32, COUNT)) + bits + Cost(offline=rows * count + numbers)


@pytest.mark.parametrize("n", PARTIES)
def test_comparing_masked_values(n: int) -> None:
    """Differences of masked values are masked, so they are compared without opening them."""
    x = integers(-(2**46), 2**46)
    x[:10] = x[10:20]

    def body(runtime: Runtime, share: Share) -> Share:
        masked: Masked = mask_one(runtime, share)
        difference = masked.map(lambda a: a[:30]) - masked.map(lambda a: a[30:])
        return count_reached(runtime, difference, thresholds=(0,), width=48)

    x[30:40] = x[:10]
    found, _, _ = on_shares(body, [(x.view(np.uint64), Z64)], n)
    assert (found == (x[:30] >= x[30:])).all()


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("drop", [0, 3, 16])
def test_comparing_the_high_bits(n: int, drop: int) -> None:
    """Of masked values without their low bits: right but for those within a unit of the bound."""
    x = integers(-(2**46), 2**46)

    def body(runtime: Runtime, share: Share) -> Share:
        masked = mask_one(runtime, share).high_bits(drop)
        return count_reached(runtime, masked, thresholds=(0, 1000), width=48)

    found, _, _ = on_shares(body, [(x.view(np.uint64), Z64)], n)
    for sample, count in zip(x.tolist(), found.tolist(), strict=True):
        # Rounded down, or up by one.
        options = {sum(v >= t for t in (0, 1000)) for v in (sample >> drop, (sample >> drop) + 1)}
        assert count in (options if drop else {sum(sample >= t for t in (0, 1000))})


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("size", [1, 2, 16])
def test_lookups(n: int, size: int) -> None:
    """Entries at shared positions, times values with one mask or two."""
    rng = np.random.default_rng(size)
    position = rng.integers(0, size, COUNT)
    x, y = integers(0, 2**31 - 1), integers(0, 2**15 - 1, seed=1)
    table = rng.integers(-1000, 1000, size)

    def body(runtime: Runtime, p: Share, a: Share, b: Share) -> list[Share]:
        masked_a, masked_b = mask(runtime, a, b)
        factors: list[Masked | Lifted] = [masked_a, lift(runtime, masked_b)]
        selection = lookup(runtime, p, factors, size=size)
        return [selection.pick(table, i) for i in range(2)]

    inputs: list[tuple[np.ndarray, Ring]] = [
        (position.astype(np.uint8), Z8),
        (x.astype(np.uint32), Z32),
        (y.astype(np.uint16), Z16),
    ]
    (one, two), cost, _ = on_shares(body, inputs, n)
    assert (signed(one) == (table[position] * x).astype(np.int32)).all()
    assert (signed(two) == table[position] * y).all()
    masking = opened(n, (Z32, COUNT), (Z16, COUNT)) + dealt((Z64, COUNT), (Z64, COUNT))
    hot = dealt((Z32, 2 * size * COUNT), (Z64, 3 * size * COUNT))
    assert cost == masking + opened(n, (Z8, COUNT)) + hot


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("early", [True, False])
def test_histograms(n: int, early: bool) -> None:
    """Sums over the samples that pass each cut, by buckets that only their owners know.

    Whether the masks are multiplied while they are opened, or after.
    """
    rng = np.random.default_rng(n)
    owners, cuts, samples = (0, n - 1, 0, 1), 7, 50
    bucket = rng.integers(0, cuts + 1, (len(owners), samples)).astype(np.uint8)
    g = rng.integers(-(2**34), 2**34, (3, samples))
    h = rng.integers(0, 2, (3, samples))

    def body(runtime: Runtime, a: Share, b: Share) -> list[Share]:
        own = {j: bucket[j] for j, owner in enumerate(owners) if owner == runtime.index}
        indicators = publish(runtime, own, owners, cuts=cuts, n_samples=samples)
        products = Products(runtime, indicators)
        masked_g, masked_h = mask(runtime, a, b, meanwhile=products.begin if early else None)
        return histogram(runtime, products, masked_g, masked_h)

    inputs: list[tuple[np.ndarray, Ring]] = [(g.view(np.uint64), Z36), (h.astype(np.uint16), Z16)]
    (sums_g, sums_h), _, views = on_shares(body, inputs, n)
    passes = bucket[:, None, :] <= np.arange(cuts)[:, None]
    expected = np.einsum("jbi,ki->jbk", passes.astype(np.int64), g)
    assert (Z36.reduce(expected.view(np.uint64)) == sums_g).all()
    assert (np.einsum("jbi,ki->jbk", passes.astype(np.int64), h) == sums_h).all()
    published = Cost(1, (n - 1) * 4 * Z36.wire_bytes(cuts * samples), 0)
    sums = dealt((Z36, 4 * cuts * 3), (Z16, 4 * cuts * 3))
    assert measured_steps(views) == {
        "mask": opened(n, (Z36, 3 * samples), (Z16, 3 * samples)),
        "publish indicators": published,
        "histogram": sums,
    }


@pytest.mark.parametrize("n", PARTIES)
def test_histograms_of_what_everybody_knows(n: int) -> None:
    """Constants have no mask: one of two vectors, or both."""
    rng = np.random.default_rng(n)
    owners, cuts, samples = (0, n - 1, 0, 1), 7, 50
    bucket = rng.integers(0, cuts + 1, (len(owners), samples)).astype(np.uint8)
    g = rng.integers(-(2**34), 2**34, (2, samples))
    known = rng.integers(0, 2**15, (1, samples)).astype(np.uint16)

    def body(runtime: Runtime, a: Share) -> list[Share]:
        own = {j: bucket[j] for j, owner in enumerate(owners) if owner == runtime.index}
        indicators = publish(runtime, own, owners, cuts=cuts, n_samples=samples)
        products = Products(runtime, indicators)
        constants = constant(runtime, known, Z16)
        masked_g, *_ = mask(runtime, a, meanwhile=products.begin)
        first = histogram(runtime, products, constants, masked_g)
        return [*first, *histogram(runtime, Products(runtime, indicators), constants)]

    found, _, _ = on_shares(body, [(g.view(np.uint64), Z36)], n)
    passes = (bucket[:, None, :] <= np.arange(cuts)[:, None]).astype(np.int64)
    expected = np.einsum("jbi,ki->jbk", passes, known.astype(np.int64)) % 2**16
    assert (found[0] == expected).all()
    assert (found[2] == expected).all()
    sums = np.einsum("jbi,ki->jbk", passes, g)
    assert (Z36.reduce(sums.view(np.uint64)) == found[1]).all()


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("ring", [Z16, Z36], ids=lambda ring: ring.name)
def test_keeping_what_passes(n: int, ring: Ring) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2**15, (4, COUNT))
    fails = rng.integers(0, 2, COUNT).astype(np.uint8)

    def body(runtime: Runtime, share: Share) -> Share:
        own = fails if runtime.index == 1 else None
        bits, masked = mask(runtime, outcome_share(runtime, own, (COUNT,)), share)
        return keep(runtime, bits, masked)

    found, cost, _ = on_shares(body, [(x.astype(ring.dtype), ring)], n)
    assert (found == x * (1 - fails)).all()
    assert cost == opened(n, (Z1, COUNT), (ring, 4 * COUNT)) + dealt((ring, 5 * COUNT))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("ring", [Z64, Z32, Z36], ids=lambda ring: ring.name)
def test_leaf_lookup(n: int, depth: int, outputs: int, ring: Ring) -> None:
    """With tests of one owner, and of several."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**63, (outputs, 1 << depth), dtype=np.uint64).astype(ring.dtype)
    fails = rng.integers(0, 2, (depth, COUNT)).astype(np.uint8)
    leaf = sum(fails[level].astype(int) << (depth - 1 - level) for level in range(depth))
    owners = rng.integers(0, n, depth)

    def body(runtime: Runtime, share: Share) -> list[Share]:
        own = fails if runtime.index == 0 else None
        bits = mask_one(runtime, outcome_share(runtime, own, (depth, COUNT)))
        mine = fails * (owners == runtime.index)[:, None] if runtime.index >= 0 else None
        spread = mask_one(runtime, outcome_share(runtime, mine, (depth, COUNT)))
        masked = mask_one(runtime, share)
        return [leaf_lookup(runtime, b, masked) for b in (bits, spread)]

    found, cost, _ = on_shares(body, [(values, ring)], n)
    for result in found:
        assert (result == ring.reduce(values[:, leaf])).all()
    masking = opened(n, (Z1, depth * COUNT)) * 2 + opened(n, (ring, outputs << depth))
    looked = dealt((ring, COUNT << depth), (ring, outputs * COUNT << depth)) * 2
    assert cost == masking + looked


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("bits", [40, 46, 48])
def test_sigmoid_series(n: int, bits: int) -> None:
    """The sigmoid and its derivative on all of [-16, 16], to what the series and rounding leave."""
    x = np.linspace(-16, 16, 401)
    fixed = np.rint(x * 2.0**SCORE_BITS).astype(np.int64).astype(np.uint32)

    def body(runtime: Runtime, share: Share) -> Share:
        return sigmoid_series(runtime, mask_one(runtime, share), bits=bits)

    found, cost, _ = on_shares(body, [(fixed, Z32)], n)
    p, h = signed(found) / 2.0**bits
    true = 1 / (1 + np.exp(-x))
    # 56 coefficients, each off by half a unit at most, times dealt waves of at most 1; and 56 dealt
    # waves, off by half a unit, times coefficients that add up to less than 2. Copies of the
    # sigmoid 32 away add exp(|x| - 32), and the harmonics left out 3e-8 and 2e-7.
    dealt_bits = bits // 2 - 1
    rounding = 28 * 2.0 ** -(bits - dealt_bits) + 2 * 2.0**-dealt_bits
    copies = np.exp(np.abs(x) - 32)
    assert (np.abs(p - true) <= rounding + copies + 3e-8).all()
    assert (np.abs(h - true * (1 - true)) <= rounding + copies + 2e-7).all()
    assert HARMONICS == 28
    assert cost == opened(n, (Z32, 401)) + dealt((Z64, 2 * 28 * 401))


def test_the_series_of_the_sigmoid() -> None:
    """Its coefficients, in closed form, have the error that the gate's docstring states."""
    x = np.linspace(-16, 16, 2001)
    w = (2 * np.arange(28) + 1) * 2 * np.pi / 64
    b, slope = (np.array(values) / 2.0**31 for values in coefficients())
    true = 1 / (1 + np.exp(-x))
    copies = np.exp(np.abs(x) - 32)
    p = 0.5 + np.sin(np.outer(x, w)) @ b
    h = np.cos(np.outer(x, w)) @ slope
    assert (np.abs(p - true) <= copies + 3e-8).all()
    assert (np.abs(h - true * (1 - true)) <= copies + 2e-7).all()
    assert b == pytest.approx(np.pi / 16 / np.sinh(np.pi * w), abs=2.0**-31)


@pytest.mark.parametrize("n", PARTIES)
def test_shrink(n: int) -> None:
    """Over the whole ring of the result, rounded to either side, and right on average."""
    x = integers(-(2**35) + 1, 2**35 - 1, 4000) * 2**28 // 2**7

    def body(runtime: Runtime, share: Share) -> Any:
        (masked,) = shrink(runtime, share, bits=(21,), rings=(Z36,))
        return masked.share(runtime)

    found, cost, _ = on_shares(body, [(x.view(np.uint64), Z64)], n)
    error = signed((found - (x >> 21).view(np.uint64)) << np.uint64(28)) >> 28
    assert np.isin(error, (0, 1)).all()
    exact = (x - ((x >> 21) << 21)) / 2.0**21
    assert abs(np.mean(error - exact)) < 5 / np.sqrt(12 * 4000)
    assert cost == opened(n, (integers_modulo(36 + 21), 4000)) + dealt((Z36, 4000))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("bits", [0, 1, 2])
def test_shrinking_by_few_bits(n: int, bits: int) -> None:
    """No more is opened than matters."""
    x = integers(-(2**34), 2**34)

    def body(runtime: Runtime, share: Share) -> Any:
        (masked,) = shrink(runtime, share, bits=(bits,), rings=(Z36,))
        return masked.share(runtime)

    found, cost, _ = on_shares(body, [(x.view(np.uint64), Z64)], n)
    rounded = Z36.reduce(found - (x >> bits).view(np.uint64))
    assert np.isin(rounded, (0, 1) if bits else (0,)).all()
    assert cost == opened(n, (integers_modulo(36 + bits), COUNT)) + dealt((Z36, COUNT))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(("bits", "ring"), [(0, Z64), (1, Z36), (2, Z32), (28, Z36), (48, Z16)])
def test_dropping_bits_from_shares(n: int, bits: int, ring: Ring) -> None:
    """Without a message: within n / 2 units, and right on average to half of a dropped bit."""
    size = 1 << min(ring.bits + bits - 2, 61)
    x = integers(-size, size, 4000)
    found, cost, _ = on_shares(
        lambda runtime, share: drop_bits(runtime, share, bits, ring), [(x.view(np.uint64), Z64)], n
    )
    shift = np.uint64(64 - ring.bits)
    difference = found.astype(np.uint64) - (x >> bits).view(np.uint64)
    error = (signed(difference << shift) >> shift.astype(np.int64)) - (x % (1 << bits)) / 2.0**bits
    assert np.abs(error).max() <= n / 2
    # Of an odd number of participants, the mean of what is lost is no integer: half a bit is left.
    odd = n % 2 * bool(bits) * 2.0 ** -(bits + 1)
    assert abs(np.mean(error) + odd) <= 5 * np.sqrt(n / 12 / 4000)
    assert cost == Cost()


@pytest.mark.parametrize("n", PARTIES)
def test_shrinking_several(n: int) -> None:
    """To several rings, in one opening."""
    x, y = integers(-(2**40), 2**40), integers(0, 2**45, seed=1)

    def body(runtime: Runtime, a: Share, b: Share) -> Any:
        found = shrink(runtime, a, b, bits=(20, 31), rings=(Z36, Z16))
        return [masked.share(runtime) for masked in found]

    inputs: list[tuple[np.ndarray, Ring]] = [(x.view(np.uint64), Z64), (y.view(np.uint64), Z64)]
    (one, two), cost, _ = on_shares(body, inputs, n)
    assert np.isin(Z36.reduce(one - (x >> 20).view(np.uint64)), (0, 1)).all()
    assert np.isin(two.astype(int) - (y >> 31), (0, 1)).all()
    wide = [(integers_modulo(bits), COUNT) for bits in (36 + 20, 16 + 31)]
    assert cost == opened(n, *wide) + dealt((Z36, COUNT), (Z16, COUNT))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("bits", [1, 6, 8])
def test_round_off(n: int, bits: int) -> None:
    """To the nearest multiple, halves up, whatever the masks: the same every time."""
    x = np.concatenate([np.arange(-600, 600), [-(2**31), 2**31 - 1 - 2**bits]])

    def body(runtime: Runtime, share: Share) -> Share:
        return round_off(runtime, share, bits=bits)

    for _ in range(2):
        found, cost, _ = on_shares(body, [(x.astype(np.int32).view(np.uint32), Z32)], n)
        assert (signed(found) == np.floor(x / 2**bits + 0.5) * 2**bits).all()
    assert cost == opened(n, (Z8, len(x))) + dealt((Z32, len(x) << bits))
