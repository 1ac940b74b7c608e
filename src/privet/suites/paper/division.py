"""SDiv: division of shared values.

Reference: the paper's Section V.B.2; the reciprocal after Newton and Raphson. How the start, the
iterations and the fraction bits were chosen: docs/decisions/0011-division.md.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from privet.arithmetic.exact import ceil_log2
from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share
from privet.gates.truncate import multiply_fixed
from privet.runtime.runtime import Runtime

FIXED = FixedPoint(20)
"""The paper's fixed point: l = 20 fraction bits over Z64."""
START_BITS = 20
ITERATIONS = 20


def reciprocal_bits(least: float) -> int:
    """Return how many fraction bits reciprocals of values from `least` up have.

    Their products, 1 / least at most with twice the bits, must stay below 2^62.
    """
    return 30 - max(0, (ceil_log2(1 / Fraction(least)) + 1) // 2)


def reciprocal(runtime: Runtime, y: Share, *, bits: int, start_bits: int = START_BITS) -> Share:
    """Return 1 / y with `bits` fraction bits, for 2^(2 bits - 61) <= y <= 2^start_bits.

    1. z_0 = 2^-start_bits, public.
    2. Twenty times: [z] = [z] (2 - [y][z]). In this order: z * z would vanish below the last bit.

    Reveals: nothing. Error: the relative error squares in each iteration,
    from 1 - y 2^-start_bits to exp(-y 2^(20 - start_bits)) at the end. Truncation, off by up to
    c = n - n // 2 units, changes the start by a factor of 1 +- c 2^(start_bits - bits) at most, and
    the end by a relative error of c (1 + y) 2^-bits.
    """
    two = runtime.public(np.broadcast_to(np.uint64(2 << bits), y.shape), Z64)
    with runtime.step("reciprocal"):
        z = runtime.public(np.broadcast_to(np.uint64(1 << (bits - start_bits)), y.shape), Z64)
        for _ in range(ITERATIONS):
            yz = multiply_fixed(runtime, y, z, bits=FIXED.fraction_bits)
            z = multiply_fixed(runtime, z, two - yz, bits=bits)
        return z


def divide(runtime: Runtime, x: Share, y: Share, *, least: float = 1.0) -> Share:
    """Return x / y, for least <= y <= 2^20: [x] times the reciprocal of [y].

    Reveals: nothing. Error: |x| times the reciprocal's, and `truncate`'s.
    """
    bits = reciprocal_bits(least)
    with runtime.step("divide"):
        return multiply_fixed(runtime, x, reciprocal(runtime, y, bits=bits), bits=bits)
