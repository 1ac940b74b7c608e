"""The dealer: knows all masks and no data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from privet.arithmetic.prg import Prg, derive_seed
from privet.arithmetic.rings import Z64, Ring, RingArray
from privet.arithmetic.shares import Elements, Share
from privet.runtime.correlations import Sink
from privet.runtime.letters import Letter
from privet.runtime.opening import Link
from privet.runtime.recipes import Recipe
from privet.runtime.runtime import Blind, Owned, Owners, Shape, Things


class Dealer(Blind):
    """Runs a program ahead of the participants and sends what its gates derive."""

    def __init__(self, n_parties: int, sink: Sink, link: Link | None = None) -> None:
        super().__init__(n_parties, link)
        self._sink = sink
        dealing, seeds = sink.start()
        self.note(dealing)
        self._shared = [Prg(derive_seed(seed, "shares")) for seed in seeds]
        self._private = [Prg(derive_seed(seed, "private")) for seed in seeds]

    def uniform_parts(self, shape: tuple[int, ...], ring: Ring) -> list[RingArray]:
        """Return every participant's share of a fresh uniform value."""
        place = self._next_place("uniform", shape, ring)
        return [prg.uniform(place, shape, ring) for prg in self._shared]

    def uniform(self, shape: tuple[int, ...], ring: Ring) -> Elements:
        """Return a fresh uniform value that the participants hold shares of."""
        return Elements(self._total(self.uniform_parts(shape, ring), ring), ring)

    def derive(self, recipe: Recipe, ring: Ring, *masks: Elements) -> Elements:
        """Give the participants shares of a value that follows from masks, and return it."""
        return self.deal(recipe.client(*(mask.array for mask in masks))[0], ring)

    def deal(self, value: RingArray, ring: Ring) -> Elements:
        """Give the participants shares of a value that we alone know, and return it.

        Only one who knows all masks can do that: `derive` can be done by several.
        """
        place = self._next_place("derived", value.shape, ring)
        drawn = self._total((prg.uniform(place, value.shape, ring) for prg in self._shared), ring)
        letter = Letter.of(ring, value.shape)
        correction = letter.write([ring.subtract(value, drawn)])
        self._sink.send(self._next_turn(letter.nbytes), correction, self._tag.value)
        return Elements(value, ring)

    def integer(self, mask: Elements, shift: int, ring: Ring) -> tuple[Elements, Elements]:
        """Return a mask as an integer over a larger ring: without its lowest bits, and its top bit.

        Shares of neither are given yet. S + T wraps around, so several dealers would have to find
        the carries together.
        """
        whole, kind = mask.ring.reduce(mask.array), mask.ring.dtype.type
        top = whole >> kind(mask.ring.bits - 1)
        return (
            Elements((whole >> kind(shift)).astype(ring.dtype), ring),
            Elements(top.astype(ring.dtype), ring),
        )

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp]:
        """Return a fresh uniform permutation that one participant knows, too."""
        place = self._next_place(f"permutation for {owner}", (length,), Z64)
        return self._private[owner].permutation(place, length)

    def private(self, shape: tuple[int, ...], ring: Ring, owner: int) -> RingArray:
        """Return fresh uniform values that one participant knows, too."""
        place = self._next_place(f"private for {owner}", shape, ring)
        return self._private[owner].uniform(place, shape, ring)

    def share_each(self, values: Owned, owners: Owners, shape: Shape, ring: Ring) -> Share:
        """Return what the dealer has of shared values: their shape."""
        return Share.unknown((len(values), *shape), ring)

    def reveal(self, value: Share, to: Sequence[int], what: str) -> None:
        """Learn nothing."""
        self.note(f"reveal {what} to {list(to)}")

    def reveal_winner(self, finalists: Share, things: Things) -> None:
        """Learn nothing."""
        self.note(f"reveal {things}")

    def announce(self, number: int | None, owner: int, what: str) -> int | None:
        """Wait for the number, if anybody is there."""
        self.note(f"announce {what}")
        return self._sink.hear(owner, self._tag.value)

    def close(self) -> None:
        """Say that there is no more to come."""
        self._sink.close(self._tag.value)

    @staticmethod
    def _total(parts: Iterable[RingArray], ring: Ring) -> RingArray:
        """Add parts up, each as it comes: if drawn only then, into memory that is in the cache."""
        rest = iter(parts)
        total = next(rest)  # fresh from the stream, so it can be added to in place
        for part in rest:
            ring.accumulate(total, part)
        return total
