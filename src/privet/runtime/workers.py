"""Commands from a coordinator to its workers, and their answers.

Rows in shards are worked on by workers. Each is in a group of its own, with those of the other
participants and a stream of the dealers; its head tells it what to do, and gets shares. Between the
two there is a channel of their own.

An order is a message that names it, its numbers and the shares that come with it, which follow. An
answer begins with a status and what the worker has metered so far: so a head knows at any time what
all of its workers have sent, without a message more. After a failure it is the last one; whose
failure it was is said on a stream of its own, where a head can look while earlier answers still
wait to be taken.

What an answer looks like follows from what is public: every kind of worker has a *twin*, which
carries out the same orders on shapes. So a head knows what is due, and a counter what it costs. A
head does not wait before it has something to do with an answer; dealers get none, so their workers
run ahead of them.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Annotated, Generic, Protocol, TypeVar

import numpy as np
from pydantic import Field, ValidationError

from privet.arithmetic.rings import integers_modulo
from privet.arithmetic.shares import Elements, Share
from privet.errors import (
    CorrelationError,
    DataError,
    ModelError,
    ParameterError,
    PeerError,
    PeerLostError,
    PeerMisbehavedError,
    PeerSilentError,
    PrivetError,
    ResultError,
    UnavailableError,
)
from privet.runtime.accounting import Figures, Meter
from privet.runtime.cost import Cost, Counter
from privet.runtime.opening import Letter
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime
from privet.schema import Checked
from privet.transport import channel as messages
from privet.transport.channel import Channel, Expected

END = "end"
"""The last order."""
METER = "meter"
"""The order to say what was metered so far."""
PULSE = "pulse"
"""No order: it finds out whether the worker is still there."""
_STATUS = Expected(np.dtype(np.uint64), (1 + len(Figures._fields),))
_DONE, _FAILED = 0, 1
_NOTHING = Figures()
_REASON = 1
"""The stream for what went wrong."""
_OWN = {
    kind.__name__: kind
    for kind in (
        *(ParameterError, DataError, ModelError),
        *(UnavailableError, CorrelationError, ResultError),
    )
}
_PEERS = {kind.__name__: kind for kind in (PeerLostError, PeerSilentError, PeerMisbehavedError)}
"""What goes wrong at a worker goes wrong at its head, and is said so."""
_NONE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading something raises that is not what it should be."""
_MOST_BYTES = 1 << 34
"""Of one share: more is not waited for, as its memory could not be had."""


class _Told(Checked):
    """An order as it is sent; the elements of shares that the worker is to know follow."""

    order: str
    numbers: list[Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]]
    shares: list[
        tuple[
            Annotated[int, Field(ge=1, le=64)],
            Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=8)],
            bool,
        ]
    ]
    """The bits of a ring, a shape, and whether the elements follow."""


@dataclass(frozen=True, repr=False)
class Order:
    """Something to be done."""

    name: str
    numbers: tuple[int, ...] = ()
    shares: tuple[Share, ...] = field(default=())


class Head:
    """A head's end of the channel to one of its workers."""

    def __init__(self, channel: Channel, worker: str, shard: int) -> None:
        self.channel = channel
        self.name = worker
        self._shard = shard
        self._failed: PrivetError | None = None
        self.waited = 0.0
        """Seconds that we have waited for answers of all workers, of which its was the last."""
        self.waits_since: float | None = None
        """Since when we wait for its answer, by the monotonic clock, if we do now."""
        self.figures = Figures()
        """What it had metered when it last answered."""
        self.peak_rss_mb = 0.0
        """The most memory that its process took, as it says when it is dismissed."""

    @property
    def number(self) -> int:
        """The number of its shard, from 1, as people have it."""
        return self._shard + 1

    def give(self, order: Order) -> None:
        """Have something done; sending does not wait for it."""
        shares = [[x.ring.bits, list(x.shape), x.known] for x in order.shares]
        content = {"order": order.name, "numbers": list(order.numbers), "shares": shares}
        messages.send(self.channel, [self.name], json.dumps(content).encode())
        for share in order.shares:
            if share.known:
                letter = Letter.of(share.ring, share.shape)
                self.channel.send(self.name, letter.write([share.part]))

    @property
    def has_answered(self) -> bool:
        """Whether we need not wait for what it answers."""
        return self.channel.has_come(self.name)

    def answer(self, expected: Sequence[Elements]) -> list[Share]:
        """Return the shares that were asked for; raise what went wrong at the worker."""
        self.waits_since = time.monotonic()
        status, *metered = self.channel.receive(self.name, _STATUS).tolist()
        self.waits_since = None
        if status != _DONE:
            raise self._reason()
        self.figures = Figures(*metered)
        found = []
        for due in expected:
            letter = Letter.of(due.ring, due.shape)
            (part,) = letter.read(self.channel.receive(self.name, letter.kind))
            found.append(Share(part.reshape(due.shape), due.ring))
        return found

    def failure(self) -> PrivetError | None:
        """Return what went wrong at the worker, or that it is lost; without waiting."""
        if self._failed is None and self.channel.has_come(self.name, _REASON):
            try:
                self._reason()
            except PeerError as lost:
                self._failed = lost
        return self._failed

    def metered(self) -> Meter:
        """Return what a worker has metered, that was asked for it or dismissed."""
        self.answer([])
        try:
            told = json.loads(messages.receive(self.channel, self.name))
            meter, peak = Meter.unpacked(told), float(told["peak_rss_mb"])
            if not math.isfinite(peak):
                raise ValueError
        except _NONE:
            raise PeerMisbehavedError(self.name, "has no meter") from None
        self.peak_rss_mb = peak
        return meter

    def _reason(self) -> PrivetError:
        """Return what a worker says that went wrong; it says so once."""
        self._failed = self._heard()
        return self._failed

    def _heard(self) -> PrivetError:
        """Return what a worker says that went wrong, as if it had happened to us."""
        content = messages.receive(self.channel, self.name, stream=_REASON)
        try:
            told = {key: str(value) for key, value in json.loads(content).items()}
            kind, peer, problem, step = (told[k] for k in ("kind", "peer", "problem", "step"))
            doubt = int(told["doubt"])
        except _NONE:
            return PeerMisbehavedError(self.name, "failed, and did not say how")
        error: PrivetError
        if kind in _OWN:
            error = _OWN[kind](f"{problem} (our worker for shard {self.number})")
            error.note_step(step)
            return error
        if peer:
            problem = f"{problem} (its worker in shard {self.number})"
        lost = _PEERS.get(kind, PeerLostError)(peer or self.name, problem, step)
        lost.doubt = doubt
        return lost


def answers(heads: Sequence[Head], expected: Sequence[Sequence[Elements]]) -> list[list[Share]]:
    """Return what several workers answer to one order.

    They are waited for one after the other, so whoever is not there when its turn comes answers
    after all before it: the last of these is the slowest, and the whole time counts for it alone.
    """
    started = time.monotonic()
    found, slowest, seconds = [], None, 0.0
    for head, due in zip(heads, expected, strict=True):
        in_time = head.has_answered
        found.append(head.answer(due))
        if not in_time:
            slowest, seconds = head, time.monotonic() - started
    if slowest is not None:
        slowest.waited += seconds
    return found


class Worker:
    """A worker's end of the channel to its head."""

    def __init__(self, channel: Channel, head: str) -> None:
        self.channel = channel
        self._head = head

    def next(self) -> Order:
        """Wait for something to do."""
        try:
            told = _Told.model_validate_json(messages.receive(self.channel, self._head))
        except ValidationError:
            raise PeerMisbehavedError(self._head, "gave an order that is none") from None
        shares = []
        for bits, lengths, known in told.shares:
            ring, shape = integers_modulo(bits), tuple(lengths)
            if not known:
                shares.append(Share.unknown(shape, ring))
                continue
            letter = Letter.of(ring, shape)
            if letter.nbytes > _MOST_BYTES:
                problem = f"gave an order with a share of {letter.nbytes} bytes: too many"
                raise PeerMisbehavedError(self._head, problem)
            (part,) = letter.read(self.channel.receive(self._head, letter.kind))
            shares.append(Share(part.reshape(shape), ring))
        return Order(told.order, tuple(told.numbers), tuple(shares))

    def done(self, shares: Sequence[Share] = (), metered: Figures = _NOTHING) -> None:
        """Say that an order was carried out, and send what was asked for."""
        self._say(_DONE, metered)
        for share in shares:
            letter = Letter.of(share.ring, share.shape)
            self.channel.send(self._head, letter.write([share.part]))

    def metered(self, meter: Meter, peak_rss_mb: float = 0.0) -> None:
        """Say that all is done that was asked for, what was metered, and how much memory it took.

        The memory, at the end alone.
        """
        self.done(metered=meter.figures())
        told = {**meter.packed(), "peak_rss_mb": peak_rss_mb}
        messages.send(self.channel, [self._head], json.dumps(told).encode())

    def failed(self, error: BaseException, step: str) -> None:
        """Say that nothing more will come, and why."""
        kind = error.kind if isinstance(error, PrivetError) else ""
        told = {"kind": kind, "peer": "", "step": step, "doubt": 0}
        if isinstance(error, PeerError):
            told |= {"peer": error.peer or "", "problem": error.problem, "doubt": error.doubt}
        elif isinstance(error, PrivetError):
            told |= {"problem": str(error.args[0])}  # what its text adds is added at the head
        else:
            told |= {"problem": f"ended by {type(error).__name__}: {error}"}
        self._say(_FAILED)
        messages.send(self.channel, [self._head], json.dumps(told).encode(), _REASON)
        self.channel.flush()

    def _say(self, status: int, metered: Figures = _NOTHING) -> None:
        self.channel.send(self._head, np.array([status, *metered], dtype=np.uint64))


class Carrier(Protocol):
    """Whoever carries out orders."""

    def carry_out(self, order: Order) -> list[Share]:
        """Do something, and return the shares that were asked for."""


_Carrier = TypeVar("_Carrier", bound=Carrier)


class Workforce(Generic[_Carrier]):
    """All workers of one role; a counter has twins alone."""

    def __init__(
        self,
        runtime: Runtime,
        heads: Sequence[Head],
        kinds: Sequence[Hashable],
        twin: Callable[[Counter, int], _Carrier],
    ) -> None:
        """Workers of the same kind answer alike; `twin` makes one of a worker, by its number."""
        self.runtime = runtime
        self._heads = heads
        self._kinds = kinds
        self._twins: dict[Hashable, tuple[Counter, _Carrier]] = {}
        for number, kind in enumerate(kinds):
            if kind not in self._twins:
                counter = _counter(runtime)
                self._twins[kind] = counter, twin(counter, number)

    @property
    def twins(self) -> list[_Carrier]:
        """The twin of every worker."""
        return [self._twins[kind][1] for kind in self._kinds]

    def give(self, name: str, *numbers: int, shares: Sequence[Share] = ()) -> list[list[Share]]:
        """Have something done by all; return what they will answer, as shapes."""
        order = Order(name, numbers, tuple(shares))
        for head in self._heads:
            head.give(order)
        blind = Order(name, numbers, tuple(Share.unknown(x.shape, x.ring) for x in shares))
        found = {kind: _counted(*twin, blind) for kind, twin in self._twins.items()}
        if isinstance(self.runtime, Counter):
            # Groups work side by side, so the delays of one are those of all.
            costs = [found[kind][1] for kind in self._kinds]
            total = reduce(add, costs)
            self.runtime.add(total.with_rounds(max(cost.rounds for cost in costs)))
            passed = [share for kind in self._kinds for share in (*found[kind][0], *shares)]
            sizes = (Letter.of(share.ring, share.shape).nbytes for share in passed)
            self.runtime.add(Cost(orders=sum(sizes)))
        return [found[kind][0] for kind in self._kinds]

    def answers(self, due: list[list[Share]]) -> list[list[Share]]:
        """Wait for what all answer, if we are a participant."""
        if not isinstance(self.runtime, Party):
            return due
        return answers(self._heads, due)

    def ask(self, name: str, *numbers: int, shares: Sequence[Share] = ()) -> list[list[Share]]:
        """Have something done by all, and return what they answer."""
        return self.answers(self.give(name, *numbers, shares=shares))

    def sums(self, name: str, *numbers: int, shares: Sequence[Share] = ()) -> list[Share]:
        """Have something added up by all, and add that up."""
        answers = self.ask(name, *numbers, shares=shares)
        return [reduce(add, each) for each in zip(*answers, strict=True)]


def _counted(counter: Counter, twin: Carrier, order: Order) -> tuple[list[Share], Cost]:
    """Return the shapes of what a worker answers, and what that costs its group."""
    before = counter.total
    shares = twin.carry_out(order)
    return shares, counter.total - before


def _counter(runtime: Runtime) -> Counter:
    """Return a counter of what a group does, like one of what all heads do."""
    return runtime.twin() if isinstance(runtime, Counter) else Counter(runtime.n_parties)
