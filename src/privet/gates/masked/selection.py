"""Oblivious lookup and selection, and conditional blinding of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Z8, Ring, RingArray
from privet.arithmetic.shares import Elements, Share
from privet.gates.gate import Gate, OpeningGate, OpeningSteps
from privet.gates.masked.comparison import ComparisonBits, MaskedComparison
from privet.gates.masked.value import LiftedValue, MaskedValue
from privet.runtime.correlations.correlation import BilinearProduct, Correlation, THolderInput
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import CostCounter
from privet.runtime.party import Party
from privet.runtime.runtime import Shape


@dataclass(frozen=True)
class LookupResult:
    """Opened positions, which can be compared with any number of public positions."""

    opened: Elements
    """c, over Z8."""
    factors: Sequence[LiftedValue]
    hot: Sequence[Elements]
    """For each factor, [rho = t] for every t and its products with the factor's masks:
    (1 + masks, size, *shape)."""

    def select_at(self, position: int | npt.NDArray[np.intp], factor: int) -> Share:
        """Return a share of a factor where the opened position is `position`, of zero elsewhere."""
        x, hot = self.factors[factor], self.hot[factor]
        if not hot.known:
            return Share.unknown(self.opened.shape, x.ring)
        t = (self.opened.array.astype(np.intp) - position) & (hot.shape[1] - 1)
        found = np.take_along_axis(hot.array, t[None, None], axis=1)[:, 0]
        total = x.ring.zeros(t.shape)
        for products, coefficient in zip(found, (x.public, *x.coefficients), strict=True):
            total += products * coefficient.array
        return Share(total, x.ring)


class Lookup(OpeningGate):
    """Open positions 0 <= p < size, shares over Z8, for lookups times masked values.

    Opening a position under a mask rho gives a public c with position = c - rho. Whether it is a
    given p is [rho = c - p], which is local once the dealer has derived [rho = t] for all t.

    1. The dealer draws [rho] and derives [rho = t] for all t < size, and its products with the
       masks of the values that entries will be multiplied with.
    2. Open [p] + [rho].

    Cost: one opening of a byte a position; corrections of `size` elements for each factor and each
    of its masks. Reveals: nothing. Error: none. `size` is a power of two.
    """

    name = "lookup"

    def deal(
        self,
        dealer: Dealer,
        position: Share,
        factors: Sequence[MaskedValue | LiftedValue],
        *,
        size: int,
    ) -> LookupResult:
        """Derive one-hot vectors, and their products with masks."""
        rho, lifted = dealer.uniform(position.shape, Z8), [as_lifted(x) for x in factors]
        for x in lifted:
            dealer.derive(_OneHotProducts(x.ring, size), x.ring, rho, *x.masks)
        return _unknown_result(position, lifted, size)

    def run(
        self,
        party: Party,
        position: Share,
        factors: Sequence[MaskedValue | LiftedValue],
        *,
        size: int,
    ) -> OpeningSteps[LookupResult]:
        """Open the positions."""
        rho, lifted = party.uniform(position.shape, Z8), [as_lifted(x) for x in factors]
        hot = [party.derived(_one_hot_shape(x, position, size), x.ring) for x in lifted]
        (c,) = yield [position + rho]
        return LookupResult(Elements(c, Z8), lifted, hot)

    def count(
        self,
        counter: CostCounter,
        position: Share,
        factors: Sequence[MaskedValue | LiftedValue],
        *,
        size: int,
    ) -> tuple[Sequence[Share], LookupResult]:
        """Count the opening, and one-hot vectors with their products."""
        lifted = [as_lifted(x) for x in factors]
        for x in lifted:
            counter.derive(_OneHotProducts(x.ring, size), x.ring, position, *x.masks)
        return [position], _unknown_result(position, lifted, size)


class _OneHotProducts(Correlation):
    """[rho = t] for every t, and its products with masks.

    rho = S + T is t where S is t - T, so these are the S holder's vectors, rotated by T.
    """

    def __init__(self, ring: Ring, size: int) -> None:
        self._ring = ring
        self._size = size

    def shape(self, *masks: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of one-hot vectors: one for each mask of a factor, and one more."""
        return (len(masks), self._size, *masks[0])

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Compare S of the position with every t, and multiply with S of the masks."""
        rho = s[0] & np.uint8(self._size - 1)
        options = np.arange(self._size, dtype=np.uint8).reshape(-1, *[1] * rho.ndim)
        hot = (rho == options).astype(self._ring.dtype)
        return [np.stack([hot, *(hot * mask for mask in s[1:])])]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Rotate by T, and add the one-hot vector times T of the masks."""
        options = np.arange(self._size).reshape(-1, *[1] * held.t_parts[0].ndim)
        index = (options - held.t_parts[0].astype(np.intp)) & (self._size - 1)
        rotated = np.take_along_axis(held.s_term_shares[0], index[None], axis=1)
        for k, mask in enumerate(held.t_parts[1:], start=1):
            rotated[k] += rotated[0] * mask
        return rotated


def as_lifted(x: MaskedValue | LiftedValue) -> LiftedValue:
    """Return a masked value in the form of a lifted one, over its own ring."""
    if isinstance(x, LiftedValue):
        return x
    minus_one = Elements(np.broadcast_to(x.ring.to_elements(-1), x.shape), x.ring)
    return LiftedValue(x.public, (x.mask,), (minus_one,))


def _one_hot_shape(x: LiftedValue, position: Share, size: int) -> tuple[int, ...]:
    return (1 + len(x.masks), size, *position.shape)


def _unknown_result(position: Share, factors: Sequence[LiftedValue], size: int) -> LookupResult:
    hot = [Elements.unknown(_one_hot_shape(x, position, size), x.ring) for x in factors]
    return LookupResult(Elements.unknown(position.shape, Z8), factors, hot)


look_up = Lookup()


def lookup_size(largest: int) -> int:
    """Return the power of two that positions up to `largest` need."""
    return 1 << int(largest).bit_length()


class Select(Gate):
    """Return the sum of masked values, (C, ...), each times an element of a masked vector, (C,).

    With v = c - r and x = d - s: the sum of c x - r d + r s.

    1. The dealer derives the sum of [r s].

    Cost: no opening; corrections of the result's size. Reveals: nothing. Error: none.
    """

    name = "pick"

    def deal(self, dealer: Dealer, v: MaskedValue, x: MaskedValue) -> Share:
        """Derive the sum of products of masks."""
        dealer.derive(_make_select_correlation(x), x.ring, v.mask, x.mask)
        return Share.unknown(x.shape[1:], x.ring)

    def run(self, party: Party, v: MaskedValue, x: MaskedValue) -> Share:
        """Add up what is public times shares."""
        products = party.derived(x.shape[1:], x.ring).part
        part = _contract(v.public.array, x.to_share(party).part)
        return Share(part - _contract(v.mask.array, x.public.array) + products, x.ring)

    def count(self, counter: CostCounter, v: MaskedValue, x: MaskedValue) -> Share:
        """Count the products."""
        counter.derive(_make_select_correlation(x), x.ring, v.mask, x.mask)
        return Share.unknown(x.shape[1:], x.ring)


def _make_select_correlation(x: MaskedValue) -> BilinearProduct:
    return BilinearProduct(x.ring, _contract, lambda _, masks: masks[1:])


def _contract(v: RingArray, x: RingArray) -> RingArray:
    """Return the sum over the first axis of products."""
    weights = v.reshape(-1, *[1] * (x.ndim - 1))
    total: RingArray = (weights * x).sum(axis=0, dtype=x.dtype)
    return total


select = Select()


class ConditionalBlind(Gate):
    """Return uniform numbers where a value does not reach a threshold, and where it does.

    Each is zero elsewhere: (2, rows, *values). A value that they are added to can be read where
    they are zero, and is uniform where they are not. No party knows the comparison bit.

    1. The dealer draws [rho], and derives its products with every derived bit of the comparison.
    2. Participants use the products of the derived bit that is the comparison bit.

    Cost: no opening; corrections of 2^(L-1) elements each. Reveals: nothing. Error: none.
    """

    name = "veil"

    def deal(
        self, dealer: Dealer, comparison: MaskedComparison, *, n_rows: int, ring: Ring
    ) -> Share:
        """Derive products of the bits with uniform numbers."""
        rho = dealer.uniform((2, n_rows, *comparison.shape), ring)
        dealer.derive(_BlindProducts(comparison, ring), ring, *comparison.masks, rho)
        return Share.unknown(rho.shape, ring)

    def run(self, party: Party, comparison: MaskedComparison, *, n_rows: int, ring: Ring) -> Share:
        """Select the products of the comparison bits."""
        assert comparison.bit_indices is not None
        assert comparison.is_direct is not None
        rho = party.uniform((2, n_rows, *comparison.shape), ring).part
        products = party.derived((comparison.n_derived_bits, *rho.shape), ring).part
        found = np.take_along_axis(products, comparison.bit_indices[None, None, None], axis=0)[0]
        # The first is nonzero where the comparison bit is 0, the second where it is 1.
        kept = np.stack([~comparison.is_direct, comparison.is_direct])[:, None]
        return Share(np.where(kept, found, ring.subtract(rho, found)), ring)

    def count(
        self, counter: CostCounter, comparison: MaskedComparison, *, n_rows: int, ring: Ring
    ) -> Share:
        """Count the products."""
        rho = Share.unknown((2, n_rows, *comparison.shape), ring)
        counter.derive(_BlindProducts(comparison, ring), ring, *comparison.masks, rho)
        return rho


class _BlindProducts(Correlation):
    """The bits of a comparison times uniform numbers: (options, 2, rows, *values)."""

    def __init__(self, comparison: MaskedComparison, ring: Ring) -> None:
        self._bits, self._ring = ComparisonBits(comparison), ring
        self._options = comparison.n_derived_bits

    def shape(self, *masks: Shape) -> Shape:
        """Return one entry for every bit."""
        return (self._options, *masks[2])

    def list_s_terms(self, ring: Ring, *masks: Shape) -> list[tuple[Ring, Shape]]:
        """Return the products, and the bits."""
        return [(ring, self.shape(*masks)), (ring, (self._options, *masks[2][2:]))]

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Multiply the bits of S with S of the numbers, and return the bits."""
        bits = self._bits.compute_from_s(*s[:2]).astype(self._ring.dtype)
        return [bits[:, None, None] * s[2], bits]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Rotate the bits by T, and multiply out."""
        products_of_s = np.moveaxis(held.s_term_shares[0], 0, 2)
        rotated, inverted = self._bits.rotate_by_t(products_of_s, *held.t_parts[:2])
        bits, _ = self._bits.rotate_by_t(held.s_term_shares[1], *held.t_parts[:2])
        rotated = rotated + bits * held.t_parts[2][:, :, None]
        total = held.get_mask_share(2)[:, :, None]
        return np.moveaxis(np.where(inverted, total - rotated, rotated), 2, 0)


blind_conditionally = ConditionalBlind()
