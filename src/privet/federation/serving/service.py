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
from privet.boosting.prediction import ExplainedPredictions, answer_query, reveal_label_unit
from privet.boosting.sharding import send_outcomes
from privet.config.job import Job
from privet.data.frame import make_match_keys
from privet.errors import PeerMisbehavedError
from privet.federation.cluster.pool import NO_POOL, LazyPool
from privet.federation.prediction.prediction import reveal_class_names
from privet.federation.serving.model import (
    GetModel,
    ServedModel,
    accept_or_reject,
    find_inline_rows,
    make_recipient_features,
)
from privet.federation.serving.request_queue import PredictionRequest, RequestQueue, split_id
from privet.federation.session.agreement import EXPLANATIONS_DISABLED_TEXT
from privet.runtime.accounting import Meter
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.party import Party
from privet.spec.params import MAX_TABLES
from privet.transport.channel import (
    Channel,
    Expected,
    pack_texts,
    receive_message,
    send_message,
    unpack_texts,
)

STOP = b"stop"
"""The recipient's last message."""
PREDICT, EXPLAIN = b"p", b"e"
"""How its messages about a batch begin."""
PROPOSE_MODEL, SWITCH_MODEL = b"m", b"n"
"""How those begin that ask the others for a newer model, and that have all predict with it."""


def is_explanation_requested(job: Job, message: bytes) -> bool:
    """Tell whether the recipient wants a batch explained; raise if the job does not have that."""
    recipient, how = job.party_names[job.recipient_index], message[:1]
    if how not in (PREDICT, EXPLAIN):
        raise PeerMisbehavedError(recipient, "asked for neither predictions nor the end")
    if how == EXPLAIN and job.explain is None:
        raise PeerMisbehavedError(recipient, EXPLANATIONS_DISABLED_TEXT)
    return how == EXPLAIN


class DealerService:
    """The program of the dealer, which learns how many rows a batch has, and if it is explained.

    Of a newer model it learns how many tables and features it has, as of the first one.
    """

    def __init__(
        self,
        job: Job,
        channel: Channel,
        n_features: int,
        tables: int,
        lazy_pool: LazyPool = NO_POOL,
    ) -> None:
        self._job = job
        self._lazy_pool = lazy_pool
        self._channel = channel
        self._n_features = n_features
        self._tables = tables

    def __call__(self, runtime: Dealer, _: None) -> None:
        """Deal batch after batch."""
        recipient = self._job.party_names[self._job.recipient_index]
        reveal_label_unit(runtime, self._job.make_prediction_query(0, self._tables), None)
        with runtime.step("serve"):
            while (message := receive_message(self._channel, recipient)) != STOP:
                self._lazy_pool.check_workers()
                if found := re.fullmatch(SWITCH_MODEL + rb"([0-9]{1,6}),([0-9]{1,6})", message):
                    self._tables, self._n_features = int(found[1]), int(found[2])
                    if not 0 < self._tables <= MAX_TABLES:
                        problem = f"has a model of {self._tables} tables: there is none"
                        raise PeerMisbehavedError(recipient, problem)
                    reveal_label_unit(
                        runtime, self._job.make_prediction_query(0, self._tables), None
                    )
                    continue
                if not re.fullmatch(rb"[pe][0-9]{1,7}", message):
                    raise PeerMisbehavedError(recipient, "asked for what is no number of rows")
                explain = is_explanation_requested(self._job, message)
                if rows := int(message[1:]):
                    features = self._n_features if explain else None
                    query = self._job.make_prediction_query(rows, self._tables, features)
                    crowd = self._lazy_pool.get_batch_workers(rows)
                    if crowd is not None:
                        send_outcomes(runtime, crowd, query.shape, None, None)
                    answer_query(runtime, query, self._job.party_names, None, None, None, crowd)
                    runtime.forget_finished_draws()
                self._channel.send(recipient, np.empty(0, dtype=np.uint8))


_HEARTBEAT_SECONDS = 1.0
_MAX_MESSAGE_BYTES = 1 << 29
"""Bytes of the ids of one batch: more than the recipient's endpoint takes."""
_POSITION = np.dtype("<u4")
_ACKNOWLEDGEMENT_LAYOUT = Expected(np.dtype(np.uint8), (0,))
_FLAG = Expected(np.dtype(np.uint8), (1,))


@dataclass(frozen=True, eq=False)
class _KnownIds:
    """Of some ids that are asked for, which are known to whom."""

    to_all: BoolArray
    by_name: Mapping[str, BoolArray]
    """To each participant; to nobody, where rows were aligned and it does not show."""


class PredictionService(ABC):
    """The program of a participant in one session; the recipient alone has a queue."""

    def __init__(
        self,
        model: ServedModel,
        job: Job,
        channel: Channel,
        get_model: GetModel,
        queue: RequestQueue | None,
        lazy_pool: LazyPool = NO_POOL,
        on_model_switched: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._model = model
        self._job = job
        self._channel = channel
        self._get_model = get_model
        self._queue = queue
        self._lazy_pool = lazy_pool
        self._on_model_switched = on_model_switched
        self._worker_meters: list[Meter] = []
        self._proposed_model = model
        self._next_proposal = 0.0
        outputs = job.make_params().objective.n_outputs
        self._output_shape = (outputs,) if outputs > 1 else ()
        self._recipient = job.party_names[job.recipient_index]
        self._peers = [name for name in job.party_names if name != channel.name]

    def __call__(self, runtime: Party, _: None) -> None:
        """Run batch after batch."""
        self._runtime = runtime
        self._switch_model(self._model)
        if self._queue is not None:
            self._before = replace(self._queue.stats)
        batch = self._run_batch if self._queue is not None else self._answer_message
        with runtime.step("serve"):
            while batch():
                self._lazy_pool.check_workers()

    @property
    def model(self) -> ServedModel:
        """What predicts."""
        return self._model

    def _switch_model(self, model: ServedModel) -> None:
        """Predict with a model from now on, as all others do."""
        runtime, file = self._runtime, model.part_file
        self._model = model
        self._unit = reveal_label_unit(
            runtime, self._job.make_prediction_query(0, file.part.n_tables), file.part
        )
        self._classes = reveal_class_names(runtime, self._channel, self._job, file)
        if self._queue is not None:
            self._queue.model_id = model.model_id
        self._on_model_switched(model.model_id)

    def _predict(
        self, columns: FloatArray, explain: bool
    ) -> FloatArray | ExplainedPredictions | None:
        """Predict rows of ours, with the others, and explain the predictions or not."""
        runtime = self._runtime
        part = self._model.part_file.part
        features = len(part.features) if explain else None
        query = self._job.make_prediction_query(columns.shape[1], part.n_tables, features)
        crowd = self._lazy_pool.get_batch_workers(columns.shape[1])
        if crowd is not None:
            send_outcomes(runtime, crowd, query.shape, part, columns)
        found = answer_query(
            runtime, query, self._job.party_names, part, columns, self._unit, crowd
        )
        if crowd is not None and self._queue is not None:
            self._worker_meters = self._lazy_pool.collect_meters()
        runtime.ledger.compact()
        runtime.forget_finished_draws()
        return found

    @abstractmethod
    def _announce_request(
        self, message_type: bytes, match_keys: Sequence[str], rows: IndexArray, is_inline: BoolArray
    ) -> _KnownIds:
        """Tell the others what is asked for; return who has it, as far as we learn that.

        The message begins with how it is asked for. We have those that have a row of ours, and
        those that were given to us.
        """

    @abstractmethod
    def _parse_rows(self, message: bytes) -> IndexArray:
        """Return our rows that the recipient asks for, and that all have.

        From its message, without how it begins.
        """

    def _answer_message(self) -> bool:
        """Answer one message of the recipient: a batch, a sign of life, a model, or the end."""
        message = receive_message(self._channel, self._recipient, _MAX_MESSAGE_BYTES)
        if message == STOP:
            return False
        how, content = message[:1], message[1:]
        if how == PROPOSE_MODEL:
            self._proposed_model = self._get_model()
            has = self._proposed_model.model_id.encode() == content
            self._channel.send(self._recipient, np.array([has], dtype=np.uint8))
        elif how == SWITCH_MODEL:
            if self._proposed_model.model_id.encode() != content:
                raise PeerMisbehavedError(self._recipient, "wants a model that we did not promise")
            self._switch_model(self._proposed_model)
        else:
            explain = is_explanation_requested(self._job, message)
            chosen = self._parse_rows(content)
            if len(chosen):
                columns = self._model.frame.columns
                self._predict(np.ascontiguousarray(columns[:, chosen]), explain)
        return True

    def _run_batch(self) -> bool:
        """Run what waits in the queue, or show that we are there; end when it is closed."""
        assert self._queue is not None
        self._propose_new_model()
        taken = self._queue.take_batch(_HEARTBEAT_SECONDS)
        requests = [request for request in taken if accept_or_reject(self._model, request)]
        if not taken and self._queue.is_closed:
            send_message(self._channel, [*self._peers, *self._job.dealer_names], STOP)
            return False
        started = time.perf_counter()
        parts = [split_id(identity) for request in requests for identity in request.ids]
        asked = make_match_keys(parts, self._job.ids.rules_by_part)
        rows = self._model.find_rows(asked)
        explain = any(request.explain for request in requests)
        how = EXPLAIN if explain else PREDICT
        known = self._announce_request(how, asked, rows, find_inline_rows(requests))
        dealers = self._job.dealer_names
        send_message(self._channel, dealers, how + str(np.count_nonzero(known.to_all)).encode())
        found = None
        if known.to_all.any():
            columns = make_recipient_features(self._model, requests, rows, known.to_all)
            found = self._predict(columns, explain)
        # Dealers answer when they are done with a batch, so that their silence is noticed, too.
        for dealer in dealers:
            self._channel.receive(dealer, _ACKNOWLEDGEMENT_LAYOUT)
        if requests:
            self._complete_requests(requests, known, found, time.perf_counter() - started)
        return True

    def _propose_new_model(self) -> None:
        """Have all predict with a newer model, if we have one and all others do, too."""
        newest = self._get_model()
        if newest is self._model or time.monotonic() < self._next_proposal:
            return
        self._next_proposal = time.monotonic() + _HEARTBEAT_SECONDS
        name = newest.model_id.encode()
        send_message(self._channel, self._peers, PROPOSE_MODEL + name)
        # All of them, not only up to the first that has it not: each answers.
        ready = [bool(self._channel.receive(peer, _FLAG)[0]) for peer in self._peers]
        if not all(ready):
            return
        send_message(self._channel, self._peers, SWITCH_MODEL + name)
        part = newest.part_file.part
        size = b"%d,%d" % (part.n_tables, len(part.features))
        send_message(self._channel, self._job.dealer_names, SWITCH_MODEL + size)
        self._switch_model(newest)

    def _complete_requests(
        self,
        requests: Sequence[PredictionRequest],
        known: _KnownIds,
        result: FloatArray | ExplainedPredictions | None,
        seconds: float,
    ) -> None:
        """Give every request its own predictions, or the ids that somebody does not have."""
        assert self._queue is not None
        served = self._queue.stats
        served.rows += len(known.to_all)
        served.batches += 1
        served.seconds += seconds
        served.add_traffic(self._runtime.meter, self._worker_meters, self._before)
        values = np.full((*self._output_shape, len(known.to_all)), np.nan)
        if result is not None:
            values[..., known.to_all] = getattr(result, "predictions", result)
        place = np.cumsum(known.to_all) - 1
        start = 0
        for request in requests:
            end = start + len(request.ids)
            request.classes = self._classes
            request.predictions = values[..., start:end]
            if isinstance(result, ExplainedPredictions) and known.to_all[start:end].all():
                request.explanation = result.take(place[start:end])
            for position in np.flatnonzero(~known.to_all[start:end]).tolist():
                lacking = [n for n, has in known.by_name.items() if not has[start + position]]
                request.unknown_ids[", ".join(split_id(request.ids[position]))] = lacking
            served.requests += 1
            request.mark_done()
            start = end


class UnalignedService(PredictionService):
    """Rows were not aligned: for every batch, participants find out which ids all have."""

    def _announce_request(
        self, message_type: bytes, match_keys: Sequence[str], rows: IndexArray, is_inline: BoolArray
    ) -> _KnownIds:
        send_message(self._channel, self._peers, message_type + pack_texts(match_keys))
        due = Expected(np.dtype(np.uint8), rows.shape)
        told = {peer: self._channel.receive(peer, due).astype(np.bool_) for peer in self._peers}
        told[self._channel.name] = (rows >= 0) | is_inline
        to_all: BoolArray = np.logical_and.reduce(list(told.values()))
        for peer in self._peers:
            self._channel.send(peer, to_all.astype(np.uint8))
        return _KnownIds(to_all, {name: told[name] for name in self._job.party_names})

    def _parse_rows(self, message: bytes) -> IndexArray:
        try:
            rows = self._model.find_rows(unpack_texts(message))
        except ValueError:
            raise PeerMisbehavedError(self._recipient, "asked for what are no ids") from None
        self._channel.send(self._recipient, (rows >= 0).astype(np.uint8))
        common = self._channel.receive(self._recipient, Expected(np.dtype(np.uint8), rows.shape))
        chosen: IndexArray = rows[common.astype(bool)]
        if (chosen < 0).any():
            raise PeerMisbehavedError(self._recipient, "asks for rows that we do not have")
        return chosen


class AlignedService(PredictionService):
    """Rows were aligned: all have those that the recipient has, in the same order.

    Of a row that was given to it the others have theirs only if it is one of these, too.
    """

    def _announce_request(
        self, message_type: bytes, match_keys: Sequence[str], rows: IndexArray, is_inline: BoolArray
    ) -> _KnownIds:
        there = rows >= 0
        send_message(
            self._channel, self._peers, message_type + rows[there].astype(_POSITION).tobytes()
        )
        if not there.any():
            # A batch would show who is gone. Nothing to do does not, so the others answer.
            for peer in self._peers:
                self._channel.receive(peer, _ACKNOWLEDGEMENT_LAYOUT)
        return _KnownIds(there, {})

    def _parse_rows(self, message: bytes) -> IndexArray:
        if len(message) % _POSITION.itemsize:
            raise PeerMisbehavedError(self._recipient, "asked for what are no positions")
        rows = np.frombuffer(message, _POSITION).astype(np.intp)
        if not len(rows):
            self._channel.send(self._recipient, np.empty(0, dtype=np.uint8))
        elif rows.max() >= len(self._model.row_by_key):
            raise PeerMisbehavedError(self._recipient, "asks for rows that are not common to all")
        return rows
