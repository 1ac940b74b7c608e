from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privet import DataError
from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import Z32, Z64, signed

encodings = st.builds(FixedPoint, st.integers(0, 30), st.just(Z64), st.integers(1, 8)) | st.builds(
    FixedPoint, st.integers(0, 12), st.just(Z32), st.integers(1, 8)
)


def test_default_encoding_is_that_of_the_paper() -> None:
    assert FixedPoint().fraction_bits == 20
    assert FixedPoint().ring is Z64


@given(encodings, st.floats(-1, 1))
def test_rounding_error_is_at_most_half_a_unit(encoding: FixedPoint, fraction: float) -> None:
    value = fraction * encoding.limit * (1 - 2**-20)
    error = abs(encoding.decode(encoding.encode(value)).item() - value)
    # Above 2^53 units, doubles are on the grid, or coarser than it.
    assert error <= encoding.resolution / 2


@given(encodings)
def test_values_out_of_range_are_refused(encoding: FixedPoint) -> None:
    below = np.nextafter(encoding.limit, 0)
    assert encoding.decode(encoding.encode([below, -below])).tolist() == pytest.approx(
        [below, -below], abs=encoding.resolution / 2
    )
    for bad in (encoding.limit, -encoding.limit, math.inf, -math.inf, math.nan, 1e300):
        with pytest.raises(DataError, match="value 2 of 2 does not fit into fixed point"):
            encoding.encode([0.0, bad])


@given(encodings, st.floats(-0.5, 0.5), st.floats(-0.5, 0.5))
def test_sums_within_the_headroom_do_not_overflow(encoding: FixedPoint, x: float, y: float) -> None:
    a, b = encoding.encode(x * encoding.limit), encoding.encode(y * encoding.limit)
    total = encoding.ring.add(a, b)
    assert int(signed(total)) == int(signed(a)) + int(signed(b))
