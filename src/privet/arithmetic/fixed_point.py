"""Real numbers as integers: x is stored as round(x * 2^f), negative ones as 2^64 less that."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Bits below the ring's top that a value must leave free, so that sums have room."""

    def __post_init__(self) -> None:
        assert self.headroom_bits >= 1, "rounding up must not reach the sign"

    @property
    def unit(self) -> float:
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
            # Which one, not what it is: the value may be private and the message may travel.
            raise DataError(
                f"value {int(np.flatnonzero(bad)[0]) + 1} of {real.size} does not fit into fixed "
                f"point with {self.fraction_bits} fraction bits: values must be finite and below "
                f"{self.limit:g} in size"
            )
        return np.rint(real * 2.0**self.fraction_bits).astype(np.int64).astype(self.ring.dtype)

    def decode(self, elements: RingArray) -> FloatArray:
        """Return the real numbers that ring elements stand for."""
        result: FloatArray = signed(elements).astype(np.float64) * self.unit
        return result
