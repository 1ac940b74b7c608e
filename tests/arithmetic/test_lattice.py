"""Lattice masks: what is drawn, and products that are exact."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

from privet.arithmetic import cores
from privet.arithmetic import lattice as module
from privet.arithmetic.lattice import (
    DEGREE,
    ERROR_BITS,
    MOST_BITS,
    Lattice,
    SmallProducts,
    binomial,
    ternary,
)
from privet.arithmetic.prg import Place, Prg
from privet.arithmetic.rings import Z64, integers_modulo, signed

SEED = "07" * 32
STREAM = Prg(bytes(32))
WIDE = integers_modulo(MOST_BITS)


def product(a: np.ndarray, s: np.ndarray) -> np.ndarray:
    """The product modulo X^2048 + 1 and 2^64, from what it is."""
    whole = np.zeros(2 * DEGREE, dtype=np.uint64)
    for k in np.flatnonzero(s):
        whole[k : k + DEGREE] += a * Z64.array(s[k])
    found: np.ndarray = whole[:DEGREE] - whole[DEGREE:]
    return found


# What is drawn.


@pytest.mark.parametrize("bits", [16, 32, 44])
def test_secrets(bits: int) -> None:
    """-1, 0 and 1, each as likely; another place has others, the same place the same."""
    ring = integers_modulo(bits)
    drawn = signed(ternary(STREAM, Place("s", (1,), 0), (60, DEGREE), ring))
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [-1, 0, 1]
    third = drawn.size / 3
    assert np.abs(counts - third).max() < 5 * np.sqrt(third * 2 / 3)
    again = signed(ternary(STREAM, Place("s", (1,), 0), (60, DEGREE), ring))
    other = signed(ternary(STREAM, Place("s", (1,), 1), (60, DEGREE), ring))
    assert (drawn == again).all()
    for one, two in ((drawn, other), (drawn[:-1], drawn[1:])):
        assert abs((one * two).mean()) < 5 * (2 / 3) / np.sqrt(one.size)


@pytest.mark.parametrize("bits", [16, 32, 44])
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
    whole = binomial(STREAM, Place("e", (), 0), (2, 1000), WIDE)
    cut = cores.blocks
    monkeypatch.setattr(cores, "blocks", lambda count, size=77: cut(count, size))
    assert (whole == binomial(STREAM, Place("e", (), 0), (2, 1000), WIDE)).all()


def test_public_polynomials() -> None:
    """Uniform, others in every block and for every seed, and the same for everybody."""
    lattice = Lattice(SEED, 20 * DEGREE, MOST_BITS)
    drawn = lattice.polynomials(slice(None))
    assert drawn.shape == (20, DEGREE)
    assert (drawn == Lattice(SEED, 20 * DEGREE, MOST_BITS).polynomials(slice(None))).all()
    assert (lattice.polynomials(slice(3, 5)) == drawn[3:5]).all()
    assert len(np.unique(drawn)) == drawn.size
    others = Lattice("08" * 32, 20 * DEGREE, MOST_BITS).polynomials(slice(None))
    assert len(np.intersect1d(drawn, others)) == 0
    assert int(drawn.max()) < 1 << MOST_BITS
    for bit in range(MOST_BITS):
        ones = int((drawn >> np.uint64(bit) & np.uint64(1)).sum())
        assert abs(ones - drawn.size / 2) < 5 * np.sqrt(drawn.size) / 2


@pytest.mark.parametrize("bits", [0, MOST_BITS + 1, 48])
def test_unsafe_moduli_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match="a modulus of 1 to 44 bits"):
        Lattice(SEED, 10, bits)


# Products.


@pytest.mark.parametrize("bits", [16, 25, 36, 44])
@pytest.mark.parametrize("largest", [1, 96, 500])
def test_products_are_exact(bits: int, largest: int) -> None:
    """Of secrets, and of sums of several participants' and dealers'."""
    ring = integers_modulo(bits)
    lattice = Lattice(SEED, 2 * DEGREE + 5, MOST_BITS)
    rng = np.random.default_rng(largest)
    s = rng.integers(-largest, largest + 1, (2, DEGREE))
    found = lattice.spread(ring.array(s))
    assert found.shape == (2, lattice.rows)
    a = lattice.polynomials(slice(None))
    for k in range(2):
        expected = np.concatenate([product(block, s[k]) for block in a])[: lattice.rows]
        assert (ring.reduce(found[k]) == ring.reduce(ring.array(expected))).all()


def test_what_is_rounded_is_near_an_integer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst that limbs and factors can be: all of the same sign and as large as they get."""
    off: list[float] = []
    inverse = scipy.fft.ifft

    def measured(x: np.ndarray, **options: bool) -> np.ndarray:
        found: np.ndarray = inverse(x, **options)
        exact = found * module._TWIST.conj()
        off.extend(float(np.abs(part - np.rint(part)).max()) for part in (exact.real, exact.imag))
        return found

    monkeypatch.setattr(scipy.fft, "ifft", measured)
    worst = integers_modulo(48).array(np.full((3, DEGREE), (1 << 47) - (1 << 23) - 1))
    lattice = Lattice(SEED, 3 * DEGREE, MOST_BITS)
    monkeypatch.setattr(Lattice, "polynomials", lambda self, blocks: worst)
    largest = 500
    for signs in (np.ones(DEGREE, dtype=np.int64), np.resize([1, -1], DEGREE)):
        found = lattice.spread(WIDE.array(largest * signs)[None])
        expected = product(worst[0], largest * signs)
        assert (WIDE.reduce(found[0, :DEGREE]) == WIDE.reduce(expected)).all()
    assert 0 < max(off) < largest / 2048 / 20  # far from the bound


@pytest.mark.parametrize("rows", [5, DEGREE, 3 * DEGREE + 700])
@pytest.mark.parametrize("at_once", [1, 2, 32])
def test_indicators_times_polynomials(
    rows: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M P times a secret is M times P s, whatever rows are added up at once."""
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    lattice, cuts = Lattice(SEED, rows, MOST_BITS), 6
    bucket = np.random.default_rng(rows).integers(0, cuts + 1, rows).astype(np.uint8)
    gathered = lattice.gather(bucket, cuts)
    assert gathered.shape == (cuts, DEGREE)
    s = ternary(STREAM, Place("s", (), 1), (3, DEGREE), WIDE)
    matrix = SmallProducts(cuts + 2)
    matrix.place(2, gathered)
    narrow = integers_modulo(20)
    found, short = matrix.times((s[:2].T, WIDE), (narrow.array(signed(s[2:])).T, narrow))
    below = (bucket <= np.arange(cuts)[:, None]).astype(np.uint64)
    expected = below @ lattice.spread(s).T
    assert not found[:2].any()
    assert (WIDE.reduce(found[2:]) == WIDE.reduce(expected[:, :2])).all()
    assert (narrow.reduce(short[2:]) == narrow.reduce(expected[:, 2:].astype(np.uint32))).all()
    (part,) = matrix.part(np.array([2, 4]), slice(None)).times((s.T, WIDE))
    assert (WIDE.reduce(part) == WIDE.reduce(expected[[0, 2]])).all()
    assert matrix.times() == []


def test_what_is_too_large_is_refused() -> None:
    """Products would no longer be exact."""
    lattice, matrix = Lattice(SEED, 10, MOST_BITS), SmallProducts(1)
    large = WIDE.array(np.full((1, DEGREE), -501))
    with pytest.raises(AssertionError, match="small"):
        lattice.spread(large)
    with pytest.raises(AssertionError, match="small"):
        matrix.times((large.T, WIDE))
