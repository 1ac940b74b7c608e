"""Correlated randomness at a participant: draws from shared seeds, and corrections from the dealer.

The dealer shares a seed with each participant. A participant draws its shares of uniform values
from the seed, without communication. It draws shares of a derived value (such as a product of
masks) in the same way. The difference between the derived value and the sum of the draws, the
*correction*, goes to one participant: the one with the fewest bytes of the current table so far.

Both sides hash the purpose, ring and shape of each draw into a running *tag*; every table starts a
new one (`runtime.runtime.Position`). A correction carries the dealer's tag. If the participant's
tag differs, the two have run different programs, and the participant stops. The last message is a
closing tag, so no unused correction is left unnoticed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from privet.arithmetic.prg import SEED_BYTES, Prg, Sampler, SummedPrg, derive_seed, fresh_seed
from privet.arithmetic.rings import Z64, Ring, RingArray
from privet.arithmetic.shares import Share
from privet.errors import CorrelationError, PeerMisbehavedError
from privet.runtime.correlations.seeds import (
    REPLICATED_SEED_MESSAGE_BYTES,
    SEED_MESSAGE_BYTES,
    ReplicatedSeedMessage,
    SeedMessage,
    combine_replicated_seeds,
    draw_seeds,
)
from privet.runtime.opening import EXPECTED_ANNOUNCEMENT, NetworkModel, Payload
from privet.runtime.runtime import Runtime
from privet.transport.channel import Channel, Expected

EXPECTED_CLOSING_TAG = Expected(np.dtype(np.uint8), (0,))
_EXPECTED_SEED = Expected(np.dtype(np.uint8), (SEED_MESSAGE_BYTES,))
_EXPECTED_REPLICATED_SEEDS = Expected(np.dtype(np.uint8), (REPLICATED_SEED_MESSAGE_BYTES,))
EXPECTED_NONCE = Expected(np.dtype(np.uint8), (SEED_BYTES,))


class CorrelationSender(ABC):
    """The dealer's output: live connections, or a file for each participant."""

    @abstractmethod
    def distribute_seeds(self) -> tuple[str, Any]:
        """Share a seed with each participant; return the randomness id, and all seeds."""

    @abstractmethod
    def send(self, party: int, array: RingArray, tag: int) -> None:
        """Send an array to one participant."""

    def receive_announcement(self, party: int, tag: int) -> int | None:
        """Return a number that a participant announces; None without online participants."""
        return None

    @abstractmethod
    def close(self, tag: int) -> None:
        """Send the closing tag to all participants."""


class CorrelationReceiver(ABC):
    """A participant's input from the dealer, or dealers."""

    online_dealers: tuple[str, ...] = ()
    """The names of online dealers."""

    @abstractmethod
    def receive_seeds(self, participant_index: int) -> tuple[str, list[bytes]]:
        """Return the first message: the randomness id, and the seeds shared with dealers."""

    @abstractmethod
    def receive(self, expected: Expected, tag: int, step: str, dealer_index: int = 0) -> RingArray:
        """Return the next array from a dealer, which must be the expected one."""


def check_participant_index(number: int, index: int) -> None:
    """Raise CorrelationError unless the dealer's randomness is for us."""
    if number != index:
        raise CorrelationError(
            f"the dealer's randomness is for participant {number + 1}, not {index + 1}"
        )


class NoCorrelations(CorrelationReceiver):
    """No randomness, and no dealer: for programs that only reveal shares."""

    def receive_seeds(self, participant_index: int) -> tuple[str, list[bytes]]:
        """Return a local seed, which is never drawn from."""
        return "none", [fresh_seed()]

    def receive(self, expected: Expected, tag: int, step: str, dealer_index: int = 0) -> RingArray:
        """Return the closing tag, the only message."""
        if expected != EXPECTED_CLOSING_TAG:
            raise CorrelationError(f"{step}: needs randomness, and there is no dealer")
        return np.empty(0, dtype=np.uint8)

    def close(self) -> None:
        """Do nothing: no file is open."""


class LiveSender(CorrelationSender):
    """A stream to each participant; the dealer runs ahead within a memory limit."""

    def __init__(
        self, channel: Channel, parties: Sequence[str], max_backlog: int = 64 << 20
    ) -> None:
        self._channel = channel
        self._parties = tuple(parties)
        self._max_backlog = max_backlog

    def distribute_seeds(self) -> tuple[str, Any]:
        """Wait for every participant's nonce, and send each the dealer's part of its seed."""
        nonces = [self._channel.receive(name, EXPECTED_NONCE).tobytes() for name in self._parties]
        messages, seeds = draw_seeds(nonces)
        for message in messages:
            self.send(message.participant_index, np.frombuffer(message.pack(), dtype=np.uint8), 0)
        return messages[0].randomness_id, seeds

    def send(self, party: int, array: RingArray, tag: int) -> None:
        """Send an array, and wait while the backlog of every participant exceeds the limit.

        Waiting for the *largest* backlog would deadlock: its participant may be waiting for another
        participant, which waits for the dealer. The participants run in step, so none falls far
        behind the one with the smallest backlog. Other dealers do not count: they receive at once.
        """
        self._channel.send(self._parties[party], array, tag)
        self._channel.wait_for_backlog(self._max_backlog, self._parties)

    def receive_announcement(self, party: int, tag: int) -> int:
        """Wait for a number that a participant announces."""
        return int(self._channel.receive(self._parties[party], EXPECTED_ANNOUNCEMENT, tag)[0])

    def close(self, tag: int) -> None:
        """Send the closing tag to all, and wait until everything has left."""
        for name in self._parties:
            self._channel.send(name, np.empty(0, dtype=np.uint8), tag)
        self._channel.flush()


class LiveReceiver(CorrelationReceiver):
    """The stream from the dealer, or one from each of three."""

    def __init__(self, channel: Channel, dealers: Sequence[str]) -> None:
        self._channel = channel
        self.online_dealers = tuple(dealers)

    def receive_seeds(self, participant_index: int) -> tuple[str, list[bytes]]:
        """Send a nonce, and derive seeds from it and from the dealers' responses."""
        nonce = fresh_seed()
        for dealer in self.online_dealers:
            self._channel.send(dealer, np.frombuffer(nonce, dtype=np.uint8))
        if len(self.online_dealers) > 1:
            messages = [
                ReplicatedSeedMessage.unpack(
                    self.receive(_EXPECTED_REPLICATED_SEEDS, 0, "start", k).tobytes()
                )
                for k in range(len(self.online_dealers))
            ]
            for message in messages:
                check_participant_index(message.participant_index, participant_index)
            return messages[0].randomness_id, combine_replicated_seeds(
                messages, nonce, self.online_dealers
            )
        seed_message = SeedMessage.unpack(self.receive(_EXPECTED_SEED, 0, "start").tobytes())
        check_participant_index(seed_message.participant_index, participant_index)
        return seed_message.randomness_id, [seed_message.derive_checked_seed(nonce)]

    def receive(self, expected: Expected, tag: int, step: str, dealer_index: int = 0) -> RingArray:
        """Wait for the next array from a dealer."""
        try:
            return self._channel.receive(self.online_dealers[dealer_index], expected, tag)
        except PeerMisbehavedError as error:
            raise CorrelationError(str(error)) from None


S_HOLDER, FIRST_T_HOLDER, SECOND_T_HOLDER = range(3)


class DealtSource(Runtime):
    """A participant's side of the dealer's operations (`runtime.correlations.dealer`)."""

    def __init__(
        self,
        index: int,
        n_parties: int,
        receiver: CorrelationReceiver,
        network: NetworkModel | None,
    ) -> None:
        super().__init__(n_parties, network)
        self.index = index
        self._receiver = receiver
        self.randomness_id, seeds = receiver.receive_seeds(index)
        self.update_tag(self.randomness_id)
        self._dealers = len(seeds)
        self._share_prg = SummedPrg(Prg(derive_seed(seed, "shares")) for seed in seeds)
        self._private_prg = SummedPrg(Prg(derive_seed(seed, "private")) for seed in seeds)
        self._ended_early = False

    def uniform(self, shape: tuple[int, ...], ring: Ring) -> Share:
        """Return our share of a fresh uniform value, which a single dealer knows."""
        place = self._next_place("uniform", shape, ring)
        return Share(self._share_prg.uniform(place, shape, ring), ring)

    def small(self, sampler: Sampler, shape: tuple[int, ...], ring: Ring) -> Share:
        """Return our share of small numbers, which is small, too."""
        place = self._next_place(sampler.__name__, shape, ring)
        return Share(self._share_prg.sample(sampler, place, shape, ring), ring)

    def derived(self, shape: tuple[int, ...], ring: Ring) -> Share:
        """Return our share of a value that the dealer derived from its masks."""
        place = self._next_place("derived", shape, ring)
        part = self._share_prg.uniform(place, shape, ring)
        payload = Payload.for_array(ring, shape)
        if self._draw_position.choose_correction_recipient(payload.nbytes) == self.index:
            sender = self._find_dealer_in_role(SECOND_T_HOLDER) if self._dealers > 1 else 0
            message = self._receiver.receive(
                payload.expected, self._tag.value, self.step_name, sender
            )
            traffic = self.meter.offline[self.step_name]
            traffic.messages += 1
            traffic.received += message.nbytes
            (correction,) = payload.decode(message)
            ring.add_in_place(part, correction.reshape(shape))
        return Share(part, ring)

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp] | None:
        """Return a fresh uniform permutation that the dealer and its owner know; None to others."""
        place = self._next_place(f"permutation for {owner}", (length,), Z64)
        return self._private_prg.permutation(place, length) if owner == self.index else None

    def private(self, shape: tuple[int, ...], ring: Ring, owner: int) -> RingArray | None:
        """Return fresh uniform values that the dealer and their owner know; None to others."""
        place = self._next_place(f"private for {owner}", shape, ring)
        return self._private_prg.uniform(place, shape, ring) if owner == self.index else None

    def end_early(self) -> None:
        """Leave the rest of a preprocessing file unused; an online dealer ends early, too."""
        self._ended_early = True

    def finish(self) -> None:
        """Check that the dealers have ended at the same position of the program."""
        if self._ended_early and not self._receiver.online_dealers:
            return
        for dealer in range(self._dealers):
            self._receiver.receive(
                EXPECTED_CLOSING_TAG, self._tag.value, "end of the program", dealer
            )
