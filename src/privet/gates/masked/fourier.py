"""Fourier series of masked values, with integer sines and cosines, and products modulo 2^128.

By the addition theorems,

    sin(w(c - r)) = sin(wc) cos(wr) - cos(wc) sin(wr)

the sine of a masked value c - r is linear in the sine and cosine of the mask, which the dealer
derives; so is the cosine. The ring is one period. All numbers are integers, the same at all
participants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from privet.arithmetic import large_arrays
from privet.arithmetic.fixed_point import PI, decimal_precision, decimal_sin_cos, round_scaled
from privet.arithmetic.rings import Z64, Ring, RingArray
from privet.arithmetic.shares import Share
from privet.gates.gate import Gate
from privet.gates.masked.value import MaskedValue
from privet.runtime.correlations.correlation import Correlation, THolderInput
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import CostCounter
from privet.runtime.party import Party
from privet.runtime.runtime import Shape

SIN_COS_BITS = 36
"""Fraction bits of the sines and cosines."""
_STEPS = 16
# Fraction bits to compute the table: 2^14 products, each off by a unit, leave enough precision.
_WIDE = 128

Int64Array = npt.NDArray[np.int64]


def compute_sin_cos(angle: npt.NDArray[np.uint32]) -> tuple[Int64Array, Int64Array]:
    """Return the sines and cosines of angles, with `SIN_COS_BITS` fraction bits.

    A table has those of every 65,536th part of a turn. With d the rest of the angle, below 1e-4:
    sin(a + d) = sin a + d cos a - d^2/2 sin a, and likewise for the cosine. The next terms are
    below 2^-42. Only integer operations are used, so the results are the same on every machine
    (`arithmetic.fixed_point` explains why that matters), and within 2^-34 of the exact values.
    """
    sines, cosines, radian = _table()
    index = angle >> np.uint32(_STEPS)
    rest = (angle & np.uint32((1 << _STEPS) - 1)).astype(np.int64)
    d = (rest * radian) >> 16  # 45 fraction bits, below 2^32
    half = (d >> 16) ** 2  # d^2 / 2 with 59 fraction bits, below 2^32
    sine, cosine = sines[index], cosines[index]
    short_sine, short_cosine = sine >> 6, cosine >> 6  # 30 fraction bits
    sine += (short_cosine * d) >> 39
    sine -= (short_sine * half) >> 53
    cosine -= (short_sine * d) >> 39
    cosine -= (short_cosine * half) >> 53
    return sine, cosine


@lru_cache(maxsize=1)
def _table() -> tuple[Int64Array, Int64Array, np.int64]:
    """Return sines and cosines of every 65,536th part of a turn, and 2 pi with 29 fraction bits."""
    size = 1 << _STEPS
    with decimal_precision():
        turn = [round_scaled(x, _WIDE) for x in decimal_sin_cos(2 * PI / size)]
    sine, cosine = 0, 1 << _WIDE
    quarter = []
    for _ in range(size // 4):
        quarter.append((sine + (1 << (_WIDE - SIN_COS_BITS - 1))) >> (_WIDE - SIN_COS_BITS))
        sine, cosine = (
            (sine * turn[1] + cosine * turn[0]) >> _WIDE,
            (cosine * turn[1] - sine * turn[0]) >> _WIDE,
        )
    first = np.array(quarter, dtype=np.int64)
    rising = np.concatenate([first, np.array([1 << SIN_COS_BITS]), first[:0:-1]])  # half a turn
    sines = np.concatenate([rising, -rising])
    return sines, np.roll(sines, -size // 4), np.int64(round_scaled(2 * PI, 29))


UInt128Array = npt.NDArray[np.uint64]
"""Integers modulo 2^128: an extra first axis has the low words, then the high words."""
_HALF, _LOW = np.uint64(32), np.uint64((1 << 32) - 1)


def to_uint128(x: Int64Array) -> UInt128Array:
    """Return signed integers modulo 2^128."""
    return np.stack([x, x >> 63]).view(np.uint64)


def add_uint128(x: UInt128Array, y: UInt128Array) -> UInt128Array:
    """Return x + y."""
    low = x[0] + y[0]
    return np.stack([low, x[1] + y[1] + (low < y[0])])


def subtract_uint128(x: UInt128Array, y: UInt128Array) -> UInt128Array:
    """Return x - y."""
    return np.stack([x[0] - y[0], x[1] - y[1] - (x[0] < y[0])])


def negate_uint128(
    x: UInt128Array, where: npt.NDArray[np.bool_] | np.bool_ = np.True_
) -> UInt128Array:
    """Return -x where `where` is true, and x elsewhere."""
    flip = np.zeros_like(x[0]) - where.astype(np.uint64)
    low = (x[0] ^ flip) + where
    return np.stack([low, (x[1] ^ flip) + (where & (low == 0))])


def multiply_uint128(x: UInt128Array, factor: Int64Array) -> UInt128Array:
    """Return x times signed integers of absolute value below 2^48."""
    size = np.abs(factor).view(np.uint64)
    upper, lower = size >> _HALF, size & _LOW
    high, low = x[0] >> _HALF, x[0] & _LOW
    middle = high * lower + (low * lower >> _HALF)
    rest = low * upper + (middle & _LOW)
    carried = high * upper + (middle >> _HALF) + (rest >> _HALF)
    return negate_uint128(np.stack([x[0] * size, x[1] * size + carried]), factor < 0)


def truncate_uint128(share: UInt128Array, bits: int, first: bool) -> UInt128Array:
    """Truncate one of two shares by `bits` bits, to a share modulo 2^64 of the divided number.

    The first share is rounded down and the other up, so the sum is off by less than a unit. The sum
    is entirely wrong with a probability of the shared number's absolute value divided by 2^127.
    """
    assert 0 < bits < 64
    kept = share if first else negate_uint128(share)
    found: UInt128Array = kept[0] >> np.uint64(bits) | kept[1] << np.uint64(64 - bits)
    return found if first else np.uint64(0) - found


SCALE_BITS = 28
"""Fraction bits of `scale` in `evaluate_fourier`."""
# Fraction bits of a sine or cosine that is multiplied with a coefficient, so that the product fits.
_SHORT_SIN_COS_BITS = 30
# Values of a block, whose sines and cosines stay in a processor's cache.
_BLOCK = 1 << 14


@dataclass(frozen=True)
class FourierSeries:
    """constant + sum over k of sines[k] sin(harmonics[k] x) + cosines[k] cos(harmonics[k] x).

    Coefficients are integers with `coefficient_bits` fraction bits. x is an angle: the ring is a
    whole turn.
    """

    harmonics: tuple[int, ...]
    constant: int
    sines: tuple[int, ...]
    cosines: tuple[int, ...]
    coefficient_bits: int


class EvaluateFourier(Gate):
    """Evaluate series with the same harmonics at a masked value: (series, ...), over Z64.

    1. The dealer derives [sin(k r)] and [cos(k r)] for every harmonic k.
    2. [sin(k x)] = sin(kc) [cos(kr)] - cos(kc) [sin(kr)], and likewise the cosine; add up.

    The result has `correlation_bits` + `public_bits` fraction bits: those of a derived sine and of
    a public coefficient. `scale`, if given, multiplies every value by a public number up to 1.

    Cost: no opening; corrections of two elements a harmonic. Reveals: nothing. Error: that of the
    series, and a rounding of every coefficient and every derived sine and cosine.
    """

    name = "series"

    def deal(
        self,
        dealer: Dealer,
        x: MaskedValue,
        series: Sequence[FourierSeries],
        scale: Int64Array | None = None,
        *,
        correlation_bits: int,
        public_bits: int,
    ) -> Share:
        """Derive sines and cosines of the mask."""
        dealer.derive(_MaskHarmonics(x.ring, series[0].harmonics, correlation_bits), Z64, x.mask)
        return Share.unknown((len(series), *x.shape), Z64)

    def run(
        self,
        party: Party,
        x: MaskedValue,
        series: Sequence[FourierSeries],
        scale: Int64Array | None = None,
        *,
        correlation_bits: int,
        public_bits: int,
    ) -> Share:
        """Combine them with sines and cosines of the public part."""
        harmonics = series[0].harmonics
        derived = party.derived((2, len(harmonics), *x.shape), Z64).part
        mask_sine, mask_cosine = derived.reshape(2, len(harmonics), -1)
        angle = _angle(x.public.array, x.ring.bits)
        scales = None if scale is None else np.broadcast_to(scale, x.shape).reshape(-1)
        result = np.zeros((len(series), angle.size), dtype=np.uint64)

        def add(block: slice) -> None:
            factor = None if scales is None else scales[block]
            for k, harmonic in enumerate(harmonics):
                terms = compute_sin_cos(angle[block] * np.uint32(harmonic))
                sine, cosine = (term >> (SIN_COS_BITS - _SHORT_SIN_COS_BITS) for term in terms)
                for total, each in zip(result, series, strict=True):
                    a, b = each.sines[k], each.cosines[k]
                    dropped_bits = _SHORT_SIN_COS_BITS + each.coefficient_bits - public_bits
                    cosine_factor = _fixed(_combined(a, sine, b, cosine), factor, dropped_bits)
                    sine_factor = _fixed(_combined(b, sine, -a, cosine), factor, dropped_bits)
                    total[block] += cosine_factor * mask_cosine[k, block]
                    total[block] += sine_factor * mask_sine[k, block]

        large_arrays.run_blocks(
            add, large_arrays.split_into_blocks(angle.size, _BLOCK), angle.size * len(harmonics)
        )
        if party.index == 0:
            for row, each in enumerate(series):
                constant = np.full(angle.size, each.constant << _SHORT_SIN_COS_BITS)
                fixed = _fixed(
                    constant, scales, _SHORT_SIN_COS_BITS + each.coefficient_bits - public_bits
                )
                result[row] += fixed << np.uint64(correlation_bits)
        return Share(result.reshape(len(series), *x.shape), Z64)

    def count(
        self,
        counter: CostCounter,
        x: MaskedValue,
        series: Sequence[FourierSeries],
        scale: Int64Array | None = None,
        *,
        correlation_bits: int,
        public_bits: int,
    ) -> Share:
        """Count the sines and cosines."""
        counter.derive(_MaskHarmonics(x.ring, series[0].harmonics, correlation_bits), Z64, x.mask)
        return Share.unknown((len(series), *x.shape), Z64)


class _MaskHarmonics(Correlation):
    """Sines and cosines of multiples of a mask: (2, harmonics, ...).

    They follow from those of S and T by the addition theorems. Products of the two have twice the
    bits, and are shared modulo 2^128; their truncation is off by less than a unit.
    """

    def __init__(self, mask_ring: Ring, harmonics: tuple[int, ...], correlation_bits: int) -> None:
        self._mask_ring, self._harmonics = mask_ring, harmonics
        self._correlation_bits = correlation_bits

    def shape(self, *masks: Shape) -> Shape:
        """Return one sine and one cosine for every harmonic."""
        return (2, len(self._harmonics), *masks[0])

    def list_s_terms(self, ring: Ring, *masks: Shape) -> list[tuple[Ring, Shape]]:
        """Return two words for each sine and cosine."""
        return [(Z64, (2, *self.shape(*masks)))]

    def compute_plain(self, *s: RingArray) -> RingArray:
        """Compute the sines and cosines of the mask, and round them."""
        terms = self._compute_harmonics(s[0])
        for row in terms.reshape(2 * len(self._harmonics), -1):
            row[:] = _rounded(row, SIN_COS_BITS - self._correlation_bits)
        return terms.reshape(self.shape(s[0].shape)).view(np.uint64)

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Return the sines and cosines of S, with all their bits."""
        return [to_uint128(self._compute_harmonics(s[0]).reshape(self.shape(s[0].shape)))]

    def subtract_drawn(
        self, position: int, ring: Ring, array: RingArray, drawn: RingArray
    ) -> RingArray:
        """Subtract modulo 2^128."""
        return subtract_uint128(array, drawn)

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Multiply with sines and cosines of T, and truncate."""
        t = held.t_parts[0]
        shared = held.s_term_shares[0].reshape(2, 2, len(self._harmonics), -1)
        result = np.empty(shared.shape[1:], dtype=np.uint64)
        dropped_bits = 2 * SIN_COS_BITS - self._correlation_bits
        for block in large_arrays.split_into_blocks(t.size, _BLOCK):
            terms = self._compute_harmonics(t.reshape(-1)[block])
            for k in range(len(self._harmonics)):
                sin_s, cos_s = shared[:, 0, k, block], shared[:, 1, k, block]
                sine, cosine = terms[:, k]
                for row, (a, b) in zip(result, ((cosine, sine), (-sine, cosine)), strict=True):
                    found = add_uint128(multiply_uint128(sin_s, a), multiply_uint128(cos_s, b))
                    row[k, block] = truncate_uint128(found, dropped_bits, held.is_first)
        return result.reshape(self.shape(t.shape))

    def _compute_harmonics(self, part: RingArray) -> Int64Array:
        angle = _angle(part, self._mask_ring.bits)
        found = np.empty((2, len(self._harmonics), angle.size), dtype=np.int64)

        def fill(block: slice) -> None:
            for k, harmonic in enumerate(self._harmonics):
                found[:, k, block] = compute_sin_cos(angle[block] * np.uint32(harmonic))

        large_arrays.run_blocks(
            fill, large_arrays.split_into_blocks(angle.size, _BLOCK), found.size
        )
        return found


def _angle(x: RingArray, bits: int) -> npt.NDArray[np.uint32]:
    """Return ring elements as angles, in units of which a turn has 2^32."""
    angle: npt.NDArray[np.uint32] = x.reshape(-1).astype(np.uint32) << np.uint32(32 - bits)
    return angle


def _combined(a: int, sine: Int64Array, b: int, cosine: Int64Array) -> Int64Array:
    """Return a sin + b cos; if a or b is zero, only the other term is computed."""
    if a and b:
        return np.int64(a) * sine + np.int64(b) * cosine
    return np.int64(a) * sine if a else np.int64(b) * cosine


def _fixed(
    values: Int64Array, scale: Int64Array | None, dropped_bits: int
) -> npt.NDArray[np.uint64]:
    """Return public numbers, times `scale` and rounded to fewer bits, as ring elements."""
    if scale is None:
        return _rounded(values, dropped_bits).view(np.uint64)
    # A number below 2^62 keeps 34 bits, so that the product with one of 28 bits fits.
    return _rounded((values >> SCALE_BITS) * scale, dropped_bits).view(np.uint64)


def _rounded(values: Int64Array, bits: int) -> Int64Array:
    """Return integers divided by 2^bits, to the nearest."""
    result: Int64Array = (values + (1 << (bits - 1))) >> bits
    return result


evaluate_fourier = EvaluateFourier()
