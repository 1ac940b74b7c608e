"""Secret bits of samples: publishing them masked, splitting vectors by them, looking leaves up.

The owner of a test knows which samples fail it. Opened under dealt random bits, the outcome is
uniform to everybody, the dealer does not see it, and it does not show whose it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privet.arithmetic.bit_planes import pack_bits, packed_length, unpack_bits
from privet.arithmetic.rings import BITS, Ring
from privet.arithmetic.shares import Share
from privet.arrays import BucketArray
from privet.gates.gate import Cost, Gate, opening_cost
from privet.gates.masked import Mask, Masked
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party

Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class MaskedBits:
    """Bits v = d ^ a: d is public, a is known to the dealer alone."""

    shape: tuple[int, ...]
    public: Bits | None = None
    mask: Bits | None = None

    def __getitem__(self, key: int) -> MaskedBits:
        public = None if self.public is None else self.public[key]
        mask = None if self.mask is None else self.mask[key]
        return MaskedBits(self.shape[1:], public, mask)


class PublishBits(Gate):
    """Publish bits (..., N) that participants have: each array's owner, zeros at all others.

    1. The dealer draws bits [a].
    2. Open v ^ [a], v being the owner's share of itself.

    Cost: one opening of a bit each. Reveals: nothing. Error: none.
    """

    name = "publish bits"

    def deal(self, dealer: Dealer, own: Bits | None, shape: tuple[int, ...]) -> MaskedBits:
        """Draw random bits."""
        packed = (*shape[:-1], packed_length(shape[-1]))
        return MaskedBits(shape, mask=unpack_bits(dealer.uniform(packed, BITS), shape[-1]))

    def run(self, party: Party, own: Bits | None, shape: tuple[int, ...]) -> MaskedBits:
        """Open our bits, or zeros, under the random ones."""
        packed = (*shape[:-1], packed_length(shape[-1]))
        drawn = party.uniform(packed, BITS)
        share = Share(BITS.zeros(packed) if own is None else pack_bits(own), BITS)
        (opened,) = party.open(share ^ drawn)
        return MaskedBits(shape, public=unpack_bits(opened, shape[-1]))

    @staticmethod
    def cost(shape: tuple[int, ...], n_parties: int) -> Cost:
        """Return the cost for bits of this shape."""
        return opening_cost(BITS.nbytes((*shape[:-1], packed_length(shape[-1]))), n_parties)


class Present(Gate):
    """Publish bits and mask leaf values in one opening: all that a prediction needs.

    Cost: one opening of both. Reveals: nothing. Error: none.
    """

    name = "present"

    def deal(
        self, dealer: Dealer, own: Bits | None, values: Share, shape: tuple[int, ...]
    ) -> tuple[MaskedBits, Masked]:
        """Draw random bits and masks."""
        packed = (*shape[:-1], packed_length(shape[-1]))
        bits = MaskedBits(shape, mask=unpack_bits(dealer.uniform(packed, BITS), shape[-1]))
        drawn = dealer.uniform(values.shape, values.ring)
        return bits, Masked(values.ring, Mask(values.shape, value=drawn))

    def run(
        self, party: Party, own: Bits | None, values: Share, shape: tuple[int, ...]
    ) -> tuple[MaskedBits, Masked]:
        """Open both."""
        packed = (*shape[:-1], packed_length(shape[-1]))
        drawn = party.uniform(packed, BITS)
        share = Share(BITS.zeros(packed) if own is None else pack_bits(own), BITS)
        r = party.uniform(values.shape, values.ring)
        bits, opened = party.open(share ^ drawn, values + r)
        masked = Masked(values.ring, Mask(values.shape, share=r), opened)
        return MaskedBits(shape, public=unpack_bits(bits, shape[-1])), masked

    @staticmethod
    def cost(shape: tuple[int, ...], values: tuple[int, ...], ring: Ring, n_parties: int) -> Cost:
        """Return the cost for bits and values of these shapes."""
        bits = BITS.nbytes((*shape[:-1], packed_length(shape[-1])))
        return opening_cost(bits + ring.nbytes(values), n_parties)


class Keep(Gate):
    """Multiply masked vectors (K, N) with masked bits (N,) inverted: keep the samples that pass.

    1. The dealer derives [a] and [a r] for the vectors' masks r.
    2. With x = F - r: [a x] = F [a] - [a r]. A sample passes if v = d ^ a is 0: keep [x] - [a x]
       where d = 0, and [a x] where d = 1.

    Cost: no opening; corrections for the vectors and one more. Reveals: nothing. Error: none.
    """

    name = "keep"

    def deal(self, dealer: Dealer, fails: MaskedBits, x: Masked) -> Share:
        """Deal the bits, and their products with masks."""
        assert fails.mask is not None
        a = fails.mask.astype(x.ring.dtype)
        dealer.derive(np.concatenate([a[None], a * x.mask.known]), x.ring)
        return Share.unknown(x.shape, x.ring)

    def run(self, party: Party, fails: MaskedBits, x: Masked) -> Share:
        """Keep what passes."""
        vectors, n_samples = x.shape
        dealt = party.derived((1 + vectors, n_samples), x.ring).part
        ax = x.opened * dealt[0] - dealt[1:]
        assert fails.public is not None
        kept = np.where(fails.public.astype(bool), ax, x.share(party.index).part - ax)
        return Share(kept, x.ring)

    @staticmethod
    def cost(shape: tuple[int, int], itemsize: int) -> Cost:
        """Return the cost for vectors of this shape."""
        vectors, n_samples = shape
        return Cost(offline=(1 + vectors) * n_samples * itemsize)


class LeafLookup(Gate):
    """Return the value of each sample's leaf, (N,), from masked values (2^D,) and bits (D, N).

    1. A sample's leaf is c ^ alpha, with c public and alpha the dealer's, both of D bits.
    2. The dealer derives [alpha = k] for all k, and [rho[c ^ alpha]] for all c, rho being the mask
       of the values.
    3. With W the public part: [value] = sum over k of W[c ^ k] [alpha = k] - [rho[c ^ alpha]].

    Cost: no opening; corrections of 2^(D+1) elements a sample. Reveals: nothing. Error: none.
    """

    name = "leaf lookup"

    def deal(self, dealer: Dealer, fails: MaskedBits, values: Masked) -> Share:
        """Deal one-hot vectors of the hidden bits, and the masks at every leaf that may be."""
        assert fails.mask is not None
        alpha = leaf_of(fails.mask)
        leaves = np.arange(values.shape[0])[:, None]
        dealer.derive((alpha == leaves).astype(values.ring.dtype), values.ring)
        dealer.derive(values.mask.known[alpha ^ leaves], values.ring)
        return Share.unknown(alpha.shape, values.ring)

    def run(self, party: Party, fails: MaskedBits, values: Masked) -> Share:
        """Look up at the public part of the leaf."""
        assert fails.public is not None
        c = leaf_of(fails.public)
        leaves = values.shape[0]
        shape = (leaves, len(c))
        hot = party.derived(shape, values.ring).part
        masks = party.derived(shape, values.ring).part
        result = values.ring.negate(masks[c, np.arange(len(c))])
        for k in range(leaves):
            result += values.opened[c ^ k] * hot[k]
        return Share(result, values.ring)

    @staticmethod
    def cost(depth: int, n_samples: int, itemsize: int) -> Cost:
        """Return the cost for that many levels and samples."""
        return Cost(offline=2 * (n_samples << depth) * itemsize)


def leaf_of(fails: BucketArray) -> npt.NDArray[np.intp]:
    """Return the leaf that bits (D, N) lead to, level 0 first."""
    leaf = np.zeros(fails.shape[1], dtype=np.intp)
    for level in fails:
        leaf = 2 * leaf + level
    return leaf


publish_bits = PublishBits()
present = Present()
keep = Keep()
leaf_lookup = LeafLookup()
