"""Derived correlations: values that one dealer or three dealers derive from masks, in two steps.

A mask is S + T (for bits: XOR). With one dealer, S is the whole mask, and T does not exist. With
three dealers, no dealer knows the mask: the *S holder* knows S; the two *T holders* know T and have
shares of S. A derived value is a sum of products of a term computed from S and a term computed from
T: the S holder computes its terms and shares them, the T holders multiply and add.

S + T can wrap around, so the bits of a mask are not those of S and T. The carries between them are
one-bit masks (`Dealer.derive_carries`), whose S is 0 with one dealer.
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
    """The inputs of one of the two T holders."""

    s_term_shares: Sequence[RingArray]
    """Its shares of the S holder's terms."""
    s_shares: Sequence[RingArray]
    """Its shares of S of each mask."""
    t_parts: Sequence[RingArray]
    """T of each mask, which both T holders have."""
    is_first: bool
    """Whether it is the first T holder, which adds the terms that depend only on T."""

    def get_mask_share(self, mask: int) -> RingArray:
        """Return its share of a mask."""
        return self.s_shares[mask] + self.t_parts[mask] if self.is_first else self.s_shares[mask]


class Correlation(ABC):
    """A value derived from masks."""

    @abstractmethod
    def shape(self, *masks: Shape) -> Shape:
        """Return the shape of the value, from the shapes of the masks."""

    def list_s_terms(self, ring: Ring, *masks: Shape) -> list[tuple[Ring, Shape]]:
        """Return the rings and shapes of the S holder's terms; the value is in `ring`."""
        return [(ring, self.shape(*masks))]

    @abstractmethod
    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Return the S holder's terms, which it shares, from S of each mask."""

    @abstractmethod
    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Return a T holder's share of the value."""

    def compute_plain(self, *s: RingArray) -> RingArray:
        """Return the value, if S is the whole of each mask."""
        return self.compute_s_terms(*s)[0]

    def subtract_drawn(
        self, position: int, ring: Ring, array: RingArray, drawn: RingArray
    ) -> RingArray:
        """Return the share of a term that remains after the other share was drawn."""
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
        """Return the shape of the product."""
        return self._shape(*masks)

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Multiply S of both masks."""
        return [self._function(*s)]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Multiply out (S + T)(S' + T')."""
        total = self._ring.add(
            held.s_term_shares[0], self._function(held.s_shares[0], held.t_parts[1])
        )
        return self._ring.add(total, self._function(held.t_parts[0], held.get_mask_share(1)))
