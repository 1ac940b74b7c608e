from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privet.arithmetic.rings import BITS, Z32, Z36, Z64, Ring, integers_modulo
from privet.runtime.opening import Letter

rings = st.integers(1, 64).map(integers_modulo) | st.just(BITS)


@given(st.lists(st.tuples(rings, st.integers(0, 30)), max_size=5), st.integers(0, 2**32))
def test_what_is_written_is_read(vectors: list[tuple[Ring, int]], seed: int) -> None:
    """Vectors of any rings and lengths, in one message of known size."""
    rng = np.random.default_rng(seed)
    letter = Letter([ring for ring, _ in vectors], [length for _, length in vectors])
    arrays = [
        ring.reduce(rng.integers(0, 2**64, length, dtype=np.uint64).astype(ring.dtype))
        for ring, length in vectors
    ]
    message = letter.write(arrays)
    assert message.nbytes == letter.nbytes
    assert letter.nbytes == sum(ring.wire_bytes(length) for ring, length in vectors)
    assert (message.dtype, message.shape) == (letter.kind.dtype, letter.kind.shape)
    for array, found in zip(arrays, letter.read(message), strict=True):
        assert found.dtype == array.dtype
        assert (found == array).all()


def test_one_vector_of_words_is_sent_as_it_is() -> None:
    x = np.arange(6, dtype=np.uint64).reshape(2, 3)
    letter = Letter.of(Z64, x.shape)
    message = letter.write([x])
    assert message.dtype == np.uint64
    assert message.shape == (6,)
    assert np.shares_memory(message, x)


def test_known_sizes() -> None:
    assert Letter.of(Z36, (3, 5)).nbytes == 4 * 15 + 8
    assert Letter.of(integers_modulo(1), (17,)).nbytes == 3
    assert Letter([Z36, Z32, BITS], [3, 2, 5]).nbytes == (12 + 2) + 8 + 5
    assert Letter([], []).nbytes == 0
