"""Reciprocals of y = H + l2, for masked sums H: half of every score and leaf value.

    1. y's class e: how many of l2 R, l2 R^2, ... it reaches (one opening of two bits or so each).
    2. P = R^(E-e) brings every y between 1/R and 1 of the same number: m = multiple y P, of which
       bits are dropped; masked along with whatever is multiplied by P (one opening).
    3. z = top / m, a Fourier series: bits are dropped, and it is masked (one opening).

So x / y is x P times z, with a public factor. Bounds and errors are in
docs/decisions/0024-reciprocals.md.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from privet.arithmetic.exact import nearest
from privet.arithmetic.rings import Ring
from privet.arithmetic.shares import Share
from privet.gates.comparison import Comparison
from privet.gates.masked import Lifted, Masked, lift
from privet.gates.reciprocal_series import reciprocal_series
from privet.gates.series import SCALE_BITS, Integers, fourier
from privet.gates.threshold import compare, step
from privet.gates.truncate import drop_bits
from privet.runtime.runtime import Runtime
from privet.suites.masked.scales import DEALT_BITS, Z_BITS, Scales


def classify(runtime: Runtime, scales: Scales, h: Masked) -> Comparison:
    """Find the class of y, and whether it counts: which thresholds H reaches, (E, ...).

    One opening, if there are any.
    """
    found = scales.thresholds
    if not found.values:
        return Comparison((0, *h.shape), 1)
    return compare(
        runtime,
        h.high_bits(found.drop),
        thresholds=found.values,
        width=found.width,
        digits=found.digits,
    )


def lifted_y(runtime: Runtime, scales: Scales, h: Masked, ring: Ring) -> Lifted:
    """Return y as an integer in its own units."""
    slack = scales.units.h_slack
    whole = lift(runtime, h + slack, ring=ring) + -slack
    return whole.times(1 << scales.y_bits) + scales.l2


def normalised(runtime: Runtime, scales: Scales, classes: Comparison, h: Masked) -> Share:
    """Return m, to be masked."""
    y = lifted_y(runtime, scales, h, scales.wide_ring)
    factors = tuple(scales.multiple * factor for factor in scales.thresholds.normalising)
    m = step(runtime, classes, y, factors=factors)
    return drop_bits(runtime, m, m.ring.bits - scales.narrow_ring.bits, scales.narrow_ring)


def reciprocal(runtime: Runtime, scales: Scales, m: Masked, scale: Integers | None) -> Share:
    """Return z, to be masked and lifted: `scale` multiplies each, by parts of 2^SCALE_BITS."""
    series = reciprocal_series(scales.ratio, scales.period)
    z = fourier(
        runtime, m, [series], scale, dealt_bits=DEALT_BITS, public_bits=Z_BITS - DEALT_BITS
    )[0]
    return drop_bits(runtime, z, scales.z_drop, scales.z_ring)


def scaled(values: list[Fraction]) -> Integers:
    """Return numbers up to 1 as reciprocals are multiplied with."""
    return np.array([nearest(value, SCALE_BITS) for value in values], dtype=np.int64)
