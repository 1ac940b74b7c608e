"""Truncation, fixed-point products, and values revealed to all participants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privet.arithmetic.rings import Z32, Z64, Ring, RingArray, add_counting_wraps, signed
from privet.arithmetic.shares import PublicShare, Share
from privet.gates.beaver import multiply
from privet.gates.gate import Gate, OpeningGate, OpeningSteps
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import CostCounter
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime

_QUARTER = 1 << 62


class Truncate(Gate):
    """Divide a shared value z over Z64, |z| < 2^62, by 2^bits, with 1 <= bits <= 32.

    Shares taken as signed numbers add up to z + 2^64 w, with w the wrap count. Each participant
    shifts its share. The result is off by w 2^(64 - bits), so the gate only has to compute [w].

    1. The dealer draws [r], derives [w_r], the wrap count of r's shares, and [s], whether r >= 0.
    2. Each participant adds its shares of z and r, and counts its local wrap-around b_m.
    3. Open p = [z] + [r], with the wrap count w_p of its shares.
    4. z + r itself wrapped up if r >= 0 and p < -2^62, and down if r < 0 and p >= 2^62.
       With u and v the two public conditions, its wrap count is [o] = u[s] - v(1 - [s]).
    5. [w] = w_p + [b] - [w_r] - [o], and [z >> bits] = ([z] >> bits) - [w] 2^(64 - bits).

    Counts matter modulo 2^bits only, so they are shared over Z32.

    Cost: one opening of z; corrections of 8 bytes an element. Reveals: nothing.
    Error: each shift rounds down by half a unit on average, so n // 2 units are added: the result
    is within n - n // 2 units of z / 2^bits.
    Reference: the paper's Section VI.A, after CrypTen (Knott et al., NeurIPS 2021). The protocol in
    the paper is wrong with probability |z| / 2^64 per element; this gate is always right
    (docs/decisions/0006-truncation.md).
    """

    name = "truncate"

    def deal(self, dealer: Dealer, z: Share, *, dropped_bits: int) -> Share:
        """Draw a mask, and distribute its wrap count and sign."""
        r, wraps = add_counting_wraps(dealer.uniform_shares((z.size,), Z64))
        dealer.distribute(wraps, Z32)
        dealer.distribute((signed(r) >= 0).astype(np.uint32), Z32)
        return Share.unknown(z.shape, Z64)

    def run(self, party: Party, z: Share, *, dropped_bits: int) -> Share:
        """Open the value under the mask, and correct for the wraps."""
        assert z.ring is Z64
        assert 1 <= dropped_bits <= 32
        shape, z = z.shape, z.reshape(z.size)
        r = party.uniform(z.shape, Z64)
        r_wraps, r_positive = party.derived(z.shape, Z32), party.derived(z.shape, Z32)
        masked, local_wraps = add_counting_wraps([z.part, r.part])
        p, p_wraps = party.open_with_wraps(Share(masked, Z64))
        up, down = signed(p) < -_QUARTER, signed(p) >= _QUARTER
        wraps = p_wraps + local_wraps - r_wraps.part
        wraps -= (up | down).astype(np.uint32) * r_positive.part
        shifted = (signed(z.part) >> dropped_bits).view(np.uint64)
        if party.index == 0:
            wraps += down.astype(np.uint32)
            shifted += np.uint64(party.n_parties // 2)
        excess = wraps.astype(np.uint64) << np.uint64(64 - dropped_bits)
        return Share(shifted - excess, Z64).reshape(*shape)

    def count(self, counter: CostCounter, z: Share, *, dropped_bits: int) -> Share:
        """Count the opening, the wrap count and the sign."""
        counter.count_opening(z)
        counter.count_corrections(Z32, z.shape, z.shape)
        return z


truncate = Truncate()


def truncate_locally(runtime: Runtime, x: Share, bits: int, ring: Ring) -> Share:
    """Divide a shared value by 2^bits locally, into a ring that is at least `bits` bits smaller.

    Each participant drops the bits from its share, and the first adds the average loss.
    Wrap-arounds of the shares are multiples of the ring's size, so nothing is opened.

    Error: at most n / 2 units of the result; unbiased to within half of the lowest dropped bit.
    """
    assert bits + ring.bits <= x.ring.bits
    if not bits or not x.known:
        return x.reduce_to_ring(ring)
    part, kind = x.part, x.ring.dtype.type
    if runtime.index == 0:
        part = part + kind(runtime.n_parties * ((1 << bits) - 1) >> 1)
    return Share((x.ring.reduce_modulus(part) >> kind(bits)).astype(ring.dtype), ring)


def multiply_fixed_point(runtime: Runtime, x: Share, y: Share, bits: int) -> Share:
    """Multiply fixed-point values, and drop `bits` of the product's fraction bits.

    Reveals: nothing. Error: as `truncate`; |xy| < 2^62.
    """
    return truncate(runtime, multiply(runtime, x, y), dropped_bits=bits)


class RevealToAll(OpeningGate):
    """Reveal a value to all participants, who record it; no other party learns it.

    Cost: one opening. Reveals: the value.
    """

    name = "tell all"

    def deal(self, dealer: Dealer, value: Share, *, disclosure: str) -> RingArray | None:
        """Learn nothing."""
        return None

    def run(self, party: Party, value: Share, *, disclosure: str) -> OpeningSteps[RingArray | None]:
        """Open the value."""
        (plain,) = yield [PublicShare(value.part, value.ring, disclosure)]
        return plain

    def count(
        self, counter: CostCounter, value: Share, *, disclosure: str
    ) -> tuple[Sequence[Share], RingArray | None]:
        """Count the opening."""
        return [value], None


reveal_to_all = RevealToAll()
