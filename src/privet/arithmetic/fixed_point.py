"""Fixed-point encoding of real numbers, and public constants computed exactly.

All participants must multiply their shares by the same integer. If a factor differs by one at a
single participant, the product is off by that participant's share, which is uniform: one different
bit in a constant turns the result into noise. Floating point does not guarantee the last bit:
logarithms, exponentials, sines and matrix products can differ between processors, numpy versions
and numbers of threads. Therefore, public constants are computed here, with Python's integers,
fractions and decimals, whose results are defined to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Z64, Ring, RingArray, signed
from privet.arrays import FloatArray
from privet.errors import DataError


@dataclass(frozen=True)
class FixedPoint:
    """An encoding with `fraction_bits` bits after the point; an error of at most half a unit."""

    fraction_bits: int = 20
    ring: Ring = Z64
    headroom_bits: int = 2
    """Bits below the ring's sign bit that a value must leave free, so that sums do not overflow."""

    def __post_init__(self) -> None:
        assert self.headroom_bits >= 1, "rounding up must not reach the sign"

    @property
    def resolution(self) -> float:
        """The distance between neighbouring values."""
        return float(2.0**-self.fraction_bits)

    @property
    def limit(self) -> float:
        """The values that can be encoded lie strictly between -limit and limit."""
        return float(2.0 ** (self.ring.bits - 1 - self.headroom_bits - self.fraction_bits))

    def encode(self, values: npt.ArrayLike) -> RingArray:
        """Return the nearest ring elements; raise DataError for a value out of range."""
        real = np.asarray(values, dtype=np.float64)
        bad = ~(np.abs(real) < self.limit)  # so that NaN is bad, too
        if bad.any():
            # Name the position, not the value: it may be private, and errors are sent to others.
            raise DataError(
                f"value {int(np.flatnonzero(bad)[0]) + 1} of {real.size} does not fit into fixed "
                f"point with {self.fraction_bits} fraction bits: values must be finite and below "
                f"{self.limit:g} in size"
            )
        return np.rint(real * 2.0**self.fraction_bits).astype(np.int64).astype(self.ring.dtype)

    def decode(self, elements: RingArray) -> FloatArray:
        """Return the real numbers that ring elements represent."""
        result: FloatArray = signed(elements).astype(np.float64) * self.resolution
        return result


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")
_DECIMAL_DIGITS = 60


def floor_log2(x: Fraction | int) -> int:
    """Return the largest e with 2^e <= x."""
    x = Fraction(x)
    assert x > 0
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


def ceil_log2(x: Fraction | int) -> int:
    """Return the smallest e with x <= 2^e."""
    return -floor_log2(1 / Fraction(x))


def round_scaled(x: Fraction | Decimal | int, bits: int = 0) -> int:
    """Return x * 2^bits, rounded to the nearest integer, ties to even."""
    return round(Fraction(x) * Fraction(2) ** bits)


@contextmanager
def decimal_precision() -> Iterator[Context]:
    """Compute decimals to 60 digits, regardless of the current decimal context."""
    with localcontext(Context(prec=_DECIMAL_DIGITS)) as context:
        yield context


def decimal_sinh(x: Decimal) -> Decimal:
    """Return the hyperbolic sine for x well above 0; `Decimal.exp` is correctly rounded."""
    with decimal_precision():
        return (x.exp() - (-x).exp()) / 2


def decimal_sin_cos(x: Decimal) -> tuple[Decimal, Decimal]:
    """Return the sine and the cosine of a small angle, by their series."""
    assert abs(x) < 1
    with decimal_precision():
        terms = [Decimal(1)]
        while terms[-1]:
            power = terms[-1] * x / len(terms)
            terms.append(power if abs(power) > Decimal(10) ** -_DECIMAL_DIGITS else Decimal(0))
        signs = (1, 1, -1, -1)
        signed = [signs[k % 4] * term for k, term in enumerate(terms)]
        return sum(signed[1::2], Decimal(0)), sum(signed[0::2], Decimal(0))
