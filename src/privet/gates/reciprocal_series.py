"""The reciprocal of masked values within a factor of a few of each other, as a Fourier series.

On [1/R, 1], 1/x is smooth; it is continued somehow to a period of about 3/2, by the sines and
cosines that fit it best: of least squared error relative to 1/x, with a small penalty on large
coefficients, since these multiply what is rounded. The fit is made in decimals, so that everybody
has the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import chain

from privet.arithmetic.exact import PI, many_digits, nearest, sine_cosine
from privet.gates.series import Series

LOW, HIGH = Fraction(93, 100), Fraction(104, 100)
"""The series is right from LOW / R to HIGH: what is compared coarsely may leave [1/R, 1]."""
FACTOR_BITS = 28
_POINTS = 120
_PENALTY = Decimal(10) ** -18

Row = list[Decimal]


@lru_cache(maxsize=16)
def reciprocal_series(ratio: int, period: Fraction) -> Series:
    """Return the series of 1/x with a period, on [1/R, 1], to within 2^-24 of it.

    It takes 2R + 4 harmonics, for R up to 7.
    """
    assert 2 <= ratio <= 7
    harmonics = 2 * ratio + 4
    with many_digits():
        low, high = _decimal(LOW) / ratio, _decimal(HIGH)
        turn = 2 * PI * period.denominator / period.numerator
        rows, target = [], []
        for point in range(_POINTS):
            _, place = _waves(PI * (2 * point + 1) / (2 * _POINTS))
            x = (low + high + (high - low) * place) / 2
            # Relative to 1/x: x times the series is to be 1.
            rows.append([x, *(x * wave for wave in _harmonics(turn * x, harmonics))])
            target.append(Decimal(1))
        found = _least_squares(rows, target)
    factors = tuple(nearest(value, FACTOR_BITS) for value in found)
    assert max(abs(value) for value in factors) < 1 << (FACTOR_BITS + 4)
    multiples = tuple(range(1, harmonics + 1))
    return Series(multiples, factors[0], factors[1::2], factors[2::2], FACTOR_BITS)


def _decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / x.denominator


def _waves(angle: Decimal) -> tuple[Decimal, Decimal]:
    """Return the sine and cosine of an angle up to a turn or two, by doubling a small one."""
    sine, cosine = sine_cosine(angle / 32)
    for _ in range(5):
        sine, cosine = 2 * sine * cosine, cosine * cosine - sine * sine
    return sine, cosine


def _harmonics(angle: Decimal, count: int) -> Row:
    """Return sines and cosines of multiples of an angle, in turn."""
    first = _waves(angle)
    found = [first]
    for _ in range(count - 1):
        sine, cosine = found[-1]
        found.append((sine * first[1] + cosine * first[0], cosine * first[1] - sine * first[0]))
    return list(chain.from_iterable(found))


def _dot(a: Iterable[Decimal], b: Iterable[Decimal]) -> Decimal:
    """Return the sum of products, of as many as there are in both."""
    return sum((x * y for x, y in zip(a, b, strict=False)), Decimal(0))


def _least_squares(rows: list[Row], target: Row) -> Row:
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
