"""The sigmoid and its derivative of masked scores, as Fourier series.

The sigmoid less 1/2, repeated every 32 with changing signs, is an odd function of period 64:

    sum over m of (-1)^m (sigmoid(x - 32 m) - 1/2)  =  sum over k of b_k sin(w_k x)

with w_k = (2k + 1) 2 pi / 64 and b_k = (pi / 16) / sinh(pi w_k). On [-16, 16] its copies add less
than exp(|x| - 32). The derivative is the cosine series with coefficients b_k w_k. Scores are kept
with 2^26 units to 1, so that Z32 is the period.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache, partial

from privet.arithmetic.exact import PI, many_digits, nearest, sinh
from privet.arithmetic.rings import Z32
from privet.arithmetic.shares import Share
from privet.gates.masked import Masked
from privet.gates.rows import by_rows
from privet.gates.series import Series, fourier
from privet.runtime.runtime import Runtime

SCORE_BITS = 26
"""Fraction bits of scores: 2^32 is the period of 64."""
LARGEST_SCORE = 16
"""Below it the copies of the sigmoid do not add up to anything that matters."""
HARMONICS = 28
"""What the series leaves out is below 3e-8 in the sigmoid and 2e-7 in its derivative."""
_FACTOR_BITS = 31


@lru_cache(maxsize=1)
def coefficients() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return b_k and b_k w_k of all harmonics, as integers with 31 fraction bits."""
    with many_digits():
        frequencies = [Decimal(2 * k + 1) * 2 * PI / 64 for k in range(HARMONICS)]
        amplitudes = [PI / 16 / sinh(PI * w) for w in frequencies]
        slopes = [b * w for b, w in zip(amplitudes, frequencies, strict=True)]
    return (
        tuple(nearest(b, _FACTOR_BITS) for b in amplitudes),
        tuple(nearest(slope, _FACTOR_BITS) for slope in slopes),
    )


def sigmoid_series(runtime: Runtime, score: Masked, bits: int) -> Share:
    """Return the sigmoid and its derivative, (2, ...), of scores over Z32, with `bits` bits.

    Fraction bits are those of a dealt wave and of a public coefficient together. There are two
    coefficients to a harmonic whose roundings count in full, so these have more.

    Cost: no opening; corrections of 56 elements a value. Reveals: nothing. Error: that of the
    series, less than 2e-7 and exp(|x| - 32), and 56 roundings of coefficients, where |x| <= 16.
    Beyond, the waves return.
    """
    assert score.ring is Z32
    amplitudes, slopes = coefficients()
    multiples, none = tuple(2 * k + 1 for k in range(HARMONICS)), (0,) * HARMONICS
    half = 1 << (_FACTOR_BITS - 1)
    both = (
        Series(multiples, half, amplitudes, none, _FACTOR_BITS),
        Series(multiples, 0, none, slopes, _FACTOR_BITS),
    )
    dealt = bits // 2 - 1
    evaluate = partial(fourier, runtime, dealt_bits=dealt, public_bits=bits - dealt)
    return by_rows(score, lambda some: evaluate(some, both))
