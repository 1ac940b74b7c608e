"""Sessions whose randomness the test knows, and can choose: what `explain` works on.

A session is a program run by its participants and the dealer, in threads, with everything written
down: what every participant drew, sent to be opened, received from the others and from the dealer.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privet.arithmetic.prg import SEED_BYTES, Place, Prg, SummedPrg
from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import PublicShare, Share
from privet.errors import PeerError
from privet.runtime.correlations.dealer import SingleDealer
from privet.runtime.correlations.source import CorrelationSender, LiveReceiver, LiveSender
from privet.runtime.opening import Payload
from privet.runtime.party import Party
from privet.runtime.run import DEALER_NAME, Program
from privet.runtime.runtime import ArgmaxCandidates, ArgmaxResult, Runtime
from privet.transport.channel import Array, Channel, Expected
from privet.transport.memory import create_memory_channels
from tests.runtime.harness import Received, RecordingChannel


def key_stream(seed: bytes, place: Place, count: int) -> npt.NDArray[np.uint8]:
    """Return what AES gives for a place, worked out anew: what a draw must consist of."""
    name = f"{place.kind}|{place.path}|{place.slot}".encode()
    digest = hashlib.blake2b(name, digest_size=12, person=b"privet place").digest()
    key = hashlib.blake2b(seed, digest_size=16, person=b"privet prg").digest()
    stream = Cipher(algorithms.AES128(key), modes.CTR(digest + bytes(4))).encryptor()
    return np.frombuffer(stream.update(bytes(count)), dtype=np.uint8)


class Stream(Prg):
    """A stream that writes down what is drawn from it, or gives what it is told to."""

    def __init__(self, seed: bytes, script: Sequence[RingArray] | None = None) -> None:
        super().__init__(seed)
        self.drawn: list[RingArray] = []
        self.places: list[Place] = []
        self._script = script

    def uniform(
        self, place: Place, shape: tuple[int, ...], ring: Ring, rows: slice | None = None
    ) -> RingArray:
        assert rows is None, "what is drawn in part must be joined before it is moved"
        drawn = super().uniform(place, shape, ring)
        expected = key_stream(self.seed, place, drawn.nbytes).view(ring.dtype).reshape(shape)
        assert np.array_equal(drawn, expected), f"a draw at {place} is not the key stream"
        return self._note(place, drawn)

    def permutation(self, place: Place, length: int) -> npt.NDArray[np.intp]:
        drawn = super().permutation(place, length)
        keys = key_stream(self.seed, place, 8 * length).view(np.uint64)
        assert np.array_equal(drawn, np.argsort(keys, kind="stable")), "a permutation of few keys"
        return self._note(place, drawn)

    def _note(self, place: Place, value: RingArray) -> RingArray:
        self.places.append(place)
        if self._script is not None:
            told = self._script[len(self.drawn)]
            assert told.shape == value.shape, "the script is for another program"
            value = told.astype(value.dtype)
        self.drawn.append(value.copy())
        return value


@dataclass(frozen=True)
class Draw:
    """What a participant got when it asked for something random, or for a share of it."""

    step: str
    ring: Ring | None
    """None: a permutation."""
    part: RingArray
    drawn: RingArray | None
    """What its stream gave for it; None if nothing was drawn."""


class Randomness:
    """All that is random in a session, from its name; `scripts` replace streams by their seeds."""

    def __init__(self, name: str, scripts: Mapping[bytes, Sequence[RingArray]] | None = None):
        self.name = name
        self.scripts = scripts or {}
        self._counts: dict[str, int] = defaultdict(int)

    def fresh_seed(self) -> bytes:
        who = threading.current_thread().name
        self._counts[who] += 1
        return hashlib.sha256(f"{self.name} {who} {self._counts[who]}".encode()).digest()

    def stream(self, seed: bytes) -> Stream:
        return Stream(seed, self.scripts.get(seed))

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for module in ("party", "correlations.source", "correlations.seeds"):
                place = f"privet.runtime.{module}.fresh_seed"
                stack.enter_context(mock.patch(place, self.fresh_seed))
            for module in ("party", "correlations.source", "correlations.dealer", "runtime"):
                stack.enter_context(mock.patch(f"privet.runtime.{module}.Prg", self.stream))
            yield


@dataclass(frozen=True)
class Shown:
    """What a participant put into one message of its own: before masks of others come to it."""

    step: str
    kind: str
    """open, publish, or note: a masked permutation."""
    parts: list[RingArray]
    rings: list[Ring] | None


class Watched(Party):
    """A participant that writes down what it shows to the others under masks."""

    def __init__(self, *arguments: Any) -> None:
        self.shown: list[Shown] = []
        self.draws: dict[str, list[Draw]] = {"shared": [], "private": [], "lasting": []}
        self.revealed: list[tuple[str, RingArray]] = []
        """Our parts of what was revealed to anybody else, and at which step."""
        self.announced: list[int] = []
        """Numbers that all heard, and the dealer."""
        self._inside = 0
        super().__init__(*arguments)

    def _remember(
        self, name: str, ring: Ring | None, ask: Callable[[], RingArray], *, exact: bool = True
    ) -> RingArray:
        stream = self.stream(name)
        before = len(stream.drawn) if isinstance(stream, Stream) else 0
        part = ask()
        new = stream.drawn[before:] if isinstance(stream, Stream) else []
        drawn = new[0] if len(new) == 1 else None
        if exact and isinstance(stream, Stream):
            fresh = drawn is not None and np.array_equal(part, drawn)
            assert fresh, f"at step {self.step_name!r}, a mask is not what was drawn for it"
        self.draws[name].append(Draw(self.step_name, ring, part.copy(), drawn))
        return part

    def uniform(self, shape: tuple[int, ...], ring: Ring) -> Share:
        ask = super().uniform
        return Share(self._remember("shared", ring, lambda: ask(shape, ring).part), ring)

    def derived(self, shape: tuple[int, ...], ring: Ring) -> Share:
        ask = super().derived
        part = self._remember("shared", ring, lambda: ask(shape, ring).part, exact=False)
        return Share(part, ring)

    def private(self, shape: tuple[int, ...], ring: Ring, owner: int) -> RingArray | None:
        found = super().private
        if owner != self.index:
            return found(shape, ring, owner)
        return self._remember("private", ring, lambda: _sure(found(shape, ring, owner)))

    def persistent_mask(self, shape: tuple[int, ...], ring: Ring, owner: int) -> RingArray | None:
        found = super().persistent_mask
        if owner != self.index:
            return found(shape, ring, owner)
        return self._remember("lasting", ring, lambda: _sure(found(shape, ring, owner)))

    @property
    def keeps(self) -> bool:
        """Whether we have masks that last."""
        return self.index in self._persistent_prgs

    def stream(self, name: str) -> Prg | None:
        """Return the stream `shared`, `private`, `own` or `lasting`, if there is one."""
        if name == "lasting":
            return next(iter(self._persistent_prgs.get(self.index, [])), None)
        names = {"shared": "_share_prg", "private": "_private_prg", "own": "_local_prg"}
        found: Prg | SummedPrg = getattr(self, names.get(name, f"_{name}"))
        if isinstance(found, SummedPrg):
            (found,) = found.prgs
        return found

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp] | None:
        found = super().permutation
        if owner != self.index:
            return found(length, owner)
        return self._remember("private", None, lambda: _sure(found(length, owner)))

    def _show_parts(self, kind: str, parts: Sequence[Array], rings: Sequence[Ring] | None) -> None:
        if not self._inside:
            copies = [np.array(part) for part in parts]
            self.shown.append(
                Shown(self.step_name, kind, copies, None if rings is None else list(rings))
            )

    @contextlib.contextmanager
    def _once(self) -> Iterator[None]:
        """Openings of several values go through one of them all."""
        self._inside += 1
        yield
        self._inside -= 1

    def open(self, *masked: Share) -> tuple[RingArray, ...]:
        hidden = [x for x in masked if not isinstance(x, PublicShare)]
        self._show_parts("open", [x.part for x in hidden], [x.ring for x in hidden])
        told = [x.ring.reduce_modulus(x.part).copy() for x in masked if isinstance(x, PublicShare)]
        self.revealed += [(self.step_name, part) for part in told]
        with self._once():
            return super().open(*masked)

    def open_with_wraps(self, masked: Share) -> tuple[RingArray, RingArray]:
        self._show_parts("open", [masked.part], [masked.ring])
        with self._once():
            return super().open_with_wraps(masked)

    def open_to_owners(
        self,
        masked: Share,
        owners: Sequence[int],
        notes: Sequence[RingArray | None],
        note: tuple[Ring, int],
    ) -> tuple[dict[int, RingArray], list[RingArray]]:
        self._show_parts("open", [masked.part], [masked.ring])
        own = [content for content in notes if content is not None]
        self._show_parts("note", own, None)
        with self._once():
            return super().open_to_owners(masked, owners, notes, note)

    def reveal(self, value: Share, recipients: Sequence[int], disclosure: str) -> RingArray | None:
        if list(recipients) != [self.index]:
            self.revealed.append((self.step_name, value.part.copy()))
        return super().reveal(value, recipients, disclosure)

    def announce(self, number: int | None, owner: int, disclosure: str) -> int:
        heard = super().announce(number, owner, disclosure)
        self.announced.append(heard)
        return heard

    def reveal_argmax(self, finalists: Share, candidates: ArgmaxCandidates) -> ArgmaxResult:
        kept = [row for row in candidates.list_rows(self.index) if row]
        sent = finalists.ring.reduce_modulus(np.delete(finalists.part, kept, axis=0))
        self.revealed.append((self.step_name, sent))
        return super().reveal_argmax(finalists, candidates)

    def publish(
        self, arrays: Sequence[RingArray], shapes: Sequence[Sequence[tuple[int, ...]]], ring: Ring
    ) -> Iterator[tuple[int, int, RingArray]]:
        self._show_parts("publish", arrays, [ring] * len(arrays))
        return super().publish(arrays, shapes, ring)


def _sure(value: RingArray | None) -> RingArray:
    assert value is not None
    return value


class WatchedChannel(RecordingChannel):
    """A channel that also keeps what goes to the dealer."""

    def __init__(self, inner: Channel) -> None:
        super().__init__(inner)
        self.to_dealer: list[Array] = []

    def send(self, peer: str, array: Array, tag: int = 0, stream: int = 0) -> None:
        if peer == DEALER_NAME:
            self.to_dealer.append(array.copy())
        super().send(peer, array, tag, stream)


class OneByOne(SingleDealer):
    """A dealer that deals one table after the other, so that its draws have an order."""

    map_tables = Runtime.map_tables


class RecordingSink(CorrelationSender):
    """The dealer's way to the participants, with everything written down."""

    def __init__(self, inner: CorrelationSender) -> None:
        self._inner = inner
        self.sent: list[tuple[int, RingArray]] = []

    def distribute_seeds(self) -> tuple[str, list[bytes]]:
        return self._inner.distribute_seeds()

    def send(self, party: int, array: RingArray, tag: int) -> None:
        self.sent.append((party, array.copy()))
        self._inner.send(party, array, tag)

    def receive_announcement(self, party: int, tag: int) -> int | None:
        return self._inner.receive_announcement(party, tag)

    def close(self, tag: int) -> None:
        self._inner.close(tag)


@dataclass
class Seen:
    """One participant's side of a session."""

    party: Watched | None = None
    result: Any = None
    opened: list[tuple[str, Ring, RingArray]] = field(default_factory=list)
    """Everything that was opened to it, with its step and ring."""
    received: list[Received] = field(default_factory=list)
    from_dealer: list[Received] = field(default_factory=list)
    to_dealer: list[Array] = field(default_factory=list)

    @property
    def runtime(self) -> Watched:
        assert self.party is not None
        return self.party

    letters: list[tuple[str, Ring, RingArray]] = field(default_factory=list)
    """Every vector that it read from a message, with its step and ring."""

    def stream(self, name: str) -> Stream:
        """Return what was drawn from `shared`, `private`, `own` or `lasting`."""
        found = self.runtime.stream(name)
        assert isinstance(found, Stream)
        return found


@dataclass
class Session:
    """What happened."""

    program: Program
    inputs: Sequence[Any]
    randomness: Randomness | None
    names: list[str]
    seen: list[Seen]
    dealt: list[tuple[int, RingArray]] = field(default_factory=list)
    """What the dealer sent, in order, and to whom, but for what everybody starts from."""


def perform(program: Program, inputs: Sequence[Any], randomness: Randomness | None) -> Session:
    """Run a program with the randomness that is given, or its own, and write everything down."""
    names = [f"party{index + 1}" for index in range(len(inputs))]
    channels = create_memory_channels([*names, DEALER_NAME], peer_timeout=60)
    session = Session(program, inputs, randomness, names, [Seen() for _ in names])

    def party(index: int) -> None:
        seen, channel = session.seen[index], WatchedChannel(channels[names[index]])
        with channel:
            runtime = Watched(index, names, channel, LiveReceiver(channel, [DEALER_NAME]))
            channel.inner.current_step = lambda: runtime.step_name
            seen.party = runtime
            runtime.on_open = lambda step, ring, value: seen.opened.append(
                (step, ring, value.copy())
            )
            seen.received, seen.from_dealer = channel.received, channel.corrections
            seen.to_dealer = channel.to_dealer
            seen.result = program(runtime, inputs[index])
            runtime.finish()

    def dealer() -> None:
        with channels[DEALER_NAME] as channel:
            sink = RecordingSink(LiveSender(channel, names))
            runtime = OneByOne(len(names), sink)
            session.dealt = sink.sent
            program(runtime, None)
            runtime.close()

    bodies: dict[str, Callable[[], None]] = {
        name: partial(party, index) for index, name in enumerate(names)
    }
    read = Payload.decode

    def reading(letter: Payload, message: Array) -> list[RingArray]:
        found = read(letter, message)
        seen = session.seen[names.index(threading.current_thread().name)]
        vectors = zip(letter.rings, found, strict=True)
        seen.letters += [(seen.runtime.step_name, ring, vector.copy()) for ring, vector in vectors]
        return found

    with (
        contextlib.nullcontext() if randomness is None else randomness.installed(),
        mock.patch.object(Payload, "decode", reading),
    ):
        run_threads({**bodies, DEALER_NAME: dealer})
    announced = 0
    for seen in session.seen:
        told = [(array.dtype.name, array.shape) for array in seen.to_dealer]
        words = told.count(("uint32", (1,)))
        assert told == [("uint8", (SEED_BYTES,)), *[("uint32", (1,))] * words], (
            "the dealer is told more than a nonce and what is announced"
        )
        announced += words
    assert announced == len(session.seen[0].runtime.announced)
    return session


def run_threads(bodies: Mapping[str, Callable[[], None]]) -> None:
    """Run functions side by side, and raise what failed first and did not only lose a peer."""
    failures: list[BaseException] = []

    def guard(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [
        threading.Thread(target=guard, args=(body,), name=name, daemon=True)
        for name, body in bodies.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in sorted(failures, key=lambda error: isinstance(error, PeerError)):
        raise failure


class ReplayChannel(Channel):
    """What one participant received in a session, again; what it sends goes nowhere."""

    def __init__(self, name: str, received: Sequence[Received]) -> None:
        super().__init__(name, peer_timeout=1)
        self._mail: dict[str, list[Array]] = defaultdict(list)
        for message in received:
            self._mail[message.peer].append(message.array)
        self.position: dict[str, int] = defaultdict(int)

    @property
    def peers(self) -> tuple[str, ...]:
        return tuple(self._mail)

    def send(self, peer: str, array: Array, tag: int = 0, stream: int = 0) -> None:
        pass

    def receive(self, peer: str, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        array = self._mail[peer][self.position[peer]]
        self.position[peer] += 1
        return array.copy()

    def has_pending(self, peer: str, stream: int = 0) -> bool:
        raise AssertionError("nobody asks for that here")

    def flush(self) -> None:
        pass

    def backlog(self, peer: str) -> int:
        return 0

    def wait_for_backlog(self, limit: int, peers: Sequence[str]) -> None:
        pass

    def close(self, timeout: float | None = None) -> None:
        pass

    def abort(self) -> None:
        pass
