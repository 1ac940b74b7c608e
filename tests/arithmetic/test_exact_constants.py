from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privet.arithmetic.fixed_point import (
    PI,
    ceil_log2,
    decimal_precision,
    decimal_sin_cos,
    decimal_sinh,
    floor_log2,
    round_scaled,
)
from privet.federation.session.fingerprint import run_self_test
from privet.gates.masked import fourier

positive = st.fractions(min_value=Fraction(1, 10**12), max_value=10**12)


@given(positive)
def test_logarithms(x: Fraction) -> None:
    assert Fraction(2) ** floor_log2(x) <= x < Fraction(2) ** (floor_log2(x) + 1)
    assert Fraction(2) ** (ceil_log2(x) - 1) < x <= Fraction(2) ** ceil_log2(x)


@given(st.fractions(), st.integers(-8, 8))
def test_rounding_to_the_nearest_integer(x: Fraction, bits: int) -> None:
    assert abs(round_scaled(x, bits) - x * Fraction(2) ** bits) <= Fraction(1, 2)


def test_decimals_are_right_to_fifty_digits() -> None:
    """Compare with known decimal expansions."""
    with decimal_precision():
        known = Decimal("1.17520119364380145688238185059560081515571798133410")
        assert abs(decimal_sinh(Decimal(1)) - known) < Decimal(10) ** -49
        sine, cosine = decimal_sin_cos(PI / 6)
        assert abs(sine - Decimal("0.5")) < Decimal(10) ** -50
        assert abs(cosine**2 - Decimal("0.75")) < Decimal(10) ** -50


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50))
def test_sines_and_cosines(angles: list[int]) -> None:
    sine, cosine = fourier.compute_sin_cos(np.array(angles, dtype=np.uint32))
    for angle, s, c in zip(angles, sine.tolist(), cosine.tolist(), strict=True):
        turn = 2 * np.pi * (angle / 2.0**32)
        # The bound of `compute_sin_cos`, and the rounding of the angle to double precision.
        assert abs(s / 2.0**fourier.SIN_COS_BITS - np.sin(turn)) < 2.0**-34 + 2.0**-50
        assert abs(c / 2.0**fourier.SIN_COS_BITS - np.cos(turn)) < 2.0**-34 + 2.0**-50


def test_sines_and_cosines_of_quarter_turns() -> None:
    quarters = np.array([0, 1 << 30, 1 << 31, 3 << 30], dtype=np.uint32)
    sine, cosine = fourier.compute_sin_cos(quarters)
    one = 1 << fourier.SIN_COS_BITS
    assert sine.tolist() == [0, one, 0, -one]
    assert cosine.tolist() == [one, 0, -one, 0]


def test_self_test_matches_known_digests() -> None:
    """Any other machine, numpy or Python version must have the same digests."""
    assert {name: digest[:16] for name, digest in run_self_test().items()} == {
        "random numbers": "adaabd7b0e9b3538",
        "sines": "8716c573b0dc3742",
        "sums by bucket": "75c27a91a1fc4146",
    }
