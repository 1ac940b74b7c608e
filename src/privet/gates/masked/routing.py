"""Outcomes of tests, as secret bits of samples: splitting vectors by them, looking leaves up.

The owner of a test knows which samples fail it. Masked (`mask`) over Z1, a ring of one bit, the
outcome is uniform to everybody, the dealer does not see it, and it does not show whose it is.
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
from privet.gates.masked.value import Bit, Masked, by_rows
from privet.runtime.correlations.correlation import Half, Recipe
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import Counter
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime, Shape


def owned_share(
    runtime: Runtime, own: RingArray | None, shape: tuple[int, ...], ring: Ring
) -> Share:
    """Return a share of values that one participant has: all of them there, zeros at the others.

    Whose they are is not known to the dealer, and does not matter: they are to be masked.
    """
    if own is not None:
        return Share(own, ring)
    zeros = runtime.opened(np.broadcast_to(ring.zeros(()), shape), ring)
    return Share(zeros.array, ring) if zeros.known else Share.unknown(shape, ring)


class Keep(Gate):
    """Multiply masked vectors (..., N) with masked bits (N,) inverted: keep the samples that pass.

    1. The dealer derives [a] and [a r] for the mask a of the bits and r of the vectors.
    2. With x = F - r: [a x] = F [a] - [a r]. A sample passes if v = d ^ a is 0: keep [x] - [a x]
       where d = 0, and [a x] where d = 1.

    [a] over the widest ring of all vectors is [a] over the others.

    Cost: no opening; corrections for the vectors and one more. Reveals: nothing. Error: none.
    """

    name = "keep"

    def deal(self, dealer: Dealer, fails: Masked, *vectors: Masked) -> list[Share]:
        """Deal the bits, and their products with masks."""
        return _derive_products(dealer, fails, vectors)

    def run(self, party: Party, fails: Masked, *vectors: Masked) -> list[Share]:
        """Keep what passes."""
        bits = party.derived(fails.shape, _widest(vectors))
        failed = fails.public.array.astype(bool)
        found = []
        for x in vectors:
            bit, result = bits.to_ring(x.ring).part, party.derived(x.shape, x.ring).part
            choose = partial(_keep_rows, failed, x, party.index == 0, bit, result)
            large_arrays.each(choose, large_arrays.blocks(len(failed)), result.size)
            found.append(Share(result, x.ring))
        return found

    def count(self, counter: Counter, fails: Masked, *vectors: Masked) -> list[Share]:
        """Count the bits and their products."""
        return _derive_products(counter, fails, vectors)


def _keep_rows(
    failed: npt.NDArray[np.bool_],
    x: Masked,
    first: bool,
    bit: RingArray,
    products: RingArray,
    rows: slice,
) -> None:
    """Write our share of what is kept over that of [a r]; the first adds what is public of x."""
    public = x.public.array[..., rows]
    ax = public * bit[rows]
    ax -= products[..., rows]
    own = np.negative(x.mask.array[..., rows])
    if first:
        own += public
    own -= ax
    products[..., rows] = np.where(failed[rows], ax, own)


def _widest(vectors: Sequence[Masked]) -> Ring:
    return max((x.ring for x in vectors), key=lambda ring: ring.bits)


def _derive_products(
    dealer: Dealer | Counter, fails: Masked, vectors: Sequence[Masked]
) -> list[Share]:
    widest = _widest(vectors)
    bits = Bit(widest)
    dealer.derive(bits, widest, fails.mask)
    for x in vectors:
        dealer.derive(_BitProducts(x.ring, bits), x.ring, fails.mask, x.mask)
    return [Share.unknown(x.shape, x.ring) for x in vectors]


class _BitProducts(Recipe):
    """A bit a = S ^ T times masks; of S, servers have shares already."""

    def __init__(self, ring: Ring, bits: Bit) -> None:
        self._ring = ring
        self._bits = bits

    def shape(self, *masks: Shape) -> Shape:
        """Return the masks'."""
        return masks[1]

    def client(self, *s: RingArray) -> list[RingArray]:
        """Multiply S of the bit and of the masks."""
        return [Z1.reduce(s[0]).astype(self._ring.dtype) * s[1]]

    def server(self, half: Half) -> RingArray:
        """Multiply with 1 - 2T, and add T times the mask, S and T of it."""
        bit = Z1.reduce(half.t[0]).astype(self._ring.dtype)
        # First [S r] for r = S' + T', then [(S ^ T) r] = (1 - 2T)[S r] + T [r].
        assert self._bits.of_s is not None
        products = half.shared[0] + self._bits.of_s.astype(self._ring.dtype) * half.t[1]
        result: RingArray = products * (self._ring.array(1) - bit - bit) + bit * half.whole(1)
        return result


class LeafLookup(Gate):
    """Return the values of each sample's leaf, (K, N), from masked ones (K, 2^D) and bits (D, N).

    1. A sample's leaf is c ^ alpha, with c public and alpha the dealer's, both of D bits.
    2. The dealer derives [alpha = k] for all k, and [rho[c ^ alpha]] for all c, rho being the mask
       of the values.
    3. With W the public part: [value] = sum over k of W[c ^ k] [alpha = k] - [rho[c ^ alpha]].

    Cost: no opening; corrections of (1 + K) 2^D elements a sample. Reveals: nothing. Error: none.
    """

    name = "leaf lookup"

    def deal(self, dealer: Dealer, fails: Masked, values: Masked) -> Share:
        """Deal one-hot vectors of the hidden bits, and the masks at every leaf that may be."""
        return _derive_leaves(dealer, fails, values)

    def run(self, party: Party, fails: Masked, values: Masked) -> Share:
        """Look up at the public part of the leaf."""
        ring, (outputs, leaves) = values.ring, values.shape
        n_samples = fails.shape[1]
        hot = party.derived((leaves, n_samples), ring).part
        masks = party.derived((outputs, leaves, n_samples), ring).part
        leaf = np.arange(leaves)
        turned = values.public.array[:, leaf[:, None] ^ leaf]  # [:, k, c] is W[c ^ k]
        result = np.empty((outputs, n_samples), dtype=ring.dtype)

        def look_up(rows: slice) -> None:
            c = leaf_of(fails.public.array[:, rows])
            found = ring.negate(masks[:, c, np.arange(rows.start, rows.stop)])
            for k in range(leaves):
                entries = _look_up(turned[:, k], c)
                entries *= hot[k, rows]
                found += entries
            result[:, rows] = found

        large_arrays.each(look_up, large_arrays.blocks(n_samples), masks.size)
        return Share(result, ring)

    def count(self, counter: Counter, fails: Masked, values: Masked) -> Share:
        """Count one-hot vectors and masks."""
        return _derive_leaves(counter, fails, values)


def _derive_leaves(dealer: Dealer | Counter, fails: Masked, values: Masked) -> Share:
    ring = values.ring
    leaves = _Leaves(ring, values.shape[1])
    dealer.derive(leaves, ring, fails.mask)
    dealer.derive(_MasksAtLeaves(leaves), ring, fails.mask, values.mask)
    return Share.unknown((len(values.mask), fails.shape[1]), ring)


class _Leaves(Recipe):
    """[alpha = k] for every leaf k: with alpha = S ^ T, what is there for S at k ^ T."""

    def __init__(self, ring: Ring, leaves: int) -> None:
        self._ring = ring
        self.leaves = np.arange(leaves)[:, None]
        self.found: RingArray | None = None
        """A server's share of all of them, once it has it."""

    def shape(self, *masks: Shape) -> Shape:
        """Return one for every leaf and sample."""
        return len(self.leaves), masks[0][1]

    def client(self, *s: RingArray) -> list[RingArray]:
        """Compare S with every leaf."""
        return [(leaf_of(Z1.reduce(s[0])) == self.leaves).astype(self._ring.dtype)]

    def server(self, half: Half) -> RingArray:
        """Rearrange by T."""
        where = self.leaves ^ leaf_of(Z1.reduce(half.t[0]))
        self.found = np.take_along_axis(half.shared[0], where, axis=0)
        return self.found


class _MasksAtLeaves(Recipe):
    """[rho[c ^ alpha]] for every c, rho being the mask of leaf values (K, 2^D).

    Of [alpha = k] servers have shares already.
    """

    def __init__(self, hot: _Leaves) -> None:
        self._hot = hot

    def shape(self, *masks: Shape) -> Shape:
        """Return one for every output, leaf and sample."""
        return (*masks[1], masks[0][1])

    def client(self, *s: RingArray) -> list[RingArray]:
        """Look S of rho up at c ^ S."""
        return [_look_up(s[1], leaf_of(Z1.reduce(s[0])) ^ self._hot.leaves)]

    def server(self, half: Half) -> RingArray:
        """Rearrange by T, and add T of rho at c ^ alpha, by what is 1 at alpha."""
        leaves, hot = self._hot.leaves, self._hot.found
        assert hot is not None
        alpha = leaf_of(Z1.reduce(half.t[0]))
        moved = np.take_along_axis(half.shared[0], (leaves ^ alpha)[None], axis=1)
        for k in range(len(hot)):
            moved += half.t[1][:, leaves ^ k] * hot[k]
        return moved


def _look_up(values: RingArray, leaves: npt.NDArray[np.intp]) -> RingArray:
    """Return values (K, 2^D) at leaves: `values[:, leaves]`, which checks them all and is slow."""
    found: RingArray = values.take(leaves, axis=1, mode="clip")
    return found


def leaf_of(fails: RingArray) -> npt.NDArray[np.intp]:
    """Return the leaf that bits (D, N) lead to, level 0 first."""
    leaf = np.zeros(fails.shape[1], dtype=np.intp)
    for level in fails:
        leaf = 2 * leaf + level
    return leaf


keep = Keep()
_leaf_lookup = LeafLookup()


def leaf_lookup(runtime: Runtime, fails: Masked, values: Masked) -> Share:
    """Return the values of each sample's leaf, (K, N): `LeafLookup`, some rows at a time."""
    return by_rows(fails, lambda some: _leaf_lookup(runtime, some, values))
