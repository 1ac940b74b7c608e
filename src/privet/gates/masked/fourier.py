"""Fourier series of masked values, with sines and cosines in integers modulo 2^128.

By the addition theorems,

    sin(w(c - r)) = sin(wc) cos(wr) - cos(wc) sin(wr)

a wave of a masked value c - r is linear in dealt waves of the mask. The period is the ring. All
numbers are integers, the same at everybody.

A table holds those of every 65,536th part of the turn; the rest of an angle, below 1e-4, follows by
the first terms of its series. Only integer operations take part, so the results are the same on
every machine (`arithmetic.exact` says why that matters), to within 2^-34 of the true ones.

An array of them has an axis more, the first: low words, then high ones.
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
# Fraction bits of the table's own making: 2^14 products, each off by a unit, leave many to spare.
_WIDE = 128

Int64Array = npt.NDArray[np.int64]


def compute_sin_cos(angle: npt.NDArray[np.uint32]) -> tuple[Int64Array, Int64Array]:
    """Return the sines and cosines of angles, with BITS fraction bits.

    With d the rest of the angle: sin(a + d) = sin a + d cos a - d^2/2 sin a, and likewise for the
    cosine. The next terms are below 2^-42.
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
_HALF, _LOW = np.uint64(32), np.uint64((1 << 32) - 1)


def to_uint128(x: Int64Array) -> UInt128Array:
    """Return signed integers."""
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
    """Return -x in some places."""
    flip = np.zeros_like(x[0]) - where.astype(np.uint64)
    low = (x[0] ^ flip) + where
    return np.stack([low, (x[1] ^ flip) + (where & (low == 0))])


def multiply_uint128(x: UInt128Array, factor: Int64Array) -> UInt128Array:
    """Return x times signed integers below 2^48 in size."""
    size = np.abs(factor).view(np.uint64)
    upper, lower = size >> _HALF, size & _LOW
    high, low = x[0] >> _HALF, x[0] & _LOW
    middle = high * lower + (low * lower >> _HALF)
    rest = low * upper + (middle & _LOW)
    carried = high * upper + (middle >> _HALF) + (rest >> _HALF)
    return negate_uint128(np.stack([x[0] * size, x[1] * size + carried]), factor < 0)


def truncate_uint128(share: UInt128Array, bits: int, first: bool) -> UInt128Array:
    """Return one of two shares without low bits, modulo 2^64: what they share is divided.

    The first is rounded down and the other up, so what they add up to is off by less than a unit.
    It is wrong altogether with a probability of the shared number's size divided by 2^127.
    """
    assert 0 < bits < 64
    kept = share if first else negate_uint128(share)
    found: UInt128Array = kept[0] >> np.uint64(bits) | kept[1] << np.uint64(64 - bits)
    return found if first else np.uint64(0) - found


SCALE_BITS = 28
"""Fraction bits of the numbers that results are multiplied with."""
_SHORT_SIN_COS_BITS = (
    30  # bits of a wave that is multiplied with a coefficient, so that the product fits
)
# Values are taken in blocks whose waves stay in a processor's cache.
_BLOCK = 1 << 14


@dataclass(frozen=True)
class FourierSeries:
    """constant + sum over k of sines[k] sin(multiples[k] x) + cosines[k] cos(multiples[k] x).

    As integers with `coefficient_bits` fraction bits. x is an angle: the ring is a whole turn.
    """

    harmonics: tuple[int, ...]
    constant: int
    sines: tuple[int, ...]
    cosines: tuple[int, ...]
    coefficient_bits: int


class EvaluateFourier(Gate):
    """Evaluate series with the same multiples of a masked value: (series, ...), over Z64.

    1. The dealer derives [sin(k r)] and [cos(k r)] for every multiple k.
    2. [sin(k x)] = sin(kc) [cos(kr)] - cos(kc) [sin(kr)], and likewise the cosine; add up.

    The result has the fraction bits of a dealt wave and of a public coefficient together. `scale`,
    if there is one, multiplies every value by a number up to 1, which is public.

    Cost: no opening; corrections of two elements a multiple. Reveals: nothing. Error: that of the
    series, and a rounding of every coefficient and every dealt wave.
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
        """Deal waves of the mask."""
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
        """Combine them with waves of what is public."""
        multiples = series[0].harmonics
        dealt = party.derived((2, len(multiples), *x.shape), Z64).part
        dealt_sine, dealt_cosine = dealt.reshape(2, len(multiples), -1)
        angle = _angle(x.public.array, x.ring.bits)
        scales = None if scale is None else np.broadcast_to(scale, x.shape).reshape(-1)
        result = np.zeros((len(series), angle.size), dtype=np.uint64)

        def add(block: slice) -> None:
            factor = None if scales is None else scales[block]
            for k, multiple in enumerate(multiples):
                waves = compute_sin_cos(angle[block] * np.uint32(multiple))
                sine, cosine = (wave >> (SIN_COS_BITS - _SHORT_SIN_COS_BITS) for wave in waves)
                for total, each in zip(result, series, strict=True):
                    a, b = each.sines[k], each.cosines[k]
                    drop = _SHORT_SIN_COS_BITS + each.coefficient_bits - public_bits
                    with_cosine = _fixed(_combined(a, sine, b, cosine), factor, drop)
                    with_sine = _fixed(_combined(b, sine, -a, cosine), factor, drop)
                    total[block] += with_cosine * dealt_cosine[k, block]
                    total[block] += with_sine * dealt_sine[k, block]

        large_arrays.run_blocks(
            add, large_arrays.split_into_blocks(angle.size, _BLOCK), angle.size * len(multiples)
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
        """Count the waves."""
        counter.derive(_MaskHarmonics(x.ring, series[0].harmonics, correlation_bits), Z64, x.mask)
        return Share.unknown((len(series), *x.shape), Z64)


class _MaskHarmonics(Correlation):
    """Sines and cosines of multiples of a mask: (2, multiples, ...).

    By the addition theorems, from those of S and of T. Products of the two have twice the bits,
    and shares of them are modulo 2^128; what they drop then is off by less than a unit.
    """

    def __init__(self, mask_ring: Ring, harmonics: tuple[int, ...], correlation_bits: int) -> None:
        self._whole, self._multiples, self._correlation_bits = (
            mask_ring,
            harmonics,
            correlation_bits,
        )

    def shape(self, *masks: Shape) -> Shape:
        """Return one sine and one cosine for every multiple."""
        return (2, len(self._multiples), *masks[0])

    def list_s_terms(self, ring: Ring, *masks: Shape) -> list[tuple[Ring, Shape]]:
        """Return two words for each of them."""
        return [(Z64, (2, *self.shape(*masks)))]

    def compute_plain(self, *s: RingArray) -> RingArray:
        """Round those of the mask."""
        waves = self._compute_harmonics(s[0])
        for row in waves.reshape(2 * len(self._multiples), -1):
            row[:] = _rounded(row, SIN_COS_BITS - self._correlation_bits)
        return waves.reshape(self.shape(s[0].shape)).view(np.uint64)

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Return those of S with all their bits."""
        return [to_uint128(self._compute_harmonics(s[0]).reshape(self.shape(s[0].shape)))]

    def subtract_drawn(
        self, position: int, ring: Ring, array: RingArray, drawn: RingArray
    ) -> RingArray:
        """Subtract modulo 2^128."""
        return subtract_uint128(array, drawn)

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Multiply with those of T, and drop bits."""
        t = held.t_parts[0]
        shared = held.s_term_shares[0].reshape(2, 2, len(self._multiples), -1)
        result = np.empty(shared.shape[1:], dtype=np.uint64)
        drop = 2 * SIN_COS_BITS - self._correlation_bits
        for block in large_arrays.split_into_blocks(t.size, _BLOCK):
            waves = self._compute_harmonics(t.reshape(-1)[block])
            for k in range(len(self._multiples)):
                of_s, of_c = shared[:, 0, k, block], shared[:, 1, k, block]
                sine, cosine = waves[:, k]
                for row, (a, b) in zip(result, ((cosine, sine), (-sine, cosine)), strict=True):
                    found = add_uint128(multiply_uint128(of_s, a), multiply_uint128(of_c, b))
                    row[k, block] = truncate_uint128(found, drop, held.is_first)
        return result.reshape(self.shape(t.shape))

    def _compute_harmonics(self, part: RingArray) -> Int64Array:
        angle = _angle(part, self._whole.bits)
        found = np.empty((2, len(self._multiples), angle.size), dtype=np.int64)

        def fill(block: slice) -> None:
            for k, multiple in enumerate(self._multiples):
                found[:, k, block] = compute_sin_cos(angle[block] * np.uint32(multiple))

        large_arrays.run_blocks(
            fill, large_arrays.split_into_blocks(angle.size, _BLOCK), found.size
        )
        return found


def _angle(x: RingArray, bits: int) -> npt.NDArray[np.uint32]:
    """Return ring elements as parts of a turn, of which circle.waves knows 2^32."""
    angle: npt.NDArray[np.uint32] = x.reshape(-1).astype(np.uint32) << np.uint32(32 - bits)
    return angle


def _combined(a: int, sine: Int64Array, b: int, cosine: Int64Array) -> Int64Array:
    """Return a sin + b cos; where one of the two is none, only the other is computed."""
    if a and b:
        return np.int64(a) * sine + np.int64(b) * cosine
    return np.int64(a) * sine if a else np.int64(b) * cosine


def _fixed(
    values: Int64Array, scale: Int64Array | None, dropped_bits: int
) -> npt.NDArray[np.uint64]:
    """Return public numbers without their last bits, as ring elements."""
    if scale is None:
        return _rounded(values, dropped_bits).view(np.uint64)
    # 34 bits of a number below 2^62 are left, and 28 bits more do fit.
    return _rounded((values >> SCALE_BITS) * scale, dropped_bits).view(np.uint64)


def _rounded(values: Int64Array, bits: int) -> Int64Array:
    """Return integers divided by 2^bits, to the nearest."""
    result: Int64Array = (values + (1 << (bits - 1))) >> bits
    return result


evaluate_fourier = EvaluateFourier()
