"""A participant: holds its data and its shares, and is the only one to open and reveal.

`open` and `reveal` are the only functions through which shared values reach a participant in the
clear. An *opened* value is masked: uniform to everybody, whatever the data. A *revealed* one is
plain: it goes to the ledger, with what it is and who learned it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from privet.arithmetic.prg import Prg, derive_seed, fresh_seed
from privet.arithmetic.rings import Ring, RingArray, add_counting_wraps
from privet.arithmetic.shares import Share
from privet.errors import ResultError
from privet.runtime.correlations import CLOSING, Source
from privet.runtime.ledger import Ledger
from privet.runtime.opening import Fold, Opening
from privet.runtime.packing import add_up, as_bytes, cut_bytes, join
from privet.runtime.runtime import Runtime
from privet.transport.channel import Array, Channel, Expected


class Party(Runtime):
    """One participant, executing a program on its shares."""

    def __init__(self, index: int, names: Sequence[str], channel: Channel, source: Source) -> None:
        super().__init__(len(names))
        self.index = index
        self.names = tuple(names)
        self.name = names[index]
        self.ledger = Ledger()
        self.on_masks: Callable[[list[Share]], None] | None = None
        """Called with our shares of fresh masks before what they mask is opened: for work on them
        that can go on while we wait for the others."""
        self.on_open: Callable[[str, Ring, RingArray], None] | None = None
        """Called with every opened value: for tests of what the openings give away."""
        self._channel = channel
        self._source = source
        self._peers = [name for name in names if name != self.name]
        self._all = range(len(names))
        self._others = [k for k in self._all if k != index]
        self._opening = Opening(self.names, index, self._exchange)
        channel.where = lambda: self.step_name
        dealing, seed = source.start(index)
        self.note(dealing)
        self._shared = Prg(derive_seed(seed, "shares"))
        self._private = Prg(derive_seed(seed, "private"))
        self._own = Prg(fresh_seed())

    # What the dealer supplies.

    def uniform(self, shape: tuple[int, ...], ring: Ring) -> Share:
        """Return our share of a fresh uniform value, which the dealer knows."""
        self._tag.note(self.step_name, "uniform", shape, ring)
        return Share(self._shared.uniform(shape, ring), ring)

    def derived(self, shape: tuple[int, ...], ring: Ring) -> Share:
        """Return our share of a value that the dealer derived from its masks."""
        self._tag.note(self.step_name, "derived", shape, ring)
        part = self._shared.uniform(shape, ring)
        expected = Expected(ring.dtype, (part.size,))
        if self._next_turn(expected.nbytes) == self.index:
            correction = self._source.receive(expected, self._tag.value, self.step_name)
            traffic = self.meter.offline[self.step_name]
            traffic.messages += 1
            traffic.received += correction.nbytes
            ring.accumulate(part, correction.reshape(shape))
        return Share(part, ring)

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp] | None:
        """Return a fresh uniform permutation that the dealer and its owner know; None to others."""
        self.note(f"permutation of {length} for {owner}")
        return self._private.permutation(length) if owner == self.index else None

    def private(self, shape: tuple[int, ...], ring: Ring, owner: int) -> RingArray | None:
        """Return fresh uniform values that the dealer and their owner know; None to others."""
        self.note(f"private {shape} of {ring.name} for {owner}")
        return self._private.uniform(shape, ring) if owner == self.index else None

    # What the participants do among themselves.

    def publish(
        self, own: Sequence[Array], kinds: Sequence[Sequence[Expected]]
    ) -> Iterator[tuple[int, int, Array]]:
        """Send masked arrays of our own to all, and yield everybody's, one by one, in one round.

        Yields who sent an array, which of its arrays it is, and the array. All are on their way
        before the first is yielded: what is done with one overlaps with the carrying of the next.
        """
        tag = zlib.crc32(self.step_name.encode(), self._tag.value)
        traffic = self.meter.online[self.step_name]
        traffic.rounds += 1
        for array in own:
            for peer in self._peers:
                self._channel.send(peer, array, tag)
                traffic.messages += 1
                traffic.sent += array.nbytes
        for position, array in enumerate(own):
            yield self.index, position, array
        for position in range(max(map(len, kinds))):
            for k in self._others:
                if position < len(kinds[k]):
                    array = self._channel.receive(self.names[k], kinds[k][position], tag)
                    traffic.received += array.nbytes
                    yield k, position, array

    def public(self, values: RingArray, ring: Ring) -> Share:
        """Return a share of values that everybody knows: the first participant holds them all."""
        return Share(values if self.index == 0 else ring.zeros(values.shape), ring)

    def share_each(
        self,
        values: Sequence[RingArray | None],
        owners: Sequence[int] | None,
        shape: tuple[int, ...],
        ring: Ring,
    ) -> Share:
        """Secret-share arrays of several participants: each sends the others uniform shares."""
        assert owners is not None
        owned = {k: [j for j, owner in enumerate(owners) if owner == k] for k in self._all}
        ours = owned[self.index]
        sent_shape = (len(ours), *shape)
        masks = {peer: self._own.uniform(sent_shape, ring) for peer in self._peers if ours}
        due = {k: (len(owned[k]), *shape) for k in self._others if owned[k]}
        received = self._exchange(
            masks, {self.names[k]: Expected(ring.dtype, full) for k, full in due.items()}
        )
        part = np.empty((len(owners), *shape), dtype=ring.dtype)
        for k in due:
            part[owned[k]] = received[self.names[k]]
        for position, j in enumerate(ours):
            value = values[j]
            assert value is not None
            assert value.shape == shape
            part[j] = value
            for mask in masks.values():
                part[j] = ring.subtract(part[j], mask[position])
        return Share(part, ring)

    def open(self, *masked: Share) -> tuple[RingArray, ...]:
        """Add up the shares of masked values, at everybody. All of them take one opening together.

        Cost: `gates.gate.opening_cost`.
        """
        rings = [share.ring for share in masked]
        if len(masked) > 1 and all(ring is rings[0] for ring in rings):
            # As one vector, which is sent and added up without being taken apart.
            joined = np.concatenate([share.part.reshape(-1) for share in masked])
            (whole,) = self.open(Share(joined, rings[0]))
            ends = np.cumsum([share.size for share in masked])[:-1]
            pieces = np.split(whole, ends)
            return tuple(p.reshape(s.shape) for p, s in zip(pieces, masked, strict=True))

        def fold(pieces: list[list[RingArray]], _: list[slice]) -> list[RingArray]:
            return [add_up(ring, column) for ring, *column in zip(rings, *pieces, strict=True)]

        return self._open([share.part for share in masked], fold, rings)

    def open_counting_wraps(self, masked: Share) -> tuple[RingArray, RingArray]:
        """Open one value, and return with it our share of how often its shares wrapped around.

        Shares taken as signed numbers add up to the value plus 2^64 times that count. Whoever adds
        shares up sees it; the others' share of the count is zero there.
        """
        wraps = np.zeros(masked.shape, dtype=np.uint32)

        def fold(pieces: list[list[RingArray]], where: list[slice]) -> list[RingArray]:
            total, count = add_counting_wraps([piece for (piece,) in pieces])
            if len(total) < masked.size or self.index == 0:
                wraps.reshape(-1)[where[0]] = count
            return [total]

        (value,) = self._open([masked.part], fold, [masked.ring])
        return value, wraps

    def open_to_owners(
        self, masked: Share, owners: Sequence[int], notes: Sequence[Array | None], note: Expected
    ) -> tuple[dict[int, RingArray], list[Array]]:
        """Open `masked[j]` to `owners[j]` alone, who in the same round sends a note to all others.

        Returns what was opened to us, by j, and the notes of all j.
        """
        part = masked.part
        ours = [j for j, owner in enumerate(owners) if owner == self.index]
        our_notes = [as_bytes(notes[j]) for j in ours]
        shape = part.shape[1:]
        outgoing, expected = {}, {}
        for k in self._others:
            theirs = [j for j, owner in enumerate(owners) if owner == k]
            pieces = [*our_notes, *(as_bytes(part[j]) for j in theirs)]
            outgoing[self.names[k]] = join(pieces) if pieces else np.empty(0, np.uint8)
            size = len(theirs) * note.nbytes + len(ours) * masked.ring.nbytes(shape)
            expected[self.names[k]] = Expected(np.dtype(np.uint8), (size,))
        received = self._exchange(outgoing, expected)

        all_notes: list[Array] = [np.empty(0)] * len(owners)
        opened = {j: part[j] for j in ours}
        for k in self._others:
            message = received[self.names[k]]
            theirs = [j for j, owner in enumerate(owners) if owner == k]
            kinds = [note] * len(theirs) + [Expected(masked.ring.dtype, shape)] * len(ours)
            pieces = cut_bytes(message, kinds)
            for j, piece in zip(theirs, pieces, strict=False):
                all_notes[j] = piece
            for j, piece in zip(ours, pieces[len(theirs) :], strict=True):
                opened[j] = masked.ring.add(opened[j], piece)
        for j in ours:
            content = notes[j]
            assert content is not None
            all_notes[j] = content
            self._show(masked.ring, opened[j])
        return opened, all_notes

    def reveal(self, value: Share, to: Sequence[int], what: str) -> RingArray | None:
        """Reveal a value to some participants in plain: recorded, and None to all others."""
        self.note(f"reveal {what} to {list(to)}")
        names = tuple(self.names[index] for index in to)
        self.ledger.record(what, names, value.size, self.step_name)
        part = value.part
        outgoing = {name: part for name in names if name != self.name}
        if self.index not in to:
            self._exchange(outgoing, {})
            return None
        due = Expected(part.dtype, part.shape)
        parts = self._exchange(outgoing, dict.fromkeys(self._peers, due))
        return value.ring.sum(np.stack([part, *parts.values()]), 0)

    def reveal_choice(
        self, choice: Share, owners: Sequence[int], details: int, what: tuple[str, str]
    ) -> tuple[int, int]:
        """Reveal a choice to all and its detail to its owner, and record both."""
        self.note(f"reveal {what} of {list(owners)}")
        part = choice.part
        due = Expected(part.dtype, (2,))
        parts = self._exchange(
            {self.names[k]: part[[0, 1 + k]] for k in self._others},
            dict.fromkeys(self._peers, due),
        )
        total = choice.ring.sum(np.stack([part[[0, 1 + self.index]], *parts.values()]), 0)
        thing, detail = int(total[0]), int(total[1]) - 1
        owner = owners[thing] if thing < len(owners) else None
        if owner is None or not -1 <= detail < details or (detail >= 0) != (owner == self.index):
            raise ResultError(f"the shares of a {what[0]} do not add up to one of {len(owners)}")
        self.ledger.record(what[0], self.names, 1, self.step_name)
        self.ledger.record(what[1], (self.names[owner],), 1, self.step_name)
        return thing, detail

    def finish(self) -> None:
        """Check that the dealer has come to the same end."""
        self._source.receive(CLOSING, self._tag.value, "end of the program")

    def _open(self, parts: list[RingArray], fold: Fold, rings: list[Ring]) -> tuple[RingArray, ...]:
        totals = self._opening.totals([part.reshape(-1) for part in parts], fold, rings)
        values = tuple(
            ring.reduce(total).reshape(part.shape)
            for ring, total, part in zip(rings, totals, parts, strict=True)
        )
        for ring, value in zip(rings, values, strict=True):
            self._show(ring, value)
        return values

    def _show(self, ring: Ring, opened: RingArray) -> None:
        if self.on_open is not None:
            self.on_open(self.step_name, ring, opened)

    def _exchange(
        self, outgoing: dict[str, Array], expected: dict[str, Expected]
    ) -> dict[str, Array]:
        """One round: send, then wait for what is due, with our place in the program as the tag."""
        tag = zlib.crc32(self.step_name.encode(), self._tag.value)
        received = self._channel.exchange(outgoing, expected, tag)
        traffic = self.meter.online[self.step_name]
        traffic.rounds += 1
        traffic.messages += len(outgoing)
        traffic.sent += sum(array.nbytes for array in outgoing.values())
        traffic.received += sum(array.nbytes for array in received.values())
        return received
