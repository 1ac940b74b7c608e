"""Those who have come to a meeting, while others are still missing: shown life, and watched.

Waiting may last for days. Whoever has come shows every few seconds that it is still there, so one
that froze, or whose machine lost its power, is noticed as soon as in the middle of a program.

One that has met everybody already may have sent its first words: they are kept for the program.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Sequence

from privet.errors import PeerLostError
from privet.transport.frames import ALIVE, name_tag
from privet.transport.link import NO_KIN, Doubt, Kin, PeerLink

SILENCE_SECONDS = 10.0
"""Without a sign of life for so long, a peer is given up."""
OnWait = Callable[[str, Sequence[str]], None]
"""Is told, while others are missing, for whom we wait and why, and their names."""
_SAID = (Doubt.ITS_OWN, Doubt.BLAMES)
FIRST_WORDS = 1 << 24
"""How many bytes anybody may send before all others are there."""


class Arrivals:
    """The connections to those who have come."""

    def __init__(self, names: Iterable[str], silence: float, kin: Kin = NO_KIN) -> None:
        self.links: dict[str, PeerLink] = {}
        self._names = {name_tag(name): name for name in names}
        self._silence = silence
        self._kin = kin
        self._showed_life = time.monotonic()

    def add(self, peer: str, connection: socket.socket) -> None:
        """Take note that somebody has come; of one that came before, the newest counts."""
        self.close(peer)
        connection.setblocking(False)
        self.links[peer] = PeerLink(peer, connection, FIRST_WORDS, self._names, self._kin)

    def close(self, *peers: str) -> None:
        """Hang up on some of them."""
        for peer in peers:
            if peer in self.links:
                self.links.pop(peer).socket.close()

    def look(self) -> dict[str, str]:
        """Show life to all, and see whether they live; return who is gone again, and how."""
        now = time.monotonic()
        showing = now - self._showed_life > self._silence / 5
        if showing:
            self._showed_life = now
        gone = {}
        for peer, link in list(self.links.items()):
            if link.inbox_bytes < FIRST_WORDS:
                link.read()
            else:
                link.heard = now  # it is we who do not listen
            if showing and link.error is None:
                link.say(ALIVE)
            trouble = self._trouble(link, now)
            if trouble is not None:
                gone[peer] = f"was here, but {trouble}"
                self.close(peer)
        return gone

    def _trouble(self, link: PeerLink, now: float) -> str | None:
        if link.error is None:
            silent = now - link.heard > self._silence
            return f"nothing was heard from it for {self._silence:g} s" if silent else None
        if isinstance(link.error, PeerLostError) and link.doubt not in _SAID:
            return "hung up"
        return link.error.problem
