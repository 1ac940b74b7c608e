"""Prediction as a service: participants stay connected, the recipient asks by ids.

A batch takes six delays of the network: the recipient names the ids; the others tell it which of
them they have; it tells them which all have; then the three rounds of a prediction, of these. While
nobody asks, the recipient sends an empty list every second, so that all find out who is gone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

import numpy as np

from privet.arrays import BoolArray, FloatArray, IndexArray
from privet.boosting.inference import predict, tell_unit
from privet.data.frame import Frame
from privet.errors import PeerMisbehavedError
from privet.federation.agreement import Statement, agree
from privet.federation.events import Event
from privet.federation.messages import pack, receive, send, unpack
from privet.federation.party_report import Reveal, reveals
from privet.federation.request_queue import Request, RequestQueue
from privet.federation.session import Seat
from privet.files.job import Job
from privet.files.part_file import PartFile
from privet.runtime.dealer import Dealer
from privet.runtime.party import Party
from privet.runtime.roles import DEALER, run_party
from privet.transport.channel import Channel, Expected

_PULSE_SECONDS = 1.0
_STOP = b"stop"
Predict = Callable[[IndexArray], FloatArray | None]
"""Predicts some of our rows, with the others."""


def serve_part(
    file: PartFile,
    frame: Frame,
    seat: Seat,
    queue: RequestQueue | None = None,
    on_ready: Callable[[], None] | None = None,
) -> list[Reveal]:
    """Answer predictions until the recipient, who alone has a queue, closes it.

    Returns what was revealed, to whom.
    """
    job = seat.job
    with seat.meet() as channel:
        statement = Statement.of(job, command="serve", samples=0, model=file.model)
        agree(channel, job, statement)
        seat.tell(
            Event("serving", f"serving {frame.n_samples:,} rows", {"samples": frame.n_samples})
        )
        if queue is not None:
            queue.open()
        if on_ready is not None:
            on_ready()
        program = _Service(file, job, channel, frame, queue)
        try:
            index = job.names.index(seat.name)
            record = run_party(program, index, job.names, frame.columns, channel)
        finally:
            if queue is not None:
                queue.abandon("the service has ended")
    return reveals(record.ledger)


class _Service:
    """The program of a participant."""

    def __init__(
        self, file: PartFile, job: Job, channel: Channel, frame: Frame, queue: RequestQueue | None
    ) -> None:
        self._file = file
        self._job = job
        self._channel = channel
        self._queue = queue
        self._recipient = job.names[job.recipient_index]
        self._peers = [name for name in job.names if name != channel.name]
        assert frame.ids is not None
        self._rows = {identity: row for row, identity in enumerate(frame.ids.tolist())}

    def __call__(self, runtime: Party, columns: FloatArray) -> None:
        """Run batch after batch."""
        unit = tell_unit(runtime, self._job.query(0), self._file.part)
        batch = self._lead if self._queue is not None else self._follow

        def predicted(rows: IndexArray) -> FloatArray | None:
            query = self._job.query(len(rows))
            chosen = np.ascontiguousarray(columns[:, rows])
            found = predict(runtime, query, self._job.names, self._file.part, chosen, unit)
            runtime.ledger.compact()
            return found

        with runtime.step("serve"):
            while batch(predicted):
                pass

    def _find(self, asked: Sequence[str]) -> IndexArray:
        """Return which of our rows the ids are; -1 where we have none."""
        return np.array([self._rows.get(identity, -1) for identity in asked], dtype=np.intp)

    def _follow(self, predicted: Predict) -> bool:
        """Answer one message of the recipient: a batch, a sign of life, or the end."""
        message = receive(self._channel, self._recipient)
        if message == _STOP:
            return False
        try:
            rows = self._find(unpack(message))
        except ValueError:
            raise PeerMisbehavedError(self._recipient, "asked for what are no ids") from None
        self._channel.send(self._recipient, (rows >= 0).astype(np.uint8))
        common = self._channel.receive(self._recipient, Expected(np.dtype(np.uint8), rows.shape))
        chosen = rows[common.astype(bool)]
        if (chosen < 0).any():
            raise PeerMisbehavedError(self._recipient, "asks for rows that we do not have")
        if len(chosen):
            predicted(chosen)
        return True

    def _lead(self, predicted: Predict) -> bool:
        """Run what waits in the queue, or show that we are there; end when it is closed."""
        assert self._queue is not None
        requests = self._queue.take(_PULSE_SECONDS)
        if not requests and self._queue.closed:
            send(self._channel, [*self._peers, DEALER], _STOP)
            return False
        started = time.perf_counter()
        asked = [identity for request in requests for identity in request.ids]
        send(self._channel, self._peers, pack(asked))
        rows = self._find(asked)
        known = self._known(rows)
        common: BoolArray = np.logical_and.reduce(known)
        for peer in self._peers:
            self._channel.send(peer, common.astype(np.uint8))
        send(self._channel, [DEALER], str(np.count_nonzero(common)).encode())
        found = predicted(rows[common]) if common.any() else None
        # The dealer answers when it is done with a batch, so that its silence is noticed, too.
        self._channel.receive(DEALER, Expected(np.dtype(np.uint8), (0,)))
        if requests:
            self._answer(requests, known, found, time.perf_counter() - started)
        return True

    def _known(self, rows: IndexArray) -> BoolArray:
        """Return which ids each participant has: (participants, ids)."""
        due = Expected(np.dtype(np.uint8), rows.shape)
        told = {peer: self._channel.receive(peer, due) for peer in self._peers}
        told[self._channel.name] = (rows >= 0).astype(np.uint8)
        return np.stack([told[name] for name in self._job.names]).astype(bool)

    def _answer(
        self,
        requests: Sequence[Request],
        known: BoolArray,
        predictions: FloatArray | None,
        seconds: float,
    ) -> None:
        """Give every request its own predictions, or the ids that somebody does not have."""
        assert self._queue is not None
        served = self._queue.served
        everywhere: BoolArray = np.logical_and.reduce(known)
        values = np.full(len(everywhere), np.nan)
        values[everywhere] = [] if predictions is None else predictions
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
        with runtime.step("serve"):
            while (message := receive(self._channel, recipient)) != _STOP:
                if not re.fullmatch(rb"[0-9]{1,7}", message):
                    raise PeerMisbehavedError(recipient, "asked for what is no number of rows")
                if rows := int(message):
                    predict(runtime, self._job.query(rows), self._job.names, None, None, None)
                self._channel.send(recipient, np.empty(0, dtype=np.uint8))
