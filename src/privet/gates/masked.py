"""Masked values: a public number and a mask that the dealer knows, so that gates need no opening.

Two forms, both linear combinations of masks with public coefficients:

    Masked   x = public - mask                    modulo the ring, one mask
    Lifted   x = public + sum of c_i * mask_i     over a larger ring, where x fits as an integer

A value is masked by opening it once (`mask`). From then on its products with other masked values,
its integer value, its quotient by a power of two and its comparisons with public numbers follow
from what the dealer deals, without a message between participants.

What is public is known to participants. Of a mask, the dealer has all and a participant its share.
Whatever somebody does not have is unknown to it: `Elements` with a shape alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from privet.arithmetic.rings import Z64, Ring, RingArray
from privet.arithmetic.shares import Elements, Share
from privet.arrays import Indices
from privet.gates.gate import Gate, Opening, OpeningGate
from privet.gates.mask_bits import derive_integer, derive_quotient
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime

Meanwhile = Callable[[list[Elements]], None]
"""Begins work on fresh masks, which goes on while what they mask is opened."""


@dataclass(frozen=True, eq=False)
class Masked:
    """x = public - mask, modulo the ring."""

    public: Elements
    mask: Elements
    constant: bool = False
    """Whether the mask is zero, because everybody knows the value."""
    window: tuple[int, int] | None = None
    """Which bits of the mask count, to a dealer, if not all do; for comparisons alone."""

    @property
    def ring(self) -> Ring:
        """The ring that the value is in."""
        return self.mask.ring

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self.mask.shape

    def map(self, operation: Callable[[Elements], Elements]) -> Masked:
        """Return the value under a linear operation, such as indexing or a sum."""
        return Masked(operation(self.public), operation(self.mask), self.constant, self.window)

    def __getitem__(self, key: int | slice) -> Masked:
        return self.map(lambda x: x[key])

    def __add__(self, constant: int | RingArray) -> Masked:
        """Add a public number."""
        return Masked(_plus(self.public, constant), self.mask, self.constant, self.window)

    def __sub__(self, other: Masked) -> Masked:
        return Masked(self.public - other.public, self.mask - other.mask)

    def high_bits(self, drop: int) -> Masked:
        """Return the value without its low bits, up to one unit: for comparisons alone.

        A participant's share of the mask cannot be shortened so, and is not needed there.
        """
        if drop == 0:
            return self
        if self.public.known:
            return Masked(_shifted(self.public, drop), Elements.unknown(self.shape, self.ring))
        return Masked(self.public, self.mask, window=(drop, self.ring.bits))

    def low_bits(self, bits: int) -> Masked:
        """Return what is public less the mask, each modulo 2^bits: for comparisons alone.

        It is negative where the value's low bits took from its high ones. A participant's share of
        the mask cannot be shortened so, and is not needed there.
        """
        if self.public.known:
            return Masked(_reduced(self.public, bits), Elements.unknown(self.shape, self.ring))
        return Masked(self.public, self.mask, window=(0, bits))

    def lifted(self) -> Lifted:
        """Return the value as a lifted one over its own ring, where it wraps around as ever."""
        minus = Elements(self.ring.array(-1), self.ring)
        return Lifted(self.public, (self.mask,), (minus,))

    def share(self, runtime: Runtime) -> Share:
        """Return the value as an additive share; the first participant adds what is public."""
        if not (self.public.known and self.mask.known):
            return Share.unknown(self.shape, self.ring)
        part = self.ring.negate(self.mask.array)
        if runtime.index == 0:
            part = self.ring.add(part, self.public.array)
        return Share(part, self.ring)


def combine(operation: Callable[[list[Elements]], Elements], *values: Masked) -> Masked:
    """Return masked values under a linear operation on all of them, such as stacking."""
    assert all(x.window is None for x in values)
    return Masked(operation([x.public for x in values]), operation([x.mask for x in values]))


def unknown_masked(shape: tuple[int, ...], ring: Ring) -> Masked:
    """Return what a counter has of a masked value: its shape."""
    unknown = Elements.unknown(shape, ring)
    return Masked(unknown, unknown)


def constant(runtime: Runtime, values: RingArray, ring: Ring) -> Masked:
    """Return numbers that everybody knows as a masked value, with a mask of zeros."""
    none = runtime.no_mask(values.shape, ring)
    return Masked(runtime.opened(values, ring), none, constant=True)


@dataclass(frozen=True, eq=False)
class Lifted:
    """x = public + sum of c_i * mask_i, over the ring, with public coefficients."""

    public: Elements
    masks: tuple[Elements, ...]
    coefficients: tuple[Elements, ...]
    """Of the masks' shape, or one number for all of a mask."""

    @property
    def ring(self) -> Ring:
        """The ring that the value is in."""
        return self.public.ring

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self.public.shape

    def __add__(self, constant: int | RingArray) -> Lifted:
        """Add a public number."""
        return Lifted(_plus(self.public, constant), self.masks, self.coefficients)

    def __sub__(self, other: Lifted) -> Lifted:
        coefficients = (*self.coefficients, *(-c for c in other.coefficients))
        return Lifted(self.public - other.public, (*self.masks, *other.masks), coefficients)

    def map(self, operation: Callable[[Elements], Elements]) -> Lifted:
        """Return the value under a linear operation on elements, such as indexing."""
        coefficients = tuple(operation(c) if c.shape else c for c in self.coefficients)
        return Lifted(operation(self.public), tuple(map(operation, self.masks)), coefficients)

    def times(self, constant: int) -> Lifted:
        """Multiply by a public number."""
        scaled = tuple(c * constant for c in self.coefficients)
        return Lifted(self.public * constant, self.masks, scaled)

    def take(self, last: Indices) -> Lifted:
        """Return some positions of the last axis."""
        return self.map(lambda a: a[..., last])

    def share(self, runtime: Runtime) -> Share:
        """Return the value as an additive share; the first participant adds what is public."""
        if not self.public.known:
            return Share.unknown(self.shape, self.ring)
        part = self.public.array if runtime.index == 0 else self.ring.zeros(self.shape)
        for mask, coefficient in zip(self.masks, self.coefficients, strict=True):
            part = part + mask.array * coefficient.array
        return Share(part, self.ring)


def _plus(x: Elements, constant: int | RingArray) -> Elements:
    return Elements(x.ring.add(x.array, x.ring.array(constant)), x.ring) if x.known else x


def _shifted(x: Elements, drop: int) -> Elements:
    return Elements(x.ring.reduce(x.array) >> x.ring.dtype.type(drop), x.ring)


def _reduced(x: Elements, bits: int) -> Elements:
    return Elements(x.array & x.ring.dtype.type((1 << bits) - 1), x.ring)


class Mask(OpeningGate):
    """Mask shared values: the one opening that a masked value costs.

    1. The dealer draws [r].
    2. Open [x] + [r]; x is that less r.

    Cost: one opening of all values together. Reveals: nothing. Error: none.
    """

    name = "mask"

    def deal(
        self, dealer: Dealer, *values: Share, meanwhile: Meanwhile | None = None
    ) -> list[Masked]:
        """Draw masks."""
        masks = [dealer.uniform(x.shape, x.ring) for x in values]
        return [Masked(Elements.unknown(r.shape, r.ring), r) for r in masks]

    def run(
        self, party: Party, *values: Share, meanwhile: Meanwhile | None = None
    ) -> Opening[list[Masked]]:
        """Open all values in one round."""
        masks = [party.uniform(x.shape, x.ring) for x in values]
        if meanwhile is not None:
            meanwhile(list(masks))
        opened = yield [x + r for x, r in zip(values, masks, strict=True)]
        return [Masked(Elements(c, r.ring), r) for c, r in zip(opened, masks, strict=True)]

    def count(
        self, counter: Counter, *values: Share, meanwhile: Meanwhile | None = None
    ) -> tuple[Sequence[Share], list[Masked]]:
        """Count the opening."""
        return values, [unknown_masked(x.shape, x.ring) for x in values]


class Lift(Gate):
    """Turn a masked value 0 <= x < 2^(w-1), w the ring's bits, into an integer, divided by 2^shift.

    1. The dealer derives [u] = [r >> shift] and [m], the top bit of r, over the larger ring.
    2. With b = 1 - (top bit of public): x >> shift = (public >> shift) - [u] + b 2^(w-shift) [m].

    x + r wraps around if and only if r has its top bit and the sum has not.

    Cost: no opening; corrections for u, and for m unless it vanishes in the larger ring. Reveals:
    nothing. Error: exact for shift = 0; otherwise x / 2^shift, rounded down or up.
    """

    name = "lift"

    def deal(self, dealer: Dealer, x: Masked, *, shift: int = 0, ring: Ring = Z64) -> Lifted:
        """Derive the mask's integer parts."""
        masks = _derived(dealer, x, shift, ring)
        unknown = Elements.unknown(x.shape, ring)
        return Lifted(unknown, masks, (unknown,) * len(masks))

    def run(self, party: Party, x: Masked, *, shift: int = 0, ring: Ring = Z64) -> Lifted:
        """Find out from the public part whether the sum wrapped around."""
        c, kind = x.ring.reduce(x.public.array), x.ring.dtype.type
        masks = tuple(party.derived(x.shape, ring) for _ in range(_masks(x, shift, ring)))
        public = (c >> kind(shift)).astype(ring.dtype)
        coefficients = [Elements(ring.array(-1), ring)]
        if len(masks) == 2:
            low = (c >> kind(x.ring.bits - 1)) == 0
            power = ring.dtype.type(x.ring.bits - shift)
            coefficients.append(Elements(low.astype(ring.dtype) << power, ring))
        return Lifted(Elements(public, ring), masks, tuple(coefficients))

    def count(self, counter: Counter, x: Masked, *, shift: int = 0, ring: Ring = Z64) -> Lifted:
        """Count the mask, and its top bit where it matters."""
        masks = _derived(counter, x, shift, ring)
        return Lifted(masks[0], masks, masks)


def _masks(x: Masked, shift: int, ring: Ring) -> int:
    """Return how many masks a lifted value has: the top bit may vanish in the larger ring."""
    return 2 if x.ring.bits - shift < ring.bits else 1


def _derived(dealer: Dealer | Counter, x: Masked, shift: int, ring: Ring) -> tuple[Elements, ...]:
    if _masks(x, shift, ring) == 1:
        return (derive_quotient(dealer, x.mask, shift, ring),)
    return derive_integer(dealer, x.mask, shift, ring)


mask = Mask()
lift = Lift()


def mask_one(runtime: Runtime, value: Share) -> Masked:
    """Mask one shared value."""
    (masked,) = mask(runtime, value)
    return masked


def signed_lift(runtime: Runtime, x: Masked, shift: int = 0, ring: Ring = Z64) -> Lifted:
    """Lift a value that may be negative: |x| < 2^(w-2)."""
    sign = 1 << (x.ring.bits - 2)
    return lift(runtime, x + sign, shift=shift, ring=ring) + -(sign >> shift)
