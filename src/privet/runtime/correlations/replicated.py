"""Three dealers with replicated seeds, none of which knows a mask.

Every mask is in three parts, of which each dealer has two (`arithmetic.replicated`): part k of a
mask is the sum of what the participants draw from their k-th seeds. To derive a value, one of the
dealers is the *client*, who has S, the sum of its two parts. The other two are *servers*; both have
T, the third part, and each of them one of the two that are S. The roles move on from table to
table, so that all links carry the same. Tables that are dealt at once are each on a stream of their
own: while one waits for another dealer, the others compute.

    client         makes something of S, and sends it to the second server, less a stream that it
                   has with the first, whose share that is
    first server   has the value in part (`Correlation.compute_t_share`); sends it to the second,
                   less its part of what the participants draw
    second server  adds its own part, less the rest of what they draw: the correction, which goes to
                   a participant

All that a dealer hears is hidden from it by a stream, or by draws, that it has not got. The
correction is, too, so it may be told: a value that is kept is what was drawn, in three parts, and
the correction, which both servers add to T.

The mask is cut into pieces of up to three bits. The client shares, of its piece of S and for every
piece that T may be, whether the two generate a carry and whether they pass one on: eight bits each.
Both servers look theirs up, and have bits of which each has a share. Pieces are joined in a tree: a
piece generates a carry if it does itself, or passes on what the one below it generates. These are
products of shared bits, for each of which the client deals two bits and their product.

At the end the servers open the carries, hidden by bits that the client has, too. So a carry is S ^
T again, with S at the client and T at the servers. Of one bit of the mask itself, S's and T's and
the carry into it, the same is done.

Participant p has three seeds. Seed k is known to dealers k and k - 1: dealer k draws its part, and
sends it to dealer k - 1 and to nobody else; both send it to the participant, who compares. Of two
dealers each draws a part of the seed of the stream that they have alone. What participants have
said goes into all of them: dealers that were set back to an earlier state repeat nothing.
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

_MAX_DIGIT_BITS = 3  # bits of a piece, so that what is looked up is a byte


ByteArray = npt.NDArray[np.uint8]


class RoleChannel(ABC):
    """What one of three has with the other two, by their roles."""

    role: int

    @abstractmethod
    def draw_common(self, role: int, shape: tuple[int, ...], ring: Ring) -> RingArray:
        """Return uniform elements that we have with another one, and nobody else has."""

    @abstractmethod
    def send(self, role: int, array: RingArray, ring: Ring) -> None:
        """Send elements to another one."""

    @abstractmethod
    def receive(self, role: int, shape: tuple[int, ...], ring: Ring) -> RingArray:
        """Wait for elements of another one."""


class CarryTree:
    """Which pieces are joined with which, one level after the other."""

    def __init__(self, wanted: Sequence[int], bit: int | None) -> None:
        self.bit = bit
        """Of which bit of the mask more than the carry is wanted."""
        places = sorted({*wanted, bit or 0} - {0})
        starts: list[int] = []
        for begin, end in zip([0, *places[:-1]], places, strict=True):
            starts += range(begin, end, _MAX_DIGIT_BITS)
        self.digits = list(zip(starts, np.diff([*starts, places[-1]]).tolist(), strict=True))
        ends = [start + length for start, length in self.digits]
        self.output_digits = [ends.index(place) for place in [*wanted, *([bit] if bit else [])]]
        """Of which pieces, with all below, the carries are wanted; that into the bit comes last."""
        self.levels: list[list[tuple[int, int, bool]]] = []
        """Pieces, those below them, and whether what is passed on matters."""
        alive = set(self.output_digits)
        for k in reversed(range((len(self.digits) - 1).bit_length())):
            upper = [i for i in sorted(alive) if i >> k & 1]
            self.levels.insert(0, [(i, (i >> k << k) - 1, i >> (k + 1) > 0) for i in upper])
            alive |= {lower for _, lower, _ in self.levels[0]}

    def count_products(self, level: int) -> int:
        """Return how many products of bits a level takes."""
        return sum(1 + passes for _, _, passes in self.levels[level])

    def count_bytes(self, count: int) -> int:
        """Return how many bytes finding the carries of so many masks takes, between all three."""
        plane = -(-count // 8)
        products = sum(self.count_products(level) for level in range(len(self.levels)))
        planes = 5 * products + 2 * len(self.output_digits) + (self.bit is not None)
        return 2 * len(self.digits) * count + planes * plane


@lru_cache(maxsize=256)
def get_carry_tree(places: tuple[int, ...], bit: int | None = None) -> CarryTree:
    """Return how carries into these bits, which rise from 1 on, and one bit are found."""
    return CarryTree(places, bit)


def compute_carries(
    channel: RoleChannel, part: RingArray, tree: CarryTree
) -> tuple[ByteArray, ByteArray]:
    """Return our two parts of the carries into some bits, (places, N) each, from S or T, (N,)."""
    find = _act_as_s_holder if channel.role == S_HOLDER else _as_server
    one, other = find(channel, part, tree)
    return _unpacked(one, len(part)), _unpacked(other, len(part))


def _act_as_s_holder(
    channel: RoleChannel, s: RingArray, tree: CarryTree
) -> tuple[ByteArray, ByteArray]:
    made = np.empty((2, len(tree.digits), len(s)), dtype=np.uint8)
    for k, (start, length) in enumerate(tree.digits):
        digit = _digit(s, start, length)
        for row, table in zip(made[:, k], _tables(length), strict=True):
            np.take(table, digit, out=row)
    made ^= channel.draw_common(FIRST_T_HOLDER, made.shape, BIT_RING)
    channel.send(SECOND_T_HOLDER, made, BIT_RING)
    plane = -(-len(s) // 8)
    for level in range(len(tree.levels)):
        count = tree.count_products(level)
        a, b, product = channel.draw_common(FIRST_T_HOLDER, (3, count, plane), BIT_RING)
        others = channel.draw_common(SECOND_T_HOLDER, (2, count, plane), BIT_RING)
        channel.send(SECOND_T_HOLDER, (a ^ others[0]) & (b ^ others[1]) ^ product, BIT_RING)
    if tree.bit is not None:
        bits = np.packbits(_digit(s, tree.bit, 1).astype(np.uint8))
        channel.send(
            SECOND_T_HOLDER,
            bits ^ channel.draw_common(FIRST_T_HOLDER, bits.shape, BIT_RING),
            BIT_RING,
        )
    hidden = len(tree.output_digits), plane
    return channel.draw_common(SECOND_T_HOLDER, hidden, BIT_RING), channel.draw_common(
        FIRST_T_HOLDER, hidden, BIT_RING
    )


def _as_server(channel: RoleChannel, t: RingArray, tree: CarryTree) -> tuple[ByteArray, ByteArray]:
    first = channel.role == FIRST_T_HOLDER
    shape = 2, len(tree.digits), len(t)
    shared = (
        channel.draw_common(S_HOLDER, shape, BIT_RING)
        if first
        else channel.receive(S_HOLDER, shape, BIT_RING)
    )
    planes = []
    for k, (start, length) in enumerate(tree.digits):
        digit = _digit(t, start, length).astype(np.uint8)
        planes.append(np.packbits(shared[:, k] >> digit & np.uint8(1), axis=-1))
    generates, passes = np.stack(planes, axis=1)
    for level, nodes in enumerate(tree.levels):
        further = [(i, j) for i, j, matters in nodes if matters]
        x = passes[[*(i for i, _, _ in nodes), *(i for i, _ in further)]]
        y = np.concatenate([generates[[j for _, j, _ in nodes]], passes[[j for _, j in further]]])
        found = _multiply(channel, x, y)
        generates[[i for i, _, _ in nodes]] ^= found[: len(nodes)]
        passes[[i for i, _ in further]] = found[len(nodes) :]
        assert len(found) == tree.count_products(level)
    wanted = generates[tree.output_digits]
    if tree.bit is not None:
        bits = np.packbits(_digit(t, tree.bit, 1).astype(np.uint8))
        if first:
            wanted[-1] ^= bits ^ channel.draw_common(S_HOLDER, bits.shape, BIT_RING)
        else:
            wanted[-1] ^= channel.receive(S_HOLDER, bits.shape, BIT_RING)
    hiding = channel.draw_common(S_HOLDER, wanted.shape, BIT_RING)
    opened = _open(channel, wanted ^ hiding)
    return (hiding, opened) if first else (opened, hiding)


def _multiply(channel: RoleChannel, x: ByteArray, y: ByteArray) -> ByteArray:
    """Return a share of the product of shared bits, by a product that the client dealt."""
    if channel.role == FIRST_T_HOLDER:
        a, b, product = channel.draw_common(S_HOLDER, (3, *x.shape), BIT_RING)
    else:
        a, b = channel.draw_common(S_HOLDER, (2, *x.shape), BIT_RING)
    d, e = _open(channel, np.stack([x ^ a, y ^ b]))
    if channel.role == SECOND_T_HOLDER:
        product = channel.receive(S_HOLDER, x.shape, BIT_RING)
    found: ByteArray = product ^ d & b ^ e & a
    return found ^ d & e if channel.role == FIRST_T_HOLDER else found


def _open(channel: RoleChannel, share: ByteArray) -> ByteArray:
    other = SECOND_T_HOLDER if channel.role == FIRST_T_HOLDER else FIRST_T_HOLDER
    channel.send(other, share, BIT_RING)
    return np.asarray(share ^ channel.receive(other, share.shape, BIT_RING))


def _digit(part: RingArray, start: int, length: int) -> RingArray:
    found: RingArray = part >> part.dtype.type(start) & part.dtype.type((1 << length) - 1)
    return found


@lru_cache(maxsize=8)
def _tables(length: int) -> ByteArray:
    """Return, for a piece of S, at which pieces of T they generate a carry, and pass one on."""
    s, t = np.arange(1 << length)[:, None], np.arange(1 << length)
    top = (1 << length) - 1
    rows = np.stack([s + t > top, s + t == top])
    return np.packbits(rows, axis=-1, bitorder="little")[..., 0]


def _unpacked(planes: ByteArray, count: int) -> ByteArray:
    return np.unpackbits(planes, axis=-1, count=count)


class DealerPeers:
    """The other two dealers."""

    def __init__(self, dealer_index: int, names: Sequence[str], channel: Channel) -> None:
        assert len(names) == N_HOLDERS
        self.dealer_index = dealer_index
        """Which of the three we are."""
        self._names = tuple(names)
        self._channel = channel
        self._streams: dict[int, Prg] = {}

    def exchange_seeds(
        self, n_parties: int, participant_nonces: bytes
    ) -> tuple[str, list[list[bytes]]]:
        """Draw seeds together; return the dealing's name, and parts of all participants' seeds.

        Two lists of parts: ours, and those that the next dealer has drawn. What was
        `participant_nonces` to all dealers before goes into the name, and into the streams that two
        dealers have.
        """
        after, before = ((self.dealer_index + k) % N_HOLDERS for k in (1, 2))
        ours = [fresh_seed() for _ in range(n_parties)]
        name = fresh_seed()[:RANDOMNESS_ID_BYTES]
        pair = {other: fresh_seed() for other in (after, before)}
        self._send_bytes(after, name + pair[after])
        self._send_bytes(before, name + pair[before] + b"".join(ours))
        heard = {
            before: self._receive_bytes(before, RANDOMNESS_ID_BYTES + SEED_BYTES),
            after: self._receive_bytes(after, RANDOMNESS_ID_BYTES + SEED_BYTES * (1 + n_parties)),
        }
        names = {self.dealer_index: name}
        for other, content in heard.items():
            names[other] = content[:RANDOMNESS_ID_BYTES]
            theirs = content[RANDOMNESS_ID_BYTES : RANDOMNESS_ID_BYTES + SEED_BYTES]
            low, high = sorted([(self.dealer_index, pair[other]), (other, theirs)])
            self._streams[other] = Prg(
                derive_seed(low[1], f"with {high[1].hex()} {participant_nonces.hex()}")
            )
        rest = heard[after][RANDOMNESS_ID_BYTES + SEED_BYTES :]
        others = [rest[k : k + SEED_BYTES] for k in range(0, len(rest), SEED_BYTES)]
        whole = b"".join(names[k] for k in range(N_HOLDERS)) + participant_nonces
        return hashlib.sha256(whole).digest()[:RANDOMNESS_ID_BYTES].hex(), [ours, others]

    def get_pair_prg(self, other: int) -> Prg:
        """Return the stream that we have with another one."""
        return self._streams[other]

    def send(self, other: int, array: Array, tag: int = 0, stream: int = 0) -> None:
        """Send an array to another one."""
        self._channel.send(self._names[other], array, tag, stream)

    def receive(self, other: int, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        """Wait for the next array of another one on a stream."""
        return self._channel.receive(self._names[other], expected, tag, stream)

    def _send_bytes(self, other: int, content: bytes) -> None:
        self.send(other, np.frombuffer(content, dtype=np.uint8))

    def _receive_bytes(self, other: int, length: int) -> bytes:
        return self.receive(other, Expected(np.dtype(np.uint8), (length,))).tobytes()


class ReplicatedSender(LiveSender):
    """The streams of one of three dealers to all participants."""

    def __init__(self, channel: Channel, parties: Sequence[str], dealer_peers: DealerPeers) -> None:
        super().__init__(channel, parties)
        self._dealer_peers = dealer_peers

    def distribute_seeds(self) -> tuple[str, list[list[bytes]]]:
        """Wait for every participant's nonce, and send it two parts of seeds."""
        nonces = [self._channel.receive(name, EXPECTED_NONCE).tobytes() for name in self._parties]
        dealing, parts = self._dealer_peers.exchange_seeds(len(nonces), b"".join(nonces))
        for number, (nonce, *theirs) in enumerate(zip(nonces, *parts, strict=True)):
            start = ReplicatedSeedMessage.for_participant(dealing, number, theirs, nonce)
            self.send(number, np.frombuffer(start.pack(), dtype=np.uint8), 0)
        return dealing, [
            [mix_nonce(part, nonce) for part, nonce in zip(each, nonces, strict=True)]
            for each in parts
        ]


class ReplicatedDealer(Dealer):
    """Has two parts of every mask."""

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
        none = super().zero_mask(shape, ring)
        return ReplicatedElements(none, none)

    def private(self, shape: Shape, ring: Ring, owner: int) -> ReplicatedElements:
        """Return our parts of fresh uniform values that one participant knows."""
        place = self._next_place(f"private for {owner}", shape, ring)
        parts = (streams[owner].uniform(place, shape, ring) for streams in self._private_prgs)
        return ReplicatedElements(*(Elements(part, ring) for part in parts))

    def draw_persistent_mask(self, shape: Shape, ring: Ring, owner: int) -> ReplicatedElements:
        """Return our parts of what lasts."""
        parts = self._persistent_mask_parts(shape, ring, owner)
        return ReplicatedElements(*(Elements(part, ring) for part in parts))

    def derive(
        self, correlation: Correlation, ring: Ring, *masks: Elements, as_mask: bool = False
    ) -> Elements:
        """Do our part in giving the participants shares of a value."""
        shapes = [mask.shape for mask in masks]
        shape = correlation.shape(*shapes)
        place = self._next_place("derived", shape, ring)
        turn = self._draw_position.choose_correction_recipient(
            Payload.for_array(ring, shape).nbytes
        )
        talk, outline = _DealerRoleChannel(self), correlation.list_s_terms(ring, *shapes)
        parts = [_parts(mask) for mask in masks]
        if talk.role == S_HOLDER:
            made = correlation.compute_s_terms(
                *(mask.ring.add(*p) for mask, p in zip(masks, parts, strict=True))
            )
            for k, ((of, size), array) in enumerate(zip(outline, made, strict=True)):
                first = talk.draw_common(FIRST_T_HOLDER, size, of)
                talk.send(SECOND_T_HOLDER, correlation.subtract_drawn(k, of, array, first), of)
            if not as_mask:
                return Elements.unknown(shape, ring)
            return ReplicatedElements(
                *(self._draw_part(part, place, shape, ring) for part in range(2))
            )
        ours = self._draw_part(0, place, shape, ring)
        if talk.role == FIRST_T_HOLDER:
            shared = [talk.draw_common(S_HOLDER, size, of) for of, size in outline]
            half = THolderInput(shared, [s for s, _ in parts], [t for _, t in parts], is_first=True)
            talk.send(
                SECOND_T_HOLDER, ring.subtract(correlation.compute_t_share(half), ours.array), ring
            )
            if not as_mask:
                return Elements.unknown(shape, ring)
            correction = Elements(talk.receive(SECOND_T_HOLDER, shape, ring), ring)
            return ReplicatedElements(ours, self._draw_part(1, place, shape, ring) + correction)
        shared = [talk.receive(S_HOLDER, size, of) for of, size in outline]
        half = THolderInput(shared, [s for _, s in parts], [t for t, _ in parts], is_first=False)
        value, theirs = (
            Elements(correlation.compute_t_share(half), ring),
            self._draw_part(1, place, shape, ring),
        )
        correction = (
            value + Elements(talk.receive(FIRST_T_HOLDER, shape, ring), ring) - ours - theirs
        )
        message = Payload.for_array(ring, shape).encode([correction.array])
        self._deliver_in_order(partial(self._sender.send, turn, message, self._tag.value))
        if not as_mask:
            return Elements.unknown(shape, ring)
        talk.send(FIRST_T_HOLDER, correction.array, ring)
        return ReplicatedElements(ours + correction, theirs)

    def derive_carries(
        self, mask: Elements, places: Sequence[int], bit: int | None = None
    ) -> tuple[Elements, Elements]:
        """Find carries together (`runtime.correlations.replicated`)."""
        wanted = tuple(sorted({*places} - {0}))
        none = self.zero_mask(mask.shape, Z1)
        found: dict[int | None, ReplicatedElements] = {0: none, None: none}
        if wanted or bit:
            talk, (one, other) = _DealerRoleChannel(self), _parts(mask)
            part = (mask.ring.add(one, other), other, one)[talk.role]
            how = get_carry_tree(wanted, bit)
            both = compute_carries(talk, mask.ring.reduce_modulus(part).reshape(-1), how)
            rows = [*wanted, *([None] if bit else [])]
            for k, place in enumerate(rows):
                halves = (Elements(planes[k].reshape(mask.shape), Z1) for planes in both)
                found[place] = ReplicatedElements(*halves)
        every = [found[place] for place in places]
        if not every:
            return self.zero_mask((0, *mask.shape), Z1), found[None]
        return every[0].join(every, np.stack), found[None]

    def _draw_part(self, part: int, place: Place, shape: Shape, ring: Ring) -> Elements:
        """Return one of our parts of what all participants draw at a place."""
        return Elements(self._share_prgs[part].uniform(place, shape, ring), ring)


class _DealerRoleChannel(RoleChannel):
    """The other two dealers by the roles that they have now."""

    def __init__(self, dealer: ReplicatedDealer) -> None:
        self._dealer = dealer
        self._dealer_peers = dealer._dealer_peers
        self._s_holder_index = dealer._find_dealer_in_role(S_HOLDER)
        self.role = (self._dealer_peers.dealer_index - self._s_holder_index) % N_HOLDERS

    def draw_common(self, role: int, shape: Shape, ring: Ring) -> RingArray:
        """Return uniform elements that we have with another one."""
        other, path = self._number(role), tuple(self._dealer.path)
        slot = self._dealer._slots[f"with {other}", path]
        self._dealer._slots[f"with {other}", path] += 1
        return self._dealer_peers.get_pair_prg(other).uniform(
            Place("pair", path, slot), shape, ring
        )

    def send(self, role: int, array: RingArray, ring: Ring) -> None:
        """Send elements to another one, and meter them."""
        message = Payload.for_array(ring, array.shape).encode([array])
        tag, stream = self._dealer._tag.value, self._dealer._thread.stream
        self._dealer_peers.send(self._number(role), message, tag, stream)
        traffic = self._dealer.meter.online[self._dealer.step_name]
        traffic.messages += 1
        traffic.sent += message.nbytes

    def receive(self, role: int, shape: Shape, ring: Ring) -> RingArray:
        """Wait for elements of another one."""
        letter, number = Payload.for_array(ring, shape), self._number(role)
        tag, stream = self._dealer._tag.value, self._dealer._thread.stream
        message = self._dealer_peers.receive(number, letter.expected, tag, stream)
        self._dealer.meter.online[self._dealer.step_name].received += message.nbytes
        (array,) = letter.decode(message)
        return array.reshape(shape)

    def _number(self, role: int) -> int:
        return (self._s_holder_index + role) % N_HOLDERS


def _parts(mask: Elements) -> tuple[RingArray, RingArray]:
    assert isinstance(mask, ReplicatedElements)
    first, second = mask.parts
    return first.array, second.array
