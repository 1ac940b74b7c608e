"""Masked values: a public number and a mask that the dealer knows, so that gates need no opening.

Two forms, both linear combinations of masks with public coefficients:

    Masked   x = public - mask                    modulo the ring, one mask
    Lifted   x = public + sum of c_i * mask_i     over a larger ring, where x fits as an integer

A value is masked by opening it once (`mask`). From then on its products with other masked values,
its integer value, its quotient by a power of two and its comparisons with public numbers follow
from what the dealer deals, without a message between participants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from privet.arithmetic.rings import Z64, Ring, RingArray
from privet.arithmetic.shares import Share
from privet.gates.gate import Cost, Gate, opening_cost
from privet.runtime.dealer import Dealer
from privet.runtime.packing import even_slices
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime


@dataclass(frozen=True, eq=False, repr=False)
class Mask:
    """A mask: the dealer knows it, participants have shares of it. Compared by identity."""

    shape: tuple[int, ...]
    value: RingArray | None = None
    """At the dealer."""
    share: Share | None = None
    """At a participant."""

    @property
    def known(self) -> RingArray:
        """The mask itself, at the dealer."""
        assert self.value is not None, "only the dealer knows masks"
        return self.value

    @property
    def part(self) -> RingArray:
        """A participant's part of the mask."""
        assert self.share is not None, "the dealer has no shares"
        return self.share.part


@dataclass(frozen=True, eq=False)
class Masked:
    """x = public - mask, modulo the ring."""

    ring: Ring
    mask: Mask
    public: RingArray | None = None
    """At participants; the dealer does not see it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self.mask.shape

    @property
    def opened(self) -> RingArray:
        """The public part, at a participant."""
        assert self.public is not None, "the dealer sees nothing that was opened"
        return self.public

    def map(self, operation: Any) -> Masked:
        """Return the value under a linear operation on arrays, such as indexing or a sum."""
        return combine(operation, self)

    def __add__(self, constant: int | RingArray) -> Masked:
        """Add a public number."""
        public = self.public
        if public is not None:
            public = self.ring.add(public, self.ring.array(constant))
        return Masked(self.ring, self.mask, public)

    def __sub__(self, other: Masked) -> Masked:
        return combine(self.ring.subtract, self, other)

    def share(self, index: int) -> Share:
        """Return the value as an additive share, at participant `index`; unknown to the dealer."""
        if self.public is None:
            return Share.unknown(self.shape, self.ring)
        part = self.ring.negate(self.mask.part)
        return Share(self.ring.add(part, self.public) if index == 0 else part, self.ring)


def combine(operation: Callable[..., RingArray], *values: Masked) -> Masked:
    """Return masked values under a linear operation on arrays, such as a difference or stacking."""
    ring = values[0].ring
    public = None
    if values[0].public is not None:
        public = operation(*(x.opened for x in values))
    if values[0].mask.value is not None:
        known = operation(*(x.mask.known for x in values))
        return Masked(ring, Mask(known.shape, value=known), public)
    part = operation(*(x.mask.part for x in values))
    return Masked(ring, Mask(part.shape, share=Share(part, ring)), public)


def unmasked(runtime: Runtime, values: RingArray, ring: Ring) -> Masked:
    """Return numbers that everybody knows as a masked value, with a mask of zeros."""
    zeros = ring.zeros(values.shape)
    if runtime.index < 0:
        return Masked(ring, Mask(values.shape, value=zeros))
    return Masked(ring, Mask(values.shape, share=Share(zeros, ring)), values)


@dataclass(frozen=True, eq=False)
class Lifted:
    """x = public + sum of c_i * mask_i, over the ring. Coefficients are public; None is -1."""

    shape: tuple[int, ...]
    masks: tuple[Mask, ...]
    public: RingArray | None = None
    coefficients: tuple[RingArray | None, ...] = field(default=())
    ring: Ring = Z64

    def __add__(self, constant: int | RingArray) -> Lifted:
        """Add a public number."""
        public = self.public
        if public is not None:
            public = self.ring.add(public, self.ring.array(constant))
        return Lifted(self.shape, self.masks, public, self.coefficients, self.ring)

    def times(self, constant: int) -> Lifted:
        """Multiply by a public number."""
        if self.public is None:
            return self
        factor = self.ring.array(constant)
        coefficients = tuple(
            self.ring.array(np.full(self.shape, -constant))
            if c is None
            else self.ring.multiply(c, factor)
            for c in self.coefficients
        )
        public = self.ring.multiply(self.public, factor)
        return Lifted(self.shape, self.masks, public, coefficients, self.ring)


class OpenMasked(Gate):
    """Mask a shared value: the one opening that a masked value costs.

    1. The dealer draws [r].
    2. Open [x] + [r]; x is that less r.

    Cost: one opening. Reveals: nothing. Error: none.
    """

    name = "mask"

    def deal(self, dealer: Dealer, *values: Share) -> Any:
        """Draw masks."""
        drawn = [
            Masked(x.ring, Mask(x.shape, value=dealer.uniform(x.shape, x.ring))) for x in values
        ]
        return drawn[0] if len(drawn) == 1 else drawn

    def run(self, party: Party, *values: Share) -> Any:
        """Open all values in one round."""
        masks = [party.uniform(x.shape, x.ring) for x in values]
        if party.on_masks is not None:
            party.on_masks(masks)
        opened = party.open(*(x + r for x, r in zip(values, masks, strict=True)))
        found = [
            Masked(x.ring, Mask(x.shape, share=r), public)
            for x, r, public in zip(values, masks, opened, strict=True)
        ]
        return found[0] if len(found) == 1 else found

    @staticmethod
    def cost(shapes: Sequence[tuple[tuple[int, ...], Ring]], n_parties: int) -> Cost:
        """Return the cost for values of these shapes and rings."""
        counts = [(prod(shape), ring) for shape, ring in shapes]
        if len({ring.name for _, ring in counts}) == 1:  # as one vector
            counts = [(sum(count for count, _ in counts), counts[0][1])]
        whole = sum(ring.wire_bytes(count) for count, ring in counts)
        cost = opening_cost(whole, n_parties)
        if cost.rounds == 1:
            return cost
        slices = sum(
            ring.wire_bytes(part.stop - part.start)
            for count, ring in counts
            for part in even_slices(count, n_parties)
        )
        return Cost(rounds=2, online=2 * (n_parties - 1) * slices)


class Lift(Gate):
    """Turn a masked value 0 <= x < 2^(w-1), w the ring's bits, into an integer, divided by 2^shift.

    1. The dealer derives [u] = [r >> shift] and [m], the top bit of r, over the larger ring.
    2. With b = 1 - (top bit of public): x >> shift = (public >> shift) - [u] + b 2^(w-shift) [m].

    x + r wraps around if and only if r has its top bit and the sum has not.

    Cost: no opening; corrections for u, and for m unless it vanishes in the larger ring. Reveals:
    nothing. Error: exact for shift = 0; otherwise x / 2^shift, rounded down or up.
    """

    name = "lift"

    def deal(self, dealer: Dealer, x: Masked, shift: int = 0, ring: Ring = Z64) -> Lifted:
        """Derive the mask's integer parts."""
        r = x.ring.reduce(x.mask.known)
        u = (r >> r.dtype.type(shift)).astype(ring.dtype)
        masks = [Mask(x.shape, value=u)]
        dealer.derive(u, ring)
        if x.ring.bits - shift < ring.bits:
            top = (r >> r.dtype.type(x.ring.bits - 1)).astype(ring.dtype)
            dealer.derive(top, ring)
            masks.append(Mask(x.shape, value=top))
        return Lifted(x.shape, tuple(masks), ring=ring)

    def run(self, party: Party, x: Masked, shift: int = 0, ring: Ring = Z64) -> Lifted:
        """Find out from the public part whether the sum wrapped around."""
        c = x.ring.reduce(x.opened)
        masks = [Mask(x.shape, share=party.derived(x.shape, ring))]
        public = (c >> c.dtype.type(shift)).astype(ring.dtype)
        coefficients: list[RingArray | None] = [None]
        power = x.ring.bits - shift
        if power < ring.bits:
            masks.append(Mask(x.shape, share=party.derived(x.shape, ring)))
            low = (c >> c.dtype.type(x.ring.bits - 1)) == 0
            coefficients.append(low.astype(ring.dtype) << ring.dtype.type(power))
        return Lifted(x.shape, tuple(masks), public, tuple(coefficients), ring)

    @staticmethod
    def cost(x: tuple[int, ...], from_ring: Ring, shift: int = 0, ring: Ring = Z64) -> Cost:
        """Return the cost for a value of this shape."""
        return Cost(offline=ring.nbytes(x) * (2 if from_ring.bits - shift < ring.bits else 1))


mask = OpenMasked()
lift = Lift()
