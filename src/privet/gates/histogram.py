"""Histograms: sums of masked vectors by buckets that only their owners know, without an opening.

Owner l has an indicator matrix M over its features' cuts: M[j, b, i] is 1 if sample i of feature j
lies in bucket b or below, so sums are those of the samples that pass the test at cut b. It publishes
E = M - A once, with A known to it and the dealer alone. For a masked vector x = F - r,

    M x = M F - M r = M F - E r - A r

of which the owner computes M F, every participant E times its own share of r, and the dealer A r.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privet.arithmetic.limbs import LimbMatrix
from privet.arithmetic.rings import Z32, RingArray
from privet.arithmetic.shares import Share
from privet.arrays import BucketArray
from privet.gates.gate import Cost, Gate
from privet.gates.masked import Masked
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party
from privet.transport.channel import Expected


@dataclass(frozen=True)
class Indicators:
    """Indicator matrices of all features: the masked ones at participants, masks at the dealer."""

    shape: tuple[int, int]
    """(features, cuts)."""
    matrix: LimbMatrix
    """E, or A at the dealer: (features * cuts, N)."""
    own: dict[int, BucketArray]
    """Our own features' buckets, by feature."""


class Publish(Gate):
    """Publish masked indicator matrices, once a training.

    1. The dealer and each owner draw A.
    2. Owners send E = M - A to all: uniform to whoever does not know A.

    Cost: one round, in which each owner sends its matrices over Z32 to all others. Reveals: nothing.
    """

    name = "publish indicators"

    def deal(
        self, dealer: Dealer, owners: tuple[int, ...], own: None, cuts: int, n_samples: int
    ) -> Indicators:
        """Draw masks of all indicators."""
        parts = [
            dealer.private((owners.count(k), cuts, n_samples), Z32, k)
            for k in range(dealer.n_parties)
        ]
        return Indicators((len(owners), cuts), _in_order(parts, owners), {})

    def run(
        self,
        party: Party,
        owners: tuple[int, ...],
        own: BucketArray,
        cuts: int,
        n_samples: int,
    ) -> Indicators:
        """Mask and send our own; receive the others'."""
        mine = [j for j, owner in enumerate(owners) if owner == party.index]
        assert own.shape == (len(mine), n_samples)
        kinds = []
        for k in range(party.n_parties):
            shape = (owners.count(k), cuts, n_samples)
            kinds.append(Expected(Z32.dtype, shape))
            drawn = party.private(shape, Z32, k)
            if drawn is not None:
                masked = (own[:, None, :] <= np.arange(cuts)[:, None]).astype(np.uint32) - drawn
        parts = party.publish(masked, kinds)
        buckets = dict(zip(mine, own, strict=True))
        return Indicators((len(owners), cuts), _in_order(parts, owners), buckets)

    @staticmethod
    def cost(n_features: int, cuts: int, n_samples: int, n_parties: int) -> Cost:
        """Return the cost for that many features, cuts and samples."""
        matrices = Z32.nbytes((n_features, cuts, n_samples))
        return Cost(rounds=1, online=(n_parties - 1) * matrices)


def _in_order(parts: list[RingArray], owners: tuple[int, ...]) -> LimbMatrix:
    """Put the owners' matrices in the order of the features."""
    seen = [0] * len(parts)
    rows = []
    for owner in owners:
        rows.append(parts[owner][seen[owner]])
        seen[owner] += 1
    stacked = np.concatenate(rows)
    return LimbMatrix(stacked)


class Histogram(Gate):
    """Sum masked vectors, (K, N), over the samples that pass each cut of each feature: (J, C, K).

    Cost: no opening; corrections for the sums. Reveals: nothing. Error: none.
    """

    name = "histogram"

    def deal(self, dealer: Dealer, indicators: Indicators, x: Masked) -> Share:
        """Multiply masks with masks."""
        sums = indicators.matrix.times(x.mask.known.T, x.ring)
        dealer.derive(sums, x.ring)
        return Share.unknown((*indicators.shape, x.shape[0]), x.ring)

    def run(self, party: Party, indicators: Indicators, x: Masked) -> Share:
        """Multiply masked indicators with our share of the masks, our own with what is public."""
        features, cuts = indicators.shape
        sums = indicators.matrix.times(x.mask.part.T, x.ring)
        x.ring.accumulate(sums, party.derived(sums.shape, x.ring).part)
        result = x.ring.negate(sums).reshape(features, cuts, -1)
        for j, bucket in indicators.own.items():
            for k, vector in enumerate(x.opened):
                # Sums of N < 2^21 numbers below 2^32 are exact in float64.
                by_bucket = np.bincount(bucket, weights=vector, minlength=cuts + 1)
                passing = np.cumsum(by_bucket)[:cuts].astype(np.uint64).astype(x.ring.dtype)
                result[j, :, k] = x.ring.add(result[j, :, k], passing)
        return Share(result, x.ring)

    @staticmethod
    def cost(n_features: int, cuts: int, vectors: int, itemsize: int) -> Cost:
        """Return the cost for that many features, cuts and vectors."""
        return Cost(offline=n_features * cuts * vectors * itemsize)


publish = Publish()
histogram = Histogram()
