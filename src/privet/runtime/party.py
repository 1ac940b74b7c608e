"""A participant: holds its data and its shares, and is the only one to open and reveal.

`open` and `reveal` are the only functions through which shared values reach a participant in the
clear. An *opened* value is masked: uniform to everybody, whatever the data. A *revealed* one is
plain: it goes to the ledger, with what it is and who learned it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np

from privet.arithmetic.prg import Place, Prg, fresh_seed
from privet.arithmetic.rings import Ring, RingArray, add_counting_wraps
from privet.arithmetic.shares import Elements, PublicShare, Share
from privet.runtime.accounting import DisclosureLedger
from privet.runtime.correlations.source import CorrelationReceiver, DealtSource
from privet.runtime.opening import (
    EXPECTED_ANNOUNCEMENT,
    Fold,
    NetworkModel,
    Opener,
    Payload,
    merge_vectors,
    sum_shares,
)
from privet.runtime.runtime import ArgmaxCandidates, ArgmaxResult, Owned, Owners, Shape
from privet.transport.channel import Array, Channel, Expected


class Party(DealtSource):
    """One participant, executing a program on its shares."""

    def __init__(
        self,
        index: int,
        names: Sequence[str],
        channel: Channel,
        receiver: CorrelationReceiver,
        network: NetworkModel | None = None,
    ) -> None:
        super().__init__(index, len(names), receiver, network)
        self.names = tuple(names)
        self.name = names[index]
        self.ledger = DisclosureLedger()
        self.on_open: Callable[[str, Ring, RingArray], None] | None = None
        """Called with every opened value: for tests of what the openings give away."""
        self._channel = channel
        self._peers = [name for name in names if name != self.name]
        self._all = range(len(names))
        self._others = [k for k in self._all if k != index]
        self._opening = Opener(self.names, index, self._exchange, network)
        channel.current_step = lambda: self.step_name
        self._local_prg = Prg(fresh_seed())
        self._n_local_draws = 0

    def publish(
        self, arrays: Sequence[RingArray], shapes: Sequence[Sequence[Shape]], ring: Ring
    ) -> Iterator[tuple[int, int, RingArray]]:
        """Send masked arrays of our own to all, and yield everybody's, one by one, in one round.

        `shapes[k]` are those of participant k's arrays. Yields who sent an array, which of its
        arrays it is, and the array. All are on their way before the first is yielded: what is done
        with one overlaps with the carrying of the next.
        """
        tag = zlib.crc32(self.step_name.encode(), self._tag.value)
        traffic = self.meter.online[self.step_name]
        traffic.rounds += 1
        for array in arrays:
            message = Payload.for_array(ring, array.shape).encode([array])
            for peer in self._peers:
                self._channel.send(peer, message, tag)
                traffic.messages += 1
                traffic.sent += message.nbytes
        for position, array in enumerate(arrays):
            yield self.index, position, array
        for position in range(max(len(theirs) for theirs in shapes)):
            for k in self._others:
                if position < len(shapes[k]):
                    letter = Payload.for_array(ring, shapes[k][position])
                    message = self._channel.receive(self.names[k], letter.expected, tag)
                    traffic.received += message.nbytes
                    yield k, position, letter.decode(message)[0].reshape(shapes[k][position])

    def share_public(self, values: RingArray, ring: Ring) -> Share:
        """Return a share of values that everybody knows: the first participant holds them all."""
        return Share(values if self.index == 0 else ring.zeros(values.shape), ring)

    def as_opened(self, values: RingArray, ring: Ring) -> Elements:
        """Return values that everybody knows, as if they had been opened."""
        return Elements(values, ring)

    def share_arrays(self, values: Owned, owners: Owners, shape: Shape, ring: Ring) -> Share:
        """Secret-share arrays of several participants: each sends the others uniform shares."""
        assert owners is not None
        owned = {k: [j for j, owner in enumerate(owners) if owner == k] for k in self._all}
        ours = owned[self.index]
        sent_shape = (len(ours), *shape)
        masks = {
            peer: self._local_prg.uniform(self._next_local_place(), sent_shape, ring)
            for peer in self._peers
            if ours
        }
        due = {
            k: Payload.for_array(ring, (len(owned[k]), *shape)) for k in self._others if owned[k]
        }
        letter = Payload.for_array(ring, sent_shape)
        received = self._exchange(
            {peer: letter.encode([mask]) for peer, mask in masks.items()},
            {self.names[k]: theirs.expected for k, theirs in due.items()},
        )
        part = np.empty((len(owners), *shape), dtype=ring.dtype)
        for k, theirs in due.items():
            (found,) = theirs.decode(received[self.names[k]])
            part[owned[k]] = found.reshape(-1, *shape)
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

        What is `PublicShare` has no mask, and is revealed to all: it is recorded. How an opening
        travels, and so what it costs, is decided in `runtime.opening`.
        """
        rings, _ = merge_vectors(masked)

        def fold(pieces: list[list[RingArray]], _: list[slice]) -> list[RingArray]:
            return [sum_shares(ring, column) for ring, *column in zip(rings, *pieces, strict=True)]

        if len(rings) < len(masked):
            # As one vector, which is sent and added up without being taken apart.
            joined = np.concatenate([share.part.reshape(-1) for share in masked])
            (whole,) = self._open([joined], fold, rings)
            ends = np.cumsum([share.size for share in masked])[:-1]
            pieces = np.split(whole, ends)
            values = tuple(p.reshape(s.shape) for p, s in zip(pieces, masked, strict=True))
        else:
            values = self._open([share.part for share in masked], fold, rings)
        for share, value in zip(masked, values, strict=True):
            if isinstance(share, PublicShare):
                self.ledger.record(share.disclosure, self.names, share.size, self.step_name)
            else:
                self._show(share.ring, value)
        return values

    def open_with_wraps(self, masked: Share) -> tuple[RingArray, RingArray]:
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
        self._show(masked.ring, value)
        return value, wraps

    def open_to_owners(
        self,
        masked: Share,
        owners: Sequence[int],
        notes: Sequence[RingArray | None],
        note: tuple[Ring, int],
    ) -> tuple[dict[int, RingArray], list[RingArray]]:
        """Open `masked[j]` to `owners[j]` alone, who in the same round sends a note to all others.

        A note is a vector of some ring and length. Returns what was opened to us, by j, and the
        notes of all j.
        """
        part, ring, shape = masked.part, masked.ring, masked.shape[1:]
        owned = [[j for j, owner in enumerate(owners) if owner == k] for k in self._all]
        ours = owned[self.index]

        def letter(notes_of: int, values_for: int) -> Payload:
            counts = len(owned[notes_of]), len(owned[values_for])
            rings = [note[0]] * counts[0] + [ring] * counts[1]
            return Payload(rings, [note[1]] * counts[0] + [prod(shape)] * counts[1])

        own_notes = [content for j in ours if (content := notes[j]) is not None]
        received = self._exchange(
            {
                self.names[k]: letter(self.index, k).encode(
                    [*own_notes, *(part[j] for j in owned[k])]
                )
                for k in self._others
            },
            {self.names[k]: letter(k, self.index).expected for k in self._others},
        )
        all_notes: list[RingArray] = [np.empty(0)] * len(owners)
        opened = {j: part[j] for j in ours}
        for k in self._others:
            pieces = letter(k, self.index).decode(received[self.names[k]])
            for j, piece in zip(owned[k], pieces, strict=False):
                all_notes[j] = piece
            for j, piece in zip(ours, pieces[len(owned[k]) :], strict=True):
                opened[j] = ring.add(opened[j], piece.reshape(shape))
        for j, content in zip(ours, own_notes, strict=True):
            all_notes[j] = content
            self._show(ring, opened[j])
        return opened, all_notes

    def reveal(self, value: Share, recipients: Sequence[int], disclosure: str) -> RingArray | None:
        """Reveal a value to some participants in plain: recorded, and None to all others."""
        self.update_tag(f"reveal {disclosure} to {list(recipients)}")
        names = tuple(self.names[index] for index in recipients)
        self.ledger.record(disclosure, names, value.size, self.step_name)
        letter = Payload.for_array(value.ring, value.shape)
        message = letter.encode([value.part])
        outgoing = {name: message for name in names if name != self.name}
        if self.index not in recipients:
            self._exchange(outgoing, {})
            return None
        received = self._exchange(outgoing, dict.fromkeys(self._peers, letter.expected))
        parts = [letter.decode(theirs)[0].reshape(value.shape) for theirs in received.values()]
        return value.ring.reduce_modulus(sum_shares(value.ring, [value.part, *parts]))

    def announce(self, number: int | None, owner: int, disclosure: str) -> int:
        """Tell a number to all other participants and the dealer, or hear it, and record it."""
        self.update_tag(f"announce {disclosure}")
        dealers = self._receiver.online_dealers
        if owner == self.index:
            message = np.array([number], dtype=np.uint32)
            for dealer in dealers:
                self._channel.send(dealer, message, self._tag.value)
            self._exchange(dict.fromkeys(self._peers, message), {})
        else:
            (message,) = self._exchange({}, {self.names[owner]: EXPECTED_ANNOUNCEMENT}).values()
        self.ledger.record(disclosure, (*self.names, *dealers), 1, self.step_name)
        return int(message[0])

    def record_disclosure(self, disclosure: str, n_elements: int) -> None:
        """Record what all told each other."""
        self.ledger.record(disclosure, self.names, n_elements, self.step_name)

    def reveal_argmax(self, finalists: Share, candidates: ArgmaxCandidates) -> ArgmaxResult:
        """Reveal to all which thing the winner is, its detail to its owner, and record both.

        And a number to its receiver, if there is one.
        """
        self.update_tag(f"reveal {candidates}")
        part, ring = finalists.part, finalists.ring
        own = part[candidates.list_rows(self.index)]
        letter = Payload.for_array(ring, own.shape)
        sent = {k: part[candidates.list_rows(k)] for k in self._others}
        received = self._exchange(
            {
                self.names[k]: Payload.for_array(ring, rows.shape).encode([rows])
                for k, rows in sent.items()
            },
            dict.fromkeys(self._peers, letter.expected),
        )
        parts = [letter.decode(theirs)[0].reshape(own.shape) for theirs in received.values()]
        total = ring.reduce_modulus(sum_shares(ring, [own, *parts]))
        place, winner = candidates.decode_result(total, self.index)
        self.ledger.record(candidates.disclosures[0], self.names, 1, self.step_name)
        owner = self.names[candidates.owners[winner.candidate]]
        self.ledger.record(candidates.disclosures[1], (owner,), 1, self.step_name)
        if candidates.receiver is not None:
            receiver = self.names[candidates.receiver]
            self.ledger.record(candidates.receiver_disclosure, (receiver,), 1, self.step_name)
        self._show(ring, np.delete(total, place, axis=1))  # the veiled ones
        return winner

    def _open(
        self, parts: list[RingArray], sum_pieces: Fold, rings: list[Ring]
    ) -> tuple[RingArray, ...]:
        totals = self._opening.open_sums([part.reshape(-1) for part in parts], sum_pieces, rings)
        return tuple(
            ring.reduce_modulus(total).reshape(part.shape)
            for ring, total, part in zip(rings, totals, parts, strict=True)
        )

    def _next_local_place(self) -> Place:
        """Return the place of the next draw that is nobody's but ours."""
        self._n_local_draws += 1
        return Place("own", (), self._n_local_draws)

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
