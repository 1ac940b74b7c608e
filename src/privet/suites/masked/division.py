"""Quotients G / (H + l2) of masked sums: leaf values, and half of every score.

Division after normalising: y = H + l2 is multiplied by the power of two that brings it to
[top / 2, top), and G with it; a polynomial guesses the reciprocal there, and one step of Newton's
corrects it. Bounds and errors: docs/decisions/0014-quotients.md.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod

import numpy as np

from privet.arithmetic.exact import nearest
from privet.arithmetic.rings import Z8, Z32, Z36, Z64, Ring, RingArray
from privet.arithmetic.shares import Share
from privet.gates.gate import Cost
from privet.gates.lookup import Lookup, lookup, lookup_size
from privet.gates.masked import Lift, Lifted, Mask, Masked, OpenMasked, lift, mask
from privet.gates.polynomial import Polynomial, polynomial
from privet.gates.threshold import CountReached, count_reached
from privet.runtime.runtime import Runtime
from privet.suites.masked.scales import GUESS_BITS, NEWTON_BITS, WEIGHT_BITS, Scales

QUOTIENT_BITS = 30
"""A quotient is below 2^30 in size."""


def signed_lift(runtime: Runtime, x: Masked, shift: int = 0, ring: Ring = Z64) -> Lifted:
    """Lift a value that may be negative: |x| < 2^(w-2)."""
    sign = 1 << (x.ring.bits - 2)
    lifted: Lifted = lift(runtime, x + sign, shift=shift, ring=ring)
    return lifted + -(sign >> shift)


def low_bits(x: Share, ring: Ring) -> Share:
    """Return a share over a smaller ring of a value over Z64 that fits it."""
    if not x.known:
        return Share.unknown(x.shape, ring)
    return Share(x.part.astype(ring.dtype), ring)


def quotient(
    runtime: Runtime, scales: Scales, g: Masked, h: Masked, handicap: RingArray | None = None
) -> Share:
    """Return G / (H + l2) for masked sums g and h >= 0, in `unit`s.

    1. Count how many of l2 * 2^e, e = 1, 2, ..., y reaches (one opening of bits).
    2. Look 2^(E - e) up there, times y and times G: m and a normalised G (one byte).
    3. Mask both (one opening). A polynomial of m's leading bits guesses top / m, to 2^-10.
    4. Mask the guess z (one opening).
    5. Mask its error, e = 1 - m z / top (one opening).
    6. The quotient is the normalised G times z times (1 + e).

    `handicap` lowers quotients by parts of `whole`, which is 1, before e is rounded.

    Cost: `quotient_cost`: five openings, of 2L - 1 bits for each exponent, 1, 8.5 (or 9), 8 and 4
    (or 4.5) bytes. Reveals: nothing. Error: see the decision.
    """
    y: Masked | Lifted
    if h.ring is scales.y_ring and scales.y_bits == 0:
        y = h + scales.l2
    else:
        y = lift(runtime, h, ring=scales.y_ring).times(1 << scales.y_bits) + scales.l2
    with runtime.step("exponent"):
        if scales.exponents:
            bits, thresholds, drop = exponent_thresholds(scales)
            reached = count_reached(runtime, shifted(h, drop), thresholds, *bits)
        else:
            reached = runtime.public(Z8.zeros(h.shape), Z8)
        # G keeps what leaves its normalised value below 2^34.
        narrow = signed_lift(runtime, g, shift=scales.narrowing, ring=Z36)
        factors = [y, narrow]
        selection = lookup(runtime, reached, factors, size=lookup_size(scales.exponents))
    with runtime.step("normalise"):
        exponents = lookup_size(scales.exponents)
        table = np.array([1 << max(0, scales.exponents - e) for e in range(exponents)])
        m_share = selection.pick(table, 0)
        g_share = selection.pick(table, 1)
        masked_m, masked_g = mask(runtime, m_share, g_share)
        coefficients, shift, scale = scales.guess()
        m, coarse = lift(runtime, masked_m), lift(runtime, masked_m, shift=shift)
        numerator = signed_lift(runtime, masked_g, shift=_dropped(scales) - scales.narrowing)
    with runtime.step("guess"):
        terms = [(a, (coarse,) * k) for k, a in enumerate(coefficients) if k]
        guess = polynomial(runtime, terms)
        guess += _public(runtime, Z64.array(coefficients[0]), guess.shape)
        z = lift(runtime, mask(runtime, guess), shift=scale - GUESS_BITS)
    with runtime.step("correction"):
        one = np.array(whole(scales), dtype=np.uint64)
        error = _public(runtime, one if handicap is None else one - handicap, m.shape)
        error -= polynomial(runtime, [(1, (m, z))])
        drop = newton_shift(scales)
        if drop < 0:
            error = error * (1 << -drop)
        masked_error = mask(runtime, low_bits(error, _error_ring(scales)))
        e = signed_lift(runtime, masked_error, shift=max(drop, 0))
        result: Share = polynomial(runtime, [(1, (numerator, z, e + _one(scales)))])
        return result


def whole(scales: Scales) -> int:
    """Return 1 in the units of a guess's error."""
    return scales.top << GUESS_BITS


def newton_shift(scales: Scales) -> int:
    """Return by how many bits the error of a guess is scaled down."""
    return (whole(scales) - 1).bit_length() - NEWTON_BITS


def _dropped(scales: Scales) -> int:
    """Return how many bits of the normalised G are not kept."""
    return max(scales.narrowing, scales.weight_bits - WEIGHT_BITS)


def _one(scales: Scales) -> int:
    """Return 1 in the units of a guess's error, once that is scaled down."""
    return nearest(whole(scales), -newton_shift(scales))


def unit(scales: Scales) -> Fraction:
    """Return what one unit of a quotient is worth."""
    power = _dropped(scales) - GUESS_BITS + scales.h_bits + scales.y_bits - scales.g_bits
    return Fraction(2) ** power / (scales.top * _one(scales))


def exponent_thresholds(scales: Scales) -> tuple[tuple[int, int], list[int], int]:
    """Return how to count how often l2 was doubled, on as few bits of h as will do.

    As the width to compare on and its digits' length, the thresholds, and how many low bits of h
    are dropped: a unit of a sixteenth of l2 is fine enough, since m may leave [top / 2, top) by
    that much.
    """
    bits = scales.h_limit.bit_length()
    drop = min(bits - 1, max(0, (scales.l2 >> scales.y_bits).bit_length() - 5))
    width = bits + 1 - drop
    digits = -(-(width - 1) // 8)
    thresholds = [max(1, t >> drop) for t in scales.thresholds()]
    return (width, -(-(width - 1) // digits)), thresholds, drop


def _error_ring(scales: Scales) -> Ring:
    """Return the smallest ring that the error of a guess, which is below 2^-8, fits."""
    bits = whole(scales).bit_length() - min(newton_shift(scales), 0) - 8
    return next(ring for ring in (Z32, Z36, Z64) if bits <= ring.bits - 2)


def quotient_cost(
    scales: Scales, shape: tuple[int, ...], g_ring: Ring, h_ring: Ring, n_parties: int
) -> Cost:
    """Return the cost of `quotient`."""
    count = prod(shape)
    y_ring = scales.y_ring
    _, shift, scale = scales.guess()
    (width, digit), thresholds, _ = exponent_thresholds(scales)
    size = lookup_size(scales.exponents)
    error_ring = _error_ring(scales)
    masks = 2  # every lifted value here has a mask and its top bit
    direct = h_ring is y_ring and scales.y_bits == 0
    cost = Cost() if direct else Lift.cost(shape, h_ring, ring=y_ring)
    if thresholds:
        cost += CountReached.cost(count, len(thresholds), width, digit, n_parties)
    cost += Lift.cost(shape, g_ring, scales.narrowing, Z36)
    narrow = 2 if scales.narrowing else 1  # from Z36 to itself, the top bit does not matter
    y_masks = 1 if direct or h_ring is y_ring else 2
    cost += Lookup.cost(shape, size, [(y_ring, y_masks), (Z36, narrow)], n_parties)
    cost += OpenMasked.cost([(shape, y_ring), (shape, Z36)], n_parties)
    cost += Lift.cost(shape, y_ring) + Lift.cost(shape, y_ring, shift)
    cost += Lift.cost(shape, Z36, _dropped(scales) - scales.narrowing)
    cost += Polynomial.cost(3 + 4 + 5, shape)
    cost += OpenMasked.cost([(shape, Z64)], n_parties) + Lift.cost(shape, Z64, scale - GUESS_BITS)
    cost += Polynomial.cost(masks * masks, shape)
    cost += OpenMasked.cost([(shape, error_ring)], n_parties)
    cost += Lift.cost(shape, error_ring, max(newton_shift(scales), 0))
    return cost + Polynomial.cost((1 + masks) ** 3 - 1 - 3 * masks, shape)


def shifted(x: Masked, drop: int) -> Masked:
    """Return a masked value without its low bits, up to one unit: for comparisons alone."""
    if drop == 0:
        return x
    kind = x.ring.dtype.type
    public = None if x.public is None else x.ring.reduce(x.public) >> kind(drop)
    if x.mask.value is None:
        return Masked(x.ring, Mask(x.shape), public)
    return Masked(
        x.ring, Mask(x.shape, value=x.mask.value >> x.mask.value.dtype.type(drop)), public
    )


def _public(runtime: Runtime, values: RingArray, shape: tuple[int, ...]) -> Share:
    return runtime.public(np.broadcast_to(values, shape), Z64)
