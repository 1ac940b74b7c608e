"""Three dealers with replicated seeds, none of which knows a mask.

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

from privet.arithmetic.prg import SEED_BYTES, Place, Prg, Sampler, Sum, derive_seed, fresh_seed
from privet.arithmetic.rings import BITS, Z1, Ring, RingArray
from privet.arithmetic.shares import HOLDERS, Elements, Replicated
from privet.runtime.correlations.correlation import Half, Recipe
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.correlations.seeds import NAME_BYTES, StartOfThree, join_nonce
from privet.runtime.correlations.source import CLIENT, FIRST, NONCE, SECOND, LiveSink, Sink
from privet.runtime.opening import Letter, Link
from privet.runtime.runtime import Shape
from privet.transport.channel import Array, Channel, Expected

_LONGEST = 3  # bits of a piece, so that what is looked up is a byte


Bytes = npt.NDArray[np.uint8]


class Talk(ABC):
    """What one of three has with the other two, by their roles."""

    role: int

    @abstractmethod
    def drawn(self, role: int, shape: tuple[int, ...], ring: Ring) -> RingArray:
        """Return uniform elements that we have with another one, and nobody else has."""

    @abstractmethod
    def send(self, role: int, array: RingArray, ring: Ring) -> None:
        """Send elements to another one."""

    @abstractmethod
    def hear(self, role: int, shape: tuple[int, ...], ring: Ring) -> RingArray:
        """Wait for elements of another one."""


class Tree:
    """Which pieces are joined with which, one level after the other."""

    def __init__(self, wanted: Sequence[int], bit: int | None) -> None:
        self.bit = bit
        """Of which bit of the mask more than the carry is wanted."""
        places = sorted({*wanted, bit or 0} - {0})
        starts: list[int] = []
        for begin, end in zip([0, *places[:-1]], places, strict=True):
            starts += range(begin, end, _LONGEST)
        self.pieces = list(zip(starts, np.diff([*starts, places[-1]]).tolist(), strict=True))
        ends = [start + length for start, length in self.pieces]
        self.outputs = [ends.index(place) for place in [*wanted, *([bit] if bit else [])]]
        """Of which pieces, with all below, the carries are wanted; that into the bit comes last."""
        self.levels: list[list[tuple[int, int, bool]]] = []
        """Pieces, those below them, and whether what is passed on matters."""
        alive = set(self.outputs)
        for k in reversed(range((len(self.pieces) - 1).bit_length())):
            upper = [i for i in sorted(alive) if i >> k & 1]
            self.levels.insert(0, [(i, (i >> k << k) - 1, i >> (k + 1) > 0) for i in upper])
            alive |= {lower for _, lower, _ in self.levels[0]}

    def products(self, level: int) -> int:
        """Return how many products of bits a level takes."""
        return sum(1 + passes for _, _, passes in self.levels[level])

    def nbytes(self, count: int) -> int:
        """Return how many bytes finding the carries of so many masks takes, between all three."""
        plane = -(-count // 8)
        products = sum(self.products(level) for level in range(len(self.levels)))
        planes = 5 * products + 2 * len(self.outputs) + (self.bit is not None)
        return 2 * len(self.pieces) * count + planes * plane


@lru_cache(maxsize=256)
def tree(places: tuple[int, ...], bit: int | None = None) -> Tree:
    """Return how carries into these bits, which rise from 1 on, and one bit are found."""
    return Tree(places, bit)


def find_carries(talk: Talk, part: RingArray, how: Tree) -> tuple[Bytes, Bytes]:
    """Return our two parts of the carries into some bits, (places, N) each, from S or T, (N,)."""
    find = _as_client if talk.role == CLIENT else _as_server
    one, other = find(talk, part, how)
    return _unpacked(one, len(part)), _unpacked(other, len(part))


def _as_client(talk: Talk, s: RingArray, how: Tree) -> tuple[Bytes, Bytes]:
    made = np.empty((2, len(how.pieces), len(s)), dtype=np.uint8)
    for k, (start, length) in enumerate(how.pieces):
        digit = _digit(s, start, length)
        for row, table in zip(made[:, k], _tables(length), strict=True):
            np.take(table, digit, out=row)
    made ^= talk.drawn(FIRST, made.shape, BITS)
    talk.send(SECOND, made, BITS)
    plane = -(-len(s) // 8)
    for level in range(len(how.levels)):
        count = how.products(level)
        a, b, product = talk.drawn(FIRST, (3, count, plane), BITS)
        others = talk.drawn(SECOND, (2, count, plane), BITS)
        talk.send(SECOND, (a ^ others[0]) & (b ^ others[1]) ^ product, BITS)
    if how.bit is not None:
        bits = np.packbits(_digit(s, how.bit, 1).astype(np.uint8))
        talk.send(SECOND, bits ^ talk.drawn(FIRST, bits.shape, BITS), BITS)
    hidden = len(how.outputs), plane
    return talk.drawn(SECOND, hidden, BITS), talk.drawn(FIRST, hidden, BITS)


def _as_server(talk: Talk, t: RingArray, how: Tree) -> tuple[Bytes, Bytes]:
    first = talk.role == FIRST
    shape = 2, len(how.pieces), len(t)
    shared = talk.drawn(CLIENT, shape, BITS) if first else talk.hear(CLIENT, shape, BITS)
    planes = []
    for k, (start, length) in enumerate(how.pieces):
        digit = _digit(t, start, length).astype(np.uint8)
        planes.append(np.packbits(shared[:, k] >> digit & np.uint8(1), axis=-1))
    generates, passes = np.stack(planes, axis=1)
    for level, nodes in enumerate(how.levels):
        further = [(i, j) for i, j, matters in nodes if matters]
        x = passes[[*(i for i, _, _ in nodes), *(i for i, _ in further)]]
        y = np.concatenate([generates[[j for _, j, _ in nodes]], passes[[j for _, j in further]]])
        found = _multiply(talk, x, y)
        generates[[i for i, _, _ in nodes]] ^= found[: len(nodes)]
        passes[[i for i, _ in further]] = found[len(nodes) :]
        assert len(found) == how.products(level)
    wanted = generates[how.outputs]
    if how.bit is not None:
        bits = np.packbits(_digit(t, how.bit, 1).astype(np.uint8))
        if first:
            wanted[-1] ^= bits ^ talk.drawn(CLIENT, bits.shape, BITS)
        else:
            wanted[-1] ^= talk.hear(CLIENT, bits.shape, BITS)
    hiding = talk.drawn(CLIENT, wanted.shape, BITS)
    opened = _open(talk, wanted ^ hiding)
    return (hiding, opened) if first else (opened, hiding)


def _multiply(talk: Talk, x: Bytes, y: Bytes) -> Bytes:
    """Return a share of the product of shared bits, by a product that the client dealt."""
    if talk.role == FIRST:
        a, b, product = talk.drawn(CLIENT, (3, *x.shape), BITS)
    else:
        a, b = talk.drawn(CLIENT, (2, *x.shape), BITS)
    d, e = _open(talk, np.stack([x ^ a, y ^ b]))
    if talk.role == SECOND:
        product = talk.hear(CLIENT, x.shape, BITS)
    found: Bytes = product ^ d & b ^ e & a
    return found ^ d & e if talk.role == FIRST else found


def _open(talk: Talk, share: Bytes) -> Bytes:
    other = SECOND if talk.role == FIRST else FIRST
    talk.send(other, share, BITS)
    return np.asarray(share ^ talk.hear(other, share.shape, BITS))


def _digit(part: RingArray, start: int, length: int) -> RingArray:
    found: RingArray = part >> part.dtype.type(start) & part.dtype.type((1 << length) - 1)
    return found


@lru_cache(maxsize=8)
def _tables(length: int) -> Bytes:
    """Return, for a piece of S, at which pieces of T they generate a carry, and pass one on."""
    s, t = np.arange(1 << length)[:, None], np.arange(1 << length)
    top = (1 << length) - 1
    rows = np.stack([s + t > top, s + t == top])
    return np.packbits(rows, axis=-1, bitorder="little")[..., 0]


def _unpacked(planes: Bytes, count: int) -> Bytes:
    return np.unpackbits(planes, axis=-1, count=count)


class Fellows:
    """The other two dealers."""

    def __init__(self, number: int, names: Sequence[str], channel: Channel) -> None:
        assert len(names) == HOLDERS
        self.number = number
        """Which of the three we are."""
        self._names = tuple(names)
        self._channel = channel
        self._streams: dict[int, Prg] = {}

    def meet(self, n_parties: int, said: bytes) -> tuple[str, list[list[bytes]]]:
        """Draw seeds together; return the dealing's name, and parts of all participants' seeds.

        Two lists of parts: ours, and those that the next dealer has drawn. What was `said` to all
        dealers before goes into the name, and into the streams that two dealers have.
        """
        after, before = ((self.number + k) % HOLDERS for k in (1, 2))
        ours = [fresh_seed() for _ in range(n_parties)]
        name = fresh_seed()[:NAME_BYTES]
        pair = {other: fresh_seed() for other in (after, before)}
        self._tell(after, name + pair[after])
        self._tell(before, name + pair[before] + b"".join(ours))
        heard = {
            before: self._hear(before, NAME_BYTES + SEED_BYTES),
            after: self._hear(after, NAME_BYTES + SEED_BYTES * (1 + n_parties)),
        }
        names = {self.number: name}
        for other, content in heard.items():
            names[other] = content[:NAME_BYTES]
            theirs = content[NAME_BYTES : NAME_BYTES + SEED_BYTES]
            low, high = sorted([(self.number, pair[other]), (other, theirs)])
            self._streams[other] = Prg(derive_seed(low[1], f"with {high[1].hex()} {said.hex()}"))
        rest = heard[after][NAME_BYTES + SEED_BYTES :]
        others = [rest[k : k + SEED_BYTES] for k in range(0, len(rest), SEED_BYTES)]
        whole = b"".join(names[k] for k in range(HOLDERS)) + said
        return hashlib.sha256(whole).digest()[:NAME_BYTES].hex(), [ours, others]

    def stream(self, other: int) -> Prg:
        """Return the stream that we have with another one."""
        return self._streams[other]

    def send(self, other: int, array: Array, tag: int = 0, stream: int = 0) -> None:
        """Send an array to another one."""
        self._channel.send(self._names[other], array, tag, stream)

    def receive(self, other: int, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        """Wait for the next array of another one on a stream."""
        return self._channel.receive(self._names[other], expected, tag, stream)

    def _tell(self, other: int, content: bytes) -> None:
        self.send(other, np.frombuffer(content, dtype=np.uint8))

    def _hear(self, other: int, length: int) -> bytes:
        return self.receive(other, Expected(np.dtype(np.uint8), (length,))).tobytes()


class SinkOfThree(LiveSink):
    """The streams of one of three dealers to all participants."""

    def __init__(self, channel: Channel, parties: Sequence[str], fellows: Fellows) -> None:
        super().__init__(channel, parties)
        self._fellows = fellows

    def start(self) -> tuple[str, list[list[bytes]]]:
        """Wait for every participant's nonce, and send it two parts of seeds."""
        nonces = [self._channel.receive(name, NONCE).tobytes() for name in self._parties]
        dealing, parts = self._fellows.meet(len(nonces), b"".join(nonces))
        for number, (nonce, *theirs) in enumerate(zip(nonces, *parts, strict=True)):
            start = StartOfThree.of(dealing, number, theirs, nonce)
            self.send(number, np.frombuffer(start.pack(), dtype=np.uint8), 0)
        return dealing, [
            [join_nonce(part, nonce) for part, nonce in zip(each, nonces, strict=True)]
            for each in parts
        ]


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
        """Find carries together (`runtime.correlations.replicated`)."""
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
