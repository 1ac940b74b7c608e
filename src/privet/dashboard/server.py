"""HTTP server of the dashboard."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from privet.config.party import HttpServerConfig, PartyConfig
from privet.dashboard.app import DashboardApp
from privet.dashboard.run_store import RunStore
from privet.federation.monitoring.events import EventHandler
from privet.web.limits import ConnectionLimiter
from privet.web.server import run_http_server

_MAX_CONNECTIONS = 100


@contextlib.contextmanager
def run_dashboard(
    server_config: HttpServerConfig, party: Path, job_files: list[Path], emit: EventHandler
) -> Iterator[str]:
    """Serve a participant's dashboard while the context lasts; yield its URL with the token."""
    token = secrets.token_urlsafe(32)
    store = RunStore(party, PartyConfig.load(party), job_files)
    application = DashboardApp(server_config, token, store)
    connections = ConnectionLimiter(_MAX_CONNECTIONS)
    with run_http_server(server_config, application.make_asgi_app(), connections, emit) as port:
        scheme = "https" if server_config.certificate else "http"
        host = server_config.hosts[0] if server_config.hosts else server_config.host
        host = f"[{host}]" if ":" in host else host
        try:
            yield f"{scheme}://{host}:{port}/#token={token}"
        finally:
            application.is_stopped = True
            store.launcher.detach()
