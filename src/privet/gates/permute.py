"""SecPerm: permute shared vectors by permutations known only to their owners.

Reference: the paper's Section V.B.3, Algorithm 4.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Z32
from privet.arithmetic.shares import Share
from privet.errors import PeerMisbehavedError
from privet.gates.gate import Gate
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import Cost, CostCounter
from privet.runtime.party import Party

Permutation = npt.NDArray[np.intp]


class Permute(Gate):
    """Permute vectors by J permutations: [u_j] = [x_j][pi_j], with pi_j known only to its owner.

    x has shape (J, K, N): K vectors for each permutation. The paper's two rounds do not depend on
    each other, so this gate joins them, for all j.

    1. The dealer draws permutations q_j, which it shares with their owners, and [r]; it derives
       [r_j[q_j]].
    2. Owner j sends s_j with q_j[s_j] = pi_j to all participants; s_j is uniform to a party that
       does not know q_j. All participants open [x_j] - [r_j] to owner j.
    3. [u_j] = [r_j[q_j]][s_j], to which owner j adds (x_j - r_j)[pi_j].

    Cost: one round, in which, for each j, each other participant sends K vectors to the owner, and
    receives one vector of 32-bit positions; corrections for x. Reveals: nothing. Error: none.
    """

    name = "permute"

    def deal(
        self,
        dealer: Dealer,
        x: Share,
        permutations: Sequence[Permutation | None],
        owners: Sequence[int],
    ) -> Share:
        """Draw permutations, and masks before and after them."""
        hidden = [dealer.permutation(x.shape[2], owner) for owner in owners]
        r = dealer.uniform(x.shape, x.ring).array
        for j, q in enumerate(hidden):
            r[j] = r[j][:, q]
        dealer.distribute(r, x.ring)
        return Share.unknown(x.shape, x.ring)

    def run(
        self,
        party: Party,
        x: Share,
        permutations: Sequence[Permutation | None],
        owners: Sequence[int],
    ) -> Share:
        """Send the masked permutations, and open the masked vectors to their owners."""
        ring, length = x.ring, x.shape[2]
        hidden = [party.permutation(length, owner) for owner in owners]
        r, moved = party.uniform(x.shape, ring), party.derived(x.shape, ring)
        positions: list[npt.NDArray[np.uint32] | None] = []
        for pi, q in zip(permutations, hidden, strict=True):
            if q is None:
                positions.append(None)
                continue
            assert pi is not None
            inverse = np.empty_like(q)
            inverse[q] = np.arange(length)
            positions.append(inverse[pi].astype(np.uint32))
        opened, all_positions = party.open_to_owners(x - r, owners, positions, (Z32, length))
        result = np.empty(x.shape, dtype=ring.dtype)
        for j, s in enumerate(all_positions):
            if s.size and s.max() >= length:
                raise PeerMisbehavedError(party.names[owners[j]], "sent no permutation")
            result[j] = moved.part[j][:, s]
        for j, value in opened.items():
            ring.add_in_place(result[j], value[:, permutations[j]])
        return Share(result, ring)

    def count(
        self,
        counter: CostCounter,
        x: Share,
        permutations: Sequence[Permutation | None],
        owners: Sequence[int],
    ) -> Share:
        """Count the round: vectors sent to owners, and positions sent by them."""
        features, vectors, length = x.shape
        sent = features * (
            vectors * x.ring.count_packed_bytes(length) + Z32.count_packed_bytes(length)
        )
        counter.add(Cost(rounds=1, online_bytes=(counter.n_parties - 1) * sent))
        counter.count_corrections(x.ring, x.shape)
        return x


permute = Permute()
