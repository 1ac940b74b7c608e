"""Leaf values from the sums of leaves, with reciprocals of Hessian sums.

    1. y's class e: how many of l2 R, l2 R^2, ... it reaches (one opening of two bits or so each).
    2. P = R^(E-e) brings every y between 1/R and 1 of the same number: m = multiple y P, of which
       bits are dropped; masked along with whatever is multiplied by P (one opening).
    3. z = top / m, a Fourier series: bits are dropped, and it is masked (one opening).

So x / y is x P times z, with a public factor. Bounds and errors are in
docs/decisions/0024-reciprocals.md.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from privet.arithmetic.fixed_point import ceil_log2, nearest
from privet.arithmetic.rings import Ring, integers_modulo
from privet.arithmetic.shares import Share, stack
from privet.gates.arithmetic import drop_bits
from privet.gates.gate import Later, alone
from privet.gates.masked.comparison import Comparison, compare, step
from privet.gates.masked.fourier import SCALE_BITS, Integers, fourier
from privet.gates.masked.functions import SCORE_BITS, reciprocal_series
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.truncation import shrink
from privet.gates.masked.value import Lifted, Masked, lift, mask, mask_one, signed_lift
from privet.protocols.masked.bounds import Bounds
from privet.protocols.masked.precision.scores import DEALT_BITS, Z_BITS, Scales
from privet.runtime.runtime import Runtime
from privet.spec.plan import Plan


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


class LeafScale(NamedTuple):
    """How G P times a reciprocal becomes a leaf value."""

    drop: int
    """The bits that G P loses."""
    product_drop: int
    """Those that the product loses."""
    factor: Fraction
    """What a reciprocal is multiplied with, between 1/2 and 1."""
    ring: Ring
    """The ring of leaf values: the scores', or just wide enough for them.

    What a product loses and what is left of it share 64 bits, and scores of many rows would leave
    too few to lose.
    """

    @classmethod
    def of(cls, scales: Scales) -> LeafScale:
        """Choose it."""
        units, ring = scales.units, scales.score_ring
        enough = ceil_log2(scales.largest_weight * scales.rate) + SCORE_BITS + 3
        if units.wide and enough < ring.bits:
            ring = integers_modulo(enough)
        power = units.g_bits + scales.z_bits - units.h_bits - scales.y_bits
        factor = scales.rate * Fraction(2) ** (SCORE_BITS - power)
        factor /= scales.l2 * scales.ratio ** (scales.classes + 1)
        product_drop = -ceil_log2(factor)
        largest = scales.largest_weight * scales.product_limit * (1 << units.g_bits)
        drop = max(0, ceil_log2(largest) + 1 - 36, product_drop - (64 - ring.bits))
        return cls(drop, product_drop - drop, factor * Fraction(2) ** product_drop, ring)


def weight_check(scales: Scales) -> tuple[int, int, Ring]:
    """Return how |G| <= largest_weight y is checked: factors of y and G, and a ring for both."""
    units = scales.units
    power = units.g_bits - units.h_bits - scales.y_bits
    weight = scales.largest_weight * Fraction(2) ** power
    bits = 8 + max(0, ceil_log2(1 / weight))
    of_y, of_g = int(weight * (1 << bits)), 1 << bits
    largest = of_y * ((units.h_limit << scales.y_bits) + scales.l2) + of_g * units.g_limit
    return of_y, of_g, integers_modulo(ceil_log2(largest) + 2)


def leaf_values(
    runtime: Runtime,
    plan: Plan,
    scales: Scales,
    bounds: Bounds,
    sum_g: Share,
    sum_h: Share,
    residuals: list[Masked],
) -> Masked:
    """Return the values of leaves, (K, 2^D), in the units of scores and a ring of their own.

    With constraints, both have D bits fewer: what is put in order is doubled at each level.

    1. -G / y, times the learning rate: G P times a reciprocal, rounded at random.
    2. |G| <= w y for the largest weight w, or training ends; so if anything else of this table was
       out of its bounds, such as its residuals, if they are to be checked.
    """
    g, h = _with_residuals_checked(runtime, bounds, residuals, mask.later(sum_g, sum_h))
    classes = classify(runtime, scales, h)
    m = normalised(runtime, scales, classes, h)
    numerator = step(runtime, classes, signed_lift(runtime, g), factors=scales.thresholds.factors)
    masked_m, masked_g, room = mask(runtime, m, numerator, _room(runtime, scales, g, h))
    drop, product_drop, factor, ring = LeafScale.of(scales)
    z_share = reciprocal(runtime, scales, masked_m, scaled([factor]))
    what = f"leaf values of {float(scales.largest_weight * scales.rate):g} and more in size"
    (z,) = bounds.check(room, room.ring.bits, what, mask.later(z_share))
    factors = [signed_lift(runtime, masked_g, shift=drop), lift(runtime, z)]
    product = polynomial(runtime, factors, [(-1, (0, 1))])
    fewer = plan.params.depth if plan.monotone else 0
    ring = integers_modulo(ring.bits - fewer)
    (values,) = bounds.settle(shrink.later(product, bits=[product_drop + fewer], rings=[ring]))
    return values


def _with_residuals_checked(
    runtime: Runtime, bounds: Bounds, room: list[Masked], opening: Later[list[Masked]]
) -> list[Masked]:
    """Open something, and check the room of residuals, if there is any, on the way."""
    if not room:
        return alone(runtime, opening)
    what = "errors of the rows drawn for a table, larger than those that training started from"
    return bounds.check(room[0], room[0].ring.bits, what, opening)


def _room(runtime: Runtime, scales: Scales, g: Masked, h: Masked) -> Share:
    """Return by how much G and -G are within the largest weight times y: none is negative."""
    of_y, of_g, ring = weight_check(scales)
    y = lifted_y(runtime, scales, h, ring).share(runtime) * of_y
    size = signed_lift(runtime, g, ring=ring).share(runtime) * of_g
    return stack([y + size, y - size])


def widened(runtime: Runtime, values: Masked, ring: Ring) -> Masked:
    """Return leaf values over a ring of scores, masked again if that is a larger one."""
    if values.ring is ring:
        return values
    return mask_one(runtime, signed_lift(runtime, values, ring=ring).share(runtime))
