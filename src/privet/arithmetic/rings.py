"""The rings that shares live in: Z_2^64, Z_2^32, Z_2^16, Z_2^8, and bits packed eight to a byte.

An element is a numpy scalar of the ring's type, and numpy's own wrap-around is the ring's
arithmetic. For bits, addition is XOR and multiplication AND, on all bits of a byte at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

RingArray: TypeAlias = npt.NDArray[Any]

# Products of 16-bit limbs summed over fewer rows than this are exact in float64.
_EXACT_ROWS = 1 << 21


@dataclass(frozen=True)
class Ring:
    """A ring of 2^bits elements, or of bytes that hold eight bits each.

    Z36 lives in 64-bit words, whose upper bits mean nothing, and is sent as 36 bits.
    """

    name: str
    dtype: np.dtype[Any]
    boolean: bool = False
    width: int = 0
    """Bits of an element, where its type has more: those above are not part of it."""

    @property
    def bits(self) -> int:
        """How many bits an element has."""
        return self.width or 8 * self.dtype.itemsize

    def reduce(self, x: RingArray) -> RingArray:
        """Return elements without the bits that are not part of them."""
        return np.asarray(x & self.dtype.type((1 << self.width) - 1)) if self.width else x

    def wire_bytes(self, count: int) -> int:
        """Return how many bytes that many elements take in a message."""
        return 4 * count + (count + 1) // 2 if self.width else self.dtype.itemsize * count

    def to_wire(self, x: RingArray) -> RingArray:
        """Return a vector as it is sent: as it is, or 36 bits an element.

        First the lower 32 bits of all elements; then the upper 4, those of the first half of them
        beside those of the second, so that both are contiguous.
        """
        if not self.width:
            return x
        count, half = len(x), (len(x) + 1) // 2
        message = np.empty(self.wire_bytes(count), dtype=np.uint8)
        message[: 4 * count].view(np.uint32)[:] = x
        high = (x >> np.uint64(32)).astype(np.uint8)
        high &= np.uint8(15)
        packed = message[4 * count :]
        packed[:] = high[:half]
        packed[: count - half] |= high[half:] << np.uint8(4)
        return message

    def from_wire(self, message: RingArray, count: int) -> RingArray:
        """Return the vector that was sent."""
        if not self.width:
            return message
        half = (count + 1) // 2
        low = message[: 4 * count]
        if low.ctypes.data % 4:
            low = low.copy()
        x: RingArray = low.view(np.uint32).astype(np.uint64)
        packed = message[4 * count :]
        x[:half] |= (packed & np.uint8(15)).astype(np.uint64) << np.uint64(32)
        x[half:] |= (packed[: count - half] >> np.uint8(4)).astype(np.uint64) << np.uint64(32)
        return x

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Return how many bytes an array of that shape takes."""
        return self.dtype.itemsize * math.prod(shape)

    def array(self, values: Any) -> RingArray:
        """Return integers, signed or not, as elements of the ring."""
        array: RingArray = np.asarray(values)
        if array.dtype.kind not in "iu":
            raise TypeError(f"{array.dtype} values are no elements of {self.name}: encode them")
        if array.dtype != self.dtype:
            array = array.astype(np.int64, copy=False).astype(self.dtype)
        return array

    def zeros(self, shape: tuple[int, ...]) -> RingArray:
        """Return zeros."""
        return np.zeros(shape, dtype=self.dtype)

    def add(self, x: RingArray, y: RingArray) -> RingArray:
        """Return x + y."""
        return np.asarray(np.bitwise_xor(x, y) if self.boolean else np.add(x, y))

    def accumulate(self, total: RingArray, x: RingArray) -> None:
        """Add x to `total`, in place: for large arrays, new memory costs more than adding."""
        (np.bitwise_xor if self.boolean else np.add)(total, x, out=total)

    def subtract(self, x: RingArray, y: RingArray) -> RingArray:
        """Return x - y."""
        return np.asarray(np.bitwise_xor(x, y) if self.boolean else np.subtract(x, y))

    def negate(self, x: RingArray) -> RingArray:
        """Return -x."""
        return np.asarray(x if self.boolean else np.negative(x))

    def multiply(self, x: RingArray, y: RingArray) -> RingArray:
        """Return x * y, element by element."""
        return np.asarray(np.bitwise_and(x, y) if self.boolean else np.multiply(x, y))

    def sum(self, x: RingArray, axis: int | tuple[int, ...] | None = None) -> RingArray:
        """Return the sum along an axis."""
        operation = np.bitwise_xor if self.boolean else np.add
        if axis is None:
            axis = tuple(range(x.ndim))
        return np.asarray(operation.reduce(x, axis=axis, dtype=self.dtype))

    def matmul(self, x: RingArray, y: RingArray) -> RingArray:
        """Return the matrix product, computed exactly with floating-point hardware.

        Cut into 16-bit limbs, entries are small enough for float64 products and sums of up to 2^21
        rows to be exact, and matrix products of floats are fast where those of integers are not.
        """
        if self.boolean:
            raise TypeError("there is no matrix product of packed bits")
        total = self.zeros((*x.shape[:-1], y.shape[-1]))
        limbs = self.bits // 16
        for start in range(0, x.shape[-1], _EXACT_ROWS):
            rows = slice(start, start + _EXACT_ROWS)
            left = [_limb(x[..., rows], i) for i in range(limbs)]
            right = [_limb(y[..., rows, :], i) for i in range(limbs)]
            for i in range(limbs):
                for j in range(limbs - i):  # the others are multiples of 2^bits
                    exact = (left[i] @ right[j]).astype(np.uint64).astype(self.dtype)
                    total += exact << self.dtype.type(16 * (i + j))
        return total


def _limb(x: RingArray, index: int) -> npt.NDArray[np.float64]:
    limb: RingArray = (x >> x.dtype.type(16 * index)) & x.dtype.type(0xFFFF)
    return limb.astype(np.float64)


Z64 = Ring("Z64", np.dtype(np.uint64))
Z36 = Ring("Z36", np.dtype(np.uint64), width=36)
Z32 = Ring("Z32", np.dtype(np.uint32))
Z16 = Ring("Z16", np.dtype(np.uint16))
Z8 = Ring("Z8", np.dtype(np.uint8))
BITS = Ring("BITS", np.dtype(np.uint8), boolean=True)


def signed(x: RingArray) -> npt.NDArray[Any]:
    """Return ring elements as the signed integers that they stand for."""
    return x.view(np.dtype(f"i{x.dtype.itemsize}"))


def add_counting_wraps(parts: Sequence[RingArray]) -> tuple[RingArray, RingArray]:
    """Add signed 64-bit numbers modulo 2^64, and count, over Z32, how often they left the range."""
    total, count = parts[0], np.zeros(parts[0].shape, dtype=np.uint32)
    for part in parts[1:]:
        before, total = total, total + part
        # Two of the same sign have a sum of the other one: up if positive, down if negative.
        overflow = signed((before ^ total) & (part ^ total)) >> 63  # all ones or zero
        direction = (signed(part) >> 63) | 1
        count += (overflow & direction).astype(np.uint32)
    return total, count
