"""Routing of rows by secret outcomes of splits: splitting vectors, and looking up leaves.

The owner of a split knows which rows go right. Masked (`mask`) over Z1, a ring of one bit, the
outcome is uniform to all participants. The dealer does not see it, and it does not reveal the owner
of the split.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from privet.arithmetic import large_arrays
from privet.arithmetic.rings import Z1, Ring, RingArray
from privet.arithmetic.shares import Share
from privet.gates.gate import Gate
from privet.gates.masked.value import MaskedValue, RingBit, map_row_blocks
from privet.runtime.correlations.correlation import Correlation, THolderInput
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import CostCounter
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime, Shape


def share_trivially(
    runtime: Runtime, local_values: RingArray | None, shape: tuple[int, ...], ring: Ring
) -> Share:
    """Return a share of one participant's values: the values there, zeros at the others.

    The dealer does not know the owner, and need not, because the values are then masked.
    """
    if local_values is not None:
        return Share(local_values, ring)
    zeros = runtime.as_opened(np.broadcast_to(ring.zeros(()), shape), ring)
    return Share(zeros.array, ring) if zeros.known else Share.unknown(shape, ring)


class RouteRows(Gate):
    """Multiply masked vectors (..., N) with masked bits (N,) inverted: keep the rows that go left.

    1. The dealer derives [a] and [a r] for the mask a of the bits and r of the vectors.
    2. With x = F - r: [a x] = F [a] - [a r]. A row goes left if v = d ^ a is 0: keep [x] - [a x]
       where d = 0, and [a x] where d = 1.

    [a] over the widest ring of all vectors, reduced, is [a] over the others.

    Cost: no opening; corrections for the vectors and one more. Reveals: nothing. Error: none.
    """

    name = "keep"

    def deal(self, dealer: Dealer, outcomes: MaskedValue, *vectors: MaskedValue) -> list[Share]:
        """Derive the bits, and their products with masks."""
        return _derive_products(dealer, outcomes, vectors)

    def run(self, party: Party, outcomes: MaskedValue, *vectors: MaskedValue) -> list[Share]:
        """Keep the rows that go left."""
        bits = party.derived(outcomes.shape, _widest(vectors))
        public_bits = outcomes.public.array.astype(bool)
        found = []
        for x in vectors:
            bit, result = bits.reduce_to_ring(x.ring).part, party.derived(x.shape, x.ring).part
            route_block = partial(_route_block, public_bits, x, party.index == 0, bit, result)
            large_arrays.run_blocks(
                route_block, large_arrays.split_into_blocks(len(public_bits)), result.size
            )
            found.append(Share(result, x.ring))
        return found

    def count(
        self, counter: CostCounter, outcomes: MaskedValue, *vectors: MaskedValue
    ) -> list[Share]:
        """Count the bits and their products."""
        return _derive_products(counter, outcomes, vectors)


def _route_block(
    public_bits: npt.NDArray[np.bool_],
    x: MaskedValue,
    first: bool,
    bit: RingArray,
    products: RingArray,
    rows: slice,
) -> None:
    """Overwrite a share of [a r] with one of the kept rows; the first adds the public part of x."""
    public = x.public.array[..., rows]
    ax = public * bit[rows]
    ax -= products[..., rows]
    share = np.negative(x.mask.array[..., rows])
    if first:
        share += public
    share -= ax
    products[..., rows] = np.where(public_bits[rows], ax, share)


def _widest(vectors: Sequence[MaskedValue]) -> Ring:
    return max((x.ring for x in vectors), key=lambda ring: ring.bits)


def _derive_products(
    dealer: Dealer | CostCounter, outcomes: MaskedValue, vectors: Sequence[MaskedValue]
) -> list[Share]:
    widest = _widest(vectors)
    bits = RingBit(widest)
    dealer.derive(bits, widest, outcomes.mask)
    for x in vectors:
        dealer.derive(_BitProducts(x.ring, bits), x.ring, outcomes.mask, x.mask)
    return [Share.unknown(x.shape, x.ring) for x in vectors]


class _BitProducts(Correlation):
    """A bit a = S ^ T times masks; T holders already have shares of S."""

    def __init__(self, ring: Ring, bits: RingBit) -> None:
        self._ring = ring
        self._bits = bits

    def shape(self, *masks: Shape) -> Shape:
        """Return the masks' shape."""
        return masks[1]

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Multiply S of the bit and of the masks."""
        return [Z1.reduce_modulus(s[0]).astype(self._ring.dtype) * s[1]]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Multiply with 1 - 2T, and add T times the mask, S and T of it."""
        bit = Z1.reduce_modulus(held.t_parts[0]).astype(self._ring.dtype)
        # First [S r] for r = S' + T', then [(S ^ T) r] = (1 - 2T)[S r] + T [r].
        assert self._bits.s_shares is not None
        products = (
            held.s_term_shares[0] + self._bits.s_shares.astype(self._ring.dtype) * held.t_parts[1]
        )
        result: RingArray = products * (
            self._ring.to_elements(1) - bit - bit
        ) + bit * held.get_mask_share(1)
        return result


class LeafLookup(Gate):
    """Look up the values of each row's leaf, (K, N), in masked ones (K, 2^D) by bits (D, N).

    1. A row's leaf is c ^ alpha, with c public and alpha known to the dealer, both of D bits.
    2. The dealer derives [alpha = k] for all k, and [rho[c ^ alpha]] for all c, rho being the mask
       of the values.
    3. With W the public part: [value] = sum over k of W[c ^ k] [alpha = k] - [rho[c ^ alpha]].

    Cost: no opening; corrections of (1 + K) 2^D elements a row. Reveals: nothing. Error: none.
    """

    name = "leaf lookup"

    def deal(self, dealer: Dealer, outcomes: MaskedValue, values: MaskedValue) -> Share:
        """Derive one-hot vectors of alpha, and the masks at every possible leaf."""
        return _derive_leaves(dealer, outcomes, values)

    def run(self, party: Party, outcomes: MaskedValue, values: MaskedValue) -> Share:
        """Look up at the public part of the leaf."""
        ring, (outputs, leaves) = values.ring, values.shape
        n_samples = outcomes.shape[1]
        hot = party.derived((leaves, n_samples), ring).part
        masks = party.derived((outputs, leaves, n_samples), ring).part
        leaf = np.arange(leaves)
        rearranged = values.public.array[:, leaf[:, None] ^ leaf]  # [:, k, c] is W[c ^ k]
        result = np.empty((outputs, n_samples), dtype=ring.dtype)

        def look_up(rows: slice) -> None:
            c = decode_leaf_indices(outcomes.public.array[:, rows])
            found = ring.negate(masks[:, c, np.arange(rows.start, rows.stop)])
            for k in range(leaves):
                entries = _look_up(rearranged[:, k], c)
                entries *= hot[k, rows]
                found += entries
            result[:, rows] = found

        large_arrays.run_blocks(look_up, large_arrays.split_into_blocks(n_samples), masks.size)
        return Share(result, ring)

    def count(self, counter: CostCounter, outcomes: MaskedValue, values: MaskedValue) -> Share:
        """Count one-hot vectors and masks."""
        return _derive_leaves(counter, outcomes, values)


def _derive_leaves(
    dealer: Dealer | CostCounter, outcomes: MaskedValue, values: MaskedValue
) -> Share:
    ring = values.ring
    leaves = _LeafOneHot(ring, values.shape[1])
    dealer.derive(leaves, ring, outcomes.mask)
    dealer.derive(_LeafMasks(leaves), ring, outcomes.mask, values.mask)
    return Share.unknown((len(values.mask), outcomes.shape[1]), ring)


class _LeafOneHot(Correlation):
    """[alpha = k] for every leaf k: with alpha = S ^ T, the entry of S at k ^ T."""

    def __init__(self, ring: Ring, leaves: int) -> None:
        self._ring = ring
        self.leaves = np.arange(leaves)[:, None]
        self.t_share: RingArray | None = None
        """A T holder's share of all entries, set by `compute_t_share`."""

    def shape(self, *masks: Shape) -> Shape:
        """Return one entry for every leaf and row."""
        return len(self.leaves), masks[0][1]

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Compare S with every leaf."""
        return [
            (decode_leaf_indices(Z1.reduce_modulus(s[0])) == self.leaves).astype(self._ring.dtype)
        ]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Rearrange by T."""
        index = self.leaves ^ decode_leaf_indices(Z1.reduce_modulus(held.t_parts[0]))
        self.t_share = np.take_along_axis(held.s_term_shares[0], index, axis=0)
        return self.t_share


class _LeafMasks(Correlation):
    """[rho[c ^ alpha]] for every c, rho being the mask of leaf values (K, 2^D).

    T holders already have shares of [alpha = k].
    """

    def __init__(self, hot: _LeafOneHot) -> None:
        self._one_hot = hot

    def shape(self, *masks: Shape) -> Shape:
        """Return one entry for every output, leaf and row."""
        return (*masks[1], masks[0][1])

    def compute_s_terms(self, *s: RingArray) -> list[RingArray]:
        """Look S of rho up at c ^ S."""
        return [_look_up(s[1], decode_leaf_indices(Z1.reduce_modulus(s[0])) ^ self._one_hot.leaves)]

    def compute_t_share(self, held: THolderInput) -> RingArray:
        """Rearrange by T, and add T of rho at c ^ alpha, by the one-hot vector of alpha."""
        leaves, hot = self._one_hot.leaves, self._one_hot.t_share
        assert hot is not None
        alpha = decode_leaf_indices(Z1.reduce_modulus(held.t_parts[0]))
        moved = np.take_along_axis(held.s_term_shares[0], (leaves ^ alpha)[None], axis=1)
        for k in range(len(hot)):
            moved += held.t_parts[1][:, leaves ^ k] * hot[k]
        return moved


def _look_up(values: RingArray, leaves: npt.NDArray[np.intp]) -> RingArray:
    """Return `values[:, leaves]` of values (K, 2^D), without slow bounds checks."""
    found: RingArray = values.take(leaves, axis=1, mode="clip")
    return found


def decode_leaf_indices(outcomes: RingArray) -> npt.NDArray[np.intp]:
    """Return the leaf that bits (D, N) lead to, level 0 first."""
    leaf = np.zeros(outcomes.shape[1], dtype=np.intp)
    for level in outcomes:
        leaf = 2 * leaf + level
    return leaf


route_rows = RouteRows()
_leaf_lookup = LeafLookup()


def look_up_leaves(runtime: Runtime, outcomes: MaskedValue, values: MaskedValue) -> Share:
    """Return the values of each row's leaf, (K, N): `LeafLookup`, by blocks of rows."""
    return map_row_blocks(outcomes, lambda some: _leaf_lookup(runtime, some, values))
