"""Gates on masked values: both halves against plain arithmetic, and the cost against the meter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.arithmetic.limbs import LimbMatrix
from privet.arithmetic.rings import Z8, Z16, Z32, Z36, Z64, Ring, signed
from privet.arithmetic.shares import Share
from privet.gates.choose import (
    Keep,
    LeafLookup,
    PublishBits,
    keep,
    leaf_lookup,
    publish_bits,
)
from privet.gates.gate import Cost
from privet.gates.histogram import Histogram, Publish, histogram, publish
from privet.gates.lookup import Lookup, lookup
from privet.gates.masked import Lift, Masked, OpenMasked, lift, mask
from privet.gates.polynomial import Polynomial, polynomial
from privet.gates.rounding import RoundOff, round_off
from privet.gates.shrink import Shrink, shrink
from privet.gates.threshold import CountReached, count_reached
from privet.gates.waves import SCORE_BITS, Waves, coefficients, waves
from privet.runtime.runtime import Runtime
from tests.gates.test_gates import split
from tests.runtime.harness import View, play
from tests.runtime.test_party import measured

PARTIES = (2, 3, 5)
COUNT = 60


def on_shares(
    body: Callable[..., Any], inputs: list[tuple[np.ndarray, Ring]], n: int
) -> tuple[Any, Cost, list[View]]:
    """Run `body(runtime, *shares)` on shares that were cut beforehand; add up what it returns."""
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
    return (totals if len(totals) > 1 else totals[0]), measured(views), views


def integers(low: int, high: int, shape: Any = COUNT, seed: int = 0) -> np.ndarray:
    """Random integers, among them the extreme ones."""
    rng = np.random.default_rng(seed)
    values = rng.integers(low, high, shape, endpoint=True)
    ends = rng.choice([low, high, 0 if low <= 0 <= high else low], shape)
    return np.asarray(np.where(rng.random(shape) < 0.3, ends, values))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("ring", [Z16, Z32, Z36, Z64], ids=lambda ring: ring.name)
def test_masking_and_lifting(n: int, ring: Ring) -> None:
    """A value of w - 1 bits comes back as an integer, whatever its mask."""
    x = integers(0, (1 << (ring.bits - 1)) - 1)

    def body(runtime: Runtime, share: Share) -> Any:
        return polynomial(runtime, [(1, (lift(runtime, mask(runtime, share)),))])

    found, cost, _ = on_shares(body, [(x.astype(ring.dtype), ring)], n)
    assert (signed(found) == x).all()
    expected = OpenMasked.cost([(x.shape, ring)], n) + Lift.cost(x.shape, ring)
    assert cost == expected


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(("ring", "shift"), [(Z16, 3), (Z32, 11), (Z36, 20), (Z64, 1), (Z64, 45)])
def test_lifting_divides(n: int, ring: Ring, shift: int) -> None:
    x = integers(0, (1 << (ring.bits - 1)) - 1)

    def body(runtime: Runtime, share: Share) -> Any:
        return polynomial(runtime, [(1, (lift(runtime, mask(runtime, share), shift=shift),))])

    found, cost, _ = on_shares(body, [(x.astype(ring.dtype), ring)], n)
    assert np.isin(signed(found) - (x >> shift), (0, 1)).all()
    assert cost == OpenMasked.cost([(x.shape, ring)], n) + Lift.cost(x.shape, ring, shift)


@pytest.mark.parametrize("n", PARTIES)
def test_polynomials(n: int) -> None:
    """5 x^2 y - 3 x y + 7 z + 2 y, of lifted values with one mask and with two."""
    x, y, z = integers(0, 2**15 - 1), integers(0, 2**20, seed=1), integers(0, 2**40, seed=2)

    def body(runtime: Runtime, *shares: Share) -> Any:
        a, b, c = (lift(runtime, masked) for masked in mask(runtime, *shares))
        return polynomial(runtime, [(5, (a, a, b)), (-3, (a, b)), (7, (c,)), (2, (b,))])

    inputs: list[tuple[np.ndarray, Ring]] = [
        (x.astype(np.uint16), Z16),
        (y.astype(np.uint32), Z32),
        (z.astype(np.uint64), Z64),
    ]
    found, cost, _ = on_shares(body, inputs, n)
    assert (signed(found) == 5 * x * x * y - 3 * x * y + 7 * z + 2 * y).all()
    # Two masks each: 3 products of x's own, 3 + 2 with 1 of two of y's, in all 3 + 2 * 2 + 3 * 2.
    shapes = [(v.shape, ring) for v, ring in inputs]
    lifts = Lift.cost(x.shape, Z16) + Lift.cost(x.shape, Z32) + Lift.cost(x.shape, Z64)
    assert cost == OpenMasked.cost(shapes, n) + lifts + Polynomial.cost(13, x.shape)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(("width", "digit"), [(16, 8), (16, 5), (31, 8), (9, 3)])
def test_thresholds(n: int, width: int, digit: int) -> None:
    x = integers(0, (1 << (width - 1)) - 1)
    thresholds = [0, 1, 2, 100, (1 << (width - 1)) - 1, int(x[0]), int(x[1]) + 1]

    def body(runtime: Runtime, share: Share) -> Share:
        return count_reached(runtime, mask(runtime, share), thresholds, width, digit)

    found, cost, _ = on_shares(body, [(x.astype(np.uint32), Z32)], n)
    assert (found == sum((x >= t).astype(int) for t in thresholds)).all()
    opened = OpenMasked.cost([(x.shape, Z32)], n)
    assert cost == opened + CountReached.cost(COUNT, len(thresholds), width, digit, n)


@pytest.mark.parametrize("n", PARTIES)
def test_comparing_masked_values(n: int) -> None:
    """Differences of masked values are masked, so they are compared without opening them."""
    x = integers(-(2**46), 2**46)
    x[:10] = x[10:20]

    def body(runtime: Runtime, share: Share) -> Share:
        masked: Masked = mask(runtime, share)
        difference = masked.map(lambda a: a[:30]) - masked.map(lambda a: a[30:])
        return count_reached(runtime, difference, [0], 48)

    x[30:40] = x[:10]
    found, _, _ = on_shares(body, [(x.view(np.uint64), Z64)], n)
    assert (found == (x[:30] >= x[30:])).all()


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
        factors = [masked_a, lift(runtime, masked_b)]
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
    opened = OpenMasked.cost([(x.shape, Z32), (y.shape, Z16)], n) + Lift.cost(y.shape, Z16)
    assert cost == opened + Lookup.cost((COUNT,), size, [(Z32, 1), (Z64, 2)], n)


@pytest.mark.parametrize("n", PARTIES)
def test_histograms(n: int) -> None:
    """Sums over the samples that pass each cut, by buckets that only their owners know."""
    rng = np.random.default_rng(n)
    owners, cuts, samples = (0, n - 1, 0, 1), 7, 50
    bucket = rng.integers(0, cuts + 1, (len(owners), samples)).astype(np.uint8)
    g = rng.integers(-(2**34), 2**34, (3, samples))
    h = rng.integers(0, 2, (3, samples))

    def body(runtime: Runtime, a: Share, b: Share) -> list[Share]:
        own = None
        if runtime.index >= 0:
            own = bucket[[j for j, owner in enumerate(owners) if owner == runtime.index]]
        indicators = publish(runtime, owners, own, cuts=cuts, n_samples=samples)
        masked_g, masked_h = mask(runtime, a, b)
        sums: list[Share] = histogram(runtime, indicators, masked_g, masked_h)
        return sums

    inputs: list[tuple[np.ndarray, Ring]] = [(g.view(np.uint64), Z36), (h.astype(np.uint16), Z16)]
    (sums_g, sums_h), cost, _ = on_shares(body, inputs, n)
    passes = bucket[:, None, :] <= np.arange(cuts)[:, None]
    expected = np.einsum("jbi,ki->jbk", passes.astype(np.int64), g)
    assert (Z36.reduce(expected.view(np.uint64)) == sums_g).all()
    assert (np.einsum("jbi,ki->jbk", passes.astype(np.int64), h) == sums_h).all()
    opened = OpenMasked.cost([(g.shape, Z36), (h.shape, Z16)], n)
    published = Publish.cost(len(owners), cuts, samples, n)
    sums = Histogram.cost(len(owners), cuts, 3, 8) + Histogram.cost(len(owners), cuts, 3, 2)
    assert cost == opened + published + sums


def limbs(matrix: np.ndarray) -> LimbMatrix:
    result = LimbMatrix(*matrix.shape)
    result.place(0, matrix[:1])
    result.place(1, matrix[1:])
    return result


@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 2**32))
def test_limb_products_are_exact(length: int, vectors: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    top = 2**36 - 1
    matrix = rng.choice(
        np.array([0, 1, top, top - 1, 2**18, 2**18 - 1], dtype=np.uint64), (3, length)
    )
    x = rng.integers(0, top, (length, vectors), dtype=np.uint64, endpoint=True)
    y = rng.integers(0, 2**16, (length, vectors), dtype=np.uint16)
    product, small = limbs(matrix).times((x, Z36), (y, Z16))
    exact = matrix.astype(object) @ x.astype(object)
    assert (Z36.reduce(product) == exact % 2**36).all()
    assert (small == (matrix.astype(object) @ y.astype(object)) % 2**16).all()


def test_large_matrices_are_multiplied_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.integers(0, 2**36, (4, 100), dtype=np.uint64)
    x = rng.integers(0, 2**36, (100, 3), dtype=np.uint64)
    whole = limbs(matrix).times((x, Z36))[0]
    monkeypatch.setattr("privet.arithmetic.limbs._KEPT", 2000)
    assert (limbs(matrix).times((x, Z36))[0] == whole).all()


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("ring", [Z16, Z36], ids=lambda ring: ring.name)
def test_keeping_what_passes(n: int, ring: Ring) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2**15, (4, COUNT))
    fails = rng.integers(0, 2, COUNT).astype(np.uint8)

    def body(runtime: Runtime, share: Share) -> Share:
        masked = mask(runtime, share)
        own = fails if runtime.index == 1 else None
        kept: Share = keep(runtime, publish_bits(runtime, own, shape=(COUNT,)), masked)
        return kept

    found, cost, _ = on_shares(body, [(x.astype(ring.dtype), ring)], n)
    assert (found == x * (1 - fails)).all()
    opened = OpenMasked.cost([(x.shape, ring)], n) + PublishBits.cost((COUNT,), n)
    assert cost == opened + Keep.cost(x.shape, ring.dtype.itemsize)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("depth", [1, 3])
def test_leaf_lookup(n: int, depth: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**63, 1 << depth, dtype=np.uint64)
    fails = rng.integers(0, 2, (depth, COUNT)).astype(np.uint8)
    leaf = sum(fails[level].astype(int) << (depth - 1 - level) for level in range(depth))

    def body(runtime: Runtime, share: Share) -> Share:
        own = fails if runtime.index == 0 else None
        bits = publish_bits(runtime, own, shape=(depth, COUNT))
        found: Share = leaf_lookup(runtime, bits, mask(runtime, share))
        return found

    found, cost, _ = on_shares(body, [(values, Z64)], n)
    assert (found == values[leaf]).all()
    opened = OpenMasked.cost([(values.shape, Z64)], n) + PublishBits.cost((depth, COUNT), n)
    assert cost == opened + LeafLookup.cost(depth, COUNT, 8)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("bits", [40, 46, 48])
def test_waves(n: int, bits: int) -> None:
    """The sigmoid and its derivative on all of [-16, 16], to what the series and rounding leave."""
    x = np.linspace(-16, 16, 401)
    fixed = np.rint(x * 2.0**SCORE_BITS).astype(np.int64).astype(np.uint32)

    def body(runtime: Runtime, share: Share) -> Share:
        found: Share = waves(runtime, mask(runtime, share), bits=bits)
        return found

    found, cost, _ = on_shares(body, [(fixed, Z32)], n)
    p, h = signed(found) / 2.0**bits
    true = 1 / (1 + np.exp(-x))
    # 56 coefficients, each off by half a unit at most, times dealt waves of at most 1; and 56 dealt
    # waves, off by half a unit, times coefficients that add up to less than 2. Copies of the
    # sigmoid 32 away add exp(|x| - 32), and the harmonics left out 3e-8 and 2e-7.
    dealt = bits // 2 - 1
    rounding = 28 * 2.0 ** -(bits - dealt) + 2 * 2.0**-dealt
    copies = np.exp(np.abs(x) - 32)
    assert (np.abs(p - true) <= rounding + copies + 3e-8).all()
    assert (np.abs(h - true * (1 - true)) <= rounding + copies + 2e-7).all()
    assert cost == OpenMasked.cost([(x.shape, Z32)], n) + Waves.cost(len(x))


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
        return shrink(runtime, share, bits=(21,), rings=(Z36,)).share(runtime.index)

    found, cost, _ = on_shares(body, [(x.view(np.uint64), Z64)], n)
    error = signed((found - (x >> 21).view(np.uint64)) << np.uint64(28)) >> 28
    assert np.isin(error, (0, 1)).all()
    exact = (x - ((x >> 21) << 21)) / 2.0**21
    assert abs(np.mean(error - exact)) < 5 / np.sqrt(12 * 4000)
    assert cost == Shrink.cost(4000, [Z36], n)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("bits", [1, 6, 8])
def test_round_off(n: int, bits: int) -> None:
    """To the nearest multiple, halves up, whatever the masks: the same every time."""
    x = np.concatenate([np.arange(-600, 600), [-(2**31), 2**31 - 1 - 2**bits]])

    def body(runtime: Runtime, share: Share) -> Share:
        found: Share = round_off(runtime, share, bits=bits)
        return found

    for _ in range(2):
        found, cost, _ = on_shares(body, [(x.astype(np.int32).view(np.uint32), Z32)], n)
        assert (signed(found) == np.floor(x / 2**bits + 0.5) * 2**bits).all()
    assert cost == RoundOff.cost(len(x), bits, 4, n)


@given(st.lists(st.integers(0, 2**36 - 1), max_size=9))
def test_36_bits_on_the_wire(values: list[int]) -> None:
    x = np.array(values, dtype=np.uint64)
    message = Z36.to_wire(x | np.uint64(0xABC << 40))
    assert message.nbytes == Z36.wire_bytes(len(x)) == (9 * len(x) + 1) // 2
    assert (Z36.from_wire(message, len(x)) == x).all()
