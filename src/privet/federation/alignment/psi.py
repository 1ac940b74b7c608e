"""Sample alignment: private set intersection with the help of a dealer.

1. Participants draw a key that the dealer does not see: each tells the others 32 random bytes.
2. Under the key, every id has two tags and an order number (`data.tags`). Each participant sends
   the dealer both tags of all its ids, those of dummies that follow from the key, and random
   numbers for as many ids as it is padded by, in one sorted list.
3. The dealer marks in each one's list what all lists have (`federation.intersection`).
4. A participant finds both tags of an id marked or neither, all dummies, and nothing that pads. It
   orders its common rows by their order numbers, and compares a digest of these with the others.

So the dealer cannot name what somebody has not, nor tell anybody something else than the others.
To leave out an id that all have, it must guess which two tags are its own: with M common ids, it
succeeds at most once in 2 (M + 64) - 1 times. It sees no order number, so it does not know the
order.

Lists are of random numbers, as far as it can tell, and sorted. So it takes them piece by piece, all
up to the same number, and never holds a whole one.
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
"""Ids that nobody has, in everybody's list: a dealer that marks nothing is found out by them."""
MESSAGE_TAG = zlib.crc32(b"alignment")
SIZE_LAYOUT = Expected(np.dtype(np.uint64), (1,))
PIECE_TAGS = 1 << 19
"""How many tags a message holds: 4 MiB of them."""


def count_entries(rows: int) -> int:
    """Return how many entries the list of so many rows has, and its padding."""
    return 2 * (rows + N_DUMMIES)


def make_marks_layout(entries: int) -> Expected:
    """Return what a participant gets back for its list: a bit for each entry."""
    return Expected(np.dtype(np.uint8), ((entries + 7) // 8,))


def mark_and_count_common(channel: Channel, job: Job) -> int:
    """Tell each participant which of its entries all have; return how many ids that are."""
    lists = [_ReceivedTagList(channel, name, job.ids.padded) for name in job.party_names]
    marks = mark_common(lists)
    for name, mine in zip(job.party_names, marks, strict=True):
        send_marks(channel, name, mine)
    return max(0, int(np.count_nonzero(marks[0])) // 2 - N_DUMMIES)


def send_marks(channel: Channel, name: str, marks: BoolArray) -> None:
    """Tell a participant which of its entries all have."""
    channel.send(name, np.packbits(marks), MESSAGE_TAG)


class _ReceivedTagList:
    """One participant's list, as it comes."""

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
        """Whether nothing is left."""
        return not self._left and not len(self.window)

    def peek_last(self) -> int:
        """Return the last entry that is here; wait for some if there are none."""
        if not len(self.window):
            self._receive()
        return int(self.window[-1])

    def take_up_to(self, last: int) -> TagArray:
        """Return the entries up to this one."""
        count = int(np.searchsorted(self.window, np.uint64(last), side="right"))
        taken, self.window = self.window[:count], self.window[count:]
        return taken

    def drain(self) -> None:
        """Take in the rest, which nobody needs."""
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
    """Return, for each list, which of its entries all lists have."""
    marks: list[BoolArray] = [np.zeros(each.size, dtype=np.bool_) for each in lists]
    done = [0] * len(lists)
    while not any(each.ended for each in lists):
        last = min(each.peek_last() for each in lists)
        pieces = [each.take_up_to(last) for each in lists]
        common = _intersect_sorted(pieces)
        for k, piece in enumerate(pieces):
            marks[k][done[k] + np.searchsorted(piece, common)] = True
            done[k] += len(piece)
    for each in lists:
        each.drain()
    return marks


def _intersect_sorted(pieces: Sequence[TagArray]) -> TagArray:
    """Return what all of some sorted arrays have; in each of them no number is there twice."""
    merged = np.sort(np.concatenate(pieces), kind="stable")  # which finds that they are sorted
    ahead = merged[len(pieces) - 1 :]
    common: TagArray = ahead[ahead == merged[: len(ahead)]]
    return common


KEY_BYTES = 32
_INVALID_DIGEST = b""
"""Told in place of a digest, by those to whom the dealer's answer cannot be right."""
_RETRY_ADVICE = "align again; if it does it again, have another dealer"


def intersect_ids(channel: Channel, job: Job, ids: Ids) -> IndexArray:
    """Return which of our rows all have, in the order that all have agreed on."""
    channel.current_step = lambda: "alignment"
    key = agree_on_key(channel, job)
    ours = SortedTagList(ids, key, draw_padding(job, len(ids)))
    ours.send(channel, job.aligning_dealer)
    received = channel.receive(job.aligning_dealer, make_marks_layout(len(ours)), MESSAGE_TAG)
    marks = np.unpackbits(received, count=len(ours)).astype(np.bool_)
    problem = ours.explain_invalid_marks(marks)
    rows = ours.select_common_rows(marks)
    told = _INVALID_DIGEST if problem else digest_order(ours.order_numbers[rows], key)
    answers = exchange_messages(channel, dict.fromkeys(_list_other_parties(channel, job), told))
    if problem:
        raise PeerMisbehavedError(job.aligning_dealer, f"{problem}: {_RETRY_ADVICE}")
    for name, theirs in answers.items():
        if theirs == _INVALID_DIGEST:
            raise PeerMisbehavedError(
                job.aligning_dealer, f"what it told {name} cannot be right: {_RETRY_ADVICE}"
            )
        if theirs != told:
            raise PeerMisbehavedError(
                job.aligning_dealer, f"told {name} other rows than us: {_RETRY_ADVICE}"
            )
    return rows


def agree_on_key(channel: Channel, job: Job) -> bytes:
    """Return a key that all participants have, and nobody else; new every time."""
    others = _list_other_parties(channel, job)
    ours = secrets.token_bytes(KEY_BYTES)
    parts = exchange_messages(channel, dict.fromkeys(others, ours)) | {channel.name: ours}
    for name, part in parts.items():
        if len(part) != KEY_BYTES:
            raise PeerMisbehavedError(name, f"told {len(part)} bytes as its part of the key")
    together = b"".join(parts[name] for name in job.party_names)
    key = hashlib.blake2b(together, digest_size=KEY_BYTES, person=b"privet key").digest()
    # Whoever told two of us different parts would make the dealer's honest answer look wrong.
    check = hashlib.blake2b(digest_size=KEY_BYTES, key=key, person=b"privet check").digest()
    checks = exchange_messages(channel, dict.fromkeys(others, check)) | {channel.name: check}
    require_equal(
        channel,
        {"key of the alignment": {name: each.hex()[:16] for name, each in checks.items()}},
        "somebody has told one of us another part of it than the others; align again, and if it "
        "does it again, without it",
    )
    return key


def draw_padding(job: Job, n_rows: int) -> TagArray:
    """Return random numbers that stand for the ids that we have not, if the job has us padded."""
    missing = max(0, (job.ids.padded or 0) - n_rows)
    return np.frombuffer(secrets.token_bytes(16 * missing), np.uint64)


def digest_order(order_numbers: TagArray, key: bytes) -> bytes:
    """Return a digest of the common rows' order numbers: it tells which rows, and in which order.

    Only those who have the key can know the numbers, so nobody else could try ids on it.
    """
    numbers = order_numbers.astype("<u8", copy=False).data
    return hashlib.blake2b(numbers, digest_size=32, key=key, person=b"privet rows").digest()


class SortedTagList:
    """What a participant sends the dealer: its ids' tags, dummies and padding, sorted."""

    def __init__(self, ids: Ids, key: bytes, padding: TagArray) -> None:
        tags, dummies = Tags.from_ids(ids, key), Tags.make_dummies(N_DUMMIES, key)
        self.order_numbers = tags.order_numbers
        """The order numbers of our rows."""
        entries = np.concatenate([tags.pairs, dummies.pairs, padding], axis=None)
        self._ids, self._dummies = tags.pairs.size, tags.pairs.size + dummies.pairs.size
        del tags  # which are large, as all that follows
        place = np.argsort(entries, kind="stable")
        self._entries = entries[place]
        self._positions = place.astype(np.uint32)
        """Where each entry was, before they were sorted."""
        _check_distinct(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def send(self, channel: Channel, dealer: str) -> None:
        """Send it to the dealer that aligns, piece by piece."""
        channel.send(dealer, np.array([len(self)], np.uint64), MESSAGE_TAG)
        for start in range(0, len(self), PIECE_TAGS):
            channel.send(dealer, self._entries[start : start + PIECE_TAGS], MESSAGE_TAG)

    def explain_invalid_marks(self, marks: BoolArray) -> str:
        """Say what cannot be right with the dealer's marks; nothing, if they may be."""
        ids, dummies, filling = self._unsort(marks)
        if not dummies.all():
            return f"left out {np.count_nonzero(~dummies)} entries that it got from all of us"
        if filling.any():
            return f"marked {np.count_nonzero(filling)} entries that nobody else can have"
        halves = np.count_nonzero(ids[0::2] != ids[1::2])
        return f"marked one of two tags of {halves} ids" if halves else ""

    def select_common_rows(self, marks: BoolArray) -> IndexArray:
        """Return the rows whose tags are marked, by their order numbers."""
        rows = np.flatnonzero(self._unsort(marks)[0][0::2])
        numbers = self.order_numbers[rows]
        sequence = np.argsort(numbers, kind="stable")
        _check_distinct(numbers[sequence])
        return rows[sequence]

    def _unsort(self, marks: BoolArray) -> tuple[BoolArray, BoolArray, BoolArray]:
        """Return the marks of our ids' tags, of dummies and of what pads, each in its own order."""
        found = np.empty_like(marks)
        found[self._positions] = marks
        return found[: self._ids], found[self._ids : self._dummies], found[self._dummies :]


def _check_distinct(numbers: TagArray) -> None:
    if (numbers[1:] == numbers[:-1]).any():
        raise DataError(
            "two of our tags are the same number, by chance: nothing is wrong, start again"
        )


def _list_other_parties(channel: Channel, job: Job) -> list[str]:
    """Return all participants but us: not the dealer."""
    return [name for name in job.party_names if name != channel.name]
