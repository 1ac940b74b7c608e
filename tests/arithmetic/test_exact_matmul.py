from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet.arithmetic.exact_matmul import _BITS, _EXACT_ROWS, _LIMBS, LimbMatrix
from privet.arithmetic.rings import Z16, Z36


def limbs(matrix: np.ndarray) -> LimbMatrix:
    result = LimbMatrix(*matrix.shape)
    result.fill_rows(0, matrix[:1])
    result.fill_rows(1, matrix[1:])
    return result


@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 2**32))
def test_limb_products_are_exact(length: int, vectors: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    top = 2**36 - 1
    matrix = rng.choice(
        np.array([0, 1, top, top - 1, 2**18, 2**18 - 1], dtype=np.uint64), (3, length)
    )
    x = rng.integers(0, top, (length, vectors), dtype=np.uint64, endpoint=True)
    y = rng.integers(0, 2**16, (length, vectors), dtype=np.uint16)
    product, small = limbs(matrix).multiply((x, Z36), (y, Z16))
    exact = matrix.astype(object) @ x.astype(object)
    assert (Z36.reduce_modulus(product) == exact % 2**36).all()
    assert (small == (matrix.astype(object) @ y.astype(object)) % 2**16).all()


def test_large_matrices_are_multiplied_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.integers(0, 2**36, (4, 100), dtype=np.uint64)
    x = rng.integers(0, 2**36, (100, 3), dtype=np.uint64)
    whole = limbs(matrix).multiply((x, Z36))[0]
    monkeypatch.setattr("privet.arithmetic.exact_matmul._MAX_MEMORY_BYTES", 2000)
    assert (limbs(matrix).multiply((x, Z36))[0] == whole).all()


@pytest.mark.parametrize("max_bytes", [1 << 30, 1000])
def test_select_rows_and_columns(max_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory or in a file, in blocks or at once."""
    monkeypatch.setattr("privet.arithmetic.exact_matmul._MAX_MEMORY_BYTES", max_bytes)
    rng = np.random.default_rng(0)
    matrix = rng.integers(0, 2**36, (5, 100), dtype=np.uint64)
    rows, columns = np.array([0, 3, 4]), np.flatnonzero(rng.random(100) < 0.6)
    for some_rows, some_columns in ((rows, columns), (slice(None), columns), (rows, slice(100))):
        expected = matrix[some_rows][:, some_columns]
        x = rng.integers(0, 2**36, (expected.shape[1], 3), dtype=np.uint64)
        part = limbs(matrix).select(some_rows, some_columns)
        exact = (expected.astype(object) @ x.astype(object)) % 2**36
        assert (Z36.reduce_modulus(part.multiply((x, Z36))[0]) == exact).all()


def test_sums_of_limbs_are_exact() -> None:
    assert _EXACT_ROWS * ((1 << _BITS) - 1) ** 2 <= 2**53
    assert Z36.bits <= _LIMBS * _BITS


def test_products_are_exact_beyond_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the largest possible entries, and more rows than are summed as floats at once."""
    monkeypatch.setattr("privet.arithmetic.exact_matmul._EXACT_ROWS", 16)
    rng = np.random.default_rng(0)
    for low in (0, 2**36 - 1):
        matrix = rng.integers(low, 2**36, (3, 50), dtype=np.uint64)
        x = rng.integers(low, 2**36, (50, 2), dtype=np.uint64)
        exact = (matrix.astype(object) @ x.astype(object)) % 2**36
        assert (Z36.reduce_modulus(limbs(matrix).multiply((x, Z36))[0]) == exact).all()


def test_unfilled_rows_are_zero() -> None:
    matrix = LimbMatrix(2, 3)
    assert (matrix.multiply((np.ones((3, 1), dtype=np.uint64), Z36))[0] == 0).all()
    assert LimbMatrix.estimate_memory(10, 1000) == 160_000
    assert LimbMatrix.estimate_memory(10**6, 10**6) == 1 << 30
