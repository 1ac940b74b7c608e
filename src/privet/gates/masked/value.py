"""Masked values: masking, lifting, lattice masks (ring-LWE), and gates by blocks of rows.

Two forms, both linear combinations of masks with public coefficients:

    MaskedValue   x = public - mask                   modulo the ring, one mask
    LiftedValue   x = public + sum of c_i * mask_i    over a larger ring, where x fits as an integer

A value is masked by opening it once (`mask`). After that, its products with other masked values,
its integer value, its quotient by a power of two and its comparisons with public numbers follow
from correlated randomness, without a message between participants.

Participants know the public part. The dealer knows the whole mask, and each participant its share
of it. Each has unknown `Elements`, with only a shape, for the rest.
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
    """A mask as an integer divided by 2^shift, rounded down, over any ring.

    A mask is S + T, modulo a ring of w bits. Its bits from k on are the sum of those of S, those of
    T, and a carry into bit k; the sum's excess over the ring is a carry out of it. Each carry is a
    mask of one bit (`Dealer.derive_carries`): S ^ T, which is S + T - 2ST.

    Masks: the mask itself, and the carries (k, ...) into the bit at `shift` and out of the mask's
    ring, unless they do not change the result.
    """

    def __init__(self, mask_ring: Ring, shift: int, ring: Ring) -> None:
        self._mask_ring, self._shift, self._ring = mask_ring, shift, ring
        self.carry_places = [
            *([shift] if shift else []),
            *([mask_ring.bits] if mask_ring.bits - shift < ring.bits else []),
        ]
        """The bits into which carries are needed."""

    def shape(self, *masks: Shape) -> Shape:
        """Return the mask's."""
        return masks[0]

    def list_s_terms(self, ring: Ring, *masks: Shape) -> list[tuple[Ring, Shape]]:
        """Return S, divided, and the carries."""
        return [(ring, masks[0])] * (1 + len(self.carry_places))

    def compute_plain(self, *s: RingArray) -> RingArray:
        """Divide the mask."""
        ring = self._mask_ring
        short: RingArray = ring.reduce_modulus(s[0]) >> ring.dtype.type(self._shift)
        return short.astype(self._ring.dtype)

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Divide S, and return it with S of the carries."""
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
            carry = _xor_share(shared, t, held.is_first, self._ring)
            if place == self._shift:
                total += carry
            else:
                total -= carry << self._ring.dtype.type(self._mask_ring.bits - self._shift)
        return total


class RingBit(Correlation):
    """A mask of one bit, S ^ T, over another ring."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.s_shares: RingArray | None = None
        """A T holder's share of S, set by `compute_t_share`."""

    def shape(self, *masks: Shape) -> Shape:
        """Return the bit's."""
        return masks[0]

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Return S."""
        return [Z1.reduce_modulus(s[0]).astype(self._ring.dtype)]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Multiply with 1 - 2T, and add T."""
        self.s_shares = held.s_term_shares[0]
        return _xor_share(
            held.s_term_shares[0], Z1.reduce_modulus(held.t_parts[0]), held.is_first, self._ring
        )


def _bits(carries: RingArray) -> Sequence[RingArray]:
    return list(Z1.reduce_modulus(carries))


def _xor_share(shared: RingArray, t: RingArray, first: bool, ring: Ring) -> RingArray:
    """Return a share of S ^ T, from a share of S."""
    bit = t.astype(ring.dtype)
    result: RingArray = shared * (ring.to_elements(1) - bit - bit)
    return result + bit if first else result


def derive_quotient(
    dealer: Dealer | CostCounter, mask: Elements, shift: int, ring: Ring
) -> Elements:
    """Derive a mask divided by 2^shift and rounded down, as a separate mask."""
    quotient = Quotient(mask.ring, shift, ring)
    carries, _ = dealer.derive_carries(mask, quotient.carry_places)
    return dealer.derive(quotient, ring, mask, carries, as_mask=True)


def derive_quotient_and_msb(
    dealer: Dealer | CostCounter, mask: Elements, shift: int, ring: Ring
) -> tuple[Elements, Elements]:
    """Derive a mask divided by 2^shift and rounded down, and its top bit, as separate masks."""
    correlation = Quotient(mask.ring, shift, ring)
    carries, top = dealer.derive_carries(mask, correlation.carry_places, mask.ring.bits - 1)
    quotient = dealer.derive(correlation, ring, mask, carries, as_mask=True)
    return quotient, dealer.derive(RingBit(ring), ring, top, as_mask=True)


MasksCallback = Callable[[list[Elements]], None]
"""A function that starts work on fresh masks, which continues during their opening."""


@dataclass(frozen=True, eq=False)
class MaskedValue:
    """x = public - mask, modulo the ring."""

    public: Elements
    mask: Elements
    is_constant: bool = False
    """Whether the mask is zero, because the value is public."""
    bit_window: tuple[int, int] | None = None
    """The bits of the mask that a dealer uses, None for all; only for comparisons."""

    @property
    def ring(self) -> Ring:
        """The ring that the value is in."""
        return self.mask.ring

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self.mask.shape

    def map(self, operation: Callable[[Elements], Elements]) -> MaskedValue:
        """Apply a linear operation, such as indexing or a sum."""
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
        """Return the value without its low bits, to within one unit; only for comparisons.

        A participant's share of the mask cannot be shortened like this; comparisons do not use it.
        """
        if drop == 0:
            return self
        if self.public.known:
            return MaskedValue(_shifted(self.public, drop), Elements.unknown(self.shape, self.ring))
        return MaskedValue(self.public, self.mask, bit_window=(drop, self.ring.bits))

    def keep_low_bits(self, bits: int) -> MaskedValue:
        """Return the public part less the mask, each modulo 2^bits; only for comparisons.

        The result is negative where the value's low bits borrowed from its high ones. A
        participant's share of the mask cannot be shortened like this; comparisons do not use it.
        """
        if self.public.known:
            return MaskedValue(_reduced(self.public, bits), Elements.unknown(self.shape, self.ring))
        return MaskedValue(self.public, self.mask, bit_window=(0, bits))

    def to_lifted(self) -> LiftedValue:
        """Return the value as a lifted one over the same ring, where it still wraps around."""
        minus = Elements(self.ring.to_elements(-1), self.ring)
        return LiftedValue(self.public, (self.mask,), (minus,))

    def to_share(self, runtime: Runtime) -> Share:
        """Return the value as an additive share; the first participant adds the public part."""
        if not (self.public.known and self.mask.known):
            return Share.unknown(self.shape, self.ring)
        part = self.ring.negate(self.mask.array)
        if runtime.index == 0:
            part = self.ring.add(part, self.public.array)
        return Share(part, self.ring)


def map_together(
    operation: Callable[[list[Elements]], Elements], *values: MaskedValue
) -> MaskedValue:
    """Apply a linear operation to several masked values, such as stacking."""
    assert all(x.bit_window is None for x in values)
    return MaskedValue(operation([x.public for x in values]), operation([x.mask for x in values]))


def unknown_masked(shape: tuple[int, ...], ring: Ring) -> MaskedValue:
    """Return a masked value of which only the shape is known."""
    unknown = Elements.unknown(shape, ring)
    return MaskedValue(unknown, unknown)


def mask_constant(runtime: Runtime, values: RingArray, ring: Ring) -> MaskedValue:
    """Return public numbers as a masked value, with a mask of zeros."""
    zero_mask = runtime.zero_mask(values.shape, ring)
    return MaskedValue(runtime.as_opened(values, ring), zero_mask, is_constant=True)


@dataclass(frozen=True, eq=False)
class LiftedValue:
    """x = public + sum of c_i * mask_i, over the ring, with public coefficients."""

    public: Elements
    masks: tuple[Elements, ...]
    coefficients: tuple[Elements, ...]
    """Each of its mask's shape, or one number for the whole mask."""

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
        """Apply a linear operation, such as indexing."""
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
        """Return the value as an additive share; the first participant adds the public part."""
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
    """Mask shared values, with the only opening that a masked value needs.

    1. The dealer draws [r].
    2. Open c = [x] + [r]; x = c - r.

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

    x + r wraps around if and only if the top bit of r is 1 and that of the sum is 0.

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
        """Determine from the public part whether the sum wrapped around."""
        c, kind = x.ring.reduce_modulus(x.public.array), x.ring.dtype.type
        masks = tuple(party.derived(x.shape, ring) for _ in range(_count_masks(x, shift, ring)))
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


def _count_masks(x: MaskedValue, shift: int, ring: Ring) -> int:
    """Return the number of a lifted value's masks; the top bit can vanish in the larger ring."""
    return 2 if x.ring.bits - shift < ring.bits else 1


def _derive_masks(
    dealer: Dealer | CostCounter, x: MaskedValue, shift: int, ring: Ring
) -> tuple[Elements, ...]:
    if _count_masks(x, shift, ring) == 1:
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
    offset = 1 << (x.ring.bits - 2)
    return lift(runtime, x + offset, shift=shift, ring=ring) + -(offset >> shift)


_ElementsT = TypeVar("_ElementsT", bound=Elements)


class LatticeMask(OpeningGate):
    """Mask shared vectors, (..., N), by samples of ring-LWE, with one opening.

    The mask of a vector is r = P s + e (`arithmetic.ring_lwe`). Participants draw small s and e
    from the seeds that they share with dealers, and P s + e is a participant's share of the mask.
    To a party that lacks one participant's seed, opened values are uniform, if ring-LWE is hard.
    A share of such a mask has a structure, so it must never be sent without a fresh uniform mask.

    1. Participants and the dealer draw [s], one secret a vector, and [e], one error a row.
    2. Open c = [x] + P [s] + [e]; x = c - (P s + e).

    `on_masks` is called with [s], from which `histogram` computes sums. Dealers need it, too.

    Cost: one opening of all values together. Reveals: nothing, if ring-LWE is hard. Error: none.
    """

    name = "hide"

    def deal(
        self, dealer: Dealer, *values: Share, lattice: RingLwe, on_masks: MasksCallback
    ) -> list[MaskedValue]:
        """Draw secrets and errors."""
        secrets = [dealer.small(ternary, _secret_shape(x, lattice), x.ring) for x in values]
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
        secrets = [party.small(ternary, _secret_shape(x, lattice), x.ring) for x in values]
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
        on_masks([Elements.unknown(_secret_shape(x, lattice), x.ring) for x in values])
        return values, [unknown_masked(x.shape, x.ring) for x in values]


def _secret_shape(x: Elements, lattice: RingLwe) -> tuple[int, ...]:
    """Return the shape of the secrets of vectors."""
    return (*x.shape[:-1], lattice.degree)


def _expand_mask(secret: _ElementsT, error: _ElementsT, lattice: RingLwe) -> _ElementsT:
    assert error.shape[-1] == lattice.rows
    return secret.map_last_axis(lattice.expand_secrets, lattice.rows) + error


lattice_mask = LatticeMask()


BLOCK_ROWS = 1 << 18
"""Rows of a block: a multiple of 8, so that packed blocks take no more bytes than one message."""


def map_row_blocks(x: MaskedValue, gate: Callable[[MaskedValue], Share]) -> Share:
    """Apply a gate without an opening to blocks of the last axis, and join the results."""
    if x.shape[-1] <= BLOCK_ROWS:
        return gate(x)

    def run_block(rows: slice) -> Share:
        return gate(x.map(lambda a: a[..., rows]))

    return concatenate(
        [run_block(rows) for rows in large_arrays.split_into_blocks(x.shape[-1], BLOCK_ROWS)],
        axis=-1,
    )
