"""What must lie within bounds: all that does passes, and nothing that is far beyond."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import Z32, Z36, Z64, Ring
from privet.arithmetic.shares import Share
from privet.errors import ResultError
from privet.gates.masked import Masked, mask, mask_one
from privet.runtime.runtime import Runtime
from privet.suites.masked.bounds import Bounds
from tests.gates.test_gates import split
from tests.runtime.harness import View, check_count, play

PARTIES = (2, 3)
RINGS = [Z32, Z36, Z64]


def settled(
    n: int, inputs: list[tuple[np.ndarray, Ring]], check: Callable[..., None]
) -> list[View]:
    """Mask values, let `check(bounds, *masked)` check them, and settle."""
    cut = [split(v.astype(r.dtype), r, n, seed) for seed, (v, r) in enumerate(inputs)]

    def program(runtime: Runtime, parts: Any) -> None:
        shares = [
            Share.unknown(v.shape, r) if parts is None else Share(parts[k], r)
            for k, (v, r) in enumerate(inputs)
        ]
        bounds = Bounds(runtime)
        check(bounds, *mask(runtime, *shares))
        bounds.settle()

    views = play(program, n, [[parts[k] for parts in cut] for k in range(n)])
    check_count(program, views)
    return views


def check_size(bounds: Bounds, x: Masked, bound: int) -> None:
    bounds.check_sizes((x, bound, "values too large"))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)
@pytest.mark.parametrize("count", [1, 64, 65, 500])
def test_sizes_within_their_bound(n: int, ring: Ring, count: int) -> None:
    """Up to the bound itself, of both signs; of more values than one count holds."""
    rng = np.random.default_rng(count)
    bound = (1 << (ring.bits - 3)) + 12345
    values = rng.integers(-bound, bound, count, endpoint=True)
    values[::3], values[1::3] = bound, -bound
    views = settled(n, [(values, ring)], partial(check_size, bound=bound))
    everybody = tuple(f"party{k + 1}" for k in range(n))
    for view in views:
        (entry,) = view.ledger.entries
        groups = -(-2 * count // 128)
        assert (entry.what, entry.to) == ("numbers within bounds", everybody)
        assert entry.count == groups


@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("where", [0, 63, 150])
@pytest.mark.parametrize("beyond", [3, 1 << 20, 1 << 28])
def test_one_beyond_is_enough(ring: Ring, sign: int, where: int, beyond: int) -> None:
    """A few units of the 32 bits that are compared are past what rounding may make of a value."""
    bound = 1 << (ring.bits - 3)
    values = np.zeros(200, dtype=np.int64)
    values[where] = sign * (bound + (beyond << (ring.bits - 32)))
    with pytest.raises(ResultError, match=r"^values too large: "):
        settled(
            2,
            [(values, ring)],
            lambda bounds, x: bounds.check_sizes((x, bound, "values too large")),
        )


@pytest.mark.parametrize("n", PARTIES)
def test_several_at_once(n: int) -> None:
    """Of several rings and bounds, in one opening; the error is about the one that is beyond."""
    few, many = np.array([100, -100]), np.full(300, 1 << 40)

    def check(few_bound: int, many_bound: int) -> Callable[..., None]:
        return lambda bounds, x, y: bounds.check_sizes(
            (x, few_bound, "too large a few"), (y, many_bound, "too large a lot")
        )

    inputs: list[tuple[np.ndarray, Ring]] = [(few, Z32), (many, Z64)]
    views = settled(n, inputs, check(100, 1 << 41))
    assert views[0].meter.total().rounds == 3  # mask, compare, reveal
    with pytest.raises(ResultError, match=r"^too large a few: "):
        settled(n, inputs, check(90, 1 << 41))
    with pytest.raises(ResultError, match=r"^too large a lot: "):
        settled(n, inputs, check(100, 1 << 39))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("width", [10, 32])
def test_signs(n: int, width: int) -> None:
    """Of values as signed numbers of their ring, up to a unit of the bits that are compared."""
    unit = 1 << (32 - width)
    # The largest ones are rounded up to what is negative already.
    values = np.concatenate([[0, 1, unit, 2**31 - 1 - unit], np.arange(0, 2**31 - unit, 2**23)])

    def check(bounds: Bounds, x: Any) -> None:
        bounds.check_signs(x, width, "negative ones")

    settled(n, [(values, Z32)], check)
    for bad in (-2 * unit, -(2**31)):
        with pytest.raises(ResultError, match=r"^negative ones: "):
            settled(n, [(np.append(values, bad), Z32)], check)


def test_what_is_settled_is_forgotten() -> None:
    """A table's checks are not those of the next."""

    def program(runtime: Runtime, _: object) -> None:
        bounds = Bounds(runtime)
        for table in range(2):
            with runtime.step("table", table):
                x = mask_one(runtime, runtime.public(np.zeros(5, dtype=np.uint32), Z32))
                bounds.check_sizes((x, 1, "values too large"))
                bounds.settle()

    views = play(program, 2)
    check_count(program, views)
    assert [entry.count for entry in views[0].ledger.entries] == [1, 1]
