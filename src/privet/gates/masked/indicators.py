"""Which samples lie left of each cut: matrices that only their owners know, published masked.

Owner l has an indicator matrix M over its features' cuts: M[j, b, i] is 1 if sample i of feature j
lies in bucket b or below. It publishes E = M - A once, with A known to it and to dealers; or E =
M P - A, with fewer columns, where rows are masked with a lattice (`hide`).
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
from privet.arithmetic.large_arrays import roomy
from privet.arithmetic.ring_lwe import Lattice, SmallProducts
from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import parts_of
from privet.arrays import BucketArray, Indices
from privet.gates.gate import Gate
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.cost import Counter
from privet.runtime.party import Party
from privet.runtime.runtime import Shape

_BLOCK = 1 << 16  # samples, whose positions fit two bytes


class Sorted:
    """Samples in the order of one feature's buckets, so that sums up to a cut are running sums.

    They are in order within blocks: positions in a block take two bytes, and what is taken there
    stays in a core's cache.
    """

    def __init__(self, bucket: BucketArray, cuts: int, order: npt.NDArray[np.uint16]) -> None:
        """Sort; the order is kept where the caller has room for it, two bytes a sample."""
        self.bucket = bucket
        self._blocks = large_arrays.blocks(len(bucket), _BLOCK)
        self._order = order
        self._counts = np.empty((len(self._blocks), cuts), dtype=np.int64)
        """How many samples of each block are in each bucket that passes some cut."""

        def sort(number: int) -> None:
            where = self._blocks[number]
            self._order[where] = np.argsort(bucket[where], kind="stable")
            self._counts[number] = np.bincount(bucket[where], minlength=cuts)[:cuts]

        large_arrays.each(sort, range(len(self._blocks)), len(bucket))

    def sums(self, vectors: RingArray) -> RingArray:
        """Return the sums of vectors, (K, N), up to each cut: (C, K)."""
        shape = (len(self._blocks), self._counts.shape[1], len(vectors))
        found = np.zeros(shape, dtype=vectors.dtype)

        def add(number: int) -> None:
            where, counts = self._blocks[number], self._counts[number]
            filled = np.flatnonzero(counts)
            if len(filled):
                starts = (np.cumsum(counts) - counts)[filled]
                order = self._order[where][: counts.sum()].astype(np.intp)
                for k, vector in enumerate(vectors):
                    ordered = vector[where].take(order, mode="clip")
                    found[number, filled, k] = np.add.reduceat(ordered, starts)

        large_arrays.each(add, range(len(self._blocks)), vectors.size)
        total = found.sum(axis=0, dtype=vectors.dtype)
        return np.cumsum(total, axis=0, dtype=vectors.dtype)


def sort_all(buckets: dict[int, BucketArray], cuts: Sequence[int]) -> dict[int, Sorted]:
    """Sort samples by several features, of all of which there are cuts.

    Their orders are in one array: a process may have only so many files.
    """
    length = max(map(len, buckets.values()), default=0)
    orders = roomy((len(buckets), length), np.uint16)
    rows = zip(buckets.items(), orders, strict=True)
    return {j: Sorted(bucket, cuts[j], order) for (j, bucket), order in rows}


@dataclass(frozen=True, repr=False)
class Indicators:
    """Indicator matrices of all features: E at participants, A, or parts of it, at dealers."""

    cuts: tuple[int, ...]
    """How many rows each feature has."""
    matrices: tuple[LimbMatrix | SmallProducts, ...] = ()
    """(C, N), for C cuts of all features; of two parts, if we have so many. A counter has none."""
    sorted: dict[int, Sorted] = field(default_factory=dict)
    """The samples in the order of our own features, by feature."""
    lattice: bool = False
    """Whether they are multiplied with secrets in place of masks: there are few columns, then."""

    @cached_property
    def places(self) -> list[slice]:
        """Where each feature's rows are."""
        ends = np.cumsum(self.cuts).tolist()
        return [slice(end - count, end) for end, count in zip(ends, self.cuts, strict=True)]

    def of(self, samples: Indices, features: Indices) -> Indicators:
        """Return those of some samples and features."""
        chosen = np.arange(len(self.cuts))[features].tolist()
        cuts = tuple(self.cuts[j] for j in chosen)
        own = {k: self.sorted[j].bucket for k, j in enumerate(chosen) if j in self.sorted}
        return Indicators(
            cuts,
            tuple(matrix.part(self._rows(features), samples) for matrix in self.matrices),
            sort_all({k: bucket[samples] for k, bucket in own.items()}, cuts),
            self.lattice,
        )

    def _rows(self, features: Indices) -> Indices:
        """Return the matrix's rows of some features."""
        if isinstance(features, slice):
            return slice(None)
        return np.flatnonzero(np.isin(np.repeat(np.arange(len(self.cuts)), self.cuts), features))

    def times(self, part: int, masks: Sequence[tuple[RingArray, Ring]]) -> list[RingArray]:
        """Return a matrix times masks (..., N), taken as rows: (C, rows) each."""
        return self.matrices[part].times(*((r.reshape(-1, r.shape[-1]).T, of) for r, of in masks))


class Published(NamedTuple):
    """How masked indicators are published, a row for every cut."""

    ring: Ring
    columns: int
    made_with: str = ""
    """What they are made with beside rows and buckets, if anything."""


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

    With a lattice it is M P - A, which has 2048 or 4096 columns in place of N.

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
        lattice: Lattice | None = None,
    ) -> Indicators:
        """Draw masks of all indicators."""
        matrices = tuple(_matrix(cuts, n_samples, lattice) for _ in range(dealer.parts))
        indicators = Indicators(cuts, matrices, lattice=lattice is not None)
        draw = dealer.private if kept is None else dealer.lasting_mask
        for where, owner in zip(indicators.places, owners, strict=True):
            mask = draw((where.stop - where.start, _columns(n_samples, lattice)), ring, owner)
            for matrix, part in zip(matrices, parts_of(mask), strict=True):
                matrix.place(where.start, part)
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
        lattice: Lattice | None = None,
    ) -> Indicators:
        """Mask and send our own; receive the others'."""
        matrix, columns = _matrix(cuts, n_samples, lattice), _columns(n_samples, lattice)
        indicators = Indicators(cuts, (matrix,), sort_all(own, cuts), lattice is not None)
        features = [[j for j, o in enumerate(owners) if o == k] for k in range(party.n_parties)]
        shapes: list[list[Shape]] = [[(cuts[j], columns) for j in each] for each in features]
        draw = party.private if kept is None else party.lasting
        ours = []
        for j, owner in enumerate(owners):
            mask = draw((cuts[j], columns), ring, owner)
            if mask is not None:
                ours.append(ring.subtract(_rows(own[j], cuts[j], ring, lattice), mask))
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
        lattice: Lattice | None = None,
    ) -> Indicators:
        """Count the round, unless nobody has anything to send."""
        new = [k not in (kept or ()) for k in owners]
        columns = _columns(n_samples, lattice)
        shapes = [(count, columns) for count, sent in zip(cuts, new, strict=True) if sent]
        if shapes:
            counter.publish(ring, shapes)
        return Indicators(cuts, lattice=lattice is not None)


def _columns(n_samples: int, lattice: Lattice | None) -> int:
    """Return how many columns are published."""
    return n_samples if lattice is None else lattice.degree


def _matrix(
    cuts: tuple[int, ...], n_samples: int, lattice: Lattice | None
) -> LimbMatrix | SmallProducts:
    """Return an empty matrix of all features."""
    if lattice is None:
        return LimbMatrix(sum(cuts), n_samples)
    return SmallProducts(sum(cuts), lattice.bits)


def _rows(bucket: BucketArray, cuts: int, ring: Ring, lattice: Lattice | None) -> RingArray:
    """Return what one feature has to publish, without its mask."""
    if lattice is not None:
        return lattice.gather(bucket, cuts)
    below: RingArray = bucket <= np.arange(cuts)[:, None]
    return below.astype(ring.dtype)


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


publish = Publish()
