"""Lookups: public tables at a shared position, by a dealt one-hot vector.

Opening a position under a mask rho leaves a public c with position = c - rho. A table's entry there
is the sum over t of table[c - t] times [rho = t], which is local once [rho = t] is dealt for all t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Z8, Ring, RingArray
from privet.arithmetic.shares import Share
from privet.gates.gate import Cost, Gate, opening_cost
from privet.gates.masked import Lifted, Masked
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party


@dataclass(frozen=True)
class Selection:
    """Opened positions, ready for any number of tables: a participant's, or the dealer's."""

    shape: tuple[int, ...]
    rings: tuple[Ring, ...]
    index: npt.NDArray[np.intp] | None = None
    """c - t for every t: (size, *shape)."""
    factors: tuple[tuple[Masked | Lifted, RingArray], ...] = ()
    """Each factor with the dealt [rho = t] and its products with the factor's masks."""

    def pick(self, table: npt.NDArray[np.int64], factor: int) -> Share:
        """Return a share of the table's entry at the position, times a factor."""
        if self.index is None:
            return Share.unknown(self.shape, self.rings[factor])
        x, dealt = self.factors[factor]
        ring = x.ring
        entries = ring.array(table)[self.index]
        assert x.public is not None
        # dealt[0] is [rho = t]; the others are its products with the masks.
        total = (entries * dealt[0]).sum(axis=0, dtype=ring.dtype) * x.public
        coefficients = (None,) if isinstance(x, Masked) else x.coefficients
        for products, coefficient in zip(dealt[1:], coefficients, strict=True):
            term = (entries * products).sum(axis=0, dtype=ring.dtype)
            total = total - term if coefficient is None else total + term * coefficient
        return Share(total, ring)


class Lookup(Gate):
    """Open positions 0 <= p < size, shares over Z8, for lookups times masked values.

    1. The dealer draws [rho] and derives [rho = t] for all t < size, and its products with the
       masks of the values that entries will be multiplied with.
    2. Open [p] + [rho].

    Cost: one opening of a byte a position; corrections of `size` elements for each factor and each
    of its masks. Reveals: nothing. Error: none. `size` is a power of two.
    """

    name = "lookup"

    def deal(
        self, dealer: Dealer, position: Share, factors: Sequence[Masked | Lifted], size: int
    ) -> Selection:
        """Deal one-hot vectors and their products with masks."""
        rho = dealer.uniform(position.shape, Z8) & np.uint8(size - 1)
        options = np.arange(size, dtype=np.uint8).reshape(-1, *[1] * rho.ndim)
        for x in factors:
            hot = (rho == options).astype(x.ring.dtype)
            masks = (x.mask,) if isinstance(x, Masked) else x.masks
            dealer.derive(np.stack([hot, *(hot * m.known for m in masks)]), x.ring)
        return Selection(position.shape, tuple(x.ring for x in factors))

    def run(
        self, party: Party, position: Share, factors: Sequence[Masked | Lifted], size: int
    ) -> Selection:
        """Open the positions."""
        rho = party.uniform(position.shape, Z8)
        dealt = []
        for x in factors:
            masks = 1 if isinstance(x, Masked) else len(x.masks)
            shape = (1 + masks, size, *position.shape)
            dealt.append((x, party.derived(shape, x.ring).part))
        (c,) = party.open(position + rho)
        options = np.arange(size).reshape(-1, *[1] * c.ndim)
        index = (c.astype(np.intp) - options) & (size - 1)
        return Selection(position.shape, tuple(x.ring for x in factors), index, tuple(dealt))

    @staticmethod
    def cost(shape: tuple[int, ...], size: int, masks: Sequence[tuple[Ring, int]], n: int) -> Cost:
        """Return the cost for factors of these rings and numbers of masks."""
        offline = sum(size * (1 + count) * ring.nbytes(shape) for ring, count in masks)
        return opening_cost(Z8.nbytes(shape), n) + Cost(offline=offline)


lookup = Lookup()


def lookup_size(largest: int) -> int:
    """Return the power of two that positions up to `largest` need."""
    return 1 << int(largest).bit_length()
