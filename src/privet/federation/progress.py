"""How a training stands between two tables: for whoever watches it, twice a second.

The step and the level, what passed between us and each peer, and what was revealed so far. Nothing
of it is data: it is what the meter, the ledger and the connections know.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from privet.federation.events import Event, Tell
from privet.runtime.ledger import Ledger
from privet.runtime.party import Party
from privet.transport.sockets import SocketChannel

_SECONDS = 0.5


@contextlib.contextmanager
def watched(runtime: Party, channel: SocketChannel, tell: Tell) -> Iterator[None]:
    """Tell how a program stands while it runs, and once more when it has ended or failed."""
    over = threading.Event()
    tally = _Tally(runtime.ledger)

    def look() -> None:
        tell(Event("progress", "", _standing(runtime, channel, tally), passing=True))

    def watch() -> None:
        while not over.wait(_SECONDS):
            look()

    thread = threading.Thread(target=watch, name="watches the training", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        look()


class _Tally:
    """What a ledger comes to, whose entries become more."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._seen = 0
        self._counts: dict[tuple[str, tuple[str, ...]], int] = {}

    def reveals(self) -> list[dict[str, Any]]:
        entries = self._ledger.entries[self._seen :]
        self._seen += len(entries)
        for entry in entries:
            key = entry.what, entry.to
            self._counts[key] = self._counts.get(key, 0) + entry.count
        return [{"what": what, "to": to, "count": n} for (what, to), n in self._counts.items()]


def _standing(runtime: Party, channel: SocketChannel, tally: _Tally) -> dict[str, Any]:
    path = [*runtime.path]  # the program goes on meanwhile: a copy does not change
    return {
        "step": runtime.step_name,
        "table": path[0] + 1 if path else None,
        "level": path[1] + 1 if len(path) > 1 else None,
        "peers": {peer: state._asdict() for peer, state in channel.states().items()},
        "reveals": tally.reveals(),
    }
