"""Adding shares up at everybody: all-to-all, or in slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from privet.arithmetic.rings import Ring, RingArray
from privet.runtime.packing import Letter, even_slices
from privet.transport.channel import Array, Expected

# Openings of up to this many bytes go all-to-all, in one delay. Larger ones are summed in slices,
# each by one participant, which takes two delays and 2/n of the bytes. At the limit, four
# participants that share 100 Mbit/s save in bytes a little more than a second delay of 5 ms.
ALL_TO_ALL_BYTES = 1 << 14

Fold = Callable[[list[list[RingArray]], list[slice]], list[RingArray]]
"""Adds up pieces, [participant][array], that lie at the given slices of their arrays."""
Exchange = Callable[[dict[str, Array], dict[str, Expected]], dict[str, Array]]
"""One round: sends arrays to peers, and returns what is due from them."""


class Opening:
    """How one participant opens vectors with the others."""

    def __init__(self, names: Sequence[str], index: int, exchange: Exchange) -> None:
        self._names = names
        self._index = index
        self._exchange = exchange
        self._all = range(len(names))
        self._others = [k for k in self._all if k != index]
        self._peers = [names[k] for k in self._others]

    def totals(self, parts: list[RingArray], fold: Fold, rings: list[Ring]) -> list[RingArray]:
        """Return the sums of everybody's vectors."""
        size = sum(ring.wire_bytes(part.size) for ring, part in zip(rings, parts, strict=True))
        small = size <= ALL_TO_ALL_BYTES or len(self._names) == 2
        return (self._all_to_all if small else self._in_slices)(parts, fold, rings)

    def _all_to_all(self, parts: list[RingArray], fold: Fold, rings: list[Ring]) -> list[RingArray]:
        """Send everything to everybody, and add up."""
        letter = Letter(rings, [part.size for part in parts])
        received = self._exchange(
            dict.fromkeys(self._peers, letter.write(parts)),
            dict.fromkeys(self._peers, letter.kind),
        )
        pieces = [parts, *(letter.read(theirs) for theirs in received.values())]
        return fold(pieces, [slice(0, part.size) for part in parts])

    def _in_slices(self, parts: list[RingArray], fold: Fold, rings: list[Ring]) -> list[RingArray]:
        """Send slice k to participant k; add our own slice up; send the sum to all."""
        cuts = [even_slices(part.size, len(self._names)) for part in parts]
        sliced = [[part[cut[k]] for part, cut in zip(parts, cuts, strict=True)] for k in self._all]
        letters = [Letter(rings, [piece.size for piece in pieces]) for pieces in sliced]
        ours = letters[self._index]

        received = self._exchange(
            {self._names[k]: letters[k].write(sliced[k]) for k in self._others},
            dict.fromkeys(self._peers, ours.kind),
        )
        pieces = [sliced[self._index], *(ours.read(theirs) for theirs in received.values())]
        sums = fold(pieces, [cut[self._index] for cut in cuts])

        received = self._exchange(
            dict.fromkeys(self._peers, ours.write(sums)),
            {self._names[k]: letters[k].kind for k in self._others},
        )
        totals = [np.empty_like(part) for part in parts]
        for k in self._all:
            found = sums if k == self._index else letters[k].read(received[self._names[k]])
            for total, cut, piece in zip(totals, cuts, found, strict=True):
                total[cut[k]] = piece
        return totals
