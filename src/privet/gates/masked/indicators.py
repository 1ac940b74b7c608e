"""Indicator matrices of the samples left of each cut, which their owners publish under a mask.

Owner l has an indicator matrix M over its features' cuts: M[j, b, i] is 1 if sample i of feature j
is in bucket b or below. It publishes E = M - A once, with A known only to it and to dealers. If
rows are masked with a lattice (`lattice_mask`), it publishes E = M P - A, with fewer columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privet.arithmetic import large_arrays
from privet.arithmetic.exact_matmul import LimbMatrix
from privet.arithmetic.large_arrays import allocate_array
from privet.arithmetic.ring_lwe import RingLwe, SmallFactorMatrix
from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import list_local_parts
from privet.arrays import BucketArray, IndexSelection
from privet.gates.gate import Gate
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import CostCounter
from privet.runtime.party import Party
from privet.runtime.runtime import Shape

_BLOCK = 1 << 16  # samples, whose positions in the block fit into two bytes


class SortedFeature:
    """Samples sorted by one feature's buckets, so that sums up to a cut are running sums.

    They are sorted within blocks: positions in a block take two bytes, and the values of a block
    stay in a core's cache.
    """

    def __init__(self, bucket: BucketArray, cut_count: int, order: npt.NDArray[np.uint16]) -> None:
        """Sort the samples, and write their order into `order`."""
        self.bucket = bucket
        self._blocks = large_arrays.split_into_blocks(len(bucket), _BLOCK)
        self._order = order
        self._counts = np.empty((len(self._blocks), cut_count), dtype=np.int64)
        """The number of samples of each block in each bucket that is left of a cut."""

        def sort(number: int) -> None:
            block = self._blocks[number]
            self._order[block] = np.argsort(bucket[block], kind="stable")
            self._counts[number] = np.bincount(bucket[block], minlength=cut_count)[:cut_count]

        large_arrays.run_blocks(sort, range(len(self._blocks)), len(bucket))

    def sum_up_to_cuts(self, vectors: RingArray) -> RingArray:
        """Return the sums of vectors, (K, N), up to each cut: (C, K)."""
        shape = (len(self._blocks), self._counts.shape[1], len(vectors))
        found = np.zeros(shape, dtype=vectors.dtype)

        def add(number: int) -> None:
            block, counts = self._blocks[number], self._counts[number]
            filled = np.flatnonzero(counts)
            if len(filled):
                starts = (np.cumsum(counts) - counts)[filled]
                order = self._order[block][: counts.sum()].astype(np.intp)
                for k, vector in enumerate(vectors):
                    ordered = vector[block].take(order, mode="clip")
                    found[number, filled, k] = np.add.reduceat(ordered, starts)

        large_arrays.run_blocks(add, range(len(self._blocks)), vectors.size)
        total = found.sum(axis=0, dtype=vectors.dtype)
        return np.cumsum(total, axis=0, dtype=vectors.dtype)


def sort_features(
    buckets: dict[int, BucketArray], cut_counts: Sequence[int]
) -> dict[int, SortedFeature]:
    """Sort samples by several features; `cut_counts` has those of all features.

    All orders are in one array, because a process can open only a limited number of files.
    """
    length = max(map(len, buckets.values()), default=0)
    orders = allocate_array((len(buckets), length), np.uint16)
    rows = zip(buckets.items(), orders, strict=True)
    return {j: SortedFeature(bucket, cut_counts[j], order) for (j, bucket), order in rows}


@dataclass(frozen=True, repr=False)
class Indicators:
    """Indicator matrices of all features: E at participants, A, or parts of it, at dealers."""

    cut_counts: tuple[int, ...]
    """The cut count of each feature, which is its number of rows."""
    matrices: tuple[LimbMatrix | SmallFactorMatrix, ...] = ()
    """(C, N), for C cuts of all features: two parts at one of three dealers, none at a counter."""
    sorted_features: dict[int, SortedFeature] = field(default_factory=dict)
    """The samples sorted by each local feature."""
    has_lattice_masks: bool = False
    """Whether they are multiplied with secrets instead of masks, so that they have few columns."""

    @cached_property
    def row_slices(self) -> list[slice]:
        """The rows of each feature."""
        ends = np.cumsum(self.cut_counts).tolist()
        return [slice(end - count, end) for end, count in zip(ends, self.cut_counts, strict=True)]

    def select(self, samples: IndexSelection, features: IndexSelection) -> Indicators:
        """Return the indicators of some samples and features."""
        chosen = np.arange(len(self.cut_counts))[features].tolist()
        cuts = tuple(self.cut_counts[j] for j in chosen)
        local_buckets = {
            k: self.sorted_features[j].bucket
            for k, j in enumerate(chosen)
            if j in self.sorted_features
        }
        return Indicators(
            cuts,
            tuple(matrix.select(self._rows(features), samples) for matrix in self.matrices),
            sort_features({k: bucket[samples] for k, bucket in local_buckets.items()}, cuts),
            self.has_lattice_masks,
        )

    def _rows(self, features: IndexSelection) -> IndexSelection:
        """Return the matrix's rows of some features."""
        if isinstance(features, slice):
            return slice(None)
        return np.flatnonzero(
            np.isin(np.repeat(np.arange(len(self.cut_counts)), self.cut_counts), features)
        )

    def multiply(self, part: int, masks: Sequence[tuple[RingArray, Ring]]) -> list[RingArray]:
        """Return a matrix times masks (..., N), taken as rows: (C, rows) each."""
        return self.matrices[part].multiply(
            *((r.reshape(-1, r.shape[-1]).T, ring) for r, ring in masks)
        )


class PublicationFormat(NamedTuple):
    """How masked indicators are published, a row for every cut."""

    ring: Ring
    n_columns: int
    lattice_seed: str = ""
    """The public seed of the lattice, if there is one."""


class IndicatorCache(ABC):
    """Where a participant keeps what others publish, for trainings to come."""

    @abstractmethod
    def load(self, owner: int, position: int, shape: Shape, ring: Ring) -> RingArray:
        """Return the rows of one of the features that a participant published before."""

    @abstractmethod
    def save(self, owner: int, position: int, rows: RingArray, ring: Ring) -> None:
        """Keep them."""


class PublishIndicators(Gate):
    """Publish masked indicator matrices, once for a training run, or once for several runs.

    1. The dealer and each owner draw A.
    2. Owners send E = M - A to all participants: uniform to a party that does not know A.

    With a lattice, E = M P - A, which has 2048 or 4096 columns instead of N.

    Where they are to be kept, A is drawn from a seed that lasts, and E is put on the shelf. Owners
    in `kept` have published the same before, under the same A, and everybody has it there.

    Cost: one round, in which each owner sends its matrices to all others, over the ring of the
    widest sums; none, if all are kept. Reveals: nothing.
    """

    name = "publish indicators"

    def deal(
        self,
        dealer: Dealer,
        local_buckets: dict[int, BucketArray],
        owners: tuple[int, ...],
        cache: IndicatorCache | None = None,
        *,
        cut_counts: tuple[int, ...],
        n_samples: int,
        ring: Ring,
        cached_owners: tuple[int, ...] | None = None,
        lattice: RingLwe | None = None,
    ) -> Indicators:
        """Draw masks of all indicators."""
        matrices = tuple(
            _matrix(cut_counts, n_samples, lattice) for _ in range(dealer.n_mask_parts)
        )
        indicators = Indicators(cut_counts, matrices, has_lattice_masks=lattice is not None)
        draw = dealer.private if cached_owners is None else dealer.draw_persistent_mask
        for span, owner in zip(indicators.row_slices, owners, strict=True):
            mask = draw((span.stop - span.start, _columns(n_samples, lattice)), ring, owner)
            for matrix, part in zip(matrices, list_local_parts(mask), strict=True):
                matrix.fill_rows(span.start, part)
        return indicators

    def run(
        self,
        party: Party,
        local_buckets: dict[int, BucketArray],
        owners: tuple[int, ...],
        cache: IndicatorCache | None = None,
        *,
        cut_counts: tuple[int, ...],
        n_samples: int,
        ring: Ring,
        cached_owners: tuple[int, ...] | None = None,
        lattice: RingLwe | None = None,
    ) -> Indicators:
        """Mask and send the local indicators, and receive those of the other participants."""
        matrix, columns = _matrix(cut_counts, n_samples, lattice), _columns(n_samples, lattice)
        indicators = Indicators(
            cut_counts, (matrix,), sort_features(local_buckets, cut_counts), lattice is not None
        )
        features = [[j for j, o in enumerate(owners) if o == k] for k in range(party.n_parties)]
        shapes: list[list[Shape]] = [[(cut_counts[j], columns) for j in each] for each in features]
        draw = party.private if cached_owners is None else party.persistent_mask
        local_rows = []
        for j, owner in enumerate(owners):
            mask = draw((cut_counts[j], columns), ring, owner)
            if mask is not None:
                local_rows.append(
                    ring.subtract(_rows(local_buckets[j], cut_counts[j], ring, lattice), mask)
                )
        for k, position, rows in _exchange_indicators(
            party, local_rows, shapes, cache, ring, cached_owners or ()
        ):
            span = indicators.row_slices[features[k][position]]
            matrix.fill_rows(span.start, rows)
        return indicators

    def count(
        self,
        counter: CostCounter,
        local_buckets: dict[int, BucketArray],
        owners: tuple[int, ...],
        cache: IndicatorCache | None = None,
        *,
        cut_counts: tuple[int, ...],
        n_samples: int,
        ring: Ring,
        cached_owners: tuple[int, ...] | None = None,
        lattice: RingLwe | None = None,
    ) -> Indicators:
        """Count the round, unless no owner has anything to send."""
        new = [k not in (cached_owners or ()) for k in owners]
        columns = _columns(n_samples, lattice)
        shapes = [(count, columns) for count, sent in zip(cut_counts, new, strict=True) if sent]
        if shapes:
            counter.count_publication(ring, shapes)
        return Indicators(cut_counts, has_lattice_masks=lattice is not None)


def _columns(n_samples: int, lattice: RingLwe | None) -> int:
    """Return the number of columns to publish."""
    return n_samples if lattice is None else lattice.degree


def _matrix(
    cuts: tuple[int, ...], n_samples: int, lattice: RingLwe | None
) -> LimbMatrix | SmallFactorMatrix:
    """Return an empty matrix of all features."""
    if lattice is None:
        return LimbMatrix(sum(cuts), n_samples)
    return SmallFactorMatrix(sum(cuts), lattice.bits)


def _rows(bucket: BucketArray, cut_count: int, ring: Ring, lattice: RingLwe | None) -> RingArray:
    """Return the rows that the owner of a feature publishes, without the mask."""
    if lattice is not None:
        return lattice.project_indicators(bucket, cut_count)
    below: RingArray = bucket <= np.arange(cut_count)[:, None]
    return below.astype(ring.dtype)


def _exchange_indicators(
    party: Party,
    local_rows: list[RingArray],
    shapes: list[list[Shape]],
    cache: IndicatorCache | None,
    ring: Ring,
    cached_owners: tuple[int, ...],
) -> Iterator[tuple[int, int, RingArray]]:
    """Yield the owner, the position among its features, and the masked rows, of all features.

    What is kept comes from the shelf, our own from what we hold; the rest is sent, and shelved.
    """
    due = [[] if k in cached_owners else theirs for k, theirs in enumerate(shapes)]
    if any(due):
        for k, position, rows in party.publish(
            [] if party.index in cached_owners else local_rows, due, ring
        ):
            if cache is not None and k != party.index:
                cache.save(k, position, rows, ring)
            yield k, position, rows
    for k in cached_owners:
        for position, shape in enumerate(shapes[k]):
            if k == party.index:
                yield k, position, local_rows[position]
            else:
                assert cache is not None
                yield k, position, cache.load(k, position, shape, ring)


publish_indicators = PublishIndicators()
