"""The sigmoid, softplus and reciprocal of masked values, as Fourier series."""

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
"""The series is accurate from LOW / R to HIGH: a coarse comparison lets values leave [1/R, 1]."""
RECIPROCAL_COEFFICIENT_BITS = 28
_POINTS = 120
_PENALTY = Decimal(10) ** -18

Row = list[Decimal]


@lru_cache(maxsize=16)
def build_reciprocal_series(ratio: int, period: Fraction) -> FourierSeries:
    """Return a series of the given period for 1/x on [1/R, 1], with relative error up to 2^-24.

    1/x is smooth there. It is continued to a period of about 3/2 by the sines and cosines with the
    least squared error relative to 1/x, with a small penalty on large coefficients, because these
    multiply rounding errors. The fit is computed in decimals, so all participants get the same
    coefficients. The series has 2R + 4 harmonics, for R up to 7.
    """
    assert 2 <= ratio <= 7
    n_harmonics = 2 * ratio + 4
    with decimal_precision():
        low, high = _decimal(RECIPROCAL_LOW) / ratio, _decimal(RECIPROCAL_HIGH)
        frequency = 2 * PI * period.denominator / period.numerator
        rows, target = [], []
        for point in range(_POINTS):
            _, node = _decimal_sin_cos(PI * (2 * point + 1) / (2 * _POINTS))
            x = (low + high + (high - low) * node) / 2
            # The error is relative to 1/x: x times the series must be 1.
            rows.append([x, *(x * term for term in _harmonics(frequency * x, n_harmonics))])
            target.append(Decimal(1))
        found = _solve_least_squares(rows, target)
    factors = tuple(round_scaled(value, RECIPROCAL_COEFFICIENT_BITS) for value in found)
    assert max(abs(value) for value in factors) < 1 << (RECIPROCAL_COEFFICIENT_BITS + 4)
    harmonics = tuple(range(1, n_harmonics + 1))
    return FourierSeries(
        harmonics, factors[0], factors[1::2], factors[2::2], RECIPROCAL_COEFFICIENT_BITS
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
    """Return the sines and cosines of multiples of an angle, alternating."""
    first = _decimal_sin_cos(angle)
    found = [first]
    for _ in range(count - 1):
        sine, cosine = found[-1]
        found.append((sine * first[1] + cosine * first[0], cosine * first[1] - sine * first[0]))
    return list(chain.from_iterable(found))


def _dot(a: Iterable[Decimal], b: Iterable[Decimal]) -> Decimal:
    """Return the sum of products, up to the shorter length."""
    return sum((x * y for x, y in zip(a, b, strict=False)), Decimal(0))


def _solve_least_squares(rows: list[Row], target: Row) -> Row:
    """Solve rows times x = target by least squares, with the penalty."""
    size = len(rows[0])
    matrix = [
        [_dot((r[i] for r in rows), (r[j] for r in rows)) for j in range(i + 1)]
        for i in range(size)
    ]
    right = [_dot((r[i] for r in rows), target) for i in range(size)]
    for i in range(size):
        matrix[i][i] += _PENALTY * len(rows)
    # Cholesky decomposition without square roots: lower times diagonal times upper.
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
"""The bound of scores below which the periodic copies of the sigmoid are negligible."""
N_SIGMOID_HARMONICS = 28
"""The truncation error of the series is below 3e-8 in the sigmoid, and 2e-7 in its derivative."""
_SIGMOID_COEFFICIENT_BITS = 31


@lru_cache(maxsize=1)
def compute_sigmoid_coefficients() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return b_k and b_k w_k of all harmonics, as integers with 31 fraction bits.

    The sigmoid less 1/2, repeated every 32 with changing signs, is an odd function of period 64:

        sum over m of (-1)^m (sigmoid(x - 32 m) - 1/2)  =  sum over k of b_k sin(w_k x)

    with w_k = (2k + 1) 2 pi / 64 and b_k = (pi / 16) / sinh(pi w_k). On [-16, 16], its copies add
    less than exp(|x| - 32). The derivative is the cosine series with coefficients b_k w_k. Scores
    have 2^26 units to 1, so that Z32 is the period.
    """
    with decimal_precision():
        frequencies = [Decimal(2 * k + 1) * 2 * PI / 64 for k in range(N_SIGMOID_HARMONICS)]
        amplitudes = [PI / 16 / decimal_sinh(PI * w) for w in frequencies]
        slopes = [b * w for b, w in zip(amplitudes, frequencies, strict=True)]
    return (
        tuple(round_scaled(b, _SIGMOID_COEFFICIENT_BITS) for b in amplitudes),
        tuple(round_scaled(slope, _SIGMOID_COEFFICIENT_BITS) for slope in slopes),
    )


def evaluate_sigmoid(runtime: Runtime, score: MaskedValue, bits: int) -> Share:
    """Return the sigmoid and its derivative, (2, ...), of scores over Z32.

    The `bits` fraction bits are those of a derived sine and of a public coefficient. Each harmonic
    has two coefficients whose rounding errors count in full, so coefficients have more bits.

    Cost: no opening; corrections of 56 elements a value. Reveals: nothing. Error: that of the
    series, less than 2e-7 and exp(|x| - 32), and 56 roundings of coefficients, where |x| <= 16.
    Beyond 16, the periodic copies take over.
    """
    assert score.ring is Z32
    amplitudes, slopes = compute_sigmoid_coefficients()
    harmonics = tuple(2 * k + 1 for k in range(N_SIGMOID_HARMONICS))
    zeros = (0,) * N_SIGMOID_HARMONICS
    half = 1 << (_SIGMOID_COEFFICIENT_BITS - 1)
    both = (
        FourierSeries(harmonics, half, amplitudes, zeros, _SIGMOID_COEFFICIENT_BITS),
        FourierSeries(harmonics, 0, zeros, slopes, _SIGMOID_COEFFICIENT_BITS),
    )
    sine_bits = bits // 2 - 1
    evaluate = partial(
        evaluate_fourier, runtime, correlation_bits=sine_bits, public_bits=bits - sine_bits
    )
    return map_row_blocks(score, lambda some: evaluate(some, both))


_SOFTPLUS_HARMONICS = 18
"""The truncation error of the series is below 3e-6."""
_SOFTPLUS_COEFFICIENT_BITS = 28
_MIDDLE = 8


@lru_cache(maxsize=1)
def compute_softplus_coefficients() -> tuple[int, ...]:
    """Return -b_k / w_k of all harmonics, as integers with 28 fraction bits.

    The loss of a score s is log(1 + exp(s)), less s where the label is 1. Its curved part is even,

        log(1 + exp(s)) - s / 2  =  log(2 cosh(s / 2))

    and has the derivative sigmoid(s) - 1/2. So its series is that of the sigmoid
    (`compute_sigmoid_coefficients`), integrated term by term: 8 less the sum over k of
    (b_k / w_k) cos(w_k s). Its periodic copies pass through 8 at a quarter of the period, 16, where
    log(2 cosh 8) is 8.
    """
    with decimal_precision():
        frequencies = [Decimal(2 * k + 1) * 2 * PI / 64 for k in range(_SOFTPLUS_HARMONICS)]
        factors = [-PI / 16 / decimal_sinh(PI * w) / w for w in frequencies]
    return tuple(round_scaled(factor, _SOFTPLUS_COEFFICIENT_BITS) for factor in factors)


def evaluate_softplus(runtime: Runtime, score: MaskedValue, bits: int) -> Share:
    """Return log(2 cosh(s / 2)) of scores over Z32, with `bits` fraction bits.

    Cost: no opening; corrections of 36 elements a value. Reveals: nothing. Error: less than 3e-6,
    and that of rounding, about 2^-20 for 40 bits, where |s| <= 16. Beyond 16, the periodic copies
    take over.
    """
    assert score.ring is Z32
    harmonics = tuple(2 * k + 1 for k in range(_SOFTPLUS_HARMONICS))
    zeros, factors = (0,) * _SOFTPLUS_HARMONICS, compute_softplus_coefficients()
    series = FourierSeries(
        harmonics, _MIDDLE << _SOFTPLUS_COEFFICIENT_BITS, zeros, factors, _SOFTPLUS_COEFFICIENT_BITS
    )
    sine_bits = bits // 2 - 1
    return evaluate_fourier(
        runtime, score, [series], correlation_bits=sine_bits, public_bits=bits - sine_bits
    )[0]
