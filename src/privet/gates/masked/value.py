"""Masked values: masking, lifting, lattice masks (ring-LWE), and gates by blocks of rows.

Two forms, both linear combinations of masks with public coefficients:

    Masked   x = public - mask                    modulo the ring, one mask
    Lifted   x = public + sum of c_i * mask_i     over a larger ring, where x fits as an integer

A value is masked by opening it once (`mask`). From then on its products with other masked values,
its integer value, its quotient by a power of two and its comparisons with public numbers follow
from what the dealer deals, without a message between participants.

What is public is known to participants. Of a mask, the dealer has all and a participant its share.
Whatever somebody does not have is unknown to it: `Elements` with a shape alone.

A mask is S + T, modulo a ring of w bits. Its bits from k on are those of S and of T, added, and a
carry into bit k; what they add up to beyond the ring is a carry out of it. Carries are masks of one
bit each (`Dealer.derive_carries`): S ^ T, which is S + T - 2ST.

A mask r = P s + e (`arithmetic.lattice`) of every vector: participants draw s and e, small, from
the seeds that they share with dealers, and each has r as its share of the mask. To whoever lacks
one participant's seed, what is opened is uniform, as far as ring-LWE is hard. A share of such a
mask has a structure, so it must never be sent without a fresh uniform mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from privet.arithmetic import large_arrays
from privet.arithmetic.ring_lwe import RingLwe, binomial, ternary
from privet.arithmetic.rings import Z1, Z64, Ring, RingArray
from privet.arithmetic.shares import Elements, Share, concatenate
from privet.arrays import IndexSelection
from privet.gates.gate import Gate, OpeningGate, OpeningSteps
from privet.runtime.correlations.correlation import Correlation, THolderInput
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import CostCounter
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime, Shape


class Quotient(Correlation):
    """A mask as an integer divided by 2^shift, rounded down, over some ring.

    Masks: the mask itself, and carries (k, ...) into the bit at `shift` and out of the mask's ring,
    as far as they matter.
    """

    def __init__(self, mask_ring: Ring, shift: int, ring: Ring) -> None:
        self._whole, self._shift, self._ring = mask_ring, shift, ring
        self.carry_places = [
            *([shift] if shift else []),
            *([mask_ring.bits] if mask_ring.bits - shift < ring.bits else []),
        ]
        """Into which bits they are needed."""

    def shape(self, *masks: Shape) -> Shape:
        """Return the mask's."""
        return masks[0]

    def list_s_terms(self, ring: Ring, *masks: Shape) -> list[tuple[Ring, Shape]]:
        """Return S, divided, and the carries."""
        return [(ring, masks[0])] * (1 + len(self.carry_places))

    def compute_plain(self, *s: RingArray) -> RingArray:
        """Divide the mask."""
        short: RingArray = self._whole.reduce_modulus(s[0]) >> self._whole.dtype.type(self._shift)
        return short.astype(self._ring.dtype)

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Divide S, and take the carries' S."""
        return [self.compute_plain(s[0]), *(bit.astype(self._ring.dtype) for bit in _bits(s[1]))]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Add T, divided, and the carries."""
        total = (
            held.s_term_shares[0] + self.compute_plain(held.t_parts[0])
            if held.is_first
            else held.s_term_shares[0].copy()
        )
        for place, shared, t in zip(
            self.carry_places, held.s_term_shares[1:], _bits(held.t_parts[1]), strict=True
        ):
            carry = _exclusive(shared, t, held.is_first, self._ring)
            if place == self._shift:
                total += carry
            else:
                total -= carry << self._ring.dtype.type(self._whole.bits - self._shift)
        return total


class RingBit(Correlation):
    """A mask of one bit, S ^ T, over another ring."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.s_shares: RingArray | None = None
        """A server's share of S, once it has it."""

    def shape(self, *masks: Shape) -> Shape:
        """Return the bit's."""
        return masks[0]

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Take S."""
        return [Z1.reduce_modulus(s[0]).astype(self._ring.dtype)]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Multiply with 1 - 2T, and add T."""
        self.s_shares = held.s_term_shares[0]
        return _exclusive(
            held.s_term_shares[0], Z1.reduce_modulus(held.t_parts[0]), held.is_first, self._ring
        )


def _bits(carries: RingArray) -> Sequence[RingArray]:
    return list(Z1.reduce_modulus(carries))


def _exclusive(shared: RingArray, t: RingArray, first: bool, ring: Ring) -> RingArray:
    """Return a share of S ^ T, from one of S."""
    bit = t.astype(ring.dtype)
    result: RingArray = shared * (ring.to_elements(1) - bit - bit)
    return result + bit if first else result


def derive_quotient(
    dealer: Dealer | CostCounter, mask: Elements, shift: int, ring: Ring
) -> Elements:
    """Derive a mask divided by 2^shift, rounded down: a mask of its own."""
    recipe = Quotient(mask.ring, shift, ring)
    carries, _ = dealer.derive_carries(mask, recipe.carry_places)
    return dealer.derive(recipe, ring, mask, carries, as_mask=True)


def derive_quotient_and_msb(
    dealer: Dealer | CostCounter, mask: Elements, shift: int, ring: Ring
) -> tuple[Elements, Elements]:
    """Derive a mask divided by 2^shift, rounded down, and its top bit: masks of their own."""
    recipe = Quotient(mask.ring, shift, ring)
    carries, top = dealer.derive_carries(mask, recipe.carry_places, mask.ring.bits - 1)
    quotient = dealer.derive(recipe, ring, mask, carries, as_mask=True)
    return quotient, dealer.derive(RingBit(ring), ring, top, as_mask=True)


MasksCallback = Callable[[list[Elements]], None]
"""Begins work on fresh masks, which goes on while what they mask is opened."""


@dataclass(frozen=True, eq=False)
class MaskedValue:
    """x = public - mask, modulo the ring."""

    public: Elements
    mask: Elements
    is_constant: bool = False
    """Whether the mask is zero, because everybody knows the value."""
    bit_window: tuple[int, int] | None = None
    """Which bits of the mask count, to a dealer, if not all do; for comparisons alone."""

    @property
    def ring(self) -> Ring:
        """The ring that the value is in."""
        return self.mask.ring

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self.mask.shape

    def map(self, operation: Callable[[Elements], Elements]) -> MaskedValue:
        """Return the value under a linear operation, such as indexing or a sum."""
        return MaskedValue(
            operation(self.public), operation(self.mask), self.is_constant, self.bit_window
        )

    def __getitem__(self, key: int | slice) -> MaskedValue:
        return self.map(lambda x: x[key])

    def __add__(self, constant: int | RingArray) -> MaskedValue:
        """Add a public number."""
        return MaskedValue(
            _plus(self.public, constant), self.mask, self.is_constant, self.bit_window
        )

    def __sub__(self, other: MaskedValue) -> MaskedValue:
        return MaskedValue(self.public - other.public, self.mask - other.mask)

    def drop_low_bits(self, drop: int) -> MaskedValue:
        """Return the value without its low bits, up to one unit: for comparisons alone.

        A participant's share of the mask cannot be shortened so, and is not needed there.
        """
        if drop == 0:
            return self
        if self.public.known:
            return MaskedValue(_shifted(self.public, drop), Elements.unknown(self.shape, self.ring))
        return MaskedValue(self.public, self.mask, bit_window=(drop, self.ring.bits))

    def keep_low_bits(self, bits: int) -> MaskedValue:
        """Return what is public less the mask, each modulo 2^bits: for comparisons alone.

        It is negative where the value's low bits took from its high ones. A participant's share of
        the mask cannot be shortened so, and is not needed there.
        """
        if self.public.known:
            return MaskedValue(_reduced(self.public, bits), Elements.unknown(self.shape, self.ring))
        return MaskedValue(self.public, self.mask, bit_window=(0, bits))

    def to_lifted(self) -> LiftedValue:
        """Return the value as a lifted one over its own ring, where it wraps around as ever."""
        minus = Elements(self.ring.to_elements(-1), self.ring)
        return LiftedValue(self.public, (self.mask,), (minus,))

    def to_share(self, runtime: Runtime) -> Share:
        """Return the value as an additive share; the first participant adds what is public."""
        if not (self.public.known and self.mask.known):
            return Share.unknown(self.shape, self.ring)
        part = self.ring.negate(self.mask.array)
        if runtime.index == 0:
            part = self.ring.add(part, self.public.array)
        return Share(part, self.ring)


def map_together(
    operation: Callable[[list[Elements]], Elements], *values: MaskedValue
) -> MaskedValue:
    """Return masked values under a linear operation on all of them, such as stacking."""
    assert all(x.bit_window is None for x in values)
    return MaskedValue(operation([x.public for x in values]), operation([x.mask for x in values]))


def unknown_masked(shape: tuple[int, ...], ring: Ring) -> MaskedValue:
    """Return what a counter has of a masked value: its shape."""
    unknown = Elements.unknown(shape, ring)
    return MaskedValue(unknown, unknown)


def mask_constant(runtime: Runtime, values: RingArray, ring: Ring) -> MaskedValue:
    """Return numbers that everybody knows as a masked value, with a mask of zeros."""
    none = runtime.zero_mask(values.shape, ring)
    return MaskedValue(runtime.as_opened(values, ring), none, is_constant=True)


@dataclass(frozen=True, eq=False)
class LiftedValue:
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

    def __add__(self, constant: int | RingArray) -> LiftedValue:
        """Add a public number."""
        return LiftedValue(_plus(self.public, constant), self.masks, self.coefficients)

    def __sub__(self, other: LiftedValue) -> LiftedValue:
        coefficients = (*self.coefficients, *(-c for c in other.coefficients))
        return LiftedValue(self.public - other.public, (*self.masks, *other.masks), coefficients)

    def map(self, operation: Callable[[Elements], Elements]) -> LiftedValue:
        """Return the value under a linear operation on elements, such as indexing."""
        coefficients = tuple(operation(c) if c.shape else c for c in self.coefficients)
        return LiftedValue(operation(self.public), tuple(map(operation, self.masks)), coefficients)

    def scale(self, constant: int) -> LiftedValue:
        """Multiply by a public number."""
        scaled = tuple(c * constant for c in self.coefficients)
        return LiftedValue(self.public * constant, self.masks, scaled)

    def take(self, last: IndexSelection) -> LiftedValue:
        """Return some positions of the last axis."""
        return self.map(lambda a: a[..., last])

    def to_share(self, runtime: Runtime) -> Share:
        """Return the value as an additive share; the first participant adds what is public."""
        if not self.public.known:
            return Share.unknown(self.shape, self.ring)
        part = self.public.array if runtime.index == 0 else self.ring.zeros(self.shape)
        for mask, coefficient in zip(self.masks, self.coefficients, strict=True):
            part = part + mask.array * coefficient.array
        return Share(part, self.ring)


def _plus(x: Elements, constant: int | RingArray) -> Elements:
    return Elements(x.ring.add(x.array, x.ring.to_elements(constant)), x.ring) if x.known else x


def _shifted(x: Elements, drop: int) -> Elements:
    return Elements(x.ring.reduce_modulus(x.array) >> x.ring.dtype.type(drop), x.ring)


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
        self, dealer: Dealer, *values: Share, on_masks: MasksCallback | None = None
    ) -> list[MaskedValue]:
        """Draw masks."""
        masks = [dealer.uniform(x.shape, x.ring) for x in values]
        return [MaskedValue(Elements.unknown(r.shape, r.ring), r) for r in masks]

    def run(
        self, party: Party, *values: Share, on_masks: MasksCallback | None = None
    ) -> OpeningSteps[list[MaskedValue]]:
        """Open all values in one round."""
        masks = [party.uniform(x.shape, x.ring) for x in values]
        if on_masks is not None:
            on_masks(list(masks))
        opened = yield [x + r for x, r in zip(values, masks, strict=True)]
        return [MaskedValue(Elements(c, r.ring), r) for c, r in zip(opened, masks, strict=True)]

    def count(
        self, counter: CostCounter, *values: Share, on_masks: MasksCallback | None = None
    ) -> tuple[Sequence[Share], list[MaskedValue]]:
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

    def deal(
        self, dealer: Dealer, x: MaskedValue, *, shift: int = 0, ring: Ring = Z64
    ) -> LiftedValue:
        """Derive the mask's integer parts."""
        masks = _derive_masks(dealer, x, shift, ring)
        unknown = Elements.unknown(x.shape, ring)
        return LiftedValue(unknown, masks, (unknown,) * len(masks))

    def run(self, party: Party, x: MaskedValue, *, shift: int = 0, ring: Ring = Z64) -> LiftedValue:
        """Find out from the public part whether the sum wrapped around."""
        c, kind = x.ring.reduce_modulus(x.public.array), x.ring.dtype.type
        masks = tuple(party.derived(x.shape, ring) for _ in range(_masks(x, shift, ring)))
        public = (c >> kind(shift)).astype(ring.dtype)
        coefficients = [Elements(ring.to_elements(-1), ring)]
        if len(masks) == 2:
            low = (c >> kind(x.ring.bits - 1)) == 0
            power = ring.dtype.type(x.ring.bits - shift)
            coefficients.append(Elements(low.astype(ring.dtype) << power, ring))
        return LiftedValue(Elements(public, ring), masks, tuple(coefficients))

    def count(
        self, counter: CostCounter, x: MaskedValue, *, shift: int = 0, ring: Ring = Z64
    ) -> LiftedValue:
        """Count the mask, and its top bit where it matters."""
        masks = _derive_masks(counter, x, shift, ring)
        return LiftedValue(masks[0], masks, masks)


def _masks(x: MaskedValue, shift: int, ring: Ring) -> int:
    """Return how many masks a lifted value has: the top bit may vanish in the larger ring."""
    return 2 if x.ring.bits - shift < ring.bits else 1


def _derive_masks(
    dealer: Dealer | CostCounter, x: MaskedValue, shift: int, ring: Ring
) -> tuple[Elements, ...]:
    if _masks(x, shift, ring) == 1:
        return (derive_quotient(dealer, x.mask, shift, ring),)
    return derive_quotient_and_msb(dealer, x.mask, shift, ring)


mask = Mask()
lift = Lift()


def mask_value(runtime: Runtime, value: Share) -> MaskedValue:
    """Mask one shared value."""
    (masked,) = mask(runtime, value)
    return masked


def lift_signed(runtime: Runtime, x: MaskedValue, shift: int = 0, ring: Ring = Z64) -> LiftedValue:
    """Lift a value that may be negative: |x| < 2^(w-2)."""
    sign = 1 << (x.ring.bits - 2)
    return lift(runtime, x + sign, shift=shift, ring=ring) + -(sign >> shift)


_Kind = TypeVar("_Kind", bound=Elements)


class LatticeMask(OpeningGate):
    """Mask shared vectors, (..., N), by samples of ring-LWE: the one opening that it costs.

    1. Participants and the dealer draw [s], one secret a vector, and [e], one error a row.
    2. Open [x] + P [s] + [e]; x is that less P s + e.

    `meanwhile` is given [s], by which sums are found (`histogram`): dealers need it, too.

    Cost: one opening of all values together. Reveals: nothing, if ring-LWE is hard. Error: none.
    """

    name = "hide"

    def deal(
        self, dealer: Dealer, *values: Share, lattice: RingLwe, on_masks: MasksCallback
    ) -> list[MaskedValue]:
        """Draw secrets and errors."""
        secrets = [dealer.small(ternary, _of_secret(x, lattice), x.ring) for x in values]
        on_masks(secrets)
        masks = [
            _expand_mask(s, dealer.small(binomial, x.shape, x.ring), lattice)
            for s, x in zip(secrets, values, strict=True)
        ]
        return [MaskedValue(Elements.unknown(r.shape, r.ring), r) for r in masks]

    def run(
        self, party: Party, *values: Share, lattice: RingLwe, on_masks: MasksCallback
    ) -> OpeningSteps[list[MaskedValue]]:
        """Open all values in one round."""
        secrets = [party.small(ternary, _of_secret(x, lattice), x.ring) for x in values]
        on_masks(list(secrets))
        masks = [
            _expand_mask(s, party.small(binomial, x.shape, x.ring), lattice)
            for s, x in zip(secrets, values, strict=True)
        ]
        opened = yield [x + r for x, r in zip(values, masks, strict=True)]
        return [MaskedValue(Elements(c, r.ring), r) for c, r in zip(opened, masks, strict=True)]

    def count(
        self, counter: CostCounter, *values: Share, lattice: RingLwe, on_masks: MasksCallback
    ) -> tuple[Sequence[Share], list[MaskedValue]]:
        """Count the opening."""
        on_masks([Elements.unknown(_of_secret(x, lattice), x.ring) for x in values])
        return values, [unknown_masked(x.shape, x.ring) for x in values]


def _of_secret(x: Elements, lattice: RingLwe) -> tuple[int, ...]:
    """Return the shape of the secrets of vectors."""
    return (*x.shape[:-1], lattice.degree)


def _expand_mask(secret: _Kind, error: _Kind, lattice: RingLwe) -> _Kind:
    assert error.shape[-1] == lattice.rows
    return secret.map_last_axis(lattice.expand_secrets, lattice.rows) + error


lattice_mask = LatticeMask()


BLOCK_ROWS = 1 << 18
"""Rows; a multiple of 8, so that packed messages of blocks take as many bytes as one of all."""


def map_row_blocks(x: MaskedValue, gate: Callable[[MaskedValue], Share]) -> Share:
    """Return what a gate without an opening makes of values, block by block of their last axis."""
    if x.shape[-1] <= BLOCK_ROWS:
        return gate(x)

    def of(rows: slice) -> Share:
        return gate(x.map(lambda a: a[..., rows]))

    return concatenate(
        [of(rows) for rows in large_arrays.split_into_blocks(x.shape[-1], BLOCK_ROWS)], axis=-1
    )
