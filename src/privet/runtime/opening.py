"""Openings: share vectors as messages, summed all-to-all or by reduce-scatter.

Openings, publications, shares and corrections use the same message layout, `Payload`.
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
"""The message of an announced number."""


@dataclass(frozen=True)
class Payload:
    """The message layout of vectors of known rings and lengths.

    A single vector is packed by its ring (`arithmetic.packing`), several are the concatenation of
    their packed bytes.
    """

    rings: Sequence[Ring]
    lengths: Sequence[int]

    @classmethod
    def for_array(cls, ring: Ring, shape: tuple[int, ...]) -> Payload:
        """Return the payload of one array."""
        return cls([ring], [prod(shape)])

    @property
    def nbytes(self) -> int:
        """Bytes of the message."""
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
        """Encode vectors as a message."""
        if len(arrays) == 1:
            return pack_elements(self.rings[0], arrays[0].reshape(-1))
        parts = [pack_elements(r, a.reshape(-1)) for r, a in zip(self.rings, arrays, strict=True)]
        raw = [np.ascontiguousarray(part).view(np.uint8) for part in parts]
        return np.concatenate(raw) if raw else np.empty(0, dtype=np.uint8)

    def decode(self, message: Array) -> list[RingArray]:
        """Decode the vectors of a message."""
        if len(self.rings) == 1:
            return [unpack_elements(self.rings[0], message, self.lengths[0])]
        vectors, start = [], 0
        for ring, length in zip(self.rings, self.lengths, strict=True):
            end = start + ring.count_packed_bytes(length)
            part = message[start:end]
            if ring.is_word:  # a copy: a view could be misaligned
                part = part.copy().view(ring.dtype)
            vectors.append(unpack_elements(ring, part, length))
            start = end
        return vectors


Fold = Callable[[list[list[RingArray]], list[slice]], list[RingArray]]
"""Adds up pieces, [participant][array], from the given slices of their arrays."""
Exchange = Callable[[dict[str, Array], dict[str, Expected]], dict[str, Array]]
"""One round: sends arrays to peers, and returns the expected arrays from them."""


@dataclass(frozen=True)
class NetworkModel:
    """The delay and rate of the network, which decide how values are opened."""

    delay: float
    """In seconds, one way."""
    rate: float
    """In bytes a second, shared by all participants."""

    def max_all_to_all_bytes(self, n_parties: int) -> int:
        """Return the size in bytes up to which all-to-all is faster than reduce-scatter.

        All-to-all takes one delay, reduce-scatter two delays and 2 / n of the bytes.
        """
        return int(self.delay * self.rate / ((n_parties - 1) * max(1, n_parties - 2)))


DEFAULT_ALL_TO_ALL_BYTES = 12_000
"""Openings of up to this many bytes go all-to-all if the network is unknown. For four participants
that share 100 Mbit/s with a delay of 5 ms, the cost is within one percent of the optimum."""


@dataclass(frozen=True)
class OpeningPlan:
    """How n participants open vectors of some rings and lengths.

    All-to-all: each participant sends its whole vectors to all others, in one delay.
    Reduce-scatter: each participant adds up one slice and sends the sum to all others, in two
    delays and with 2 / n of the bytes.
    """

    rings: Sequence[Ring]
    lengths: Sequence[int]
    n_parties: int
    network: NetworkModel | None = None

    @property
    def payload(self) -> Payload:
        """All vectors as one payload."""
        return Payload(self.rings, self.lengths)

    @property
    def is_reduce_scatter(self) -> bool:
        """Whether each participant adds up one slice."""
        if self.n_parties == 2:
            return False
        limit = (
            DEFAULT_ALL_TO_ALL_BYTES
            if self.network is None
            else self.network.max_all_to_all_bytes(self.n_parties)
        )
        return self.payload.nbytes > limit

    def slice_bounds(self) -> list[list[slice]]:
        """Return each participant's slice of each vector; their lengths differ by at most one."""
        n = self.n_parties
        return [[slice(s * k // n, s * (k + 1) // n) for s in self.lengths] for k in range(n)]

    @property
    def slice_payloads(self) -> list[Payload]:
        """Each participant's slices as a payload."""
        return [
            Payload(self.rings, [bound.stop - bound.start for bound in bounds])
            for bounds in self.slice_bounds()
        ]

    @property
    def rounds(self) -> int:
        """Network delays of the opening."""
        return 2 if self.is_reduce_scatter else 1

    @property
    def nbytes(self) -> int:
        """Bytes that all participants send together."""
        n = self.n_parties
        if self.is_reduce_scatter:
            return 2 * (n - 1) * sum(payload.nbytes for payload in self.slice_payloads)
        return n * (n - 1) * self.payload.nbytes


def merge_vectors(values: Sequence[Elements]) -> tuple[list[Ring], list[int]]:
    """Return the rings and lengths of opened vectors: one vector if all values have one ring."""
    rings, lengths = [x.ring for x in values], [x.size for x in values]
    if all(ring is rings[0] for ring in rings):
        return [rings[0]], [sum(lengths)]
    return rings, lengths


class Opener:
    """Opens vectors with the other participants."""

    def __init__(
        self, names: Sequence[str], index: int, exchange: Exchange, network: NetworkModel | None
    ) -> None:
        self._names = names
        self._index = index
        self._exchange = exchange
        self._network = network
        self._all = range(len(names))
        self._others = [k for k in self._all if k != index]
        self._peers = [names[k] for k in self._others]

    def open_sums(
        self, parts: list[RingArray], sum_pieces: Fold, rings: list[Ring]
    ) -> list[RingArray]:
        """Return the sums of all participants' vectors."""
        plan = OpeningPlan(rings, [part.size for part in parts], len(self._names), self._network)
        return (self._reduce_scatter if plan.is_reduce_scatter else self._all_to_all)(
            parts, sum_pieces, plan
        )

    def _all_to_all(
        self, parts: list[RingArray], sum_pieces: Fold, plan: OpeningPlan
    ) -> list[RingArray]:
        """Send all vectors to all other participants, and add up."""
        payload = plan.payload
        received = self._exchange(
            dict.fromkeys(self._peers, payload.encode(parts)),
            dict.fromkeys(self._peers, payload.expected),
        )
        pieces = [parts, *(payload.decode(message) for message in received.values())]
        return sum_pieces(pieces, [slice(0, part.size) for part in parts])

    def _reduce_scatter(
        self, parts: list[RingArray], sum_pieces: Fold, plan: OpeningPlan
    ) -> list[RingArray]:
        """Send slice k to participant k, add up the local slice, and send its sum to all."""
        bounds, payloads = plan.slice_bounds(), plan.slice_payloads
        sliced = [[part[s] for part, s in zip(parts, slices, strict=True)] for slices in bounds]
        local_payload = payloads[self._index]

        received = self._exchange(
            {self._names[k]: payloads[k].encode(sliced[k]) for k in self._others},
            dict.fromkeys(self._peers, local_payload.expected),
        )
        pieces = [
            sliced[self._index],
            *(local_payload.decode(message) for message in received.values()),
        ]
        sums = sum_pieces(pieces, bounds[self._index])

        received = self._exchange(
            dict.fromkeys(self._peers, local_payload.encode(sums)),
            {self._names[k]: payloads[k].expected for k in self._others},
        )
        totals = [np.empty_like(part) for part in parts]
        for k in self._all:
            decoded = sums if k == self._index else payloads[k].decode(received[self._names[k]])
            for total, bound, piece in zip(totals, bounds[k], decoded, strict=True):
                total[bound] = piece
        return totals


def sum_shares(ring: Ring, parts: Sequence[RingArray]) -> RingArray:
    """Return the sum of two or more equally shaped arrays."""
    total = ring.add(parts[0], parts[1])
    for part in parts[2:]:
        ring.add_in_place(total, part)
    return total
