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

NAME_BYTES = 16
_CHECK_BYTES = 16
START_BYTES = NAME_BYTES + 4 + SEED_BYTES + _CHECK_BYTES
START_OF_THREE_BYTES = NAME_BYTES + 4 + 2 * (SEED_BYTES + _CHECK_BYTES)


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
        seed = join_nonce(self.part, nonce)
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
        name, rest = content[:NAME_BYTES], content[NAME_BYTES:]
        part, check = rest[4 : 4 + SEED_BYTES], rest[4 + SEED_BYTES :]
        return cls(name.hex(), int.from_bytes(rest[:4], "little"), part, check)


@dataclass(frozen=True, repr=False)
class StartOfThree:
    """What comes first from one of three dealers, to one participant: two of its three seeds."""

    dealing: str
    number: int
    """Which participant it is for."""
    seeds: tuple[bytes, bytes]
    """Two parts of seeds, to be joined with the participant's nonce."""
    checks: tuple[bytes, bytes]

    @classmethod
    def of(cls, dealing: str, number: int, parts: Sequence[bytes], nonce: bytes) -> StartOfThree:
        """Return what a participant with that nonce is sent."""
        one, other = parts
        checks = _check(join_nonce(one, nonce)), _check(join_nonce(other, nonce))
        return cls(dealing, number, (one, other), checks)

    def pack(self) -> bytes:
        """Return it as it is sent."""
        name, number = bytes.fromhex(self.dealing), self.number.to_bytes(4, "little")
        return name + number + b"".join((*self.seeds, *self.checks))

    @classmethod
    def unpack(cls, content: bytes) -> StartOfThree:
        """Return what was sent, of START_OF_THREE_BYTES bytes."""
        name, rest = content[:NAME_BYTES], content[NAME_BYTES + 4 :]
        number = int.from_bytes(content[NAME_BYTES : NAME_BYTES + 4], "little")
        seeds, checks = rest[: 2 * SEED_BYTES], rest[2 * SEED_BYTES :]
        return cls(
            name.hex(),
            number,
            (seeds[:SEED_BYTES], seeds[SEED_BYTES:]),
            (checks[:_CHECK_BYTES], checks[_CHECK_BYTES:]),
        )


def seeds_of_three(
    starts: Sequence[StartOfThree], nonce: bytes, dealers: Sequence[str]
) -> list[bytes]:
    """Return a participant's three seeds; raise CorrelationError unless all dealers agree.

    Dealer k has the seeds k and k + 1, so each seed comes from two of them.
    """
    found = []
    parts = same_seeds([start.seeds for start in starts], dealers)
    for k, start in enumerate(starts):
        before = starts[k - 1]
        names = f"{dealers[k]} and {dealers[k - 1]}"
        if start.dealing != before.dealing:
            raise CorrelationError(f"{names} take part in two dealings: start all dealers anew")
        seed = join_nonce(parts[k], nonce)
        if not start.checks[0] == before.checks[1] == _check(seed):
            raise CorrelationError(
                f"the randomness of {names} was made with another nonce than ours: order it anew"
            )
        found.append(seed)
    return found


def same_seeds(told: Sequence[Sequence[bytes]], dealers: Sequence[str]) -> list[bytes]:
    """Return three seeds, of which dealer k has told us k and k + 1; raise if two differ."""
    for k, (own, _) in enumerate(told):
        if own != told[k - 1][1]:
            raise CorrelationError(
                f"{dealers[k]} and {dealers[k - 1]} should have the same seed for us, and do not: "
                "one of them is at fault; ask both, and start all anew"
            )
    return [own for own, _ in told]


def draw_seeds(nonces: Sequence[bytes]) -> tuple[list[Start], list[bytes]]:
    """Draw the dealer's parts; return what each participant is sent, and all seeds."""
    name = derive_seed(fresh_seed(), f"dealing {b''.join(nonces).hex()}")[:NAME_BYTES]
    parts = [fresh_seed() for _ in nonces]
    seeds = [join_nonce(part, nonce) for part, nonce in zip(parts, nonces, strict=True)]
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
    return derive_seed(whole, "dealing")[:NAME_BYTES].hex(), seeds


def mark_of(seed: bytes) -> str:
    """Return what a seed is known by once it is used: tells nothing about it."""
    return derive_seed(seed, "used")[:_CHECK_BYTES].hex()


def join_nonce(part: bytes, nonce: bytes) -> bytes:
    """Return a seed, made of a dealer's part and a participant's."""
    return derive_seed(part, f"nonce {nonce.hex()}")


def _check(seed: bytes) -> bytes:
    return derive_seed(seed, "check")[:_CHECK_BYTES]
