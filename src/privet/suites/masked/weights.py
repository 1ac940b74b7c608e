"""Weights of samples: masked once a training, and multiplied with masked derivatives."""

from __future__ import annotations

from privet.arithmetic.fixed_point import FixedPoint
from privet.arrays import FloatArray, Indices
from privet.gates.masked import Masked, lift, mask_one, signed_lift
from privet.gates.outcomes import owned_share
from privet.gates.polynomial import polynomial
from privet.runtime.runtime import Runtime
from privet.suites.masked.units import Units
from privet.terms.objective import SharedReal


class Weights:
    """The weights of all samples, which the label's holder knows."""

    masked: Masked
    """(1, 1, N)."""

    def __init__(
        self, runtime: Runtime, units: Units, own: FloatArray | None, n_samples: int
    ) -> None:
        """Mask them: one opening."""
        self._runtime = runtime
        self._bits, ring = units.weights
        encoded = None
        if own is not None:
            encoded = FixedPoint(self._bits).encode(own).astype(ring.dtype).reshape(1, 1, -1)
        self.masked = mask_one(runtime, owned_share(runtime, encoded, (1, 1, n_samples), ring))
        self._lifted = lift(runtime, self.masked)

    def times(self, x: Masked, bits: int, rows: Indices) -> SharedReal:
        """Return what rows have with so many fraction bits, (K, 1, rows), times their weights."""
        factors = [signed_lift(self._runtime, x), self._lifted.take(rows)]
        product = polynomial(self._runtime, factors, [(1, (0, 1))])
        return SharedReal(product, bits + self._bits)
