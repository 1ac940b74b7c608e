"""Openings: share vectors as messages, summed all-to-all or by reduce-scatter.

An opening, a publication, a share and a correction are coded alike (`arithmetic.wire`): one vector
as it is, several as their bytes in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from privet.arithmetic.packing import pack_elements, unpack_elements
from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import Elements
from privet.transport.channel import Array, Expected

EXPECTED_ANNOUNCEMENT = Expected(np.dtype(np.uint32), (1,))
"""A small number, as it is announced."""


@dataclass(frozen=True)
class Payload:
    """Vectors of known rings and lengths as one message."""

    rings: Sequence[Ring]
    lengths: Sequence[int]

    @classmethod
    def for_array(cls, ring: Ring, shape: tuple[int, ...]) -> Payload:
        """Return the letter that carries one array."""
        return cls([ring], [prod(shape)])

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        if len(self.rings) == 1:
            return self.rings[0].count_packed_bytes(self.lengths[0])
        return sum(
            r.count_packed_bytes(length) for r, length in zip(self.rings, self.lengths, strict=True)
        )

    @property
    def expected(self) -> Expected:
        """The type and shape of the message."""
        if len(self.rings) == 1 and self.rings[0].is_word:
            return Expected(self.rings[0].dtype, (self.lengths[0],))
        return Expected(np.dtype(np.uint8), (self.nbytes,))

    def encode(self, arrays: Sequence[RingArray]) -> Array:
        """Return the message."""
        if len(arrays) == 1:
            return pack_elements(self.rings[0], arrays[0].reshape(-1))
        parts = [pack_elements(r, a.reshape(-1)) for r, a in zip(self.rings, arrays, strict=True)]
        raw = [np.ascontiguousarray(part).view(np.uint8) for part in parts]
        return np.concatenate(raw) if raw else np.empty(0, dtype=np.uint8)

    def decode(self, message: Array) -> list[RingArray]:
        """Return the vectors of a message."""
        if len(self.rings) == 1:
            return [unpack_elements(self.rings[0], message, self.lengths[0])]
        vectors, start = [], 0
        for ring, length in zip(self.rings, self.lengths, strict=True):
            end = start + ring.count_packed_bytes(length)
            part = message[start:end]
            if ring.is_word:  # a copy, since a view could be of numbers that are not aligned
                part = part.copy().view(ring.dtype)
            vectors.append(unpack_elements(ring, part, length))
            start = end
        return vectors


Fold = Callable[[list[list[RingArray]], list[slice]], list[RingArray]]
"""Adds up pieces, [participant][array], that lie at the given slices of their arrays."""
Exchange = Callable[[dict[str, Array], dict[str, Expected]], dict[str, Array]]
"""One round: sends arrays to peers, and returns what is due from them."""


@dataclass(frozen=True)
class NetworkModel:
    """What carries the bytes of all participants: it decides how an opening travels."""

    delay: float
    """In seconds, one way."""
    rate: float
    """In bytes a second, shared by all."""

    def max_all_to_all_bytes(self, n_parties: int) -> int:
        """Return up to how many bytes one delay and all bytes cost less than two and a part."""
        return int(self.delay * self.rate / ((n_parties - 1) * max(1, n_parties - 2)))


DEFAULT_ALL_TO_ALL_BYTES = 12_000
"""Openings of up to this many bytes go all-to-all where nobody knows the link. For four
participants that share 100 Mbit/s with a delay of 5 ms, it costs within a percent of the best."""


@dataclass(frozen=True)
class OpeningPlan:
    """How vectors of some rings and lengths are opened by n participants.

    All-to-all: one delay, in which each sends everything to all. In slices: each adds one slice up
    and sends the sum to all, which takes two delays and 2 / n of the bytes.
    """

    rings: Sequence[Ring]
    lengths: Sequence[int]
    n_parties: int
    network: NetworkModel | None = None

    @property
    def payload(self) -> Payload:
        """All vectors as one letter."""
        return Payload(self.rings, self.lengths)

    @property
    def is_reduce_scatter(self) -> bool:
        """Whether they are added up slice by slice."""
        if self.n_parties == 2:
            return False
        most = (
            DEFAULT_ALL_TO_ALL_BYTES
            if self.network is None
            else self.network.max_all_to_all_bytes(self.n_parties)
        )
        return self.payload.nbytes > most

    def slice_bounds(self) -> list[list[slice]]:
        """Return each participant's slice of each vector; lengths differ by one at most."""
        n = self.n_parties
        return [[slice(s * k // n, s * (k + 1) // n) for s in self.lengths] for k in range(n)]

    @property
    def slice_payloads(self) -> list[Payload]:
        """Each participant's slices as a letter."""
        return [Payload(self.rings, [c.stop - c.start for c in cut]) for cut in self.slice_bounds()]

    @property
    def rounds(self) -> int:
        """How many delays the opening takes."""
        return 2 if self.is_reduce_scatter else 1

    @property
    def nbytes(self) -> int:
        """How many bytes all participants send."""
        n = self.n_parties
        if self.is_reduce_scatter:
            return 2 * (n - 1) * sum(letter.nbytes for letter in self.slice_payloads)
        return n * (n - 1) * self.payload.nbytes


def merge_vectors(values: Sequence[Elements]) -> tuple[list[Ring], list[int]]:
    """Return the rings and lengths that values are opened with: as one vector, if over one ring."""
    rings, lengths = [x.ring for x in values], [x.size for x in values]
    if all(ring is rings[0] for ring in rings):
        return [rings[0]], [sum(lengths)]
    return rings, lengths


class Opener:
    """How one participant opens vectors with the others."""

    def __init__(
        self, names: Sequence[str], index: int, exchange: Exchange, network: NetworkModel | None
    ) -> None:
        self._names = names
        self._index = index
        self._exchange = exchange
        self._link = network
        self._all = range(len(names))
        self._others = [k for k in self._all if k != index]
        self._peers = [names[k] for k in self._others]

    def open_sums(
        self, parts: list[RingArray], sum_pieces: Fold, rings: list[Ring]
    ) -> list[RingArray]:
        """Return the sums of everybody's vectors."""
        travel = OpeningPlan(rings, [part.size for part in parts], len(self._names), self._link)
        return (self._reduce_scatter if travel.is_reduce_scatter else self._all_to_all)(
            parts, sum_pieces, travel
        )

    def _all_to_all(
        self, parts: list[RingArray], sum_pieces: Fold, plan: OpeningPlan
    ) -> list[RingArray]:
        """Send everything to everybody, and add up."""
        letter = plan.payload
        received = self._exchange(
            dict.fromkeys(self._peers, letter.encode(parts)),
            dict.fromkeys(self._peers, letter.expected),
        )
        pieces = [parts, *(letter.decode(theirs) for theirs in received.values())]
        return sum_pieces(pieces, [slice(0, part.size) for part in parts])

    def _reduce_scatter(
        self, parts: list[RingArray], sum_pieces: Fold, plan: OpeningPlan
    ) -> list[RingArray]:
        """Send slice k to participant k; add our own slice up; send the sum to all."""
        cuts, letters = plan.slice_bounds(), plan.slice_payloads
        sliced = [[part[c] for part, c in zip(parts, cut, strict=True)] for cut in cuts]
        ours = letters[self._index]

        received = self._exchange(
            {self._names[k]: letters[k].encode(sliced[k]) for k in self._others},
            dict.fromkeys(self._peers, ours.expected),
        )
        pieces = [sliced[self._index], *(ours.decode(theirs) for theirs in received.values())]
        sums = sum_pieces(pieces, cuts[self._index])

        received = self._exchange(
            dict.fromkeys(self._peers, ours.encode(sums)),
            {self._names[k]: letters[k].expected for k in self._others},
        )
        totals = [np.empty_like(part) for part in parts]
        for k in self._all:
            found = sums if k == self._index else letters[k].decode(received[self._names[k]])
            for total, cut, piece in zip(totals, cuts[k], found, strict=True):
                total[cut] = piece
        return totals


def sum_shares(ring: Ring, parts: Sequence[RingArray]) -> RingArray:
    """Return the sum of two or more equally shaped arrays."""
    total = ring.add(parts[0], parts[1])
    for part in parts[2:]:
        ring.add_in_place(total, part)
    return total
