"""The sigmoid, softplus and reciprocal of masked values, as Fourier series.

On [1/R, 1], 1/x is smooth; it is continued somehow to a period of about 3/2, by the sines and
cosines that fit it best: of least squared error relative to 1/x, with a small penalty on large
coefficients, since these multiply what is rounded. The fit is made in decimals, so that everybody
has the same.

The sigmoid less 1/2, repeated every 32 with changing signs, is an odd function of period 64:

    sum over m of (-1)^m (sigmoid(x - 32 m) - 1/2)  =  sum over k of b_k sin(w_k x)

with w_k = (2k + 1) 2 pi / 64 and b_k = (pi / 16) / sinh(pi w_k). On [-16, 16] its copies add less
than exp(|x| - 32). The derivative is the cosine series with coefficients b_k w_k. Scores are kept
with 2^26 units to 1, so that Z32 is the period.

The loss of a score s is log(1 + exp(s)) less s where the label is 1. The curved part of it is even,

    log(1 + exp(s)) - s / 2  =  log(2 cosh(s / 2))

and its derivative is the sigmoid less 1/2. So its series is that of the sigmoid
(`evaluate_sigmoid`), integrated term by term: 8 less the sum over k of (b_k / w_k) cos(w_k s). The
copies in which the period repeats it pass through 8 at a quarter of the period, 16, where log(2
cosh 8) is 8.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from itertools import chain

from privet.arithmetic.fixed_point import (
    PI,
    decimal_precision,
    decimal_sin_cos,
    decimal_sinh,
    round_scaled,
)
from privet.arithmetic.rings import Z32
from privet.arithmetic.shares import Share
from privet.gates.masked.fourier import FourierSeries, evaluate_fourier
from privet.gates.masked.value import MaskedValue, map_row_blocks
from privet.runtime.runtime import Runtime

RECIPROCAL_LOW, RECIPROCAL_HIGH = Fraction(93, 100), Fraction(104, 100)
"""The series is right from LOW / R to HIGH: what is compared coarsely may leave [1/R, 1]."""
RECIPROCAL_COEFFICIENT_BITS = 28
_POINTS = 120
_PENALTY = Decimal(10) ** -18

Row = list[Decimal]


@lru_cache(maxsize=16)
def build_reciprocal_series(ratio: int, period: Fraction) -> FourierSeries:
    """Return the series of 1/x with a period, on [1/R, 1], to within 2^-24 of it.

    It takes 2R + 4 harmonics, for R up to 7.
    """
    assert 2 <= ratio <= 7
    harmonics = 2 * ratio + 4
    with decimal_precision():
        low, high = _decimal(RECIPROCAL_LOW) / ratio, _decimal(RECIPROCAL_HIGH)
        turn = 2 * PI * period.denominator / period.numerator
        rows, target = [], []
        for point in range(_POINTS):
            _, place = _decimal_sin_cos(PI * (2 * point + 1) / (2 * _POINTS))
            x = (low + high + (high - low) * place) / 2
            # Relative to 1/x: x times the series is to be 1.
            rows.append([x, *(x * wave for wave in _harmonics(turn * x, harmonics))])
            target.append(Decimal(1))
        found = _solve_least_squares(rows, target)
    factors = tuple(round_scaled(value, RECIPROCAL_COEFFICIENT_BITS) for value in found)
    assert max(abs(value) for value in factors) < 1 << (RECIPROCAL_COEFFICIENT_BITS + 4)
    multiples = tuple(range(1, harmonics + 1))
    return FourierSeries(
        multiples, factors[0], factors[1::2], factors[2::2], RECIPROCAL_COEFFICIENT_BITS
    )


def _decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / x.denominator


def _decimal_sin_cos(angle: Decimal) -> tuple[Decimal, Decimal]:
    """Return the sine and cosine of an angle up to a turn or two, by doubling a small one."""
    sine, cosine = decimal_sin_cos(angle / 32)
    for _ in range(5):
        sine, cosine = 2 * sine * cosine, cosine * cosine - sine * sine
    return sine, cosine


def _harmonics(angle: Decimal, count: int) -> Row:
    """Return sines and cosines of multiples of an angle, in turn."""
    first = _decimal_sin_cos(angle)
    found = [first]
    for _ in range(count - 1):
        sine, cosine = found[-1]
        found.append((sine * first[1] + cosine * first[0], cosine * first[1] - sine * first[0]))
    return list(chain.from_iterable(found))


def _dot(a: Iterable[Decimal], b: Iterable[Decimal]) -> Decimal:
    """Return the sum of products, of as many as there are in both."""
    return sum((x * y for x, y in zip(a, b, strict=False)), Decimal(0))


def _solve_least_squares(rows: list[Row], target: Row) -> Row:
    """Solve rows times x = target in the sense of least squares, with the penalty."""
    size = len(rows[0])
    matrix = [
        [_dot((r[i] for r in rows), (r[j] for r in rows)) for j in range(i + 1)]
        for i in range(size)
    ]
    right = [_dot((r[i] for r in rows), target) for i in range(size)]
    for i in range(size):
        matrix[i][i] += _PENALTY * len(rows)
    # Cholesky's decomposition without roots: lower times diagonal times upper.
    diagonal: Row = []
    for i, row in enumerate(matrix):
        for j in range(i):
            row[j] -= _dot(row[:j], (matrix[j][k] * diagonal[k] for k in range(j)))
            row[j] /= diagonal[j]
        diagonal.append(row[i] - _dot((a * a for a in row[:i]), diagonal))
    found: Row = []
    for i in range(size):
        found.append(right[i] - _dot(matrix[i][:i], found))
    found = [value / d for value, d in zip(found, diagonal, strict=True)]
    for i in reversed(range(size)):
        found[i] -= _dot((matrix[k][i] for k in range(i + 1, size)), found[i + 1 :])
    return found


SCORE_BITS = 26
"""Fraction bits of scores: 2^32 is the period of 64."""
MAX_SCORE = 16
"""Below it the copies of the sigmoid do not add up to anything that matters."""
N_SIGMOID_HARMONICS = 28
"""What the series leaves out is below 3e-8 in the sigmoid and 2e-7 in its derivative."""
_SIGMOID_COEFFICIENT_BITS = 31


@lru_cache(maxsize=1)
def compute_sigmoid_coefficients() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return b_k and b_k w_k of all harmonics, as integers with 31 fraction bits."""
    with decimal_precision():
        frequencies = [Decimal(2 * k + 1) * 2 * PI / 64 for k in range(N_SIGMOID_HARMONICS)]
        amplitudes = [PI / 16 / decimal_sinh(PI * w) for w in frequencies]
        slopes = [b * w for b, w in zip(amplitudes, frequencies, strict=True)]
    return (
        tuple(round_scaled(b, _SIGMOID_COEFFICIENT_BITS) for b in amplitudes),
        tuple(round_scaled(slope, _SIGMOID_COEFFICIENT_BITS) for slope in slopes),
    )


def evaluate_sigmoid(runtime: Runtime, score: MaskedValue, bits: int) -> Share:
    """Return the sigmoid and its derivative, (2, ...), of scores over Z32, with `bits` bits.

    Fraction bits are those of a dealt wave and of a public coefficient together. There are two
    coefficients to a harmonic whose roundings count in full, so these have more.

    Cost: no opening; corrections of 56 elements a value. Reveals: nothing. Error: that of the
    series, less than 2e-7 and exp(|x| - 32), and 56 roundings of coefficients, where |x| <= 16.
    Beyond, the waves return.
    """
    assert score.ring is Z32
    amplitudes, slopes = compute_sigmoid_coefficients()
    multiples, none = (
        tuple(2 * k + 1 for k in range(N_SIGMOID_HARMONICS)),
        (0,) * N_SIGMOID_HARMONICS,
    )
    half = 1 << (_SIGMOID_COEFFICIENT_BITS - 1)
    both = (
        FourierSeries(multiples, half, amplitudes, none, _SIGMOID_COEFFICIENT_BITS),
        FourierSeries(multiples, 0, none, slopes, _SIGMOID_COEFFICIENT_BITS),
    )
    dealt = bits // 2 - 1
    evaluate = partial(evaluate_fourier, runtime, correlation_bits=dealt, public_bits=bits - dealt)
    return map_row_blocks(score, lambda some: evaluate(some, both))


_HARMONICS = 18
"""What the series leaves out is below 3e-6."""
_SOFTPLUS_COEFFICIENT_BITS = 28
_MIDDLE = 8


@lru_cache(maxsize=1)
def compute_softplus_coefficients() -> tuple[int, ...]:
    """Return -b_k / w_k of all harmonics, as integers with 28 fraction bits."""
    with decimal_precision():
        frequencies = [Decimal(2 * k + 1) * 2 * PI / 64 for k in range(_HARMONICS)]
        factors = [-PI / 16 / decimal_sinh(PI * w) / w for w in frequencies]
    return tuple(round_scaled(factor, _SOFTPLUS_COEFFICIENT_BITS) for factor in factors)


def evaluate_softplus(runtime: Runtime, score: MaskedValue, bits: int) -> Share:
    """Return log(2 cosh(s / 2)) of scores over Z32, with `bits` fraction bits.

    Cost: no opening; corrections of 36 elements a value. Reveals: nothing. Error: less than 3e-6,
    and that of rounding, 2^-20 or so for 40 bits, where |s| <= 16. Beyond, the waves return.
    """
    assert score.ring is Z32
    multiples = tuple(2 * k + 1 for k in range(_HARMONICS))
    none, factors = (0,) * _HARMONICS, compute_softplus_coefficients()
    series = FourierSeries(
        multiples, _MIDDLE << _SOFTPLUS_COEFFICIENT_BITS, none, factors, _SOFTPLUS_COEFFICIENT_BITS
    )
    dealt = bits // 2 - 1
    return evaluate_fourier(
        runtime, score, [series], correlation_bits=dealt, public_bits=bits - dealt
    )[0]
