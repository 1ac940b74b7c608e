"""The page at work, for as long as its context lasts."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from privet.config.party import Door, PartyFile
from privet.dashboard.app import Application
from privet.dashboard.run_store import Watch
from privet.federation.monitoring.events import Tell
from privet.web.limits import Connections
from privet.web.server import serving

_MOST_CONNECTIONS = 100


@contextlib.contextmanager
def serving_page(door: Door, party: Path, jobs: list[Path], tell: Tell) -> Iterator[str]:
    """Have a page of a participant's own; yield its address, with the token that it takes."""
    token = secrets.token_urlsafe(32)
    watch = Watch(party, PartyFile.load(party), jobs)
    application = Application(door, token, watch)
    connections = Connections(_MOST_CONNECTIONS)
    with serving(door, application.asgi(), connections, tell) as port:
        scheme = "https" if door.certificate else "http"
        host = door.hosts[0] if door.hosts else door.host
        host = f"[{host}]" if ":" in host else host
        try:
            yield f"{scheme}://{host}:{port}/#token={token}"
        finally:
            application.over = True
            watch.control.let_go()
