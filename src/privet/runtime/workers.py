"""Commands from a coordinator to its workers, and their responses.

Each worker computes on one shard of the rows, in a group with the workers of the other participants
and a stream of the dealers. It has a channel to its coordinator, which sends commands and receives
shares.

A command is a JSON message with its name, its numbers and the layout of its shares; the shares
follow. A response starts with a status and the totals of the worker's meter, so the coordinator
knows the traffic of all workers without further messages. A failure status is the last response;
the cause follows on a separate stream, which the coordinator can poll before it has received
earlier responses.

The layout of a response is public: every kind of worker has a *shape worker*, which executes the
same commands on shapes. Therefore the coordinator knows the expected shares, and a counter their
cost. A coordinator waits for a response only when it needs one. Dealers receive no responses, so
their workers run ahead of them.
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
"""The last command."""
METER_COMMAND = "meter"
"""The command to report the meter."""
HEARTBEAT_COMMAND = "pulse"
"""A command without effect, which shows whether the worker is still connected."""
_EXPECTED_STATUS = Expected(np.dtype(np.uint64), (1 + len(MeterTotals._fields),))
_DONE, _FAILED = 0, 1
_NO_TOTALS = MeterTotals()
_FAILURE_STREAM = 1
"""The stream for the cause of a failure."""
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
"""The coordinator raises the error of a failed worker as one of these kinds."""
_PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors of parsing an invalid message."""
_MAX_SHARE_BYTES = 1 << 34
"""Limit for one share, so that a message cannot exhaust the memory."""


class _CommandMessage(StrictSchema):
    """A command as sent; the elements of known shares follow it."""

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
    """A command for a worker."""

    name: str
    numbers: tuple[int, ...] = ()
    shares: tuple[Share, ...] = field(default=())


class WorkerHandle:
    """A coordinator's end of the channel to one of its workers."""

    def __init__(self, channel: Channel, worker: str, shard: int) -> None:
        self.channel = channel
        self.name = worker
        self._shard = shard
        self._failed: PrivetError | None = None
        self.wait_seconds = 0.0
        """Seconds of waiting for all workers' responses in which this worker was the last."""
        self.waiting_since: float | None = None
        """Start of the current wait for its response (monotonic clock); None if not waiting."""
        self.meter_totals = MeterTotals()
        """The totals of its meter at its last response."""
        self.peak_rss_mb = 0.0
        """The peak memory of its process, which it reports when it shuts down."""

    @property
    def shard_number(self) -> int:
        """The number of its shard, from 1, for messages."""
        return self._shard + 1

    def send_command(self, command: Command) -> None:
        """Send a command, without waiting for its execution."""
        shares = [[x.ring.bits, list(x.shape), x.known] for x in command.shares]
        content = {"order": command.name, "numbers": list(command.numbers), "shares": shares}
        messages.send_message(self.channel, [self.name], json.dumps(content).encode())
        for share in command.shares:
            if share.known:
                payload = Payload.for_array(share.ring, share.shape)
                self.channel.send(self.name, payload.encode([share.part]))

    @property
    def has_responded(self) -> bool:
        """Whether a response can be received without waiting."""
        return self.channel.has_pending(self.name)

    def receive_response(self, expected: Sequence[Elements]) -> list[Share]:
        """Wait for a response and return its shares; raise the error of a failed worker."""
        self.waiting_since = time.monotonic()
        status, *metered = self.channel.receive(self.name, _EXPECTED_STATUS).tolist()
        self.waiting_since = None
        if status != _DONE:
            raise self._receive_failure()
        self.meter_totals = MeterTotals(*metered)
        shares = []
        for expected_share in expected:
            payload = Payload.for_array(expected_share.ring, expected_share.shape)
            (part,) = payload.decode(self.channel.receive(self.name, payload.expected))
            shares.append(Share(part.reshape(expected_share.shape), expected_share.ring))
        return shares

    def poll_failure(self) -> PrivetError | None:
        """Return the failure of the worker, or its disconnection, without waiting."""
        if self._failed is None and self.channel.has_pending(self.name, _FAILURE_STREAM):
            try:
                self._receive_failure()
            except PeerError as error:
                self._failed = error
        return self._failed

    def receive_meter(self) -> Meter:
        """Return the meter of a worker, after a meter or end command."""
        self.receive_response([])
        try:
            content = json.loads(messages.receive_message(self.channel, self.name))
            meter, peak = Meter.from_dict(content), float(content["peak_rss_mb"])
            if not math.isfinite(peak):
                raise ValueError
        except _PARSE_ERRORS:
            raise PeerMisbehavedError(self.name, "has no meter") from None
        self.peak_rss_mb = peak
        return meter

    def _receive_failure(self) -> PrivetError:
        """Receive the cause of a worker's failure, which the worker sends once."""
        self._failed = self._parse_failure()
        return self._failed

    def _parse_failure(self) -> PrivetError:
        """Return the cause of a worker's failure, as an error of the coordinator."""
        message = messages.receive_message(self.channel, self.name, stream=_FAILURE_STREAM)
        try:
            content = {key: str(value) for key, value in json.loads(message).items()}
            kind, peer, problem, step = (content[k] for k in ("kind", "peer", "problem", "step"))
            cause_rank = int(content["doubt"])
        except _PARSE_ERRORS:
            return PeerMisbehavedError(self.name, "failed, and did not say how")
        error: PrivetError
        if kind in _LOCAL_ERRORS:
            error = _LOCAL_ERRORS[kind](f"{problem} (our worker for shard {self.shard_number})")
            error.set_step_if_unknown(step)
            return error
        if peer:
            problem = f"{problem} (its worker in shard {self.shard_number})"
        peer_error = _PEER_ERRORS.get(kind, PeerLostError)(peer or self.name, problem, step)
        peer_error.cause_rank = cause_rank
        return peer_error


def receive_responses(
    workers: Sequence[WorkerHandle], expected: Sequence[Sequence[Elements]]
) -> list[list[Share]]:
    """Return the responses of several workers to one command.

    The coordinator waits for one worker after the other. A worker without a response when its turn
    comes responds after all workers before it. The last such worker is the slowest one, and the
    whole waiting time counts for it only.
    """
    started = time.monotonic()
    responses, slowest, seconds = [], None, 0.0
    for worker, shares in zip(workers, expected, strict=True):
        has_responded = worker.has_responded
        responses.append(worker.receive_response(shares))
        if not has_responded:
            slowest, seconds = worker, time.monotonic() - started
    if slowest is not None:
        slowest.wait_seconds += seconds
    return responses


class CommandLoop:
    """A worker's end of the channel to its coordinator."""

    def __init__(self, channel: Channel, coordinator: str) -> None:
        self.channel = channel
        self._coordinator = coordinator

    def receive_command(self) -> Command:
        """Wait for the next command."""
        try:
            message = _CommandMessage.model_validate_json(
                messages.receive_message(self.channel, self._coordinator)
            )
        except ValidationError:
            raise PeerMisbehavedError(self._coordinator, "gave an order that is none") from None
        shares = []
        for bits, lengths, known in message.shares:
            ring, shape = get_integer_ring(bits), tuple(lengths)
            if not known:
                shares.append(Share.unknown(shape, ring))
                continue
            payload = Payload.for_array(ring, shape)
            if payload.nbytes > _MAX_SHARE_BYTES:
                problem = f"gave an order with a share of {payload.nbytes} bytes: too many"
                raise PeerMisbehavedError(self._coordinator, problem)
            (part,) = payload.decode(self.channel.receive(self._coordinator, payload.expected))
            shares.append(Share(part.reshape(shape), ring))
        return Command(message.order, tuple(message.numbers), tuple(shares))

    def send_result(self, shares: Sequence[Share] = (), totals: MeterTotals = _NO_TOTALS) -> None:
        """Report that a command was executed, and send its shares."""
        self._send_status(_DONE, totals)
        for share in shares:
            payload = Payload.for_array(share.ring, share.shape)
            self.channel.send(self._coordinator, payload.encode([share.part]))

    def send_meter(self, meter: Meter, peak_rss_mb: float = 0.0) -> None:
        """Report that all commands were executed; send the meter, and finally the peak memory."""
        self.send_result(totals=meter.summarise())
        content = {**meter.to_dict(), "peak_rss_mb": peak_rss_mb}
        messages.send_message(self.channel, [self._coordinator], json.dumps(content).encode())

    def send_failure(self, error: BaseException, step: str) -> None:
        """Report a failure and its cause: the last response."""
        kind = error.kind if isinstance(error, PrivetError) else ""
        content = {"kind": kind, "peer": "", "step": step, "doubt": 0}
        if isinstance(error, PeerError):
            content |= {
                "peer": error.peer or "",
                "problem": error.problem,
                "doubt": error.cause_rank,
            }
        elif isinstance(error, PrivetError):
            content |= {"problem": str(error.args[0])}  # the coordinator adds the step
        else:
            content |= {"problem": f"ended by {type(error).__name__}: {error}"}
        self._send_status(_FAILED)
        messages.send_message(
            self.channel, [self._coordinator], json.dumps(content).encode(), _FAILURE_STREAM
        )
        self.channel.flush()

    def _send_status(self, status: int, totals: MeterTotals = _NO_TOTALS) -> None:
        self.channel.send(self._coordinator, np.array([status, *totals], dtype=np.uint64))


class CommandExecutor(Protocol):
    """An executor of commands: a worker, or a shape worker."""

    def execute(self, command: Command) -> list[Share]:
        """Execute a command, and return its shares."""


_Executor = TypeVar("_Executor", bound=CommandExecutor)


class WorkerGroup(Generic[_Executor]):
    """All workers of one role; a counter has only their shape workers."""

    def __init__(
        self,
        runtime: Runtime,
        workers: Sequence[WorkerHandle],
        kinds: Sequence[Hashable],
        create_shape_worker: Callable[[CostCounter, int], _Executor],
    ) -> None:
        """Create one shape worker for each kind: workers of one kind respond alike.

        `create_shape_worker` takes a counter and the worker's number.
        """
        self.runtime = runtime
        self._workers = workers
        self._kinds = kinds
        self._shape_workers: dict[Hashable, tuple[CostCounter, _Executor]] = {}
        for number, kind in enumerate(kinds):
            if kind not in self._shape_workers:
                counter = _create_counter(runtime)
                self._shape_workers[kind] = counter, create_shape_worker(counter, number)

    @property
    def shape_workers(self) -> list[_Executor]:
        """The shape worker of every worker."""
        return [self._shape_workers[kind][1] for kind in self._kinds]

    def send_command(
        self, name: str, *numbers: int, shares: Sequence[Share] = ()
    ) -> list[list[Share]]:
        """Send a command to all workers; return their expected responses, as shapes."""
        command = Command(name, numbers, tuple(shares))
        for worker in self._workers:
            worker.send_command(command)
        shape_command = Command(
            name, numbers, tuple(Share.unknown(x.shape, x.ring) for x in shares)
        )
        responses = {
            kind: _count_command(*shape_worker, shape_command)
            for kind, shape_worker in self._shape_workers.items()
        }
        if isinstance(self.runtime, CostCounter):
            # Groups run in parallel, so the rounds of the slowest group count for all.
            costs = [responses[kind][1] for kind in self._kinds]
            total = reduce(add, costs)
            self.runtime.add(total.with_rounds(max(cost.rounds for cost in costs)))
            sent_shares = [
                share for kind in self._kinds for share in (*responses[kind][0], *shares)
            ]
            sizes = (Payload.for_array(share.ring, share.shape).nbytes for share in sent_shares)
            self.runtime.add(Cost(worker_bytes=sum(sizes)))
        return [responses[kind][0] for kind in self._kinds]

    def receive_responses(self, expected: list[list[Share]]) -> list[list[Share]]:
        """Wait for the responses of all workers, at a participant."""
        if not isinstance(self.runtime, Party):
            return expected
        return receive_responses(self._workers, expected)

    def call(self, name: str, *numbers: int, shares: Sequence[Share] = ()) -> list[list[Share]]:
        """Send a command to all workers, and return their responses."""
        return self.receive_responses(self.send_command(name, *numbers, shares=shares))

    def call_and_sum(self, name: str, *numbers: int, shares: Sequence[Share] = ()) -> list[Share]:
        """Send a command to all workers, and return the sums of their shares."""
        responses = self.call(name, *numbers, shares=shares)
        return [reduce(add, parts) for parts in zip(*responses, strict=True)]


def _count_command(
    counter: CostCounter, shape_worker: CommandExecutor, command: Command
) -> tuple[list[Share], Cost]:
    """Return the shapes of a worker's response, and the cost for its group."""
    before = counter.total
    shares = shape_worker.execute(command)
    return shares, counter.total - before


def _create_counter(runtime: Runtime) -> CostCounter:
    """Return a counter for one group, for the same participants as the runtime."""
    return (
        runtime.create_empty()
        if isinstance(runtime, CostCounter)
        else CostCounter(runtime.n_parties)
    )
