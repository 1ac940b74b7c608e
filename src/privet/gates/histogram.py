"""Histograms: sums of masked vectors by buckets that only their owners know, without an opening.

Owner l has an indicator matrix M over its features' cuts: M[j, b, i] is 1 if sample i of feature j
lies in bucket b or below, so sums are those of the samples that pass the test at cut b. It
publishes E = M - A once, with A known to it and the dealer alone. For a masked vector x = F - r,

    M x = M F - M r = M F - E r - A r

of which the owner computes M F, every participant E times its own share of r, and the dealer A r.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from privet.arithmetic.limbs import LimbMatrix
from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import Elements, Share
from privet.arrays import BucketArray, Indices
from privet.gates.gate import Gate
from privet.gates.masked import Masked
from privet.runtime.counter import Counter
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime, Shape


class Sorted:
    """Samples in the order of one feature's buckets, so that sums up to a cut are running sums."""

    def __init__(self, bucket: BucketArray, cuts: int) -> None:
        self._bucket = bucket
        self._order = np.argsort(bucket, kind="stable")
        self._ends = np.searchsorted(bucket[self._order], np.arange(cuts), side="right")

    def of(self, rows: Indices) -> Sorted:
        """Return some of the samples, sorted."""
        return Sorted(self._bucket[rows], len(self._ends))

    def sums(self, vectors: RingArray) -> RingArray:
        """Return the sums of vectors, (K, N), up to each cut: (C, K)."""
        running = np.zeros((len(vectors), vectors.shape[1] + 1), dtype=vectors.dtype)
        for total, vector in zip(running, vectors, strict=True):
            np.cumsum(vector[self._order], dtype=vectors.dtype, out=total[1:])
        found: RingArray = running[:, self._ends].T
        return found


@dataclass(frozen=True, repr=False)
class Indicators:
    """Indicator matrices of all features: E at participants, A at the dealer."""

    cuts: tuple[int, ...]
    """How many rows each feature has."""
    matrix: LimbMatrix | None
    """(C, N), for C cuts of all features. A counter has none."""
    sorted: dict[int, Sorted] = field(default_factory=dict)
    """The samples in the order of our own features, by feature."""

    @cached_property
    def places(self) -> list[slice]:
        """Where each feature's rows are."""
        ends = np.cumsum(self.cuts).tolist()
        return [slice(end - count, end) for end, count in zip(ends, self.cuts, strict=True)]

    def of(self, samples: Indices, features: Indices) -> Indicators:
        """Return those of some samples and features."""
        chosen = np.arange(len(self.cuts))[features].tolist()
        return Indicators(
            tuple(self.cuts[j] for j in chosen),
            None if self.matrix is None else self.matrix.part(self._rows(features), samples),
            {k: self.sorted[j].of(samples) for k, j in enumerate(chosen) if j in self.sorted},
        )

    def _rows(self, features: Indices) -> Indices:
        """Return the matrix's rows of some features."""
        if isinstance(features, slice):
            return slice(None)
        return np.flatnonzero(np.isin(np.repeat(np.arange(len(self.cuts)), self.cuts), features))

    def times(self, masks: Sequence[Elements]) -> list[RingArray]:
        """Return the matrix times masks (..., N), taken as rows: (C, rows) each."""
        assert self.matrix is not None
        return self.matrix.times(*((r.array.reshape(-1, r.shape[-1]).T, r.ring) for r in masks))


class Products:
    """The indicators times masks, computed in the background while what they mask is opened.

    Its `begin` is the `meanwhile` of `mask` or `shrink`.
    """

    def __init__(self, runtime: Runtime, indicators: Indicators) -> None:
        self._runtime = runtime
        self.indicators = indicators
        self._begun: Future[list[RingArray]] | None = None

    def begin(self, masks: list[Elements]) -> None:
        """Begin to multiply."""
        self._begun = self._runtime.in_background(lambda: self.indicators.times(masks))

    def of(self, vectors: Sequence[Masked]) -> list[RingArray]:
        """Return the products with the vectors' masks; those of constants are zero."""
        rows = sum(self.indicators.cuts)
        masks = [x.mask for x in vectors if not x.constant]
        begun, self._begun = self._begun, None
        found = iter(self.indicators.times(masks) if begun is None else begun.result())
        return [x.ring.zeros((rows, len(x.mask))) if x.constant else next(found) for x in vectors]


class Shelf(ABC):
    """Where a participant keeps what others publish, for trainings to come."""

    @abstractmethod
    def load(self, owner: int, position: int, shape: Shape, ring: Ring) -> RingArray:
        """Return the rows of one of the features that a participant published before."""

    @abstractmethod
    def save(self, owner: int, position: int, rows: RingArray, ring: Ring) -> None:
        """Keep them."""


class Publish(Gate):
    """Publish masked indicator matrices, once a training, or once for several.

    1. The dealer and each owner draw A.
    2. Owners send E = M - A to all: uniform to whoever does not know A.

    Where they are to be kept, A is drawn from a seed that lasts, and E is put on the shelf. Owners
    in `kept` have published the same before, under the same A, and everybody has it there.

    Cost: one round, in which each owner sends its matrices to all others, over the ring of the
    widest sums; none, if all are kept. Reveals: nothing.
    """

    name = "publish indicators"

    def deal(
        self,
        dealer: Dealer,
        own: dict[int, BucketArray],
        owners: tuple[int, ...],
        shelf: Shelf | None = None,
        *,
        cuts: tuple[int, ...],
        n_samples: int,
        ring: Ring,
        kept: tuple[int, ...] | None = None,
    ) -> Indicators:
        """Draw masks of all indicators."""
        matrix = LimbMatrix(sum(cuts), n_samples)
        indicators = Indicators(cuts, matrix)
        draw = dealer.private if kept is None else dealer.lasting
        for where, owner in zip(indicators.places, owners, strict=True):
            mask = draw((where.stop - where.start, n_samples), ring, owner)
            assert mask is not None
            matrix.place(where.start, mask)
        return indicators

    def run(
        self,
        party: Party,
        own: dict[int, BucketArray],
        owners: tuple[int, ...],
        shelf: Shelf | None = None,
        *,
        cuts: tuple[int, ...],
        n_samples: int,
        ring: Ring,
        kept: tuple[int, ...] | None = None,
    ) -> Indicators:
        """Mask and send our own; receive the others'."""
        own_order = {j: Sorted(bucket, cuts[j]) for j, bucket in own.items()}
        matrix = LimbMatrix(sum(cuts), n_samples)
        indicators = Indicators(cuts, matrix, own_order)
        features = [[j for j, o in enumerate(owners) if o == k] for k in range(party.n_parties)]
        shapes: list[list[Shape]] = [[(cuts[j], n_samples) for j in each] for each in features]
        draw = party.private if kept is None else party.lasting
        ours = []
        for j, owner in enumerate(owners):
            mask = draw((cuts[j], n_samples), ring, owner)
            if mask is not None:
                below = own[j] <= np.arange(cuts[j])[:, None]
                ours.append(ring.subtract(below.astype(ring.dtype), mask))
        for k, position, rows in _everybodys(party, ours, shapes, shelf, ring, kept or ()):
            where = indicators.places[features[k][position]]
            matrix.place(where.start, rows)
        return indicators

    def count(
        self,
        counter: Counter,
        own: dict[int, BucketArray],
        owners: tuple[int, ...],
        shelf: Shelf | None = None,
        *,
        cuts: tuple[int, ...],
        n_samples: int,
        ring: Ring,
        kept: tuple[int, ...] | None = None,
    ) -> Indicators:
        """Count the round, unless nobody has anything to send."""
        new = [k not in (kept or ()) for k in owners]
        shapes = [(count, n_samples) for count, sent in zip(cuts, new, strict=True) if sent]
        if shapes:
            counter.publish(ring, shapes)
        return Indicators(cuts, None)


def _everybodys(
    party: Party,
    ours: list[RingArray],
    shapes: list[list[Shape]],
    shelf: Shelf | None,
    ring: Ring,
    kept: tuple[int, ...],
) -> Iterator[tuple[int, int, RingArray]]:
    """Yield whose, which of its features' and the masked rows, of all participants.

    What is kept comes from the shelf, our own from what we hold; the rest is sent, and shelved.
    """
    due = [[] if k in kept else theirs for k, theirs in enumerate(shapes)]
    if any(due):
        for k, position, rows in party.publish([] if party.index in kept else ours, due, ring):
            if shelf is not None and k != party.index:
                shelf.save(k, position, rows, ring)
            yield k, position, rows
    for k in kept:
        for position, shape in enumerate(shapes[k]):
            if k == party.index:
                yield k, position, ours[position]
            else:
                assert shelf is not None
                yield k, position, shelf.load(k, position, shape, ring)


class Histogram(Gate):
    """Sum masked vectors, (K, N) each, over the samples that pass each cut of each feature.

    Returns shares of shape (C, K). Cost: no opening; corrections for the sums. Reveals: nothing.
    Error: none.
    """

    name = "histogram"

    def deal(self, dealer: Dealer, products: Products, *vectors: Masked) -> list[Share]:
        """Deal A r, a product of two masks: several dealers would multiply halves, each its own."""
        for x, sums in zip(vectors, products.of(vectors), strict=True):
            dealer.deal(sums, x.ring)
        return [_unknown(products.indicators, x) for x in vectors]

    def run(self, party: Party, products: Products, *vectors: Masked) -> list[Share]:
        """Multiply masked indicators with our share of the masks, our own with what is public."""
        indicators, found = products.indicators, []
        for sums, x in zip(products.of(vectors), vectors, strict=True):
            x.ring.accumulate(sums, party.derived(sums.shape, x.ring).part)
            result = x.ring.negate(sums)
            for j in indicators.sorted:
                result[indicators.places[j]] += indicators.sorted[j].sums(x.public.array)
            found.append(Share(result, x.ring))
        return found

    def count(self, counter: Counter, products: Products, *vectors: Masked) -> list[Share]:
        """Count the sums."""
        found = [_unknown(products.indicators, x) for x in vectors]
        for sums in found:
            counter.derive(sums.ring, sums.shape)
        return found


def _unknown(indicators: Indicators, x: Masked) -> Share:
    return Share.unknown((sum(indicators.cuts), len(x.mask)), x.ring)


publish = Publish()
histogram = Histogram()
