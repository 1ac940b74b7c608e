"""Meeting again: a service outlives its sessions, at every participant and at the dealer.

Whoever is lost ends the session at all others, who meet again and wait for it. Pauses between
meetings that fail grow up to a few seconds, so that whoever comes back is not waited for long.

Until the service was up for the first time, what keeps it from that ends it, as it ends any other
command: there is something to be mended first. Only the loss of somebody who had come is borne.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from privet.errors import CorrelationError, DisagreementError, PeerError, UnavailableError
from privet.federation.monitoring.events import Event, EventHandler
from privet.federation.session.session import LocalMember

_MIN_BACKOFF_SECONDS = 0.2
_MAX_BACKOFF_SECONDS = 4.0
_RECONNECT_SECONDS = 60.0
"""How long a meeting after the first is tried before it is tried anew."""
RETRYABLE_ERRORS = (PeerError, DisagreementError, CorrelationError, UnavailableError)
"""What may be over when it is tried again: of the others', or of this machine's."""
OpenSession = Callable[[float], AbstractContextManager[LocalMember]]
"""Takes a seat, to wait for the others for so many seconds."""


class Backoff:
    """Pauses between meetings."""

    def __init__(self) -> None:
        self._seconds = _MIN_BACKOFF_SECONDS

    def sleep(self, *, reset: bool) -> None:
        """Wait twice as long as the last time, up to a few seconds; or a moment, from anew."""
        longer = min(2 * self._seconds, _MAX_BACKOFF_SECONDS)
        self._seconds = _MIN_BACKOFF_SECONDS if reset else longer
        # Not all at the same moment, or they would keep missing each other.
        time.sleep(self._seconds * random.SystemRandom().uniform(0.5, 1.0))


def run_with_retry(
    open_session: OpenSession,
    run_session: Callable[[LocalMember], None],
    timeout: float,
    emit: EventHandler,
    *,
    is_service: bool,
    keep_running: bool = False,
) -> None:
    """Run sessions until one ends well, or on and on if we are to keep at it.

    `is_service` is known to be one by participants who serve; the dealer finds out in the session.
    """
    pauses, up = Backoff(), False
    while True:
        seat: LocalMember | None = None
        try:
            with open_session(_RECONNECT_SECONDS if up else timeout) as seat:
                run_session(seat)
            if not keep_running:
                return
            up = True
            emit(Event("ended", "the recipient has ended the service; waiting for the next"))
        except RETRYABLE_ERRORS as error:
            if seat is None:
                raise
            up = up or seat.was_serving
            lost = is_service and seat.is_connected and isinstance(error, PeerError)
            if not (up or lost):
                raise
            blame = {"error": str(error), "peer": error.peer, "step": error.step}
            emit(Event("lost", f"{error}; meeting the others again", blame))
        pauses.sleep(reset=seat.was_serving)
