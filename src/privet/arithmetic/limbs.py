"""Products of one large matrix with many vectors, exact modulo 2^16 or 2^32, on floating point units.

Cut into 16-bit limbs, entries are small enough for float64 products and sums of up to 2^21 rows to
be exact, and matrix products of floats are fast where those of integers are not.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Ring, RingArray

_EXACT_ROWS = 1 << 21
# Up to this many bytes, the limbs are kept as floats; beyond, a block is converted when needed.
_KEPT = 1 << 28


class LimbMatrix:
    """A matrix over Z32, (rows, N), to be multiplied from the right with (N, K)."""

    def __init__(self, matrix: RingArray) -> None:
        self.matrix = matrix
        rows, length = matrix.shape
        self._step = length
        self._floats: list[npt.NDArray[np.float64]] | None = None
        if 16 * matrix.size <= _KEPT and length <= _EXACT_ROWS:
            self._floats = [_limb(matrix, 0), _limb(matrix, 1)]
        else:
            self._step = max(1, min(_EXACT_ROWS, _KEPT // (16 * max(1, rows))))

    def times(self, vectors: RingArray, ring: Ring) -> RingArray:
        """Return the product with vectors (N, K), modulo the ring of 16 or 32 bits."""
        rows, length = self.matrix.shape
        total = np.zeros((rows, vectors.shape[1]), dtype=np.uint64)
        for start in range(0, length, self._step):
            block = slice(start, start + self._step)
            for i in range(ring.bits // 16):
                left = (
                    self._floats[i] if self._floats is not None else _limb(self.matrix[:, block], i)
                )
                for j in range(ring.bits // 16 - i):
                    exact = (left @ _limb(vectors[block], j)).astype(np.uint64)
                    total += exact << np.uint64(16 * (i + j))
        return total.astype(ring.dtype)


def _limb(x: RingArray, index: int) -> npt.NDArray[np.float64]:
    limb: RingArray = (x >> x.dtype.type(16 * index)) & x.dtype.type(0xFFFF)
    return limb.astype(np.float64)
