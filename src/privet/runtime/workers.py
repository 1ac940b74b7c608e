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

from privet.arithmetic.rings import get_integer_ring
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
from privet.runtime.accounting import Meter, MeterTotals
from privet.runtime.cost import Cost, CostCounter
from privet.runtime.opening import Payload
from privet.runtime.party import Party
from privet.runtime.runtime import Runtime
from privet.schema import StrictSchema
from privet.transport import channel as messages
from privet.transport.channel import Channel, Expected

END_COMMAND = "end"
"""The last order."""
METER_COMMAND = "meter"
"""The order to say what was metered so far."""
HEARTBEAT_COMMAND = "pulse"
"""No order: it finds out whether the worker is still there."""
_EXPECTED_STATUS = Expected(np.dtype(np.uint64), (1 + len(MeterTotals._fields),))
_DONE, _FAILED = 0, 1
_NO_TOTALS = MeterTotals()
_REASON = 1
"""The stream for what went wrong."""
_LOCAL_ERRORS = {
    kind.__name__: kind
    for kind in (
        *(ParameterError, DataError, ModelError),
        *(UnavailableError, CorrelationError, ResultError),
    )
}
_PEER_ERRORS = {
    kind.__name__: kind for kind in (PeerLostError, PeerSilentError, PeerMisbehavedError)
}
"""What goes wrong at a worker goes wrong at its head, and is said so."""
_PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading something raises that is not what it should be."""
_MAX_SHARE_BYTES = 1 << 34
"""Of one share: more is not waited for, as its memory could not be had."""


class _CommandMessage(StrictSchema):
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
class Command:
    """Something to be done."""

    name: str
    numbers: tuple[int, ...] = ()
    shares: tuple[Share, ...] = field(default=())


class WorkerHandle:
    """A head's end of the channel to one of its workers."""

    def __init__(self, channel: Channel, worker: str, shard: int) -> None:
        self.channel = channel
        self.name = worker
        self._shard = shard
        self._failed: PrivetError | None = None
        self.wait_seconds = 0.0
        """Seconds that we have waited for answers of all workers, of which its was the last."""
        self.waiting_since: float | None = None
        """Since when we wait for its answer, by the monotonic clock, if we do now."""
        self.meter_totals = MeterTotals()
        """What it had metered when it last answered."""
        self.peak_rss_mb = 0.0
        """The most memory that its process took, as it says when it is dismissed."""

    @property
    def shard_number(self) -> int:
        """The number of its shard, from 1, as people have it."""
        return self._shard + 1

    def send_command(self, command: Command) -> None:
        """Have something done; sending does not wait for it."""
        shares = [[x.ring.bits, list(x.shape), x.known] for x in command.shares]
        content = {"order": command.name, "numbers": list(command.numbers), "shares": shares}
        messages.send_message(self.channel, [self.name], json.dumps(content).encode())
        for share in command.shares:
            if share.known:
                letter = Payload.for_array(share.ring, share.shape)
                self.channel.send(self.name, letter.encode([share.part]))

    @property
    def has_responded(self) -> bool:
        """Whether we need not wait for what it answers."""
        return self.channel.has_pending(self.name)

    def receive_response(self, expected: Sequence[Elements]) -> list[Share]:
        """Return the shares that were asked for; raise what went wrong at the worker."""
        self.waiting_since = time.monotonic()
        status, *metered = self.channel.receive(self.name, _EXPECTED_STATUS).tolist()
        self.waiting_since = None
        if status != _DONE:
            raise self._reason()
        self.meter_totals = MeterTotals(*metered)
        found = []
        for due in expected:
            letter = Payload.for_array(due.ring, due.shape)
            (part,) = letter.decode(self.channel.receive(self.name, letter.expected))
            found.append(Share(part.reshape(due.shape), due.ring))
        return found

    def poll_failure(self) -> PrivetError | None:
        """Return what went wrong at the worker, or that it is lost; without waiting."""
        if self._failed is None and self.channel.has_pending(self.name, _REASON):
            try:
                self._reason()
            except PeerError as lost:
                self._failed = lost
        return self._failed

    def receive_meter(self) -> Meter:
        """Return what a worker has metered, that was asked for it or dismissed."""
        self.receive_response([])
        try:
            told = json.loads(messages.receive_message(self.channel, self.name))
            meter, peak = Meter.from_dict(told), float(told["peak_rss_mb"])
            if not math.isfinite(peak):
                raise ValueError
        except _PARSE_ERRORS:
            raise PeerMisbehavedError(self.name, "has no meter") from None
        self.peak_rss_mb = peak
        return meter

    def _reason(self) -> PrivetError:
        """Return what a worker says that went wrong; it says so once."""
        self._failed = self._parse_failure()
        return self._failed

    def _parse_failure(self) -> PrivetError:
        """Return what a worker says that went wrong, as if it had happened to us."""
        content = messages.receive_message(self.channel, self.name, stream=_REASON)
        try:
            told = {key: str(value) for key, value in json.loads(content).items()}
            kind, peer, problem, step = (told[k] for k in ("kind", "peer", "problem", "step"))
            doubt = int(told["doubt"])
        except _PARSE_ERRORS:
            return PeerMisbehavedError(self.name, "failed, and did not say how")
        error: PrivetError
        if kind in _LOCAL_ERRORS:
            error = _LOCAL_ERRORS[kind](f"{problem} (our worker for shard {self.shard_number})")
            error.set_step_if_unknown(step)
            return error
        if peer:
            problem = f"{problem} (its worker in shard {self.shard_number})"
        lost = _PEER_ERRORS.get(kind, PeerLostError)(peer or self.name, problem, step)
        lost.cause_rank = doubt
        return lost


def receive_responses(
    workers: Sequence[WorkerHandle], expected: Sequence[Sequence[Elements]]
) -> list[list[Share]]:
    """Return what several workers answer to one order.

    They are waited for one after the other, so whoever is not there when its turn comes answers
    after all before it: the last of these is the slowest, and the whole time counts for it alone.
    """
    started = time.monotonic()
    found, slowest, seconds = [], None, 0.0
    for head, due in zip(workers, expected, strict=True):
        in_time = head.has_responded
        found.append(head.receive_response(due))
        if not in_time:
            slowest, seconds = head, time.monotonic() - started
    if slowest is not None:
        slowest.wait_seconds += seconds
    return found


class CommandLoop:
    """A worker's end of the channel to its head."""

    def __init__(self, channel: Channel, coordinator: str) -> None:
        self.channel = channel
        self._coordinator = coordinator

    def receive_command(self) -> Command:
        """Wait for something to do."""
        try:
            told = _CommandMessage.model_validate_json(
                messages.receive_message(self.channel, self._coordinator)
            )
        except ValidationError:
            raise PeerMisbehavedError(self._coordinator, "gave an order that is none") from None
        shares = []
        for bits, lengths, known in told.shares:
            ring, shape = get_integer_ring(bits), tuple(lengths)
            if not known:
                shares.append(Share.unknown(shape, ring))
                continue
            letter = Payload.for_array(ring, shape)
            if letter.nbytes > _MAX_SHARE_BYTES:
                problem = f"gave an order with a share of {letter.nbytes} bytes: too many"
                raise PeerMisbehavedError(self._coordinator, problem)
            (part,) = letter.decode(self.channel.receive(self._coordinator, letter.expected))
            shares.append(Share(part.reshape(shape), ring))
        return Command(told.order, tuple(told.numbers), tuple(shares))

    def send_result(self, shares: Sequence[Share] = (), totals: MeterTotals = _NO_TOTALS) -> None:
        """Say that an order was carried out, and send what was asked for."""
        self._send_status(_DONE, totals)
        for share in shares:
            letter = Payload.for_array(share.ring, share.shape)
            self.channel.send(self._coordinator, letter.encode([share.part]))

    def send_meter(self, meter: Meter, peak_rss_mb: float = 0.0) -> None:
        """Say that all is done that was asked for, what was metered, and how much memory it took.

        The memory, at the end alone.
        """
        self.send_result(totals=meter.summarise())
        told = {**meter.to_dict(), "peak_rss_mb": peak_rss_mb}
        messages.send_message(self.channel, [self._coordinator], json.dumps(told).encode())

    def send_failure(self, error: BaseException, step: str) -> None:
        """Say that nothing more will come, and why."""
        kind = error.kind if isinstance(error, PrivetError) else ""
        told = {"kind": kind, "peer": "", "step": step, "doubt": 0}
        if isinstance(error, PeerError):
            told |= {"peer": error.peer or "", "problem": error.problem, "doubt": error.cause_rank}
        elif isinstance(error, PrivetError):
            told |= {"problem": str(error.args[0])}  # what its text adds is added at the head
        else:
            told |= {"problem": f"ended by {type(error).__name__}: {error}"}
        self._send_status(_FAILED)
        messages.send_message(self.channel, [self._coordinator], json.dumps(told).encode(), _REASON)
        self.channel.flush()

    def _send_status(self, status: int, totals: MeterTotals = _NO_TOTALS) -> None:
        self.channel.send(self._coordinator, np.array([status, *totals], dtype=np.uint64))


class CommandExecutor(Protocol):
    """Whoever carries out orders."""

    def execute(self, command: Command) -> list[Share]:
        """Do something, and return the shares that were asked for."""


_Carrier = TypeVar("_Carrier", bound=CommandExecutor)


class WorkerGroup(Generic[_Carrier]):
    """All workers of one role; a counter has twins alone."""

    def __init__(
        self,
        runtime: Runtime,
        workers: Sequence[WorkerHandle],
        kinds: Sequence[Hashable],
        create_shape_worker: Callable[[CostCounter, int], _Carrier],
    ) -> None:
        """Workers of the same kind answer alike; `create_shape_worker` makes one by its number."""
        self.runtime = runtime
        self._heads = workers
        self._kinds = kinds
        self._shape_workers: dict[Hashable, tuple[CostCounter, _Carrier]] = {}
        for number, kind in enumerate(kinds):
            if kind not in self._shape_workers:
                counter = _create_counter(runtime)
                self._shape_workers[kind] = counter, create_shape_worker(counter, number)

    @property
    def shape_workers(self) -> list[_Carrier]:
        """The twin of every worker."""
        return [self._shape_workers[kind][1] for kind in self._kinds]

    def send_command(
        self, name: str, *numbers: int, shares: Sequence[Share] = ()
    ) -> list[list[Share]]:
        """Have something done by all; return what they will answer, as shapes."""
        order = Command(name, numbers, tuple(shares))
        for head in self._heads:
            head.send_command(order)
        blind = Command(name, numbers, tuple(Share.unknown(x.shape, x.ring) for x in shares))
        found = {kind: _count_command(*twin, blind) for kind, twin in self._shape_workers.items()}
        if isinstance(self.runtime, CostCounter):
            # Groups work side by side, so the delays of one are those of all.
            costs = [found[kind][1] for kind in self._kinds]
            total = reduce(add, costs)
            self.runtime.add(total.with_rounds(max(cost.rounds for cost in costs)))
            passed = [share for kind in self._kinds for share in (*found[kind][0], *shares)]
            sizes = (Payload.for_array(share.ring, share.shape).nbytes for share in passed)
            self.runtime.add(Cost(worker_bytes=sum(sizes)))
        return [found[kind][0] for kind in self._kinds]

    def receive_responses(self, due: list[list[Share]]) -> list[list[Share]]:
        """Wait for what all answer, if we are a participant."""
        if not isinstance(self.runtime, Party):
            return due
        return receive_responses(self._heads, due)

    def call(self, name: str, *numbers: int, shares: Sequence[Share] = ()) -> list[list[Share]]:
        """Have something done by all, and return what they answer."""
        return self.receive_responses(self.send_command(name, *numbers, shares=shares))

    def call_and_sum(self, name: str, *numbers: int, shares: Sequence[Share] = ()) -> list[Share]:
        """Have something added up by all, and add that up."""
        answers = self.call(name, *numbers, shares=shares)
        return [reduce(add, each) for each in zip(*answers, strict=True)]


def _count_command(
    counter: CostCounter, shape_worker: CommandExecutor, command: Command
) -> tuple[list[Share], Cost]:
    """Return the shapes of what a worker answers, and what that costs its group."""
    before = counter.total
    shares = shape_worker.execute(command)
    return shares, counter.total - before


def _create_counter(runtime: Runtime) -> CostCounter:
    """Return a counter of what a group does, like one of what all heads do."""
    return (
        runtime.create_empty()
        if isinstance(runtime, CostCounter)
        else CostCounter(runtime.n_parties)
    )
