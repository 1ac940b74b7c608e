"""A participant: holds its data and its shares, and is the only role that opens and reveals.

Only the methods `open...` and `reveal...` reconstruct shared values at a participant. An *opened*
value is masked: uniform to all participants, whatever the data. A *revealed* value is plain, and
the disclosure ledger records it with its recipients.
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
    """One participant that runs a program on its shares."""

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
        """Called with every opened value: for tests of the leakage of openings."""
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
        """Send local masked arrays to all, and yield all participants' arrays, in one round.

        `shapes[k]` are the shapes of participant k's arrays. Yields the sender of an array, its
        position among the sender's arrays, and the array. All local arrays are on their way before
        the first is yielded: work on one overlaps with the transfer of the next.
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
        for position in range(max(len(shapes_of_peer) for shapes_of_peer in shapes)):
            for k in self._others:
                if position < len(shapes[k]):
                    payload = Payload.for_array(ring, shapes[k][position])
                    message = self._channel.receive(self.names[k], payload.expected, tag)
                    traffic.received += message.nbytes
                    yield k, position, payload.decode(message)[0].reshape(shapes[k][position])

    def share_public(self, values: RingArray, ring: Ring) -> Share:
        """Return a share of public values: the first participant holds them, the others zeros."""
        return Share(values if self.index == 0 else ring.zeros(values.shape), ring)

    def as_opened(self, values: RingArray, ring: Ring) -> Elements:
        """Return public values as if they had been opened."""
        return Elements(values, ring)

    def share_arrays(self, values: Owned, owners: Owners, shape: Shape, ring: Ring) -> Share:
        """Secret-share arrays of several participants: each sends the others uniform shares."""
        assert owners is not None
        owned = {k: [j for j, owner in enumerate(owners) if owner == k] for k in self._all}
        local_indices = owned[self.index]
        sent_shape = (len(local_indices), *shape)
        masks = {
            peer: self._local_prg.uniform(self._next_local_place(), sent_shape, ring)
            for peer in self._peers
            if local_indices
        }
        payloads = {
            k: Payload.for_array(ring, (len(owned[k]), *shape)) for k in self._others if owned[k]
        }
        payload = Payload.for_array(ring, sent_shape)
        received = self._exchange(
            {peer: payload.encode([mask]) for peer, mask in masks.items()},
            {self.names[k]: peer_payload.expected for k, peer_payload in payloads.items()},
        )
        part = np.empty((len(owners), *shape), dtype=ring.dtype)
        for k, peer_payload in payloads.items():
            (shares,) = peer_payload.decode(received[self.names[k]])
            part[owned[k]] = shares.reshape(-1, *shape)
        for position, j in enumerate(local_indices):
            value = values[j]
            assert value is not None
            assert value.shape == shape
            part[j] = value
            for mask in masks.values():
                part[j] = ring.subtract(part[j], mask[position])
        return Share(part, ring)

    def open(self, *masked: Share) -> tuple[RingArray, ...]:
        """Open masked values to all participants, all of them in one opening.

        A `PublicShare` has no mask: it is revealed to all participants, and recorded.
        `runtime.opening` decides the messages of an opening, and therefore its cost.
        """
        rings, _ = merge_vectors(masked)

        def fold(pieces: list[list[RingArray]], _: list[slice]) -> list[RingArray]:
            return [sum_shares(ring, column) for ring, *column in zip(rings, *pieces, strict=True)]

        if len(rings) < len(masked):
            # One vector for all values, which is sent and added up as a whole.
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
        """Open one value, and return with it our share of its wrap count.

        Shares as signed numbers add up to the value plus 2^64 times the count. The participant that
        adds the shares up knows the count; the other participants' shares of it are zero there.
        """
        wraps = np.zeros(masked.shape, dtype=np.uint32)

        def fold(pieces: list[list[RingArray]], slices: list[slice]) -> list[RingArray]:
            total, count = add_counting_wraps([piece for (piece,) in pieces])
            if len(total) < masked.size or self.index == 0:
                wraps.reshape(-1)[slices[0]] = count
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
        """Open `masked[j]` only to `owners[j]`, which in the same round sends a note to all others.

        A note is a vector; `note` is its ring and length. Returns the values opened to this
        participant, by j, and the notes of all j.
        """
        part, ring, shape = masked.part, masked.ring, masked.shape[1:]
        owned = [[j for j, owner in enumerate(owners) if owner == k] for k in self._all]
        local_indices = owned[self.index]

        def create_payload(sender: int, recipient: int) -> Payload:
            counts = len(owned[sender]), len(owned[recipient])
            rings = [note[0]] * counts[0] + [ring] * counts[1]
            return Payload(rings, [note[1]] * counts[0] + [prod(shape)] * counts[1])

        local_notes = [local_note for j in local_indices if (local_note := notes[j]) is not None]
        received = self._exchange(
            {
                self.names[k]: create_payload(self.index, k).encode(
                    [*local_notes, *(part[j] for j in owned[k])]
                )
                for k in self._others
            },
            {self.names[k]: create_payload(k, self.index).expected for k in self._others},
        )
        all_notes: list[RingArray] = [np.empty(0)] * len(owners)
        opened = {j: part[j] for j in local_indices}
        for k in self._others:
            pieces = create_payload(k, self.index).decode(received[self.names[k]])
            for j, piece in zip(owned[k], pieces, strict=False):
                all_notes[j] = piece
            for j, piece in zip(local_indices, pieces[len(owned[k]) :], strict=True):
                opened[j] = ring.add(opened[j], piece.reshape(shape))
        for j, local_note in zip(local_indices, local_notes, strict=True):
            all_notes[j] = local_note
            self._show(ring, opened[j])
        return opened, all_notes

    def reveal(self, value: Share, recipients: Sequence[int], disclosure: str) -> RingArray | None:
        """Reveal a value to the recipients, and record it; return None to all others."""
        self.update_tag(f"reveal {disclosure} to {list(recipients)}")
        names = tuple(self.names[index] for index in recipients)
        self.ledger.record(disclosure, names, value.size, self.step_name)
        payload = Payload.for_array(value.ring, value.shape)
        message = payload.encode([value.part])
        outgoing = {name: message for name in names if name != self.name}
        if self.index not in recipients:
            self._exchange(outgoing, {})
            return None
        received = self._exchange(outgoing, dict.fromkeys(self._peers, payload.expected))
        parts = [payload.decode(encoded)[0].reshape(value.shape) for encoded in received.values()]
        return value.ring.reduce_modulus(sum_shares(value.ring, [value.part, *parts]))

    def announce(self, number: int | None, owner: int, disclosure: str) -> int:
        """Send a number to all other participants and the dealer, or receive it; record it."""
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
        """Record values that all participants sent to each other."""
        self.ledger.record(disclosure, self.names, n_elements, self.step_name)

    def reveal_argmax(self, finalists: Share, candidates: ArgmaxCandidates) -> ArgmaxResult:
        """Reveal the selected candidate to all and its detail to its owner, and record both.

        If there is a receiver, reveal a number to it, too.
        """
        self.update_tag(f"reveal {candidates}")
        part, ring = finalists.part, finalists.ring
        local_rows = part[candidates.list_rows(self.index)]
        payload = Payload.for_array(ring, local_rows.shape)
        sent = {k: part[candidates.list_rows(k)] for k in self._others}
        received = self._exchange(
            {
                self.names[k]: Payload.for_array(ring, rows.shape).encode([rows])
                for k, rows in sent.items()
            },
            dict.fromkeys(self._peers, payload.expected),
        )
        parts = [
            payload.decode(message)[0].reshape(local_rows.shape) for message in received.values()
        ]
        total = ring.reduce_modulus(sum_shares(ring, [local_rows, *parts]))
        position, result = candidates.decode_result(total, self.index)
        self.ledger.record(candidates.disclosures[0], self.names, 1, self.step_name)
        owner = self.names[candidates.owners[result.candidate]]
        self.ledger.record(candidates.disclosures[1], (owner,), 1, self.step_name)
        if candidates.receiver is not None:
            receiver = self.names[candidates.receiver]
            self.ledger.record(candidates.receiver_disclosure, (receiver,), 1, self.step_name)
        self._show(ring, np.delete(total, position, axis=1))  # the blinded finalists
        return result

    def _open(
        self, parts: list[RingArray], sum_pieces: Fold, rings: list[Ring]
    ) -> tuple[RingArray, ...]:
        totals = self._opening.open_sums([part.reshape(-1) for part in parts], sum_pieces, rings)
        return tuple(
            ring.reduce_modulus(total).reshape(part.shape)
            for ring, total, part in zip(rings, totals, parts, strict=True)
        )

    def _next_local_place(self) -> Place:
        """Return the place of the next draw from the local stream."""
        self._n_local_draws += 1
        return Place("own", (), self._n_local_draws)

    def _show(self, ring: Ring, opened: RingArray) -> None:
        if self.on_open is not None:
            self.on_open(self.step_name, ring, opened)

    def _exchange(
        self, outgoing: dict[str, Array], expected: dict[str, Expected]
    ) -> dict[str, Array]:
        """One round: send, then wait for the expected arrays; the tag is the program position."""
        tag = zlib.crc32(self.step_name.encode(), self._tag.value)
        received = self._channel.exchange(outgoing, expected, tag)
        traffic = self.meter.online[self.step_name]
        traffic.rounds += 1
        traffic.messages += len(outgoing)
        traffic.sent += sum(array.nbytes for array in outgoing.values())
        traffic.received += sum(array.nbytes for array in received.values())
        return received
