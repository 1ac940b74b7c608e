"""Values that three hold together, each of them two parts of three.

    x = c_0 + c_1 + c_2   in the ring (for bits: XOR)

Number k has c_k and c_(k+1), counted in a circle. So each part is known to two, and none of them
knows x; any two together do. What is linear each does for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import Self

from privet.arithmetic.rings import RingArray
from privet.arithmetic.shares import Elements

HOLDERS = 3


class Replicated(Elements):
    """The two parts that one of three has."""

    __slots__ = ("parts",)

    def __init__(self, first: Elements, second: Elements) -> None:
        assert first.shape == second.shape
        assert first.ring is second.ring
        self.parts = first, second
        self.ring, self.shape, self.known = first.ring, first.shape, True

    @property
    def array(self) -> RingArray:
        """Nobody has it."""
        raise TypeError("no dealer of three knows what all of them hold together")

    def joined(self, values: Sequence[Self], join: Callable[..., RingArray]) -> Self:
        """Return several values as one array."""
        first, second = (
            parts[0].joined(parts, join)
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


def parts_of(value: Elements) -> tuple[RingArray, ...]:
    """Return what somebody has of a value: the whole of it, or two parts."""
    if isinstance(value, Replicated):
        return tuple(part.array for part in value.parts)
    return (value.array,)


def _of_each_part(name: str) -> Any:
    operation = getattr(Elements, name)

    def of_each_part(self: Replicated, *values: Any, **options: Any) -> Replicated:
        if not self.known:
            found: Replicated = operation(self, *values, **options)
            return found
        return type(self)(*(operation(part, *values, **options) for part in self.parts))

    return of_each_part


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
    "under",
    "sum_slices",
    "to_ring",
):
    setattr(Replicated, _name, _of_each_part(_name))
