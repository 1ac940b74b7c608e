"""The queue of prediction requests: many clients, one protocol run at a time.

The queue outlives the sessions of a service. Between two sessions it rejects requests immediately.
After it closes, it rejects new requests, and the queued ones are still answered.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.prediction import ExplainedPredictions
from privet.data.reader import InlineRows
from privet.runtime.accounting import Meter

MAX_BATCH_ROWS = 10_000
"""Maximum rows of a batch of several requests; a larger request is a batch of its own."""
MAX_BATCH_BYTES = 1 << 22
"""Maximum bytes of the ids of a batch of several requests."""
MAX_QUEUED_REQUESTS = 1_000
"""Default maximum of queued requests."""


RowId = str | Sequence[str]
"""An id: one text, or a text for each of its parts."""


def split_id(row_id: RowId) -> tuple[str, ...]:
    """Return the parts of an id."""
    return (row_id,) if isinstance(row_id, str) else tuple(row_id)


class Rejection(NamedTuple):
    """The reason why a request was not answered."""

    reason: Literal["absent", "full", "ended", "changed"]
    """A peer is disconnected; the queue is full; the service has ended; or the model was replaced
    by one that needs other columns than the inline rows have."""
    text: str


@dataclass(eq=False)
class PredictionRequest:
    """A request for predictions of some ids."""

    ids: Sequence[RowId]
    explain: bool = False
    """Whether feature attributions are requested, too."""
    inline_rows: InlineRows | None = None
    """Local columns of these ids, if they came with the request and not from the local table."""
    on_done: Callable[[], None] = lambda: None
    """Called when the request is answered or rejected, in the thread that does so."""
    predictions: FloatArray = field(default_factory=lambda: np.empty(0))
    """Values, or probabilities of the last of two classes; or of K > 2 classes: (K, ids)."""
    explanation: ExplainedPredictions | None = None
    """Feature attributions, if they were requested."""
    classes: tuple[str, ...] = ()
    """Class names, for a classification."""
    unknown_ids: dict[str, list[str]] = field(default_factory=dict)
    """Ids that are not common, with the participants that lack them, if these are known."""
    rejection: Rejection | None = None
    is_done: bool = False

    @property
    def id_bytes(self) -> int:
        """Bytes of the ids."""
        return sum(len(part.encode()) for row_id in self.ids for part in split_id(row_id))

    def mark_done(self) -> None:
        """Mark the request as answered or rejected, and notify its client."""
        self.is_done = True
        self.on_done()


@dataclass
class ServiceStats:
    """Totals of a service, over all sessions."""

    requests: int = 0
    rows: int = 0
    batches: int = 0
    seconds: float = 0.0
    """Time in protocol runs."""
    rounds: int = 0
    """Network delays in protocol runs."""
    bytes_sent: int = 0
    """Bytes sent to the other participants."""
    bytes_received: int = 0
    """Bytes received from the other participants."""
    bytes_from_dealer: int = 0
    meetings: int = 0
    """Attempts to connect to the peers."""
    sessions: int = 0
    """Sessions in which all members were connected and agreed."""
    lost: int = 0
    """Sessions that ended before the service did."""
    models: int = 0
    """Switches to a new model."""
    refused_models: int = 0
    """New local models that could not be used."""

    def add_traffic(
        self, meter: Meter, worker_meters: Sequence[Meter], before: ServiceStats
    ) -> None:
        """Set the traffic to that `before` the session plus that of the session and its workers."""
        total = Meter()
        total.add(meter)
        total.add_parallel(worker_meters)
        online, offline = total.sum_traffic("online"), total.sum_traffic("offline")
        self.rounds = before.rounds + online.rounds
        self.bytes_sent = before.bytes_sent + online.sent
        self.bytes_received = before.bytes_received + online.received
        self.bytes_from_dealer = before.bytes_from_dealer + offline.received


class RequestQueue:
    """The queue from which the recipient takes requests for protocol runs."""

    def __init__(
        self,
        *,
        has_explanations: bool = False,
        max_queued: int = MAX_QUEUED_REQUESTS,
        peers: Iterable[str] = (),
    ) -> None:
        self.has_explanations = has_explanations
        """Whether requests can set `explain`."""
        self.stats = ServiceStats()
        self.started = time.time()
        self.peers: dict[str, bool] = dict.fromkeys(peers, False)
        """All peers, and whether they are connected."""
        self.model_id = ""
        """Id of the model that predicts."""
        self._max_queued = max_queued
        self._queued: deque[PredictionRequest] = deque()
        self._in_progress: list[PredictionRequest] = []
        self._changed = threading.Condition()
        self._unavailable_reason = "waiting for the other participants"
        self._closed = ""

    def set_available(self, peers: Iterable[str]) -> None:
        """Accept requests from now on: all peers are connected."""
        with self._changed:
            self.peers = dict.fromkeys(peers, True)
            self.stats.sessions += 1
            self._unavailable_reason = ""

    def set_unavailable(self, reason: str) -> None:
        """Reject requests from now on, and all queued or unanswered ones."""
        with self._changed:
            self.stats.lost += bool(not self._unavailable_reason and not self._closed)
            self._unavailable_reason = reason
            self.peers = dict.fromkeys(self.peers, False)
            rejected = [*self._in_progress, *self._queued]
            self._queued.clear()
            self._in_progress = []
        for request in rejected:
            if not request.is_done:
                request.rejection = self._make_rejection()
                request.mark_done()

    def submit(self, request: PredictionRequest) -> None:
        """Queue a request, or reject it immediately."""
        assert self.has_explanations or not request.explain
        with self._changed:
            request.rejection = self._make_rejection()
            if request.rejection is None and len(self._queued) >= self._max_queued:
                text = f"{self._max_queued:,} requests wait already: ask again in a moment"
                request.rejection = Rejection("full", text)
            if request.rejection is None:
                self._queued.append(request)
                self._changed.notify_all()
                return
        request.mark_done()

    def withdraw(self, request: PredictionRequest) -> None:
        """Remove a request that no client waits for, unless it is in a batch already."""
        with self._changed:
            if request in self._queued:
                self._queued.remove(request)

    def submit_and_wait(self, ids: Sequence[RowId], *, explain: bool = False) -> PredictionRequest:
        """Submit a request and wait until it is answered or rejected."""
        done = threading.Event()
        request = PredictionRequest(ids, explain, on_done=done.set)
        self.submit(request)
        done.wait()
        return request

    def take_batch(self, timeout: float) -> list[PredictionRequest]:
        """Return queued requests for one batch; an empty list after the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._queued or self._closed, timeout)
            batch: list[PredictionRequest] = []
            rows = size = 0
            while self._queued and rows <= MAX_BATCH_ROWS:
                rows += len(self._queued[0].ids)
                if batch and rows > MAX_BATCH_ROWS:
                    break
                size += self._queued[0].id_bytes
                if batch and size > MAX_BATCH_BYTES:
                    break
                batch.append(self._queued.popleft())
            self._in_progress = batch
            return batch

    def close(self, reason: str) -> None:
        """Reject new requests; the queued ones are still answered if all peers are connected."""
        with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()

    def _make_rejection(self) -> Rejection | None:
        if self._closed:
            return Rejection("ended", self._closed)
        return Rejection("absent", self._unavailable_reason) if self._unavailable_reason else None

    @property
    def n_queued(self) -> int:
        """Number of queued requests."""
        return len(self._queued)

    @property
    def status(self) -> str:
        """Status of the service: waiting (for participants), ok or ended."""
        if self._closed:
            return "ended"
        return "waiting" if self._unavailable_reason else "ok"

    @property
    def is_closed(self) -> bool:
        """Whether the queue rejects new requests for good."""
        return bool(self._closed)
