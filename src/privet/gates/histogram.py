"""Histograms: sums of masked vectors by buckets that only their owners know, without an opening.

Owner l has an indicator matrix M over its features' cuts: M[j, b, i] is 1 if sample i of feature j
lies in bucket b or below, so sums are those of the samples that pass the test at cut b. It
publishes E = M - A once, with A known to it and the dealer alone. For a masked vector x = F - r,

    M x = M F - M r = M F - E r - A r

of which the owner computes M F, every participant E times its own share of r, and the dealer A r.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privet.arithmetic.limbs import LimbMatrix
from privet.arithmetic.rings import Z36, RingArray
from privet.arithmetic.shares import Share
from privet.arrays import BucketArray
from privet.gates.gate import Cost, Gate
from privet.gates.masked import Masked
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime
from privet.transport.channel import Expected


@dataclass
class Indicators:
    """Indicator matrices of all features: the masked ones at participants, masks at the dealer."""

    shape: tuple[int, int]
    """(features, cuts)."""
    matrix: LimbMatrix
    """E, or A at the dealer: (features * cuts, N)."""
    own: dict[int, BucketArray]
    """Our own features' buckets, by feature."""
    _begun: tuple[list[Share], Future[list[RingArray]]] | None = None

    @contextlib.contextmanager
    def ahead(self, runtime: Runtime) -> Iterator[None]:
        """Multiply masks that are drawn here in the background, while they are opened."""
        if not isinstance(runtime, Party):
            yield
            return
        runtime.on_masks = self._begin
        yield
        runtime.on_masks = None

    def _begin(self, masks: list[Share]) -> None:
        self._begun = masks, _worker().submit(self._multiply, masks)

    def _multiply(self, masks: list[Share]) -> list[RingArray]:
        length = masks[0].shape[-1]
        return self.matrix.times(*((r.part.reshape(-1, length).T, r.ring) for r in masks))

    def products(self, vectors: Sequence[Masked]) -> list[RingArray]:
        """Return the matrix times our shares of the vectors' masks."""
        masks = [x.mask.share for x in vectors if x.mask.share is not None]
        begun, self._begun = self._begun, None
        done: dict[int, RingArray] = {}
        if begun is not None:
            drawn, found = begun
            done = dict(zip(map(id, drawn), found.result(), strict=True))
        # Public vectors have masks of zeros, which need no product.
        rest = [r for r in masks if id(r) not in done and r.part.any()]
        if rest:
            done |= dict(zip(map(id, rest), self._multiply(rest), strict=True))
        rows = self.shape[0] * self.shape[1]
        return [done.get(id(r), r.ring.zeros((rows, len(r)))) for r in masks]


@lru_cache(maxsize=1)
def _worker() -> ThreadPoolExecutor:
    """Return the thread that multiplies while others wait for the network."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="histogram")


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
        matrix = LimbMatrix(len(owners) * cuts, n_samples)
        for j, owner in enumerate(owners):
            matrix.place(j * cuts, dealer.private((cuts, n_samples), Z36, owner))
        return Indicators((len(owners), cuts), matrix, {})

    def run(
        self,
        party: Party,
        owners: tuple[int, ...],
        own: BucketArray,
        cuts: int,
        n_samples: int,
    ) -> Indicators:
        """Mask and send our own; receive the others'."""
        everybody = range(party.n_parties)
        features = [[j for j, owner in enumerate(owners) if owner == k] for k in everybody]
        size = cuts * n_samples
        kind = Expected(np.dtype(np.uint8), (Z36.wire_bytes(size),))
        sent, buckets = [], iter(own)
        for owner in owners:
            mask = party.private((cuts, n_samples), Z36, owner)
            if mask is not None:
                indicators = (next(buckets) <= np.arange(cuts)[:, None]).astype(np.uint64)
                sent.append(Z36.to_wire((indicators - mask).reshape(-1)))
        matrix = LimbMatrix(len(owners) * cuts, n_samples)
        for k, position, message in party.publish(sent, [[kind] * len(f) for f in features]):
            rows = Z36.from_wire(message, size).reshape(cuts, n_samples)
            matrix.place(features[k][position] * cuts, rows)
        own_buckets = dict(zip(features[party.index], own, strict=True))
        return Indicators((len(owners), cuts), matrix, own_buckets)

    @staticmethod
    def cost(n_features: int, cuts: int, n_samples: int, n_parties: int) -> Cost:
        """Return the cost for that many features, cuts and samples."""
        matrices = n_features * Z36.wire_bytes(cuts * n_samples)
        return Cost(rounds=1, online=(n_parties - 1) * matrices)


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
        found = []
        for sums, x in zip(indicators.products(vectors), vectors, strict=True):
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
