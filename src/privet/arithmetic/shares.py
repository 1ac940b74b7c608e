"""Shares: one participant's part of a value that nobody holds whole.

    x = x_1 + x_2 + ... + x_n   in the share's ring (for bits: XOR)

A share is opaque on purpose. It can be added, scaled and reshaped, which every participant does for
itself, and it can be handed to the runtime's `open` and `reveal`. It shows its shape and nothing
else, and refuses whatever would treat it as the value: comparing, branching, iterating, pickling.

The dealer runs the same programs without data: its shares are `unknown`, and carry a shape only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from privet.arithmetic.rings import Ring, RingArray


class Share:
    """One participant's additive (or, for bits, XOR) share."""

    __slots__ = ("_part", "known", "ring")
    __array_ufunc__ = None  # so that `array * share` is left to Share.__rmul__

    def __init__(self, part: RingArray, ring: Ring, *, known: bool = True) -> None:
        assert part.dtype == ring.dtype, f"{part.dtype} in {ring.name}"
        self._part = part
        self.ring = ring
        self.known = known

    @classmethod
    def unknown(cls, shape: tuple[int, ...], ring: Ring) -> Share:
        """Return what the dealer has in place of a value: its shape, at no cost in memory."""
        return cls(np.broadcast_to(ring.zeros(()), shape), ring, known=False)

    @property
    def part(self) -> RingArray:
        """The elements themselves: for gates and runtimes, never for programs."""
        assert self.known, "the dealer has no data"
        return self._part

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the shared value."""
        return self._part.shape

    @property
    def size(self) -> int:
        """The number of elements of the shared value."""
        return self._part.size

    def __len__(self) -> int:
        return len(self._part)

    def __repr__(self) -> str:
        return f"<Share of shape {self.shape} over {self.ring.name}>"

    # Linear operations, which need no communication.

    def __add__(self, other: Share) -> Share:
        return self._combine(other, self.ring.add)

    def __sub__(self, other: Share) -> Share:
        return self._combine(other, self.ring.subtract)

    def __xor__(self, other: Share) -> Share:
        assert self.ring.boolean, "XOR is for shared bits"
        return self._combine(other, self.ring.add)

    def __neg__(self) -> Share:
        return Share(self.ring.negate(self._part), self.ring) if self.known else self

    def __mul__(self, public: Any) -> Share:
        """Multiply by public ring elements or integers (for bits: AND)."""
        factor = self.ring.array(public)
        if not self.known:
            return Share.unknown(np.broadcast_shapes(self.shape, factor.shape), self.ring)
        return Share(self.ring.multiply(self._part, factor), self.ring)

    __rmul__ = __mul__

    def _combine(self, other: Share, operation: Any) -> Share:
        if not isinstance(other, Share):
            return NotImplemented
        assert self.ring is other.ring, f"{self.ring.name} with {other.ring.name}"
        if not self.known:
            return Share.unknown(np.broadcast_shapes(self.shape, other.shape), self.ring)
        return Share(operation(self._part, other._part), self.ring)

    # Rearrangements. The dealer's have no elements that would have to be moved, only shapes.

    def __getitem__(self, key: Any) -> Share:
        return self._with(np.asarray(self._part[key]))

    def reshape(self, *shape: int) -> Share:
        """Return the elements in another shape."""
        return self._with(self._part.reshape(shape))

    def transpose(self, *axes: int) -> Share:
        """Return the axes in another order."""
        return self._with(self._part.transpose(axes))

    def broadcast_to(self, shape: tuple[int, ...]) -> Share:
        """Return the value repeated along new or short axes."""
        return self._with(np.broadcast_to(self._part, shape))

    def sum(self, axis: int | tuple[int, ...] | None = None) -> Share:
        """Return the sum along an axis."""
        if not self.known:
            summed = range(self._part.ndim) if axis is None else np.atleast_1d(axis)
            dropped = {int(a) % self._part.ndim for a in summed}
            kept = [size for a, size in enumerate(self.shape) if a not in dropped]
            return Share.unknown(tuple(kept), self.ring)
        return self._with(self.ring.sum(self._part, axis))

    def cumsum(self, axis: int) -> Share:
        """Return the running sums along an axis."""
        assert not self.ring.boolean, "running sums are for numbers"
        if not self.known:
            return self
        return self._with(np.cumsum(self._part, axis=axis, dtype=self.ring.dtype))

    def sum_slices(self, ends: Sequence[int]) -> Share:
        """Return the sums of consecutive slices of the last axis, each up to one of `ends`."""
        starts = [0, *ends[:-1]]
        shape = (*self.shape[:-1], len(ends))
        if not self.known:
            return Share.unknown(shape, self.ring)
        sums = self.ring.zeros(shape)
        filled = [i for i, (start, end) in enumerate(zip(starts, ends, strict=True)) if start < end]
        first = [starts[i] for i in filled]
        sums[..., filled] = np.add.reduceat(self._part[..., : ends[-1]], first, axis=-1)
        return Share(sums, self.ring)

    def _with(self, part: RingArray) -> Share:
        if not self.known:
            return Share.unknown(part.shape, self.ring)
        return Share(part, self.ring)

    # What a share is not.

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


def concatenate(shares: list[Share], axis: int = 0) -> Share:
    """Return shares joined along an axis."""
    first = shares[0]
    if not first.known:
        shape = list(first.shape)
        shape[axis] = sum(share.shape[axis] for share in shares)
        return Share.unknown(tuple(shape), first.ring)
    return Share(np.concatenate([share._part for share in shares], axis=axis), first.ring)


def stack(shares: list[Share], axis: int = 0) -> Share:
    """Return shares side by side along a new axis."""
    first = shares[0]
    if not first.known:
        assert axis >= 0
        shape = (*first.shape[:axis], len(shares), *first.shape[axis:])
        return Share.unknown(shape, first.ring)
    return Share(np.stack([share._part for share in shares], axis=axis), first.ring)
