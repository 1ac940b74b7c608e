"""Masks of many rows from short secrets: samples of ring-LWE.

Rows are cut into blocks of d rows, 2048 or 4096. Block b has a public polynomial a_b over
Z_2^w[X] / (X^d + 1). A secret s of small coefficients and small errors e, one for each row, give
the mask

    r = a_b s + e   in block b,   or   r = P s + e   with a public matrix P, (rows, d)

A party that lacks s cannot distinguish r from uniform numbers, if ring-LWE is hard for secrets of
-1, 0 and 1, errors of a centred binomial of 40 bits (deviation 3.16), and a modulus of at most 44
bits for 2048 coefficients, or 64 for 4096. For indicators M of rows, M P has d columns, for any
number of rows.

Products are exact. Polynomials are cut into signed limbs, of 24 bits or, with d = 4096, of 23, and
multiplied by Fourier transforms of d / 2 complex numbers in float64. Each of up to 11 stages of a
transform has an error below 7u of its sums, with u = 2^-53, and each multiplication outside the
transforms has an error below 4u. A coefficient of a product needs three transforms, three twists
and one product. By the Cauchy-Schwarz inequality, its error is below 3 * 11 * 7u + 16u < 256u
times the norms of both vectors. These are 2^23 sqrt(2048), or 2^22 sqrt(4096), for a limb, and
k sqrt(d) for numbers up to k, so the error is below k / 2048. The exact coefficient is an integer;
with k up to 500, the computed one is within a quarter of it, so rounding is exact.
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
"""Maximum bits of the modulus, by the degree of the polynomials. A larger modulus has less than 128
bits of security by the more careful estimates or, with 4096, does not fit a 64-bit word."""
MAX_MODULUS_BITS = max(SAFE_MODULUS_BITS.values())
BINOMIAL_ERROR_BITS = 40
"""An error is the number of ones among this many random bits, less half of them."""
_LIMB = {2048: 24, 4096: 23}
_GROUP_ROWS = 1 << 16  # rows whose blocks are multiplied together, so that they stay in the cache
_MAX_FACTOR = 500  # largest number that polynomials and matrices are multiplied with

Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]


def degree_for(bits: int) -> int:
    """Return the degree of polynomials and secrets for which a modulus is safe."""
    return next(degree for degree, most in SAFE_MODULUS_BITS.items() if bits <= most)


def ternary(stream: Prg, place: Place, shape: tuple[int, ...], ring: Ring) -> RingArray:
    """Draw secrets: -1, 0 and 1, equally likely to within 2^-62."""
    words = stream.uniform(place, shape, Z64)
    return ring.to_elements((words % np.uint64(3)).astype(np.int64) - 1)


def binomial(stream: Prg, place: Place, shape: tuple[int, ...], ring: Ring) -> RingArray:
    """Draw errors, with a standard deviation of sqrt(10)."""
    found = np.empty(math.prod(shape), dtype=ring.dtype)

    def draw(block: slice) -> None:
        part = found[block]
        words = stream.uniform(place, found.shape, Z64, block)
        words >>= np.uint64(64 - BINOMIAL_ERROR_BITS)
        part[...] = np.bitwise_count(words)
        part -= ring.dtype.type(BINOMIAL_ERROR_BITS // 2)

    large_arrays.run_blocks(draw, large_arrays.split_into_blocks(found.size), found.size)
    return found.reshape(shape)


@dataclass(frozen=True)
class RingLwe:
    """The public polynomials of some rows."""

    seed: str
    """The public seed that they are drawn from, in hexadecimal."""
    rows: int
    bits: int
    """Bits of the modulus."""

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAX_MODULUS_BITS:
            raise ValueError(f"a modulus of 1 to {MAX_MODULUS_BITS} bits, not {self.bits}")

    @staticmethod
    def estimate_memory(n_rows: int, bits: int) -> int:
        """Return the approximate bytes of memory of the transforms for `n_rows` rows."""
        return 8 * n_rows * _count_limbs(bits)

    @property
    def ring(self) -> Ring:
        """The integers modulo the modulus."""
        return get_integer_ring(self.bits)

    @property
    def degree(self) -> int:
        """The degree of the polynomials."""
        return degree_for(self.bits)

    @property
    def blocks(self) -> int:
        """The number of blocks; rows of the last one beyond the end are left out."""
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

        def transform(blocks: slice) -> None:
            for limb, row in zip(_limbs(self.polynomials(blocks), self.bits), found, strict=True):
                row[blocks] = _transform(limb)

        large_arrays.run_blocks(transform, self._groups(), self.rows)
        return found

    def _groups(self) -> list[slice]:
        return large_arrays.split_into_blocks(self.blocks, max(1, _GROUP_ROWS // self.degree))

    def expand_secrets(self, secrets: RingArray) -> RingArray:
        """Return P s for secrets (..., d): (..., rows), over any ring up to the modulus.

        Secrets are signed numbers of absolute value up to 500.
        """
        degree = self.degree
        flat = secrets.reshape(-1, degree)
        found = np.empty((len(flat), self.rows), dtype=secrets.dtype)
        transforms, secret_transforms = self._transforms, _transform(_small(flat))

        def multiply(item: tuple[int, slice]) -> None:
            k, blocks = item
            product = _joined(_inverse(transforms[:, blocks] * secret_transforms[k]), self.bits)
            part = found[k, blocks.start * degree : blocks.stop * degree]
            part[...] = product.reshape(-1)[: len(part)].astype(secrets.dtype)

        items = [(k, blocks) for k in range(len(flat)) for blocks in self._groups()]
        large_arrays.run_blocks(multiply, items, found.size)
        return found.reshape(*secrets.shape[:-1], self.rows)

    def project_indicators(self, bucket: BucketArray, cut_count: int) -> RingArray:
        """Return M P, (cuts, d), for the indicators M of rows up to each cut.

        Transforms are added for a few blocks at a time; their inverses are added as integers.
        """
        degree = self.degree
        total = np.zeros((cut_count, degree), dtype=np.int64)
        cuts = np.arange(cut_count)[:, None]
        transforms, lock = self._transforms, threading.Lock()

        def add(blocks: slice) -> None:
            sums = np.zeros((len(transforms), cut_count, degree // 2), dtype=np.complex128)
            for b in range(*blocks.indices(self.blocks)):
                part = bucket[b * degree : (b + 1) * degree]
                ones = np.zeros((cut_count, degree))
                ones[:, : len(part)] = part == cuts
                sums += _transform(ones) * transforms[:, b, None].conj()
            found = _joined(_inverse(sums), self.bits)
            with lock:  # the sums are integers, so their order does not matter
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
        """Return the bytes of memory that a matrix of `n_rows` rows takes."""
        return 8 * _count_limbs(bits) * degree_for(bits) * n_rows

    def fill_rows(self, start: int, rows: RingArray) -> None:
        """Fill consecutive rows of the matrix, from row `start`."""
        self._limbs[:, start : start + len(rows)] = _limbs(rows, self._bits)

    def select(self, rows: IndexSelection, columns: IndexSelection) -> SmallFactorMatrix:
        """Return some rows of the matrix; its columns are not samples, so it keeps them all."""
        assert isinstance(columns, slice)
        found = SmallFactorMatrix(0, self._bits)
        found._limbs = self._limbs[:, rows]
        return found

    def multiply(self, *vectors: tuple[RingArray, Ring]) -> list[RingArray]:
        """Return the products with vectors (d, K) of small numbers.

        Sums are below 2^23 2^11 2^9, or 2^22 2^12 2^9, so they are exact.
        """
        if not vectors:
            return []
        factors = np.concatenate([_small(v) for v, _ in vectors], axis=1)
        total = _joined((self._limbs @ factors).astype(np.int64), self._bits).view(np.uint64)
        ends = np.cumsum([v.shape[1] for v, _ in vectors])[:-1]
        parts = np.split(total, ends, axis=1)
        return [part.astype(ring.dtype) for part, (_, ring) in zip(parts, vectors, strict=True)]


def _small(x: RingArray) -> Floats:
    """Return ring elements that represent small signed numbers, as floats."""
    numbers = signed(x).astype(np.float64)
    assert np.abs(numbers).max(initial=0) <= _MAX_FACTOR, "factors must be small numbers"
    return numbers


def _count_limbs(bits: int) -> int:
    """Return the number of limbs of numbers modulo 2^bits."""
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
    """Return the integers that limbs represent, modulo 2^64; the limbs are overwritten."""
    size = _LIMB[degree_for(bits)]
    found: npt.NDArray[np.int64] = limbs[-1]
    for limb in limbs[-2::-1]:
        found <<= size
        found += limb
    return found


@cache
def _twist(degree: int) -> Complex:
    """Return the factors that turn a product modulo X^d + 1 into a cyclic one, half as long."""
    found: Complex = np.exp(1j * np.pi * np.arange(degree // 2) / degree)
    return found


def _transform(x: Floats | RingArray) -> Complex:
    """Evaluate polynomials (..., d) at the roots of X^d + 1, at one root of each conjugate pair."""
    degree = x.shape[-1]
    folded: Complex = (x[..., : degree // 2] + 1j * x[..., degree // 2 :]) * _twist(degree)
    import scipy.fft  # takes a sixth of a second, so import it only to compute

    found: Complex = scipy.fft.fft(folded, overwrite_x=True)
    return found


def _inverse(x: Complex) -> npt.NDArray[np.int64]:
    """Return the polynomials of transforms, with integer coefficients; `x` is overwritten."""
    import scipy.fft

    half = x.shape[-1]
    folded: Complex = scipy.fft.ifft(x, overwrite_x=True)
    folded *= _twist(2 * half).conj()
    found = np.empty((*x.shape[:-1], 2 * half), dtype=np.int64)
    found[..., :half] = np.rint(folded.real)
    found[..., half:] = np.rint(folded.imag)
    return found
