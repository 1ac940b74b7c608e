"""Lattice masks: what is drawn, and products that are exact."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

from privet.arithmetic import large_arrays
from privet.arithmetic import ring_lwe as module
from privet.arithmetic.prg import Place, Prg
from privet.arithmetic.ring_lwe import (
    ERROR_BITS,
    MOST_BITS,
    SAFE_BITS,
    Lattice,
    SmallProducts,
    binomial,
    degree_for,
    ternary,
)
from privet.arithmetic.rings import Z64, integers_modulo, signed

SEED = "07" * 32
STREAM = Prg(bytes(32))
DEGREES = pytest.mark.parametrize(("degree", "bits"), SAFE_BITS.items())


def product(a: np.ndarray, s: np.ndarray) -> np.ndarray:
    """The product modulo X^d + 1 and 2^64, from what it is."""
    degree = len(s)
    whole = np.zeros(2 * degree, dtype=np.uint64)
    for k in np.flatnonzero(s):
        whole[k : k + degree] += a * Z64.array(s[k])
    found: np.ndarray = whole[:degree] - whole[degree:]
    return found


# What is drawn.


@pytest.mark.parametrize("bits", [16, 32, 44, 64])
def test_secrets(bits: int) -> None:
    """-1, 0 and 1, each as likely; another place has others, the same place the same."""
    ring, shape = integers_modulo(bits), (60, degree_for(bits))
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
def test_errors(bits: int) -> None:
    """A centred binomial of 40 bits, by mean, variance, kurtosis and how often it is 0."""
    ring, size = integers_modulo(bits), 300_000
    drawn = signed(binomial(STREAM, Place("e", (1,), 0), (3, size // 3), ring)).astype(float)
    variance = ERROR_BITS / 4
    assert abs(drawn.mean()) < 5 * np.sqrt(variance / size)
    assert abs(drawn.var() - variance) < 5 * np.sqrt(2 * variance**2 / size)
    kurtosis = (drawn**4).mean() / variance**2
    assert abs(kurtosis - (3 - 2 / ERROR_BITS)) < 5 * np.sqrt(96 / size)
    zero = 137846528820 / 2**ERROR_BITS  # 40 over 20
    assert abs((drawn == 0).mean() - zero) < 5 * np.sqrt(zero / size)
    assert np.abs(drawn).max() <= ERROR_BITS // 2
    for lag in (1, 2, 64):
        moved = drawn.reshape(-1)[lag:] * drawn.reshape(-1)[:-lag]
        assert abs(moved.mean()) < 5 * variance / np.sqrt(size)


def test_errors_do_not_depend_on_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = binomial(STREAM, Place("e", (), 0), (2, 1000), Z64)
    cut = large_arrays.blocks
    monkeypatch.setattr(large_arrays, "blocks", lambda count, size=77: cut(count, size))
    assert (whole == binomial(STREAM, Place("e", (), 0), (2, 1000), Z64)).all()


@DEGREES
def test_public_polynomials(degree: int, bits: int) -> None:
    """Uniform, others in every block and for every seed, and the same for everybody."""
    rows = 20 * degree
    lattice = Lattice(SEED, rows, bits)
    assert lattice.degree == degree
    drawn = lattice.polynomials(slice(None))
    assert drawn.shape == (20, degree)
    assert (drawn == Lattice(SEED, rows, bits).polynomials(slice(None))).all()
    assert (lattice.polynomials(slice(3, 5)) == drawn[3:5]).all()
    assert len(np.unique(drawn)) == drawn.size
    others = Lattice("08" * 32, rows, bits).polynomials(slice(None))
    assert len(np.intersect1d(drawn, others)) == 0
    assert int(drawn.max()) < 1 << bits
    for bit in range(bits):
        ones = int((drawn >> np.uint64(bit) & np.uint64(1)).sum())
        assert abs(ones - drawn.size / 2) < 5 * np.sqrt(drawn.size) / 2


@pytest.mark.parametrize("bits", [0, MOST_BITS + 1])
def test_unsafe_moduli_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match="a modulus of 1 to 64 bits"):
        Lattice(SEED, 10, bits)


@pytest.mark.parametrize(("bits", "degree"), [(1, 2048), (44, 2048), (45, 4096), (64, 4096)])
def test_larger_moduli_take_longer_polynomials(bits: int, degree: int) -> None:
    lattice = Lattice(SEED, 2 * degree + 1, bits)
    assert (lattice.degree, lattice.blocks) == (degree, 3)


# Products.


@pytest.mark.parametrize("bits", [16, 25, 36, 44, 45, 46, 47, 57, 64])
@pytest.mark.parametrize("largest", [1, 96, 500])
def test_products_are_exact(bits: int, largest: int) -> None:
    """Of secrets, and of sums of several participants' and dealers'."""
    ring = integers_modulo(bits)
    lattice = Lattice(SEED, 2 * degree_for(bits) + 5, SAFE_BITS[degree_for(bits)])
    rng = np.random.default_rng(largest)
    s = rng.integers(-largest, largest + 1, (2, lattice.degree))
    for each in (lattice, Lattice(SEED, lattice.rows, bits)):
        found = each.spread(ring.array(s))
        assert found.shape == (2, lattice.rows)
        a = each.polynomials(slice(None))
        for k in range(2):
            expected = np.concatenate([product(block, s[k]) for block in a])[: lattice.rows]
            assert (ring.reduce(found[k]) == ring.reduce(ring.array(expected))).all()


@pytest.mark.parametrize(
    ("bits", "limbs"), [(44, (24, 24)), (46, (23, 23)), (64, (23, 23, 18))], ids=str
)
def test_what_is_rounded_is_near_an_integer(
    bits: int, limbs: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst that limbs and factors can be: all of the same sign and as large as they get."""
    ring, degree, largest = integers_modulo(bits), degree_for(bits), 500
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
    lattice = Lattice(SEED, 3 * degree, bits)
    monkeypatch.setattr(Lattice, "polynomials", lambda self, blocks: worst)
    for signs in (np.ones(degree, dtype=np.int64), np.resize([1, -1], degree)):
        found = lattice.spread(ring.array(largest * signs)[None])
        expected = product(worst[0], largest * signs)
        assert (ring.reduce(found[0, :degree]) == ring.reduce(expected)).all()
    assert 0 < max(off) < largest / 2048 / 20  # far from the bound


@pytest.mark.parametrize("bits", [44, 45, 64])
@pytest.mark.parametrize(("blocks", "more"), [(0, 5), (1, 0), (3, 700)])
@pytest.mark.parametrize("at_once", [1, 1 << 13, 1 << 16])
def test_indicators_times_polynomials(
    bits: int, blocks: int, more: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M P times a secret is M times P s, whatever rows are added up at once."""
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    wide, degree, cuts = integers_modulo(bits), degree_for(bits), 6
    rows = blocks * degree + more
    lattice = Lattice(SEED, rows, bits)
    bucket = np.random.default_rng(rows).integers(0, cuts + 1, rows).astype(np.uint8)
    gathered = lattice.gather(bucket, cuts)
    assert gathered.shape == (cuts, degree)
    s = ternary(STREAM, Place("s", (), 1), (3, degree), wide)
    matrix = SmallProducts(cuts + 2, bits)
    matrix.place(2, gathered)
    narrow = integers_modulo(20)
    found, short = matrix.times((s[:2].T, wide), (narrow.array(signed(s[2:])).T, narrow))
    below = (bucket <= np.arange(cuts)[:, None]).astype(np.uint64)
    expected = below @ lattice.spread(s).T
    assert not found[:2].any()
    assert (wide.reduce(found[2:]) == wide.reduce(expected[:, :2])).all()
    assert (narrow.reduce(short[2:]) == narrow.reduce(expected[:, 2:].astype(np.uint32))).all()
    (part,) = matrix.part(np.array([2, 4]), slice(None)).times((s.T, wide))
    assert (wide.reduce(part) == wide.reduce(expected[[0, 2]])).all()
    assert matrix.times() == []


@DEGREES
def test_matrices_of_any_words(degree: int, bits: int) -> None:
    """Bits beyond the modulus mean nothing, and sums are exact at their largest."""
    ring = integers_modulo(bits)
    rows = np.stack([np.full(degree, (1 << 64) - 1), np.full(degree, (1 << 63) + (1 << 43) - 1)])
    matrix = SmallProducts(2, bits)
    matrix.place(0, rows.astype(np.uint64))
    factors = np.full((degree, 1), 500)
    (found,) = matrix.times((ring.array(factors), ring))
    expected = rows.astype(np.uint64) @ Z64.array(factors)
    assert (ring.reduce(found) == ring.reduce(expected)).all()


@DEGREES
def test_what_is_too_large_is_refused(degree: int, bits: int) -> None:
    """Products would no longer be exact."""
    lattice, matrix = Lattice(SEED, 10, bits), SmallProducts(1, bits)
    large = Z64.array(np.full((1, degree), -501))
    with pytest.raises(AssertionError, match="small"):
        lattice.spread(large)
    with pytest.raises(AssertionError, match="small"):
        matrix.times((large.T, Z64))
