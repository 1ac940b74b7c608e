"""Dealers: know masks, or parts of them, and no data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from privet.arithmetic.prg import Prg, Sampler, Sum, derive_seed
from privet.arithmetic.rings import Z1, Z64, Ring, RingArray, total
from privet.arithmetic.shares import Elements, Share
from privet.runtime.correlations import Sink
from privet.runtime.letters import Letter
from privet.runtime.opening import Link
from privet.runtime.recipes import Recipe
from privet.runtime.runtime import Blind, Owned, Owners, Shape, Things


class Dealer(Blind):
    """Runs a program ahead of the participants and sends what its gates derive."""

    parts = 1
    """In how many parts we have every mask."""

    def __init__(self, n_parties: int, sink: Sink, link: Link | None = None) -> None:
        super().__init__(n_parties, link)
        self._sink = sink
        self.seconds_aside = 0.0
        """How long other threads than that of the program have computed."""

    @abstractmethod
    def uniform(self, shape: Shape, ring: Ring) -> Elements:
        """Return a fresh uniform value that the participants hold shares of."""

    @abstractmethod
    def small(self, sampler: Sampler, shape: Shape, ring: Ring) -> Elements:
        """Return small numbers that the participants hold small shares of, by a sampler."""

    @abstractmethod
    def private(self, shape: Shape, ring: Ring, owner: int) -> Elements:
        """Return fresh uniform values that one participant knows."""

    @abstractmethod
    def derive(self, recipe: Recipe, ring: Ring, *masks: Elements, kept: bool = False) -> Elements:
        """Give the participants shares of a value that follows from masks.

        Return it as a mask of its own if it is `kept`; its shape, if not.
        """

    @abstractmethod
    def carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        """Return what carries into some bits as S and T of a mask are added, and one of its bits.

        Masks over one bit, (places, *mask) and (*mask); zeros where no bit is asked for. Nobody is
        given shares of them yet. Carries are those of S and T as they are now: they are used at
        once, before the roles of several dealers change.
        """

    @abstractmethod
    def lasting_mask(self, shape: Shape, ring: Ring, owner: int) -> Elements:
        """Return what `lasting` does, as a mask."""

    def uniform_parts(self, shape: Shape, ring: Ring) -> list[RingArray]:
        """Return every participant's share of a fresh uniform value; to a sole dealer alone."""
        raise self._several("shares")

    def deal(self, value: RingArray, ring: Ring) -> Elements:
        """Give the participants shares of a value that we alone know; as a sole dealer alone."""
        raise self._several("values")

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp]:
        """Return a fresh uniform permutation that one participant knows; to a sole dealer alone."""
        raise self._several("permutations")

    @staticmethod
    def _several(what: str) -> Exception:
        return NotImplementedError(f"of several dealers none knows {what}")

    def share_each(self, values: Owned, owners: Owners, shape: Shape, ring: Ring) -> Share:
        """Return what a dealer has of shared values: their shape."""
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


class SoleDealer(Dealer):
    """The only one, who knows all masks."""

    def __init__(self, n_parties: int, sink: Sink, link: Link | None = None) -> None:
        super().__init__(n_parties, sink, link)
        self.dealing_name, seeds = sink.start()
        self.note(self.dealing_name)
        self._shared = [Prg(derive_seed(seed, "shares")) for seed in seeds]
        self._private = [Prg(derive_seed(seed, "private")) for seed in seeds]

    def uniform_parts(self, shape: Shape, ring: Ring) -> list[RingArray]:
        """Return every participant's share of a fresh uniform value."""
        place = self._next_place("uniform", shape, ring)
        return [prg.uniform(place, shape, ring) for prg in self._shared]

    def uniform(self, shape: Shape, ring: Ring) -> Elements:
        """Return a fresh uniform value that the participants hold shares of."""
        return Elements(total(self.uniform_parts(shape, ring), ring), ring)

    def small(self, sampler: Sampler, shape: Shape, ring: Ring) -> Elements:
        """Return the sum of small numbers that each participant has."""
        place = self._next_place(sampler.__name__, shape, ring)
        return Elements(Sum(self._shared).sampled(sampler, place, shape, ring), ring)

    def derive(self, recipe: Recipe, ring: Ring, *masks: Elements, kept: bool = False) -> Elements:
        """Give the participants shares of a value that follows from masks."""
        value = self.deal(recipe.alone(*(mask.array for mask in masks)), ring)
        return value if kept else Elements.unknown(value.shape, ring)

    def carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        """Return no carries, since we know the mask whole, and the bit."""
        carries = self.no_mask((len(places), *mask.shape), Z1)
        if bit is None:
            return carries, self.no_mask(mask.shape, Z1)
        found = (mask.array >> mask.ring.dtype.type(bit)).astype(np.uint8) & np.uint8(1)
        return carries, Elements(found, Z1)

    def deal(self, value: RingArray, ring: Ring) -> Elements:
        """Give the participants shares of a value that we alone know, and return it.

        `derive` can be done by several.
        """
        place = self._next_place("derived", value.shape, ring)
        drawn = total((prg.uniform(place, value.shape, ring) for prg in self._shared), ring)
        letter = Letter.of(ring, value.shape)
        correction = letter.write([ring.subtract(value, drawn)])
        self._sink.send(self._next_turn(letter.nbytes), correction, self._tag.value)
        return Elements(value, ring)

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp]:
        """Return a fresh uniform permutation that one participant knows, too."""
        place = self._next_place(f"permutation for {owner}", (length,), Z64)
        return self._private[owner].permutation(place, length)

    def private(self, shape: Shape, ring: Ring, owner: int) -> Elements:
        """Return fresh uniform values that one participant knows, too."""
        place = self._next_place(f"private for {owner}", shape, ring)
        return Elements(self._private[owner].uniform(place, shape, ring), ring)

    def lasting_mask(self, shape: Shape, ring: Ring, owner: int) -> Elements:
        """Return what `lasting` does, as a mask."""
        found = self.lasting(shape, ring, owner)
        assert found is not None
        return Elements(found, ring)
