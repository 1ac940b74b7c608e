"""Alignment: the rows that all participants have, in one order, with a dealer that learns no id.

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
"""

from __future__ import annotations

import hashlib
import secrets

import numpy as np

from privet.arrays import BoolArray, IndexArray
from privet.data.ids import Ids
from privet.data.tags import TagArray, Tags
from privet.errors import DataError, PeerMisbehavedError
from privet.federation.differences import refuse_differences
from privet.federation.intersection import DUMMIES, PIECE, TAG, marks_of
from privet.files.job import Job
from privet.transport.channel import Channel
from privet.transport.messages import swap

KEY_BYTES = 32
_WRONG = b""
"""Told in place of a digest, by those to whom the dealer's answer cannot be right."""
_ADVICE = "align again; if it does it again, have another dealer"


def align(channel: Channel, job: Job, ids: Ids) -> IndexArray:
    """Return which of our rows all have, in the order that all have agreed on."""
    channel.where = lambda: "alignment"
    key = draw_key(channel, job)
    ours = TagList(ids, key, padding(job, len(ids)))
    ours.send(channel, job.aligner)
    received = channel.receive(job.aligner, marks_of(len(ours)), TAG)
    marks = np.unpackbits(received, count=len(ours)).astype(np.bool_)
    problem = ours.problem(marks)
    rows = ours.common(marks)
    told = _WRONG if problem else digest(ours.order[rows], key)
    answers = swap(channel, dict.fromkeys(_others(channel, job), told))
    if problem:
        raise PeerMisbehavedError(job.aligner, f"{problem}: {_ADVICE}")
    for name, theirs in answers.items():
        if theirs == _WRONG:
            raise PeerMisbehavedError(
                job.aligner, f"what it told {name} cannot be right: {_ADVICE}"
            )
        if theirs != told:
            raise PeerMisbehavedError(job.aligner, f"told {name} other rows than us: {_ADVICE}")
    return rows


def draw_key(channel: Channel, job: Job) -> bytes:
    """Return a key that all participants have, and nobody else; new every time."""
    others = _others(channel, job)
    ours = secrets.token_bytes(KEY_BYTES)
    parts = swap(channel, dict.fromkeys(others, ours)) | {channel.name: ours}
    for name, part in parts.items():
        if len(part) != KEY_BYTES:
            raise PeerMisbehavedError(name, f"told {len(part)} bytes as its part of the key")
    together = b"".join(parts[name] for name in job.names)
    key = hashlib.blake2b(together, digest_size=KEY_BYTES, person=b"privet key").digest()
    # Whoever told two of us different parts would make the dealer's honest answer look wrong.
    check = hashlib.blake2b(digest_size=KEY_BYTES, key=key, person=b"privet check").digest()
    checks = swap(channel, dict.fromkeys(others, check)) | {channel.name: check}
    refuse_differences(
        channel,
        {"key of the alignment": {name: each.hex()[:16] for name, each in checks.items()}},
        "somebody has told one of us another part of it than the others; align again, and if it "
        "does it again, without it",
    )
    return key


def padding(job: Job, rows: int) -> TagArray:
    """Return random numbers that stand for the ids that we have not, if the job has us padded."""
    missing = max(0, (job.ids.padded or 0) - rows)
    return np.frombuffer(secrets.token_bytes(16 * missing), np.uint64)


def digest(order: TagArray, key: bytes) -> bytes:
    """Return a digest of the common rows' order numbers: it tells which rows, and in which order.

    Only those who have the key can know the numbers, so nobody else could try ids on it.
    """
    numbers = order.astype("<u8", copy=False).data
    return hashlib.blake2b(numbers, digest_size=32, key=key, person=b"privet rows").digest()


class TagList:
    """What a participant sends the dealer: its ids' tags, dummies and padding, sorted."""

    def __init__(self, ids: Ids, key: bytes, filling: TagArray) -> None:
        tags, dummies = Tags.of(ids, key), Tags.of_dummies(DUMMIES, key)
        self.order = tags.order
        """The order numbers of our rows."""
        entries = np.concatenate([tags.pairs, dummies.pairs, filling], axis=None)
        self._ids, self._dummies = tags.pairs.size, tags.pairs.size + dummies.pairs.size
        del tags  # which are large, as all that follows
        place = np.argsort(entries, kind="stable")
        self._entries = entries[place]
        self._place = place.astype(np.uint32)
        """Where each entry was, before they were sorted."""
        _refuse_twins(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def send(self, channel: Channel, aligner: str) -> None:
        """Send it to the dealer that aligns, piece by piece."""
        channel.send(aligner, np.array([len(self)], np.uint64), TAG)
        for start in range(0, len(self), PIECE):
            channel.send(aligner, self._entries[start : start + PIECE], TAG)

    def problem(self, marks: BoolArray) -> str:
        """Say what cannot be right with the dealer's marks; nothing, if they may be."""
        ids, dummies, filling = self._unsorted(marks)
        if not dummies.all():
            return f"left out {np.count_nonzero(~dummies)} entries that it got from all of us"
        if filling.any():
            return f"marked {np.count_nonzero(filling)} entries that nobody else can have"
        halves = np.count_nonzero(ids[0::2] != ids[1::2])
        return f"marked one of two tags of {halves} ids" if halves else ""

    def common(self, marks: BoolArray) -> IndexArray:
        """Return the rows whose tags are marked, by their order numbers."""
        rows = np.flatnonzero(self._unsorted(marks)[0][0::2])
        numbers = self.order[rows]
        sequence = np.argsort(numbers, kind="stable")
        _refuse_twins(numbers[sequence])
        return rows[sequence]

    def _unsorted(self, marks: BoolArray) -> tuple[BoolArray, BoolArray, BoolArray]:
        """Return the marks of our ids' tags, of dummies and of what pads, each in its own order."""
        found = np.empty_like(marks)
        found[self._place] = marks
        return found[: self._ids], found[self._ids : self._dummies], found[self._dummies :]


def _refuse_twins(numbers: TagArray) -> None:
    if (numbers[1:] == numbers[:-1]).any():
        raise DataError(
            "two of our tags are the same number, by chance: nothing is wrong, start again"
        )


def _others(channel: Channel, job: Job) -> list[str]:
    """Return all participants but us: not the dealer."""
    return [name for name in job.names if name != channel.name]
