"""Hardness of the lattice masks' ring-LWE, by the standard estimate of the primal attack.

    python benchmarks/lattice_security.py

The secret and the errors of m rows are a short vector of a lattice of dimension m + d + 1. It is
found by block reduction (BKZ) once its part in the last block is shorter than what is expected
there: the estimate of Alkim, Ducas, Poeppelmann and Schwabe (A New Hope, USENIX Security 2016),
with secrets scaled to the errors' size, since they are smaller (Bai and Galbraith, 2014). A block
of size b is assumed to cost 2^(0.292 b), a single call to a sieve: core-SVP, which omits all
further costs of an attack. No attack is known that uses the structure of the polynomials.

For comparison, the largest modulus that the tables of the homomorphic encryption standard (2018)
allow for 128 bits of security with ternary secrets.
"""

from __future__ import annotations

import math
import sys

from privet.arithmetic.ring_lwe import BINOMIAL_ERROR_BITS, SAFE_MODULUS_BITS

_SIEVING = 0.292
_STANDARD = {2048: 54, 4096: 109}
_ERROR = math.sqrt(BINOMIAL_ERROR_BITS / 4)
_SECRET = math.sqrt(2 / 3)


def block_size(degree: int, bits: int) -> int:
    """Return the smallest block size that finds the secret with any number of rows."""
    low, high = 60, 4 * degree
    while low < high:
        middle = (low + high) // 2
        if any(_found(degree, bits, m, middle) for m in range(degree // 4, 3 * degree, 16)):
            high = middle
        else:
            low = middle + 1
    return low


def _found(degree: int, bits: int, samples: int, block: int) -> bool:
    """Return whether blocks of a size find the secret from a number of rows."""
    dimension = samples + degree + 1
    # Base-2 logarithms of the root Hermite factor and of the volume per dimension.
    hermite = math.log2((math.pi * block) ** (1 / block) * block / (2 * math.pi * math.e))
    hermite /= 2 * (block - 1)
    volume = (samples * bits + degree * math.log2(_ERROR / _SECRET)) / dimension
    short = math.log2(_ERROR * math.sqrt(block))
    return short <= (2 * block - dimension - 1) * hermite + volume


def main() -> int:
    """Print the estimate for the used moduli and some others."""
    print("degree  bits of modulus  block  bits of security  allowed by the standard")
    for degree, most in SAFE_MODULUS_BITS.items():
        for bits in sorted({most - 4, most, most + 4, 2 * most, _STANDARD[degree]}):
            if bits > _STANDARD[degree]:
                continue
            block = block_size(degree, bits)
            used = "  <- the most that is used" if bits == most else ""
            print(
                f"{degree:6}{bits:17}{block:7}{int(_SIEVING * block):18}"
                f"{_STANDARD[degree]:25}{used}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
