"""How a value that is dealt follows from masks: in two steps, so that no dealer need know them all.

A mask is S + T (for bits: XOR). With one dealer, T is nothing and S is all. With three, one of
them, the *client*, knows S; the others, the *servers*, know T and have shares of S. What is dealt
is a sum of products of something made from S and something made from T: the client makes the former
and shares it, the servers multiply and add.

S + T may wrap around, so the bits of a mask are not those of S and T. The carries between them are
masks of one bit (`Dealer.derive_carries`), of which S is, with one dealer, 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privet.arithmetic.rings import Ring, RingArray
from privet.runtime.runtime import Shape


@dataclass(frozen=True, repr=False)
class THolderInput:
    """What one of two servers has."""

    s_term_shares: Sequence[RingArray]
    """Its shares of what the client made."""
    s_shares: Sequence[RingArray]
    """Its shares of S of each mask."""
    t_parts: Sequence[RingArray]
    """T of each mask, which both servers have."""
    is_first: bool
    """Whether it is the first of them, who adds what follows from T alone."""

    def get_mask_share(self, mask: int) -> RingArray:
        """Return its share of a mask."""
        return self.s_shares[mask] + self.t_parts[mask] if self.is_first else self.s_shares[mask]


class Correlation(ABC):
    """One value of some masks."""

    @abstractmethod
    def shape(self, *masks: Shape) -> Shape:
        """Return the shape of the value, by those of the masks."""

    def list_s_terms(self, ring: Ring, *masks: Shape) -> list[tuple[Ring, Shape]]:
        """Return rings and shapes of what the client shares; the value is in `ring`."""
        return [(ring, self.shape(*masks))]

    @abstractmethod
    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Return what is to be shared, from S of each mask."""

    @abstractmethod
    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Return a share of the value."""

    def compute_plain(self, *s: RingArray) -> RingArray:
        """Return the value, if S is all of the masks."""
        return self.compute_s_terms(*s)[0]

    def subtract_drawn(
        self, position: int, ring: Ring, array: RingArray, drawn: RingArray
    ) -> RingArray:
        """Return a share of what the client made, where the other one was drawn."""
        return ring.subtract(array, drawn)


class BilinearProduct(Correlation):
    """The value is a bilinear function of two masks, such as their product."""

    def __init__(
        self,
        ring: Ring,
        function: Callable[[RingArray, RingArray], RingArray],
        shape: Callable[[Shape, Shape], Shape] = np.broadcast_shapes,
    ) -> None:
        self._ring = ring
        self._function = function
        self._shape = shape

    def shape(self, *masks: Shape) -> Shape:
        """Return that of the product."""
        return self._shape(*masks)

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Multiply both S."""
        return [self._function(*s)]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Multiply out (S + T)(S' + T')."""
        total = self._ring.add(
            held.s_term_shares[0], self._function(held.s_shares[0], held.t_parts[1])
        )
        return self._ring.add(total, self._function(held.t_parts[0], held.get_mask_share(1)))
