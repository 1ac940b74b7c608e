"""Fourier series of masked values: smooth functions without a division or an exponential.

By the addition theorems,

    sin(w(c - r)) = sin(wc) cos(wr) - cos(wc) sin(wr)

a wave of a masked value c - r is linear in dealt waves of the mask. The period is the ring. All
numbers are integers, the same at everybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privet.arithmetic import circle
from privet.arithmetic.rings import Z64, RingArray
from privet.arithmetic.shares import Share
from privet.gates.gate import Gate
from privet.gates.masked import Masked
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party

SCALE_BITS = 28
"""Fraction bits of the numbers that results are multiplied with."""
_SHORT = 30  # bits of a wave that is multiplied with a coefficient, so that the product fits
# Values are taken in blocks whose waves stay in a processor's cache.
_BLOCK = 1 << 14

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Series:
    """constant + sum over k of sines[k] sin(multiples[k] x) + cosines[k] cos(multiples[k] x).

    As integers with `bits` fraction bits. x is an angle: the ring is a whole turn.
    """

    multiples: tuple[int, ...]
    constant: int
    sines: tuple[int, ...]
    cosines: tuple[int, ...]
    bits: int


class Fourier(Gate):
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
        x: Masked,
        series: Sequence[Series],
        scale: Integers | None = None,
        *,
        dealt_bits: int,
        public_bits: int,
    ) -> Share:
        """Deal waves of the mask."""
        multiples, drop = series[0].multiples, circle.BITS - dealt_bits
        angle = _angle(x.mask.array, x.ring.bits)
        waves = np.empty((2, len(multiples), angle.size), dtype=np.uint64)
        for block in _blocks(angle.size):
            for k, multiple in enumerate(multiples):
                for wave, values in zip(
                    waves, circle.waves(angle[block] * np.uint32(multiple)), strict=True
                ):
                    wave[k, block] = _rounded(values, drop).view(np.uint64)
        dealer.deal(waves.reshape(2, len(multiples), *x.shape), Z64)
        return Share.unknown((len(series), *x.shape), Z64)

    def run(
        self,
        party: Party,
        x: Masked,
        series: Sequence[Series],
        scale: Integers | None = None,
        *,
        dealt_bits: int,
        public_bits: int,
    ) -> Share:
        """Combine them with waves of what is public."""
        multiples = series[0].multiples
        dealt = party.derived((2, len(multiples), *x.shape), Z64).part
        dealt_sine, dealt_cosine = dealt.reshape(2, len(multiples), -1)
        angle = _angle(x.public.array, x.ring.bits)
        scales = None if scale is None else np.broadcast_to(scale, x.shape).reshape(-1)
        result = np.zeros((len(series), angle.size), dtype=np.uint64)
        for block in _blocks(angle.size):
            factor = None if scales is None else scales[block]
            for k, multiple in enumerate(multiples):
                waves = circle.waves(angle[block] * np.uint32(multiple))
                sine, cosine = (wave >> (circle.BITS - _SHORT) for wave in waves)
                for total, each in zip(result, series, strict=True):
                    a, b = each.sines[k], each.cosines[k]
                    drop = _SHORT + each.bits - public_bits
                    with_cosine = _fixed(_combined(a, sine, b, cosine), factor, drop)
                    with_sine = _fixed(_combined(b, sine, -a, cosine), factor, drop)
                    total[block] += with_cosine * dealt_cosine[k, block]
                    total[block] += with_sine * dealt_sine[k, block]
        if party.index == 0:
            for row, each in enumerate(series):
                constant = np.full(angle.size, each.constant << _SHORT)
                fixed = _fixed(constant, scales, _SHORT + each.bits - public_bits)
                result[row] += fixed << np.uint64(dealt_bits)
        return Share(result.reshape(len(series), *x.shape), Z64)

    def count(
        self,
        counter: Counter,
        x: Masked,
        series: Sequence[Series],
        scale: Integers | None = None,
        *,
        dealt_bits: int,
        public_bits: int,
    ) -> Share:
        """Count the waves."""
        counter.derive(Z64, (2, len(series[0].multiples), *x.shape))
        return Share.unknown((len(series), *x.shape), Z64)


def _blocks(count: int) -> list[slice]:
    return [slice(start, start + _BLOCK) for start in range(0, count, _BLOCK)]


def _angle(x: RingArray, bits: int) -> npt.NDArray[np.uint32]:
    """Return ring elements as parts of a turn, of which circle.waves knows 2^32."""
    angle: npt.NDArray[np.uint32] = x.reshape(-1).astype(np.uint32) << np.uint32(32 - bits)
    return angle


def _combined(a: int, sine: Integers, b: int, cosine: Integers) -> Integers:
    """Return a sin + b cos; where one of the two is none, only the other is computed."""
    if a and b:
        return np.int64(a) * sine + np.int64(b) * cosine
    return np.int64(a) * sine if a else np.int64(b) * cosine


def _fixed(values: Integers, scale: Integers | None, drop: int) -> npt.NDArray[np.uint64]:
    """Return public numbers without their last bits, as ring elements."""
    if scale is None:
        return _rounded(values, drop).view(np.uint64)
    # 34 bits of a number below 2^62 are left, and 28 bits more do fit.
    return _rounded((values >> SCALE_BITS) * scale, drop).view(np.uint64)


def _rounded(values: Integers, bits: int) -> Integers:
    """Return integers divided by 2^bits, to the nearest."""
    result: Integers = (values + (1 << (bits - 1))) >> bits
    return result


fourier = Fourier()
