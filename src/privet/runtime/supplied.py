"""What a participant gets from the dealer: drawn from a seed that both have, and put right."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from privet.arithmetic.prg import Prg, Sampler, Sum, derive_seed
from privet.arithmetic.rings import Z64, Ring, RingArray
from privet.arithmetic.shares import Share
from privet.runtime.carries import SECOND
from privet.runtime.correlations import CLOSING, Source
from privet.runtime.letters import Letter
from privet.runtime.opening import Link
from privet.runtime.runtime import Runtime


class Supplied(Runtime):
    """A participant's side of what the dealer does (`runtime.dealer`)."""

    def __init__(self, index: int, n_parties: int, source: Source, link: Link | None) -> None:
        super().__init__(n_parties, link)
        self.index = index
        self._source = source
        self.dealing_name, seeds = source.start(index)
        self.note(self.dealing_name)
        self._dealers = len(seeds)
        self._shared = Sum(Prg(derive_seed(seed, "shares")) for seed in seeds)
        self._private = Sum(Prg(derive_seed(seed, "private")) for seed in seeds)
        self._ended_early = False

    def uniform(self, shape: tuple[int, ...], ring: Ring) -> Share:
        """Return our share of a fresh uniform value, which the dealer knows."""
        place = self._next_place("uniform", shape, ring)
        return Share(self._shared.uniform(place, shape, ring), ring)

    def small(self, sampler: Sampler, shape: tuple[int, ...], ring: Ring) -> Share:
        """Return our share of small numbers, which is small, too."""
        place = self._next_place(sampler.__name__, shape, ring)
        return Share(self._shared.sampled(sampler, place, shape, ring), ring)

    def derived(self, shape: tuple[int, ...], ring: Ring) -> Share:
        """Return our share of a value that the dealer derived from its masks."""
        place = self._next_place("derived", shape, ring)
        part = self._shared.uniform(place, shape, ring)
        letter = Letter.of(ring, shape)
        if self._at.next_turn(letter.nbytes) == self.index:
            sender = self._dealers_turn(SECOND) if self._dealers > 1 else 0
            message = self._source.receive(letter.kind, self._tag.value, self.step_name, sender)
            traffic = self.meter.offline[self.step_name]
            traffic.messages += 1
            traffic.received += message.nbytes
            (correction,) = letter.read(message)
            ring.accumulate(part, correction.reshape(shape))
        return Share(part, ring)

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp] | None:
        """Return a fresh uniform permutation that the dealer and its owner know; None to others."""
        place = self._next_place(f"permutation for {owner}", (length,), Z64)
        return self._private.permutation(place, length) if owner == self.index else None

    def private(self, shape: tuple[int, ...], ring: Ring, owner: int) -> RingArray | None:
        """Return fresh uniform values that the dealer and their owner know; None to others."""
        place = self._next_place(f"private for {owner}", shape, ring)
        return self._private.uniform(place, shape, ring) if owner == self.index else None

    def end_early(self) -> None:
        """Leave the rest of a file that was dealt ahead: a dealer that is there ends as we do."""
        self._ended_early = True

    def finish(self) -> None:
        """Check that the dealers have come to the same end."""
        if self._ended_early and not self._source.dealers:
            return
        for dealer in range(self._dealers):
            self._source.receive(CLOSING, self._tag.value, "end of the program", dealer)
