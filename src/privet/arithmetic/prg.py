"""Pseudorandom generation by place: holders of a seed draw the same values, in any order.

A draw has a *place*: its purpose, and its position in the program. The seed gives the key of
AES-128 in counter mode. Of the 128 bits of the counter, 96 are a digest of the place, and the rest
is a position in the draw. Therefore, any rows of a draw can be computed separately: ahead of time,
in blocks, in threads, on another machine. A place is used only once. Among a million places, two
have the same digest with probability 2^-57.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from privet.arithmetic import large_arrays
from privet.arithmetic.rings import Ring, RingArray, sum_arrays

SEED_BYTES = 32

_BLOCK_BYTES = 16  # of AES: the output for one counter
# Plaintext whose encryption is the key stream itself, a piece at a time.
_ZEROS = memoryview(bytes(1 << 20))
# `update_into` requires a buffer that is longer than its output, and leaves the rest unchanged.
_SLACK = 15


class Place(NamedTuple):
    """The purpose and the position of a draw."""

    kind: str
    """The purpose of the draw."""
    path: tuple[int, ...]
    """The numbers of the current numbered steps: a table, then a level of it."""
    slot: int
    """The number of earlier draws with this kind and path."""


@lru_cache(maxsize=16)
def hash_place(place: Place) -> bytes:
    """Return the digest of a place, the upper bits of the counter."""
    name = f"{place.kind}|{place.path}|{place.slot}"
    return hashlib.blake2b(name.encode(), digest_size=12, person=b"privet place").digest()


class Prg:
    """Pseudorandom values that depend only on the seed and their place."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(seed)}")
        self.seed = seed
        key = hashlib.blake2b(seed, digest_size=16, person=b"privet prg").digest()
        self._cipher = algorithms.AES128(key)
        self._streams = threading.local()  # a stream is set to a place, so each thread has its own

    def uniform(
        self, place: Place, shape: tuple[int, ...], ring: Ring, rows: slice | None = None
    ) -> RingArray:
        """Return uniform ring elements, or only `rows` of their last axis."""
        size = ring.dtype.itemsize
        if rows is None:
            return self._bytes(place, 0, size * math.prod(shape)).view(ring.dtype).reshape(shape)
        start, stop, _ = rows.indices(shape[-1])
        count = max(0, stop - start)
        result = np.empty((math.prod(shape[:-1]), count), dtype=ring.dtype)
        for k in range(len(result)):
            first = size * (k * shape[-1] + start)
            result[k] = self._bytes(place, first, size * count).view(ring.dtype)
        return result.reshape(*shape[:-1], count)

    def permutation(self, place: Place, length: int) -> npt.NDArray[np.intp]:
        """Return a uniform permutation, as the order of 64-bit keys.

        Two of N keys are equal, and then keep their order, with probability below N^2 / 2^65.
        """
        return np.argsort(self._bytes(place, 0, 8 * length).view(np.uint64), kind="stable")

    def _bytes(self, place: Place, start: int, count: int) -> npt.NDArray[np.uint8]:
        """Return `count` bytes of the stream of a place, from byte `start`."""
        counter, skipped = divmod(start, _BLOCK_BYTES)
        digest = hash_place(place)
        size = skipped + count
        buffer = np.empty(size + _SLACK, dtype=np.uint8)
        view = buffer.data

        def fill(piece: slice) -> None:
            first = counter + piece.start // _BLOCK_BYTES
            stream = self._stream_from(digest + first.to_bytes(4, "big"))
            stream.update_into(_ZEROS[: piece.stop - piece.start], view[piece.start :])

        large_arrays.run_blocks(fill, large_arrays.split_into_blocks(size, len(_ZEROS)), size // 8)
        # Copy if the bytes are not aligned.
        found = buffer[skipped : skipped + count]
        return found.copy() if skipped else found

    def _stream_from(self, counter: bytes) -> CipherContext:
        """Return this thread's stream, reset to a counter: ten times faster than a new one."""
        stream: CipherContext | None = getattr(self._streams, "stream", None)
        if stream is None:
            stream = Cipher(self._cipher, modes.CTR(counter)).encryptor()
            self._streams.stream = stream
        else:
            stream.reset_nonce(counter)
        return stream


Sampler: TypeAlias = Callable[[Prg, Place, tuple[int, ...], Ring], RingArray]
"""A function that draws numbers of a distribution, as elements of a ring."""


class SummedPrg:
    """The sum of several seeds' streams: uniform to a party that lacks one of the seeds."""

    def __init__(self, streams: Iterable[Prg]) -> None:
        self.prgs = list(streams)

    def uniform(self, place: Place, shape: tuple[int, ...], ring: Ring) -> RingArray:
        """Return uniform ring elements."""
        return sum_arrays((stream.uniform(place, shape, ring) for stream in self.prgs), ring)

    def sample(
        self, sampler: Sampler, place: Place, shape: tuple[int, ...], ring: Ring
    ) -> RingArray:
        """Return the sum of numbers that a sampler draws from each stream."""
        return sum_arrays((sampler(stream, place, shape, ring) for stream in self.prgs), ring)

    def permutation(self, place: Place, length: int) -> npt.NDArray[np.intp]:
        """Return a uniform permutation; only valid for a single seed."""
        (stream,) = self.prgs
        return stream.permutation(place, length)


def fresh_seed() -> bytes:
    """Return a seed from the operating system's randomness."""
    return os.urandom(SEED_BYTES)


def derive_seed(seed: bytes, purpose: str) -> bytes:
    """Return a seed for one purpose, which reveals nothing about seeds for other purposes."""
    return hashlib.blake2b(
        purpose.encode(), key=seed, digest_size=SEED_BYTES, person=b"privet derive"
    ).digest()
