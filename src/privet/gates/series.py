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

from privet.arithmetic import circle, cores, wide
from privet.arithmetic.rings import Z64, Ring, RingArray
from privet.arithmetic.shares import Share
from privet.gates.gate import Gate
from privet.gates.masked import Masked
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party
from privet.runtime.recipes import Half, Recipe
from privet.runtime.runtime import Shape

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
        dealer.derive(_Waves(x.ring, series[0].multiples, dealt_bits), Z64, x.mask)
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

        def add(block: slice) -> None:
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

        cores.each(add, cores.blocks(angle.size, _BLOCK), angle.size * len(multiples))
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
        counter.derive(_Waves(x.ring, series[0].multiples, dealt_bits), Z64, x.mask)
        return Share.unknown((len(series), *x.shape), Z64)


class _Waves(Recipe):
    """Sines and cosines of multiples of a mask: (2, multiples, ...).

    By the addition theorems, from those of S and of T. Products of the two have twice the bits,
    and shares of them are modulo 2^128; what they drop then is off by less than a unit.
    """

    def __init__(self, whole: Ring, multiples: tuple[int, ...], dealt_bits: int) -> None:
        self._whole, self._multiples, self._dealt_bits = whole, multiples, dealt_bits

    def shape(self, *masks: Shape) -> Shape:
        """Return one sine and one cosine for every multiple."""
        return (2, len(self._multiples), *masks[0])

    def shared(self, ring: Ring, *masks: Shape) -> list[tuple[Ring, Shape]]:
        """Return two words for each of them."""
        return [(Z64, (2, *self.shape(*masks)))]

    def alone(self, *s: RingArray) -> RingArray:
        """Round those of the mask."""
        waves = self._waves(s[0])
        for row in waves.reshape(2 * len(self._multiples), -1):
            row[:] = _rounded(row, circle.BITS - self._dealt_bits)
        return waves.reshape(self.shape(s[0].shape)).view(np.uint64)

    def client(self, *s: RingArray) -> list[RingArray]:
        """Return those of S with all their bits."""
        return [wide.from_integers(self._waves(s[0]).reshape(self.shape(s[0].shape)))]

    def rest(self, position: int, ring: Ring, array: RingArray, drawn: RingArray) -> RingArray:
        """Subtract modulo 2^128."""
        return wide.subtract(array, drawn)

    def server(self, half: Half) -> RingArray:
        """Multiply with those of T, and drop bits."""
        t = half.t[0]
        shared = half.shared[0].reshape(2, 2, len(self._multiples), -1)
        result = np.empty(shared.shape[1:], dtype=np.uint64)
        drop = 2 * circle.BITS - self._dealt_bits
        for block in cores.blocks(t.size, _BLOCK):
            waves = self._waves(t.reshape(-1)[block])
            for k in range(len(self._multiples)):
                of_s, of_c = shared[:, 0, k, block], shared[:, 1, k, block]
                sine, cosine = waves[:, k]
                for row, (a, b) in zip(result, ((cosine, sine), (-sine, cosine)), strict=True):
                    found = wide.add(wide.times(of_s, a), wide.times(of_c, b))
                    row[k, block] = wide.drop_bits(found, drop, half.first)
        return result.reshape(self.shape(t.shape))

    def _waves(self, part: RingArray) -> Integers:
        angle = _angle(part, self._whole.bits)
        found = np.empty((2, len(self._multiples), angle.size), dtype=np.int64)

        def fill(block: slice) -> None:
            for k, multiple in enumerate(self._multiples):
                found[:, k, block] = circle.waves(angle[block] * np.uint32(multiple))

        cores.each(fill, cores.blocks(angle.size, _BLOCK), found.size)
        return found


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
