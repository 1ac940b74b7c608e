"""The seeds that the dealer shares with each participant.

With a dealer that is there, a seed is made of a part that the dealer draws and a *nonce* that the
participant draws. So a dealer that deals the same parts again, restored from a backup say, does not
repeat anybody's masks. Ahead of time there is nobody to draw a nonce: the dealer draws the seeds
alone, and participants refuse one that they have used before, by its *mark*.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from privet.arithmetic.prg import SEED_BYTES, derive_seed, fresh_seed
from privet.errors import CorrelationError

_NAME_BYTES = 16
_CHECK_BYTES = 16
START_BYTES = _NAME_BYTES + 4 + SEED_BYTES + _CHECK_BYTES


@dataclass(frozen=True, repr=False)
class Start:
    """What comes first from the dealer, to one participant."""

    dealing: str
    """The dealing's name: random, public, and hashed into every tag, so that parts of two dealings
    never meet."""
    number: int
    """Which participant it is for."""
    part: bytes
    """The dealer's part of the seed."""
    check: bytes
    """Tells whether the dealer had the participant's nonce."""

    def seed(self, nonce: bytes) -> bytes:
        """Return the seed; raise CorrelationError if the dealer had another nonce."""
        seed = _join(self.part, nonce)
        if self.check != _check(seed):
            raise CorrelationError(
                "the dealer's randomness was made with another nonce than ours: order it anew"
            )
        return seed

    def pack(self) -> bytes:
        """Return it as it is sent."""
        name, number = bytes.fromhex(self.dealing), self.number.to_bytes(4, "little")
        return name + number + self.part + self.check

    @classmethod
    def unpack(cls, content: bytes) -> Start:
        """Return what was sent, of START_BYTES bytes."""
        name, rest = content[:_NAME_BYTES], content[_NAME_BYTES:]
        part, check = rest[4 : 4 + SEED_BYTES], rest[4 + SEED_BYTES :]
        return cls(name.hex(), int.from_bytes(rest[:4], "little"), part, check)


def draw_seeds(nonces: Sequence[bytes]) -> tuple[list[Start], list[bytes]]:
    """Draw the dealer's parts; return what each participant is sent, and all seeds."""
    name = derive_seed(fresh_seed(), f"dealing {b''.join(nonces).hex()}")[:_NAME_BYTES]
    parts = [fresh_seed() for _ in nonces]
    seeds = [_join(part, nonce) for part, nonce in zip(parts, nonces, strict=True)]
    starts = [
        Start(name.hex(), number, part, _check(seed))
        for number, (part, seed) in enumerate(zip(parts, seeds, strict=True))
    ]
    return starts, seeds


def draw_seeds_alone(n_parties: int) -> tuple[str, list[bytes]]:
    """Draw seeds for participants that are not there; return the dealing's name, and all seeds.

    The name follows from the seeds, so that a dealing that is repeated has the same.
    """
    seeds = [fresh_seed() for _ in range(n_parties)]
    whole = hashlib.sha256(b"".join(seeds)).digest()
    return derive_seed(whole, "dealing")[:_NAME_BYTES].hex(), seeds


def mark_of(seed: bytes) -> str:
    """Return what a seed is known by once it is used: tells nothing about it."""
    return derive_seed(seed, "used")[:_CHECK_BYTES].hex()


def _join(part: bytes, nonce: bytes) -> bytes:
    return derive_seed(part, f"nonce {nonce.hex()}")


def _check(seed: bytes) -> bytes:
    return derive_seed(seed, "check")[:_CHECK_BYTES]
