"""Public numbers made exactly: the same integers on every machine.

Whatever multiplies a share must be the same integer at everybody. A sum of shares times a number
that differs by one at a single participant is off by that participant's share, which is uniform: a
last bit of difference in a constant makes noise of everything. Floating point does not promise that
last bit: logarithms, exponentials, sines and matrix products come out differently on another
processor, with another numpy or with more threads. So public constants are made here and with
Python's integers, fractions and decimals, whose results are defined to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Context, Decimal, localcontext
from fractions import Fraction

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")
_DIGITS = 60


def floor_log2(x: Fraction | int) -> int:
    """Return the largest e with 2^e <= x."""
    x = Fraction(x)
    assert x > 0
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


def ceil_log2(x: Fraction | int) -> int:
    """Return the smallest e with x <= 2^e."""
    return -floor_log2(1 / Fraction(x))


def nearest(x: Fraction | Decimal | int, bits: int = 0) -> int:
    """Return x * 2^bits as an integer, the nearest one, and the even one of two."""
    return round(Fraction(x) * Fraction(2) ** bits)


@contextmanager
def many_digits() -> Iterator[Context]:
    """Compute decimals to 60 digits here, whatever was set elsewhere."""
    with localcontext(Context(prec=_DIGITS)) as context:
        yield context


def sinh(x: Decimal) -> Decimal:
    """Return the hyperbolic sine, for x well above 0: `Decimal.exp` is correctly rounded."""
    with many_digits():
        return (x.exp() - (-x).exp()) / 2


def sine_cosine(x: Decimal) -> tuple[Decimal, Decimal]:
    """Return the sine and the cosine of a small angle, by their series."""
    assert abs(x) < 1
    with many_digits():
        terms = [Decimal(1)]
        while terms[-1]:
            power = terms[-1] * x / len(terms)
            terms.append(power if abs(power) > Decimal(10) ** -_DIGITS else Decimal(0))
        signs = (1, 1, -1, -1)
        signed = [signs[k % 4] * term for k, term in enumerate(terms)]
        return sum(signed[1::2], Decimal(0)), sum(signed[0::2], Decimal(0))
