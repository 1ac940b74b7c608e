"""Ring-LWE samples: the distributions of draws, and exact products."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

from privet.arithmetic import large_arrays
from privet.arithmetic import ring_lwe as module
from privet.arithmetic.prg import Place, Prg
from privet.arithmetic.ring_lwe import (
    BINOMIAL_ERROR_BITS,
    MAX_MODULUS_BITS,
    SAFE_MODULUS_BITS,
    RingLwe,
    SmallFactorMatrix,
    binomial,
    degree_for,
    ternary,
)
from privet.arithmetic.rings import Z64, get_integer_ring, signed

SEED = "07" * 32
STREAM = Prg(bytes(32))
DEGREES = pytest.mark.parametrize(("degree", "bits"), SAFE_MODULUS_BITS.items())


def product(a: np.ndarray, s: np.ndarray) -> np.ndarray:
    """The product modulo X^d + 1 and 2^64, by definition."""
    degree = len(s)
    whole = np.zeros(2 * degree, dtype=np.uint64)
    for k in np.flatnonzero(s):
        whole[k : k + degree] += a * Z64.to_elements(s[k])
    found: np.ndarray = whole[:degree] - whole[degree:]
    return found


# Draws.


@pytest.mark.parametrize("bits", [16, 32, 44, 64])
def test_secrets_are_ternary(bits: int) -> None:
    """-1, 0 and 1, equally likely; equal for the same place, independent for another place."""
    ring, shape = get_integer_ring(bits), (60, degree_for(bits))
    drawn = signed(ternary(STREAM, Place("s", (1,), 0), shape, ring))
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [-1, 0, 1]
    third = drawn.size / 3
    assert np.abs(counts - third).max() < 5 * np.sqrt(third * 2 / 3)
    again = signed(ternary(STREAM, Place("s", (1,), 0), shape, ring))
    other = signed(ternary(STREAM, Place("s", (1,), 1), shape, ring))
    assert (drawn == again).all()
    for one, two in ((drawn, other), (drawn[:-1], drawn[1:])):
        assert abs((one * two).mean()) < 5 * (2 / 3) / np.sqrt(one.size)


@pytest.mark.parametrize("bits", [16, 32, 44, 64])
def test_errors_are_binomial(bits: int) -> None:
    """A centred binomial of 40 bits, by mean, variance, kurtosis and the frequency of 0."""
    ring, size = get_integer_ring(bits), 300_000
    drawn = signed(binomial(STREAM, Place("e", (1,), 0), (3, size // 3), ring)).astype(float)
    variance = BINOMIAL_ERROR_BITS / 4
    assert abs(drawn.mean()) < 5 * np.sqrt(variance / size)
    assert abs(drawn.var() - variance) < 5 * np.sqrt(2 * variance**2 / size)
    kurtosis = (drawn**4).mean() / variance**2
    assert abs(kurtosis - (3 - 2 / BINOMIAL_ERROR_BITS)) < 5 * np.sqrt(96 / size)
    zero = 137846528820 / 2**BINOMIAL_ERROR_BITS  # 40 over 20
    assert abs((drawn == 0).mean() - zero) < 5 * np.sqrt(zero / size)
    assert np.abs(drawn).max() <= BINOMIAL_ERROR_BITS // 2
    for lag in (1, 2, 64):
        products = drawn.reshape(-1)[lag:] * drawn.reshape(-1)[:-lag]
        assert abs(products.mean()) < 5 * variance / np.sqrt(size)


def test_errors_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = binomial(STREAM, Place("e", (), 0), (2, 1000), Z64)
    cut = large_arrays.split_into_blocks
    monkeypatch.setattr(large_arrays, "split_into_blocks", lambda count, size=77: cut(count, size))
    assert (whole == binomial(STREAM, Place("e", (), 0), (2, 1000), Z64)).all()


@DEGREES
def test_public_polynomials(degree: int, bits: int) -> None:
    """Uniform, different in every block and for every seed, and reproducible."""
    rows = 20 * degree
    lattice = RingLwe(SEED, rows, bits)
    assert lattice.degree == degree
    drawn = lattice.polynomials(slice(None))
    assert drawn.shape == (20, degree)
    assert (drawn == RingLwe(SEED, rows, bits).polynomials(slice(None))).all()
    assert (lattice.polynomials(slice(3, 5)) == drawn[3:5]).all()
    assert len(np.unique(drawn)) == drawn.size
    others = RingLwe("08" * 32, rows, bits).polynomials(slice(None))
    assert len(np.intersect1d(drawn, others)) == 0
    assert int(drawn.max()) < 1 << bits
    for bit in range(bits):
        ones = int((drawn >> np.uint64(bit) & np.uint64(1)).sum())
        assert abs(ones - drawn.size / 2) < 5 * np.sqrt(drawn.size) / 2


@pytest.mark.parametrize("bits", [0, MAX_MODULUS_BITS + 1])
def test_unsafe_moduli_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match="a modulus of 1 to 64 bits"):
        RingLwe(SEED, 10, bits)


@pytest.mark.parametrize(("bits", "degree"), [(1, 2048), (44, 2048), (45, 4096), (64, 4096)])
def test_larger_moduli_need_longer_polynomials(bits: int, degree: int) -> None:
    lattice = RingLwe(SEED, 2 * degree + 1, bits)
    assert (lattice.degree, lattice.blocks) == (degree, 3)


# Products.


@pytest.mark.parametrize("bits", [16, 25, 36, 44, 45, 46, 47, 57, 64])
@pytest.mark.parametrize("largest", [1, 96, 500])
def test_products_are_exact(bits: int, largest: int) -> None:
    """With secrets, and with sums of the secrets of several participants and dealers."""
    ring = get_integer_ring(bits)
    lattice = RingLwe(SEED, 2 * degree_for(bits) + 5, SAFE_MODULUS_BITS[degree_for(bits)])
    rng = np.random.default_rng(largest)
    s = rng.integers(-largest, largest + 1, (2, lattice.degree))
    for each in (lattice, RingLwe(SEED, lattice.rows, bits)):
        found = each.expand_secrets(ring.to_elements(s))
        assert found.shape == (2, lattice.rows)
        a = each.polynomials(slice(None))
        for k in range(2):
            expected = np.concatenate([product(block, s[k]) for block in a])[: lattice.rows]
            assert (
                ring.reduce_modulus(found[k]) == ring.reduce_modulus(ring.to_elements(expected))
            ).all()


@pytest.mark.parametrize(
    ("bits", "limbs"), [(44, (24, 24)), (46, (23, 23)), (64, (23, 23, 18))], ids=str
)
def test_computed_coefficients_are_near_integers(
    bits: int, limbs: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the worst case: all limbs and factors of the same sign, and as large as possible."""
    ring, degree, largest = get_integer_ring(bits), degree_for(bits), 500
    off: list[float] = []
    inverse = scipy.fft.ifft

    def measured(x: np.ndarray, **options: bool) -> np.ndarray:
        found: np.ndarray = inverse(x, **options)
        exact = found * module._twist(degree).conj()
        off.extend(float(np.abs(part - np.rint(part)).max()) for part in (exact.real, exact.imag))
        return found

    monkeypatch.setattr(scipy.fft, "ifft", measured)
    # Every limb as large as a signed one can be.
    value = sum(((1 << (size - 1)) - 1) << sum(limbs[:k]) for k, size in enumerate(limbs))
    worst = np.full((3, degree), value, dtype=np.uint64)
    assert (module._limbs(worst, bits)[:, 0, 0] == [(1 << (size - 1)) - 1 for size in limbs]).all()
    lattice = RingLwe(SEED, 3 * degree, bits)
    monkeypatch.setattr(RingLwe, "polynomials", lambda self, blocks: worst)
    for signs in (np.ones(degree, dtype=np.int64), np.resize([1, -1], degree)):
        found = lattice.expand_secrets(ring.to_elements(largest * signs)[None])
        expected = product(worst[0], largest * signs)
        assert (ring.reduce_modulus(found[0, :degree]) == ring.reduce_modulus(expected)).all()
    assert 0 < max(off) < largest / 2048 / 20  # far from the bound


@pytest.mark.parametrize("bits", [44, 45, 64])
@pytest.mark.parametrize(("blocks", "more"), [(0, 5), (1, 0), (3, 700)])
@pytest.mark.parametrize("at_once", [1, 1 << 13, 1 << 16])
def test_indicators_times_polynomials(
    bits: int, blocks: int, more: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M P times a secret is M times P s, for any number of rows that are added at once."""
    monkeypatch.setattr(module, "_GROUP_ROWS", at_once)
    wide, degree, cuts = get_integer_ring(bits), degree_for(bits), 6
    rows = blocks * degree + more
    lattice = RingLwe(SEED, rows, bits)
    bucket = np.random.default_rng(rows).integers(0, cuts + 1, rows).astype(np.uint8)
    projected = lattice.project_indicators(bucket, cuts)
    assert projected.shape == (cuts, degree)
    s = ternary(STREAM, Place("s", (), 1), (3, degree), wide)
    matrix = SmallFactorMatrix(cuts + 2, bits)
    matrix.fill_rows(2, projected)
    narrow = get_integer_ring(20)
    found, short = matrix.multiply((s[:2].T, wide), (narrow.to_elements(signed(s[2:])).T, narrow))
    below = (bucket <= np.arange(cuts)[:, None]).astype(np.uint64)
    expected = below @ lattice.expand_secrets(s).T
    assert not found[:2].any()
    assert (wide.reduce_modulus(found[2:]) == wide.reduce_modulus(expected[:, :2])).all()
    assert (
        narrow.reduce_modulus(short[2:]) == narrow.reduce_modulus(expected[:, 2:].astype(np.uint32))
    ).all()
    (part,) = matrix.select(np.array([2, 4]), slice(None)).multiply((s.T, wide))
    assert (wide.reduce_modulus(part) == wide.reduce_modulus(expected[[0, 2]])).all()
    assert matrix.multiply() == []


@DEGREES
def test_bits_beyond_the_modulus_are_ignored(degree: int, bits: int) -> None:
    """Sums are exact at their largest."""
    ring = get_integer_ring(bits)
    rows = np.stack([np.full(degree, (1 << 64) - 1), np.full(degree, (1 << 63) + (1 << 43) - 1)])
    matrix = SmallFactorMatrix(2, bits)
    matrix.fill_rows(0, rows.astype(np.uint64))
    factors = np.full((degree, 1), 500)
    (found,) = matrix.multiply((ring.to_elements(factors), ring))
    expected = rows.astype(np.uint64) @ Z64.to_elements(factors)
    assert (ring.reduce_modulus(found) == ring.reduce_modulus(expected)).all()


@DEGREES
def test_large_factors_are_refused(degree: int, bits: int) -> None:
    """With larger factors, products would not be exact."""
    lattice, matrix = RingLwe(SEED, 10, bits), SmallFactorMatrix(1, bits)
    large = Z64.to_elements(np.full((1, degree), -501))
    with pytest.raises(AssertionError, match="small"):
        lattice.expand_secrets(large)
    with pytest.raises(AssertionError, match="small"):
        matrix.multiply((large.T, Z64))
