"""The prediction service: messages of the recipient, and the loops of participants and dealer.

A batch takes six network delays. The recipient sends the ids, the other participants reply which of
them they have, and the recipient sends the common ids; then follow the three rounds of a
prediction. With aligned rows, the recipient knows the common ids and sends their positions, so a
batch takes four delays. If one request of a batch wants explanations, the whole batch is explained.
If the job has shards, workers predict large batches (`LazyPool`). Without requests, the recipient
sends an empty list every second as a heartbeat, so that all members detect a lost peer.

A newer model replaces the current one between two batches. The recipient proposes it, once a
second, when it has loaded it, and all switch when all participants have loaded it.
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
"""First byte of the recipient's messages about a batch."""
PROPOSE_MODEL, SWITCH_MODEL = b"m", b"n"
"""First byte of the messages that propose a newer model, and that switch to it."""


def is_explanation_requested(job: Job, message: bytes) -> bool:
    """Return whether the recipient wants a batch explained; raise if the job forbids it."""
    recipient, message_type = job.party_names[job.recipient_index], message[:1]
    if message_type not in (PREDICT, EXPLAIN):
        raise PeerMisbehavedError(recipient, "asked for neither predictions nor the end")
    if message_type == EXPLAIN and job.explain is None:
        raise PeerMisbehavedError(recipient, EXPLANATIONS_DISABLED_TEXT)
    return message_type == EXPLAIN


class DealerService:
    """The program of the dealer in a service.

    The dealer learns the number of rows of each batch, whether the batch is explained, and the
    number of tables and features of each model.
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
        """Run the dealer's part of all batches."""
        recipient = self._job.party_names[self._job.recipient_index]
        reveal_label_unit(runtime, self._job.make_prediction_query(0, self._tables), None)
        with runtime.step("serve"):
            while (message := receive_message(self._channel, recipient)) != STOP:
                self._lazy_pool.check_workers()
                if switch := re.fullmatch(SWITCH_MODEL + rb"([0-9]{1,6}),([0-9]{1,6})", message):
                    self._tables, self._n_features = int(switch[1]), int(switch[2])
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
                    batch_workers = self._lazy_pool.get_batch_workers(rows)
                    if batch_workers is not None:
                        send_outcomes(runtime, batch_workers, query.shape, None, None)
                    answer_query(
                        runtime, query, self._job.party_names, None, None, None, batch_workers
                    )
                    runtime.forget_finished_draws()
                self._channel.send(recipient, np.empty(0, dtype=np.uint8))


_HEARTBEAT_SECONDS = 1.0
_MAX_MESSAGE_BYTES = 1 << 29
"""Maximum bytes of the ids of one batch: more than the recipient's endpoint accepts."""
_POSITION = np.dtype("<u4")
_ACKNOWLEDGEMENT_LAYOUT = Expected(np.dtype(np.uint8), (0,))
_FLAG = Expected(np.dtype(np.uint8), (1,))


@dataclass(frozen=True, eq=False)
class _KnownIds:
    """Which participants have which of the requested ids."""

    common: BoolArray
    by_name: Mapping[str, BoolArray]
    """Mask of the ids known to each participant; empty with aligned rows, which do not show it."""


class PredictionService(ABC):
    """The program of a participant in one session; only the recipient has a queue."""

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
        run_next = self._run_batch if self._queue is not None else self._answer_message
        with runtime.step("serve"):
            while run_next():
                self._lazy_pool.check_workers()

    @property
    def model(self) -> ServedModel:
        """The model that predicts."""
        return self._model

    def _switch_model(self, model: ServedModel) -> None:
        """Predict with a model from now on, at the same time as all other participants."""
        runtime, part_file = self._runtime, model.part_file
        self._model = model
        self._unit = reveal_label_unit(
            runtime, self._job.make_prediction_query(0, part_file.part.n_tables), part_file.part
        )
        self._classes = reveal_class_names(runtime, self._channel, self._job, part_file)
        if self._queue is not None:
            self._queue.model_id = model.model_id
        self._on_model_switched(model.model_id)

    def _predict(
        self, columns: FloatArray, explain: bool
    ) -> FloatArray | ExplainedPredictions | None:
        """Predict the rows in `columns` with the other participants; if `explain`, explain them."""
        runtime = self._runtime
        part = self._model.part_file.part
        features = len(part.features) if explain else None
        query = self._job.make_prediction_query(columns.shape[1], part.n_tables, features)
        batch_workers = self._lazy_pool.get_batch_workers(columns.shape[1])
        if batch_workers is not None:
            send_outcomes(runtime, batch_workers, query.shape, part, columns)
        result = answer_query(
            runtime, query, self._job.party_names, part, columns, self._unit, batch_workers
        )
        if batch_workers is not None and self._queue is not None:
            self._worker_meters = self._lazy_pool.collect_meters()
        runtime.ledger.compact()
        runtime.forget_finished_draws()
        return result

    @abstractmethod
    def _announce_request(
        self, message_type: bytes, match_keys: Sequence[str], rows: IndexArray, is_inline: BoolArray
    ) -> _KnownIds:
        """Announce a batch to the other participants; return which ids are known.

        The message starts with `message_type`. The recipient itself knows an id if the local table
        has a row of it, or if its row came inline.
        """

    @abstractmethod
    def _parse_rows(self, message: bytes) -> IndexArray:
        """Return the requested common rows, as local row numbers.

        `message` is the recipient's message without its first byte.
        """

    def _answer_message(self) -> bool:
        """Answer one message of the recipient: a batch, a heartbeat, a model, or the end."""
        message = receive_message(self._channel, self._recipient, _MAX_MESSAGE_BYTES)
        if message == STOP:
            return False
        message_type, content = message[:1], message[1:]
        if message_type == PROPOSE_MODEL:
            self._proposed_model = self._get_model()
            has_model = self._proposed_model.model_id.encode() == content
            self._channel.send(self._recipient, np.array([has_model], dtype=np.uint8))
        elif message_type == SWITCH_MODEL:
            if self._proposed_model.model_id.encode() != content:
                raise PeerMisbehavedError(self._recipient, "wants a model that we did not promise")
            self._switch_model(self._proposed_model)
        else:
            explain = is_explanation_requested(self._job, message)
            rows = self._parse_rows(content)
            if len(rows):
                columns = self._model.frame.columns
                self._predict(np.ascontiguousarray(columns[:, rows]), explain)
        return True

    def _run_batch(self) -> bool:
        """Run a batch from the queue, or send a heartbeat; return False if the queue is closed."""
        assert self._queue is not None
        self._propose_new_model()
        batch = self._queue.take_batch(_HEARTBEAT_SECONDS)
        requests = [request for request in batch if accept_or_reject(self._model, request)]
        if not batch and self._queue.is_closed:
            send_message(self._channel, [*self._peers, *self._job.dealer_names], STOP)
            return False
        started = time.perf_counter()
        parts = [split_id(row_id) for request in requests for row_id in request.ids]
        match_keys = make_match_keys(parts, self._job.ids.rules_by_part)
        rows = self._model.find_rows(match_keys)
        explain = any(request.explain for request in requests)
        message_type = EXPLAIN if explain else PREDICT
        known = self._announce_request(message_type, match_keys, rows, find_inline_rows(requests))
        dealers = self._job.dealer_names
        send_message(
            self._channel, dealers, message_type + str(np.count_nonzero(known.common)).encode()
        )
        result = None
        if known.common.any():
            columns = make_recipient_features(self._model, requests, rows, known.common)
            result = self._predict(columns, explain)
        # Dealers acknowledge each batch, so that a lost dealer is detected, too.
        for dealer in dealers:
            self._channel.receive(dealer, _ACKNOWLEDGEMENT_LAYOUT)
        if requests:
            self._complete_requests(requests, known, result, time.perf_counter() - started)
        return True

    def _propose_new_model(self) -> None:
        """Switch to a newer model, if there is one and all other participants have loaded it."""
        newest = self._get_model()
        if newest is self._model or time.monotonic() < self._next_proposal:
            return
        self._next_proposal = time.monotonic() + _HEARTBEAT_SECONDS
        model_id = newest.model_id.encode()
        send_message(self._channel, self._peers, PROPOSE_MODEL + model_id)
        # Receive the replies of all peers, also after the first negative one.
        replies = [bool(self._channel.receive(peer, _FLAG)[0]) for peer in self._peers]
        if not all(replies):
            return
        send_message(self._channel, self._peers, SWITCH_MODEL + model_id)
        part = newest.part_file.part
        dimensions = b"%d,%d" % (part.n_tables, len(part.features))
        send_message(self._channel, self._job.dealer_names, SWITCH_MODEL + dimensions)
        self._switch_model(newest)

    def _complete_requests(
        self,
        requests: Sequence[PredictionRequest],
        known: _KnownIds,
        result: FloatArray | ExplainedPredictions | None,
        seconds: float,
    ) -> None:
        """Give every request its predictions, or its ids that are not common."""
        assert self._queue is not None
        stats = self._queue.stats
        stats.rows += len(known.common)
        stats.batches += 1
        stats.seconds += seconds
        stats.add_traffic(self._runtime.meter, self._worker_meters, self._before)
        values = np.full((*self._output_shape, len(known.common)), np.nan)
        if result is not None:
            values[..., known.common] = getattr(result, "predictions", result)
        result_position = np.cumsum(known.common) - 1
        start = 0
        for request in requests:
            end = start + len(request.ids)
            request.classes = self._classes
            request.predictions = values[..., start:end]
            if isinstance(result, ExplainedPredictions) and known.common[start:end].all():
                request.explanation = result.take(result_position[start:end])
            for position in np.flatnonzero(~known.common[start:end]).tolist():
                lacking = [
                    name
                    for name, is_known in known.by_name.items()
                    if not is_known[start + position]
                ]
                request.unknown_ids[", ".join(split_id(request.ids[position]))] = lacking
            stats.requests += 1
            request.mark_done()
            start = end


class UnalignedService(PredictionService):
    """Service without alignment: for each batch, the participants find the common ids."""

    def _announce_request(
        self, message_type: bytes, match_keys: Sequence[str], rows: IndexArray, is_inline: BoolArray
    ) -> _KnownIds:
        send_message(self._channel, self._peers, message_type + pack_texts(match_keys))
        layout = Expected(np.dtype(np.uint8), rows.shape)
        known = {peer: self._channel.receive(peer, layout).astype(np.bool_) for peer in self._peers}
        known[self._channel.name] = (rows >= 0) | is_inline
        common: BoolArray = np.logical_and.reduce(list(known.values()))
        for peer in self._peers:
            self._channel.send(peer, common.astype(np.uint8))
        return _KnownIds(common, {name: known[name] for name in self._job.party_names})

    def _parse_rows(self, message: bytes) -> IndexArray:
        try:
            rows = self._model.find_rows(unpack_texts(message))
        except ValueError:
            raise PeerMisbehavedError(self._recipient, "asked for what are no ids") from None
        self._channel.send(self._recipient, (rows >= 0).astype(np.uint8))
        is_common = self._channel.receive(self._recipient, Expected(np.dtype(np.uint8), rows.shape))
        common_rows: IndexArray = rows[is_common.astype(bool)]
        if (common_rows < 0).any():
            raise PeerMisbehavedError(self._recipient, "asks for rows that we do not have")
        return common_rows


class AlignedService(PredictionService):
    """Service with aligned rows: all participants have the same rows in the same order.

    An inline row can be predicted only if its id is one of the common ids: otherwise the other
    participants lack their columns of it.
    """

    def _announce_request(
        self, message_type: bytes, match_keys: Sequence[str], rows: IndexArray, is_inline: BoolArray
    ) -> _KnownIds:
        is_common = rows >= 0
        send_message(
            self._channel, self._peers, message_type + rows[is_common].astype(_POSITION).tobytes()
        )
        if not is_common.any():
            # An empty batch has no rounds that detect a lost peer, so the peers acknowledge it.
            for peer in self._peers:
                self._channel.receive(peer, _ACKNOWLEDGEMENT_LAYOUT)
        return _KnownIds(is_common, {})

    def _parse_rows(self, message: bytes) -> IndexArray:
        if len(message) % _POSITION.itemsize:
            raise PeerMisbehavedError(self._recipient, "asked for what are no positions")
        rows = np.frombuffer(message, _POSITION).astype(np.intp)
        if not len(rows):
            self._channel.send(self._recipient, np.empty(0, dtype=np.uint8))
        elif rows.max() >= len(self._model.row_by_key):
            raise PeerMisbehavedError(self._recipient, "asks for rows that are not common to all")
        return rows
