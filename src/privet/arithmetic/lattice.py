"""Masks of many rows from few numbers: samples of ring-LWE.

Rows are cut into blocks of 2048. Block b has a public polynomial a_b over Z_2^w[X] / (X^2048 + 1).
A secret s of small coefficients and small errors e, one for each row, give the mask

    r = a_b s + e   in block b,   or   r = P s + e   with a public matrix P, (rows, 2048)

which nobody who lacks s can tell from uniform numbers, as far as ring-LWE is hard: with 2048
coefficients, secrets of -1, 0 and 1, errors of a centred binomial of 40 bits (deviation 3.16) and
at most 44 bits of modulus. For indicators M of rows, M P has 2048 columns, however many rows.

Products are exact. Polynomials are cut into two limbs of 24 bits, signed, and multiplied by Fourier
transforms of 1024 complex numbers in float64. Each of ten stages of a transform is off by less than
7u of what it adds up, with u = 2^-53. So a coefficient of a product, which takes three transforms
and a few multiplications, is off by less than 256u times both vectors' norms, by the inequality of
Cauchy and Schwarz: 2^23 sqrt(2048) for a limb and k sqrt(2048) for numbers up to k make k / 2048.
What is rounded is an integer, so k may be 500.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from privet.arithmetic import cores
from privet.arithmetic.prg import Place, Prg
from privet.arithmetic.rings import Z64, Ring, RingArray, integers_modulo, signed
from privet.arrays import BucketArray, Indices

DEGREE = 2048
"""Of the polynomials: how many coefficients a secret has."""
MOST_BITS = 44
"""Of the modulus: more would be less than 128 bits of security by the more careful estimates."""
ERROR_BITS = 40
"""An error is how many of so many random bits are 1, less half of them."""
_LIMB = 24
_AT_ONCE = 32  # blocks that are multiplied together, so that they stay in the cache
_HALF = DEGREE // 2
_LARGEST = 500  # of what polynomials and matrices are multiplied with
# What turns a product modulo X^2048 + 1 into one of periodic sequences, half as long.
_TWIST = np.exp(1j * np.pi * np.arange(_HALF) / DEGREE)

Complex = npt.NDArray[np.complex128]


def ternary(stream: Prg, place: Place, shape: tuple[int, ...], ring: Ring) -> RingArray:
    """Draw secrets: -1, 0 and 1, each as likely, to 2^-62."""
    words = stream.uniform(place, shape, Z64)
    return ring.array((words % np.uint64(3)).astype(np.int64) - 1)


def binomial(stream: Prg, place: Place, shape: tuple[int, ...], ring: Ring) -> RingArray:
    """Draw errors, of a deviation of sqrt(10)."""
    found = np.empty(math.prod(shape), dtype=ring.dtype)

    def draw(where: slice) -> None:
        part = found[where]
        words = stream.uniform(place, found.shape, Z64, where)
        words >>= np.uint64(64 - ERROR_BITS)
        part[...] = np.bitwise_count(words)
        part -= ring.dtype.type(ERROR_BITS // 2)

    cores.each(draw, cores.blocks(found.size), found.size)
    return found.reshape(shape)


@dataclass(frozen=True)
class Lattice:
    """The public polynomials of some rows."""

    seed: str
    """What they are drawn from; public."""
    rows: int
    bits: int
    """Of the modulus."""

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MOST_BITS:
            raise ValueError(f"a modulus of 1 to {MOST_BITS} bits, not {self.bits}")

    @staticmethod
    def memory(rows: int) -> int:
        """Return about how many bytes of memory the transforms of so many rows take."""
        return 16 * rows

    @property
    def ring(self) -> Ring:
        """The integers modulo the modulus."""
        return integers_modulo(self.bits)

    @property
    def blocks(self) -> int:
        """How many blocks there are; the last one's rows beyond the end are left out."""
        return -(-self.rows // DEGREE)

    def polynomials(self, blocks: slice) -> RingArray:
        """Return the coefficients of some blocks' polynomials."""
        stream = Prg(bytes.fromhex(self.seed))
        drawn = [
            stream.uniform(Place("lattice", (b,), 0), (DEGREE,), self.ring)
            for b in range(*blocks.indices(self.blocks))
        ]
        return self.ring.reduce(np.array(drawn))

    @cached_property
    def _transforms(self) -> Complex:
        """Return the transforms of all polynomials' limbs: (limbs, blocks, 1024)."""
        found = np.empty((2, self.blocks, _HALF), dtype=np.complex128)

        def transform(where: slice) -> None:
            low, high = _limbs(self.polynomials(where))
            found[0, where], found[1, where] = _transform(low), _transform(high)

        cores.each(transform, self._groups(), self.rows)
        return found

    def _groups(self) -> list[slice]:
        return [slice(b, b + _AT_ONCE) for b in range(0, self.blocks, _AT_ONCE)]

    def spread(self, secrets: RingArray) -> RingArray:
        """Return P s for secrets (..., 2048): (..., rows), over any ring up to the modulus.

        They are numbers up to 500 in size, of any sign.
        """
        flat = secrets.reshape(-1, DEGREE)
        found = np.empty((len(flat), self.blocks * DEGREE), dtype=secrets.dtype)
        transforms, of_secrets = self._transforms, _transform(_small(flat))

        def multiply(job: tuple[int, slice]) -> None:
            k, where = job
            low, high = _inverse(transforms[:, where] * of_secrets[k])
            high <<= _LIMB
            low += high
            found[k, where.start * DEGREE :][: low.size] = low.reshape(-1).astype(secrets.dtype)

        jobs = [(k, where) for k in range(len(flat)) for where in self._groups()]
        cores.each(multiply, jobs, found.size)
        return found[:, : self.rows].reshape(*secrets.shape[:-1], self.rows)

    def gather(self, bucket: BucketArray, cuts: int) -> RingArray:
        """Return M P, (cuts, 2048), for the indicators M of rows up to each cut.

        Sums of a few blocks are made of transforms, and these are added up as integers.
        """
        padded = np.full(self.blocks * DEGREE, cuts, dtype=np.int64)  # beyond all cuts
        padded[: self.rows] = bucket
        blocks = padded.reshape(self.blocks, 1, DEGREE)
        total = np.zeros((cuts, DEGREE), dtype=np.int64)
        of_cut, transforms, adding = np.arange(cuts)[:, None], self._transforms, threading.Lock()

        def add(where: slice) -> None:
            sums = np.zeros((2, cuts, _HALF), dtype=np.complex128)
            for b in range(*where.indices(self.blocks)):
                ones = _transform((blocks[b] == of_cut).astype(np.float64))
                sums += ones * transforms[:, b, None].conj()
            low, high = _inverse(sums)
            with adding:  # integers, so in whatever order
                np.add(total, low + (high << _LIMB), out=total)

        cores.each(add, self._groups(), self.rows * cuts)
        return self.ring.reduce(np.cumsum(total, axis=0).view(np.uint64).astype(self.ring.dtype))


class SmallProducts:
    """A matrix, (rows, 2048), over up to 48 bits, to be multiplied with small numbers."""

    def __init__(self, rows: int) -> None:
        self._limbs = np.zeros((2, rows, DEGREE))

    @staticmethod
    def memory(rows: int) -> int:
        """Return how many bytes of memory a matrix of so many rows takes."""
        return 16 * DEGREE * rows

    def place(self, start: int, rows: RingArray) -> None:
        """Fill rows of the matrix, from one on."""
        self._limbs[:, start : start + len(rows)] = _limbs(rows)

    def part(self, rows: Indices, columns: Indices) -> SmallProducts:
        """Return some rows of the matrix, which has no columns to choose from."""
        assert isinstance(columns, slice)
        found = SmallProducts(0)
        found._limbs = self._limbs[:, rows]
        return found

    def times(self, *vectors: tuple[RingArray, Ring]) -> list[RingArray]:
        """Return the products with vectors (2048, K) of such numbers.

        Sums are below 2^24 2^11 2^9, so that they are exact.
        """
        if not vectors:
            return []
        factors = [_small(v) for v, _ in vectors]
        low, high = (self._limbs @ np.concatenate(factors, axis=1)).astype(np.int64)
        total = (low + (high << _LIMB)).view(np.uint64)
        ends = np.cumsum([v.shape[1] for v, _ in vectors])[:-1]
        parts = np.split(total, ends, axis=1)
        return [part.astype(ring.dtype) for part, (_, ring) in zip(parts, vectors, strict=True)]


def _small(x: RingArray) -> npt.NDArray[np.float64]:
    """Return small numbers of any sign, as they are drawn and added up in a ring's words."""
    numbers = signed(x).astype(np.float64)
    assert np.abs(numbers).max(initial=0) <= _LARGEST, "these are no small numbers"
    return numbers


def _limbs(x: RingArray) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return x as low + 2^24 high, modulo 2^48, both signed and at most 2^23 in size."""
    words = signed(x.astype(np.uint64) << np.uint64(64 - 2 * _LIMB)) >> (64 - 2 * _LIMB)
    low = signed(words.view(np.uint64) << np.uint64(64 - _LIMB)) >> (64 - _LIMB)
    return low.astype(np.float64), ((words - low) >> _LIMB).astype(np.float64)


def _transform(x: npt.NDArray[np.float64] | RingArray) -> Complex:
    """Return what polynomials (..., 2048) are at the roots of X^2048 + 1: one of each pair."""
    folded: Complex = (x[..., :_HALF] + 1j * x[..., _HALF:]) * _TWIST
    import scipy.fft  # a sixth of a second, which only those who compute should spend

    found: Complex = scipy.fft.fft(folded, overwrite_x=True)
    return found


def _inverse(x: Complex) -> npt.NDArray[np.int64]:
    """Return the polynomials, whose coefficients are integers; `x` is written over."""
    import scipy.fft

    folded: Complex = scipy.fft.ifft(x, overwrite_x=True)
    folded *= _TWIST.conj()
    found = np.empty((*x.shape[:-1], DEGREE), dtype=np.int64)
    found[..., :_HALF] = np.rint(folded.real)
    found[..., _HALF:] = np.rint(folded.imag)
    return found
