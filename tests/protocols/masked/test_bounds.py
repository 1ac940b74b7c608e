"""What must lie within bounds: all that does passes, and nothing that is far beyond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import Z16, Z32, Z36, Z64, Ring
from privet.arithmetic.shares import Share
from privet.errors import ResultError
from privet.gates.masked.truncation import reduce_ring
from privet.gates.masked.value import MaskedValue, mask, mask_value
from privet.protocols.masked.bounds import RangeChecks
from privet.runtime.runtime import Runtime
from tests.gates.test_gates import split
from tests.runtime.harness import View, check_count, play

PARTIES = (2, 3)
BESIDE = np.arange(20) * 1000


def settled(
    n: int,
    inputs: list[tuple[np.ndarray, Ring]],
    checks: Callable[..., list[tuple[Any, int, str]]],
) -> list[View]:
    """Mask values, check what `checks` says of them, and settle; other values travel along."""
    everything = [*inputs, (BESIDE, Z16)]
    cut = [split(v.astype(r.dtype), r, n, seed) for seed, (v, r) in enumerate(everything)]

    def program(runtime: Runtime, parts: Any) -> Any:
        *shares, other = [
            Share.unknown(v.shape, r) if parts is None else Share(parts[k], r)
            for k, (v, r) in enumerate(everything)
        ]
        bounds = RangeChecks(runtime)
        found: list[MaskedValue] = []
        for x, width, what in checks(*mask(runtime, *shares)):
            with runtime.step("check"):
                found += bounds.check(x, width, what, mask.defer(other))
        with runtime.step("settle"):
            beside = reduce_ring.defer(other, other, dropped_bits=[0, 0], rings=[Z16, Z16])
            found += bounds.reveal_and_require(beside)
        return [x.to_share(runtime).part for x in found] if parts is not None else None

    views = play(program, n, [[parts[k] for parts in cut] for k in range(n)])
    check_count(program, views)
    for values in zip(*(view.result for view in views), strict=True):
        assert (Z16.sum(np.stack(values), 0) == BESIDE).all()
    assert len(views[0].result) >= 2
    return views


def whole(*whats: str) -> Callable[..., list[tuple[Any, int, str]]]:
    """Check values on all bits of their ring."""
    return lambda *values: [(x, x.ring.bits, w) for x, w in zip(values, whats, strict=True)]


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("ring", [Z32, Z36, Z64], ids=lambda ring: ring.name)
@pytest.mark.parametrize("count", [1, 128, 129, 500])
def test_none_is_negative(n: int, ring: Ring, count: int) -> None:
    """From zero to the largest; of more values than one count holds; of two axes."""
    rng = np.random.default_rng(count)
    values = rng.integers(0, (1 << (ring.bits - 1)) - 1, (1, count), endpoint=True)
    values[0, ::3], values[0, 1::3] = 0, (1 << (ring.bits - 1)) - 1
    views = settled(n, [(values, ring)], whole("negative ones"))
    everybody = tuple(f"party{k + 1}" for k in range(n))
    for view in views:
        (entry,) = view.ledger.entries
        assert (entry.disclosure, entry.recipients) == ("numbers within bounds", everybody)
        assert (entry.n_elements, entry.step) == (-(-count // 128), "settle")


@pytest.mark.parametrize("ring", [Z32, Z36, Z64], ids=lambda ring: ring.name)
@pytest.mark.parametrize("where", [0, 127, 128, 199])
@pytest.mark.parametrize("bit", [0, 20, -1])
def test_one_beyond_is_enough(ring: Ring, where: int, bit: int) -> None:
    """By one, or by as much as a ring holds."""
    values = np.zeros(200, dtype=np.int64)
    values[where] = -(1 << (bit % ring.bits))
    with pytest.raises(ResultError, match=r"^negative ones: "):
        settled(2, [(values, ring)], whole("negative ones"))


@pytest.mark.parametrize("beyond", [128, 256])
def test_counts_do_not_wrap_around(beyond: int) -> None:
    """Of a byte: a whole group that is beyond, or two, is not taken for one that is not."""
    values = np.full(384, 5)
    values[:beyond] = -5
    with pytest.raises(ResultError, match=r"^negative ones: "):
        settled(2, [(values, Z32)], whole("negative ones"))


@pytest.mark.parametrize("n", PARTIES)
def test_several_checks(n: int) -> None:
    """Of several rings, settled at once; the error is about the first that is beyond."""
    few, many = np.array([100, 0]), np.full(300, 1 << 40)
    checks = whole("a few", "a lot")
    views = settled(n, [(few, Z32), (many, Z64)], checks)
    assert views[0].meter.sum_traffic().rounds == 4  # mask, compare twice, reveal
    assert [entry.n_elements for entry in views[0].ledger.entries] == [1 + 3]
    with pytest.raises(ResultError, match=r"^a few: "):
        settled(n, [(few - 1, Z32), (many, Z64)], checks)
    with pytest.raises(ResultError, match=r"^a lot: "):
        settled(n, [(few, Z32), (-many, Z64)], checks)
    with pytest.raises(ResultError, match=r"^a few: "):
        settled(n, [(few - 1, Z32), (-many, Z64)], checks)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("width", [10, 32])
def test_the_leading_bits(n: int, width: int) -> None:
    """Of values as signed numbers of their ring, up to a unit of the bits that are compared."""
    unit = 1 << (32 - width)
    # The largest ones are rounded up to what is negative already.
    values = np.concatenate([[0, 1, unit, 2**31 - 1 - unit], np.arange(0, 2**31 - unit, 2**23)])

    def checks(x: Any) -> list[tuple[Any, int, str]]:
        return [(x, width, "negative ones")]

    settled(n, [(values, Z32)], checks)
    for bad in (-2 * unit, -(2**31)):
        with pytest.raises(ResultError, match=r"^negative ones: "):
            settled(n, [(np.append(values, bad), Z32)], checks)


def test_what_is_settled_is_forgotten() -> None:
    """A table's checks are not those of the next."""

    def program(runtime: Runtime, _: object) -> None:
        bounds = RangeChecks(runtime)
        for table in range(2):
            with runtime.step("table", table):
                share = runtime.share_public(np.zeros(5, dtype=np.uint32), Z32)
                x = mask_value(runtime, share)
                bounds.check(x, 32, "negative ones", mask.defer(share))
                bounds.reveal_and_require(mask.defer(share))

    views = play(program, 2)
    check_count(program, views)
    assert [entry.n_elements for entry in views[0].ledger.entries] == [1, 1]
