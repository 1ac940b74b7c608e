"""The explanation test: the view of colluding participants on one data set, explained by another.

The input is a recorded session with data x. All participants but one, the *honest* one, combine
their views. The honest participant's data are replaced by x', which gives the others the same
outputs, and its draws and those of the dealer are moved so that every message to the others stays
the same:

- an opening of [v] + [r] moves the honest share of the mask r by the change of its share of v;
- a derived value moves the honest draw, if another participant gets the correction;
- the mask of values that the honest participant publishes moves by the change of these values.

Each draw moves once, by an amount that depends only on the view of the others and on earlier draws,
so the moved draws are as likely as the first ones. Then the whole program runs again with x' and
the moved draws. If the view of the others is the same *byte for byte*, it has the same probability
under x and x': it reveals nothing about which of them was used. If it is not, `Unexplained` names
the step. It also rejects values that are opened without a fresh mask, even if they are the same.

`solve` moves the draws. It runs the honest participant and the dealer in parallel, on the messages
of the others in the first session. A gate runs three times: with the original draws, with all of
them raised by one, which shows how each hides an opened value, and with the moved draws.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import Elements, Share
from privet.gates.gate import Gate, OpeningGate, run_together
from privet.runtime.correlations.source import CorrelationReceiver, CorrelationSender
from privet.runtime.opening import Payload
from privet.runtime.runtime import ArgmaxCandidates, ArgmaxResult
from privet.transport.channel import Array, Expected
from tests.privacy.stage import (
    Draw,
    OneByOne,
    Randomness,
    ReplayChannel,
    Seen,
    Session,
    Shown,
    Watched,
    perform,
    run_threads,
)
from tests.runtime.harness import Received


class Unexplained(AssertionError):  # noqa: N818
    """A view that other data cannot explain."""


def explain(
    session: Session,
    honest: int,
    other: Any,
    earlier: Session | None = None,
    blinds: Blinds | None = None,
) -> Session:
    """Return a session with other data of the honest participant and the same view of the others.

    Raise `Unexplained` if there is none. An `earlier` session of the same data has already settled
    the persistent masks that it used.
    """
    assert session.randomness is not None
    check_streams(session)
    settled: Mapping[bytes, Sequence[RingArray]] = {}
    if earlier is not None and earlier.randomness is not None:
        settled = earlier.randomness.scripts
    moved = solve(session, honest, other, settled, blinds).moved
    check_range(session.seen[honest], moved)
    inputs = [other if k == honest else data for k, data in enumerate(session.inputs)]
    scripts = {
        session.seen[honest].stream(name).seed: values for name, values in moved.items() if values
    }
    randomness = Randomness(session.randomness.name, scripts)
    found = perform(session.program, inputs, randomness)
    compare(session, found, honest)
    return found


def check_inverse(first: Session, second: Session, honest: int) -> None:
    """Raise `Unexplained` unless explaining the second session by the first restores all draws."""
    back = solve(second, honest, first.inputs[honest]).moved
    for name, values in back.items():
        for draw, value in zip(first.seen[honest].runtime.draws[name], values, strict=True):
            assert draw.drawn is not None
            before, after = draw.drawn, value
            if draw.ring is not None:
                before, after = draw.ring.reduce_modulus(before), draw.ring.reduce_modulus(after)
            if not np.array_equal(before, after):
                raise Unexplained("the draws of one explanation do not lead back to the other")


def check_streams(session: Session) -> None:
    """Raise `Unexplained` if two streams of a session are the same."""
    seeds = [
        seen.stream(name).seed
        for seen in session.seen
        for name in (*("shared", "private", "local"), *(["lasting"] * bool(seen.runtime.keeps)))
    ]
    if len(set(seeds)) < len(seeds):
        raise Unexplained("two streams have the same seed")
    for seen in session.seen:
        for name in ("shared", "private", "local"):
            places = seen.stream(name).places
            if len(set(places)) < len(places):
                raise Unexplained(f"two draws of the stream {name!r} have the same place")


def compare(first: Session, second: Session, honest: int) -> None:
    """Raise `Unexplained` unless the others have the same view in two sessions."""
    for k, (one, other) in enumerate(zip(first.seen, second.seen, strict=True)):
        if k == honest:
            continue
        name = first.names[k]
        for way in ("received", "from_dealer"):
            a, b = getattr(one, way), getattr(other, way)
            for x, y in zip(a, b, strict=False):
                if _content(x) != _content(y):
                    raise Unexplained(
                        f"at step {x.step!r}, what {x.peer} sent to {name} cannot be explained"
                    )
            if len(a) != len(b):
                raise Unexplained(f"{name} received {len(a)} messages, with other data {len(b)}")


def _content(message: Received) -> tuple[Any, ...]:
    array = message.array
    return message.peer, message.step, message.tag, array.dtype, array.shape, array.tobytes()


_STREAMS = ("shared", "private", "lasting")
Moved = dict[str, list[RingArray]]
"""The honest participant's draws, by stream."""
Blinds = Mapping[int, RingArray]
"""Replacements of its draws for blindings, by position among the shared draws."""


def check_range(honest: Seen, moved: Moved) -> None:
    """Raise `Unexplained` if a moved draw is one that the sampler never returns.

    A bit that is the same in many draws of a ring is assumed to be constant by construction.
    """
    seen: dict[Ring, list[tuple[RingArray, RingArray]]] = {}
    for draw, value in zip(honest.runtime.draws["shared"], moved["shared"], strict=True):
        if draw.ring is not None and draw.drawn is not None:
            pair = draw.drawn.reshape(-1), value.reshape(-1)
            seen.setdefault(draw.ring, []).append(pair)
    for ring, pairs in seen.items():
        before, after = (np.concatenate(values) for values in zip(*pairs, strict=True))
        if before.size < 100:
            continue
        whole = ring.reduce_modulus(np.array(~before.dtype.type(0)))
        constant = ~(np.bitwise_or.reduce(before) ^ np.bitwise_and.reduce(before)) & whole
        if ((after ^ before[0]) & constant).any():
            raise Unexplained(
                f"masks over {ring.name} always have the same bits {int(constant):#x}"
            )


@dataclass(frozen=True)
class Hidden:
    """A value that the honest participant sent, and the draw that hid it."""

    step: str
    kind: str
    """open, publish, or note."""
    ring: Ring | None
    elements: int
    mask: tuple[str, int]
    """The stream, and the place in it."""


@dataclass(frozen=True)
class Solution:
    """The moved draws, and the values that each of them hid."""

    moved: Moved
    hidden: list[Hidden]


def solve(
    session: Session,
    honest: int,
    other: Any,
    settled: Mapping[bytes, Sequence[RingArray]] | None = None,
    blinds: Blinds | None = None,
) -> Solution:
    """Return the honest participant's draws, moved so that the view of the others is unchanged.

    Streams whose draws are already `settled`, by seed, stay as they are.
    """
    exchange = _Exchange()
    solver = _Solver(session, honest, exchange, settled or {}, blinds or {})
    dealer = _SolvingDealer(session, honest, exchange)

    def solving(call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a version of a gate's call, or of several gates together, that moves draws."""

        def solved(*arguments: Any, **options: Any) -> Any:
            if any(argument is solver for argument in arguments[:2]):
                return solver.solve(lambda: call(*arguments, **options))
            return call(*arguments, **options)

        return solved

    def run(body: Callable[[], Any]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                body()
            except BaseException:
                exchange.fail()
                raise

        return guarded

    with (
        mock.patch.object(Gate, "__call__", solving(Gate.__call__)),
        mock.patch.object(OpeningGate, "__call__", solving(OpeningGate.__call__)),
        mock.patch("privet.protocols.masked.bounds.run_together", solving(run_together)),
        mock.patch("privet.protocols.masked.candidates.run_together", solving(run_together)),
        mock.patch("privet.protocols.masked.argmax.run_together", solving(run_together)),
    ):
        run_threads(
            {
                "honest": run(lambda: session.program(solver, other)),
                "dealer": run(lambda: session.program(dealer, None)),
            }
        )
    return Solution(exchange.moved, solver.hidden)


class _Exchange:
    """The messages between the honest participant and the dealer while they solve."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], RingArray] = {}
        self._scripts: dict[tuple[str, int], RingArray] = {}
        self._shares: dict[int, RingArray] = {}
        self._changed = threading.Condition()
        self._dealer_waits_for: tuple[str, int] | None = None
        self._failed = False

    @property
    def moved(self) -> Moved:
        """The required outputs of the streams, once all draws are settled."""
        counts = {name: len([s for s, _ in self._scripts if s == name]) for name in _STREAMS}
        return {name: [self._scripts[name, i] for i in range(n)] for name, n in counts.items()}

    def fail(self) -> None:
        with self._changed:
            self._failed = True
            self._changed.notify_all()

    def settle(self, stream: str, place: int, part: RingArray, script: RingArray) -> None:
        """Set the honest participant's value of a draw, and the required output of its stream."""
        with self._changed:
            self._known[stream, place] = part.copy()
            self._scripts[stream, place] = script.copy()
            self._changed.notify_all()

    def settled(self, stream: str, place: int) -> RingArray:
        """Wait, as the dealer, until a draw is settled."""
        with self._changed:
            self._dealer_waits_for = stream, place
            self._changed.notify_all()
            self._changed.wait_for(lambda: (stream, place) in self._known or self._failed)
            self._dealer_waits_for = None
            if self._failed:
                raise Unexplained("the other side failed")
            return self._known[stream, place].copy()

    def deliver(self, place: int, share: RingArray, script: RingArray) -> None:
        """Send the honest participant its share of a derived value, as the dealer."""
        with self._changed:
            self._shares[place] = share
        self.settle("shared", place, share, script)

    def share(self, place: int, patient: bool) -> RingArray | None:
        """Return a share of a derived value; None if the dealer first needs settled draws."""
        with self._changed:
            self._changed.wait_for(
                lambda: place in self._shares
                or self._failed
                or (not patient and self._dealer_waits_for is not None and self._stuck())
            )
            if self._failed:
                raise Unexplained("the other side failed")
            return self._shares.get(place)

    def _stuck(self) -> bool:
        return self._dealer_waits_for is not None and self._dealer_waits_for not in self._known


@dataclass
class _Attempt:
    """One run of a gate: its draws, and the values that it sent."""

    drawn: list[tuple[str, int, Draw]]
    shown: list[Shown]
    result: Any


class _Solver(Watched):
    """The honest participant with other data, and the messages of the first session."""

    def __init__(
        self,
        session: Session,
        honest: int,
        exchange: _Exchange,
        settled: Mapping[bytes, Sequence[RingArray]],
        blinds: Blinds,
    ) -> None:
        assert session.randomness is not None
        self._blinds = blinds
        self._first = session.seen[honest]
        keeps = self._first.runtime.keeps
        self._fixed = settled.get(self._first.stream("lasting").seed) if keeps else None
        replay = ReplayChannel(session.names[honest], self._first.received)
        super().__init__(honest, session.names, replay, _NoSource())
        self._replay = replay
        self._local_prg = session.randomness.stream(self._first.stream("local").seed)
        self._draw_exchange = exchange
        self._place = dict.fromkeys(_STREAMS, 0)
        self._drawn: list[tuple[str, int, Draw]] = []
        self._mode = "final"
        self._depth = 0
        self._settled: dict[tuple[str, int], RingArray] = {}
        self._n_ready = 0
        """The number of draws of a gate before the first one that the dealer must wait for."""
        self.hidden: list[Hidden] = []

    # Draws: original, raised by one, or moved.

    def _draw(self, stream: str) -> RingArray:
        place = self._place[stream]
        self._place[stream] += 1
        draw = self._first.runtime.draws[stream][place]
        if draw.drawn is None:
            raise Unexplained(f"at step {self.step_name!r}, a mask was not drawn afresh")
        self._drawn.append((stream, place, draw))
        if self._mode == "final":
            return self._settled[stream, place].copy()
        part = self._settled.get((stream, place), draw.part)
        if self._mode == "raised" and draw.ring is not None:
            return _raised(part, draw.ring)
        return part.copy()

    def uniform(self, shape: tuple[int, ...], ring: Ring) -> Share:
        return Share(self._draw("shared"), ring)

    def private(self, shape: tuple[int, ...], ring: Ring, owner: int) -> RingArray | None:
        return self._draw("private") if owner == self.index else None

    def persistent_mask(self, shape: tuple[int, ...], ring: Ring, owner: int) -> RingArray | None:
        if owner != self.index:
            return None
        if self._fixed is None:
            return self._draw("lasting")
        place = self._place["lasting"]
        self._place["lasting"] += 1
        value = self._fixed[place]
        self._draw_exchange.settle("lasting", place, value, value)
        return value.copy()

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp] | None:
        return self._draw("private") if owner == self.index else None

    def derived(self, shape: tuple[int, ...], ring: Ring) -> Share:
        place = self._place["shared"]
        self._place["shared"] += 1
        share = self._draw_exchange.share(place, patient=self._mode == "final")
        if share is None:
            self._n_ready = min(self._n_ready, len(self._drawn))
        return Share(ring.zeros(shape) if share is None else share.copy(), ring)

    def finish(self) -> None:
        pass

    # Reveals, which must not change.

    def reveal(self, value: Share, recipients: Sequence[int], disclosure: str) -> RingArray | None:
        revealed = super().reveal(value, recipients, disclosure)
        self._check_reveals()
        return revealed

    def reveal_argmax(self, finalists: Share, candidates: ArgmaxCandidates) -> ArgmaxResult:
        result = super().reveal_argmax(finalists, candidates)
        self._check_reveals()
        return result

    def announce(self, number: int | None, owner: int, disclosure: str) -> int:
        announced = super().announce(number, owner, disclosure)
        if announced != self._first.runtime.announced[len(self.announced) - 1]:
            raise Unexplained(f"at step {self.step_name!r}, what is announced differs")
        return announced

    def _check_reveals(self) -> None:
        if self.revealed:
            before = self._first.runtime.revealed[len(self.revealed) - 1]
            (_, now), (step, was) = self.revealed[-1], before
            if not np.array_equal(now, was):
                raise Unexplained(f"at step {step!r}, what is revealed to others differs")

    # Gates.

    def _show_parts(self, kind: str, parts: Sequence[Array], rings: Sequence[Ring] | None) -> None:
        """Reject values that are sent outside of gates, even if they are the same."""
        if parts and not self._depth:
            raise Unexplained(
                f"at step {self.step_name!r}, something is shown outside of all gates"
            )
        super()._show_parts(kind, parts, rings)

    def solve(self, body: Callable[[], Any]) -> Any:
        """Run a gate with draws moved so that it sends the same values as before."""
        if self._depth:
            return body()
        self._depth += 1
        start = dict(self._place), dict(self._replay.position), len(self.shown)
        n_revealed = len(self.revealed)
        plain = self._attempt(body, "plain")
        if not plain.drawn and any(shown.parts for shown in plain.shown):
            raise Unexplained(f"at step {plain.shown[0].step!r}, something is shown without a mask")
        if plain.drawn:
            while True:
                self._rewind(*start)
                raised = self._attempt(body, "raised")
                self._rewind(*start)
                del self.revealed[n_revealed:]
                self._settle(plain, raised, self._first.runtime.shown[start[2] :])
                if self._n_ready >= len(plain.drawn):
                    break
                # Later values were sent without the values that the dealer derives from draws.
                for stream, place, _ in plain.drawn[self._n_ready :]:
                    del self._settled[stream, place]
                plain = self._attempt(body, "plain")
            plain = self._attempt(body, "final")
            self._check(plain.shown, self._first.runtime.shown[start[2] :])
            if len(self.revealed) > n_revealed:
                self._check_reveals()
        else:
            self._check(plain.shown, self._first.runtime.shown[start[2] :])
        self._depth -= 1
        return plain.result

    def _attempt(self, body: Callable[[], Any], mode: str) -> _Attempt:
        self._mode, self._drawn = mode, []
        self._n_ready = sys.maxsize
        n_shown = len(self.shown)
        result = body()
        self._mode = "final"
        return _Attempt(self._drawn, self.shown[n_shown:], result)

    def _check(self, now: Sequence[Shown], before: Sequence[Shown]) -> None:
        for shown, was in zip(now, before, strict=False):
            for (part, ring), (old, _) in zip(_pieces(shown), _pieces(was), strict=True):
                same = (
                    part == old
                    if ring is None
                    else ring.reduce_modulus(part) == ring.reduce_modulus(old)
                )
                if not np.all(same):
                    raise Unexplained(f"at step {shown.step!r}, what is shown cannot be hidden")

    def _rewind(self, place: dict[str, int], position: dict[str, int], shown: int) -> None:
        self._place = dict(place)
        self._replay.position.clear()
        self._replay.position.update(position)
        del self.shown[shown:]

    def _settle(self, plain: _Attempt, raised: _Attempt, before: Sequence[Shown]) -> None:
        """Move every draw of a gate by the difference of the value that it hides."""
        now = [(s, p, r) for s in plain.shown for p, r in _pieces(s)]
        then = [part for s in raised.shown for part, _ in _pieces(s)]
        was = [part for s in before[: len(plain.shown)] for part, _ in _pieces(s)]
        masks = [(s, p, d) for s, p, d in plain.drawn]
        order = {"private": 0, "lasting": 0, "shared": 1}
        if [s.kind for s in plain.shown][:1] == ["open"]:
            order = {"shared": 0, "private": 1, "lasting": 1}
        masks.sort(key=lambda mask: order[mask[0]])
        if not now and self._may_keep(plain):
            for stream, place, draw in plain.drawn:
                self._settled[stream, place] = self._blinds.get(place, draw.part)
        elif len(masks) != len(now):
            raise Unexplained(
                f"at step {plain.shown[0].step if plain.shown else self.step_name!r}, {len(now)} "
                f"values are shown and {len(masks)} masks drawn for them"
            )
        for (stream, place, draw), (shown, part, ring), up, old in zip(
            masks if now else [], now, then, was, strict=True
        ):
            base = replace(draw, part=self._settled.get((stream, place), draw.part))
            value = _moved(base, shown, part, up, old, ring)
            self._settled[stream, place] = value
            mask = stream, place
            if self._n_ready >= len(plain.drawn):
                self.hidden.append(Hidden(shown.step, shown.kind, draw.ring, value.size, mask))
        for stream, place, draw in plain.drawn[: self._n_ready]:
            part = self._settled[stream, place]
            self._draw_exchange.settle(stream, place, part, _script(draw, part))

    @staticmethod
    def _may_keep(attempt: _Attempt) -> bool:
        """Return whether draws hide only values that are revealed later.

        The blindings of losing candidates do: with the same candidates they stay as they are. A
        separate test (tests/gates/test_leakage.py) checks that they hide everything, and how they
        move for other candidates.
        """
        return all(draw.step.endswith("veil") for _, _, draw in attempt.drawn)


def _pieces(shown: Shown) -> list[tuple[RingArray, Ring | None]]:
    rings: Sequence[Ring | None] = shown.rings or [None] * len(shown.parts)
    return list(zip(shown.parts, rings, strict=True))


def _script(draw: Draw, part: RingArray) -> RingArray:
    """Return the required output of a stream for a participant to get another part."""
    assert draw.drawn is not None
    if draw.ring is None:
        return part
    return draw.ring.add(draw.drawn, draw.ring.subtract(part, draw.part))


def _raised(value: RingArray, ring: Ring) -> RingArray:
    one = np.full(value.shape, 255 if ring.boolean else 1, dtype=value.dtype)
    return ring.add(value, one)


def _moved(
    draw: Draw, shown: Shown, now: RingArray, raised: RingArray, was: RingArray, ring: Ring | None
) -> RingArray:
    """Return a draw moved so that the value that it hides is sent unchanged."""
    if draw.ring is None:  # a permutation q, with q[shown] fixed
        moved = np.empty_like(draw.part)
        moved[was] = draw.part[now]
        return moved
    kind = draw.ring
    now, raised, was = (kind.reduce_modulus(x).reshape(-1) for x in (now, raised, was))
    if (
        now.size != draw.part.size
        or was.size != now.size
        or (ring is not None and ring is not kind)
    ):
        raise Unexplained(f"at step {shown.step!r}, what is shown is not hidden by one fresh mask")
    step = kind.reduce_modulus(kind.subtract(raised, now))
    up = _raised(kind.zeros(now.shape), kind)
    down = kind.reduce_modulus(kind.negate(up))
    difference = kind.subtract(was, now)
    if (step == up).all():
        pass
    elif (step == down).all():
        difference = kind.negate(difference)
    else:
        raise Unexplained(f"at step {shown.step!r}, what is shown is not hidden by a fresh mask")
    return kind.add(draw.part, difference.reshape(draw.part.shape))


class _SolvingDealer(OneByOne):
    """The dealer, which learns the honest participant's draws when they are settled."""

    def __init__(self, session: Session, honest: int, exchange: _Exchange) -> None:
        super().__init__(len(session.names), _NoSink(len(session.names)))
        self._session = session
        self._honest = honest
        self._draw_exchange = exchange
        self._place = 0
        self._private_place = [0] * len(session.names)
        self._lasting_place = [0] * len(session.names)
        self._n_announced = 0

    def _part(self, party: int, stream: str, place: int) -> RingArray:
        if party == self._honest:
            return self._draw_exchange.settled(stream, place)
        return self._session.seen[party].runtime.draws[stream][place].part.copy()

    def uniform_shares(self, shape: tuple[int, ...], ring: Ring) -> list[RingArray]:
        place = self._place
        self._place += 1
        return [self._part(k, "shared", place) for k in range(self.n_parties)]

    def distribute(self, value: RingArray, ring: Ring) -> Elements:
        place = self._place
        self._place += 1
        recipient = self._draw_position.choose_correction_recipient(
            Payload.for_array(ring, value.shape).nbytes
        )
        others = ring.zeros(value.shape)
        for k in range(self.n_parties):
            if k != self._honest:
                ring.add_in_place(others, self._part(k, "shared", place))
        share = ring.subtract(value, others)
        draw = self._session.seen[self._honest].runtime.draws["shared"][place]
        if draw.drawn is None:
            raise Unexplained(f"at step {self.step_name!r}, a share was not drawn afresh")
        # The others never see a correction to the honest participant, so no draw must move for it.
        script = draw.drawn if recipient == self._honest else _script(draw, share)
        self._draw_exchange.deliver(place, share, script)
        return Elements(value, ring)

    def announce(self, number: int | None, owner: int, disclosure: str) -> int:
        self._n_announced += 1
        return self._session.seen[self._honest].runtime.announced[self._n_announced - 1]

    def permutation(self, length: int, owner: int) -> npt.NDArray[np.intp]:
        return self._private_draw(owner)

    def private(self, shape: tuple[int, ...], ring: Ring, owner: int) -> Elements:
        return Elements(self._private_draw(owner), ring)

    def persistent_mask(self, shape: tuple[int, ...], ring: Ring, owner: int) -> RingArray:
        place = self._lasting_place[owner]
        self._lasting_place[owner] += 1
        return self._part(owner, "lasting", place)

    def _private_draw(self, owner: int) -> RingArray:
        place = self._private_place[owner]
        self._private_place[owner] += 1
        return self._part(owner, "private", place)


class _NoSource(CorrelationReceiver):
    """The receiver of a participant whose shares `solve` delivers."""

    def receive_seeds(self, participant_index: int) -> tuple[str, list[bytes]]:
        return "", [bytes(32)]

    def receive(self, expected: Expected, tag: int, step: str, dealer_index: int = 0) -> RingArray:
        raise AssertionError("`solve` delivers shares itself")


class _NoSink(CorrelationSender):
    """The sender of a dealer whose shares `solve` delivers."""

    def __init__(self, n_parties: int) -> None:
        self._n_parties = n_parties

    def distribute_seeds(self) -> tuple[str, list[bytes]]:
        return "", [bytes(32)] * self._n_parties

    def send(self, party: int, array: RingArray, tag: int) -> None:
        pass

    def close(self, tag: int) -> None:
        pass
