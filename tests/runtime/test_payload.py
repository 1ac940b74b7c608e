from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privet.arithmetic.rings import BIT_RING, Z32, Z36, Z64, Ring, get_integer_ring
from privet.runtime.opening import Payload

rings = st.integers(1, 64).map(get_integer_ring) | st.just(BIT_RING)


@given(st.lists(st.tuples(rings, st.integers(0, 30)), max_size=5), st.integers(0, 2**32))
def test_decoding_inverts_encoding(vectors: list[tuple[Ring, int]], seed: int) -> None:
    """Encode vectors of any rings and lengths as one message of known size."""
    rng = np.random.default_rng(seed)
    payload = Payload([ring for ring, _ in vectors], [length for _, length in vectors])
    arrays = [
        ring.reduce_modulus(rng.integers(0, 2**64, length, dtype=np.uint64).astype(ring.dtype))
        for ring, length in vectors
    ]
    message = payload.encode(arrays)
    assert message.nbytes == payload.nbytes
    assert payload.nbytes == sum(ring.count_packed_bytes(length) for ring, length in vectors)
    assert (message.dtype, message.shape) == (payload.expected.dtype, payload.expected.shape)
    for array, found in zip(arrays, payload.decode(message), strict=True):
        assert found.dtype == array.dtype
        assert (found == array).all()


def test_a_single_vector_of_words_is_not_copied() -> None:
    x = np.arange(6, dtype=np.uint64).reshape(2, 3)
    payload = Payload.for_array(Z64, x.shape)
    message = payload.encode([x])
    assert message.dtype == np.uint64
    assert message.shape == (6,)
    assert np.shares_memory(message, x)


def test_known_sizes() -> None:
    assert Payload.for_array(Z36, (3, 5)).nbytes == 4 * 15 + 8
    assert Payload.for_array(get_integer_ring(1), (17,)).nbytes == 3
    assert Payload([Z36, Z32, BIT_RING], [3, 2, 5]).nbytes == (12 + 2) + 8 + 5
    assert Payload([], []).nbytes == 0
