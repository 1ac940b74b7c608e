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
from privet.federation.monitoring.events import Event, Tell
from privet.federation.session.session import Seat

_SHORTEST_PAUSE = 0.2
_LONGEST_PAUSE = 4.0
_MEETING_SECONDS = 60.0
"""How long a meeting after the first is tried before it is tried anew."""
OTHERS = (PeerError, DisagreementError, CorrelationError, UnavailableError)
"""What may be over when it is tried again: of the others', or of this machine's."""
Sit = Callable[[float], AbstractContextManager[Seat]]
"""Takes a seat, to wait for the others for so many seconds."""


class Pauses:
    """Pauses between meetings."""

    def __init__(self) -> None:
        self._seconds = _SHORTEST_PAUSE

    def wait(self, *, from_anew: bool) -> None:
        """Wait twice as long as the last time, up to a few seconds; or a moment, from anew."""
        longer = min(2 * self._seconds, _LONGEST_PAUSE)
        self._seconds = _SHORTEST_PAUSE if from_anew else longer
        # Not all at the same moment, or they would keep missing each other.
        time.sleep(self._seconds * random.SystemRandom().uniform(0.5, 1.0))


def persist(
    sit: Sit,
    session: Callable[[Seat], None],
    wait: float,
    tell: Tell,
    *,
    service: bool,
    keep: bool = False,
) -> None:
    """Run sessions until one ends well, or on and on if we are to keep at it.

    `service` is known to be one by participants who serve; the dealer finds out in the session.
    """
    pauses, up = Pauses(), False
    while True:
        seat: Seat | None = None
        try:
            with sit(_MEETING_SECONDS if up else wait) as seat:
                session(seat)
            if not keep:
                return
            up = True
            tell(Event("ended", "the recipient has ended the service; waiting for the next"))
        except OTHERS as error:
            if seat is None:
                raise
            up = up or seat.serving
            lost = service and seat.met and isinstance(error, PeerError)
            if not (up or lost):
                raise
            blame = {"error": str(error), "peer": error.peer, "step": error.step}
            tell(Event("lost", f"{error}; meeting the others again", blame))
        pauses.wait(from_anew=seat.serving)
