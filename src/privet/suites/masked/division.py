"""Quotients G / (H + l2) of masked sums: leaf values, and half of every score.

Division after normalising: y = H + l2 is multiplied by the power of two that brings it to
[top / 2, top), and G with it; a polynomial guesses the reciprocal there, and one step of Newton's
corrects it. Bounds and errors: docs/decisions/0014-quotients.md.
"""

from __future__ import annotations

import numpy as np

from privet.arithmetic.rings import Z16, Z32, Z64
from privet.arithmetic.shares import Share
from privet.gates.lookup import lookup, lookup_size
from privet.gates.masked import Lifted, Mask, Masked, lift, mask
from privet.gates.polynomial import polynomial
from privet.gates.threshold import count_reached
from privet.runtime.runtime import Runtime
from privet.suites.masked.scales import GUESS_BITS, NEWTON_BITS, Scales

QUOTIENT_BITS = 30
"""A quotient is below 2^30 in size."""


def signed_lift(runtime: Runtime, x: Masked, shift: int = 0) -> Lifted:
    """Lift a value that may be negative: |x| < 2^(w-2)."""
    sign = 1 << (x.ring.bits - 2)
    lifted: Lifted = lift(runtime, x + sign, shift=shift)
    return lifted + -(sign >> shift)


def low_bits(x: Share) -> Share:
    """Return a share over Z32 of a value over Z64 that fits it."""
    if not x.known:
        return Share.unknown(x.shape, Z32)
    return Share(x.part.astype(np.uint32), Z32)


def quotient(
    runtime: Runtime, scales: Scales, g: Masked, h: Masked, bias: np.ndarray | int = 0
) -> Share:
    """Return G / (H + l2) for masked sums g and h >= 0, in `unit`s.

    1. Count how many of l2 * 2^e, e = 1, 2, ..., y reaches (one opening of bits).
    2. Look 2^(E - e) up there, times y and times G: m and a normalised G (one byte).
    3. Mask both (one opening). A polynomial of m's leading bits guesses top / m, to 2^-10.
    4. Mask the guess z (one opening).
    5. Mask its error, e = 1 - m z / top (one opening).
    6. The quotient is the normalised G times z times (1 + e).

    `bias` is subtracted from (1 + e) in units of 2^-NEWTON_BITS: a relative handicap.

    Cost: five openings, of 2L - 1 bits for each exponent, 1, 8 (or 12), 8 and 4 (or 8) bytes.
    Reveals: nothing. Error: see the decision.
    """
    y: Masked | Lifted
    if h.ring is not Z16:
        y = h.map(lambda a: a << h.ring.dtype.type(scales.y_bits)) + scales.l2
    else:
        y = lift(runtime, h, ring=Z32).times(1 << scales.y_bits) + scales.l2
    with runtime.step("exponent"):
        reached = _count_exponents(runtime, scales, h)
        wide = g.ring is not Z32 or scales.weight_bits >= 30
        factors = [y, signed_lift(runtime, g) if wide else g]
        selection = lookup(runtime, reached, factors, size=lookup_size(scales.exponents))
    with runtime.step("normalise"):
        exponents = lookup_size(scales.exponents)
        table = np.array([1 << max(0, scales.exponents - e) for e in range(exponents)])
        m_share = selection.pick(table, 0, runtime.index)
        g_share = selection.pick(table, 1, runtime.index)
        masked_m, masked_g = mask(runtime, m_share, g_share)
        coefficients, shift, scale = scales.guess()
        m, coarse = lift(runtime, masked_m), lift(runtime, masked_m, shift=shift)
        numerator = signed_lift(runtime, masked_g, shift=max(0, scales.weight_bits - 28))
    with runtime.step("guess"):
        terms = [(a, (coarse,) * k) for k, a in enumerate(coefficients) if k]
        guess = polynomial(runtime, terms)
        guess = guess + _constant(runtime, coefficients[0], guess.shape)
        z = lift(runtime, mask(runtime, guess), shift=scale - GUESS_BITS)
    with runtime.step("correction"):
        whole = scales.top << GUESS_BITS
        error = _constant(runtime, whole, m.shape) - polynomial(runtime, [(1, (m, z))])
        drop = newton_shift(scales)
        if drop < 0:
            error = error * (1 << -drop)
        fits = whole.bit_length() - min(drop, 0) - 7 < 30
        masked_error = mask(runtime, low_bits(error) if fits else error)
        e = signed_lift(runtime, masked_error, shift=max(drop, 0))
        one = round(whole * 2.0**-drop)
        factor = e + (one - np.asarray(bias).astype(np.int64))
        return polynomial(runtime, [(1, (numerator, z, factor))])


def newton_shift(scales: Scales) -> int:
    """Return by how many bits the error of a guess is scaled down."""
    return (scales.top << GUESS_BITS).bit_length() - NEWTON_BITS


def unit(scales: Scales) -> float:
    """Return what one unit of a quotient is worth."""
    one = round((scales.top << GUESS_BITS) * 2.0 ** -newton_shift(scales))
    dropped = max(0, scales.weight_bits - 28)
    power = dropped - GUESS_BITS + scales.h_bits + scales.y_bits - scales.g_bits
    return float(2.0**power / (scales.top * one))


def lifted_share(runtime: Runtime, x: Lifted) -> Share:
    """Return a lifted value as a share."""
    return polynomial(runtime, [(1, (x,))])


def _count_exponents(runtime: Runtime, scales: Scales, h: Masked) -> Share:
    """Count, on as few bits of h as will do, how often l2 was doubled."""
    limit = scales.h_limit * 2.0**scales.h_bits
    # A unit of an eighth of l2 is fine enough: m may leave [top / 2, top) by that much.
    drop = max(0, (scales.l2 >> scales.y_bits).bit_length() - 5)
    width = int(limit).bit_length() + 1 - drop
    thresholds = [max(1, t >> drop) for t in scales.thresholds()]
    digits = -(-(width - 1) // 8)
    coarse = shifted(h, drop)
    return count_reached(runtime, coarse, thresholds, width, -(-(width - 1) // digits))


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


def _constant(runtime: Runtime, value: int, shape: tuple[int, ...]) -> Share:
    wrapped = np.array(value % (1 << 64), dtype=np.uint64)
    return runtime.public(np.broadcast_to(wrapped, shape), Z64)
