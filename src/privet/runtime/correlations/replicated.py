"""Three dealers with replicated seeds, so that no dealer knows a mask.

Every mask is the sum of three parts, of which each dealer has two (`ReplicatedElements`): part k is
the sum of the participants' draws from their k-th seeds.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from privet.arithmetic.prg import (
    SEED_BYTES,
    Place,
    Prg,
    Sampler,
    SummedPrg,
    derive_seed,
    fresh_seed,
)
from privet.arithmetic.rings import BIT_RING, Z1, Ring, RingArray
from privet.arithmetic.shares import N_HOLDERS, Elements, ReplicatedElements
from privet.runtime.correlations.correlation import Correlation, THolderInput
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.correlations.seeds import RANDOMNESS_ID_BYTES, ReplicatedSeedMessage, mix_nonce
from privet.runtime.correlations.source import (
    EXPECTED_NONCE,
    FIRST_T_HOLDER,
    S_HOLDER,
    SECOND_T_HOLDER,
    CorrelationSender,
    LiveSender,
)
from privet.runtime.opening import NetworkModel, Payload
from privet.runtime.runtime import Shape
from privet.transport.channel import Array, Channel, Expected

_MAX_DIGIT_BITS = 3  # a lookup table of 2^3 bits is one byte

ByteArray = npt.NDArray[np.uint8]


class RoleChannel(ABC):
    """A dealer's streams and connections to the other two dealers, by their roles."""

    role: int

    @abstractmethod
    def draw_common(self, role: int, shape: tuple[int, ...], ring: Ring) -> RingArray:
        """Return uniform elements that only this dealer and another one have."""

    @abstractmethod
    def send(self, role: int, array: RingArray, ring: Ring) -> None:
        """Send elements to another dealer."""

    @abstractmethod
    def receive(self, role: int, shape: tuple[int, ...], ring: Ring) -> RingArray:
        """Wait for elements from another dealer."""


class CarryTree:
    """The levels of a tree that joins digits: see `compute_carries`."""

    def __init__(self, wanted: Sequence[int], bit: int | None) -> None:
        self.bit = bit
        """The requested bit of the mask; the tree also computes the carry into it."""
        places = sorted({*wanted, bit or 0} - {0})
        starts: list[int] = []
        for begin, end in zip([0, *places[:-1]], places, strict=True):
            starts += range(begin, end, _MAX_DIGIT_BITS)
        self.digits = list(zip(starts, np.diff([*starts, places[-1]]).tolist(), strict=True))
        ends = [start + length for start, length in self.digits]
        self.output_digits = [ends.index(place) for place in [*wanted, *([bit] if bit else [])]]
        """Digits whose carries (from all lower bits) are requested; the bit's carry is last."""
        self.levels: list[list[tuple[int, int, bool]]] = []
        """Digits, the digits below them, and whether the propagated carry is used later."""
        needed = set(self.output_digits)
        for k in reversed(range((len(self.digits) - 1).bit_length())):
            upper = [i for i in sorted(needed) if i >> k & 1]
            self.levels.insert(0, [(i, (i >> k << k) - 1, i >> (k + 1) > 0) for i in upper])
            needed |= {lower for _, lower, _ in self.levels[0]}

    def count_products(self, level: int) -> int:
        """Return the number of bit products in a level."""
        return sum(1 + passes for _, _, passes in self.levels[level])

    def count_bytes(self, count: int) -> int:
        """Return the bytes that the three dealers exchange for the carries of `count` masks."""
        plane = -(-count // 8)
        products = sum(self.count_products(level) for level in range(len(self.levels)))
        planes = 5 * products + 2 * len(self.output_digits) + (self.bit is not None)
        return 2 * len(self.digits) * count + planes * plane


@lru_cache(maxsize=256)
def get_carry_tree(places: tuple[int, ...], bit: int | None = None) -> CarryTree:
    """Return the tree for carries into bits, in ascending order from 1, and for one bit."""
    return CarryTree(places, bit)


def compute_carries(
    channel: RoleChannel, part: RingArray, tree: CarryTree
) -> tuple[ByteArray, ByteArray]:
    """Return our two parts of the carries into some bits, (places, N) each, from S or T, (N,).

    1. Each holder cuts its value into digits of up to three bits. For each digit of S and every
       possible digit of T, the S holder shares whether the two generate a carry and whether they
       propagate one: eight bits each.
    2. Both T holders look up the bits of their digit, and have shares of them.
    3. The T holders join digits in a tree: a digit generates a carry if it does itself, or if it
       propagates the carry that the digit below it generates. These are products of shared bits;
       for each product, the S holder deals two bits and their product.
    4. The T holders open the carries, masked by bits that the S holder also has. Therefore, a carry
       is S ^ T again, with S at the S holder and T at the T holders.

    A bit of the mask itself is the XOR of S's bit, T's bit and the carry into it; it is opened in
    the same way.
    """
    act = _act_as_s_holder if channel.role == S_HOLDER else _act_as_t_holder
    first, second = act(channel, part, tree)
    return _unpack_bits(first, len(part)), _unpack_bits(second, len(part))


def _act_as_s_holder(
    channel: RoleChannel, s: RingArray, tree: CarryTree
) -> tuple[ByteArray, ByteArray]:
    lookups = np.empty((2, len(tree.digits), len(s)), dtype=np.uint8)
    for k, (start, length) in enumerate(tree.digits):
        digit = _digit(s, start, length)
        for row, table in zip(lookups[:, k], _tables(length), strict=True):
            np.take(table, digit, out=row)
    lookups ^= channel.draw_common(FIRST_T_HOLDER, lookups.shape, BIT_RING)
    channel.send(SECOND_T_HOLDER, lookups, BIT_RING)
    plane = -(-len(s) // 8)
    for level in range(len(tree.levels)):
        count = tree.count_products(level)
        a, b, product = channel.draw_common(FIRST_T_HOLDER, (3, count, plane), BIT_RING)
        t_masks = channel.draw_common(SECOND_T_HOLDER, (2, count, plane), BIT_RING)
        channel.send(SECOND_T_HOLDER, (a ^ t_masks[0]) & (b ^ t_masks[1]) ^ product, BIT_RING)
    if tree.bit is not None:
        bits = np.packbits(_digit(s, tree.bit, 1).astype(np.uint8))
        channel.send(
            SECOND_T_HOLDER,
            bits ^ channel.draw_common(FIRST_T_HOLDER, bits.shape, BIT_RING),
            BIT_RING,
        )
    mask_shape = len(tree.output_digits), plane
    return channel.draw_common(SECOND_T_HOLDER, mask_shape, BIT_RING), channel.draw_common(
        FIRST_T_HOLDER, mask_shape, BIT_RING
    )


def _act_as_t_holder(
    channel: RoleChannel, t: RingArray, tree: CarryTree
) -> tuple[ByteArray, ByteArray]:
    first = channel.role == FIRST_T_HOLDER
    shape = 2, len(tree.digits), len(t)
    lookups = (
        channel.draw_common(S_HOLDER, shape, BIT_RING)
        if first
        else channel.receive(S_HOLDER, shape, BIT_RING)
    )
    planes = []
    for k, (start, length) in enumerate(tree.digits):
        digit = _digit(t, start, length).astype(np.uint8)
        planes.append(np.packbits(lookups[:, k] >> digit & np.uint8(1), axis=-1))
    generates, propagates = np.stack(planes, axis=1)
    for level, nodes in enumerate(tree.levels):
        propagating = [(i, j) for i, j, is_used in nodes if is_used]
        x = propagates[[*(i for i, _, _ in nodes), *(i for i, _ in propagating)]]
        y = np.concatenate(
            [generates[[j for _, j, _ in nodes]], propagates[[j for _, j in propagating]]]
        )
        products = _multiply(channel, x, y)
        generates[[i for i, _, _ in nodes]] ^= products[: len(nodes)]
        propagates[[i for i, _ in propagating]] = products[len(nodes) :]
        assert len(products) == tree.count_products(level)
    carries = generates[tree.output_digits]
    if tree.bit is not None:
        bits = np.packbits(_digit(t, tree.bit, 1).astype(np.uint8))
        if first:
            carries[-1] ^= bits ^ channel.draw_common(S_HOLDER, bits.shape, BIT_RING)
        else:
            carries[-1] ^= channel.receive(S_HOLDER, bits.shape, BIT_RING)
    masks = channel.draw_common(S_HOLDER, carries.shape, BIT_RING)
    opened = _open(channel, carries ^ masks)
    return (masks, opened) if first else (opened, masks)


def _multiply(channel: RoleChannel, x: ByteArray, y: ByteArray) -> ByteArray:
    """Return a share of the product of shared bits, by a product that the S holder dealt."""
    if channel.role == FIRST_T_HOLDER:
        a, b, product = channel.draw_common(S_HOLDER, (3, *x.shape), BIT_RING)
    else:
        a, b = channel.draw_common(S_HOLDER, (2, *x.shape), BIT_RING)
    d, e = _open(channel, np.stack([x ^ a, y ^ b]))
    if channel.role == SECOND_T_HOLDER:
        product = channel.receive(S_HOLDER, x.shape, BIT_RING)
    share: ByteArray = product ^ d & b ^ e & a
    return share ^ d & e if channel.role == FIRST_T_HOLDER else share


def _open(channel: RoleChannel, share: ByteArray) -> ByteArray:
    other = SECOND_T_HOLDER if channel.role == FIRST_T_HOLDER else FIRST_T_HOLDER
    channel.send(other, share, BIT_RING)
    return np.asarray(share ^ channel.receive(other, share.shape, BIT_RING))


def _digit(part: RingArray, start: int, length: int) -> RingArray:
    digit: RingArray = part >> part.dtype.type(start) & part.dtype.type((1 << length) - 1)
    return digit


@lru_cache(maxsize=8)
def _tables(length: int) -> ByteArray:
    """Return, for each digit of S, which digits of T generate a carry, and propagate one."""
    s, t = np.arange(1 << length)[:, None], np.arange(1 << length)
    top = (1 << length) - 1
    tables = np.stack([s + t > top, s + t == top])
    return np.packbits(tables, axis=-1, bitorder="little")[..., 0]


def _unpack_bits(planes: ByteArray, count: int) -> ByteArray:
    return np.unpackbits(planes, axis=-1, count=count)


class DealerPeers:
    """The other two dealers."""

    def __init__(self, dealer_index: int, names: Sequence[str], channel: Channel) -> None:
        assert len(names) == N_HOLDERS
        self.dealer_index = dealer_index
        """The index of this dealer."""
        self._names = tuple(names)
        self._channel = channel
        self._streams: dict[int, Prg] = {}

    def exchange_seeds(
        self, n_parties: int, participant_nonces: bytes
    ) -> tuple[str, list[list[bytes]]]:
        """Draw seeds together; return the randomness id, and parts of all participants' seeds.

        Participant p has three seeds; only dealers k and k - 1 know seed k. Dealer k draws its part
        and sends it only to dealer k - 1. Both send it to the participant, which compares them.
        For the stream that only two dealers have, each of the two draws a part of its seed.

        The `participant_nonces` that all dealers have received go into the randomness id and the
        seeds of these streams. With the nonces in the participants' seeds, dealers that were reset
        to an earlier state repeat nothing.

        Returns two lists of parts: of this dealer, and of the next dealer.
        """
        after, before = ((self.dealer_index + k) % N_HOLDERS for k in (1, 2))
        parts = [fresh_seed() for _ in range(n_parties)]
        local_id = fresh_seed()[:RANDOMNESS_ID_BYTES]
        pair = {other: fresh_seed() for other in (after, before)}
        self._send_bytes(after, local_id + pair[after])
        self._send_bytes(before, local_id + pair[before] + b"".join(parts))
        received = {
            before: self._receive_bytes(before, RANDOMNESS_ID_BYTES + SEED_BYTES),
            after: self._receive_bytes(after, RANDOMNESS_ID_BYTES + SEED_BYTES * (1 + n_parties)),
        }
        ids = {self.dealer_index: local_id}
        for other, content in received.items():
            ids[other] = content[:RANDOMNESS_ID_BYTES]
            peer_seed = content[RANDOMNESS_ID_BYTES : RANDOMNESS_ID_BYTES + SEED_BYTES]
            low, high = sorted([(self.dealer_index, pair[other]), (other, peer_seed)])
            self._streams[other] = Prg(
                derive_seed(low[1], f"with {high[1].hex()} {participant_nonces.hex()}")
            )
        rest = received[after][RANDOMNESS_ID_BYTES + SEED_BYTES :]
        next_parts = [rest[k : k + SEED_BYTES] for k in range(0, len(rest), SEED_BYTES)]
        id_content = b"".join(ids[k] for k in range(N_HOLDERS)) + participant_nonces
        return hashlib.sha256(id_content).digest()[:RANDOMNESS_ID_BYTES].hex(), [parts, next_parts]

    def get_pair_prg(self, other: int) -> Prg:
        """Return the stream that only this dealer and another one have."""
        return self._streams[other]

    def send(self, other: int, array: Array, tag: int = 0, stream: int = 0) -> None:
        """Send an array to another dealer."""
        self._channel.send(self._names[other], array, tag, stream)

    def receive(self, other: int, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        """Wait for the next array from another dealer on a stream."""
        return self._channel.receive(self._names[other], expected, tag, stream)

    def _send_bytes(self, other: int, content: bytes) -> None:
        self.send(other, np.frombuffer(content, dtype=np.uint8))

    def _receive_bytes(self, other: int, length: int) -> bytes:
        return self.receive(other, Expected(np.dtype(np.uint8), (length,))).tobytes()


class ReplicatedSender(LiveSender):
    """Sends the messages of one of three dealers to all participants."""

    def __init__(self, channel: Channel, parties: Sequence[str], dealer_peers: DealerPeers) -> None:
        super().__init__(channel, parties)
        self._dealer_peers = dealer_peers

    def distribute_seeds(self) -> tuple[str, list[list[bytes]]]:
        """Wait for every participant's nonce, and send it two parts of seeds."""
        nonces = [self._channel.receive(name, EXPECTED_NONCE).tobytes() for name in self._parties]
        randomness_id, parts = self._dealer_peers.exchange_seeds(len(nonces), b"".join(nonces))
        for number, (nonce, *participant_parts) in enumerate(zip(nonces, *parts, strict=True)):
            message = ReplicatedSeedMessage.for_participant(
                randomness_id, number, participant_parts, nonce
            )
            self.send(number, np.frombuffer(message.pack(), dtype=np.uint8), 0)
        return randomness_id, [
            [mix_nonce(part, nonce) for part, nonce in zip(dealer_parts, nonces, strict=True)]
            for dealer_parts in parts
        ]


class ReplicatedDealer(Dealer):
    """One of three dealers, with two parts of every mask.

    To derive a value, one of the dealers is the *S holder*: it has S, the sum of its two parts. The
    other two are *T holders*: both have T, the third part, and each has one of the two parts of S.
    The roles rotate from table to table, so that all links carry the same traffic. Tables that run
    in parallel have separate streams: while one waits for another dealer, the others compute.

    1. The S holder computes its terms, and sends them to the second T holder, less a stream that it
       has with the first T holder. The stream is the first T holder's share.
    2. The first T holder computes its share of the value (`Correlation.compute_t_share`), and sends
       it to the second T holder, less its part of the participants' draws.
    3. The second T holder adds its own share, less the rest of the participants' draws. The result
       is the correction, which it sends to a participant.

    Every message to a dealer is masked by a stream, or by draws, that this dealer does not have.
    This also holds for the correction, so the second T holder can send it to the first one: a
    derived value that is used as a mask consists of its draws, in three parts, and of the
    correction, which both T holders add to T.
    """

    n_mask_parts = 2

    def __init__(
        self,
        n_parties: int,
        sender: CorrelationSender,
        dealer_peers: DealerPeers,
        network: NetworkModel | None = None,
    ) -> None:
        super().__init__(n_parties, sender, network)
        self._dealer_peers = dealer_peers
        self.randomness_id, seeds = sender.distribute_seeds()
        self.update_tag(self.randomness_id)
        shares, self._private_prgs = (
            [[Prg(derive_seed(seed, use)) for seed in part] for part in seeds]
            for use in ("shares", "private")
        )
        self._share_prgs = [SummedPrg(part) for part in shares]

    def uniform(self, shape: Shape, ring: Ring) -> ReplicatedElements:
        """Return our parts of a fresh uniform value."""
        place = self._next_place("uniform", shape, ring)
        return ReplicatedElements(*(self._draw_part(part, place, shape, ring) for part in range(2)))

    def small(self, sampler: Sampler, shape: Shape, ring: Ring) -> ReplicatedElements:
        """Return our parts of small numbers, which are small, too."""
        place = self._next_place(sampler.__name__, shape, ring)
        parts = (part.sample(sampler, place, shape, ring) for part in self._share_prgs)
        return ReplicatedElements(*(Elements(part, ring) for part in parts))

    def zero_mask(self, shape: Shape, ring: Ring) -> ReplicatedElements:
        """Return zeros in parts."""
        zeros = super().zero_mask(shape, ring)
        return ReplicatedElements(zeros, zeros)

    def private(self, shape: Shape, ring: Ring, owner: int) -> ReplicatedElements:
        """Return our parts of fresh uniform values that one participant knows."""
        place = self._next_place(f"private for {owner}", shape, ring)
        parts = (streams[owner].uniform(place, shape, ring) for streams in self._private_prgs)
        return ReplicatedElements(*(Elements(part, ring) for part in parts))

    def draw_persistent_mask(self, shape: Shape, ring: Ring, owner: int) -> ReplicatedElements:
        """Return our parts of the values of `persistent_mask`."""
        parts = self._persistent_mask_parts(shape, ring, owner)
        return ReplicatedElements(*(Elements(part, ring) for part in parts))

    def derive(
        self, correlation: Correlation, ring: Ring, *masks: Elements, as_mask: bool = False
    ) -> Elements:
        """Derive a value together, and distribute shares of it: see the class."""
        shapes = [mask.shape for mask in masks]
        shape = correlation.shape(*shapes)
        place = self._next_place("derived", shape, ring)
        recipient = self._draw_position.choose_correction_recipient(
            Payload.for_array(ring, shape).nbytes
        )
        channel, terms = _DealerRoleChannel(self), correlation.list_s_terms(ring, *shapes)
        parts = [_parts(mask) for mask in masks]
        if channel.role == S_HOLDER:
            s_terms = correlation.compute_s_terms(
                *(mask.ring.add(*p) for mask, p in zip(masks, parts, strict=True))
            )
            for k, ((r, size), array) in enumerate(zip(terms, s_terms, strict=True)):
                drawn = channel.draw_common(FIRST_T_HOLDER, size, r)
                channel.send(SECOND_T_HOLDER, correlation.subtract_drawn(k, r, array, drawn), r)
            if not as_mask:
                return Elements.unknown(shape, ring)
            return ReplicatedElements(
                *(self._draw_part(part, place, shape, ring) for part in range(2))
            )
        first = self._draw_part(0, place, shape, ring)
        if channel.role == FIRST_T_HOLDER:
            shared = [channel.draw_common(S_HOLDER, size, r) for r, size in terms]
            held = THolderInput(shared, [s for s, _ in parts], [t for _, t in parts], is_first=True)
            channel.send(
                SECOND_T_HOLDER, ring.subtract(correlation.compute_t_share(held), first.array), ring
            )
            if not as_mask:
                return Elements.unknown(shape, ring)
            correction = Elements(channel.receive(SECOND_T_HOLDER, shape, ring), ring)
            return ReplicatedElements(first, self._draw_part(1, place, shape, ring) + correction)
        shared = [channel.receive(S_HOLDER, size, r) for r, size in terms]
        held = THolderInput(shared, [s for _, s in parts], [t for t, _ in parts], is_first=False)
        share, second = (
            Elements(correlation.compute_t_share(held), ring),
            self._draw_part(1, place, shape, ring),
        )
        correction = (
            share + Elements(channel.receive(FIRST_T_HOLDER, shape, ring), ring) - first - second
        )
        message = Payload.for_array(ring, shape).encode([correction.array])
        self._deliver_in_order(partial(self._sender.send, recipient, message, self._tag.value))
        if not as_mask:
            return Elements.unknown(shape, ring)
        channel.send(FIRST_T_HOLDER, correction.array, ring)
        return ReplicatedElements(first + correction, second)

    def derive_carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        """Compute carries together: see `compute_carries`."""
        wanted_places = tuple(sorted({*places} - {0}))
        zeros = self.zero_mask(mask.shape, Z1)
        carries: dict[int | None, ReplicatedElements] = {0: zeros, None: zeros}
        if wanted_places or bit:
            channel, (first, second) = _DealerRoleChannel(self), _parts(mask)
            part = (mask.ring.add(first, second), second, first)[channel.role]
            tree = get_carry_tree(wanted_places, bit)
            halves = compute_carries(channel, mask.ring.reduce_modulus(part).reshape(-1), tree)
            rows = [*wanted_places, *([None] if bit else [])]
            for k, place in enumerate(rows):
                masks = (Elements(planes[k].reshape(mask.shape), Z1) for planes in halves)
                carries[place] = ReplicatedElements(*masks)
        requested = [carries[place] for place in places]
        if not requested:
            return self.zero_mask((0, *mask.shape), Z1), carries[None]
        return requested[0].join(requested, np.stack), carries[None]

    def _draw_part(self, part: int, place: Place, shape: Shape, ring: Ring) -> Elements:
        """Return one of our parts of the sum of all participants' draws at a place."""
        return Elements(self._share_prgs[part].uniform(place, shape, ring), ring)


class _DealerRoleChannel(RoleChannel):
    """The other two dealers, by their roles in the current table."""

    def __init__(self, dealer: ReplicatedDealer) -> None:
        self._dealer = dealer
        self._dealer_peers = dealer._dealer_peers
        self._s_holder_index = dealer._find_dealer_in_role(S_HOLDER)
        self.role = (self._dealer_peers.dealer_index - self._s_holder_index) % N_HOLDERS

    def draw_common(self, role: int, shape: Shape, ring: Ring) -> RingArray:
        """Return uniform elements that only this dealer and another one have."""
        other, path = self._number(role), tuple(self._dealer.path)
        slot = self._dealer._slots[f"with {other}", path]
        self._dealer._slots[f"with {other}", path] += 1
        return self._dealer_peers.get_pair_prg(other).uniform(
            Place("pair", path, slot), shape, ring
        )

    def send(self, role: int, array: RingArray, ring: Ring) -> None:
        """Send elements to another dealer, and meter them."""
        message = Payload.for_array(ring, array.shape).encode([array])
        tag, stream = self._dealer._tag.value, self._dealer._thread.stream
        self._dealer_peers.send(self._number(role), message, tag, stream)
        traffic = self._dealer.meter.online[self._dealer.step_name]
        traffic.messages += 1
        traffic.sent += message.nbytes

    def receive(self, role: int, shape: Shape, ring: Ring) -> RingArray:
        """Wait for elements from another dealer."""
        payload, index = Payload.for_array(ring, shape), self._number(role)
        tag, stream = self._dealer._tag.value, self._dealer._thread.stream
        message = self._dealer_peers.receive(index, payload.expected, tag, stream)
        self._dealer.meter.online[self._dealer.step_name].received += message.nbytes
        (array,) = payload.decode(message)
        return array.reshape(shape)

    def _number(self, role: int) -> int:
        return (self._s_holder_index + role) % N_HOLDERS


def _parts(mask: Elements) -> tuple[RingArray, RingArray]:
    assert isinstance(mask, ReplicatedElements)
    first, second = mask.parts
    return first.array, second.array
