"""Requests for predictions wait in a queue: many askers, one protocol run at a time.

The queue outlives the sessions of a service. Between two of them it takes no requests and says so
at once. When it closes, it takes no more, and what waits is still answered.
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
"""Requests are taken together up to so many rows; a larger one goes alone."""
MAX_BATCH_BYTES = 1 << 22
"""And up to so many bytes of their ids."""
MAX_QUEUED_REQUESTS = 1_000
"""So many requests wait, unless the queue is told otherwise."""


RowId = str | Sequence[str]
"""A text, or one for each part of an id."""


def split_id(row_id: RowId) -> tuple[str, ...]:
    """Return the parts of an id: its text, if it has one alone."""
    return (row_id,) if isinstance(row_id, str) else tuple(row_id)


class Rejection(NamedTuple):
    """Why a request was not answered."""

    reason: Literal["absent", "full", "ended", "changed"]
    """The federation is not there; too many requests wait; the service has ended; the model was
    replaced, and needs other columns than were given."""
    text: str


@dataclass(eq=False)
class PredictionRequest:
    """Some ids that somebody wants predictions of."""

    ids: Sequence[RowId]
    explain: bool = False
    """Whether it is to be told, too, what contributes to them."""
    inline_rows: InlineRows | None = None
    """Our own columns of these ids, where they are not those of our table."""
    on_done: Callable[[], None] = lambda: None
    """Is called once it is answered or refused, by the thread that does so."""
    predictions: FloatArray = field(default_factory=lambda: np.empty(0))
    """Values, or probabilities of the last of two classes; or of each of more: (K, ids)."""
    explanation: ExplainedPredictions | None = None
    """What contributes to them, if that was asked for."""
    classes: tuple[str, ...] = ()
    """Of what is predicted, if it has any."""
    unknown_ids: dict[str, list[str]] = field(default_factory=dict)
    """Ids that somebody does not have, and who, if that is known."""
    rejection: Rejection | None = None
    is_done: bool = False

    @property
    def id_bytes(self) -> int:
        """How many bytes its ids take."""
        return sum(len(part.encode()) for identity in self.ids for part in split_id(identity))

    def mark_done(self) -> None:
        """Tell whoever asked that it is answered, or refused."""
        self.is_done = True
        self.on_done()


@dataclass
class ServiceStats:
    """What was done so far, in all sessions."""

    requests: int = 0
    rows: int = 0
    batches: int = 0
    seconds: float = 0.0
    """Time in protocol runs."""
    rounds: int = 0
    """Network delays that they waited for."""
    bytes_sent: int = 0
    """To the other participants."""
    bytes_received: int = 0
    """From them."""
    bytes_from_dealer: int = 0
    meetings: int = 0
    """How often the others were to be met."""
    sessions: int = 0
    """How often all of them were, and agreed."""
    lost: int = 0
    """How many of these ended before the service did."""
    models: int = 0
    """How many models took the place of another one."""
    refused_models: int = 0
    """How many new ones of ours could not be used."""

    def add_traffic(
        self, meter: Meter, worker_meters: Sequence[Meter], before: ServiceStats
    ) -> None:
        """Note what the meters of a session have, ours and workers', beside what was before it."""
        whole = Meter()
        whole.add(meter)
        whole.add_parallel(worker_meters)
        online, offline = whole.sum_traffic("online"), whole.sum_traffic("offline")
        self.rounds = before.rounds + online.rounds
        self.bytes_sent = before.bytes_sent + online.sent
        self.bytes_received = before.bytes_received + online.received
        self.bytes_from_dealer = before.bytes_from_dealer + offline.received


class RequestQueue:
    """Where askers leave requests, and the participant that runs the protocol takes them."""

    def __init__(
        self,
        *,
        has_explanations: bool = False,
        max_queued: int = MAX_QUEUED_REQUESTS,
        peers: Iterable[str] = (),
    ) -> None:
        self.has_explanations = has_explanations
        """Whether explanations may be asked for."""
        self.stats = ServiceStats()
        self.started = time.time()
        self.peers: dict[str, bool] = dict.fromkeys(peers, False)
        """Everybody else that takes part, and whether we are connected."""
        self.model_id = ""
        """The name of the model that predicts."""
        self._max_queued = max_queued
        self._queued: deque[PredictionRequest] = deque()
        self._in_progress: list[PredictionRequest] = []
        self._changed = threading.Condition()
        self._unavailable_reason = "waiting for the other participants"
        self._closed = ""

    def set_available(self, peers: Iterable[str]) -> None:
        """Say that all participants are there."""
        with self._changed:
            self.peers = dict.fromkeys(peers, True)
            self.stats.sessions += 1
            self._unavailable_reason = ""

    def set_unavailable(self, reason: str) -> None:
        """Say that they are not, and refuse what waits and what was taken and not answered."""
        with self._changed:
            self.stats.lost += bool(not self._unavailable_reason and not self._closed)
            self._unavailable_reason = reason
            self.peers = dict.fromkeys(self.peers, False)
            refused = [*self._in_progress, *self._queued]
            self._queued.clear()
            self._in_progress = []
        for request in refused:
            if not request.is_done:
                request.rejection = self._make_rejection()
                request.mark_done()

    def submit(self, request: PredictionRequest) -> None:
        """Leave a request; it is settled in time, or at once if it cannot be taken."""
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
        """Forget a request that nobody waits for any more, unless it was taken already."""
        with self._changed:
            if request in self._queued:
                self._queued.remove(request)

    def submit_and_wait(self, ids: Sequence[RowId], *, explain: bool = False) -> PredictionRequest:
        """Leave a request and wait until it is answered."""
        settled = threading.Event()
        request = PredictionRequest(ids, explain, on_done=settled.set)
        self.submit(request)
        settled.wait()
        return request

    def take_batch(self, timeout: float) -> list[PredictionRequest]:
        """Return what waits, as much as goes into one run; nothing after a while."""
        with self._changed:
            self._changed.wait_for(lambda: self._queued or self._closed, timeout)
            taken: list[PredictionRequest] = []
            rows = size = 0
            while self._queued and rows <= MAX_BATCH_ROWS:
                rows += len(self._queued[0].ids)
                if taken and rows > MAX_BATCH_ROWS:
                    break
                size += self._queued[0].id_bytes
                if taken and size > MAX_BATCH_BYTES:
                    break
                taken.append(self._queued.popleft())
            self._in_progress = taken
            return taken

    def close(self, reason: str) -> None:
        """Take no more requests; what waits is still answered, if all are there."""
        with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()

    def _make_rejection(self) -> Rejection | None:
        if self._closed:
            return Rejection("ended", self._closed)
        return Rejection("absent", self._unavailable_reason) if self._unavailable_reason else None

    @property
    def n_queued(self) -> int:
        """How many requests wait."""
        return len(self._queued)

    @property
    def status(self) -> str:
        """How things are: waiting for participants, ok, or ended."""
        if self._closed:
            return "ended"
        return "waiting" if self._unavailable_reason else "ok"

    @property
    def is_closed(self) -> bool:
        """Whether no more requests are taken."""
        return bool(self._closed)
