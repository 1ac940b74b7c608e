"""Reconnecting: a service outlives its sessions, at every participant and at the dealer.

A lost peer ends the session at all other members, which reconnect and wait for it. The pause after
a failed session grows to a few seconds at most, so that a peer that returns is soon connected.

Before the service has been up for the first time, an error ends it, as it ends any other command:
the user must fix the cause. The only exception is the loss of a peer that was connected.
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
"""Timeout in seconds of each attempt to connect, after the service has been up."""
RETRYABLE_ERRORS = (PeerError, DisagreementError, CorrelationError, UnavailableError)
"""Errors that a new session can resolve: of the peers, or of this machine."""
OpenSession = Callable[[float], AbstractContextManager[LocalMember]]
"""Opens a session whose members have this many seconds to connect."""


class Backoff:
    """Growing pauses between sessions."""

    def __init__(self) -> None:
        self._seconds = _MIN_BACKOFF_SECONDS

    def sleep(self, *, reset: bool) -> None:
        """Sleep twice as long as the last time, up to a maximum; with `reset`, for the minimum."""
        doubled = min(2 * self._seconds, _MAX_BACKOFF_SECONDS)
        self._seconds = _MIN_BACKOFF_SECONDS if reset else doubled
        # Jitter, so that the members do not keep missing each other.
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
    """Run sessions until one ends without an error; with `keep_running`, without end.

    `is_service` is set by participants that serve; a dealer learns in the session whether it is
    part of a service.
    """
    backoff, was_up = Backoff(), False
    while True:
        member: LocalMember | None = None
        try:
            with open_session(_RECONNECT_SECONDS if was_up else timeout) as member:
                run_session(member)
            if not keep_running:
                return
            was_up = True
            emit(Event("ended", "the recipient has ended the service; waiting for the next"))
        except RETRYABLE_ERRORS as error:
            if member is None:
                raise
            was_up = was_up or member.was_serving
            was_peer_lost = is_service and member.is_connected and isinstance(error, PeerError)
            if not (was_up or was_peer_lost):
                raise
            cause = {"error": str(error), "peer": error.peer, "step": error.step}
            emit(Event("lost", f"{error}; meeting the others again", cause))
        backoff.sleep(reset=member.was_serving)
