"""The page as an ASGI application.

    GET  /, /page.js, /style.css, ...       the page itself, the same for everybody: nothing of ours
    GET  /api/events                        server-sent events: overview, run, ledger
    GET  /api/runs/ID                       a whole run
    GET  /api/runs/ID/rows?id=TEXT          predictions that it wrote, by the beginning of an id
    GET  /api/runs/ID/reasons?row=ID        what contributes to one
    GET  /api/jobs/NAME/model               our part of its model, as far as we see it
    POST /api/jobs/NAME/check, /estimate    what `privet check` and `privet estimate` say
    POST /api/jobs/NAME/train               start, or go on: {"restart": false}
    POST /api/runs/ID/stop                  end a training; it can go on later

All under /api takes the token: `Authorization: Bearer TOKEN`.
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

from privet.config.party import Door
from privet.dashboard.predictions import found_rows, reasons
from privet.dashboard.queries import checked, estimated, model_of
from privet.dashboard.run_store import Cursor, Watch
from privet.errors import ParameterError, PrivetError, UnavailableError
from privet.web.limits import Guard, refusal

PAGE = Path(__file__).parent / "static"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    # Scripts, styles and data from here alone; nothing is put into the page as text of HTML.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LOOK_SECONDS = 0.15
_ALIVE_SECONDS = 10.0
_MOST_BODY = 1 << 16


class Application:
    """What answers a page."""

    def __init__(self, door: Door, token: str, watch: Watch) -> None:
        self._door = door
        self._token = token
        self._watch = watch
        self._looking = threading.Lock()
        self.over = False
        """Set from another thread, when all pages are to be let go."""

    def asgi(self) -> ASGIApp:
        """Return it behind its guard."""
        files = {f"/{path.name}": path for path in PAGE.iterdir() if path.suffix in _KINDS}
        files["/"] = files.pop("/index.html")

        def file(path: Path) -> Callable[[Request], Response]:
            content, kind = path.read_bytes(), _KINDS[path.suffix]
            return lambda _: Response(content, media_type=kind, headers=_HEADERS)

        def answers(answer: Callable[[Request], dict[str, Any]]) -> Any:
            async def respond(request: Request) -> Response:
                found = await run_in_threadpool(answer, request)
                return JSONResponse(found, headers=_HEADERS)

            return respond

        def does(act: Callable[[Request, bytes], dict[str, Any]]) -> Any:
            async def respond(request: Request) -> Response:
                body = await request.body()
                if len(body) > _MOST_BODY:
                    return refusal(413, f"more than {_MOST_BODY:,} bytes")
                found = await run_in_threadpool(act, request, body)
                return JSONResponse(found, headers=_HEADERS)

            return respond

        routes = [Route(place, file(path), methods=["GET"]) for place, path in files.items()]
        routes.append(Route("/api/events", self._events, methods=["GET"]))
        for place, answer in (
            ("/api/runs/{run}", self._run),
            ("/api/runs/{run}/rows", self._rows),
            ("/api/runs/{run}/reasons", self._reasons),
            ("/api/jobs/{job}/model", self._model),
        ):
            routes.append(Route(place, answers(answer), methods=["GET"]))
        for place, act in (
            ("/api/jobs/{job}/check", self._check),
            ("/api/jobs/{job}/estimate", self._estimate),
            ("/api/jobs/{job}/train", self._train),
            ("/api/runs/{run}/stop", self._stop),
        ):
            routes.append(Route(place, does(act), methods=["POST"]))
        handlers = {404: _not_found, 405: _not_found, PrivetError: _refused}
        app = Starlette(routes=routes, exception_handlers=handlers)
        return Guard(
            app, self._door, self._token.encode(), open_paths=frozenset(files), no_token=403
        )

    async def _events(self, request: Request) -> Response:
        headers = {**_HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(self._stream(), media_type="text/event-stream", headers=headers)

    async def _stream(self) -> AsyncIterator[bytes]:
        """Yield what is new, for as long as somebody listens."""
        cursor, said, loop = Cursor(), 0.0, asyncio.get_running_loop()
        while not self.over:
            for kind, content in await run_in_threadpool(self._look, cursor):
                said = loop.time()
                yield f"event: {kind}\ndata: {json.dumps(content)}\n\n".encode()
            if loop.time() - said > _ALIVE_SECONDS:
                said = loop.time()
                yield b": still here\n\n"
            await asyncio.sleep(_LOOK_SECONDS)

    def _look(self, cursor: Cursor) -> list[tuple[str, dict[str, Any]]]:
        with self._looking:
            self._watch.look()
            return list(self._watch.news(cursor))

    def _run(self, request: Request) -> dict[str, Any]:
        with self._looking:
            return self._watch.whole(request.path_params["run"])

    def _rows(self, request: Request) -> dict[str, Any]:
        return found_rows(self._written(request), request.query_params.get("id", ""))

    def _reasons(self, request: Request) -> dict[str, Any]:
        return reasons(self._written(request), request.query_params.get("row", ""))

    def _written(self, request: Request) -> str:
        _, view = self._watch.run(request.path_params["run"])
        if view.out is None:
            raise ParameterError(f"run: {view.name} has written no predictions to a file")
        return view.out

    def _model(self, request: Request) -> dict[str, Any]:
        return model_of(self._watch.job(request.path_params["job"]))

    def _check(self, request: Request, _: bytes) -> dict[str, Any]:
        name = request.path_params["job"]
        with self._looking:
            job, running = self._watch.job(name).job, self._watch.running(name)
        if running is not None:
            raise UnavailableError("a training goes on: check when it has ended")
        return {"findings": checked(self._watch.own, job)}

    def _estimate(self, request: Request, body: bytes) -> dict[str, Any]:
        return estimated(self._watch.job(request.path_params["job"]).job, body)

    def _train(self, request: Request, body: bytes) -> dict[str, Any]:
        name = request.path_params["job"]
        with self._looking:
            known, running = self._watch.job(name), self._watch.running(name)
            if known.file is None:
                raise UnavailableError(
                    f"the file of {name!r} is not known here: start the page with --job FILE"
                )
            if running is not None:
                raise UnavailableError(f"{name}: is being trained already")
        self._watch.control.train(name, known.file, restart=_asks_restart(body))
        return {"started": name}

    def _stop(self, request: Request, _: bytes) -> dict[str, Any]:
        with self._looking:
            file, view = self._watch.run(request.path_params["run"])
            if view.command != "train":
                raise UnavailableError(f"{view.name}: only trainings are stopped from here")
            self._watch.control.stop(file, int(view.began["pid"]))
        return {"stopping": view.name}


def _asks_restart(body: bytes) -> bool:
    try:
        asked = json.loads(body or b"{}")
    except ValueError:
        raise ParameterError("the request is no JSON") from None
    return isinstance(asked, dict) and asked.get("restart") is True


async def _not_found(_: Request, error: Exception) -> Response:
    return refusal(getattr(error, "status_code", 404), "there is nothing of that name")


async def _refused(_: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, ParameterError) and "there is no" in str(error) else 409
    return refusal(status, str(error))
