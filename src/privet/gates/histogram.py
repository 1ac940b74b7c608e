"""Histograms: sums of masked vectors by buckets that only their owners know, without an opening.

Owner l has an indicator matrix M over its features' cuts: M[j, b, i] is 1 if sample i of feature j
lies in bucket b or below, so sums are those of the samples that pass the test at cut b. It
publishes E = M - A once, with A known to it and the dealer alone. For a masked vector x = F - r,

    M x = M F - M r = M F - E r - A r

of which the owner computes M F, every participant E times its own share of r, and the dealer A r.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from privet.arithmetic.limbs import LimbMatrix
from privet.arithmetic.rings import Z36, RingArray
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

    Cost: one round, in which each owner sends its matrices over Z36 to all others. Reveals:
    nothing.
    """

    name = "publish indicators"

    def deal(
        self, dealer: Dealer, owners: tuple[int, ...], own: None, cuts: int, n_samples: int
    ) -> Indicators:
        """Draw masks of all indicators."""
        parts = [
            dealer.private((owners.count(k), cuts, n_samples), Z36, k)
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
            kinds.append(Expected(np.dtype(np.uint8), (Z36.wire_bytes(prod(shape)),)))
            drawn = party.private(shape, Z36, k)
            if drawn is not None:
                masked = (own[:, None, :] <= np.arange(cuts)[:, None]).astype(np.uint64) - drawn
        sent = party.publish(Z36.to_wire(masked.reshape(-1)), kinds)
        parts = [
            Z36.from_wire(message, owners.count(k) * cuts * n_samples).reshape(
                owners.count(k), cuts, n_samples
            )
            for k, message in enumerate(sent)
        ]
        buckets = dict(zip(mine, own, strict=True))
        return Indicators((len(owners), cuts), _in_order(parts, owners), buckets)

    @staticmethod
    def cost(n_features: int, cuts: int, n_samples: int, n_parties: int) -> Cost:
        """Return the cost for that many features, cuts and samples."""
        matrices = Z36.wire_bytes(n_features * cuts * n_samples)
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
    """Sum masked vectors, (K, N) each, over the samples that pass each cut of each feature.

    Returns shares of shape (J, C, K). Cost: no opening; corrections for the sums. Reveals: nothing.
    Error: none.
    """

    name = "histogram"

    def deal(self, dealer: Dealer, indicators: Indicators, *vectors: Masked) -> list[Share]:
        """Multiply masks with masks."""
        factors = [(x.mask.known.T, x.ring) for x in vectors]
        for sums, x in zip(indicators.matrix.times(*factors), vectors, strict=True):
            dealer.derive(sums, x.ring)
        return [Share.unknown((*indicators.shape, x.shape[0]), x.ring) for x in vectors]

    def run(self, party: Party, indicators: Indicators, *vectors: Masked) -> list[Share]:
        """Multiply masked indicators with our share of the masks, our own with what is public."""
        features, cuts = indicators.shape
        factors = [(x.mask.part.T, x.ring) for x in vectors]
        found = []
        for sums, x in zip(indicators.matrix.times(*factors), vectors, strict=True):
            x.ring.accumulate(sums, party.derived(sums.shape, x.ring).part)
            result = x.ring.negate(sums).reshape(features, cuts, -1)
            for j, bucket in indicators.own.items():
                for k, vector in enumerate(x.opened):
                    result[j, :, k] += _sums_by_bucket(bucket, vector, cuts + 1)[:cuts]
            found.append(Share(result, x.ring))
        return found

    @staticmethod
    def cost(n_features: int, cuts: int, vectors: int, itemsize: int) -> Cost:
        """Return the cost for that many features, cuts and vectors."""
        return Cost(offline=n_features * cuts * vectors * itemsize)


def _sums_by_bucket(bucket: BucketArray, vector: RingArray, buckets: int) -> RingArray:
    """Return sums of the samples in each bucket or below it."""
    # In halves of 20 bits, of which sums of fewer than 2^32 are exact in float64.
    total = np.zeros(buckets, dtype=np.uint64)
    for shift in range(0, 8 * vector.itemsize, 20):
        half = (vector.astype(np.uint64) >> np.uint64(shift)) & np.uint64(0xFFFFF)
        sums = np.bincount(bucket, weights=half, minlength=buckets)
        total += sums.astype(np.uint64) << np.uint64(shift)
    return np.cumsum(total, dtype=np.uint64).astype(vector.dtype)


publish = Publish()
histogram = Histogram()
