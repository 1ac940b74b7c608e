"""Rows masked by samples of ring-LWE, and histograms of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from privet.arithmetic.ring_lwe import BINOMIAL_ERROR_BITS, RingLwe
from privet.arithmetic.rings import Z1, Ring, RingArray, get_integer_ring, signed
from privet.arithmetic.shares import Elements, Share
from privet.gates.masked.histogram import IndicatorProducts, histogram
from privet.gates.masked.indicators import publish_indicators
from privet.gates.masked.routing import route_rows
from privet.gates.masked.value import lattice_mask, mask_constant, mask_value
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import Cost
from privet.runtime.runtime import Runtime
from tests.gates.test_masked import (
    CUTS,
    dealt,
    on_shares,
    opened,
    some_buckets,
    sums_by_cut,
)
from tests.runtime.harness import measured_steps
from tests.runtime.replicated_dealers import check, deal

WIDE, NARROW = get_integer_ring(44), get_integer_ring(30)
ROWS = 2048 + 300
LATTICE = RingLwe("2f" * 32, ROWS, WIDE.bits)


def to_signed(x: RingArray, ring: Ring) -> np.ndarray:
    """Ring elements as signed integers."""
    size = 8 * ring.dtype.itemsize - ring.bits
    found: np.ndarray = (signed(x << ring.dtype.type(size)) >> size).astype(np.int64)
    return found


def inputs() -> tuple[np.ndarray, np.ndarray, list[tuple[np.ndarray, Ring]]]:
    """Vectors of two rings."""
    rng = np.random.default_rng(3)
    g = rng.integers(-(2**30), 2**30, (2, ROWS))
    h = rng.integers(0, 2**17, (2, ROWS))
    return g, h, [(WIDE.to_elements(g), WIDE), (NARROW.to_elements(h), NARROW)]


@pytest.mark.parametrize("n", [2, 3, 4])
def test_masked_values_are_exact(n: int) -> None:
    """Only histogram sums have errors: a value less its mask is exact, also after routing."""
    g, h, values = inputs()
    goes_right = np.random.default_rng(1).integers(0, 2, ROWS).astype(np.uint8)

    def body(runtime: Runtime, a: Share, b: Share, bits: Share) -> list[Share]:
        masked = lattice_mask(runtime, a, b, lattice=LATTICE, on_masks=lambda _: None)
        routed = route_rows(runtime, mask_value(runtime, bits), *masked)
        # The widest ring does not have to be the first.
        reversed_order = route_rows(runtime, mask_value(runtime, bits), *masked[::-1])
        return [*(x.to_share(runtime) for x in masked), *routed, *reversed_order]

    found, _, views = on_shares(body, [*values, (goes_right, Z1)], n)
    expected = [g, h, g * (1 - goes_right), h * (1 - goes_right)]
    for x, y in zip(found, [*expected, *expected[:1:-1]], strict=True):
        ring = WIDE if x.dtype == np.uint64 else NARROW
        assert (to_signed(x, ring) == y).all()
    assert measured_steps(views)["hide"] == opened(n, (WIDE, g.size), (NARROW, h.size))


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("features", [slice(4), np.array([1, 3])])
def test_histogram_sums(n: int, features: Any) -> None:
    """Sums of the rows left of each cut, plus the errors of exactly these rows."""
    g, h, values = inputs()
    owners = (0, n - 1, 0, 1)
    bucket = some_buckets(CUTS, ROWS, n)
    chosen = tuple(np.array(CUTS)[features].tolist())

    def body(runtime: Runtime, a: Share, b: Share) -> list[Share]:
        local_buckets = {j: bucket[j] for j, owner in enumerate(owners) if owner == runtime.index}
        indicators = publish_indicators(
            runtime,
            local_buckets,
            owners,
            cut_counts=CUTS,
            n_samples=ROWS,
            ring=WIDE,
            lattice=LATTICE,
        )
        products = IndicatorProducts(runtime, indicators.select(slice(ROWS), features))
        masked = lattice_mask(runtime, a, b, lattice=LATTICE, on_masks=products.start)
        return histogram(runtime, products, *masked)

    (of_g, of_h), _, views = on_shares(body, values, n)
    for found, x, ring in ((of_g, g, WIDE), (of_h, h, NARROW)):
        expected = sums_by_cut(bucket[features], chosen, x)
        noise = to_signed(found - ring.to_elements(expected), ring)
        counts = sums_by_cut(bucket[features], chosen, np.ones_like(x))
        for end, size in zip(np.cumsum(chosen), chosen, strict=True):
            # The rows between two cuts of a feature are distinct, so these errors are independent.
            errors, rows = (
                np.diff(a[end - size : end], axis=0, prepend=0) for a in (noise, counts)
            )
            squares = (errors[rows > 0] ** 2 / (BINOMIAL_ERROR_BITS / 4 * n * rows[rows > 0])).sum()
            assert not errors[rows == 0].any()
            if size:
                assert 1e-9 < chi2.cdf(squares, (rows > 0).sum()) < 1 - 1e-9
    cuts = sum(chosen)
    assert measured_steps(views) == {
        "publish indicators": Cost(
            1, (n - 1) * sum(WIDE.count_packed_bytes(c * LATTICE.degree) for c in CUTS), 0
        ),
        "hide": opened(n, (WIDE, g.size), (NARROW, h.size)),
        "histogram": dealt((WIDE, cuts * 2), (NARROW, cuts * 2)),
    }


@pytest.mark.parametrize("n", [2, 3])
def test_histogram_sums_of_public_values(n: int) -> None:
    """They have no errors, alone or together with masked vectors."""
    owners = (0, n - 1, 0, 1)
    bucket = some_buckets(CUTS, ROWS, n)
    known = np.full((1, ROWS), 1 << 12, dtype=np.uint32)
    g = np.zeros((1, ROWS), dtype=np.uint64)

    def body(runtime: Runtime, a: Share) -> list[Share]:
        local_buckets = {j: bucket[j] for j, owner in enumerate(owners) if owner == runtime.index}
        indicators = publish_indicators(
            runtime,
            local_buckets,
            owners,
            cut_counts=CUTS,
            n_samples=ROWS,
            ring=WIDE,
            lattice=LATTICE,
        )
        counts = mask_constant(runtime, known, NARROW)
        alone = histogram(runtime, IndicatorProducts(runtime, indicators), counts)
        products = IndicatorProducts(runtime, indicators)
        (masked,) = lattice_mask(runtime, a, lattice=LATTICE, on_masks=products.start)
        return [*alone, *histogram(runtime, products, counts, masked)]

    found, _, _ = on_shares(body, [(g, WIDE)], n)
    expected = sums_by_cut(bucket, CUTS, known.astype(np.int64))
    assert (found[0] == expected).all()
    assert (found[1] == expected).all()


@pytest.mark.parametrize("s_holder", range(3))
def test_three_dealers_derive_the_same(s_holder: int) -> None:
    """Each dealer has two parts of every secret, both of them small."""
    secrets: list[Elements] = []

    def program(dealer: Dealer) -> None:
        with dealer.step("table", s_holder):
            indicators = publish_indicators(
                dealer,
                {},
                (0, 1, 0, 1),
                cut_counts=CUTS,
                n_samples=ROWS,
                ring=WIDE,
                lattice=LATTICE,
            )
            products = IndicatorProducts(dealer, indicators)
            shares = Share.unknown((2, ROWS), WIDE), Share.unknown((2, ROWS), NARROW)
            masked = lattice_mask(dealer, *shares, lattice=LATTICE, on_masks=products.start)
            secrets.extend(products.list_factors(masked))
            histogram(dealer, products, *masked)
            route_rows(dealer, mask_value(dealer, Share.unknown((ROWS,), Z1)), *masked)

    notes, _ = deal(program)
    assert check(notes)["histogram"] == 2
    for secret in secrets:
        for part in secret.parts:  # type: ignore[attr-defined]
            values = np.unique(signed(part.array)).tolist()
            assert values == [-2, -1, 0, 1, 2]
