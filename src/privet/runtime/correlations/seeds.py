"""The seeds that the dealer shares with each participant.

With an online dealer, a seed is derived from a part that the dealer draws and a *nonce* that the
participant draws. Therefore, a dealer that sends the same parts again (for example, after it was
restored from a backup) does not repeat any participant's masks. In offline preprocessing no
participant can draw a nonce: the dealer draws complete seeds, and each participant refuses a seed
that it has used before, by its *mark*.
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
    """The first message from the dealer to one participant."""

    randomness_id: str
    """The preprocessing run: random, public, and hashed into every tag, so that correlations of two
    runs are never combined."""
    participant_index: int
    """The index of the recipient."""
    seed_part: bytes
    """The dealer's part of the seed."""
    nonce_check: bytes
    """Shows whether the dealer used the participant's nonce."""

    def derive_checked_seed(self, nonce: bytes) -> bytes:
        """Return the seed; raise CorrelationError if the dealer used another nonce."""
        seed = mix_nonce(self.seed_part, nonce)
        if self.nonce_check != _check(seed):
            raise CorrelationError(
                "the dealer's randomness was made with another nonce than ours: order it anew"
            )
        return seed

    def pack(self) -> bytes:
        """Encode the message."""
        randomness_id, index = (
            bytes.fromhex(self.randomness_id),
            self.participant_index.to_bytes(4, "little"),
        )
        return randomness_id + index + self.seed_part + self.nonce_check

    @classmethod
    def unpack(cls, content: bytes) -> SeedMessage:
        """Decode a message of SEED_MESSAGE_BYTES bytes."""
        randomness_id, rest = content[:RANDOMNESS_ID_BYTES], content[RANDOMNESS_ID_BYTES:]
        part, check = rest[4 : 4 + SEED_BYTES], rest[4 + SEED_BYTES :]
        return cls(randomness_id.hex(), int.from_bytes(rest[:4], "little"), part, check)


@dataclass(frozen=True, repr=False)
class ReplicatedSeedMessage:
    """The first message from one of three dealers to one participant: two of its three seeds."""

    randomness_id: str
    participant_index: int
    """The index of the recipient."""
    seed_parts: tuple[bytes, bytes]
    """Two parts of seeds, each mixed with the participant's nonce."""
    nonce_checks: tuple[bytes, bytes]

    @classmethod
    def for_participant(
        cls, randomness_id: str, participant_index: int, parts: Sequence[bytes], nonce: bytes
    ) -> ReplicatedSeedMessage:
        """Return the message for a participant with that nonce."""
        first, second = parts
        checks = _check(mix_nonce(first, nonce)), _check(mix_nonce(second, nonce))
        return cls(randomness_id, participant_index, (first, second), checks)

    def pack(self) -> bytes:
        """Encode the message."""
        randomness_id, index = (
            bytes.fromhex(self.randomness_id),
            self.participant_index.to_bytes(4, "little"),
        )
        return randomness_id + index + b"".join((*self.seed_parts, *self.nonce_checks))

    @classmethod
    def unpack(cls, content: bytes) -> ReplicatedSeedMessage:
        """Decode a message of REPLICATED_SEED_MESSAGE_BYTES bytes."""
        randomness_id, rest = content[:RANDOMNESS_ID_BYTES], content[RANDOMNESS_ID_BYTES + 4 :]
        index = int.from_bytes(content[RANDOMNESS_ID_BYTES : RANDOMNESS_ID_BYTES + 4], "little")
        seeds, checks = rest[: 2 * SEED_BYTES], rest[2 * SEED_BYTES :]
        return cls(
            randomness_id.hex(),
            index,
            (seeds[:SEED_BYTES], seeds[SEED_BYTES:]),
            (checks[:_CHECK_BYTES], checks[_CHECK_BYTES:]),
        )


def combine_replicated_seeds(
    messages: Sequence[ReplicatedSeedMessage], nonce: bytes, dealers: Sequence[str]
) -> list[bytes]:
    """Return a participant's three seeds; raise CorrelationError unless all dealers agree.

    Dealer k has the seeds k and k + 1, so each seed comes from two dealers.
    """
    seeds = []
    parts = require_equal_seeds([message.seed_parts for message in messages], dealers)
    for k, message in enumerate(messages):
        previous = messages[k - 1]
        names = f"{dealers[k]} and {dealers[k - 1]}"
        if message.randomness_id != previous.randomness_id:
            raise CorrelationError(f"{names} take part in two dealings: start all dealers anew")
        seed = mix_nonce(parts[k], nonce)
        if not message.nonce_checks[0] == previous.nonce_checks[1] == _check(seed):
            raise CorrelationError(
                f"the randomness of {names} was made with another nonce than ours: order it anew"
            )
        seeds.append(seed)
    return seeds


def require_equal_seeds(
    seeds_by_dealer: Sequence[Sequence[bytes]], dealers: Sequence[str]
) -> list[bytes]:
    """Return three seeds; dealer k has sent us k and k + 1, and both copies must be equal."""
    for k, (seed, _) in enumerate(seeds_by_dealer):
        if seed != seeds_by_dealer[k - 1][1]:
            raise CorrelationError(
                f"{dealers[k]} and {dealers[k - 1]} should have the same seed for us, and do not: "
                "one of them is at fault; ask both, and start all anew"
            )
    return [seed for seed, _ in seeds_by_dealer]


def draw_seeds(nonces: Sequence[bytes]) -> tuple[list[SeedMessage], list[bytes]]:
    """Draw the dealer's parts; return the message to each participant, and all seeds."""
    randomness_id = derive_seed(fresh_seed(), f"dealing {b''.join(nonces).hex()}")[
        :RANDOMNESS_ID_BYTES
    ]
    parts = [fresh_seed() for _ in nonces]
    seeds = [mix_nonce(part, nonce) for part, nonce in zip(parts, nonces, strict=True)]
    messages = [
        SeedMessage(randomness_id.hex(), number, part, _check(seed))
        for number, (part, seed) in enumerate(zip(parts, seeds, strict=True))
    ]
    return messages, seeds


def draw_seeds_offline(n_parties: int) -> tuple[str, list[bytes]]:
    """Draw seeds for offline preprocessing; return the randomness id, and all seeds.

    The id is derived from the seeds, so that a repeated preprocessing run has the same id.
    """
    seeds = [fresh_seed() for _ in range(n_parties)]
    whole = hashlib.sha256(b"".join(seeds)).digest()
    return derive_seed(whole, "dealing")[:RANDOMNESS_ID_BYTES].hex(), seeds


def compute_seed_mark(seed: bytes) -> str:
    """Return the mark of a used seed, which reveals nothing about the seed."""
    return derive_seed(seed, "used")[:_CHECK_BYTES].hex()


def mix_nonce(part: bytes, nonce: bytes) -> bytes:
    """Return the seed of a dealer's part and a participant's nonce."""
    return derive_seed(part, f"nonce {nonce.hex()}")


def _check(seed: bytes) -> bytes:
    return derive_seed(seed, "check")[:_CHECK_BYTES]
