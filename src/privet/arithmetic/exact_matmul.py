"""Exact products of a large matrix with vectors over a ring, by floating-point matrix products.

Entries are cut into limbs of 18 bits. Products of limbs, and sums of up to 2^17 of these products,
are exact in float64. Matrix products of floats are fast; those of integers are not.
"""

from __future__ import annotations

import tempfile

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Ring, RingArray
from privet.arrays import IndexArray, IndexSelection

_BITS = 18
_LIMBS = 2
_EXACT_ROWS = 1 << 17
# Up to this many bytes, the limbs are kept in memory as floats. A larger matrix is kept in a file,
# and a block is read and converted when it is needed.
_MAX_MEMORY_BYTES = 1 << 30


class LimbMatrix:
    """A matrix over Z36, (rows, N), to be multiplied from the right with (N, K)."""

    def __init__(self, n_rows: int, n_columns: int) -> None:
        self._shape = n_rows, n_columns
        self._step = max(1, min(n_columns, _EXACT_ROWS))
        self._words: RingArray | None = None
        self._chosen: tuple[IndexArray, IndexArray] | None = None
        """The selected rows and columns of the file; None selects all."""
        self._floats: list[npt.NDArray[np.float64]] | None = None
        if self.fits(n_rows, n_columns):
            self._floats = [np.zeros((n_rows, n_columns)) for _ in range(_LIMBS)]
        else:
            with tempfile.TemporaryFile(prefix="privet-") as file:
                self._words = np.memmap(file, dtype=np.uint64, mode="w+", shape=(n_rows, n_columns))
            self._step = max(1, min(self._step, _MAX_MEMORY_BYTES // (8 * _LIMBS * max(1, n_rows))))

    @staticmethod
    def fits(n_rows: int, n_columns: int) -> bool:
        """Return whether a matrix of this size is kept in memory."""
        return 8 * _LIMBS * n_rows * n_columns <= _MAX_MEMORY_BYTES

    @staticmethod
    def estimate_memory(n_rows: int, n_columns: int) -> int:
        """Return the approximate bytes of memory that a matrix of this size takes."""
        return min(8 * _LIMBS * n_rows * n_columns, _MAX_MEMORY_BYTES)

    def fill_rows(self, start: int, rows: RingArray) -> None:
        """Fill consecutive rows of the matrix, from row `start`."""
        block = slice(start, start + len(rows))
        if self._words is not None:
            self._words[block] = rows
        else:
            assert self._floats is not None
            for i, limb in enumerate(self._floats):
                limb[block] = _integers(rows, i)

    def select(self, rows: IndexSelection, columns: IndexSelection) -> LimbMatrix:
        """Return some rows and columns of the matrix; those in a file are not copied."""
        assert self._chosen is None
        height, length = self._shape
        chosen = np.arange(height)[rows], np.arange(length)[columns]
        selected = LimbMatrix(0, 0)
        selected._shape = len(chosen[0]), len(chosen[1])
        selected._step = max(1, min(self._step, selected._shape[1]))
        if self._floats is not None:
            selected._floats = [limb[rows][:, columns] for limb in self._floats]
        else:
            selected._floats, selected._words, selected._chosen = None, self._words, chosen
        return selected

    def multiply(self, *vectors: tuple[RingArray, Ring]) -> list[RingArray]:
        """Return the products with vectors (N, K), each in a ring of up to 36 bits.

        The matrix is read once for all vectors, because reading dominates if vectors are few.
        """
        rows, length = self._shape
        totals = [np.zeros((v.shape[1], rows), dtype=np.uint64) for v, _ in vectors]
        for start in range(0, length, self._step):
            block = slice(start, start + self._step)
            for i in range(_LIMBS):
                # The vectors' limbs whose products are not multiples of 2^bits.
                wanted = [
                    (k, j)
                    for k, (_, ring) in enumerate(vectors)
                    for j in range(-(-ring.bits // _BITS) - i)
                ]
                if not wanted:
                    continue
                # Multiply few rows by the large matrix: the opposite order takes half as long
                # again, mostly to rearrange the large matrix.
                few = np.concatenate([_limb(vectors[k][0].T[:, block], j) for k, j in wanted])
                exact = (few @ self._left(i, block).T).astype(np.int64).view(np.uint64)
                first = 0
                for k, j in wanted:
                    last = first + len(totals[k])
                    totals[k] += exact[first:last] << np.uint64(_BITS * (i + j))
                    first = last
        return [
            total.T.astype(ring.dtype, order="C")
            for total, (_, ring) in zip(totals, vectors, strict=True)
        ]

    def _left(self, limb: int, block: slice) -> npt.NDArray[np.float64]:
        if self._floats is not None:
            return self._floats[limb][:, block]
        assert self._words is not None
        if self._chosen is None:
            return _limb(self._words[:, block], limb)
        rows, columns = self._chosen
        return _limb(self._words[np.ix_(rows, columns[block])], limb)


def _limb(x: RingArray, index: int) -> npt.NDArray[np.float64]:
    return _integers(x, index).astype(np.float64)


def _integers(x: RingArray, index: int) -> npt.NDArray[np.int64]:
    """Return a limb as signed numbers, whose conversion to floats is several times faster."""
    limb = x.astype(np.uint64, copy=False) >> np.uint64(_BITS * index)
    limb &= np.uint64((1 << _BITS) - 1)
    return limb.view(np.int64)
