from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.arithmetic.rings import (
    BIT_RING,
    Z8,
    Z16,
    Z32,
    Z36,
    Z64,
    Ring,
    get_integer_ring,
    signed,
)
from privet.protocols.paper.gates import pack_bits, packed_length, to_bit_planes, unpack_bits

NUMBERS = (Z64, Z32, Z16, Z8)
RINGS = (*NUMBERS, BIT_RING)


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
    assert (ring.to_elements(signed(a)) == a).all()


@given(st.integers(1, 64), st.data())
def test_rings_of_any_width(bits: int, data: st.DataObject) -> None:
    """In the next larger words, whose upper bits are ignored."""
    ring = get_integer_ring(bits)
    x, y = data.draw(elements(ring)), data.draw(elements(ring))
    modulus = 1 << bits
    garbage = data.draw(st.integers(0, (1 << 64) - 1)) << bits
    a, b = (
        np.array([(i + garbage) % (1 << 64) for i in numbers], dtype=np.uint64).astype(ring.dtype)
        for numbers in (x, y)
    )
    assert ring.reduce_modulus(a).tolist() == x
    expected: dict[str, list[int]] = {
        "add": [(i + j) % modulus for i, j in zip(x, y, strict=True)],
        "subtract": [(i - j) % modulus for i, j in zip(x, y, strict=True)],
        "multiply": [(i * j) % modulus for i, j in zip(x, y, strict=True)],
    }
    for name, result in expected.items():
        assert ring.reduce_modulus(getattr(ring, name)(a, b)).tolist() == result
    assert ring.reduce_modulus(ring.negate(a)).tolist() == [-i % modulus for i in x]
    assert int(ring.reduce_modulus(ring.sum(a))) == sum(x) % modulus
    total = a.copy()
    ring.add_in_place(total, b)
    assert ring.reduce_modulus(total).tolist() == expected["add"]


@pytest.mark.parametrize("bits", range(1, 65))
def test_each_ring_is_a_single_object(bits: int) -> None:
    """Rings are compared by `is`, and use the smallest type that holds an element."""
    ring = get_integer_ring(bits)
    assert ring is get_integer_ring(bits)
    assert (ring.name, ring.bits, ring.boolean) == (f"Z{bits}", bits, False)
    size = ring.dtype.itemsize
    assert ring.dtype.kind == "u"
    assert 8 * size >= bits > (0 if size == 1 else 4 * size)
    assert ring.is_word == (bits in (8, 16, 32, 64))
    assert ring.nbytes((3, 5)) == 15 * size


def test_named_rings() -> None:
    for bits, ring in ((64, Z64), (36, Z36), (32, Z32), (16, Z16), (8, Z8)):
        assert ring is get_integer_ring(bits)
    assert BIT_RING is not Z8
    assert BIT_RING.is_word


@given(elements(BIT_RING), elements(BIT_RING))
def test_bits_are_xor_and_and(x: list[int], y: list[int]) -> None:
    a, b = np.array(x, dtype=np.uint8), np.array(y, dtype=np.uint8)
    xor = [i ^ j for i, j in zip(x, y, strict=True)]
    assert BIT_RING.add(a, b).tolist() == BIT_RING.subtract(a, b).tolist() == xor
    assert BIT_RING.multiply(a, b).tolist() == [i & j for i, j in zip(x, y, strict=True)]
    assert BIT_RING.negate(a).tolist() == x
    assert int(BIT_RING.sum(a)) == x[0] ^ x[1] ^ x[2]


@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)
def test_scalars_stay_in_the_ring(ring: Ring) -> None:
    """No promotion to another type, and no warning of an intended overflow."""
    top = np.array((1 << ring.bits) - 1, dtype=ring.dtype)
    for result in (ring.add(top, top), ring.multiply(top, top), ring.negate(top), ring.sum(top)):
        assert isinstance(result, np.ndarray)
        assert result.dtype == ring.dtype
        assert result.shape == ()


def test_only_integers_are_elements() -> None:
    for bad in (0.5, True, np.array([1.0]), "1"):
        with pytest.raises(TypeError, match="not elements of Z64"):
            Z64.to_elements(bad)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=40))
def test_bit_planes(words: list[int]) -> None:
    planes = to_bit_planes(np.array(words, dtype=np.uint64))
    assert planes.shape == (64, packed_length(len(words)))
    for k in range(64):
        bits = unpack_bits(planes[k], len(words))
        assert bits.tolist() == [(word >> k) & 1 for word in words]
        assert (pack_bits(bits) == planes[k]).all()
    narrow: Any = np.array([word & 0xFFFFFFFF for word in words], dtype=np.uint32)
    assert (to_bit_planes(narrow) == planes[:32]).all()
