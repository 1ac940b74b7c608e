"""SecSigmoid: the sigmoid of shared values, by powers and a division.

Reference: the paper's Section V.B.2. Where it leaves the true sigmoid, why it has both signs, and
why its division starts elsewhere than in the scores: docs/decisions/0012-sigmoid.md.
"""

from __future__ import annotations

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share, stack
from privet.gates.beaver import square
from privet.gates.truncate import multiply_fixed, truncate
from privet.runtime.runtime import Runtime
from privet.suites.paper.division import FIXED, reciprocal, reciprocal_bits

SQUARINGS = 2
START_BITS = 12
LARGEST = 40
"""Scores that the powers fit for, in size."""


def sigmoid(runtime: Runtime, x: Share, *, squarings: int = SQUARINGS) -> Share:
    """Return exp(x/2) / (exp(x/2) + exp(-x/2)), with exp(u) taken as (1 + u / 2^n)^(2^n).

    1. [a] = 1 + [x] / 2^(n+1) and [b] = 1 - [x] / 2^(n+1); n times, both are squared.
    2. The sigmoid is [a] / ([a] + [b]) (SDiv).

    Reveals: nothing. Error: that of the powers; for n = 2 at most 0.0066
    where |x| <= 12. Beyond 2^(n+1) the result goes back towards 1/2, but stays on its side. It
    needs (1 + |x| / 2^(n+1))^(2^n) < 2^11; for n = 2, |x| < 45.
    """
    one = runtime.public(FIXED.encode(1.0), Z64).broadcast_to((1, *x.shape))
    with runtime.step("sigmoid"):
        u = truncate(runtime, x, bits=squarings + 1)
        powers = stack([u, -u]) + one
        for _ in range(squarings):
            powers = truncate(runtime, square(runtime, powers), bits=FIXED.fraction_bits)
        bits = reciprocal_bits(least=1.0)
        z = reciprocal(runtime, powers.sum(0), bits=bits, start_bits=START_BITS)
        return multiply_fixed(runtime, powers[0], z, bits=bits)
