"""Sines and cosines in integers: of a 32-bit angle, of which 2^32 are a whole turn.

A table holds those of every 65,536th part of the turn; the rest of an angle, below 1e-4, follows by
the first terms of its series. Only integer operations take part, so the results are the same on
every machine (`arithmetic.exact` says why that matters), to within 2^-34 of the true ones.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from privet.arithmetic.exact import PI, many_digits, nearest, sine_cosine

BITS = 36
"""Fraction bits of the sines and cosines."""
_STEPS = 16
# Fraction bits of the table's own making: 2^14 products, each off by a unit, leave many to spare.
_WIDE = 128

Integers = npt.NDArray[np.int64]


def waves(angle: npt.NDArray[np.uint32]) -> tuple[Integers, Integers]:
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
def _table() -> tuple[Integers, Integers, np.int64]:
    """Return sines and cosines of every 65,536th part of a turn, and 2 pi with 29 fraction bits."""
    size = 1 << _STEPS
    with many_digits():
        turn = [nearest(x, _WIDE) for x in sine_cosine(2 * PI / size)]
    sine, cosine = 0, 1 << _WIDE
    quarter = []
    for _ in range(size // 4):
        quarter.append((sine + (1 << (_WIDE - BITS - 1))) >> (_WIDE - BITS))
        sine, cosine = (
            (sine * turn[1] + cosine * turn[0]) >> _WIDE,
            (cosine * turn[1] - sine * turn[0]) >> _WIDE,
        )
    first = np.array(quarter, dtype=np.int64)
    rising = np.concatenate([first, np.array([1 << BITS]), first[:0:-1]])  # half a turn
    sines = np.concatenate([rising, -rising])
    return sines, np.roll(sines, -size // 4), np.int64(nearest(2 * PI, 29))
