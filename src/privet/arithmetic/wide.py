"""Integers modulo 2^128, as two words: shares of products that need more than 64 bits.

An array of them has an axis more, the first: low words, then high ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
_HALF, _LOW = np.uint64(32), np.uint64((1 << 32) - 1)


def from_integers(x: Integers) -> Words:
    """Return signed integers."""
    return np.stack([x, x >> 63]).view(np.uint64)


def add(x: Words, y: Words) -> Words:
    """Return x + y."""
    low = x[0] + y[0]
    return np.stack([low, x[1] + y[1] + (low < y[0])])


def subtract(x: Words, y: Words) -> Words:
    """Return x - y."""
    return np.stack([x[0] - y[0], x[1] - y[1] - (x[0] < y[0])])


def negate(x: Words, where: npt.NDArray[np.bool_] | np.bool_ = np.True_) -> Words:
    """Return -x in some places."""
    flip = np.zeros_like(x[0]) - where.astype(np.uint64)
    low = (x[0] ^ flip) + where
    return np.stack([low, (x[1] ^ flip) + (where & (low == 0))])


def times(x: Words, factor: Integers) -> Words:
    """Return x times signed integers below 2^48 in size."""
    size = np.abs(factor).view(np.uint64)
    upper, lower = size >> _HALF, size & _LOW
    high, low = x[0] >> _HALF, x[0] & _LOW
    middle = high * lower + (low * lower >> _HALF)
    rest = low * upper + (middle & _LOW)
    carried = high * upper + (middle >> _HALF) + (rest >> _HALF)
    return negate(np.stack([x[0] * size, x[1] * size + carried]), factor < 0)


def drop_bits(share: Words, bits: int, first: bool) -> Words:
    """Return one of two shares without low bits, modulo 2^64: what they share is divided.

    The first is rounded down and the other up, so what they add up to is off by less than a unit.
    It is wrong altogether with a probability of the shared number's size divided by 2^127.
    """
    assert 0 < bits < 64
    kept = share if first else negate(share)
    found: Words = kept[0] >> np.uint64(bits) | kept[1] << np.uint64(64 - bits)
    return found if first else np.uint64(0) - found
