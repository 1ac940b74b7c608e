"""Quotients G / (H + l2) of masked sums: leaf values, and half of every score.

Division after normalising: y = H + l2 is multiplied by the power of two that brings it to
[top / 2, top), and G with it; a polynomial guesses the reciprocal there, and one step of Newton's
corrects it. Bounds and errors: docs/decisions/0014-quotients.md.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from privet.arithmetic.exact import nearest
from privet.arithmetic.rings import Z8, Z32, Z36, Z64, Ring, RingArray
from privet.arithmetic.shares import Share
from privet.gates.lookup import lookup, lookup_size
from privet.gates.masked import Lifted, Masked, lift, mask, mask_one, signed_lift
from privet.gates.polynomial import polynomial
from privet.gates.threshold import count_reached
from privet.gates.truncate import drop_bits
from privet.runtime.runtime import Runtime
from privet.suites.masked.scales import GUESS_BITS, NEWTON_BITS, WEIGHT_BITS, Scales


class Quotient(NamedTuple):
    """A quotient, and what tells whether it is right."""

    value: Share
    numerator: Masked
    """G, normalised along with y: in size at most the largest weight times `Scales.top`."""


def quotient(
    runtime: Runtime,
    scales: Scales,
    g: Masked,
    h: Masked,
    handicap: RingArray | None = None,
    ring: Ring = Z36,
) -> Quotient:
    """Return G / (H + l2) for masked sums g and h >= 0, in `unit`s.

    1. Count how many of l2 * 2^e, e = 1, 2, ..., y reaches (one opening of bits).
    2. Look 2^(E - e) up there, times y and times G: m and a normalised G (one byte).
    3. Mask both (one opening). A polynomial of m's leading bits guesses top / m, to 2^-10.
    4. Mask the guess z (one opening).
    5. Mask its error, e = 1 - m z / top (one opening).
    6. The quotient is the normalised G times z times (1 + e).

    `handicap` lowers quotients by parts of `whole`, which is 1, before e is rounded. The normalised
    G is over `ring`: that of least cost is wide enough for quotients up to eight times the largest
    weight, `Scales.wide_ring` for all.

    Cost: five openings, of 2L - 1 bits for each exponent, 1, 8.5 (or 9), 4 and 4 (or 4.5) bytes.
    Reveals: nothing. Error: see the decision.
    """
    y: Masked | Lifted
    if h.ring is scales.y_ring and scales.y_bits == 0:
        y = h + scales.l2
    else:
        slack = scales.h_slack
        whole_h = lift(runtime, h + slack, ring=scales.y_ring) + -slack
        y = whole_h.times(1 << scales.y_bits) + scales.l2
    with runtime.step("exponent"):
        if scales.exponents:
            (width, digit), thresholds, drop = exponent_thresholds(scales)
            reached = count_reached(
                runtime, h.high_bits(drop), thresholds=tuple(thresholds), width=width, digit=digit
            )
        else:
            reached = runtime.public(Z8.zeros(h.shape), Z8)
        # G keeps what leaves its normalised value below 2^34.
        narrow = signed_lift(runtime, g, shift=scales.narrowing, ring=ring)
        factors: list[Masked | Lifted] = [y, narrow]
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
        terms = [(a, (0,) * k) for k, a in enumerate(coefficients) if k]
        guess = polynomial(runtime, [coarse], terms)
        guess += _public(runtime, Z64.array(coefficients[0]), guess.shape)
        # Between 2^(scale - 1) and 2^(scale + 2): what fits into 32 bits is more than is kept.
        drop = scale + 3 - Z32.bits
        few = mask_one(runtime, drop_bits(runtime, guess, drop, Z32))
        z = lift(runtime, few, shift=scale - GUESS_BITS - drop)
    with runtime.step("correction"):
        one = np.array(whole(scales), dtype=np.uint64)
        error = _public(runtime, one if handicap is None else one - handicap, m.shape)
        error -= polynomial(runtime, [m, z], [(1, (0, 1))])
        drop = newton_shift(scales)
        if drop < 0:
            error = error * (1 << -drop)
        masked_error = mask_one(runtime, error.to_ring(_error_ring(scales)))
        e = signed_lift(runtime, masked_error, shift=max(drop, 0))
        value = polynomial(runtime, [numerator, z, e + _one(scales)], [(1, (0, 1, 2))])
        return Quotient(value, masked_g)


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


def _public(runtime: Runtime, values: RingArray, shape: tuple[int, ...]) -> Share:
    return runtime.public(np.broadcast_to(values, shape), Z64)
