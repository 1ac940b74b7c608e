"""How a value that is dealt follows from masks: in two steps, so that no dealer need know them all.

A mask is S + T (for bits: XOR). With one dealer, T is nothing and S is all. With more, one of them,
the *client*, knows S; the others, the *servers*, know T and have shares of S. What is dealt is a
sum of products of something made from S and something made from T: the client makes the former and
shares it, the servers multiply and add.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from privet.arithmetic.rings import Ring, RingArray


@dataclass(frozen=True, repr=False)
class Half:
    """What one of two servers has."""

    shared: Sequence[RingArray]
    """Its shares of what the client made."""
    s: Sequence[RingArray]
    """Its shares of S of each mask."""
    t: Sequence[RingArray]
    """T of each mask, which both servers have."""
    first: bool
    """Whether it is the first of them, who adds what follows from T alone."""


class Recipe(ABC):
    """One value of some masks."""

    @abstractmethod
    def client(self, *s: RingArray) -> list[RingArray]:
        """Return what is to be shared, from S of each mask; the first is the value if T is none."""

    @abstractmethod
    def server(self, half: Half) -> RingArray:
        """Return a share of the value."""


class Linear(Recipe):
    """The value is a linear function of the masks."""

    def __init__(self, ring: Ring, function: Callable[..., RingArray]) -> None:
        self._ring = ring
        self._function = function

    def client(self, *s: RingArray) -> list[RingArray]:
        """Apply it to S."""
        return [self._function(*s)]

    def server(self, half: Half) -> RingArray:
        """Add it, applied to T."""
        (shared,) = half.shared
        return self._ring.add(shared, self._function(*half.t)) if half.first else shared


class Product(Recipe):
    """The value is a bilinear function of two masks, such as their product."""

    def __init__(self, ring: Ring, function: Callable[[RingArray, RingArray], RingArray]) -> None:
        self._ring = ring
        self._function = function

    def client(self, *s: RingArray) -> list[RingArray]:
        """Multiply both S."""
        return [self._function(*s)]

    def server(self, half: Half) -> RingArray:
        """Multiply out (S + T)(S' + T')."""
        (total,), s, t = half.shared, half.s, half.t
        for pair in [(s[0], t[1]), (t[0], s[1]), (t[0], t[1])][: 3 if half.first else 2]:
            total = self._ring.add(total, self._function(*pair))
        return total
