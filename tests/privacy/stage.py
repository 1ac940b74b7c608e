"""Recorded sessions whose randomness the test knows and can choose: the input of `explain`.

A session is a program run by its participants and the dealer, in threads. It records all draws,
all values that participants send to be opened, and all messages from participants and the dealer.
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
    """Return the AES key stream of a place, computed independently: the content of a draw."""
    name = f"{place.kind}|{place.path}|{place.slot}".encode()
    digest = hashlib.blake2b(name, digest_size=12, person=b"privet place").digest()
    key = hashlib.blake2b(seed, digest_size=16, person=b"privet prg").digest()
    stream = Cipher(algorithms.AES128(key), modes.CTR(digest + bytes(4))).encryptor()
    return np.frombuffer(stream.update(bytes(count)), dtype=np.uint8)


class Stream(Prg):
    """A stream that records its draws, or returns those of a script."""

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
        return self._record(place, drawn)

    def permutation(self, place: Place, length: int) -> npt.NDArray[np.intp]:
        drawn = super().permutation(place, length)
        keys = key_stream(self.seed, place, 8 * length).view(np.uint64)
        assert np.array_equal(drawn, np.argsort(keys, kind="stable")), "a permutation of few keys"
        return self._record(place, drawn)

    def _record(self, place: Place, value: RingArray) -> RingArray:
        self.places.append(place)
        if self._script is not None:
            scripted = self._script[len(self.drawn)]
            assert scripted.shape == value.shape, "the script is for another program"
            value = scripted.astype(value.dtype)
        self.drawn.append(value.copy())
        return value


@dataclass(frozen=True)
class Draw:
    """A random value of a participant, or its share of a derived value."""

    step: str
    ring: Ring | None
    """None for a permutation."""
    part: RingArray
    drawn: RingArray | None
    """The output of the stream; None if nothing was drawn."""


class Randomness:
    """All randomness of a session, derived from a name; `scripts` replace streams by seed."""

    def __init__(self, name: str, scripts: Mapping[bytes, Sequence[RingArray]] | None = None):
        self.name = name
        self.scripts = scripts or {}
        self._counts: dict[str, int] = defaultdict(int)

    def fresh_seed(self) -> bytes:
        role = threading.current_thread().name
        self._counts[role] += 1
        return hashlib.sha256(f"{self.name} {role} {self._counts[role]}".encode()).digest()

    def stream(self, seed: bytes) -> Stream:
        return Stream(seed, self.scripts.get(seed))

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for module in ("party", "correlations.source", "correlations.seeds"):
                target = f"privet.runtime.{module}.fresh_seed"
                stack.enter_context(mock.patch(target, self.fresh_seed))
            for module in ("party", "correlations.source", "correlations.dealer", "runtime"):
                stack.enter_context(mock.patch(f"privet.runtime.{module}.Prg", self.stream))
            yield


@dataclass(frozen=True)
class Shown:
    """The local parts of one message of a participant, before parts of others are added."""

    step: str
    kind: str
    """open, publish, or note: a masked permutation."""
    parts: list[RingArray]
    rings: list[Ring] | None


class Watched(Party):
    """A participant that records all values that it sends to the others under masks."""

    def __init__(self, *arguments: Any) -> None:
        self.shown: list[Shown] = []
        self.draws: dict[str, list[Draw]] = {"shared": [], "private": [], "lasting": []}
        self.revealed: list[tuple[str, RingArray]] = []
        """Local parts of values that were revealed to other participants, with their step."""
        self.announced: list[int] = []
        """Numbers announced to all participants and the dealer."""
        self._inside = 0
        super().__init__(*arguments)

    def _record(
        self, name: str, ring: Ring | None, draw: Callable[[], RingArray], *, exact: bool = True
    ) -> RingArray:
        stream = self.stream(name)
        before = len(stream.drawn) if isinstance(stream, Stream) else 0
        part = draw()
        new = stream.drawn[before:] if isinstance(stream, Stream) else []
        drawn = new[0] if len(new) == 1 else None
        if exact and isinstance(stream, Stream):
            fresh = drawn is not None and np.array_equal(part, drawn)
            assert fresh, f"at step {self.step_name!r}, a mask is not what was drawn for it"
        self.draws[name].append(Draw(self.step_name, ring, part.copy(), drawn))
        return part

    def uniform(self, shape: tuple[int, ...], ring: Ring) -> Share:
        draw = super().uniform
        return Share(self._record("shared", ring, lambda: draw(shape, ring).part), ring)

    def derived(self, shape: tuple[int, ...], ring: Ring) -> Share:
        draw = super().derived
        part = self._record("shared", ring, lambda: draw(shape, ring).part, exact=False)
        return Share(part, ring)

    def private(self, shape: tuple[int, ...], ring: Ring, owner: int) -> RingArray | None:
        draw = super().private
        if owner != self.index:
            return draw(shape, ring, owner)
        return self._record("private", ring, lambda: _require(draw(shape, ring, owner)))

    def persistent_mask(self, shape: tuple[int, ...], ring: Ring, owner: int) -> RingArray | None:
        draw = super().persistent_mask
        if owner != self.index:
            return draw(shape, ring, owner)
        return self._record("lasting", ring, lambda: _require(draw(shape, ring, owner)))

    @property
    def keeps(self) -> bool:
        """Whether we have masks that last."""
        return self.index in self._persistent_prgs

    def stream(self, name: str) -> Prg | None:
        """Return the stream `shared`, `private`, `local` or `lasting`, if there is one."""
        if name == "lasting":
            return next(iter(self._persistent_prgs.get(self.index, [])), None)
        names = {"shared": "_share_prg", "private": "_private_prg", "local": "_local_prg"}
        prg: Prg | SummedPrg = getattr(self, names[name])
        if isinstance(prg, SummedPrg):
            (prg,) = prg.prgs
        return prg

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp] | None:
        draw = super().permutation
        if owner != self.index:
            return draw(length, owner)
        return self._record("private", None, lambda: _require(draw(length, owner)))

    def _show_parts(self, kind: str, parts: Sequence[Array], rings: Sequence[Ring] | None) -> None:
        if not self._inside:
            copies = [np.array(part) for part in parts]
            self.shown.append(
                Shown(self.step_name, kind, copies, None if rings is None else list(rings))
            )

    @contextlib.contextmanager
    def _once(self) -> Iterator[None]:
        """Ignore nested openings, which one opening of several values consists of."""
        self._inside += 1
        yield
        self._inside -= 1

    def open(self, *masked: Share) -> tuple[RingArray, ...]:
        hidden = [x for x in masked if not isinstance(x, PublicShare)]
        self._show_parts("open", [x.part for x in hidden], [x.ring for x in hidden])
        public = [
            x.ring.reduce_modulus(x.part).copy() for x in masked if isinstance(x, PublicShare)
        ]
        self.revealed += [(self.step_name, part) for part in public]
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
        local = [content for content in notes if content is not None]
        self._show_parts("note", local, None)
        with self._once():
            return super().open_to_owners(masked, owners, notes, note)

    def reveal(self, value: Share, recipients: Sequence[int], disclosure: str) -> RingArray | None:
        if list(recipients) != [self.index]:
            self.revealed.append((self.step_name, value.part.copy()))
        return super().reveal(value, recipients, disclosure)

    def announce(self, number: int | None, owner: int, disclosure: str) -> int:
        announced = super().announce(number, owner, disclosure)
        self.announced.append(announced)
        return announced

    def reveal_argmax(self, finalists: Share, candidates: ArgmaxCandidates) -> ArgmaxResult:
        local_rows = [row for row in candidates.list_rows(self.index) if row]
        sent = finalists.ring.reduce_modulus(np.delete(finalists.part, local_rows, axis=0))
        self.revealed.append((self.step_name, sent))
        return super().reveal_argmax(finalists, candidates)

    def publish(
        self, arrays: Sequence[RingArray], shapes: Sequence[Sequence[tuple[int, ...]]], ring: Ring
    ) -> Iterator[tuple[int, int, RingArray]]:
        self._show_parts("publish", arrays, [ring] * len(arrays))
        return super().publish(arrays, shapes, ring)


def _require(value: RingArray | None) -> RingArray:
    assert value is not None
    return value


class WatchedChannel(RecordingChannel):
    """A channel that also records messages to the dealer."""

    def __init__(self, inner: Channel) -> None:
        super().__init__(inner)
        self.to_dealer: list[Array] = []

    def send(self, peer: str, array: Array, tag: int = 0, stream: int = 0) -> None:
        if peer == DEALER_NAME:
            self.to_dealer.append(array.copy())
        super().send(peer, array, tag, stream)


class OneByOne(SingleDealer):
    """A dealer that generates one table after the other, so that its draws have a fixed order."""

    map_tables = Runtime.map_tables


class RecordingSink(CorrelationSender):
    """The dealer's sender; records all messages to participants."""

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
    """The view of one participant in a session."""

    party: Watched | None = None
    result: Any = None
    opened: list[tuple[str, Ring, RingArray]] = field(default_factory=list)
    """All values that were opened to it, with step and ring."""
    received: list[Received] = field(default_factory=list)
    from_dealer: list[Received] = field(default_factory=list)
    to_dealer: list[Array] = field(default_factory=list)

    @property
    def runtime(self) -> Watched:
        assert self.party is not None
        return self.party

    vectors: list[tuple[str, Ring, RingArray]] = field(default_factory=list)
    """All vectors that it decoded from messages, with step and ring."""

    def stream(self, name: str) -> Stream:
        """Return the stream `shared`, `private`, `local` or `lasting`."""
        stream = self.runtime.stream(name)
        assert isinstance(stream, Stream)
        return stream


@dataclass
class Session:
    """A recorded session."""

    program: Program
    inputs: Sequence[Any]
    randomness: Randomness | None
    names: list[str]
    seen: list[Seen]
    dealt: list[tuple[int, RingArray]] = field(default_factory=list)
    """The dealer's messages in order, with their recipients, except seeds."""


def perform(program: Program, inputs: Sequence[Any], randomness: Randomness | None) -> Session:
    """Run a program with the given randomness, or fresh randomness, and record the session."""
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
            sender = RecordingSink(LiveSender(channel, names))
            runtime = OneByOne(len(names), sender)
            session.dealt = sender.sent
            program(runtime, None)
            runtime.close()

    bodies: dict[str, Callable[[], None]] = {
        name: partial(party, index) for index, name in enumerate(names)
    }
    decode = Payload.decode

    def recording_decode(payload: Payload, message: Array) -> list[RingArray]:
        decoded = decode(payload, message)
        seen = session.seen[names.index(threading.current_thread().name)]
        vectors = zip(payload.rings, decoded, strict=True)
        seen.vectors += [(seen.runtime.step_name, ring, vector.copy()) for ring, vector in vectors]
        return decoded

    with (
        contextlib.nullcontext() if randomness is None else randomness.installed(),
        mock.patch.object(Payload, "decode", recording_decode),
    ):
        run_threads({**bodies, DEALER_NAME: dealer})
    announced = 0
    for seen in session.seen:
        to_dealer = [(array.dtype.name, array.shape) for array in seen.to_dealer]
        n_announcements = to_dealer.count(("uint32", (1,)))
        assert to_dealer == [("uint8", (SEED_BYTES,)), *[("uint32", (1,))] * n_announcements], (
            "the dealer receives more than a nonce and announcements"
        )
        announced += n_announcements
    assert announced == len(session.seen[0].runtime.announced)
    return session


def run_threads(bodies: Mapping[str, Callable[[], None]]) -> None:
    """Run functions in threads, and raise the first error that is not a lost peer."""
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
    """Replays the messages that one participant received in a session; discards those it sends."""

    def __init__(self, name: str, received: Sequence[Received]) -> None:
        super().__init__(name, peer_timeout=1)
        self._messages: dict[str, list[Array]] = defaultdict(list)
        for message in received:
            self._messages[message.peer].append(message.array)
        self.position: dict[str, int] = defaultdict(int)

    @property
    def peers(self) -> tuple[str, ...]:
        return tuple(self._messages)

    def send(self, peer: str, array: Array, tag: int = 0, stream: int = 0) -> None:
        pass

    def receive(self, peer: str, expected: Expected, tag: int = 0, stream: int = 0) -> Array:
        array = self._messages[peer][self.position[peer]]
        self.position[peer] += 1
        return array.copy()

    def has_pending(self, peer: str, stream: int = 0) -> bool:
        raise AssertionError("replayed sessions never poll for messages")

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
