"""Range checks: numbers in range pass, and numbers far out of range fail."""

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
OTHER_VALUES = np.arange(20) * 1000


def run_checks(
    n: int,
    inputs: list[tuple[np.ndarray, Ring]],
    checks: Callable[..., list[tuple[Any, int, str]]],
) -> list[View]:
    """Mask values, run `checks` on them and reveal the results; other gates run along.

    A check is a masked value, a width and a problem.
    """
    everything = [*inputs, (OTHER_VALUES, Z16)]
    parts_of_values = [
        split(v.astype(r.dtype), r, n, seed) for seed, (v, r) in enumerate(everything)
    ]

    def program(runtime: Runtime, parts: Any) -> Any:
        *shares, other = [
            Share.unknown(v.shape, r) if parts is None else Share(parts[k], r)
            for k, (v, r) in enumerate(everything)
        ]
        range_checks = RangeChecks(runtime)
        results: list[MaskedValue] = []
        for x, width, problem in checks(*mask(runtime, *shares)):
            with runtime.step("check"):
                results += range_checks.check(x, width, problem, mask.defer(other))
        with runtime.step("reveal checks"):
            deferred = reduce_ring.defer(other, other, dropped_bits=[0, 0], rings=[Z16, Z16])
            results += range_checks.reveal_and_require(deferred)
        return [x.to_share(runtime).part for x in results] if parts is not None else None

    views = play(program, n, [[parts[k] for parts in parts_of_values] for k in range(n)])
    check_count(program, views)
    for values in zip(*(view.result for view in views), strict=True):
        assert (Z16.sum(np.stack(values), 0) == OTHER_VALUES).all()
    assert len(views[0].result) >= 2
    return views


def check_all_bits(*problems: str) -> Callable[..., list[tuple[Any, int, str]]]:
    """Check values on all bits of their ring."""
    return lambda *values: [(x, x.ring.bits, p) for x, p in zip(values, problems, strict=True)]


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("ring", [Z32, Z36, Z64], ids=lambda ring: ring.name)
@pytest.mark.parametrize("count", [1, 128, 129, 500])
def test_values_in_range_pass(n: int, ring: Ring, count: int) -> None:
    """From zero to the largest value; with more values than one count holds; with two axes."""
    rng = np.random.default_rng(count)
    values = rng.integers(0, (1 << (ring.bits - 1)) - 1, (1, count), endpoint=True)
    values[0, ::3], values[0, 1::3] = 0, (1 << (ring.bits - 1)) - 1
    views = run_checks(n, [(values, ring)], check_all_bits("negative ones"))
    participants = tuple(f"party{k + 1}" for k in range(n))
    for view in views:
        (entry,) = view.ledger.entries
        assert (entry.disclosure, entry.recipients) == ("numbers within bounds", participants)
        assert (entry.n_elements, entry.step) == (-(-count // 128), "reveal checks")


@pytest.mark.parametrize("ring", [Z32, Z36, Z64], ids=lambda ring: ring.name)
@pytest.mark.parametrize("position", [0, 127, 128, 199])
@pytest.mark.parametrize("bit", [0, 20, -1])
def test_one_value_out_of_range_fails(ring: Ring, position: int, bit: int) -> None:
    """A value fails that is below zero by one, or by as much as a ring holds."""
    values = np.zeros(200, dtype=np.int64)
    values[position] = -(1 << (bit % ring.bits))
    with pytest.raises(ResultError, match=r"^negative ones: "):
        run_checks(2, [(values, ring)], check_all_bits("negative ones"))


@pytest.mark.parametrize("failing", [128, 256])
def test_counts_do_not_wrap_around(failing: int) -> None:
    """Counts are bytes: one or two whole groups that fail are not mistaken for none."""
    values = np.full(384, 5)
    values[:failing] = -5
    with pytest.raises(ResultError, match=r"^negative ones: "):
        run_checks(2, [(values, Z32)], check_all_bits("negative ones"))


@pytest.mark.parametrize("n", PARTIES)
def test_several_checks(n: int) -> None:
    """Checks in several rings are revealed together; the error names the first that fails."""
    few, many = np.array([100, 0]), np.full(300, 1 << 40)
    checks = check_all_bits("a few", "a lot")
    views = run_checks(n, [(few, Z32), (many, Z64)], checks)
    assert views[0].meter.sum_traffic().rounds == 4  # mask, compare twice, reveal
    assert [entry.n_elements for entry in views[0].ledger.entries] == [1 + 3]
    with pytest.raises(ResultError, match=r"^a few: "):
        run_checks(n, [(few - 1, Z32), (many, Z64)], checks)
    with pytest.raises(ResultError, match=r"^a lot: "):
        run_checks(n, [(few, Z32), (-many, Z64)], checks)
    with pytest.raises(ResultError, match=r"^a few: "):
        run_checks(n, [(few - 1, Z32), (-many, Z64)], checks)


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("width", [10, 32])
def test_check_of_leading_bits(n: int, width: int) -> None:
    """Leading bits show the sign of a number, up to a unit of the compared bits."""
    unit = 1 << (32 - width)
    # The largest numbers would be rounded up to negative ones.
    values = np.concatenate([[0, 1, unit, 2**31 - 1 - unit], np.arange(0, 2**31 - unit, 2**23)])

    def checks(x: Any) -> list[tuple[Any, int, str]]:
        return [(x, width, "negative ones")]

    run_checks(n, [(values, Z32)], checks)
    for bad in (-2 * unit, -(2**31)):
        with pytest.raises(ResultError, match=r"^negative ones: "):
            run_checks(n, [(np.append(values, bad), Z32)], checks)


def test_revealed_checks_are_cleared() -> None:
    """The checks of a table are not repeated in the next."""

    def program(runtime: Runtime, _: object) -> None:
        range_checks = RangeChecks(runtime)
        for table in range(2):
            with runtime.step("table", table):
                share = runtime.share_public(np.zeros(5, dtype=np.uint32), Z32)
                x = mask_value(runtime, share)
                range_checks.check(x, 32, "negative ones", mask.defer(share))
                range_checks.reveal_and_require(mask.defer(share))

    views = play(program, 2)
    check_count(program, views)
    assert [entry.n_elements for entry in views[0].ledger.entries] == [1, 1]
