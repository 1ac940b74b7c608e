"""Ring elements, additive secret shares, and replicated shares among three dealers.

A program runs at processes that have the elements and at processes that do not: the dealer sees no
data, and a cost counter sees nothing. The latter have `unknown` elements, which carry a shape and
take no memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

import numpy as np
from typing_extensions import Self

from privet.arithmetic.rings import Ring, RingArray

_SHAPE_PROBE = np.zeros((), dtype=np.bool_)


class Elements:
    """An array over a ring, such as a mask, an opened value or a share; or only its shape."""

    __slots__ = ("_array", "known", "ring", "shape")
    __array_ufunc__ = None  # so that `array * elements` is left to Elements.__rmul__

    def __init__(self, array: RingArray, ring: Ring) -> None:
        assert array.dtype == ring.dtype, f"{array.dtype} in {ring.name}"
        self._array = array
        self.ring = ring
        self.shape: tuple[int, ...] = array.shape
        self.known = True

    @classmethod
    def unknown(cls, shape: tuple[int, ...], ring: Ring) -> Self:
        """Return elements of which only the shape is known."""
        found = cls.__new__(cls)
        found.ring, found.shape, found.known = ring, shape, False
        return found

    @property
    def array(self) -> RingArray:
        """The elements: for gates and runtimes, never for programs."""
        assert self.known, "only the shape of these elements is known here"
        return self._array

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of shape {self.shape} over {self.ring.name}>"

    # Linear operations, which need no communication.

    def __add__(self, other: Self) -> Self:
        return self._combine(other, self.ring.add)

    def __sub__(self, other: Self) -> Self:
        return self._combine(other, self.ring.subtract)

    def __xor__(self, other: Self) -> Self:
        assert self.ring.boolean, "XOR is for shared bits"
        return self._combine(other, self.ring.add)

    def __neg__(self) -> Self:
        return type(self)(self.ring.negate(self._array), self.ring) if self.known else self

    def __mul__(self, public: Any) -> Self:
        """Multiply by public ring elements or integers (for bits: AND)."""
        factor = self.ring.to_elements(public)
        if not self.known:
            return self.unknown(np.broadcast_shapes(self.shape, factor.shape), self.ring)
        return type(self)(self.ring.multiply(self._array, factor), self.ring)

    __rmul__ = __mul__

    def _combine(self, other: Self, operation: Any) -> Self:
        if not isinstance(other, Elements):
            return NotImplemented
        assert self.ring is other.ring, f"{self.ring.name} with {other.ring.name}"
        if not (self.known and other.known):
            return self.unknown(np.broadcast_shapes(self.shape, other.shape), self.ring)
        return type(self)(operation(self._array, other._array), self.ring)

    def join(self, values: Sequence[Self], combine_arrays: Callable[..., RingArray]) -> Self:
        """Return several elements of this kind as one array."""
        return type(self)(combine_arrays([value.array for value in values]), self.ring)

    # Rearrangements. For unknown elements, only the shape changes.

    def __getitem__(self, key: Any) -> Self:
        if not self.known:
            return self.unknown(np.broadcast_to(_SHAPE_PROBE, self.shape)[key].shape, self.ring)
        return type(self)(np.asarray(self._array[key]), self.ring)

    def reshape(self, *shape: int) -> Self:
        """Return the elements in another shape."""
        if not self.known:
            rest = math.prod(n for n in shape if n >= 0)
            new = tuple(self.size // rest if n < 0 else n for n in shape)
            assert math.prod(new) == self.size, f"{self.shape} in the shape {shape}"
            return self.unknown(new, self.ring)
        return type(self)(self._array.reshape(shape), self.ring)

    def transpose(self, *axes: int) -> Self:
        """Return the axes in another order."""
        if not self.known:
            return self.unknown(tuple(self.shape[axis] for axis in axes), self.ring)
        return type(self)(self._array.transpose(axes), self.ring)

    def broadcast_to(self, shape: tuple[int, ...]) -> Self:
        """Return the elements repeated along new axes and axes of length one."""
        if not self.known:
            assert np.broadcast_shapes(self.shape, shape) == shape
            return self.unknown(shape, self.ring)
        return type(self)(np.broadcast_to(self._array, shape), self.ring)

    def sum(self, axis: int | tuple[int, ...] | None = None) -> Self:
        """Return the sum along an axis."""
        if not self.known:
            axes = range(len(self.shape)) if axis is None else np.atleast_1d(axis)
            dropped = {int(a) % len(self.shape) for a in axes}
            kept = [size for a, size in enumerate(self.shape) if a not in dropped]
            return self.unknown(tuple(kept), self.ring)
        return type(self)(self.ring.sum(self._array, axis), self.ring)

    def map_last_axis(self, linear: Callable[[RingArray], RingArray], last: int) -> Self:
        """Apply a linear operation along the last axis, which changes its length to `last`."""
        if not self.known:
            return self.unknown((*self.shape[:-1], last), self.ring)
        return type(self)(linear(self._array), self.ring)

    def cumsum(self, axis: int) -> Self:
        """Return the running sums along an axis."""
        assert not self.ring.boolean, "running sums are for numbers"
        if not self.known:
            return self
        return type(self)(np.cumsum(self._array, axis=axis, dtype=self.ring.dtype), self.ring)

    def sum_slices(self, ends: Sequence[int]) -> Self:
        """Return the sums of consecutive slices of the last axis, each up to one of `ends`."""
        starts = [0, *ends[:-1]]
        shape = (*self.shape[:-1], len(ends))
        if not self.known:
            return self.unknown(shape, self.ring)
        sums = self.ring.zeros(shape)
        filled = [i for i, (start, end) in enumerate(zip(starts, ends, strict=True)) if start < end]
        first = [starts[i] for i in filled]
        sums[..., filled] = np.add.reduceat(self._array[..., : ends[-1]], first, axis=-1)
        return type(self)(sums, self.ring)

    def reduce_to_ring(self, ring: Ring) -> Self:
        """Return the elements modulo a smaller power of two."""
        assert ring.bits <= self.ring.bits
        if not self.known:
            return self.unknown(self.shape, ring)
        return type(self)(self._array.astype(ring.dtype), ring)


class Share(Elements):
    """One participant's part of a value that no party holds as a whole.

        x = x_1 + x_2 + ... + x_n   in the share's ring (for bits: XOR)

    A share is opaque on purpose. It can be added, scaled and reshaped, which each participant does
    locally, and passed to the runtime's `open` and `reveal`. It shows only its shape, and refuses
    all operations that would treat it as the value: comparing, branching, iterating, pickling.
    """

    __slots__ = ()

    @property
    def part(self) -> RingArray:
        """The participant's elements: for gates and runtimes, never for programs."""
        return self.array

    # Operations that treat a share as its value.

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(
            "a share is not its value: open it under a mask, or reveal it to whom it is due"
        )

    __bool__ = _refuse
    __iter__ = _refuse
    __eq__ = _refuse
    __ne__ = _refuse
    __lt__ = _refuse
    __le__ = _refuse
    __gt__ = _refuse
    __ge__ = _refuse
    __int__ = _refuse
    __float__ = _refuse
    __array__ = _refuse
    __reduce_ex__ = _refuse
    __hash__ = None  # type: ignore[assignment]


class PublicShare(Share):
    """A share that is opened without a mask, because all participants can learn the value."""

    __slots__ = ("disclosure",)

    def __init__(self, part: RingArray, ring: Ring, disclosure: str) -> None:
        super().__init__(part, ring)
        self.disclosure = disclosure
        """The name of the value in the disclosure ledger."""


_ElementsT = TypeVar("_ElementsT", bound=Elements)


def concatenate(values: Sequence[_ElementsT], axis: int = 0) -> _ElementsT:
    """Return elements joined along an axis."""
    first = values[0]
    if not all(value.known for value in values):
        shape = list(first.shape)
        shape[axis] = sum(value.shape[axis] for value in values)
        return first.unknown(tuple(shape), first.ring)
    return first.join(values, partial(np.concatenate, axis=axis))


def stack(values: Sequence[_ElementsT], axis: int = 0) -> _ElementsT:
    """Return elements stacked along a new axis."""
    first = values[0]
    if not all(value.known for value in values):
        assert axis >= 0
        shape = (*first.shape[:axis], len(values), *first.shape[axis:])
        return first.unknown(shape, first.ring)
    return first.join(values, partial(np.stack, axis=axis))


N_HOLDERS = 3


class ReplicatedElements(Elements):
    """One dealer's two of the three parts of a value.

        x = c_0 + c_1 + c_2   in the ring (for bits: XOR)

    Dealer k has c_k and c_(k+1), in cyclic order, so two dealers know each part. No dealer knows x;
    any two dealers together know it. Linear operations are local.
    """

    __slots__ = ("parts",)

    def __init__(self, first: Elements, second: Elements) -> None:
        assert first.shape == second.shape
        assert first.ring is second.ring
        self.parts = first, second
        self.ring, self.shape, self.known = first.ring, first.shape, True

    @property
    def array(self) -> RingArray:
        """Always raise TypeError, because no dealer knows the value."""
        raise TypeError("no dealer of three knows the value of replicated elements")

    def join(self, values: Sequence[Self], combine_arrays: Callable[..., RingArray]) -> Self:
        """Return several values as one array."""
        first, second = (
            parts[0].join(parts, combine_arrays)
            for parts in zip(*(value.parts for value in values), strict=True)
        )
        return type(self)(first, second)

    def _combine(self, other: Self, operation: Any) -> Self:
        if not (self.known and other.known):
            return super()._combine(other, operation)
        first, second = (
            a._combine(b, operation) for a, b in zip(self.parts, other.parts, strict=True)
        )
        return type(self)(first, second)


def list_local_parts(value: Elements) -> tuple[RingArray, ...]:
    """Return the local parts of a value: the whole value, or two of three parts."""
    if isinstance(value, ReplicatedElements):
        return tuple(part.array for part in value.parts)
    return (value.array,)


def _for_each_part(name: str) -> Any:
    operation = getattr(Elements, name)

    def apply(self: ReplicatedElements, *values: Any, **options: Any) -> ReplicatedElements:
        if not self.known:
            found: ReplicatedElements = operation(self, *values, **options)
            return found
        return type(self)(*(operation(part, *values, **options) for part in self.parts))

    return apply


for _name in (
    "__neg__",
    "__mul__",
    "__rmul__",
    "__getitem__",
    "reshape",
    "transpose",
    "broadcast_to",
    "sum",
    "cumsum",
    "map_last_axis",
    "sum_slices",
    "reduce_to_ring",
):
    setattr(ReplicatedElements, _name, _for_each_part(_name))
