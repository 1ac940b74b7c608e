from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet import DataError
from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import Z32, Z64, signed

codes = st.builds(FixedPoint, st.integers(0, 30), st.just(Z64), st.integers(1, 8)) | st.builds(
    FixedPoint, st.integers(0, 12), st.just(Z32), st.integers(1, 8)
)


def test_the_default_is_the_papers() -> None:
    assert FixedPoint().fraction_bits == 20
    assert FixedPoint().ring is Z64


@given(codes, st.floats(-1, 1))
def test_an_error_of_half_a_unit(code: FixedPoint, fraction: float) -> None:
    value = fraction * code.limit * (1 - 2**-20)
    error = abs(code.decode(code.encode(value)).item() - value)
    # Above 2^53 units the double itself is on the grid, or coarser than it.
    assert error <= code.resolution / 2


@given(codes)
def test_the_range_is_checked(code: FixedPoint) -> None:
    below = np.nextafter(code.limit, 0)
    assert code.decode(code.encode([below, -below])).tolist() == pytest.approx(
        [below, -below], abs=code.resolution / 2
    )
    for bad in (code.limit, -code.limit, math.inf, -math.inf, math.nan, 1e300):
        with pytest.raises(DataError, match="value 2 of 2 does not fit into fixed point"):
            code.encode([0.0, bad])


@given(codes, st.floats(-0.5, 0.5), st.floats(-0.5, 0.5))
def test_sums_have_room(code: FixedPoint, x: float, y: float) -> None:
    a, b = code.encode(x * code.limit), code.encode(y * code.limit)
    total = code.ring.add(a, b)
    assert int(signed(total)) == int(signed(a)) + int(signed(b))
