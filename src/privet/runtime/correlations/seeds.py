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

RANDOMNESS_ID_BYTES = 16
_CHECK_BYTES = 16
SEED_MESSAGE_BYTES = RANDOMNESS_ID_BYTES + 4 + SEED_BYTES + _CHECK_BYTES
REPLICATED_SEED_MESSAGE_BYTES = RANDOMNESS_ID_BYTES + 4 + 2 * (SEED_BYTES + _CHECK_BYTES)


@dataclass(frozen=True, repr=False)
class SeedMessage:
    """What comes first from the dealer, to one participant."""

    randomness_id: str
    """The dealing's name: random, public, and hashed into every tag, so that parts of two dealings
    never meet."""
    participant_index: int
    """Which participant it is for."""
    seed_part: bytes
    """The dealer's part of the seed."""
    nonce_check: bytes
    """Tells whether the dealer had the participant's nonce."""

    def derive_checked_seed(self, nonce: bytes) -> bytes:
        """Return the seed; raise CorrelationError if the dealer had another nonce."""
        seed = mix_nonce(self.seed_part, nonce)
        if self.nonce_check != _check(seed):
            raise CorrelationError(
                "the dealer's randomness was made with another nonce than ours: order it anew"
            )
        return seed

    def pack(self) -> bytes:
        """Return it as it is sent."""
        name, number = (
            bytes.fromhex(self.randomness_id),
            self.participant_index.to_bytes(4, "little"),
        )
        return name + number + self.seed_part + self.nonce_check

    @classmethod
    def unpack(cls, content: bytes) -> SeedMessage:
        """Return what was sent, of SEED_MESSAGE_BYTES bytes."""
        name, rest = content[:RANDOMNESS_ID_BYTES], content[RANDOMNESS_ID_BYTES:]
        part, check = rest[4 : 4 + SEED_BYTES], rest[4 + SEED_BYTES :]
        return cls(name.hex(), int.from_bytes(rest[:4], "little"), part, check)


@dataclass(frozen=True, repr=False)
class ReplicatedSeedMessage:
    """What comes first from one of three dealers, to one participant: two of its three seeds."""

    randomness_id: str
    participant_index: int
    """Which participant it is for."""
    seed_parts: tuple[bytes, bytes]
    """Two parts of seeds, to be joined with the participant's nonce."""
    nonce_checks: tuple[bytes, bytes]

    @classmethod
    def for_participant(
        cls, randomness_id: str, participant_index: int, parts: Sequence[bytes], nonce: bytes
    ) -> ReplicatedSeedMessage:
        """Return what a participant with that nonce is sent."""
        one, other = parts
        checks = _check(mix_nonce(one, nonce)), _check(mix_nonce(other, nonce))
        return cls(randomness_id, participant_index, (one, other), checks)

    def pack(self) -> bytes:
        """Return it as it is sent."""
        name, number = (
            bytes.fromhex(self.randomness_id),
            self.participant_index.to_bytes(4, "little"),
        )
        return name + number + b"".join((*self.seed_parts, *self.nonce_checks))

    @classmethod
    def unpack(cls, content: bytes) -> ReplicatedSeedMessage:
        """Return what was sent, of REPLICATED_SEED_MESSAGE_BYTES bytes."""
        name, rest = content[:RANDOMNESS_ID_BYTES], content[RANDOMNESS_ID_BYTES + 4 :]
        number = int.from_bytes(content[RANDOMNESS_ID_BYTES : RANDOMNESS_ID_BYTES + 4], "little")
        seeds, checks = rest[: 2 * SEED_BYTES], rest[2 * SEED_BYTES :]
        return cls(
            name.hex(),
            number,
            (seeds[:SEED_BYTES], seeds[SEED_BYTES:]),
            (checks[:_CHECK_BYTES], checks[_CHECK_BYTES:]),
        )


def combine_replicated_seeds(
    starts: Sequence[ReplicatedSeedMessage], nonce: bytes, dealers: Sequence[str]
) -> list[bytes]:
    """Return a participant's three seeds; raise CorrelationError unless all dealers agree.

    Dealer k has the seeds k and k + 1, so each seed comes from two of them.
    """
    found = []
    parts = require_equal_seeds([start.seed_parts for start in starts], dealers)
    for k, start in enumerate(starts):
        before = starts[k - 1]
        names = f"{dealers[k]} and {dealers[k - 1]}"
        if start.randomness_id != before.randomness_id:
            raise CorrelationError(f"{names} take part in two dealings: start all dealers anew")
        seed = mix_nonce(parts[k], nonce)
        if not start.nonce_checks[0] == before.nonce_checks[1] == _check(seed):
            raise CorrelationError(
                f"the randomness of {names} was made with another nonce than ours: order it anew"
            )
        found.append(seed)
    return found


def require_equal_seeds(
    seeds_by_dealer: Sequence[Sequence[bytes]], dealers: Sequence[str]
) -> list[bytes]:
    """Return three seeds, of which dealer k has told us k and k + 1; raise if two differ."""
    for k, (own, _) in enumerate(seeds_by_dealer):
        if own != seeds_by_dealer[k - 1][1]:
            raise CorrelationError(
                f"{dealers[k]} and {dealers[k - 1]} should have the same seed for us, and do not: "
                "one of them is at fault; ask both, and start all anew"
            )
    return [own for own, _ in seeds_by_dealer]


def draw_seeds(nonces: Sequence[bytes]) -> tuple[list[SeedMessage], list[bytes]]:
    """Draw the dealer's parts; return what each participant is sent, and all seeds."""
    name = derive_seed(fresh_seed(), f"dealing {b''.join(nonces).hex()}")[:RANDOMNESS_ID_BYTES]
    parts = [fresh_seed() for _ in nonces]
    seeds = [mix_nonce(part, nonce) for part, nonce in zip(parts, nonces, strict=True)]
    starts = [
        SeedMessage(name.hex(), number, part, _check(seed))
        for number, (part, seed) in enumerate(zip(parts, seeds, strict=True))
    ]
    return starts, seeds


def draw_seeds_offline(n_parties: int) -> tuple[str, list[bytes]]:
    """Draw seeds for participants that are not there; return the dealing's name, and all seeds.

    The name follows from the seeds, so that a dealing that is repeated has the same.
    """
    seeds = [fresh_seed() for _ in range(n_parties)]
    whole = hashlib.sha256(b"".join(seeds)).digest()
    return derive_seed(whole, "dealing")[:RANDOMNESS_ID_BYTES].hex(), seeds


def compute_seed_mark(seed: bytes) -> str:
    """Return what a seed is known by once it is used: tells nothing about it."""
    return derive_seed(seed, "used")[:_CHECK_BYTES].hex()


def mix_nonce(part: bytes, nonce: bytes) -> bytes:
    """Return a seed, made of a dealer's part and a participant's."""
    return derive_seed(part, f"nonce {nonce.hex()}")


def _check(seed: bytes) -> bytes:
    return derive_seed(seed, "check")[:_CHECK_BYTES]
