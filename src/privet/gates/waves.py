"""The sigmoid and its derivative of masked values, as Fourier series: no division, no exponential.

On [-16, 16], the sigmoid less 1/2 is continued to an odd function of period 64 with the symmetry
f(32 - x) = f(x), which is a sine series of odd harmonics w_k = (2k + 1) 2 pi / 64. Its derivative
is the cosine series with coefficients b_k w_k. By the addition theorems,

    sin(w(c - r)) = sin(wc) cos(wr) - cos(wc) sin(wr)

a wave of a masked value c - r is linear in dealt waves of the mask. Scores are kept over Z32 with
2^26 units to 1, so that the ring is the period.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray
from privet.gates.gate import Cost, Gate
from privet.gates.masked import Masked
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party

SCORE_BITS = 26
"""Fraction bits of scores: 2^32 is the period of 64."""
WAVE_BITS = 20
"""Fraction bits of dealt waves, and of public coefficients; the results have twice as many."""
RANGE = 16.0
HARMONICS = 24


@lru_cache(maxsize=1)
def coefficients() -> tuple[FloatArray, FloatArray]:
    """Return b_k and w_k: least squares of the sigmoid and of its derivative together."""
    x = np.linspace(-RANGE, RANGE, 8001)
    w = (2 * np.arange(HARMONICS) + 1) * 2 * np.pi / 64
    sigmoid = 1 / (1 + np.exp(-x))
    waves = np.concatenate([np.sin(np.outer(x, w)), w * np.cos(np.outer(x, w))])
    target = np.concatenate([sigmoid - 0.5, sigmoid * (1 - sigmoid)])
    b = np.linalg.lstsq(waves, target, rcond=None)[0]
    return b, w


class Waves(Gate):
    """Return the sigmoid and its derivative, (2, N), of a masked value over Z32 in scores' units.

    1. The dealer derives [sin(w_k r)] and [cos(w_k r)].
    2. [p] = 1/2 + sum of b_k (sin(w_k c)[cos(w_k r)] - cos(w_k c)[sin(w_k r)]);
       [h] = sum of b_k w_k (cos(w_k c)[cos(w_k r)] + sin(w_k c)[sin(w_k r)]).

    Cost: no opening; corrections of 48 elements a value. Reveals: nothing. Error: less than 1e-5
    where |x| <= 16, in fixed point with 2 * WAVE_BITS fraction bits. Beyond, the waves return.
    """

    name = "waves"

    def deal(self, dealer: Dealer, x: Masked) -> Share:
        """Deal waves of the mask."""
        sine, cosine = _waves(x.mask.known)
        unit = 2.0**WAVE_BITS
        dealer.derive(
            np.rint(np.stack([sine, cosine]) * unit).astype(np.int64).astype(np.uint64), Z64
        )
        return Share.unknown((2, *x.shape), Z64)

    def run(self, party: Party, x: Masked) -> Share:
        """Combine them with waves of what is public."""
        b, w = coefficients()
        sine, cosine = _waves(x.opened)
        dealt_sine, dealt_cosine = party.derived((2, HARMONICS, *x.shape), Z64).part

        def fixed(values: FloatArray) -> np.ndarray:
            return np.rint(values * 2.0**WAVE_BITS).astype(np.int64).astype(np.uint64)

        b, w = b[:, None], w[:, None]
        p = (fixed(b * sine) * dealt_cosine - fixed(b * cosine) * dealt_sine).sum(axis=0)
        h = (fixed(b * w * cosine) * dealt_cosine + fixed(b * w * sine) * dealt_sine).sum(axis=0)
        if party.index == 0:
            p += np.uint64(1 << (2 * WAVE_BITS - 1))
        return Share(np.stack([p, h]), Z64)

    @staticmethod
    def cost(n_samples: int) -> Cost:
        """Return the cost for that many values."""
        return Cost(offline=Z64.nbytes((2, HARMONICS, n_samples)))


def _waves(values: np.ndarray) -> tuple[FloatArray, FloatArray]:
    """Return sines and cosines of all harmonics of numbers modulo 2^32: (harmonics, N)."""
    # Harmonic 2k + 1 is the one before, turned by twice the angle.
    turns = np.empty((HARMONICS, len(values)), dtype=np.complex128)
    turns[0] = np.exp(values.astype(np.float64) * (2j * np.pi / 2**32))
    twice = turns[0] ** 2
    for k in range(1, HARMONICS):
        np.multiply(turns[k - 1], twice, out=turns[k])
    return turns.imag, turns.real


waves = Waves()
