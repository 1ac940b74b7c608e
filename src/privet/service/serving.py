"""Prediction as a service: participants stay connected, the recipient asks by ids.

A batch takes four delays of the network: the recipient names the ids; everybody says which of them
it has; then the two rounds of a prediction, of the ids that all have. While nobody asks, the
recipient sends an empty list every second, so that everybody finds out who is gone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence

import numpy as np

from privet.arrays import BoolArray, FloatArray, IndexArray
from privet.boosting.federation import predict, tell_unit
from privet.data.frame import Frame
from privet.errors import PeerMisbehavedError
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party
from privet.runtime.roles import DEALER, run_party
from privet.service.agreement import Statement, agree
from privet.service.desk import Desk, Request
from privet.service.events import Event
from privet.service.job import Job
from privet.service.messages import receive, send
from privet.service.part_file import PartFile
from privet.service.session import Seat
from privet.transport.channel import Channel, Expected

_PULSE_SECONDS = 1.0
_STOP = b"stop"


def serve_part(
    file: PartFile,
    frame: Frame,
    job: Job,
    seat: Seat,
    desk: Desk | None = None,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Answer predictions until the recipient, who alone has a desk, closes it."""
    with seat.meet() as channel:
        statement = Statement.of(job, command="serve", samples=0, model=file.model)
        agree(channel, job, statement, np.empty(0, dtype=np.str_))
        seat.tell(
            Event("serving", f"serving {frame.n_samples:,} rows", {"samples": frame.n_samples})
        )
        if on_ready is not None:
            on_ready()
        program = _Service(file, job, channel, frame, desk)
        try:
            run_party(program, job.names.index(seat.name), job.names, frame.columns, channel)
        finally:
            if desk is not None:
                desk.abandon("the service has ended")


class _Service:
    """The program of a participant."""

    def __init__(
        self, file: PartFile, job: Job, channel: Channel, frame: Frame, desk: Desk | None
    ) -> None:
        self._file = file
        self._job = job
        self._channel = channel
        self._desk = desk
        self._recipient = job.names[job.recipient_index]
        self._peers = [name for name in job.names if name != channel.name]
        assert frame.ids is not None
        self._rows = {str(identity): row for row, identity in enumerate(frame.ids)}

    def __call__(self, runtime: Party, columns: FloatArray) -> None:
        """Run batch after batch."""
        unit = tell_unit(runtime, self._job.query(0), self._file.part)
        while True:
            requests = None if self._desk is None else self._next_requests(self._desk)
            asked = self._announce(requests)
            if asked is None:
                return
            if not asked:
                continue
            started = time.perf_counter()
            rows = np.array([self._rows.get(identity, -1) for identity in asked], dtype=np.intp)
            known = self._compare(rows)
            ours = rows[np.logical_and.reduce(known)]
            predictions = np.empty(0)
            if requests is not None:
                send(self._channel, [DEALER], str(len(ours)).encode())
            if len(ours):
                query = self._job.query(len(ours))
                chosen = np.ascontiguousarray(columns[:, ours])
                found = predict(runtime, query, self._job.names, self._file.part, chosen, unit)
                predictions = predictions if found is None else found
            runtime.ledger.compact()
            if requests is not None and self._desk is not None:
                self._answer(requests, known, predictions, time.perf_counter() - started)

    def _next_requests(self, desk: Desk) -> list[Request] | None:
        """Return what to run next: nothing for now, or None for never."""
        requests = desk.take(_PULSE_SECONDS)
        return None if not requests and desk.closed else requests

    def _announce(self, requests: list[Request] | None) -> list[str] | None:
        """Return the ids of the next batch, which the recipient tells all; None at the end."""
        if self._channel.name != self._recipient:
            return self._parse(receive(self._channel, self._recipient))
        if requests is None:
            send(self._channel, [*self._peers, DEALER], _STOP)
            return None
        asked = [identity for request in requests for identity in request.ids]
        send(self._channel, self._peers, json.dumps(asked).encode())
        return asked

    def _parse(self, message: bytes) -> list[str] | None:
        if message == _STOP:
            return None
        try:
            asked = json.loads(message)
            assert isinstance(asked, list)
        except (ValueError, AssertionError, RecursionError):
            raise PeerMisbehavedError(self._recipient, "asked for what is no list") from None
        return [str(identity) for identity in asked]

    def _compare(self, rows: IndexArray) -> BoolArray:
        """Return which ids each participant has: (participants, ids)."""
        ours = (rows >= 0).astype(np.uint8)
        due = Expected(ours.dtype, ours.shape)
        peers = self._peers
        told = self._channel.exchange(dict.fromkeys(peers, ours), dict.fromkeys(peers, due))
        told[self._channel.name] = ours
        return np.stack([told[name] for name in self._job.names]).astype(bool)

    def _answer(
        self, requests: Sequence[Request], known: BoolArray, predictions: FloatArray, seconds: float
    ) -> None:
        """Give every request its own predictions, or the ids that somebody does not have."""
        assert self._desk is not None
        served = self._desk.served
        everywhere: BoolArray = np.logical_and.reduce(known)
        values = np.full(len(everywhere), np.nan)
        values[everywhere] = predictions
        start = 0
        for request in requests:
            end = start + len(request.ids)
            request.predictions = values[start:end].tolist()
            for position in np.flatnonzero(~everywhere[start:end]).tolist():
                lacking = np.flatnonzero(~known[:, start + position])
                request.unknown[request.ids[position]] = [self._job.names[k] for k in lacking]
            request.answered.set()
            served.requests += 1
            start = end
        served.rows += len(everywhere)
        served.batches += 1
        served.seconds += seconds


class DealerOfService:
    """The program of the dealer, which learns how many rows a batch has."""

    def __init__(self, job: Job, channel: Channel) -> None:
        self._job = job
        self._channel = channel

    def __call__(self, runtime: Dealer, _: None) -> None:
        """Deal batch after batch."""
        recipient = self._job.names[self._job.recipient_index]
        tell_unit(runtime, self._job.query(0), None)
        while (message := receive(self._channel, recipient)) != _STOP:
            if not message.isdigit():
                raise PeerMisbehavedError(recipient, "asked for something that is no number")
            if rows := int(message):
                predict(runtime, self._job.query(rows), self._job.names, None, None, None)
