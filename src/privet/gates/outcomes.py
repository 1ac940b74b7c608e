"""Outcomes of tests, as secret bits of samples: splitting vectors by them, looking leaves up.

The owner of a test knows which samples fail it. Masked (`mask`) over Z1, a ring of one bit, the
outcome is uniform to everybody, the dealer does not see it, and it does not show whose it is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Ring, RingArray, integers_modulo
from privet.arithmetic.shares import Share
from privet.gates.gate import Gate
from privet.gates.masked import Masked
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party
from privet.runtime.recipes import Half, Recipe
from privet.runtime.runtime import Runtime

Z1 = integers_modulo(1)


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

    The first vectors are over the widest ring: [a] over it is [a] over the others.

    Cost: no opening; corrections for the vectors and one more. Reveals: nothing. Error: none.
    """

    name = "keep"

    def deal(self, dealer: Dealer, fails: Masked, *vectors: Masked) -> list[Share]:
        """Deal the bits, and their products with masks."""
        widest = vectors[0].ring
        dealer.derive(_Bits(widest), widest, fails.mask)
        for x in vectors:
            dealer.derive(_BitProducts(x.ring), x.ring, fails.mask, x.mask)
        return [Share.unknown(x.shape, x.ring) for x in vectors]

    def run(self, party: Party, fails: Masked, *vectors: Masked) -> list[Share]:
        """Keep what passes."""
        bits = party.derived(fails.shape, vectors[0].ring)
        failed = fails.public.array.astype(bool)
        found = []
        for x in vectors:
            ax = x.public.array * bits.to_ring(x.ring).part
            ax -= party.derived(x.shape, x.ring).part
            found.append(Share(np.where(failed, ax, x.share(party).part - ax), x.ring))
        return found

    def count(self, counter: Counter, fails: Masked, *vectors: Masked) -> list[Share]:
        """Count the bits and their products."""
        counter.derive(vectors[0].ring, fails.shape)
        for x in vectors:
            counter.derive(x.ring, x.shape)
        return [Share.unknown(x.shape, x.ring) for x in vectors]


class _Bits(Recipe):
    """A bit a = S ^ T over a ring: S + T - 2ST."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    def client(self, *s: RingArray) -> list[RingArray]:
        """Take S."""
        return [Z1.reduce(s[0]).astype(self._ring.dtype)]

    def server(self, half: Half) -> RingArray:
        """Multiply with 1 - 2T, and add T."""
        bit = Z1.reduce(half.t[0]).astype(self._ring.dtype)
        result: RingArray = half.shared[0] * (self._ring.array(1) - bit - bit)
        return self._ring.add(result, bit) if half.first else result


class _BitProducts(Recipe):
    """A bit a = S ^ T times masks."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    def client(self, *s: RingArray) -> list[RingArray]:
        """Multiply S of the bit and of the masks."""
        bit = Z1.reduce(s[0]).astype(self._ring.dtype)
        return [bit * s[1], bit]

    def server(self, half: Half) -> RingArray:
        """Multiply with 1 - 2T, and add T times the mask, S and T of it."""
        bit = Z1.reduce(half.t[0]).astype(self._ring.dtype)
        # First [S r] for r = S' + T', then [(S ^ T) r] = (1 - 2T)[S r] + T [r].
        products = half.shared[0] + half.shared[1] * half.t[1]
        masks = half.s[1] + half.t[1] if half.first else half.s[1]
        result: RingArray = products * (self._ring.array(1) - bit - bit) + bit * masks
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
        ring, leaves = values.ring, values.shape[1]
        dealer.derive(_Leaves(ring, leaves), ring, fails.mask)
        dealer.derive(_MasksAtLeaves(ring, leaves), ring, fails.mask, values.mask)
        return Share.unknown((len(values.mask), fails.shape[1]), ring)

    def run(self, party: Party, fails: Masked, values: Masked) -> Share:
        """Look up at the public part of the leaf."""
        ring, (outputs, leaves) = values.ring, values.shape
        c = leaf_of(fails.public.array)
        hot = party.derived((leaves, len(c)), ring).part
        masks = party.derived((outputs, leaves, len(c)), ring).part
        result = ring.negate(masks[:, c, np.arange(len(c))])
        leaf = np.arange(leaves)
        turned = values.public.array[:, leaf[:, None] ^ leaf]  # [:, k, c] is W[c ^ k]
        for k in range(leaves):
            entries = _look_up(turned[:, k], c)
            entries *= hot[k]
            result += entries
        return Share(result, ring)

    def count(self, counter: Counter, fails: Masked, values: Masked) -> Share:
        """Count one-hot vectors and masks."""
        (outputs, leaves), n_samples = values.shape, fails.shape[1]
        counter.derive(values.ring, (leaves, n_samples), (outputs, leaves, n_samples))
        return Share.unknown((outputs, n_samples), values.ring)


class _Leaves(Recipe):
    """[alpha = k] for every leaf k: with alpha = S ^ T, what is there for S at k ^ T."""

    def __init__(self, ring: Ring, leaves: int) -> None:
        self._ring = ring
        self._leaves = np.arange(leaves)[:, None]

    def client(self, *s: RingArray) -> list[RingArray]:
        """Compare S with every leaf."""
        return [(leaf_of(Z1.reduce(s[0])) == self._leaves).astype(self._ring.dtype)]

    def server(self, half: Half) -> RingArray:
        """Rearrange by T."""
        where = self._leaves ^ leaf_of(Z1.reduce(half.t[0]))
        return np.take_along_axis(half.shared[0], where, axis=0)


class _MasksAtLeaves(Recipe):
    """[rho[c ^ alpha]] for every c, rho being the mask of leaf values (K, 2^D)."""

    def __init__(self, ring: Ring, leaves: int) -> None:
        self._hot = _Leaves(ring, leaves)
        self._leaves = np.arange(leaves)[:, None]

    def client(self, *s: RingArray) -> list[RingArray]:
        """Look S of rho up at c ^ S, and compare S with every leaf."""
        alpha = leaf_of(Z1.reduce(s[0]))
        return [_look_up(s[1], alpha ^ self._leaves), *self._hot.client(s[0])]

    def server(self, half: Half) -> RingArray:
        """Rearrange by T, and add T of rho at c ^ alpha: a sum over leaves of [alpha = k]."""
        alpha = leaf_of(Z1.reduce(half.t[0]))
        moved = np.take_along_axis(half.shared[0], (self._leaves ^ alpha)[None], axis=1)
        hot = self._hot.server(replace(half, shared=half.shared[1:]))
        for k in range(len(hot)):
            moved += half.t[1][:, self._leaves ^ k] * hot[k]
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
leaf_lookup = LeafLookup()
