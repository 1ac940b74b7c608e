"""Blocks computed on all cores give the same results as on one core."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privet.arithmetic import large_arrays
from privet.arithmetic.prg import Place, Prg
from privet.arithmetic.ring_lwe import RingLwe, binomial
from privet.arithmetic.rings import BIT_RING, Z64, get_integer_ring
from privet.gates.masked.indicators import sort_features

PLACE = Place("rows", (1,), 2)
MANY = 3 * large_arrays.MIN_PARALLEL_ELEMENTS + 5


def test_blocks_cover_the_vector() -> None:
    found = np.concatenate(
        [np.arange(10)[block] for block in large_arrays.split_into_blocks(10, 3)]
    )
    assert found.tolist() == list(range(10))
    assert large_arrays.split_into_blocks(0) == []


def test_large_work_runs_in_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested work runs in the thread that starts it; small work runs in the calling thread."""
    monkeypatch.setattr(large_arrays, "count_cores", lambda: 4)
    threads: set[str] = set()
    barrier = threading.Barrier(2, timeout=10)

    def work(item: int) -> None:
        barrier.wait()

        def inner(_: int) -> None:
            threads.add(threading.current_thread().name)

        large_arrays.run_blocks(inner, range(3), large_arrays.MIN_PARALLEL_ELEMENTS)

    monkeypatch.setattr(large_arrays, "_pool", large_arrays._pool.__wrapped__)
    large_arrays.run_blocks(work, range(4), large_arrays.MIN_PARALLEL_ELEMENTS)
    assert len(threads) >= 2
    assert all(name.startswith("rows") for name in threads)
    threads.clear()
    large_arrays.run_blocks(lambda _: threads.add(threading.current_thread().name), range(9), 9)
    assert threads == {threading.current_thread().name}


def test_errors_in_threads_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_arrays, "count_cores", lambda: 2)

    def work(item: int) -> None:
        if item == 3:
            raise ValueError("the third one")

    with pytest.raises(ValueError, match="the third one"):
        large_arrays.run_blocks(work, range(9), large_arrays.MIN_PARALLEL_ELEMENTS)


def _add() -> Any:
    ring, rng = get_integer_ring(44), np.random.default_rng(1)
    x, y = (rng.integers(0, 1 << 44, MANY, dtype=np.uint64) for _ in range(2))
    total = x.copy()
    ring.add_in_place(total, y)
    found = ring.add(x, y), ring.subtract(x, y), ring.multiply(x, y), total
    expected = x + y, x - y, x * y, x + y
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    bits = (x & np.uint64(255)).astype(np.uint8)
    np.testing.assert_array_equal(BIT_RING.add(bits, bits[::-1].copy()), bits ^ bits[::-1])
    return found


def _draw() -> Any:
    stream = Prg(b"s" * 32)
    whole = stream.uniform(PLACE, (2, MANY), Z64)
    some = slice(MANY // 2 - 7, MANY // 2 + 9)
    np.testing.assert_array_equal(whole[:, some], stream.uniform(PLACE, (2, MANY), Z64, some))
    assert len(np.unique(whole)) == whole.size
    return whole


def _expand() -> Any:
    lattice = RingLwe("ab" * 32, MANY, 40)
    secret = np.zeros((1, 2048), dtype=np.uint64)
    secret[0, 1] = 1  # X: every block's polynomial, shifted by one
    found = lattice.expand_secrets(secret)
    last = lattice.polynomials(slice(3, 4))[0]
    np.testing.assert_array_equal(
        lattice.ring.reduce_modulus(found[0, 3 * 2048 + 1 : 4 * 2048]), last[:-1]
    )
    return np.stack([found[0], binomial(Prg(b"e" * 32), PLACE, (MANY,), lattice.ring)])


@pytest.mark.parametrize("body", [_add, _draw, _expand])
def test_results_do_not_depend_on_the_number_of_cores(
    body: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for count in (1, 3):
        monkeypatch.setattr(large_arrays, "count_cores", lambda count=count: count)
        found.append(body())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("cuts", [0, 1, 5, 31])
@pytest.mark.parametrize("rows", [1, 400, 1 << 16, (1 << 17) + 1, 5 * (1 << 16) + 321])
@pytest.mark.parametrize("kind", [np.uint64, np.uint32])
def test_sums_up_to_cuts(cuts: int, rows: int, kind: type[np.unsignedinteger[Any]]) -> None:
    """With empty buckets, buckets beyond all cuts, and a short last block."""
    rng = np.random.default_rng(cuts)
    bucket = rng.choice([0, 2, 3, cuts, cuts + 1], size=rows).clip(0, cuts).astype(np.uint8)
    bucket[: min(rows, 1 << 16) // 2] = cuts  # few samples of the first block go left
    vectors = rng.integers(0, 1 << 63, (3, rows), dtype=np.uint64).astype(kind)
    some = np.flatnonzero(rng.integers(0, 3, rows))
    for chosen in (slice(rows), some):
        feature = sort_features({2: bucket[chosen]}, [0, 0, cuts])[2]
        expected = [
            [v[chosen][bucket[chosen] <= cut].sum(dtype=kind) for v in vectors]
            for cut in range(cuts)
        ]
        found = feature.sum_up_to_cuts(vectors[:, chosen])
        assert found.shape == (cuts, 3)
        assert found.dtype == kind
        np.testing.assert_array_equal(found, np.array(expected, dtype=kind).reshape(cuts, 3))


@pytest.mark.skipif(sys.platform != "linux", reason="open files are found in /proc")
def test_orders_of_many_features_share_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def sums() -> list[Any]:
        features = sort_features(buckets, [7] * 40)
        counts.append(len(os.listdir("/proc/self/fd")))
        return [features[j].sum_up_to_cuts(vectors) for j in buckets]

    rng = np.random.default_rng(4)
    buckets = {j: rng.integers(0, 8, 1000, dtype=np.uint8) for j in range(5, 30)}
    vectors = rng.integers(0, 1 << 63, (2, 1000), dtype=np.uint64)
    counts: list[int] = []
    expected = sums()
    monkeypatch.setattr(large_arrays, "MAX_MEMORY_BYTES", 0)
    np.testing.assert_array_equal(sums(), expected)
    assert counts[1] == counts[0] + 1
    assert sort_features({}, []) == {}
