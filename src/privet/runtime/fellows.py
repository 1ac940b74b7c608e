"""What one of three dealers has with the other two: seeds, a stream with each, and messages.

Participant p has three seeds. Seed k is known to dealers k and k - 1: dealer k draws its part, and
sends it to dealer k - 1 and to nobody else; both send it to the participant, who compares. Of two
dealers each draws a part of the seed of the stream that they have alone. What participants have
said goes into all of them: dealers that were set back to an earlier state repeat nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from privet.arithmetic.prg import SEED_BYTES, Prg, derive_seed, fresh_seed
from privet.arithmetic.replicated import HOLDERS
from privet.runtime.correlations import NONCE, LiveSink
from privet.runtime.seeds import NAME_BYTES, StartOfThree, join_nonce
from privet.transport.channel import Array, Channel, Expected


class Fellows:
    """The other two dealers."""

    def __init__(self, number: int, names: Sequence[str], channel: Channel) -> None:
        assert len(names) == HOLDERS
        self.number = number
        """Which of the three we are."""
        self._names = tuple(names)
        self._channel = channel
        self._streams: dict[int, Prg] = {}

    def meet(self, n_parties: int, said: bytes) -> tuple[str, list[list[bytes]]]:
        """Draw seeds together; return the dealing's name, and parts of all participants' seeds.

        Two lists of parts: ours, and those that the next dealer has drawn. What was `said` to all
        dealers before goes into the name, and into the streams that two dealers have.
        """
        after, before = ((self.number + k) % HOLDERS for k in (1, 2))
        ours = [fresh_seed() for _ in range(n_parties)]
        name = fresh_seed()[:NAME_BYTES]
        pair = {other: fresh_seed() for other in (after, before)}
        self._tell(after, name + pair[after])
        self._tell(before, name + pair[before] + b"".join(ours))
        heard = {
            before: self._hear(before, NAME_BYTES + SEED_BYTES),
            after: self._hear(after, NAME_BYTES + SEED_BYTES * (1 + n_parties)),
        }
        names = {self.number: name}
        for other, content in heard.items():
            names[other] = content[:NAME_BYTES]
            theirs = content[NAME_BYTES : NAME_BYTES + SEED_BYTES]
            low, high = sorted([(self.number, pair[other]), (other, theirs)])
            self._streams[other] = Prg(derive_seed(low[1], f"with {high[1].hex()} {said.hex()}"))
        rest = heard[after][NAME_BYTES + SEED_BYTES :]
        others = [rest[k : k + SEED_BYTES] for k in range(0, len(rest), SEED_BYTES)]
        whole = b"".join(names[k] for k in range(HOLDERS)) + said
        return hashlib.sha256(whole).digest()[:NAME_BYTES].hex(), [ours, others]

    def stream(self, other: int) -> Prg:
        """Return the stream that we have with another one."""
        return self._streams[other]

    def send(self, other: int, array: Array, tag: int = 0, stream: int = 0) -> None:
        """Send an array to another one."""
        self._channel.send(self._names[other], array, tag, stream)

    def receive(self, other: int, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        """Wait for the next array of another one on a stream."""
        return self._channel.receive(self._names[other], expected, tag, stream)

    def _tell(self, other: int, content: bytes) -> None:
        self.send(other, np.frombuffer(content, dtype=np.uint8))

    def _hear(self, other: int, length: int) -> bytes:
        return self.receive(other, Expected(np.dtype(np.uint8), (length,))).tobytes()


class SinkOfThree(LiveSink):
    """The streams of one of three dealers to all participants."""

    def __init__(self, channel: Channel, parties: Sequence[str], fellows: Fellows) -> None:
        super().__init__(channel, parties)
        self._fellows = fellows

    def start(self) -> tuple[str, list[list[bytes]]]:
        """Wait for every participant's nonce, and send it two parts of seeds."""
        nonces = [self._channel.receive(name, NONCE).tobytes() for name in self._parties]
        dealing, parts = self._fellows.meet(len(nonces), b"".join(nonces))
        for number, (nonce, *theirs) in enumerate(zip(nonces, *parts, strict=True)):
            start = StartOfThree.of(dealing, number, theirs, nonce)
            self.send(number, np.frombuffer(start.pack(), dtype=np.uint8), 0)
        return dealing, [
            [join_nonce(part, nonce) for part, nonce in zip(each, nonces, strict=True)]
            for each in parts
        ]
