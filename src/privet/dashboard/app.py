"""The dashboard as an ASGI application.

    GET  /, /page.js, /style.css, ...       static files, which contain no local data
    GET  /api/events                        server-sent events: overview, run, ledger
    GET  /api/runs/ID                       details of a run
    GET  /api/runs/ID/rows?id=TEXT          predictions that the run wrote, by a prefix of the id
    GET  /api/runs/ID/reasons?row=ID        feature attributions of one prediction
    GET  /api/jobs/NAME/model               the visible content of the local model part
    POST /api/jobs/NAME/check, /estimate    the results of `privet check` and `privet estimate`
    POST /api/jobs/NAME/train               start or resume training: {"restart": false}
    POST /api/runs/ID/stop                  stop a training run, which can be resumed

All requests under /api require the token: `Authorization: Bearer TOKEN`.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from privet.config.party import HttpServerConfig
from privet.dashboard.predictions import find_predictions, read_attributions
from privet.dashboard.queries import answer_check, answer_estimate, answer_model
from privet.dashboard.run_store import ClientCursor, RunStore
from privet.errors import ParameterError, PrivetError, UnavailableError
from privet.web.limits import AccessControl, make_error_response

STATIC_FOLDER = Path(__file__).parent / "static"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    # Scripts, styles and data only from this server; scripts cannot insert text as HTML.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_POLL_SECONDS = 0.15
_HEARTBEAT_SECONDS = 10.0
_MAX_BODY_BYTES = 1 << 16


class DashboardApp:
    """The handlers of the dashboard."""

    def __init__(self, server_config: HttpServerConfig, token: str, store: RunStore) -> None:
        self._server_config = server_config
        self._token = token
        self._store = store
        self._store_lock = threading.Lock()
        self.is_stopped = False
        """Set from another thread to end all event streams."""

    def make_asgi_app(self) -> ASGIApp:
        """Return the ASGI application behind access control."""
        files = {
            f"/{path.name}": path for path in STATIC_FOLDER.iterdir() if path.suffix in _MEDIA_TYPES
        }
        files["/"] = files.pop("/index.html")

        def make_file_handler(path: Path) -> Callable[[Request], Response]:
            content, media_type = path.read_bytes(), _MEDIA_TYPES[path.suffix]
            return lambda _: Response(content, media_type=media_type, headers=_HEADERS)

        def make_get_handler(handler: Callable[[Request], dict[str, Any]]) -> Any:
            async def respond(request: Request) -> Response:
                found = await run_in_threadpool(handler, request)
                return JSONResponse(found, headers=_HEADERS)

            return respond

        def make_post_handler(handler: Callable[[Request, bytes], dict[str, Any]]) -> Any:
            async def respond(request: Request) -> Response:
                body = await request.body()
                if len(body) > _MAX_BODY_BYTES:
                    return make_error_response(413, f"more than {_MAX_BODY_BYTES:,} bytes")
                found = await run_in_threadpool(handler, request, body)
                return JSONResponse(found, headers=_HEADERS)

            return respond

        routes = [
            Route(route_path, make_file_handler(path), methods=["GET"])
            for route_path, path in files.items()
        ]
        routes.append(Route("/api/events", self._handle_events, methods=["GET"]))
        for route_path, get_handler in (
            ("/api/runs/{run}", self._run),
            ("/api/runs/{run}/rows", self._find_predictions),
            ("/api/runs/{run}/reasons", self._get_attributions),
            ("/api/jobs/{job}/model", self._get_model),
        ):
            routes.append(Route(route_path, make_get_handler(get_handler), methods=["GET"]))
        for route_path, post_handler in (
            ("/api/jobs/{job}/check", self._check),
            ("/api/jobs/{job}/estimate", self._run_estimate),
            ("/api/jobs/{job}/train", self._start_training),
            ("/api/runs/{run}/stop", self._stop),
        ):
            routes.append(Route(route_path, make_post_handler(post_handler), methods=["POST"]))
        handlers = {404: _handle_not_found, 405: _handle_not_found, PrivetError: _handle_error}
        app = Starlette(routes=routes, exception_handlers=handlers)
        return AccessControl(
            app,
            self._server_config,
            self._token.encode(),
            public_paths=frozenset(files),
            unauthorized_status=403,
        )

    async def _handle_events(self, request: Request) -> Response:
        headers = {**_HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(
            self._stream_events(), media_type="text/event-stream", headers=headers
        )

    async def _stream_events(self) -> AsyncIterator[bytes]:
        """Yield changes as server-sent events until the dashboard stops."""
        cursor, last_sent, loop = ClientCursor(), 0.0, asyncio.get_running_loop()
        while not self.is_stopped:
            for kind, content in await run_in_threadpool(self._poll, cursor):
                last_sent = loop.time()
                yield f"event: {kind}\ndata: {json.dumps(content)}\n\n".encode()
            if loop.time() - last_sent > _HEARTBEAT_SECONDS:
                last_sent = loop.time()
                yield b": still here\n\n"
            await asyncio.sleep(_POLL_SECONDS)

    def _poll(self, cursor: ClientCursor) -> list[tuple[str, dict[str, Any]]]:
        with self._store_lock:
            self._store.poll()
            return list(self._store.iter_changes(cursor))

    def _run(self, request: Request) -> dict[str, Any]:
        with self._store_lock:
            return self._store.make_run_details(request.path_params["run"])

    def _find_predictions(self, request: Request) -> dict[str, Any]:
        return find_predictions(
            self._get_predictions_path(request), request.query_params.get("id", "")
        )

    def _get_attributions(self, request: Request) -> dict[str, Any]:
        return read_attributions(
            self._get_predictions_path(request), request.query_params.get("row", "")
        )

    def _get_predictions_path(self, request: Request) -> str:
        _, view = self._store.get_run(request.path_params["run"])
        if view.predictions_path is None:
            raise ParameterError(f"run: {view.name} has written no predictions to a file")
        return view.predictions_path

    def _get_model(self, request: Request) -> dict[str, Any]:
        return answer_model(self._store.get_job(request.path_params["job"]))

    def _check(self, request: Request, _: bytes) -> dict[str, Any]:
        name = request.path_params["job"]
        with self._store_lock:
            job, running = self._store.get_job(name).job, self._store.find_running_training(name)
        if running is not None:
            raise UnavailableError("a training goes on: check when it has ended")
        return {"findings": answer_check(self._store.party_config, job)}

    def _run_estimate(self, request: Request, body: bytes) -> dict[str, Any]:
        return answer_estimate(self._store.get_job(request.path_params["job"]).job, body)

    def _start_training(self, request: Request, body: bytes) -> dict[str, Any]:
        name = request.path_params["job"]
        with self._store_lock:
            known, running = self._store.get_job(name), self._store.find_running_training(name)
            if known.job_file is None:
                raise UnavailableError(
                    f"the file of {name!r} is not known here: start the page with --job FILE"
                )
            if running is not None:
                raise UnavailableError(f"{name}: is being trained already")
        self._store.launcher.start_training(
            name, known.job_file, restart=_is_restart_requested(body)
        )
        return {"started": name}

    def _stop(self, request: Request, _: bytes) -> dict[str, Any]:
        with self._store_lock:
            file, view = self._store.get_run(request.path_params["run"])
            if view.command != "train":
                raise UnavailableError(f"{view.name}: only trainings are stopped from here")
            self._store.launcher.stop_run(file, int(view.start_record["pid"]))
        return {"stopping": view.name}


def _is_restart_requested(body: bytes) -> bool:
    try:
        content = json.loads(body or b"{}")
    except ValueError:
        raise ParameterError("the request is no JSON") from None
    return isinstance(content, dict) and content.get("restart") is True


async def _handle_not_found(_: Request, error: Exception) -> Response:
    return make_error_response(getattr(error, "status_code", 404), "there is nothing of that name")


async def _handle_error(_: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, ParameterError) and "there is no" in str(error) else 409
    return make_error_response(status, str(error))
