"""Requests for predictions wait in a queue: many askers, one protocol run at a time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from privet.arrays import FloatArray
from privet.boosting.inference import Explained

MOST_ROWS = 10_000
"""Requests are taken together up to so many rows; a larger one goes alone."""
MOST_BYTES = 1 << 22
"""No request has ids of more bytes, and no two that are taken together."""


Id = str | Sequence[str]
"""A text, or one for each part of an id."""


def parts_of(identity: Id) -> tuple[str, ...]:
    """Return the parts of an id: its text, if it has one alone."""
    return (identity,) if isinstance(identity, str) else tuple(identity)


@dataclass(eq=False)
class Request:
    """Some ids that somebody wants predictions of."""

    ids: Sequence[Id]
    explain: bool = False
    """Whether it is to be told, too, what contributes to them."""
    predictions: FloatArray = field(default_factory=lambda: np.empty(0))
    """Values, or probabilities of the last of two classes; or of each of more: (K, ids)."""
    explained: Explained | None = None
    """What contributes to them, if that was asked for."""
    unknown: dict[str, list[str]] = field(default_factory=dict)
    """Ids that somebody does not have, and who, if that is known."""
    answered: threading.Event = field(default_factory=threading.Event)
    failed: str = ""

    @property
    def size(self) -> int:
        """How many bytes its ids take."""
        return sum(len(part.encode()) for identity in self.ids for part in parts_of(identity))


@dataclass
class Served:
    """What was done so far."""

    requests: int = 0
    rows: int = 0
    batches: int = 0
    seconds: float = 0.0
    """Time in protocol runs."""


class RequestQueue:
    """Where askers leave requests, and the participant that runs the protocol takes them."""

    def __init__(self, *, explains: bool = False) -> None:
        self.explains = explains
        """Whether explanations may be asked for."""
        self.served = Served()
        self.started = time.time()
        self.classes: tuple[str, ...] = ()
        """Of what is predicted, if it has any."""
        self._waiting: deque[Request] = deque()
        self._taken: list[Request] = []
        self._changed = threading.Condition()
        self._closed = ""
        self._open = False

    def open(self) -> None:
        """Say that all participants are there."""
        self._open = True

    def ask(self, ids: Sequence[Id], *, explain: bool = False) -> Request:
        """Leave a request and wait until it is answered."""
        assert self.explains or not explain
        request = Request(ids, explain)
        with self._changed:
            if self._closed:
                request.failed = self._closed
                return request
            self._waiting.append(request)
            self._changed.notify_all()
        request.answered.wait()
        return request

    def take(self, timeout: float) -> list[Request]:
        """Return what waits, as much as goes into one run; nothing after a while."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed, timeout)
            taken: list[Request] = []
            rows = size = 0
            while self._waiting:
                rows += len(self._waiting[0].ids)
                size += self._waiting[0].size
                if taken and (rows > MOST_ROWS or size > MOST_BYTES):
                    break
                taken.append(self._waiting.popleft())
            self._taken = taken
            return taken

    def close(self, reason: str) -> None:
        """Take no more requests, and tell those that wait why."""
        with self._changed:
            self._closed = self._closed or reason
            self._refuse(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()

    def abandon(self, reason: str) -> None:
        """Close, and give up what was taken and not answered, too: the protocol has ended."""
        self.close(reason)
        with self._changed:
            self._refuse(request for request in self._taken if not request.answered.is_set())

    def _refuse(self, requests: Iterable[Request]) -> None:
        for request in requests:
            request.failed = self._closed
            request.answered.set()

    @property
    def status(self) -> str:
        """How things are: waiting for participants, ok, or ended."""
        if self._closed:
            return "ended"
        return "ok" if self._open else "waiting"

    @property
    def closed(self) -> bool:
        """Whether no more requests are taken."""
        return bool(self._closed)
