"""Randomness from a seed: AES-128 in counter mode, a stream that two holders of a seed share."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privet.arithmetic.rings import Ring, RingArray

SEED_BYTES = 32

# What is encrypted to get the key stream itself, a block at a time.
_ZEROS = np.zeros(1 << 20, dtype=np.uint8)
# The interface of AES asks for room beyond what it writes.
_SLACK = 15


class Prg:
    """A stream of pseudo-random bytes that depends on the seed alone."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(seed)}")
        key = hashlib.blake2b(seed, digest_size=16, person=b"privet prg").digest()
        self._stream = Cipher(algorithms.AES128(key), modes.CTR(bytes(16))).encryptor()

    def bytes(self, count: int) -> npt.NDArray[np.uint8]:
        """Return the next bytes of the stream."""
        buffer = np.empty(count + _SLACK, dtype=np.uint8)
        view = buffer.data
        for start in range(0, count, len(_ZEROS)):
            length = min(len(_ZEROS), count - start)
            self._stream.update_into(_ZEROS[:length].data, view[start : start + length + _SLACK])
        return buffer[:count]

    def uniform(self, shape: tuple[int, ...], ring: Ring) -> RingArray:
        """Return uniform ring elements."""
        return self.bytes(ring.nbytes(shape)).view(ring.dtype).reshape(shape)

    def permutation(self, length: int) -> npt.NDArray[np.intp]:
        """Return a uniform permutation, as the order of 64-bit keys.

        Two of N keys are equal, and then left in order, with probability below N^2 / 2^65.
        """
        return np.argsort(self.bytes(8 * length).view(np.uint64), kind="stable")


def fresh_seed() -> bytes:
    """Return a seed from the operating system's randomness."""
    return os.urandom(SEED_BYTES)


def derive_seed(seed: bytes, purpose: str) -> bytes:
    """Return a seed for one purpose; seeds for different purposes tell nothing of each other."""
    return hashlib.blake2b(
        purpose.encode(), key=seed, digest_size=SEED_BYTES, person=b"privet derive"
    ).digest()
