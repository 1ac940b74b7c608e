"""A self-test of the local arithmetic, with digests that the members compare before they start.

All computations on shares are integer arithmetic, or matrix products of floats that are exact by
their size, so they give the same result on every machine. The self-test detects a processor, a
library or a compiler that computes one of them differently, which would turn the model into noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from privet.arithmetic.exact_matmul import LimbMatrix
from privet.arithmetic.prg import SEED_BYTES, Place, Prg
from privet.arithmetic.rings import Z36, Z64, RingArray
from privet.gates.masked import fourier

_SEED = b"privet probe".ljust(SEED_BYTES)
_COUNT = 4096


def run_self_test() -> dict[str, str]:
    """Return a digest of the results of each kind of arithmetic on shares, for fixed inputs."""
    prg = Prg(_SEED)
    words = prg.uniform(Place("words", (), 0), (64, 64), Z64)
    angles = prg.uniform(Place("angles", (), 0), (_COUNT,), Z64).astype(np.uint32)
    matrix = LimbMatrix(24, _COUNT)
    matrix.fill_rows(0, prg.uniform(Place("matrix", (), 0), (24, _COUNT), Z36))
    vectors = prg.uniform(Place("vectors", (), 0), (_COUNT, 8), Z36)
    order = prg.permutation(Place("order", (), 0), _COUNT)
    return {
        "random numbers": _digest([words, order.astype(np.uint64)]),
        "sines": _digest(fourier.compute_sin_cos(angles)),
        "sums by bucket": _digest(Z36.reduce_modulus(x) for x in matrix.multiply((vectors, Z36))),
    }


def _digest(arrays: Iterable[RingArray]) -> str:
    content = b"".join(array.astype("<u8").tobytes() for array in arrays)
    return hashlib.sha256(content).hexdigest()
