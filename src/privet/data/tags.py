"""Tags: what stands for ids where somebody compares them who is not to know them.

Under a key, an id has two tags and an order number: the 24 bytes of one keyed BLAKE2b, 64 bits
each. To whoever has not got the key they are random numbers, and nothing tells which two tags are
of one id, or which order number goes with them.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privet.data.ids import Ids
from privet.errors import UnavailableError

TagArray = npt.NDArray[np.uint64]

_NUMBERS = 3  # of an id
_OF_IDS, _OF_DUMMIES = b"privet id", b"privet dummy"
# A process hashes about two million ids a second, and takes half a second to start.
_PAYS = 1 << 20
_MOST_PROCESSES = 16


@dataclass(frozen=True, eq=False, repr=False)
class Tags:
    """The tags and order numbers of some ids."""

    pairs: TagArray
    """Two tags of each: (ids, 2)."""
    order: TagArray
    """By which those who have the key order them: (ids,)."""

    @classmethod
    def of(cls, ids: Ids, key: bytes, processes: int | None = None) -> Tags:
        """Return those of ids, hashed in several processes where that pays, or in as many."""
        if processes is None:
            processes = _cores() if len(ids) >= _PAYS else 1
        return cls._read(_hashed(ids.blocks_of_keys(), key, processes), len(ids))

    @classmethod
    def of_dummies(cls, count: int, key: bytes) -> Tags:
        """Return those of ids that nobody has, and everybody who has the key knows."""
        numbers = [number.to_bytes(8, "little") for number in range(count)]
        return cls._read([_hash(numbers, key, _OF_DUMMIES)], count)

    @classmethod
    def _read(cls, blocks: Iterable[bytes], count: int) -> Tags:
        pairs, order = np.empty((count, 2), np.uint64), np.empty(count, np.uint64)
        end = 0
        for block in blocks:
            numbers = np.frombuffer(block, np.uint64).reshape(-1, _NUMBERS)
            start, end = end, end + len(numbers)
            pairs[start:end], order[start:end] = numbers[:, :2], numbers[:, 2]
        assert end == count
        return cls(pairs, order)


def _hash(texts: Sequence[bytes], key: bytes, kind: bytes) -> bytes:
    start = hashlib.blake2b(digest_size=8 * _NUMBERS, key=key, person=kind)
    digests = []
    for text in texts:
        each = start.copy()  # which saves hashing the key again
        each.update(text)
        digests.append(each.digest())
    return b"".join(digests)


def _hashed(blocks: Iterator[list[bytes]], key: bytes, processes: int) -> Iterator[bytes]:
    """Yield the digests of blocks of ids, in order."""
    if processes == 1:
        yield from (_hash(block, key, _OF_IDS) for block in blocks)
        return
    # Not forked: this process has threads, which look after its connections.
    context = multiprocessing.get_context("spawn")
    waiting: deque[Future[bytes]] = deque()
    try:
        with ProcessPoolExecutor(processes, context) as pool:
            for block in blocks:
                waiting.append(pool.submit(_hash, block, key, _OF_IDS))
                if len(waiting) > 2 * processes:  # not all at once, for memory's sake
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    except BrokenProcessPool:
        raise UnavailableError(
            "a process that hashed ids was ended from outside: see whether memory ran out, and "
            "start again"
        ) from None


def _cores() -> int:
    """Return how many processes can work at the same time."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        cores = os.cpu_count() or 1
    return min(cores, _MOST_PROCESSES)
