"""Masks of many rows from few numbers: samples of ring-LWE.

Rows are cut into blocks of d, 2048 or 4096. Block b has a public polynomial a_b over
Z_2^w[X] / (X^d + 1). A secret s of small coefficients and small errors e, one for each row, give
the mask

    r = a_b s + e   in block b,   or   r = P s + e   with a public matrix P, (rows, d)

which nobody who lacks s can tell from uniform numbers, as far as ring-LWE is hard: with secrets of
-1, 0 and 1, errors of a centred binomial of 40 bits (deviation 3.16), and at most 44 bits of
modulus for 2048 coefficients, or 64 for 4096. For indicators M of rows, M P has d columns, however
many rows.

Products are exact. Polynomials are cut into signed limbs, of 24 bits or, with d = 4096, of 23, and
multiplied by Fourier transforms of d / 2 complex numbers in float64. Each of up to 11 stages of a
transform is off by less than 7u of what it adds up, with u = 2^-53, and multiplications beside
transforms by less than 4u each. So a coefficient of a product, which takes three transforms, three
twists and one product, is off by less than 3 * 11 * 7u + 16u, which is below 256u, times both
vectors' norms, by the inequality of Cauchy and Schwarz. These are 2^23 sqrt(2048), or
2^22 sqrt(4096), for a limb, and k sqrt(d) for numbers up to k: k / 2048 in all. What is rounded is
an integer, so k may be 500 to be within a quarter of it.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from privet.arithmetic import large_arrays
from privet.arithmetic.prg import Place, Prg
from privet.arithmetic.rings import Z64, Ring, RingArray, get_integer_ring, signed
from privet.arrays import BucketArray, IndexSelection

SAFE_MODULUS_BITS = {2048: 44, 4096: 64}
"""Of the modulus, by the degree of the polynomials: more would be less than 128 bits of security by
the more careful estimates, or, with 4096, more than our words have."""
MAX_MODULUS_BITS = max(SAFE_MODULUS_BITS.values())
BINOMIAL_ERROR_BITS = 40
"""An error is how many of so many random bits are 1, less half of them."""
_LIMB = {2048: 24, 4096: 23}
_GROUP_ROWS = 1 << 16  # rows whose blocks are multiplied together, so that they stay in the cache
_MAX_FACTOR = 500  # of what polynomials and matrices are multiplied with

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]


def degree_for(bits: int) -> int:
    """Return how many coefficients polynomials, and secrets, need for a modulus to be safe."""
    return next(degree for degree, most in SAFE_MODULUS_BITS.items() if bits <= most)


def ternary(stream: Prg, place: Place, shape: tuple[int, ...], ring: Ring) -> RingArray:
    """Draw secrets: -1, 0 and 1, each as likely, to 2^-62."""
    words = stream.uniform(place, shape, Z64)
    return ring.to_elements((words % np.uint64(3)).astype(np.int64) - 1)


def binomial(stream: Prg, place: Place, shape: tuple[int, ...], ring: Ring) -> RingArray:
    """Draw errors, of a deviation of sqrt(10)."""
    found = np.empty(math.prod(shape), dtype=ring.dtype)

    def draw(where: slice) -> None:
        part = found[where]
        words = stream.uniform(place, found.shape, Z64, where)
        words >>= np.uint64(64 - BINOMIAL_ERROR_BITS)
        part[...] = np.bitwise_count(words)
        part -= ring.dtype.type(BINOMIAL_ERROR_BITS // 2)

    large_arrays.run_blocks(draw, large_arrays.split_into_blocks(found.size), found.size)
    return found.reshape(shape)


@dataclass(frozen=True)
class RingLwe:
    """The public polynomials of some rows."""

    seed: str
    """What they are drawn from; public."""
    rows: int
    bits: int
    """Of the modulus."""

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAX_MODULUS_BITS:
            raise ValueError(f"a modulus of 1 to {MAX_MODULUS_BITS} bits, not {self.bits}")

    @staticmethod
    def estimate_memory(n_rows: int, bits: int) -> int:
        """Return about how many bytes of memory the transforms of so many rows take."""
        return 8 * n_rows * _count_limbs(bits)

    @property
    def ring(self) -> Ring:
        """The integers modulo the modulus."""
        return get_integer_ring(self.bits)

    @property
    def degree(self) -> int:
        """How many coefficients the polynomials have."""
        return degree_for(self.bits)

    @property
    def blocks(self) -> int:
        """How many blocks there are; the last one's rows beyond the end are left out."""
        return -(-self.rows // self.degree)

    def polynomials(self, blocks: slice) -> RingArray:
        """Return the coefficients of some blocks' polynomials."""
        stream = Prg(bytes.fromhex(self.seed))
        drawn = [
            stream.uniform(Place("lattice", (b,), 0), (self.degree,), self.ring)
            for b in range(*blocks.indices(self.blocks))
        ]
        return self.ring.reduce_modulus(np.array(drawn))

    @cached_property
    def _transforms(self) -> Complex:
        """Return the transforms of all polynomials' limbs: (limbs, blocks, d / 2)."""
        shape = _count_limbs(self.bits), self.blocks, self.degree // 2
        found = np.empty(shape, dtype=np.complex128)

        def transform(where: slice) -> None:
            for limb, row in zip(_limbs(self.polynomials(where), self.bits), found, strict=True):
                row[where] = _transform(limb)

        large_arrays.run_blocks(transform, self._groups(), self.rows)
        return found

    def _groups(self) -> list[slice]:
        return large_arrays.split_into_blocks(self.blocks, max(1, _GROUP_ROWS // self.degree))

    def expand_secrets(self, secrets: RingArray) -> RingArray:
        """Return P s for secrets (..., d): (..., rows), over any ring up to the modulus.

        They are numbers up to 500 in size, of any sign.
        """
        degree = self.degree
        flat = secrets.reshape(-1, degree)
        found = np.empty((len(flat), self.rows), dtype=secrets.dtype)
        transforms, of_secrets = self._transforms, _transform(_small(flat))

        def multiply(job: tuple[int, slice]) -> None:
            k, where = job
            product = _joined(_inverse(transforms[:, where] * of_secrets[k]), self.bits)
            part = found[k, where.start * degree : where.stop * degree]
            part[...] = product.reshape(-1)[: len(part)].astype(secrets.dtype)

        jobs = [(k, where) for k in range(len(flat)) for where in self._groups()]
        large_arrays.run_blocks(multiply, jobs, found.size)
        return found.reshape(*secrets.shape[:-1], self.rows)

    def project_indicators(self, bucket: BucketArray, cut_count: int) -> RingArray:
        """Return M P, (cuts, d), for the indicators M of rows up to each cut.

        Sums of a few blocks are made of transforms, and these are added up as integers.
        """
        degree = self.degree
        total = np.zeros((cut_count, degree), dtype=np.int64)
        of_cut, transforms, adding = (
            np.arange(cut_count)[:, None],
            self._transforms,
            threading.Lock(),
        )

        def add(where: slice) -> None:
            sums = np.zeros((len(transforms), cut_count, degree // 2), dtype=np.complex128)
            for b in range(*where.indices(self.blocks)):
                part = bucket[b * degree : (b + 1) * degree]
                ones = np.zeros((cut_count, degree))
                ones[:, : len(part)] = part == of_cut
                sums += _transform(ones) * transforms[:, b, None].conj()
            found = _joined(_inverse(sums), self.bits)
            with adding:  # integers, so in whatever order
                np.add(total, found, out=total)

        large_arrays.run_blocks(add, self._groups(), self.rows * cut_count)
        return self.ring.reduce_modulus(
            np.cumsum(total, axis=0).view(np.uint64).astype(self.ring.dtype)
        )


class SmallFactorMatrix:
    """A matrix, (rows, d), over the modulus of a lattice, to be multiplied with small numbers."""

    def __init__(self, n_rows: int, bits: int) -> None:
        self._bits = bits
        self._limbs = np.zeros((_count_limbs(bits), n_rows, degree_for(bits)))

    @staticmethod
    def estimate_memory(n_rows: int, bits: int) -> int:
        """Return how many bytes of memory a matrix of so many rows takes."""
        return 8 * _count_limbs(bits) * degree_for(bits) * n_rows

    def fill_rows(self, start: int, rows: RingArray) -> None:
        """Fill rows of the matrix, from one on."""
        self._limbs[:, start : start + len(rows)] = _limbs(rows, self._bits)

    def select(self, rows: IndexSelection, columns: IndexSelection) -> SmallFactorMatrix:
        """Return some rows of the matrix, which has no columns to choose from."""
        assert isinstance(columns, slice)
        found = SmallFactorMatrix(0, self._bits)
        found._limbs = self._limbs[:, rows]
        return found

    def multiply(self, *vectors: tuple[RingArray, Ring]) -> list[RingArray]:
        """Return the products with vectors (d, K) of such numbers.

        Sums are below 2^23 2^11 2^9, or 2^22 2^12 2^9, so that they are exact.
        """
        if not vectors:
            return []
        factors = np.concatenate([_small(v) for v, _ in vectors], axis=1)
        total = _joined((self._limbs @ factors).astype(np.int64), self._bits).view(np.uint64)
        ends = np.cumsum([v.shape[1] for v, _ in vectors])[:-1]
        parts = np.split(total, ends, axis=1)
        return [part.astype(ring.dtype) for part, (_, ring) in zip(parts, vectors, strict=True)]


def _small(x: RingArray) -> Floats:
    """Return small numbers of any sign, as they are drawn and added up in a ring's words."""
    numbers = signed(x).astype(np.float64)
    assert np.abs(numbers).max(initial=0) <= _MAX_FACTOR, "these are no small numbers"
    return numbers


def _count_limbs(bits: int) -> int:
    """Return into how many limbs numbers of a modulus are cut."""
    return -(-bits // _LIMB[degree_for(bits)])


def _limbs(x: RingArray, bits: int) -> Floats:
    """Return x as limbs, lowest first, signed and at most half of their size: (limbs, ...)."""
    size, count = _LIMB[degree_for(bits)], _count_limbs(bits)
    found = np.empty((count, *x.shape))
    rest = signed(x.astype(np.uint64))
    for limb in found:
        low = signed(rest.view(np.uint64) << np.uint64(64 - size)) >> (64 - size)
        limb[...] = low
        rest = (rest - low) >> size
    return found


def _joined(limbs: npt.NDArray[np.int64], bits: int) -> npt.NDArray[np.int64]:
    """Return what integers stand for as limbs, modulo 2^64; they are written over."""
    size = _LIMB[degree_for(bits)]
    found: npt.NDArray[np.int64] = limbs[-1]
    for limb in limbs[-2::-1]:
        found <<= size
        found += limb
    return found


@cache
def _twist(degree: int) -> Complex:
    """Return what turns a product modulo X^d + 1 into one of periodic sequences, half as long."""
    found: Complex = np.exp(1j * np.pi * np.arange(degree // 2) / degree)
    return found


def _transform(x: Floats | RingArray) -> Complex:
    """Return what polynomials (..., d) are at the roots of X^d + 1: one of each pair."""
    degree = x.shape[-1]
    folded: Complex = (x[..., : degree // 2] + 1j * x[..., degree // 2 :]) * _twist(degree)
    import scipy.fft  # a sixth of a second, which only those who compute should spend

    found: Complex = scipy.fft.fft(folded, overwrite_x=True)
    return found


def _inverse(x: Complex) -> npt.NDArray[np.int64]:
    """Return the polynomials, whose coefficients are integers; `x` is written over."""
    import scipy.fft

    half = x.shape[-1]
    folded: Complex = scipy.fft.ifft(x, overwrite_x=True)
    folded *= _twist(2 * half).conj()
    found = np.empty((*x.shape[:-1], 2 * half), dtype=np.int64)
    found[..., :half] = np.rint(folded.real)
    found[..., half:] = np.rint(folded.imag)
    return found
