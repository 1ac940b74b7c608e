"""The prediction service: messages of the recipient, and the loops of participants and dealer.

A batch takes six delays of the network: the recipient names the ids; the others tell it which of
them they have; it tells them which all have; then the three rounds of a prediction, of these. Where
rows were aligned, it knows which ids all have and tells the others their positions: four delays.
If one of a batch's requests wants explanations, all of the batch is explained. A large batch goes
through workers, if the job has rows in shards (`on_call`).
While nobody asks, the recipient sends an empty list every second, so that all find out who is gone.

A newer model takes the place of the one that predicts between two batches, as soon as all have it:
the recipient asks for that, once a second, when it has one itself.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privet.arrays import BoolArray, FloatArray, IndexArray
from privet.boosting.prediction import Explained, answer, tell_unit
from privet.boosting.sharding import hand_out_outcomes
from privet.config.job import Job
from privet.data.frame import keys_of
from privet.errors import PeerMisbehavedError
from privet.federation.cluster.pool import NOBODY, OnCall
from privet.federation.prediction.prediction import tell_classes
from privet.federation.serving.model import Newest, ServedModel, can_use, own_columns, which_given
from privet.federation.serving.request_queue import Request, RequestQueue, parts_of
from privet.federation.session.agreement import NOT_AGREED
from privet.runtime.accounting import Meter
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.party import Party
from privet.spec.params import MOST_TABLES
from privet.transport.channel import Channel, Expected, pack, receive, send, unpack

STOP = b"stop"
"""The recipient's last message."""
PREDICT, EXPLAIN = b"p", b"e"
"""How its messages about a batch begin."""
OFFER, SWITCH = b"m", b"n"
"""How those begin that ask the others for a newer model, and that have all predict with it."""


def wants_reasons(job: Job, message: bytes) -> bool:
    """Tell whether the recipient wants a batch explained; raise if the job does not have that."""
    recipient, how = job.names[job.recipient_index], message[:1]
    if how not in (PREDICT, EXPLAIN):
        raise PeerMisbehavedError(recipient, "asked for neither predictions nor the end")
    if how == EXPLAIN and job.explain is None:
        raise PeerMisbehavedError(recipient, NOT_AGREED)
    return how == EXPLAIN


class DealerOfService:
    """The program of the dealer, which learns how many rows a batch has, and if it is explained.

    Of a newer model it learns how many tables and features it has, as of the first one.
    """

    def __init__(
        self,
        job: Job,
        channel: Channel,
        n_features: int,
        tables: int,
        on_call: OnCall = NOBODY,
    ) -> None:
        self._job = job
        self._on_call = on_call
        self._channel = channel
        self._n_features = n_features
        self._tables = tables

    def __call__(self, runtime: Dealer, _: None) -> None:
        """Deal batch after batch."""
        recipient = self._job.names[self._job.recipient_index]
        tell_unit(runtime, self._job.query(0, self._tables), None)
        with runtime.step("serve"):
            while (message := receive(self._channel, recipient)) != STOP:
                self._on_call.look()
                if found := re.fullmatch(SWITCH + rb"([0-9]{1,6}),([0-9]{1,6})", message):
                    self._tables, self._n_features = int(found[1]), int(found[2])
                    if not 0 < self._tables <= MOST_TABLES:
                        problem = f"has a model of {self._tables} tables: there is none"
                        raise PeerMisbehavedError(recipient, problem)
                    tell_unit(runtime, self._job.query(0, self._tables), None)
                    continue
                if not re.fullmatch(rb"[pe][0-9]{1,7}", message):
                    raise PeerMisbehavedError(recipient, "asked for what is no number of rows")
                explain = wants_reasons(self._job, message)
                if rows := int(message[1:]):
                    features = self._n_features if explain else None
                    query = self._job.query(rows, self._tables, features)
                    crowd = self._on_call.crowd(rows)
                    if crowd is not None:
                        hand_out_outcomes(runtime, crowd, query.shape, None, None)
                    answer(runtime, query, self._job.names, None, None, None, crowd)
                    runtime.leave_for_good()
                self._channel.send(recipient, np.empty(0, dtype=np.uint8))


_PULSE_SECONDS = 1.0
_MOST_ASKED = 1 << 29
"""Bytes of the ids of one batch: more than the recipient's endpoint takes."""
_POSITION = np.dtype("<u4")
_NOTHING = Expected(np.dtype(np.uint8), (0,))
_FLAG = Expected(np.dtype(np.uint8), (1,))


@dataclass(frozen=True, eq=False)
class _Known:
    """Of some ids that are asked for, which are known to whom."""

    to_all: BoolArray
    by_name: Mapping[str, BoolArray]
    """To each participant; to nobody, where rows were aligned and it does not show."""


class Service(ABC):
    """The program of a participant in one session; the recipient alone has a queue."""

    def __init__(
        self,
        model: ServedModel,
        job: Job,
        channel: Channel,
        newest: Newest,
        queue: RequestQueue | None,
        on_call: OnCall = NOBODY,
        adopted: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._model = model
        self._job = job
        self._channel = channel
        self._newest = newest
        self._queue = queue
        self._on_call = on_call
        self._adopted = adopted
        self._workers_metered: list[Meter] = []
        self._offered = model
        self._next_offer = 0.0
        outputs = job.hyper_parameters().objective.outputs
        self._of_a_row = (outputs,) if outputs > 1 else ()
        self._recipient = job.names[job.recipient_index]
        self._peers = [name for name in job.names if name != channel.name]

    def __call__(self, runtime: Party, _: None) -> None:
        """Run batch after batch."""
        self._runtime = runtime
        self._adopt(self._model)
        if self._queue is not None:
            self._before = replace(self._queue.served)
        batch = self._lead if self._queue is not None else self._follow
        with runtime.step("serve"):
            while batch():
                self._on_call.look()

    @property
    def model(self) -> ServedModel:
        """What predicts."""
        return self._model

    def _adopt(self, model: ServedModel) -> None:
        """Predict with a model from now on, as all others do."""
        runtime, file = self._runtime, model.file
        self._model = model
        self._unit = tell_unit(runtime, self._job.query(0, file.part.n_tables), file.part)
        self._classes = tell_classes(runtime, self._channel, self._job, file)
        if self._queue is not None:
            self._queue.model = model.name
        self._adopted(model.name)

    def _predict(self, columns: FloatArray, explain: bool) -> FloatArray | Explained | None:
        """Predict rows of ours, with the others, and explain the predictions or not."""
        runtime = self._runtime
        part = self._model.file.part
        features = len(part.features) if explain else None
        query = self._job.query(columns.shape[1], part.n_tables, features)
        crowd = self._on_call.crowd(columns.shape[1])
        if crowd is not None:
            hand_out_outcomes(runtime, crowd, query.shape, part, columns)
        found = answer(runtime, query, self._job.names, part, columns, self._unit, crowd)
        if crowd is not None and self._queue is not None:
            self._workers_metered = self._on_call.metered()
        runtime.ledger.compact()
        runtime.leave_for_good()
        return found

    @abstractmethod
    def _ask(self, how: bytes, asked: Sequence[str], rows: IndexArray, given: BoolArray) -> _Known:
        """Tell the others what is asked for; return who has it, as far as we learn that.

        The message begins with how it is asked for. We have those that have a row of ours, and
        those that were given to us.
        """

    @abstractmethod
    def _understand(self, message: bytes) -> IndexArray:
        """Return our rows that the recipient asks for, and that all have.

        From its message, without how it begins.
        """

    def _follow(self) -> bool:
        """Answer one message of the recipient: a batch, a sign of life, a model, or the end."""
        message = receive(self._channel, self._recipient, _MOST_ASKED)
        if message == STOP:
            return False
        how, content = message[:1], message[1:]
        if how == OFFER:
            self._offered = self._newest()
            has = self._offered.name.encode() == content
            self._channel.send(self._recipient, np.array([has], dtype=np.uint8))
        elif how == SWITCH:
            if self._offered.name.encode() != content:
                raise PeerMisbehavedError(self._recipient, "wants a model that we did not promise")
            self._adopt(self._offered)
        else:
            explain = wants_reasons(self._job, message)
            chosen = self._understand(content)
            if len(chosen):
                columns = self._model.frame.columns
                self._predict(np.ascontiguousarray(columns[:, chosen]), explain)
        return True

    def _lead(self) -> bool:
        """Run what waits in the queue, or show that we are there; end when it is closed."""
        assert self._queue is not None
        self._offer()
        taken = self._queue.take(_PULSE_SECONDS)
        requests = [request for request in taken if can_use(self._model, request)]
        if not taken and self._queue.closed:
            send(self._channel, [*self._peers, *self._job.dealer_names], STOP)
            return False
        started = time.perf_counter()
        parts = [parts_of(identity) for request in requests for identity in request.ids]
        asked = keys_of(parts, self._job.ids.rules)
        rows = self._model.find(asked)
        explain = any(request.explain for request in requests)
        how = EXPLAIN if explain else PREDICT
        known = self._ask(how, asked, rows, which_given(requests))
        dealers = self._job.dealer_names
        send(self._channel, dealers, how + str(np.count_nonzero(known.to_all)).encode())
        found = None
        if known.to_all.any():
            columns = own_columns(self._model, requests, rows, known.to_all)
            found = self._predict(columns, explain)
        # Dealers answer when they are done with a batch, so that their silence is noticed, too.
        for dealer in dealers:
            self._channel.receive(dealer, _NOTHING)
        if requests:
            self._answer(requests, known, found, time.perf_counter() - started)
        return True

    def _offer(self) -> None:
        """Have all predict with a newer model, if we have one and all others do, too."""
        newest = self._newest()
        if newest is self._model or time.monotonic() < self._next_offer:
            return
        self._next_offer = time.monotonic() + _PULSE_SECONDS
        name = newest.name.encode()
        send(self._channel, self._peers, OFFER + name)
        # All of them, not only up to the first that has it not: each answers.
        ready = [bool(self._channel.receive(peer, _FLAG)[0]) for peer in self._peers]
        if not all(ready):
            return
        send(self._channel, self._peers, SWITCH + name)
        part = newest.file.part
        size = b"%d,%d" % (part.n_tables, len(part.features))
        send(self._channel, self._job.dealer_names, SWITCH + size)
        self._adopt(newest)

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
        served.rows += len(known.to_all)
        served.batches += 1
        served.seconds += seconds
        served.note_traffic(self._runtime.meter, self._workers_metered, self._before)
        values = np.full((*self._of_a_row, len(known.to_all)), np.nan)
        if found is not None:
            values[..., known.to_all] = getattr(found, "predictions", found)
        place = np.cumsum(known.to_all) - 1
        start = 0
        for request in requests:
            end = start + len(request.ids)
            request.classes = self._classes
            request.predictions = values[..., start:end]
            if isinstance(found, Explained) and known.to_all[start:end].all():
                request.explained = found.take(place[start:end])
            for position in np.flatnonzero(~known.to_all[start:end]).tolist():
                lacking = [n for n, has in known.by_name.items() if not has[start + position]]
                request.unknown[", ".join(parts_of(request.ids[position]))] = lacking
            served.requests += 1
            request.settle()
            start = end


class ServiceByIds(Service):
    """Rows were not aligned: for every batch, participants find out which ids all have."""

    def _ask(self, how: bytes, asked: Sequence[str], rows: IndexArray, given: BoolArray) -> _Known:
        send(self._channel, self._peers, how + pack(asked))
        due = Expected(np.dtype(np.uint8), rows.shape)
        told = {peer: self._channel.receive(peer, due).astype(np.bool_) for peer in self._peers}
        told[self._channel.name] = (rows >= 0) | given
        to_all: BoolArray = np.logical_and.reduce(list(told.values()))
        for peer in self._peers:
            self._channel.send(peer, to_all.astype(np.uint8))
        return _Known(to_all, {name: told[name] for name in self._job.names})

    def _understand(self, message: bytes) -> IndexArray:
        try:
            rows = self._model.find(unpack(message))
        except ValueError:
            raise PeerMisbehavedError(self._recipient, "asked for what are no ids") from None
        self._channel.send(self._recipient, (rows >= 0).astype(np.uint8))
        common = self._channel.receive(self._recipient, Expected(np.dtype(np.uint8), rows.shape))
        chosen: IndexArray = rows[common.astype(bool)]
        if (chosen < 0).any():
            raise PeerMisbehavedError(self._recipient, "asks for rows that we do not have")
        return chosen


class ServiceByPositions(Service):
    """Rows were aligned: all have those that the recipient has, in the same order.

    Of a row that was given to it the others have theirs only if it is one of these, too.
    """

    def _ask(self, how: bytes, asked: Sequence[str], rows: IndexArray, given: BoolArray) -> _Known:
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
        elif rows.max() >= len(self._model.rows):
            raise PeerMisbehavedError(self._recipient, "asks for rows that are not common to all")
        return rows
