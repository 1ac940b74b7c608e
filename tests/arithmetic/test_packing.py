"""Packing of ring elements: every width and length, without any extra bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.arithmetic.packing import pack_elements, unpack_elements
from privet.arithmetic.rings import BIT_RING, Z36, Ring, get_integer_ring

WIDTHS = range(1, 65)
LENGTHS = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 64, 100, 1001)

rings = st.sampled_from(WIDTHS).map(get_integer_ring) | st.just(BIT_RING)


def chunks_of(width: int) -> list[int]:
    """The powers of two that add up to a width, the largest first."""
    return [1 << k for k in reversed(range(7)) if width >> k & 1]


def plain(ring: Ring, values: list[int]) -> bytes:
    """The message as the module describes it, packed one chunk at a time."""
    message, shift = b"", 0
    for chunk in chunks_of(ring.bits):
        pieces = [(value >> shift) % (1 << chunk) for value in values]
        shift += chunk
        if chunk >= 8:
            message += b"".join(piece.to_bytes(chunk // 8, "little") for piece in pieces)
            continue
        length = -(-len(values) * chunk // 8)
        packed = [0] * length
        for i, piece in enumerate(pieces):
            run, position = divmod(i, length)
            packed[position] |= piece << (run * chunk)
        message += bytes(packed)
    return message


def vector(ring: Ring, values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.uint64).astype(ring.dtype)


def top(ring: Ring) -> int:
    return (1 << ring.bits) - 1


@st.composite
def messages(draw: st.DrawFn, rings: st.SearchStrategy[Ring] = rings) -> tuple[Ring, list[int]]:
    ring = draw(rings)
    extreme = st.sampled_from([0, 1, top(ring), top(ring) >> 1])
    values = draw(st.lists(extreme | st.integers(0, top(ring)), max_size=70))
    return ring, values


@given(messages())
def test_round_trip(message: tuple[Ring, list[int]]) -> None:
    ring, values = message
    sent = pack_elements(ring, vector(ring, values))
    assert sent.tobytes() == plain(ring, values)
    received = unpack_elements(ring, sent, len(values))
    assert received.dtype == ring.dtype
    assert received.tolist() == values


@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_at_every_length(width: int) -> None:
    ring = get_integer_ring(width)
    rng = np.random.default_rng(width)
    for length in LENGTHS:
        values = rng.integers(0, top(ring), length, dtype=np.uint64, endpoint=True).tolist()
        sent = pack_elements(ring, vector(ring, values))
        assert sent.tobytes() == plain(ring, values)
        assert unpack_elements(ring, sent, length).tolist() == values


@pytest.mark.parametrize("width", WIDTHS)
def test_packed_size_follows_the_width(width: int) -> None:
    """Exactly, except for less than a byte at the end of each chunk size below a byte."""
    ring = get_integer_ring(width)
    chunks = chunks_of(width)
    assert sum(chunks) == width
    for length in LENGTHS:
        count = sum(-(-length * chunk // 8) for chunk in chunks)
        assert ring.count_packed_bytes(length) == count
        assert pack_elements(ring, ring.zeros((length,))).nbytes == count
        if length % 8 == 0:
            assert 8 * count == width * length
        assert 0 <= 8 * count - width * length < 8 * sum(chunk < 8 for chunk in chunks) + 1


@given(messages(), st.integers(0, 2**64 - 1))
def test_upper_bits_are_not_sent(message: tuple[Ring, list[int]], garbage: int) -> None:
    """The bits of a word above an element are carries that no peer must see."""
    ring, values = message
    with_garbage = vector(ring, [value | garbage << ring.bits & 2**64 - 1 for value in values])
    sent = pack_elements(ring, with_garbage)
    assert sent.tobytes() == pack_elements(ring, vector(ring, values)).tobytes()
    assert unpack_elements(ring, sent, len(values)).tolist() == values


@given(messages(rings.filter(lambda ring: not ring.is_word)), st.integers(0, 7))
def test_unaligned_messages_are_unpacked(message: tuple[Ring, list[int]], offset: int) -> None:
    """A message can be a slice of a larger one; `Payload.decode` copies whole words."""
    ring, values = message
    sent = pack_elements(ring, vector(ring, values))
    around = np.full(offset + sent.size + 5, 0xFF, dtype=np.uint8)
    around[offset : offset + sent.size] = sent
    received = unpack_elements(ring, around[offset : offset + sent.size], len(values))
    assert received.tolist() == values


@given(messages())
def test_packing_does_not_change_its_input(message: tuple[Ring, list[int]]) -> None:
    ring, values = message
    values_array = vector(ring, values)
    sent = pack_elements(ring, values_array)
    copy = sent.copy()
    unpack_elements(ring, sent, len(values))
    assert values_array.tolist() == values
    assert (sent == copy).all()


def test_known_messages() -> None:
    """Messages are fixed, so that a version with another format is detected."""
    x = vector(Z36, [0x987654321, 0xABCDEF012, 0xD00000003])
    assert pack_elements(Z36, x).tobytes() == bytes.fromhex("21436587 12f0debc 03000000 d9 0a")
    bits = vector(get_integer_ring(1), [1, 0, 1, 1, 0, 0, 1, 0, 1])
    # Runs of two: 1 0, 1 1, 0 0, 1 0, 1.
    assert pack_elements(get_integer_ring(1), bits).tolist() == [0b11011, 0b00010]
    five = vector(get_integer_ring(5), [0b10011, 0b01111, 0b11000])
    # Low nibbles in runs of two, then upper bits in runs of one.
    assert pack_elements(get_integer_ring(5), five).tolist() == [0x83, 0x0F, 0b101]
