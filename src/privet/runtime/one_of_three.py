"""One of three dealers, none of whom knows a mask.

Every mask is in three parts, of which each dealer has two (`arithmetic.replicated`): part k of a
mask is the sum of what the participants draw from their k-th seeds. To derive a value, one of the
dealers is the *client*, who has S, the sum of its two parts. The other two are *servers*; both have
T, the third part, and each of them one of the two that are S. The roles move on from table to
table, so that all links carry the same. Tables that are dealt at once are each on a stream of their
own: while one waits for another dealer, the others compute.

    client         makes something of S, and sends it to the second server, less a stream that it
                   has with the first, whose share that is
    first server   has the value in part (`Recipe.server`); sends it to the second, less its part of
                   what the participants draw
    second server  adds its own part, less the rest of what they draw: the correction, which goes to
                   a participant

All that a dealer hears is hidden from it by a stream, or by draws, that it has not got. The
correction is, too, so it may be told: a value that is kept is what was drawn, in three parts, and
the correction, which both servers add to T.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from privet.arithmetic.prg import Place, Prg, Sampler, Sum, derive_seed
from privet.arithmetic.replicated import HOLDERS, Replicated
from privet.arithmetic.rings import Z1, Ring, RingArray
from privet.arithmetic.shares import Elements
from privet.runtime.carries import CLIENT, FIRST, SECOND, Talk, find_carries, tree
from privet.runtime.correlations import Sink
from privet.runtime.dealer import Dealer
from privet.runtime.fellows import Fellows
from privet.runtime.letters import Letter
from privet.runtime.opening import Link
from privet.runtime.recipes import Half, Recipe
from privet.runtime.runtime import Shape


class OneOfThree(Dealer):
    """Has two parts of every mask."""

    parts = 2

    def __init__(
        self, n_parties: int, sink: Sink, fellows: Fellows, link: Link | None = None
    ) -> None:
        super().__init__(n_parties, sink, link)
        self._fellows = fellows
        self.dealing_name, seeds = sink.start()
        self.note(self.dealing_name)
        shares, self._privates = (
            [[Prg(derive_seed(seed, use)) for seed in part] for part in seeds]
            for use in ("shares", "private")
        )
        self._shares = [Sum(part) for part in shares]

    def uniform(self, shape: Shape, ring: Ring) -> Replicated:
        """Return our parts of a fresh uniform value."""
        place = self._next_place("uniform", shape, ring)
        return Replicated(*(self._draw(part, place, shape, ring) for part in range(2)))

    def small(self, sampler: Sampler, shape: Shape, ring: Ring) -> Replicated:
        """Return our parts of small numbers, which are small, too."""
        place = self._next_place(sampler.__name__, shape, ring)
        parts = (part.sampled(sampler, place, shape, ring) for part in self._shares)
        return Replicated(*(Elements(part, ring) for part in parts))

    def no_mask(self, shape: Shape, ring: Ring) -> Replicated:
        """Return zeros in parts."""
        none = super().no_mask(shape, ring)
        return Replicated(none, none)

    def private(self, shape: Shape, ring: Ring, owner: int) -> Replicated:
        """Return our parts of fresh uniform values that one participant knows."""
        place = self._next_place(f"private for {owner}", shape, ring)
        parts = (streams[owner].uniform(place, shape, ring) for streams in self._privates)
        return Replicated(*(Elements(part, ring) for part in parts))

    def lasting_mask(self, shape: Shape, ring: Ring, owner: int) -> Replicated:
        """Return our parts of what lasts."""
        parts = self._lasting_parts(shape, ring, owner)
        return Replicated(*(Elements(part, ring) for part in parts))

    def derive(self, recipe: Recipe, ring: Ring, *masks: Elements, kept: bool = False) -> Elements:
        """Do our part in giving the participants shares of a value."""
        shapes = [mask.shape for mask in masks]
        shape = recipe.shape(*shapes)
        place = self._next_place("derived", shape, ring)
        turn = self._at.next_turn(Letter.of(ring, shape).nbytes)
        talk, outline = _Roles(self), recipe.shared(ring, *shapes)
        parts = [_parts(mask) for mask in masks]
        if talk.role == CLIENT:
            made = recipe.client(*(mask.ring.add(*p) for mask, p in zip(masks, parts, strict=True)))
            for k, ((of, size), array) in enumerate(zip(outline, made, strict=True)):
                first = talk.drawn(FIRST, size, of)
                talk.send(SECOND, recipe.rest(k, of, array, first), of)
            if not kept:
                return Elements.unknown(shape, ring)
            return Replicated(*(self._draw(part, place, shape, ring) for part in range(2)))
        ours = self._draw(0, place, shape, ring)
        if talk.role == FIRST:
            shared = [talk.drawn(CLIENT, size, of) for of, size in outline]
            half = Half(shared, [s for s, _ in parts], [t for _, t in parts], first=True)
            talk.send(SECOND, ring.subtract(recipe.server(half), ours.array), ring)
            if not kept:
                return Elements.unknown(shape, ring)
            correction = Elements(talk.hear(SECOND, shape, ring), ring)
            return Replicated(ours, self._draw(1, place, shape, ring) + correction)
        shared = [talk.hear(CLIENT, size, of) for of, size in outline]
        half = Half(shared, [s for _, s in parts], [t for t, _ in parts], first=False)
        value, theirs = Elements(recipe.server(half), ring), self._draw(1, place, shape, ring)
        correction = value + Elements(talk.hear(FIRST, shape, ring), ring) - ours - theirs
        message = Letter.of(ring, shape).write([correction.array])
        self._in_order(partial(self._sink.send, turn, message, self._tag.value))
        if not kept:
            return Elements.unknown(shape, ring)
        talk.send(FIRST, correction.array, ring)
        return Replicated(ours + correction, theirs)

    def carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        """Find carries together (`runtime.carries`)."""
        wanted = tuple(sorted({*places} - {0}))
        none = self.no_mask(mask.shape, Z1)
        found: dict[int | None, Replicated] = {0: none, None: none}
        if wanted or bit:
            talk, (one, other) = _Roles(self), _parts(mask)
            part = (mask.ring.add(one, other), other, one)[talk.role]
            how = tree(wanted, bit)
            both = find_carries(talk, mask.ring.reduce(part).reshape(-1), how)
            rows = [*wanted, *([None] if bit else [])]
            for k, place in enumerate(rows):
                halves = (Elements(planes[k].reshape(mask.shape), Z1) for planes in both)
                found[place] = Replicated(*halves)
        every = [found[place] for place in places]
        if not every:
            return self.no_mask((0, *mask.shape), Z1), found[None]
        return every[0].joined(every, np.stack), found[None]

    def _draw(self, part: int, place: Place, shape: Shape, ring: Ring) -> Elements:
        """Return one of our parts of what all participants draw at a place."""
        return Elements(self._shares[part].uniform(place, shape, ring), ring)


class _Roles(Talk):
    """The other two dealers by the roles that they have now."""

    def __init__(self, dealer: OneOfThree) -> None:
        self._dealer = dealer
        self._fellows = dealer._fellows
        self._client = dealer._dealers_turn(CLIENT)
        self.role = (self._fellows.number - self._client) % HOLDERS

    def drawn(self, role: int, shape: Shape, ring: Ring) -> RingArray:
        """Return uniform elements that we have with another one."""
        other, path = self._number(role), tuple(self._dealer.path)
        slot = self._dealer._slots[f"with {other}", path]
        self._dealer._slots[f"with {other}", path] += 1
        return self._fellows.stream(other).uniform(Place("pair", path, slot), shape, ring)

    def send(self, role: int, array: RingArray, ring: Ring) -> None:
        """Send elements to another one, and meter them."""
        message = Letter.of(ring, array.shape).write([array])
        tag, stream = self._dealer._tag.value, self._dealer._thread.stream
        self._fellows.send(self._number(role), message, tag, stream)
        traffic = self._dealer.meter.online[self._dealer.step_name]
        traffic.messages += 1
        traffic.sent += message.nbytes

    def hear(self, role: int, shape: Shape, ring: Ring) -> RingArray:
        """Wait for elements of another one."""
        letter, number = Letter.of(ring, shape), self._number(role)
        tag, stream = self._dealer._tag.value, self._dealer._thread.stream
        message = self._fellows.receive(number, letter.kind, tag, stream)
        self._dealer.meter.online[self._dealer.step_name].received += message.nbytes
        (array,) = letter.read(message)
        return array.reshape(shape)

    def _number(self, role: int) -> int:
        return (self._client + role) % HOLDERS


def _parts(mask: Elements) -> tuple[RingArray, RingArray]:
    assert isinstance(mask, Replicated)
    first, second = mask.parts
    return first.array, second.array
