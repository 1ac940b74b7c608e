"""The dealer: knows all masks and no data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from privet.arithmetic.prg import Prg, derive_seed
from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import Share
from privet.runtime.correlations import Sink
from privet.runtime.runtime import Runtime
from privet.runtime.seeds import draw_seeds


class Dealer(Runtime):
    """Runs a program ahead of the participants and sends what its gates derive."""

    def __init__(self, n_parties: int, sink: Sink) -> None:
        super().__init__(n_parties)
        self._sink = sink
        starts, seeds = draw_seeds(sink.nonces())
        for start in starts:
            sink.send(start.number, np.frombuffer(start.pack(), dtype=np.uint8), 0)
        self.note(starts[0].dealing)
        self._shared = [Prg(derive_seed(seed, "shares")) for seed in seeds]
        self._private = [Prg(derive_seed(seed, "private")) for seed in seeds]

    def uniform_parts(self, shape: tuple[int, ...], ring: Ring) -> list[RingArray]:
        """Return every participant's share of a fresh uniform value."""
        self._tag.note(self.step_name, "uniform", shape, ring)
        return [prg.uniform(shape, ring) for prg in self._shared]

    def uniform(self, shape: tuple[int, ...], ring: Ring) -> RingArray:
        """Return a fresh uniform value that the participants hold shares of."""
        return self._total(self.uniform_parts(shape, ring), ring)

    def derive(self, value: RingArray, ring: Ring) -> None:
        """Give the participants shares of a value that only we know."""
        self._tag.note(self.step_name, "derived", value.shape, ring)
        drawn = self._total([prg.uniform(value.shape, ring) for prg in self._shared], ring)
        correction = ring.subtract(value, drawn).reshape(-1)
        self._sink.send(self._next_turn(value.nbytes), correction, self._tag.value)

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp]:
        """Return a fresh uniform permutation that one participant knows, too."""
        self.note(f"permutation of {length} for {owner}")
        return self._private[owner].permutation(length)

    def private(self, shape: tuple[int, ...], ring: Ring, owner: int) -> RingArray:
        """Return fresh uniform values that one participant knows, too."""
        self.note(f"private {shape} of {ring.name} for {owner}")
        return self._private[owner].uniform(shape, ring)

    def public(self, values: RingArray, ring: Ring) -> Share:
        """Return what the dealer has of public values, too: their shape."""
        return Share.unknown(values.shape, ring)

    def share_each(
        self,
        values: Sequence[RingArray | None],
        owners: Sequence[int] | None,
        shape: tuple[int, ...],
        ring: Ring,
    ) -> Share:
        """Return what the dealer has of shared values: their shape."""
        return Share.unknown((len(values), *shape), ring)

    def reveal(self, value: Share, to: Sequence[int], what: str) -> None:
        """Learn nothing."""
        self.note(f"reveal {what} to {list(to)}")

    def reveal_choice(
        self, choice: Share, owners: Sequence[int], details: int, what: tuple[str, str]
    ) -> None:
        """Learn nothing."""
        self.note(f"reveal {what} of {list(owners)}")

    def close(self) -> None:
        """Say that there is no more to come."""
        self._sink.close(self._tag.value)

    @staticmethod
    def _total(parts: list[RingArray], ring: Ring) -> RingArray:
        total = parts[0]  # fresh from the stream, so it can be added to in place
        for part in parts[1:]:
            ring.accumulate(total, part)
        return total
