"""The logistic loss of masked scores, as a Fourier series.

The loss of a score s is log(1 + exp(s)) less s where the label is 1. The curved part of it is even,

    log(1 + exp(s)) - s / 2  =  log(2 cosh(s / 2))

and its derivative is the sigmoid less 1/2. So its series is that of the sigmoid (`sigmoid_series`),
integrated term by term: 8 less the sum over k of (b_k / w_k) cos(w_k s). The copies in which the
period repeats it pass through 8 at a quarter of the period, 16, where log(2 cosh 8) is 8.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache

from privet.arithmetic.exact import PI, many_digits, nearest, sinh
from privet.arithmetic.rings import Z32
from privet.arithmetic.shares import Share
from privet.gates.masked import Masked
from privet.gates.series import Series, fourier
from privet.runtime.runtime import Runtime

_HARMONICS = 18
"""What the series leaves out is below 3e-6."""
_FACTOR_BITS = 28
_MIDDLE = 8


@lru_cache(maxsize=1)
def softplus_coefficients() -> tuple[int, ...]:
    """Return -b_k / w_k of all harmonics, as integers with 28 fraction bits."""
    with many_digits():
        frequencies = [Decimal(2 * k + 1) * 2 * PI / 64 for k in range(_HARMONICS)]
        factors = [-PI / 16 / sinh(PI * w) / w for w in frequencies]
    return tuple(nearest(factor, _FACTOR_BITS) for factor in factors)


def softplus_series(runtime: Runtime, score: Masked, bits: int) -> Share:
    """Return log(2 cosh(s / 2)) of scores over Z32, with `bits` fraction bits.

    Cost: no opening; corrections of 36 elements a value. Reveals: nothing. Error: less than 3e-6,
    and that of rounding, 2^-20 or so for 40 bits, where |s| <= 16. Beyond, the waves return.
    """
    assert score.ring is Z32
    multiples = tuple(2 * k + 1 for k in range(_HARMONICS))
    none, factors = (0,) * _HARMONICS, softplus_coefficients()
    series = Series(multiples, _MIDDLE << _FACTOR_BITS, none, factors, _FACTOR_BITS)
    dealt = bits // 2 - 1
    return fourier(runtime, score, [series], dealt_bits=dealt, public_bits=bits - dealt)[0]
