"""The sigmoid and its derivative of masked values, as Fourier series: no division, no exponential.

The sigmoid less 1/2, repeated every 32 with changing signs, is an odd function of period 64:

    sum over m of (-1)^m (sigmoid(x - 32 m) - 1/2)  =  sum over k of b_k sin(w_k x)

with w_k = (2k + 1) 2 pi / 64 and b_k = (pi / 16) / sinh(pi w_k). On [-16, 16] its copies add less
than exp(|x| - 32). The derivative is the cosine series with coefficients b_k w_k. By the addition
theorems,

    sin(w(c - r)) = sin(wc) cos(wr) - cos(wc) sin(wr)

a wave of a masked value c - r is linear in dealt waves of the mask. Scores are kept over Z32 with
2^26 units to 1, so that the ring is the period. All numbers are integers, the same at everybody.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from privet.arithmetic import circle
from privet.arithmetic.exact import PI, many_digits, nearest, sinh
from privet.arithmetic.rings import Z64, RingArray
from privet.arithmetic.shares import Share
from privet.gates.gate import Gate
from privet.gates.masked import Masked
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party

SCORE_BITS = 26
"""Fraction bits of scores: 2^32 is the period of 64."""
LARGEST_SCORE = 16
"""Below it the copies of the sigmoid do not add up to anything that matters."""
HARMONICS = 28
"""What the series leaves out is below 3e-8 in the sigmoid and 2e-7 in its derivative."""
_FACTOR_BITS = 31
_SHORT = 30  # bits of a wave that is multiplied with a factor, so that the product fits
# Samples are taken in blocks whose waves stay in a processor's cache.
_BLOCK = 1 << 14

Integers = npt.NDArray[np.int64]


@lru_cache(maxsize=1)
def coefficients() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return b_k and b_k w_k of all harmonics, as integers with 31 fraction bits."""
    with many_digits():
        frequencies = [Decimal(2 * k + 1) * 2 * PI / 64 for k in range(HARMONICS)]
        amplitudes = [PI / 16 / sinh(PI * w) for w in frequencies]
        slopes = [b * w for b, w in zip(amplitudes, frequencies, strict=True)]
    return (
        tuple(nearest(b, _FACTOR_BITS) for b in amplitudes),
        tuple(nearest(slope, _FACTOR_BITS) for slope in slopes),
    )


class SigmoidSeries(Gate):
    """Return the sigmoid and its derivative, (2, ...), of a masked value over Z32 in scores' units.

    1. The dealer derives [sin(w_k r)] and [cos(w_k r)].
    2. [p] = 1/2 + sum of b_k (sin(w_k c)[cos(w_k r)] - cos(w_k c)[sin(w_k r)]);
       [h] = sum of b_k w_k (cos(w_k c)[cos(w_k r)] + sin(w_k c)[sin(w_k r)]).

    The result has `bits` fraction bits: those of a dealt wave and of a public coefficient together.
    There are two coefficients to a harmonic whose roundings count in full, so these have more.

    Cost: no opening; corrections of 56 elements a value. Reveals: nothing. Error: that of the
    series, less than 2e-7 and exp(|x| - 32), and 56 roundings of coefficients, where |x| <= 16.
    Beyond, the waves return.
    """

    name = "sigmoid series"

    def deal(self, dealer: Dealer, x: Masked, *, bits: int) -> Share:
        """Deal waves of the mask."""
        dealer.deal(_dealt_waves(x.mask.array, circle.BITS - _dealt_bits(bits)), Z64)
        return Share.unknown((2, *x.shape), Z64)

    def run(self, party: Party, x: Masked, *, bits: int) -> Share:
        """Combine them with waves of what is public."""
        drop = _SHORT + _FACTOR_BITS - (bits - _dealt_bits(bits))

        def fixed(wave: Integers, factor: int) -> npt.NDArray[np.uint64]:
            product = (wave >> (circle.BITS - _SHORT)) * np.int64(factor)
            return _rounded(product, drop).view(np.uint64)

        dealt = party.derived((2, HARMONICS, *x.shape), Z64).part
        dealt_sine, dealt_cosine = dealt.reshape(2, HARMONICS, -1)
        opened = x.public.array.reshape(-1)
        result = np.zeros((2, opened.size), dtype=np.uint64)
        p, h = result
        for block in _blocks(opened.size):
            for k, (b, slope) in enumerate(zip(*coefficients(), strict=True)):
                sine, cosine = _harmonic(opened[block], k)
                own_sine, own_cosine = dealt_sine[k, block], dealt_cosine[k, block]
                p[block] += fixed(sine, b) * own_cosine - fixed(cosine, b) * own_sine
                h[block] += fixed(cosine, slope) * own_cosine + fixed(sine, slope) * own_sine
        if party.index == 0:
            p += np.uint64(1 << (bits - 1))
        return Share(result.reshape(2, *x.shape), Z64)

    def count(self, counter: Counter, x: Masked, *, bits: int) -> Share:
        """Count the waves."""
        counter.derive(Z64, (2, HARMONICS, *x.shape))
        return Share.unknown((2, *x.shape), Z64)


def _dealt_waves(mask: RingArray, drop: int) -> RingArray:
    """Return sines and cosines of all harmonics, rounded: (2, HARMONICS, ...)."""
    flat = mask.reshape(-1)
    waves = np.empty((2, HARMONICS, flat.size), dtype=np.uint64)
    for block in _blocks(flat.size):
        for k in range(HARMONICS):
            for wave, values in zip(waves, _harmonic(flat[block], k), strict=True):
                wave[k, block] = _rounded(values, drop).view(np.uint64)
    return waves.reshape(2, HARMONICS, *mask.shape)


def _blocks(n_samples: int) -> list[slice]:
    return [slice(start, start + _BLOCK) for start in range(0, n_samples, _BLOCK)]


def _harmonic(values: npt.NDArray[np.uint32], k: int) -> tuple[Integers, Integers]:
    """Return the sine and the cosine of harmonic k, whose angle is 2k + 1 times the value."""
    return circle.waves(values * np.uint32(2 * k + 1))


def _dealt_bits(bits: int) -> int:
    """Return how many of a result's fraction bits come from dealt waves."""
    return bits // 2 - 1


def _rounded(values: Integers, bits: int) -> Integers:
    """Return integers divided by 2^bits, to the nearest."""
    result: Integers = (values + (1 << (bits - 1))) >> bits
    return result


sigmoid_series = SigmoidSeries()
