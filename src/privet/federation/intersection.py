"""What the dealer does in an alignment: marks, in each participant's list, what all lists have.

Lists are of random numbers, as far as it can tell, and sorted. So it takes them piece by piece, all
up to the same number, and never holds a whole one.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from privet.arrays import BoolArray
from privet.data.tags import TagArray
from privet.errors import PeerMisbehavedError
from privet.files.id_terms import MOST_ROWS
from privet.files.job import Job
from privet.transport.channel import Channel, Expected

DUMMIES = 64
"""Ids that nobody has, in everybody's list: a dealer that marks nothing is found out by them."""
TAG = zlib.crc32(b"alignment")
SIZE = Expected(np.dtype(np.uint64), (1,))
PIECE = 1 << 19
"""How many tags a message holds: 4 MiB of them."""


def entries_of(rows: int) -> int:
    """Return how many entries the list of so many rows has, and its padding."""
    return 2 * (rows + DUMMIES)


def marks_of(entries: int) -> Expected:
    """Return what a participant gets back for its list: a bit for each entry."""
    return Expected(np.dtype(np.uint8), ((entries + 7) // 8,))


def intersect(channel: Channel, job: Job) -> int:
    """Tell each participant which of its entries all have; return how many ids that are."""
    lists = [_List(channel, name, job.ids.padded) for name in job.names]
    marks = mark_common(lists)
    for name, mine in zip(job.names, marks, strict=True):
        answer(channel, name, mine)
    return max(0, int(np.count_nonzero(marks[0])) // 2 - DUMMIES)


def answer(channel: Channel, name: str, marks: BoolArray) -> None:
    """Tell a participant which of its entries all have."""
    channel.send(name, np.packbits(marks), TAG)


class _List:
    """One participant's list, as it comes."""

    def __init__(self, channel: Channel, peer: str, padded: int | None) -> None:
        self._channel = channel
        self._peer = peer
        self.size = int(channel.receive(peer, SIZE, TAG)[0])
        if not entries_of(0) <= self.size <= entries_of(MOST_ROWS) or self.size % 2:
            raise PeerMisbehavedError(peer, f"announced {self.size} tags")
        if padded is not None and self.size != entries_of(padded):
            raise PeerMisbehavedError(peer, f"announced {self.size} tags of {padded} padded rows")
        self._left = self.size
        self._last = -1
        self.window: TagArray = np.empty(0, np.uint64)

    @property
    def ended(self) -> bool:
        """Whether nothing is left."""
        return not self._left and not len(self.window)

    def look(self) -> int:
        """Return the last entry that is here; wait for some if there are none."""
        if not len(self.window):
            self._receive()
        return int(self.window[-1])

    def take(self, last: int) -> TagArray:
        """Return the entries up to this one."""
        count = int(np.searchsorted(self.window, np.uint64(last), side="right"))
        taken, self.window = self.window[:count], self.window[count:]
        return taken

    def drain(self) -> None:
        """Take in the rest, which nobody needs."""
        while self._left:
            self._receive()

    def _receive(self) -> None:
        count = min(PIECE, self._left)
        piece = self._channel.receive(self._peer, Expected(np.dtype(np.uint64), (count,)), TAG)
        if int(piece[0]) <= self._last or (piece[1:] <= piece[:-1]).any():
            raise PeerMisbehavedError(self._peer, "sent tags that are not sorted, or one twice")
        self._left -= count
        self._last = int(piece[-1])
        self.window = piece


def mark_common(lists: Sequence[_List]) -> list[BoolArray]:
    """Return, for each list, which of its entries all lists have."""
    marks: list[BoolArray] = [np.zeros(each.size, dtype=np.bool_) for each in lists]
    done = [0] * len(lists)
    while not any(each.ended for each in lists):
        last = min(each.look() for each in lists)
        pieces = [each.take(last) for each in lists]
        common = _in_all(pieces)
        for k, piece in enumerate(pieces):
            marks[k][done[k] + np.searchsorted(piece, common)] = True
            done[k] += len(piece)
    for each in lists:
        each.drain()
    return marks


def _in_all(pieces: Sequence[TagArray]) -> TagArray:
    """Return what all of some sorted arrays have; in each of them no number is there twice."""
    merged = np.sort(np.concatenate(pieces), kind="stable")  # which finds that they are sorted
    ahead = merged[len(pieces) - 1 :]
    common: TagArray = ahead[ahead == merged[: len(ahead)]]
    return common
