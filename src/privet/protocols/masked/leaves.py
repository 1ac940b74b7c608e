"""Leaf values from the sums of leaves, with reciprocals of Hessian sums.

    1. y's class e: how many of l2 R, l2 R^2, ... it reaches (one opening of about two bits each).
    2. P = R^(E-e) brings every y between 1/R and 1 of the same number: m = multiple y P, of which
       bits are dropped; masked together with the values that are multiplied by P (one opening).
    3. z = top / m, a Fourier series: bits are dropped, and it is masked (one opening).

Then x / y is x P times z, with a public factor. Bounds and errors are in
docs/decisions/0024-reciprocals.md.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from privet.arithmetic.fixed_point import ceil_log2, round_scaled
from privet.arithmetic.rings import Ring, get_integer_ring
from privet.arithmetic.shares import Share, stack
from privet.gates.arithmetic import truncate_locally
from privet.gates.gate import DeferredGate, run_deferred
from privet.gates.masked.comparison import MaskedComparison, compare, multiply_by_step
from privet.gates.masked.fourier import SCALE_BITS, Int64Array, evaluate_fourier
from privet.gates.masked.functions import SCORE_BITS, build_reciprocal_series
from privet.gates.masked.polynomial import polynomial
from privet.gates.masked.truncation import reduce_ring
from privet.gates.masked.value import LiftedValue, MaskedValue, lift, lift_signed, mask, mask_value
from privet.protocols.masked.bounds import RangeChecks
from privet.protocols.masked.precision.scores import CORRELATION_BITS, RECIPROCAL_BITS, Scales
from privet.runtime.runtime import Runtime
from privet.spec.plan import Plan


def classify_hessians(runtime: Runtime, scales: Scales, h: MaskedValue) -> MaskedComparison:
    """Return the thresholds that H reaches, (E, ...): the class of y, and whether it counts.

    Cost: one opening if there is a threshold.
    """
    thresholds = scales.thresholds
    if not thresholds.values:
        return MaskedComparison((0, *h.shape), 1)
    return compare(
        runtime,
        h.drop_low_bits(thresholds.dropped_bits),
        thresholds=thresholds.values,
        width=thresholds.width,
        digits=thresholds.n_digits,
    )


def lift_regularised_hessian(
    runtime: Runtime, scales: Scales, h: MaskedValue, ring: Ring
) -> LiftedValue:
    """Return y as an integer, in units of y."""
    slack = scales.units.h_slack
    lifted = lift(runtime, h + slack, ring=ring) + -slack
    return lifted.scale(1 << scales.y_bits) + scales.l2


def normalise_hessian(
    runtime: Runtime, scales: Scales, classes: MaskedComparison, h: MaskedValue
) -> Share:
    """Return m, to be masked."""
    y = lift_regularised_hessian(runtime, scales, h, scales.wide_ring)
    factors = tuple(
        scales.normalising_factor * factor for factor in scales.thresholds.class_factors
    )
    m = multiply_by_step(runtime, classes, y, factors=factors)
    return truncate_locally(runtime, m, m.ring.bits - scales.narrow_ring.bits, scales.narrow_ring)


def compute_reciprocal(
    runtime: Runtime, scales: Scales, m: MaskedValue, scale: Int64Array | None
) -> Share:
    """Return z, to be masked and lifted; `scale` are factors with SCALE_BITS fraction bits."""
    series = build_reciprocal_series(scales.class_ratio, scales.period)
    z = evaluate_fourier(
        runtime,
        m,
        [series],
        scale,
        correlation_bits=CORRELATION_BITS,
        public_bits=RECIPROCAL_BITS - CORRELATION_BITS,
    )[0]
    return truncate_locally(runtime, z, scales.reciprocal_dropped_bits, scales.reciprocal_ring)


def encode_scale_factors(values: list[Fraction]) -> Int64Array:
    """Encode factors of at most 1 on reciprocals."""
    return np.array([round_scaled(value, SCALE_BITS) for value in values], dtype=np.int64)


class LeafScale(NamedTuple):
    """The scale that turns G P times a reciprocal into a leaf value."""

    numerator_dropped_bits: int
    """The bits that G P loses."""
    product_dropped_bits: int
    """The bits that the product loses."""
    factor: Fraction
    """The factor on a reciprocal, between 1/2 and 1."""
    ring: Ring
    """The ring of leaf values: that of scores, or one just wide enough for leaf values.

    Dropped and remaining bits of a product share 64 bits, and the scores of many rows would leave
    too few bits to drop.
    """

    @classmethod
    def from_scales(cls, scales: Scales) -> LeafScale:
        """Choose the scale."""
        units, ring = scales.units, scales.score_ring
        enough = ceil_log2(scales.max_leaf_weight * scales.learning_rate) + SCORE_BITS + 3
        if units.is_wide and enough < ring.bits:
            ring = get_integer_ring(enough)
        power = units.g_bits + scales.opened_reciprocal_bits - units.h_bits - scales.y_bits
        factor = scales.learning_rate * Fraction(2) ** (SCORE_BITS - power)
        factor /= scales.l2 * scales.class_ratio ** (scales.n_class_bounds + 1)
        product_drop = -ceil_log2(factor)
        largest = scales.max_leaf_weight * scales.max_normalised_hessian * (1 << units.g_bits)
        drop = max(0, ceil_log2(largest) + 1 - 36, product_drop - (64 - ring.bits))
        return cls(drop, product_drop - drop, factor * Fraction(2) ** product_drop, ring)


def weight_check(scales: Scales) -> tuple[int, int, Ring]:
    """Return the check of |G| <= max_leaf_weight y: factors on y and G, and a ring for both."""
    units = scales.units
    power = units.g_bits - units.h_bits - scales.y_bits
    weight = scales.max_leaf_weight * Fraction(2) ** power
    bits = 8 + max(0, ceil_log2(1 / weight))
    y_factor, g_factor = int(weight * (1 << bits)), 1 << bits
    largest = (
        y_factor * ((units.max_hessian_sum << scales.y_bits) + scales.l2)
        + g_factor * units.max_gradient_sum
    )
    return y_factor, g_factor, get_integer_ring(ceil_log2(largest) + 2)


def compute_leaf_values(
    runtime: Runtime,
    plan: Plan,
    scales: Scales,
    range_checks: RangeChecks,
    gradient_sums: Share,
    hessian_sums: Share,
    residuals: list[MaskedValue],
) -> MaskedValue:
    """Return leaf values, (K, 2^D), in the units of scores and over the ring of `LeafScale`.

    With constraints both have D bits fewer: ordering doubles leaf values at each level. `residuals`
    is the masked headroom of residuals, if they must be checked.

    1. -G / y, times the learning rate: G P times a reciprocal, rounded at random.
    2. |G| <= w y for the largest weight w, or training ends. It also ends if another number of this
       table is out of range, such as its residuals.
    """
    g, h = _run_with_residual_check(
        runtime, range_checks, residuals, mask.defer(gradient_sums, hessian_sums)
    )
    classes = classify_hessians(runtime, scales, h)
    m = normalise_hessian(runtime, scales, classes, h)
    numerator = multiply_by_step(
        runtime, classes, lift_signed(runtime, g), factors=scales.thresholds.counted_factors
    )
    masked_m, masked_g, headroom = mask(
        runtime, m, numerator, _compute_headroom(runtime, scales, g, h)
    )
    drop, product_drop, factor, ring = LeafScale.from_scales(scales)
    z_share = compute_reciprocal(runtime, scales, masked_m, encode_scale_factors([factor]))
    problem = (
        f"leaf values of {float(scales.max_leaf_weight * scales.learning_rate):g} and more in size"
    )
    (z,) = range_checks.check(headroom, headroom.ring.bits, problem, mask.defer(z_share))
    factors = [lift_signed(runtime, masked_g, shift=drop), lift(runtime, z)]
    product = polynomial(runtime, factors, [(-1, (0, 1))])
    ordering_bits = plan.params.depth if plan.monotone else 0
    ring = get_integer_ring(ring.bits - ordering_bits)
    (values,) = range_checks.reveal_and_require(
        reduce_ring.defer(product, dropped_bits=[product_drop + ordering_bits], rings=[ring])
    )
    return values


def _run_with_residual_check(
    runtime: Runtime,
    range_checks: RangeChecks,
    headroom: list[MaskedValue],
    deferred: DeferredGate[list[MaskedValue]],
) -> list[MaskedValue]:
    """Run a deferred gate, together with the check of residuals if there is one."""
    if not headroom:
        return run_deferred(runtime, deferred)
    problem = "errors of the rows drawn for a table, larger than those that training started from"
    return range_checks.check(headroom[0], headroom[0].ring.bits, problem, deferred)


def _compute_headroom(runtime: Runtime, scales: Scales, g: MaskedValue, h: MaskedValue) -> Share:
    """Return the headroom of G and -G below the largest weight times y: none is negative."""
    y_factor, g_factor, ring = weight_check(scales)
    y = lift_regularised_hessian(runtime, scales, h, ring).to_share(runtime) * y_factor
    scaled_g = lift_signed(runtime, g, ring=ring).to_share(runtime) * g_factor
    return stack([y + scaled_g, y - scaled_g])


def widen_leaf_values(runtime: Runtime, values: MaskedValue, ring: Ring) -> MaskedValue:
    """Return leaf values over the ring of scores, masked again if that ring is larger."""
    if values.ring is ring:
        return values
    return mask_value(runtime, lift_signed(runtime, values, ring=ring).to_share(runtime))
