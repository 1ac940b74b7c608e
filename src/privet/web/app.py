"""The recipient's endpoint as an ASGI application.

    POST /predict   {"ids": ["17", "4"]}     200 {"predictions": [0.93, 0.08]}, of a classification
                                                 {"classes": ["no", "yes"],
                                                  "predictions": ["yes", "no"],
                                                  "probabilities": [[0.07, 0.93], [0.92, 0.08]]}
                   {"rows": [{"id": "17",    the same, of rows whose own columns are given
                     "age": 40}]}
                   {"ids": ["17"],           beside these, if the job has explanations,
                    "explain": true}             {"contributions": {"age": [1.4], "income": [0.9]},
                                                  "base": 0.3}
                                             404 {"error": ..., "unknown": {"4": ["shop"]}}
    GET  /live                               200 as long as the process can answer
    GET  /ready                              200, or 503 while somebody is missing
    GET  /health                             the same with numbers
    GET  /metrics, /openapi.json, /docs      for Prometheus, for programs, for people

An id of several parts is a list of these. Where rows were aligned, nobody knows who lacks an id.
Whoever cannot be answered is told so at once: 503 while the federation is not there, 429 where too
many ask, 504 after the deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from privet.errors import InputError
from privet.federation.request_queue import Request, RequestQueue
from privet.files.endpoint import Endpoint
from privet.web.asked import Reader, TooManyRowsError, encoded, told
from privet.web.connections import Connections
from privet.web.guard import MOST_DISCARDED, Guard, discard_body, refusal
from privet.web.metrics import CONTENT_TYPE, Latencies, exposition
from privet.web.openapi import document, page

_RETRY_SECONDS = "2"
"""When to ask again while the federation is not there."""


@dataclass
class Application:
    """What answers requests."""

    endpoint: Endpoint
    queue: RequestQueue
    reader: Reader
    about: dict[str, Any]
    """What is served, for whoever asks for our health."""
    connections: Connections
    latencies: Latencies = field(default_factory=Latencies)

    def asgi(self) -> ASGIApp:
        """Return it behind its guard."""
        routes = [
            Route("/predict", self._predict, methods=["POST"]),
            *(
                Route(path, answer, methods=["GET"])
                for path, answer in (
                    ("/", self._health),
                    ("/health", self._health),
                    ("/live", self._live),
                    ("/ready", self._ready),
                    ("/metrics", self._metrics),
                    ("/openapi.json", self._openapi),
                    ("/docs", self._docs),
                )
            ),
        ]
        handlers = {404: _not_found, 405: _not_allowed, Exception: _bug}
        app = Starlette(routes=routes, exception_handlers=handlers)
        return Guard(app, self.endpoint, self.endpoint.read_token())

    async def _predict(self, http: HttpRequest) -> Response:
        started = time.perf_counter()
        try:
            answer = await self._answer(http)
        except ClientDisconnect:
            answer = refusal(400, "hung up before the request was there")
        self.latencies.note(answer.status_code, time.perf_counter() - started)
        return answer

    async def _answer(self, http: HttpRequest) -> Response:
        body = await self._body(http)
        if body is None:
            return refusal(413, f"a request has at most {self.endpoint.most_bytes:,} bytes")
        try:
            request = self.reader.read(body)
        except TooManyRowsError as error:
            return refusal(413, str(error))
        except InputError as error:
            return refusal(400, str(error))
        return await self._answer_to(request)

    async def _answer_to(self, request: Request) -> Response:
        if not await self._ask(request):
            text = f"not answered within {self.endpoint.deadline:g} s: ask for fewer rows, or later"
            return refusal(504, text)
        if request.refused is not None:
            code = 429 if request.refused.why == "full" else 503
            wait = "1" if request.refused.why == "full" else _RETRY_SECONDS
            return refusal(code, request.refused.text, Retry_After=wait)
        if request.unknown:
            count = len(request.unknown)
            text = f"{count:,} {'id is' if count == 1 else 'ids are'} not known to all participants"
            return await _json({"error": text, "unknown": request.unknown}, 404)
        return await _json(told(request))

    async def _body(self, http: HttpRequest) -> bytes | None:
        """Return what was sent; None if it is too much, of which nothing is kept."""
        most, found, taken = self.endpoint.most_bytes, bytearray(), 0
        declared = http.headers.get("content-length")
        if declared is not None and int(declared) > most:
            await discard_body(http.receive)
            return None
        # The stream itself knows its end: after the last piece, whoever asks for more waits on.
        async for piece in http.stream():
            taken += len(piece)
            if taken <= most:
                found += piece
            else:
                found.clear()
            if taken > most + MOST_DISCARDED:
                break
        return bytes(found) if taken <= most else None

    async def _ask(self, request: Request) -> bool:
        """Have a request answered, or refused; tell whether that was in time."""
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[None] = loop.create_future()
        request.on_answered = _from_another_thread(loop, settled)
        self.queue.submit(request)
        try:
            await asyncio.wait_for(settled, self.endpoint.deadline)
        except asyncio.TimeoutError:
            return False
        finally:
            if not request.answered:
                self.queue.withdraw(request)
        return True

    async def _live(self, _: HttpRequest) -> Response:
        return JSONResponse({"status": "ok"})

    async def _ready(self, _: HttpRequest) -> Response:
        return self._status({})

    async def _health(self, _: HttpRequest) -> Response:
        uptime = time.time() - self.queue.started
        return self._status(
            {
                **self.about,
                "model": self.queue.model,
                "peers": self.queue.peers,
                **vars(self.queue.served),
                "uptime": uptime,
            }
        )

    def _status(self, more: dict[str, Any]) -> Response:
        ready = self.queue.status == "ok"
        headers = None if ready else {"Retry-After": _RETRY_SECONDS}
        return JSONResponse({"status": self.queue.status, **more}, 200 if ready else 503, headers)

    async def _metrics(self, _: HttpRequest) -> Response:
        text = exposition(self.queue, self.latencies, self.connections.count)
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    async def _openapi(self, _: HttpRequest) -> Response:
        return JSONResponse(document(self.reader, self.endpoint, self.about))

    async def _docs(self, _: HttpRequest) -> Response:
        content = page(document(self.reader, self.endpoint, self.about))
        # Nothing is loaded from anywhere, and nothing runs.
        policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
        return HTMLResponse(content, headers={"Content-Security-Policy": policy})


async def _json(answer: dict[str, Any], status: int = 200) -> Response:
    """Return an answer that may be long: others are answered meanwhile."""
    body = await asyncio.to_thread(lambda: b"".join(encoded(answer)))
    return Response(body, status, media_type="application/json")


def _from_another_thread(
    loop: asyncio.AbstractEventLoop, settled: asyncio.Future[None]
) -> Callable[[], None]:
    def settle() -> None:
        if not settled.done():
            settled.set_result(None)

    def on_answered() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle)

    return on_answered


async def _not_found(http: HttpRequest, _: Exception) -> Response:
    await discard_body(http.receive)
    return refusal(404, "there are POST /predict, and GET /ready, /live, /health, /metrics, /docs")


async def _not_allowed(http: HttpRequest, error: Exception) -> Response:
    await discard_body(http.receive)
    assert isinstance(error, HTTPException)
    allowed = (error.headers or {}).get("Allow", "")
    return refusal(405, f"{http.url.path} takes {allowed}, and not {http.method}", Allow=allowed)


async def _bug(_: HttpRequest, __: Exception) -> Response:
    return refusal(500, "an error that nobody expected: please report it")
