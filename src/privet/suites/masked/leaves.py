"""Leaf values, from the sums of leaves: quotients, within bounds."""

from __future__ import annotations

from privet.arithmetic.rings import integers_modulo
from privet.arithmetic.shares import Share, stack
from privet.gates.gate import Later, alone
from privet.gates.masked import Masked, lift, mask, signed_lift
from privet.gates.polynomial import polynomial
from privet.gates.shrink import shrink
from privet.gates.threshold import step
from privet.runtime.runtime import Runtime
from privet.suites.masked.bounds import Bounds
from privet.suites.masked.reciprocal import classify, lifted_y, normalised, reciprocal, scaled
from privet.suites.masked.scales import Scales
from privet.terms.plan import Plan


def leaf_values(
    runtime: Runtime,
    plan: Plan,
    scales: Scales,
    bounds: Bounds,
    sum_g: Share,
    sum_h: Share,
    residuals: list[Masked],
) -> Masked:
    """Return the values of leaves, (K, 2^D), in the units and the ring of scores.

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
    drop, product_drop, factor = scales.leaf_value
    z_share = reciprocal(runtime, scales, masked_m, scaled([factor]))
    what = f"leaf values of {float(scales.largest_weight * scales.rate):g} and more in size"
    (z,) = bounds.check(room, room.ring.bits, what, mask.later(z_share))
    factors = [signed_lift(runtime, masked_g, shift=drop), lift(runtime, z)]
    product = polynomial(runtime, factors, [(-1, (0, 1))])
    fewer = plan.params.depth if plan.monotone else 0
    ring = integers_modulo(scales.score_ring.bits - fewer)
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
    of_y, of_g, ring = scales.weight_check
    y = lifted_y(runtime, scales, h, ring).share(runtime) * of_y
    size = signed_lift(runtime, g, ring=ring).share(runtime) * of_g
    return stack([y + size, y - size])
