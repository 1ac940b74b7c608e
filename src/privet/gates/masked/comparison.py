"""Comparison of masked values with public thresholds, by tables of digits.

The mask's bits are known to the dealer, so `public < mask` is a comparison of a public number with
dealt digits. Each digit is looked up in a dealt table at the public digit, the lookups are added
up, and the top bit of the sum is the answer: one opening of a bit or two for every digit.

The answer stays what it is made of, a public choice among dealt bits, until it is needed as a
factor (`multiply_by_step`): then products of these bits are dealt, and nothing is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Z1, Z8, Ring, RingArray, get_integer_ring
from privet.arithmetic.shares import Elements, Share
from privet.gates.gate import Gate, OpeningGate, OpeningSteps
from privet.gates.masked.value import LiftedValue, MaskedValue
from privet.runtime.correlations.correlation import Correlation, THolderInput
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import CostCounter
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime, Shape


@dataclass(frozen=True, eq=False, repr=False)
class MaskedComparison:
    """Whether values reach thresholds: shape (thresholds, *values).

    Participants know which of the dealt bits the answer is, and whether it is inverted; the dealer
    knows the bits. Neither knows the answer.
    """

    shape: tuple[int, ...]
    digits: int
    bit_indices: npt.NDArray[np.intp] | None = None
    is_direct: npt.NDArray[np.bool_] | None = None
    """Where the answer is the dealt bit; elsewhere it is the other one."""
    masks: tuple[Elements, ...] = ()
    """To dealers: rho, of this shape, and the bit of the values' masks that turns answers round."""

    @property
    def n_dealt_bits(self) -> int:
        """How many bits are dealt for every answer."""
        return 1 << (self.digits - 1)

    def __getitem__(self, threshold: int) -> MaskedComparison:
        """Return the answers for one threshold, without that axis."""
        rho, *others = self.masks or (None,)
        return MaskedComparison(
            self.shape[1:],
            self.digits,
            None if self.bit_indices is None else self.bit_indices[threshold],
            None if self.is_direct is None else self.is_direct[threshold],
            () if rho is None else (rho[threshold], *others),
        )


class DigitTable(Correlation):
    """Of a digit of a mask, at every d, what `Compare` looks up.

    Masks: the mask itself, (N,), and the carry into the digit, b ^ c with b at the client and c at
    the servers. The digit is that of S, T's and the carry together: the client shares a one-hot
    vector of S + b, and one of S + 1 - b, of which servers take one, and rotate it by T.
    """

    def __init__(self, start: int, length: int, ring: Ring, *, lowest: bool) -> None:
        self._start, self._length, self._ring = start, length, ring
        self._lowest = lowest
        self._options = np.arange(1 << length)[:, None]

    def shape(self, *masks: Shape) -> Shape:
        """Return one number for every d."""
        return len(self._options), masks[0][0]

    def list_s_terms(self, ring: Ring, *masks: Shape) -> list[tuple[Ring, Shape]]:
        """Return a vector for each carry, if there may be one."""
        return [(ring, self.shape(*masks))] * (2 if self._start else 1)

    def compute_plain(self, *s: RingArray) -> RingArray:
        """Compare the digit with every d."""
        value, options = self._digit(s[0]), self._options.astype(s[0].dtype)
        table = (value > options).astype(np.uint8)
        if not self._lowest:
            table += table
            table += value == options
        return table

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Return one-hot vectors, for either carry."""
        digit = self._digit(s[0]).astype(np.intp)
        if not self._start:
            return [self._encode_one_hot(digit)]
        carry = Z1.reduce_modulus(s[1]).astype(np.intp)
        return [self._encode_one_hot(digit + carry), self._encode_one_hot(digit + 1 - carry)]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Choose, rotate, and add up."""
        hot = held.s_term_shares[0]
        if self._start:
            hot = np.where(
                Z1.reduce_modulus(held.t_parts[1]).astype(bool), held.s_term_shares[1], hot
            )
        digit = self._digit(held.t_parts[0])
        for bit in range(self._length):  # bit by bit: faster than to look every entry up
            taken = (digit >> digit.dtype.type(bit) & digit.dtype.type(1)).astype(np.uint8)
            hot = hot ^ ((np.roll(hot, 1 << bit, axis=0) ^ hot) & (np.uint8(0) - taken))
        greater = np.zeros_like(hot)
        for d in reversed(range(len(hot) - 1)):
            np.add(greater[d + 1], hot[d + 1], out=greater[d])
        return greater if self._lowest else np.asarray(greater + greater + hot)

    def _digit(self, part: RingArray) -> RingArray:
        kind = part.dtype.type
        found: RingArray = (part >> kind(self._start)) & kind((1 << self._length) - 1)
        return found

    def _encode_one_hot(self, digit: npt.NDArray[np.intp]) -> RingArray:
        options = len(self._options)
        return np.asarray((digit & (options - 1)) == self._options, dtype=np.uint8)


class ComparisonBits:
    """The dealt bits of a comparison, (options, *shape), as recipes make them of its masks.

    Bit k is the top bit of k - rho, turned round by a bit of the values' masks.
    """

    def __init__(self, comparison: MaskedComparison) -> None:
        self._half = comparison.n_dealt_bits
        self._k = np.arange(self._half).reshape(-1, *[1] * len(comparison.shape))

    def compute_from_s(self, rho: RingArray, top: RingArray) -> RingArray:
        """Return the bits that follow from S."""
        k = self._k.astype(np.uint8)
        bits = ((k - rho) & np.uint8(2 * self._half - 1)) >= np.uint8(self._half)
        return np.asarray(bits ^ Z1.reduce_modulus(top))

    def rotate_by_t(
        self, shared: RingArray, rho: RingArray, top: RingArray
    ) -> tuple[RingArray, npt.NDArray[np.bool_]]:
        """Return shares of the bits, or of multiples of them, and where these are inverted.

        From those that follow from S: (..., options, *shape).
        """
        k = (self._k - rho.astype(np.intp)) & (2 * self._half - 1)
        inverted = (k >= self._half) ^ Z1.reduce_modulus(top).astype(bool)
        where = k & (self._half - 1)
        axis = shared.ndim - where.ndim
        where = where.reshape(*[1] * axis, *where.shape)
        return np.take_along_axis(shared, where, axis=axis), inverted


_MAX_DIGIT_BITS = 9


class Compare(OpeningGate):
    """Compare masked values with public thresholds.

    Values are taken modulo 2^width, and x - t lies between -2^(width-1) and 2^(width-1).

    1. x - t is negative if the top bits of c = public - t and of the mask r and a borrow, whether
       the rest of c is below the rest of r, add up to an odd number.
    2. The dealer deals a table for each of r's L digits, at every d: [digit > d] for the lowest,
       2 [digit > d] + [digit = d] for the others. Participants look c's digits up, and add them up
       modulo 2^L: digit j counts 2^(j-1) times, the lowest once. The borrow is the top bit.
    3. Open the sum V under a mask rho. The top bit of V = opened - rho is, for an opened k below
       2^(L-1), a function of rho, and for k + 2^(L-1) the opposite: one of 2^(L-1) bits that the
       dealer knows, with r's top bit in them.

    Cost: one opening of L bits a comparison. Reveals: nothing. Error: none.
    """

    name = "compare"

    def deal(
        self,
        dealer: Dealer,
        x: MaskedValue,
        thresholds: tuple[int, ...],
        width: int,
        digits: int,
    ) -> MaskedComparison:
        """Deal tables of digits, and draw the mask of their sum."""
        top = _derive_tables(dealer, x, width, digits)
        ring, shape = get_integer_ring(digits), (len(thresholds), x.mask.size)
        rho = dealer.uniform(shape, ring)
        whole = (len(thresholds), *x.shape)
        return MaskedComparison(whole, digits, masks=(rho.reshape(*whole), top))

    def run(
        self,
        party: Party,
        x: MaskedValue,
        thresholds: tuple[int, ...],
        width: int,
        digits: int,
    ) -> OpeningSteps[MaskedComparison]:
        """Look digits up, and open their sum."""
        public = x.public.array.reshape(-1)
        kind, places = public.dtype.type, np.arange(len(public))
        c = public[None, :] - np.array(thresholds, dtype=np.int64).astype(public.dtype)[:, None]
        total = np.zeros(c.shape, dtype=np.uint8)
        for j, (start, length) in enumerate(_places(width, digits)):
            table = party.derived((1 << length, len(public)), _table_ring(j, digits)).part
            digit = ((c >> kind(start)) & kind((1 << length) - 1)).astype(np.intp)
            # Digits are below the table's length by their making, so positions need no check.
            found = table.reshape(-1).take(digit * len(places) + places, mode="clip")
            total += found << np.uint8(max(0, j - 1))
        ring = get_integer_ring(digits)
        rho = party.uniform(c.shape, ring)
        (opened,) = yield [Share(total, ring) + rho]
        odd = ((c >> kind(width - 1)) & kind(1)).astype(np.bool_)
        half = 1 << (digits - 1)
        shape = (len(thresholds), *x.shape)
        which = (opened & np.uint8(half - 1)).astype(np.intp)
        # Reached is the opposite of negative.
        straight = odd ^ (opened >= half)
        return MaskedComparison(shape, digits, which.reshape(shape), straight.reshape(shape))

    def count(
        self,
        counter: CostCounter,
        x: MaskedValue,
        thresholds: tuple[int, ...],
        width: int,
        digits: int,
    ) -> tuple[Sequence[Share], MaskedComparison]:
        """Count tables of digits, and the opening."""
        count = prod(x.shape)
        top = _derive_tables(counter, x, width, digits)
        total = Share.unknown((len(thresholds), count), get_integer_ring(digits))
        shape = (len(thresholds), *x.shape)
        return [total], MaskedComparison(shape, digits, masks=(total.reshape(*shape), top))


def _derive_tables(
    dealer: Dealer | CostCounter, x: MaskedValue, width: int, digits: int
) -> Elements:
    """Derive the tables of digits; return the top bit of the masks."""
    first, end = x.bit_window or (0, x.ring.bits)
    starts = [first + start for start, _ in _places(width, digits)]
    place = first + width - 1
    r = x.mask.reshape(-1)
    carries, top = dealer.derive_carries(r, starts, place if place < end else None)
    for j, (start, (_, length)) in enumerate(zip(starts, _places(width, digits), strict=True)):
        ring = _table_ring(j, digits)
        dealer.derive(DigitTable(start, length, ring, lowest=not j), ring, r, carries[j])
    return top.reshape(*x.shape)


class MultiplyByStep(Gate):
    """Multiply lifted values by a public number that depends on how many thresholds are reached.

    `factors[e]` is the number where e of them are; thresholds rise. The product is
    factors[0] x + sum over e of (factors[e] - factors[e-1]) [reached e] x.

    1. The dealer derives the products of every dealt bit with the masks of x.
    2. Participants take those of the bit that the answer is.

    Cost: no opening; corrections of 2^(L-1) elements for each threshold and each mask of x, and one
    more. Reveals: nothing. Error: none; the result must fit the ring.
    """

    name = "step"

    def deal(
        self,
        dealer: Dealer,
        comparison: MaskedComparison,
        x: LiftedValue,
        *,
        factors: tuple[int, ...],
    ) -> Share:
        """Deal bits, and their products with masks."""
        if not comparison.shape[0]:
            return Share.unknown(x.shape, x.ring)
        dealer.derive(_ComparisonProducts(comparison, x), x.ring, *comparison.masks, *x.masks)
        return Share.unknown(x.shape, x.ring)

    def run(
        self,
        party: Party,
        comparison: MaskedComparison,
        x: LiftedValue,
        *,
        factors: tuple[int, ...],
    ) -> Share:
        """Add up the products of the right bits."""
        if not comparison.shape[0]:
            return x.to_share(party) * factors[0]
        assert comparison.bit_indices is not None
        assert comparison.is_direct is not None
        ring = x.ring
        dealt = party.derived(_find_products_shape(comparison, x), ring).part
        found = np.take_along_axis(dealt, comparison.bit_indices[None, None], axis=1)[:, 0]
        steps = ring.to_elements(np.diff(factors)).reshape(-1, *[1] * len(x.shape))
        sign = np.where(comparison.is_direct, steps, ring.negate(steps))
        # A bit is what was dealt, or 1 less that.
        whole = ring.to_elements(factors[0]) + np.where(
            comparison.is_direct, ring.to_elements(0), steps
        ).sum(axis=0, dtype=ring.dtype)
        total = x.public.array * (found[0] * sign).sum(axis=0, dtype=ring.dtype)
        if party.index == 0:
            total = total + x.public.array * whole
        for k, (mask, weight) in enumerate(zip(x.masks, x.coefficients, strict=True), start=1):
            part = (found[k] * sign).sum(axis=0, dtype=ring.dtype)
            part += mask.array * whole
            total += weight.array * part
        return Share(total, ring)

    def count(
        self,
        counter: CostCounter,
        comparison: MaskedComparison,
        x: LiftedValue,
        *,
        factors: tuple[int, ...],
    ) -> Share:
        """Count bits, and their products."""
        if not comparison.shape[0]:
            return Share.unknown(x.shape, x.ring)
        counter.derive(_ComparisonProducts(comparison, x), x.ring, *comparison.masks, *x.masks)
        return Share.unknown(x.shape, x.ring)


class _ComparisonProducts(Correlation):
    """The bits of a comparison, and their products with masks."""

    def __init__(self, comparison: MaskedComparison, x: LiftedValue) -> None:
        self._bits, self._ring = ComparisonBits(comparison), x.ring
        self._shape = _find_products_shape(comparison, x)

    def shape(self, *masks: Shape) -> Shape:
        """Return that of the bits, once and for every mask."""
        return self._shape

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Multiply what follows from S."""
        bits = self._bits.compute_from_s(*s[:2]).astype(self._ring.dtype)
        return [np.stack([bits, *(bits * mask for mask in s[2:])])]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Move the bits by T, and multiply out."""
        moved, inverted = self._bits.rotate_by_t(held.s_term_shares[0], *held.t_parts[:2])
        for k, mask in enumerate(held.t_parts[2:], start=1):
            moved[k] += moved[0] * mask
        whole = [
            self._ring.to_elements(int(held.is_first)),
            *(held.get_mask_share(k) for k in range(2, len(held.t_parts))),
        ]
        for row, all_of_it in zip(moved, whole, strict=True):
            np.subtract(all_of_it, row, out=row, where=inverted)
        return moved


def _find_products_shape(comparison: MaskedComparison, x: LiftedValue) -> tuple[int, ...]:
    return (1 + len(x.masks), comparison.n_dealt_bits, *comparison.shape)


compare = Compare()
multiply_by_step = MultiplyByStep()


def count_thresholds_reached(
    runtime: Runtime, x: MaskedValue, thresholds: tuple[int, ...], width: int
) -> Share:
    """Return how many of rising thresholds each value reaches, over Z8: one opening."""
    digits = choose_digit_count(width)
    reached = compare(runtime, x, thresholds=thresholds, width=width, digits=digits)
    return multiply_by_step(
        runtime,
        reached,
        make_lifted_one(runtime, x.shape, Z8),
        factors=tuple(range(len(thresholds) + 1)),
    )


def make_lifted_one(runtime: Runtime, shape: tuple[int, ...], ring: Ring) -> LiftedValue:
    """Return the number 1 as a lifted value, which has no masks."""
    return LiftedValue(runtime.as_opened(np.broadcast_to(ring.to_elements(1), shape), ring), (), ())


@lru_cache(maxsize=64)
def choose_digit_count(width: int, factor_bits: int = 8) -> int:
    """Return how many digits make the dealer send least: tables, and bits for `multiply_by_step`.

    Of each bit, what is multiplied with it: a byte, if only answers are counted.
    """

    def dealt(digits: int) -> int:
        tables = (
            _table_ring(j, digits).bits << n for j, (_, n) in enumerate(_places(width, digits))
        )
        return sum(tables) + factor_bits * (1 << (digits - 1))

    shortest = -(-(width - 1) // _MAX_DIGIT_BITS)
    return min(range(shortest, min(8, width - 1) + 1), key=dealt)


def _table_ring(digit: int, digits: int) -> Ring:
    """Return the ring of a digit's table: it counts 2^(digit-1) times modulo 2^digits."""
    return get_integer_ring(digits - max(0, digit - 1))


def _places(width: int, digits: int) -> list[tuple[int, int]]:
    """Return where the digits of the lower width - 1 bits start, and how long they are.

    Tables of higher ones have fewer bits, so they are the longer ones.
    """
    short, longer = divmod(width - 1, digits)
    lengths = [short] * (digits - longer) + [short + 1] * longer
    starts = [sum(lengths[:j]) for j in range(digits)]
    return list(zip(starts, lengths, strict=True))
