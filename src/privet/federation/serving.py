"""Prediction as a service: participants stay connected, the recipient asks by ids.

A batch takes six delays of the network: the recipient names the ids; the others tell it which of
them they have; it tells them which all have; then the three rounds of a prediction, of these. Where
rows were aligned, it knows which ids all have and tells the others their positions: four delays.
If one of a batch's requests wants explanations, all of the batch is explained.
While nobody asks, the recipient sends an empty list every second, so that all find out who is gone.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from privet.arrays import BoolArray, FloatArray, IndexArray
from privet.boosting.inference import Explained, answer, tell_unit
from privet.data.frame import Frame
from privet.data.ids import keys_of
from privet.errors import PeerMisbehavedError
from privet.federation.agreement import Statement, agree_on_purpose, agree_on_rows
from privet.federation.classes import tell_classes
from privet.federation.common_rows import alignments_of, find_common
from privet.federation.events import Event
from privet.federation.holdings import Holding
from privet.federation.messages import pack, receive, send, unpack
from privet.federation.party_report import Reveal, reveals
from privet.federation.request_queue import Request, RequestQueue, parts_of
from privet.federation.service import EXPLAIN, PREDICT, STOP, wants_reasons
from privet.federation.session import Seat
from privet.files.job import Job
from privet.files.part_file import PartFile
from privet.runtime.party import Party
from privet.runtime.roles import run_party
from privet.transport.channel import Channel, Expected

_PULSE_SECONDS = 1.0
_POSITION = np.dtype("<u4")
_NOTHING = Expected(np.dtype(np.uint8), (0,))
Predict = Callable[[IndexArray, bool], FloatArray | Explained | None]
"""Predicts some of our rows, with the others, and explains the predictions or not."""


@dataclass(frozen=True, eq=False)
class _Known:
    """Of some ids that are asked for, which are known to whom."""

    to_all: BoolArray
    by_name: Mapping[str, BoolArray]
    """To each participant; to nobody, where rows were aligned and it does not show."""


def serve_part(
    file: PartFile,
    frame: Frame,
    seat: Seat,
    folder: str | Path,
    queue: RequestQueue | None = None,
    on_ready: Callable[[], None] | None = None,
) -> list[Reveal]:
    """Answer predictions until the recipient, who alone has a queue, closes it.

    Where the job aligns rows, those that all have can be asked for; alignments are counted in a
    folder. Returns what was revealed, to whom.
    """
    job, common = seat.job, None
    assert frame.ids is not None
    alignments = alignments_of(job, frame.ids, folder)
    with seat.meet() as channel:
        statement = Statement.of(job, command="serve", model=file.model, aligned=alignments.count)
        purpose = agree_on_purpose(channel, job, statement)
        if job.align:
            common = find_common(channel, job, purpose, frame.ids, alignments, seat.tell)
            frame = frame.take(common.rows)
        # What explains takes as many numbers from the dealer as there are features.
        n_features = 0 if job.explain is None else len(file.part.own_features)
        holding = Holding(samples=0, n_features=n_features, tables=file.part.n_tables)
        agree_on_rows(channel, job, purpose, holding)
        seat.tell(
            Event("serving", f"serving {frame.n_samples:,} rows", {"samples": frame.n_samples})
        )
        if queue is not None:
            queue.open()
        if on_ready is not None:
            on_ready()
        kind = _ServiceByIds if common is None else _ServiceByPositions
        program = kind(file, job, channel, frame, queue)
        try:
            index = job.names.index(seat.name)
            record = run_party(
                program, index, job.names, frame.columns, channel, dealers=job.dealer_names
            )
        finally:
            if queue is not None:
                queue.abandon("the service has ended")
    return [*([] if common is None else common.report.reveals), *reveals(record.ledger)]


class _Service(ABC):
    """The program of a participant."""

    def __init__(
        self, file: PartFile, job: Job, channel: Channel, frame: Frame, queue: RequestQueue | None
    ) -> None:
        self._file = file
        self._job = job
        self._channel = channel
        self._queue = queue
        self._tables = file.part.n_tables
        outputs = job.hyper_parameters().objective.outputs
        self._of_a_row = (outputs,) if outputs > 1 else ()
        self._recipient = job.names[job.recipient_index]
        self._peers = [name for name in job.names if name != channel.name]
        assert frame.ids is not None
        self._rows = {key: row for row, key in enumerate(frame.ids.keys.to_pylist())}

    def __call__(self, runtime: Party, columns: FloatArray) -> None:
        """Run batch after batch."""
        unit = tell_unit(runtime, self._job.query(0, self._tables), self._file.part)
        classes = tell_classes(runtime, self._channel, self._job, self._file)
        if self._queue is not None:
            self._queue.classes = classes
        batch = self._lead if self._queue is not None else self._follow

        def predicted(rows: IndexArray, explain: bool) -> FloatArray | Explained | None:
            part = self._file.part
            features = len(part.features) if explain else None
            query = self._job.query(len(rows), part.n_tables, features)
            chosen = np.ascontiguousarray(columns[:, rows])
            found = answer(runtime, query, self._job.names, part, chosen, unit)
            runtime.ledger.compact()
            return found

        with runtime.step("serve"):
            while batch(predicted):
                pass

    @abstractmethod
    def _ask(self, how: bytes, asked: Sequence[str], rows: IndexArray) -> _Known:
        """Tell the others what is asked for; return who has it, as far as we learn that.

        The message begins with how it is asked for.
        """

    @abstractmethod
    def _understand(self, message: bytes) -> IndexArray:
        """Return our rows that the recipient asks for, and that all have.

        From its message, without how it begins.
        """

    def _find(self, asked: Sequence[str]) -> IndexArray:
        """Return which of our rows have these keys; -1 where we have none."""
        return np.array([self._rows.get(key, -1) for key in asked], dtype=np.intp)

    def _follow(self, predicted: Predict) -> bool:
        """Answer one message of the recipient: a batch, a sign of life, or the end."""
        message = receive(self._channel, self._recipient)
        if message == STOP:
            return False
        explain = wants_reasons(self._job, message)
        chosen = self._understand(message[1:])
        if len(chosen):
            predicted(chosen, explain)
        return True

    def _lead(self, predicted: Predict) -> bool:
        """Run what waits in the queue, or show that we are there; end when it is closed."""
        assert self._queue is not None
        requests = self._queue.take(_PULSE_SECONDS)
        if not requests and self._queue.closed:
            send(self._channel, [*self._peers, *self._job.dealer_names], STOP)
            return False
        started = time.perf_counter()
        parts = [parts_of(identity) for request in requests for identity in request.ids]
        asked = keys_of(parts, self._job.ids.rules)
        rows = self._find(asked)
        explain = any(request.explain for request in requests)
        how = EXPLAIN if explain else PREDICT
        known = self._ask(how, asked, rows)
        dealers = self._job.dealer_names
        send(self._channel, dealers, how + str(np.count_nonzero(known.to_all)).encode())
        found = predicted(rows[known.to_all], explain) if known.to_all.any() else None
        # Dealers answer when they are done with a batch, so that their silence is noticed, too.
        for dealer in dealers:
            self._channel.receive(dealer, _NOTHING)
        if requests:
            self._answer(requests, known, found, time.perf_counter() - started)
        return True

    def _answer(
        self,
        requests: Sequence[Request],
        known: _Known,
        found: FloatArray | Explained | None,
        seconds: float,
    ) -> None:
        """Give every request its own predictions, or the ids that somebody does not have."""
        assert self._queue is not None
        served = self._queue.served
        values = np.full((*self._of_a_row, len(known.to_all)), np.nan)
        if found is not None:
            values[..., known.to_all] = getattr(found, "predictions", found)
        place = np.cumsum(known.to_all) - 1
        start = 0
        for request in requests:
            end = start + len(request.ids)
            request.predictions = values[..., start:end]
            if isinstance(found, Explained) and known.to_all[start:end].all():
                request.explained = found.take(place[start:end])
            for position in np.flatnonzero(~known.to_all[start:end]).tolist():
                lacking = [n for n, has in known.by_name.items() if not has[start + position]]
                request.unknown[", ".join(parts_of(request.ids[position]))] = lacking
            request.answered.set()
            served.requests += 1
            start = end
        served.rows += len(known.to_all)
        served.batches += 1
        served.seconds += seconds


class _ServiceByIds(_Service):
    """Rows were not aligned: for every batch, participants find out which ids all have."""

    def _ask(self, how: bytes, asked: Sequence[str], rows: IndexArray) -> _Known:
        send(self._channel, self._peers, how + pack(asked))
        due = Expected(np.dtype(np.uint8), rows.shape)
        told = {peer: self._channel.receive(peer, due).astype(np.bool_) for peer in self._peers}
        told[self._channel.name] = rows >= 0
        to_all: BoolArray = np.logical_and.reduce(list(told.values()))
        for peer in self._peers:
            self._channel.send(peer, to_all.astype(np.uint8))
        return _Known(to_all, {name: told[name] for name in self._job.names})

    def _understand(self, message: bytes) -> IndexArray:
        try:
            rows = self._find(unpack(message))
        except ValueError:
            raise PeerMisbehavedError(self._recipient, "asked for what are no ids") from None
        self._channel.send(self._recipient, (rows >= 0).astype(np.uint8))
        common = self._channel.receive(self._recipient, Expected(np.dtype(np.uint8), rows.shape))
        chosen: IndexArray = rows[common.astype(bool)]
        if (chosen < 0).any():
            raise PeerMisbehavedError(self._recipient, "asks for rows that we do not have")
        return chosen


class _ServiceByPositions(_Service):
    """Rows were aligned: all have those that the recipient has, in the same order."""

    def _ask(self, how: bytes, asked: Sequence[str], rows: IndexArray) -> _Known:
        there = rows >= 0
        send(self._channel, self._peers, how + rows[there].astype(_POSITION).tobytes())
        if not there.any():
            # A batch would show who is gone. Nothing to do does not, so the others answer.
            for peer in self._peers:
                self._channel.receive(peer, _NOTHING)
        return _Known(there, {})

    def _understand(self, message: bytes) -> IndexArray:
        if len(message) % _POSITION.itemsize:
            raise PeerMisbehavedError(self._recipient, "asked for what are no positions")
        rows = np.frombuffer(message, _POSITION).astype(np.intp)
        if not len(rows):
            self._channel.send(self._recipient, np.empty(0, dtype=np.uint8))
        elif rows.max() >= len(self._rows):
            raise PeerMisbehavedError(self._recipient, "asks for rows that are not common to all")
        return rows
