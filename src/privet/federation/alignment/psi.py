"""Sample alignment: private set intersection with the help of a dealer.

1. Participants agree on a key that the dealer does not see: each sends 32 random bytes to the other
   participants.
2. Under the key, every id has two tags and an order number (`data.id_hashing`). Each participant
   sends the dealer one sorted list: both tags of all its ids, the tags of dummies that follow from
   the key, and random numbers for its padding.
3. In each list, the dealer marks the entries that occur in all lists.
4. Each participant checks the marks: both tags of an id or neither, all dummies, no padding. It
   orders its common rows by their order numbers, and compares a digest of these with the other
   participants.

The dealer therefore cannot add an id that a participant lacks, nor send different results to two
participants. To leave out a common id, it must guess which two tags belong to it: with M common
ids, the probability of success is at most 1 / (2 (M + 64) - 1). It sees no order number, so it does
not know the order of the rows.

To the dealer, the lists are sorted random numbers. It reads them in pieces, all lists up to the
same number, and never stores a whole list.
"""

from __future__ import annotations

import hashlib
import secrets
import zlib
from collections.abc import Sequence

import numpy as np

from privet.arrays import BoolArray, IndexArray
from privet.config.job import MAX_ALIGNED_ROWS, Job
from privet.data.frame import Ids
from privet.data.id_hashing import TagArray, Tags
from privet.errors import DataError, PeerMisbehavedError
from privet.federation.session.session import require_equal
from privet.transport.channel import Channel, Expected, exchange_messages

N_DUMMIES = 64
"""Dummy ids in every list, which no participant has: they expose a dealer that leaves marks out."""
MESSAGE_TAG = zlib.crc32(b"alignment")
SIZE_LAYOUT = Expected(np.dtype(np.uint64), (1,))
PIECE_TAGS = 1 << 19
"""Tags in one message: 4 MiB."""


def count_entries(rows: int) -> int:
    """Return the number of entries in a list for this many rows, padding included."""
    return 2 * (rows + N_DUMMIES)


def make_marks_layout(entries: int) -> Expected:
    """Return the layout of the marks of a list: one bit for each entry."""
    return Expected(np.dtype(np.uint8), ((entries + 7) // 8,))


def mark_and_count_common(channel: Channel, job: Job) -> int:
    """Send each participant the marks of its list; return the number of common ids."""
    lists = [_ReceivedTagList(channel, name, job.ids.padded) for name in job.party_names]
    marks = mark_common(lists)
    for name, party_marks in zip(job.party_names, marks, strict=True):
        send_marks(channel, name, party_marks)
    return max(0, int(np.count_nonzero(marks[0])) // 2 - N_DUMMIES)


def send_marks(channel: Channel, name: str, marks: BoolArray) -> None:
    """Send a participant the marks of its list."""
    channel.send(name, np.packbits(marks), MESSAGE_TAG)


class _ReceivedTagList:
    """One participant's sorted list of tags, received in pieces."""

    def __init__(self, channel: Channel, peer: str, padded_rows: int | None) -> None:
        self._channel = channel
        self._peer = peer
        self.size = int(channel.receive(peer, SIZE_LAYOUT, MESSAGE_TAG)[0])
        if not count_entries(0) <= self.size <= count_entries(MAX_ALIGNED_ROWS) or self.size % 2:
            raise PeerMisbehavedError(peer, f"announced {self.size} tags")
        if padded_rows is not None and self.size != count_entries(padded_rows):
            raise PeerMisbehavedError(
                peer, f"announced {self.size} tags of {padded_rows} padded rows"
            )
        self._left = self.size
        self._last = -1
        self.window: TagArray = np.empty(0, np.uint64)

    @property
    def ended(self) -> bool:
        """Whether the whole list was received and taken."""
        return not self._left and not len(self.window)

    def peek_last(self) -> int:
        """Return the last entry in the window; receive a piece if the window is empty."""
        if not len(self.window):
            self._receive()
        return int(self.window[-1])

    def take_up_to(self, last: int) -> TagArray:
        """Remove and return the entries up to `last`."""
        count = int(np.searchsorted(self.window, np.uint64(last), side="right"))
        taken, self.window = self.window[:count], self.window[count:]
        return taken

    def drain(self) -> None:
        """Receive and discard the rest of the list."""
        while self._left:
            self._receive()

    def _receive(self) -> None:
        count = min(PIECE_TAGS, self._left)
        piece = self._channel.receive(
            self._peer, Expected(np.dtype(np.uint64), (count,)), MESSAGE_TAG
        )
        if int(piece[0]) <= self._last or (piece[1:] <= piece[:-1]).any():
            raise PeerMisbehavedError(self._peer, "sent tags that are not sorted, or one twice")
        self._left -= count
        self._last = int(piece[-1])
        self.window = piece


def mark_common(lists: Sequence[_ReceivedTagList]) -> list[BoolArray]:
    """Return, for each list, the mask of its entries that occur in all lists."""
    marks: list[BoolArray] = [np.zeros(each.size, dtype=np.bool_) for each in lists]
    n_done = [0] * len(lists)
    while not any(each.ended for each in lists):
        last = min(each.peek_last() for each in lists)
        pieces = [each.take_up_to(last) for each in lists]
        common = _intersect_sorted(pieces)
        for k, piece in enumerate(pieces):
            marks[k][n_done[k] + np.searchsorted(piece, common)] = True
            n_done[k] += len(piece)
    for each in lists:
        each.drain()
    return marks


def _intersect_sorted(pieces: Sequence[TagArray]) -> TagArray:
    """Return the numbers that occur in all of some sorted arrays without duplicates."""
    merged = np.sort(np.concatenate(pieces), kind="stable")  # timsort: merges runs
    shifted = merged[len(pieces) - 1 :]
    common: TagArray = shifted[shifted == merged[: len(shifted)]]
    return common


KEY_BYTES = 32
_INVALID_DIGEST = b""
"""Sent instead of a digest by a participant whose marks are invalid."""
_RETRY_ADVICE = "align again; if it does it again, have another dealer"


def intersect_ids(channel: Channel, job: Job, ids: Ids) -> IndexArray:
    """Return the common rows of the local table, in the order that all participants share."""
    channel.current_step = lambda: "alignment"
    key = agree_on_key(channel, job)
    tag_list = SortedTagList(ids, key, draw_padding(job, len(ids)))
    tag_list.send(channel, job.aligning_dealer)
    received = channel.receive(job.aligning_dealer, make_marks_layout(len(tag_list)), MESSAGE_TAG)
    marks = np.unpackbits(received, count=len(tag_list)).astype(np.bool_)
    problem = tag_list.explain_invalid_marks(marks)
    rows = tag_list.select_common_rows(marks)
    row_digest = _INVALID_DIGEST if problem else digest_order(tag_list.order_numbers[rows], key)
    peer_digests = exchange_messages(
        channel, dict.fromkeys(_list_other_parties(channel, job), row_digest)
    )
    if problem:
        raise PeerMisbehavedError(job.aligning_dealer, f"{problem}: {_RETRY_ADVICE}")
    for name, peer_digest in peer_digests.items():
        if peer_digest == _INVALID_DIGEST:
            raise PeerMisbehavedError(
                job.aligning_dealer, f"what it told {name} cannot be right: {_RETRY_ADVICE}"
            )
        if peer_digest != row_digest:
            raise PeerMisbehavedError(
                job.aligning_dealer, f"told {name} other rows than us: {_RETRY_ADVICE}"
            )
    return rows


def agree_on_key(channel: Channel, job: Job) -> bytes:
    """Return a new key that only the participants know."""
    others = _list_other_parties(channel, job)
    key_part = secrets.token_bytes(KEY_BYTES)
    parts = exchange_messages(channel, dict.fromkeys(others, key_part)) | {channel.name: key_part}
    for name, part in parts.items():
        if len(part) != KEY_BYTES:
            raise PeerMisbehavedError(name, f"told {len(part)} bytes as its part of the key")
    key_material = b"".join(parts[name] for name in job.party_names)
    key = hashlib.blake2b(key_material, digest_size=KEY_BYTES, person=b"privet key").digest()
    # A participant that sent different parts to two peers would make honest marks look invalid.
    key_check = hashlib.blake2b(digest_size=KEY_BYTES, key=key, person=b"privet check").digest()
    key_checks = exchange_messages(channel, dict.fromkeys(others, key_check)) | {
        channel.name: key_check
    }
    require_equal(
        channel,
        {"key of the alignment": {name: each.hex()[:16] for name, each in key_checks.items()}},
        "somebody has told one of us another part of it than the others; align again, and if it "
        "does it again, without it",
    )
    return key


def draw_padding(job: Job, n_rows: int) -> TagArray:
    """Return random tags that pad the list to the job's padded row count, if it sets one."""
    missing = max(0, (job.ids.padded or 0) - n_rows)
    return np.frombuffer(secrets.token_bytes(16 * missing), np.uint64)


def digest_order(order_numbers: TagArray, key: bytes) -> bytes:
    """Return a digest of the common rows' order numbers, which fixes the rows and their order.

    The order numbers depend on the key, so a party without the key cannot test guessed ids on it.
    """
    numbers = order_numbers.astype("<u8", copy=False).data
    return hashlib.blake2b(numbers, digest_size=32, key=key, person=b"privet rows").digest()


class SortedTagList:
    """The sorted list that a participant sends: tags of its ids, dummies and padding."""

    def __init__(self, ids: Ids, key: bytes, padding: TagArray) -> None:
        tags, dummies = Tags.from_ids(ids, key), Tags.make_dummies(N_DUMMIES, key)
        self.order_numbers = tags.order_numbers
        """Order number of each local row."""
        entries = np.concatenate([tags.pairs, dummies.pairs, padding], axis=None)
        self._ids, self._dummies = tags.pairs.size, tags.pairs.size + dummies.pairs.size
        del tags  # large, as are the arrays below
        sorted_order = np.argsort(entries, kind="stable")
        self._entries = entries[sorted_order]
        self._positions = sorted_order.astype(np.uint32)
        """Position of each entry before sorting."""
        _check_distinct(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def send(self, channel: Channel, dealer: str) -> None:
        """Send the list to the aligning dealer, in pieces."""
        channel.send(dealer, np.array([len(self)], np.uint64), MESSAGE_TAG)
        for start in range(0, len(self), PIECE_TAGS):
            channel.send(dealer, self._entries[start : start + PIECE_TAGS], MESSAGE_TAG)

    def explain_invalid_marks(self, marks: BoolArray) -> str:
        """Return why the dealer's marks are invalid; an empty string if they are consistent."""
        ids, dummies, padding = self._unsort(marks)
        if not dummies.all():
            return f"left out {np.count_nonzero(~dummies)} entries that it got from all of us"
        if padding.any():
            return f"marked {np.count_nonzero(padding)} entries that nobody else can have"
        n_halves = np.count_nonzero(ids[0::2] != ids[1::2])
        return f"marked one of two tags of {n_halves} ids" if n_halves else ""

    def select_common_rows(self, marks: BoolArray) -> IndexArray:
        """Return the rows whose tags are marked, ordered by their order numbers."""
        rows = np.flatnonzero(self._unsort(marks)[0][0::2])
        numbers = self.order_numbers[rows]
        row_order = np.argsort(numbers, kind="stable")
        _check_distinct(numbers[row_order])
        return rows[row_order]

    def _unsort(self, marks: BoolArray) -> tuple[BoolArray, BoolArray, BoolArray]:
        """Return the marks of tags, dummies and padding, each in its order before sorting."""
        found = np.empty_like(marks)
        found[self._positions] = marks
        return found[: self._ids], found[self._ids : self._dummies], found[self._dummies :]


def _check_distinct(numbers: TagArray) -> None:
    if (numbers[1:] == numbers[:-1]).any():
        raise DataError(
            "two of our tags are the same number, by chance: nothing is wrong, start again"
        )


def _list_other_parties(channel: Channel, job: Job) -> list[str]:
    """Return all other participants, without the dealers."""
    return [name for name in job.party_names if name != channel.name]
