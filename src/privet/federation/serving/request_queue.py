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
from privet.boosting.prediction import Explained
from privet.data.reader import GivenRows
from privet.runtime.accounting import Meter

MOST_ROWS = 10_000
"""Requests are taken together up to so many rows; a larger one goes alone."""
MOST_BYTES = 1 << 22
"""And up to so many bytes of their ids."""
MOST_WAITING = 1_000
"""So many requests wait, unless the queue is told otherwise."""


Id = str | Sequence[str]
"""A text, or one for each part of an id."""


def parts_of(identity: Id) -> tuple[str, ...]:
    """Return the parts of an id: its text, if it has one alone."""
    return (identity,) if isinstance(identity, str) else tuple(identity)


class Refusal(NamedTuple):
    """Why a request was not answered."""

    why: Literal["absent", "full", "ended", "changed"]
    """The federation is not there; too many requests wait; the service has ended; the model was
    replaced, and needs other columns than were given."""
    text: str


@dataclass(eq=False)
class Request:
    """Some ids that somebody wants predictions of."""

    ids: Sequence[Id]
    explain: bool = False
    """Whether it is to be told, too, what contributes to them."""
    given: GivenRows | None = None
    """Our own columns of these ids, where they are not those of our table."""
    on_answered: Callable[[], None] = lambda: None
    """Is called once it is answered or refused, by the thread that does so."""
    predictions: FloatArray = field(default_factory=lambda: np.empty(0))
    """Values, or probabilities of the last of two classes; or of each of more: (K, ids)."""
    explained: Explained | None = None
    """What contributes to them, if that was asked for."""
    classes: tuple[str, ...] = ()
    """Of what is predicted, if it has any."""
    unknown: dict[str, list[str]] = field(default_factory=dict)
    """Ids that somebody does not have, and who, if that is known."""
    refused: Refusal | None = None
    answered: bool = False

    @property
    def size(self) -> int:
        """How many bytes its ids take."""
        return sum(len(part.encode()) for identity in self.ids for part in parts_of(identity))

    def settle(self) -> None:
        """Tell whoever asked that it is answered, or refused."""
        self.answered = True
        self.on_answered()


@dataclass
class Served:
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

    def note_traffic(self, meter: Meter, workers: Sequence[Meter], before: Served) -> None:
        """Note what the meters of a session have, ours and workers', beside what was before it."""
        whole = Meter()
        whole.add(meter)
        whole.add_group(workers)
        online, offline = whole.total("online"), whole.total("offline")
        self.rounds = before.rounds + online.rounds
        self.bytes_sent = before.bytes_sent + online.sent
        self.bytes_received = before.bytes_received + online.received
        self.bytes_from_dealer = before.bytes_from_dealer + offline.received


class RequestQueue:
    """Where askers leave requests, and the participant that runs the protocol takes them."""

    def __init__(
        self,
        *,
        explains: bool = False,
        most_waiting: int = MOST_WAITING,
        peers: Iterable[str] = (),
    ) -> None:
        self.explains = explains
        """Whether explanations may be asked for."""
        self.served = Served()
        self.started = time.time()
        self.peers: dict[str, bool] = dict.fromkeys(peers, False)
        """Everybody else that takes part, and whether we are connected."""
        self.model = ""
        """The name of the model that predicts."""
        self._most_waiting = most_waiting
        self._waiting: deque[Request] = deque()
        self._taken: list[Request] = []
        self._changed = threading.Condition()
        self._absent = "waiting for the other participants"
        self._closed = ""

    def open(self, peers: Iterable[str]) -> None:
        """Say that all participants are there."""
        with self._changed:
            self.peers = dict.fromkeys(peers, True)
            self.served.sessions += 1
            self._absent = ""

    def suspend(self, reason: str) -> None:
        """Say that they are not, and refuse what waits and what was taken and not answered."""
        with self._changed:
            self.served.lost += bool(not self._absent and not self._closed)
            self._absent = reason
            self.peers = dict.fromkeys(self.peers, False)
            refused = [*self._taken, *self._waiting]
            self._waiting.clear()
            self._taken = []
        for request in refused:
            if not request.answered:
                request.refused = self._refusal()
                request.settle()

    def submit(self, request: Request) -> None:
        """Leave a request; it is settled in time, or at once if it cannot be taken."""
        assert self.explains or not request.explain
        with self._changed:
            request.refused = self._refusal()
            if request.refused is None and len(self._waiting) >= self._most_waiting:
                text = f"{self._most_waiting:,} requests wait already: ask again in a moment"
                request.refused = Refusal("full", text)
            if request.refused is None:
                self._waiting.append(request)
                self._changed.notify_all()
                return
        request.settle()

    def withdraw(self, request: Request) -> None:
        """Forget a request that nobody waits for any more, unless it was taken already."""
        with self._changed:
            if request in self._waiting:
                self._waiting.remove(request)

    def ask(self, ids: Sequence[Id], *, explain: bool = False) -> Request:
        """Leave a request and wait until it is answered."""
        settled = threading.Event()
        request = Request(ids, explain, on_answered=settled.set)
        self.submit(request)
        settled.wait()
        return request

    def take(self, timeout: float) -> list[Request]:
        """Return what waits, as much as goes into one run; nothing after a while."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed, timeout)
            taken: list[Request] = []
            rows = size = 0
            while self._waiting and rows <= MOST_ROWS:
                rows += len(self._waiting[0].ids)
                if taken and rows > MOST_ROWS:
                    break
                size += self._waiting[0].size
                if taken and size > MOST_BYTES:
                    break
                taken.append(self._waiting.popleft())
            self._taken = taken
            return taken

    def close(self, reason: str) -> None:
        """Take no more requests; what waits is still answered, if all are there."""
        with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()

    def _refusal(self) -> Refusal | None:
        if self._closed:
            return Refusal("ended", self._closed)
        return Refusal("absent", self._absent) if self._absent else None

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    @property
    def status(self) -> str:
        """How things are: waiting for participants, ok, or ended."""
        if self._closed:
            return "ended"
        return "waiting" if self._absent else "ok"

    @property
    def closed(self) -> bool:
        """Whether no more requests are taken."""
        return bool(self._closed)
