"""Tags: what stands for ids where somebody compares them who is not to know them.

Under a key, an id has two tags and an order number: the 24 bytes of one keyed BLAKE2b, 64 bits
each. To whoever has not got the key they are random numbers, and nothing tells which two tags are
of one id, or which order number goes with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privet.data.hashing import cores, hash_blocks, hash_texts
from privet.data.ids import Ids

TagArray = npt.NDArray[np.uint64]

_OF_IDS, _OF_DUMMIES = b"privet id", b"privet dummy"
# A process hashes about two million ids a second, and takes half a second to start.
_PAYS = 1 << 22
_AS_HASHED = np.dtype("<u8")  # the same numbers on every machine


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
            processes = cores() if len(ids) >= _PAYS else 1
        return cls._read(hash_blocks(ids.blocks_of_keys(), key, _OF_IDS, processes), len(ids))

    @classmethod
    def of_dummies(cls, count: int, key: bytes) -> Tags:
        """Return those of ids that nobody has, and everybody who has the key knows."""
        numbers = [number.to_bytes(8, "little") for number in range(count)]
        return cls._read([hash_texts(numbers, key, _OF_DUMMIES)], count)

    @classmethod
    def _read(cls, blocks: Iterable[bytes], count: int) -> Tags:
        pairs, order = np.empty((count, 2), np.uint64), np.empty(count, np.uint64)
        end = 0
        for block in blocks:
            numbers = np.frombuffer(block, _AS_HASHED).reshape(-1, 3)
            start, end = end, end + len(numbers)
            pairs[start:end], order[start:end] = numbers[:, :2], numbers[:, 2]
        assert end == count
        return cls(pairs, order)
