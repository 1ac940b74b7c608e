from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.arithmetic.bit_planes import pack_bits, packed_length, to_planes, unpack_bits
from privet.arithmetic.rings import BITS, Z32, Z36, Z64, Ring, signed

NUMBERS = (Z64, Z32)
RINGS = (*NUMBERS, BITS)


def elements(ring: Ring) -> st.SearchStrategy[list[int]]:
    top = 1 << ring.bits
    extreme = st.sampled_from([0, 1, top - 1, top // 2, top // 2 - 1])
    return st.lists(extreme | st.integers(0, top - 1), min_size=3, max_size=3)


@given(st.data())
@pytest.mark.parametrize("ring", NUMBERS, ids=lambda ring: ring.name)
def test_numbers_are_integers_modulo_a_power_of_two(ring: Ring, data: st.DataObject) -> None:
    x, y = data.draw(elements(ring)), data.draw(elements(ring))
    a, b = np.array(x, dtype=ring.dtype), np.array(y, dtype=ring.dtype)
    modulus = 1 << ring.bits
    expected: dict[str, list[int]] = {
        "add": [(i + j) % modulus for i, j in zip(x, y, strict=True)],
        "subtract": [(i - j) % modulus for i, j in zip(x, y, strict=True)],
        "multiply": [(i * j) % modulus for i, j in zip(x, y, strict=True)],
    }
    for name, result in expected.items():
        assert getattr(ring, name)(a, b).tolist() == result
    assert ring.negate(a).tolist() == [-i % modulus for i in x]
    assert int(ring.sum(a)) == sum(x) % modulus
    half = modulus // 2
    assert signed(a).tolist() == [(i + half) % modulus - half for i in x]
    assert (ring.array(signed(a)) == a).all()


@given(elements(BITS), elements(BITS))
def test_bits_are_xor_and_and(x: list[int], y: list[int]) -> None:
    a, b = np.array(x, dtype=np.uint8), np.array(y, dtype=np.uint8)
    xor = [i ^ j for i, j in zip(x, y, strict=True)]
    assert BITS.add(a, b).tolist() == BITS.subtract(a, b).tolist() == xor
    assert BITS.multiply(a, b).tolist() == [i & j for i, j in zip(x, y, strict=True)]
    assert BITS.negate(a).tolist() == x
    assert int(BITS.sum(a)) == x[0] ^ x[1] ^ x[2]


@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)
def test_scalars_stay_in_the_ring(ring: Ring) -> None:
    """No promotion to another type, and no warning of an overflow that is meant."""
    top = np.array((1 << ring.bits) - 1, dtype=ring.dtype)
    for result in (ring.add(top, top), ring.multiply(top, top), ring.negate(top), ring.sum(top)):
        assert isinstance(result, np.ndarray)
        assert result.dtype == ring.dtype
        assert result.shape == ()


@pytest.mark.parametrize("ring", NUMBERS, ids=lambda ring: ring.name)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 50, 4), (2, 0, 2), (0, 3, 1), (5, 7, 0)])
def test_matrix_products_are_exact(ring: Ring, shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    rows, inner, columns = shape
    top = (1 << ring.bits) - 1
    for low in (0, top):  # random entries, and the largest ones
        x = rng.integers(low, top, (rows, inner), dtype=ring.dtype, endpoint=True)
        y = rng.integers(low, top, (inner, columns), dtype=ring.dtype, endpoint=True)
        exact = [
            [sum(int(x[i, k]) * int(y[k, j]) for k in range(inner)) & top for j in range(columns)]
            for i in range(rows)
        ]
        assert ring.matmul(x, y).tolist() == exact


def test_sums_of_limbs_are_exact() -> None:
    from privet.arithmetic.rings import _EXACT_ROWS

    assert _EXACT_ROWS * 0xFFFF**2 <= 2**53


def test_only_whole_numbers_are_elements() -> None:
    for bad in (0.5, True, np.array([1.0]), "1"):
        with pytest.raises(TypeError, match="no elements of Z64"):
            Z64.array(bad)


def test_matrix_products_are_exact_beyond_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privet.arithmetic.rings._EXACT_ROWS", 16)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1 << 63, (3, 50)).astype(np.uint64)
    y = rng.integers(0, 1 << 63, (50, 2)).astype(np.uint64)
    assert (Z64.matmul(x, y) == x @ y).all()
    with pytest.raises(TypeError):
        BITS.matmul(x.astype(np.uint8), y.astype(np.uint8))


@given(st.lists(st.integers(0, 2**64 - 1), max_size=40))
def test_bit_planes(words: list[int]) -> None:
    planes = to_planes(np.array(words, dtype=np.uint64))
    assert planes.shape == (64, packed_length(len(words)))
    for k in range(64):
        bits = unpack_bits(planes[k], len(words))
        assert bits.tolist() == [(word >> k) & 1 for word in words]
        assert (pack_bits(bits) == planes[k]).all()
    narrow: Any = np.array([word & 0xFFFFFFFF for word in words], dtype=np.uint32)
    assert (to_planes(narrow) == planes[:32]).all()


@given(values=st.lists(st.integers(0, 2**64 - 1), max_size=9), offset=st.integers(0, 3))
def test_36_bits_are_sent_as_36(values: list[int], offset: int) -> None:
    """Also when a message lies at an odd place in memory, as one cut out of a larger one may."""
    x = np.array(values, dtype=np.uint64)
    message = Z36.to_wire(x)
    assert message.nbytes == Z36.wire_bytes(len(x)) == -(-36 * len(x) // 8)
    around = np.zeros(offset + message.size, dtype=np.uint8)
    around[offset:] = message
    assert Z36.from_wire(around[offset:], len(x)).tolist() == [v % 2**36 for v in values]
