"""The rings of shares: integers modulo 2^w, for w up to 64, and bits, eight to a byte.

An element is a numpy scalar of the ring's type, and numpy's wrap-around is the ring's arithmetic.
For bits, addition is XOR and multiplication is AND, on all bits of a byte at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from privet.arithmetic import large_arrays

RingArray: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Ring:
    """A ring of 2^bits elements, or of bytes that hold eight bits each.

    An element that does not fill a machine word is stored in the next larger word, whose upper bits
    are ignored. In a message, it takes only its own width (`arithmetic.packing`).
    """

    name: str
    bits: int
    """Bits of an element."""
    boolean: bool = False

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The smallest numpy type that holds an element."""
        return np.dtype(f"u{next(size for size in (1, 2, 4, 8) if self.bits <= 8 * size)}")

    @cached_property
    def is_word(self) -> bool:
        """Whether an element fills its type, so that numpy's arithmetic is the ring's."""
        return self.bits == 8 * self.dtype.itemsize

    def reduce_modulus(self, x: RingArray) -> RingArray:
        """Return elements without the bits that are not part of them."""
        return x if self.is_word else np.asarray(x & self.dtype.type((1 << self.bits) - 1))

    def count_packed_bytes(self, count: int) -> int:
        """Return the bytes that `count` elements take in a message."""
        if self.is_word:
            return self.dtype.itemsize * count
        return sum(-(-count * chunk // 8) for chunk in self.chunks)

    @cached_property
    def chunks(self) -> tuple[int, ...]:
        """The powers of two that add up to `bits`, the largest first."""
        return tuple(1 << k for k in reversed(range(7)) if self.bits >> k & 1)

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Return the bytes that an array of this shape takes in memory."""
        return self.dtype.itemsize * math.prod(shape)

    def to_elements(self, values: Any) -> RingArray:
        """Return integers, signed or not, as elements of the ring."""
        array: RingArray = np.asarray(values)
        if array.dtype.kind not in "iu":
            raise TypeError(f"{array.dtype} values are not elements of {self.name}: encode them")
        if array.dtype != self.dtype:
            array = array.astype(np.int64, copy=False).astype(self.dtype)
        return array

    def zeros(self, shape: tuple[int, ...]) -> RingArray:
        """Return zeros."""
        return np.zeros(shape, dtype=self.dtype)

    def add(self, x: RingArray, y: RingArray) -> RingArray:
        """Return x + y."""
        return _apply(np.bitwise_xor if self.boolean else np.add, x, y)

    def add_in_place(self, total: RingArray, x: RingArray) -> None:
        """Add x to `total`, in place: for large arrays, new memory costs more than adding."""
        _apply(np.bitwise_xor if self.boolean else np.add, total, x, out=total)

    def subtract(self, x: RingArray, y: RingArray) -> RingArray:
        """Return x - y."""
        return _apply(np.bitwise_xor if self.boolean else np.subtract, x, y)

    def negate(self, x: RingArray) -> RingArray:
        """Return -x."""
        return np.asarray(x if self.boolean else np.negative(x))

    def multiply(self, x: RingArray, y: RingArray) -> RingArray:
        """Return x * y, element by element."""
        return _apply(np.bitwise_and if self.boolean else np.multiply, x, y)

    def sum(self, x: RingArray, axis: int | tuple[int, ...] | None = None) -> RingArray:
        """Return the sum along an axis."""
        operation = np.bitwise_xor if self.boolean else np.add
        if axis is None:
            axis = tuple(range(x.ndim))
        return np.asarray(operation.reduce(x, axis=axis, dtype=self.dtype))


def _apply(operation: Any, x: RingArray, y: RingArray, out: RingArray | None = None) -> RingArray:
    """Apply an elementwise operation, in blocks on all cores if the arrays are large."""
    alike = x.shape == y.shape and x.dtype == y.dtype
    if x.size < large_arrays.MIN_PARALLEL_ELEMENTS or not (
        alike and x.flags.c_contiguous and y.flags.c_contiguous
    ):
        return np.asarray(operation(x, y, out=out))
    found = np.empty_like(x) if out is None else out
    left, right, result = x.reshape(-1), y.reshape(-1), found.reshape(-1)

    def apply_span(span: slice) -> None:
        operation(left[span], right[span], out=result[span])

    large_arrays.run_blocks(apply_span, large_arrays.split_into_blocks(x.size), x.size)
    return found


def sum_arrays(parts: Iterable[RingArray], ring: Ring) -> RingArray:
    """Add up newly created arrays; the first is overwritten with the sum.

    Each is added as soon as the iterable creates it, while it is still in the cache.
    """
    rest = iter(parts)
    found = next(rest)  # no other code holds it, so it can be overwritten
    for part in rest:
        ring.add_in_place(found, part)
    return found


@lru_cache(maxsize=64)
def get_integer_ring(bits: int) -> Ring:
    """Return the ring of integers modulo 2^bits: the same object each time."""
    assert 1 <= bits <= 64
    return Ring(f"Z{bits}", bits)


Z64, Z36, Z32 = get_integer_ring(64), get_integer_ring(36), get_integer_ring(32)
Z16, Z8, Z1 = get_integer_ring(16), get_integer_ring(8), get_integer_ring(1)
BIT_RING = Ring("BITS", 8, boolean=True)


def signed(x: RingArray) -> npt.NDArray[Any]:
    """Return ring elements as the signed integers that they represent."""
    return x.view(np.dtype(f"i{x.dtype.itemsize}"))


def add_counting_wraps(parts: Sequence[RingArray]) -> tuple[RingArray, RingArray]:
    """Add signed 64-bit numbers modulo 2^64, and count the wrap-arounds over Z32."""
    total, count = parts[0], np.zeros(parts[0].shape, dtype=np.uint32)
    for part in parts[1:]:
        before, total = total, total + part
        # Two terms of one sign have a sum of the other: they wrap up if positive, down if negative.
        overflow = signed((before ^ total) & (part ^ total)) >> 63  # all ones or zero
        direction = (signed(part) >> 63) | 1
        count += (overflow & direction).astype(np.uint32)
    return total, count
