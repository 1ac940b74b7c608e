"""Comparison of masked values with public thresholds, by lookup tables of digits.

The dealer knows the mask's bits, so `public < mask` compares a public number with digits that the
dealer knows. Each public digit is looked up in a derived table, the entries are added, and the top
bit of the sum is the comparison bit: one opening of a bit or two for each digit.

A comparison bit remains a public choice among derived bits until it is needed as a factor
(`multiply_by_step`). Then the dealer derives products of these bits, and nothing is opened.
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
    """Comparison bits: whether values reach thresholds, of shape (thresholds, *values).

    Participants know which of the derived bits a comparison bit is, and whether it is inverted. The
    dealer knows the derived bits. No party knows the comparison bit.
    """

    shape: tuple[int, ...]
    digits: int
    bit_indices: npt.NDArray[np.intp] | None = None
    is_direct: npt.NDArray[np.bool_] | None = None
    """Where the comparison bit is the derived bit; elsewhere it is the inverse."""
    masks: tuple[Elements, ...] = ()
    """At dealers: rho, of this shape, and the bit of the values' masks that inverts the bits."""

    @property
    def n_derived_bits(self) -> int:
        """The number of derived bits for each comparison bit."""
        return 1 << (self.digits - 1)

    def __getitem__(self, threshold: int) -> MaskedComparison:
        """Return the comparison bits for one threshold, without that axis."""
        rho, *others = self.masks or (None,)
        return MaskedComparison(
            self.shape[1:],
            self.digits,
            None if self.bit_indices is None else self.bit_indices[threshold],
            None if self.is_direct is None else self.is_direct[threshold],
            () if rho is None else (rho[threshold], *others),
        )


class DigitTable(Correlation):
    """The table of one digit of a mask in which `Compare` looks up: an entry for every d.

    Masks: the mask itself, (N,), and the carry into the digit, b ^ c, with b at the S holder and c
    at the T holders. The digit is the sum of that of S, that of T, and the carry. The S holder
    shares a one-hot vector of S + b, and one of S + 1 - b. The T holders select one of them by c,
    and rotate it by T.
    """

    def __init__(self, start: int, length: int, ring: Ring, *, lowest: bool) -> None:
        self._start, self._length, self._ring = start, length, ring
        self._lowest = lowest
        self._options = np.arange(1 << length)[:, None]

    def shape(self, *masks: Shape) -> Shape:
        """Return one number for every d."""
        return len(self._options), masks[0][0]

    def list_s_terms(self, ring: Ring, *masks: Shape) -> list[tuple[Ring, Shape]]:
        """Return one vector for each value of the carry, or one vector if there is no carry."""
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
        """Return one-hot vectors, for both values of the carry."""
        digit = self._digit(s[0]).astype(np.intp)
        if not self._start:
            return [self._encode_one_hot(digit)]
        carry = Z1.reduce_modulus(s[1]).astype(np.intp)
        return [self._encode_one_hot(digit + carry), self._encode_one_hot(digit + 1 - carry)]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Select a vector by the carry, rotate it, and sum it."""
        hot = held.s_term_shares[0]
        if self._start:
            hot = np.where(
                Z1.reduce_modulus(held.t_parts[1]).astype(bool), held.s_term_shares[1], hot
            )
        digit = self._digit(held.t_parts[0])
        for bit in range(self._length):  # bit by bit: faster than indexing every entry
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
    """The derived bits of a comparison, (options, *shape), for correlations of its masks.

    Bit k is the top bit of k - rho, inverted by a bit of the values' masks.
    """

    def __init__(self, comparison: MaskedComparison) -> None:
        self._half = comparison.n_derived_bits
        self._k = np.arange(self._half).reshape(-1, *[1] * len(comparison.shape))

    def compute_from_s(self, rho: RingArray, top: RingArray) -> RingArray:
        """Return the bits of S."""
        k = self._k.astype(np.uint8)
        bits = ((k - rho) & np.uint8(2 * self._half - 1)) >= np.uint8(self._half)
        return np.asarray(bits ^ Z1.reduce_modulus(top))

    def rotate_by_t(
        self, shared: RingArray, rho: RingArray, top: RingArray
    ) -> tuple[RingArray, npt.NDArray[np.bool_]]:
        """Return shares of the bits, or of multiples of them, and where these are inverted.

        `shared` has shares of the same for S: (..., options, *shape).
        """
        k = (self._k - rho.astype(np.intp)) & (2 * self._half - 1)
        inverted = (k >= self._half) ^ Z1.reduce_modulus(top).astype(bool)
        index = k & (self._half - 1)
        axis = shared.ndim - index.ndim
        index = index.reshape(*[1] * axis, *index.shape)
        return np.take_along_axis(shared, index, axis=axis), inverted


_MAX_DIGIT_BITS = 9


class Compare(OpeningGate):
    """Compare masked values with public thresholds.

    Values are taken modulo 2^width, and x - t lies between -2^(width-1) and 2^(width-1).

    1. x - t is negative if the sum of three bits is odd: the top bit of c = public - t, the top bit
       of the mask r, and a borrow, whether the rest of c is below the rest of r.
    2. The dealer derives a table for each of r's L digits, with an entry for every d: [digit > d]
       for the lowest, 2 [digit > d] + [digit = d] for the others. Participants look up c's digits,
       and add the entries modulo 2^L: digit j counts 2^(j-1) times, the lowest once. The borrow is
       the top bit of the sum V.
    3. Open V under a mask rho. For an opened k below 2^(L-1), the top bit of V = k - rho is a
       function of rho; for k + 2^(L-1), it is the inverse. So the comparison bit is, perhaps
       inverted, one of 2^(L-1) bits that the dealer knows and that include r's top bit.

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
        """Derive tables of digits, and draw the mask of their sum."""
        top = _derive_tables(dealer, x, width, digits)
        ring, shape = get_integer_ring(digits), (len(thresholds), x.mask.size)
        rho = dealer.uniform(shape, ring)
        full_shape = (len(thresholds), *x.shape)
        return MaskedComparison(full_shape, digits, masks=(rho.reshape(*full_shape), top))

    def run(
        self,
        party: Party,
        x: MaskedValue,
        thresholds: tuple[int, ...],
        width: int,
        digits: int,
    ) -> OpeningSteps[MaskedComparison]:
        """Look up digits, and open the sum of the entries."""
        public = x.public.array.reshape(-1)
        kind, columns = public.dtype.type, np.arange(len(public))
        c = public[None, :] - np.array(thresholds, dtype=np.int64).astype(public.dtype)[:, None]
        total = np.zeros(c.shape, dtype=np.uint8)
        for j, (start, length) in enumerate(_split_digits(width, digits)):
            table = party.derived((1 << length, len(public)), _table_ring(j, digits)).part
            digit = ((c >> kind(start)) & kind((1 << length) - 1)).astype(np.intp)
            # Digits are below the table's length by construction, so positions need no check.
            found = table.reshape(-1).take(digit * len(columns) + columns, mode="clip")
            total += found << np.uint8(max(0, j - 1))
        ring = get_integer_ring(digits)
        rho = party.uniform(c.shape, ring)
        (opened,) = yield [Share(total, ring) + rho]
        odd = ((c >> kind(width - 1)) & kind(1)).astype(np.bool_)
        half = 1 << (digits - 1)
        shape = (len(thresholds), *x.shape)
        bit_indices = (opened & np.uint8(half - 1)).astype(np.intp)
        # A threshold is reached if the difference is not negative.
        is_direct = odd ^ (opened >= half)
        return MaskedComparison(shape, digits, bit_indices.reshape(shape), is_direct.reshape(shape))

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
    starts = [first + start for start, _ in _split_digits(width, digits)]
    top_bit = first + width - 1
    r = x.mask.reshape(-1)
    carries, top = dealer.derive_carries(r, starts, top_bit if top_bit < end else None)
    for j, (start, (_, length)) in enumerate(
        zip(starts, _split_digits(width, digits), strict=True)
    ):
        ring = _table_ring(j, digits)
        dealer.derive(DigitTable(start, length, ring, lowest=not j), ring, r, carries[j])
    return top.reshape(*x.shape)


class MultiplyByStep(Gate):
    """Multiply lifted values by a public number that depends on how many thresholds are reached.

    `factors[e]` is the factor where e thresholds are reached; thresholds are in rising order. The
    product is factors[0] x + sum over e of (factors[e] - factors[e-1]) [reached e] x.

    1. The dealer derives the products of every derived bit with the masks of x.
    2. Participants use the products of the derived bit that is the comparison bit.

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
        """Derive bits, and their products with masks."""
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
        """Add up the products of the comparison bits."""
        if not comparison.shape[0]:
            return x.to_share(party) * factors[0]
        assert comparison.bit_indices is not None
        assert comparison.is_direct is not None
        ring = x.ring
        products = party.derived(_find_products_shape(comparison, x), ring).part
        found = np.take_along_axis(products, comparison.bit_indices[None, None], axis=1)[:, 0]
        steps = ring.to_elements(np.diff(factors)).reshape(-1, *[1] * len(x.shape))
        sign = np.where(comparison.is_direct, steps, ring.negate(steps))
        # A comparison bit is the derived bit, or 1 less it.
        constant = ring.to_elements(factors[0]) + np.where(
            comparison.is_direct, ring.to_elements(0), steps
        ).sum(axis=0, dtype=ring.dtype)
        total = x.public.array * (found[0] * sign).sum(axis=0, dtype=ring.dtype)
        if party.index == 0:
            total = total + x.public.array * constant
        for k, (mask, weight) in enumerate(zip(x.masks, x.coefficients, strict=True), start=1):
            part = (found[k] * sign).sum(axis=0, dtype=ring.dtype)
            part += mask.array * constant
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
        """Return the shape of the bits, once and for every mask."""
        return self._shape

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Multiply the bits of S with S of the masks."""
        bits = self._bits.compute_from_s(*s[:2]).astype(self._ring.dtype)
        return [np.stack([bits, *(bits * mask for mask in s[2:])])]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Rotate the bits by T, and multiply out."""
        rotated, inverted = self._bits.rotate_by_t(held.s_term_shares[0], *held.t_parts[:2])
        for k, mask in enumerate(held.t_parts[2:], start=1):
            rotated[k] += rotated[0] * mask
        totals = [
            self._ring.to_elements(int(held.is_first)),
            *(held.get_mask_share(k) for k in range(2, len(held.t_parts))),
        ]
        for row, total in zip(rotated, totals, strict=True):
            np.subtract(total, row, out=row, where=inverted)
        return rotated


def _find_products_shape(comparison: MaskedComparison, x: LiftedValue) -> tuple[int, ...]:
    return (1 + len(x.masks), comparison.n_derived_bits, *comparison.shape)


compare = Compare()
multiply_by_step = MultiplyByStep()


def count_thresholds_reached(
    runtime: Runtime, x: MaskedValue, thresholds: tuple[int, ...], width: int
) -> Share:
    """Count the thresholds, in rising order, that each value reaches: over Z8, one opening."""
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
    """Return the number of digits for which the dealer sends least.

    It sends tables, and for each derived bit its products in `multiply_by_step`, of `factor_bits`
    bits: a byte, if comparison bits are only counted.
    """

    def count_sent_bits(digits: int) -> int:
        tables = (
            _table_ring(j, digits).bits << n
            for j, (_, n) in enumerate(_split_digits(width, digits))
        )
        return sum(tables) + factor_bits * (1 << (digits - 1))

    shortest = -(-(width - 1) // _MAX_DIGIT_BITS)
    return min(range(shortest, min(8, width - 1) + 1), key=count_sent_bits)


def _table_ring(digit: int, digits: int) -> Ring:
    """Return the ring of a digit's table: it counts 2^(digit-1) times modulo 2^digits."""
    return get_integer_ring(digits - max(0, digit - 1))


def _split_digits(width: int, digits: int) -> list[tuple[int, int]]:
    """Return the first bit and the length of each digit of the lower width - 1 bits.

    Table entries of higher digits have fewer bits, so these digits are the longer ones.
    """
    short, longer = divmod(width - 1, digits)
    lengths = [short] * (digits - longer) + [short + 1] * longer
    starts = [sum(lengths[:j]) for j in range(digits)]
    return list(zip(starts, lengths, strict=True))
