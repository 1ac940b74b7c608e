"""The recipient's HTTP endpoint as an ASGI application, with metrics for Prometheus.

    POST /predict   {"ids": ["17", "4"]}     200 {"predictions": [0.93, 0.08]}, of a classification
                                                 {"classes": ["no", "yes"],
                                                  "predictions": ["yes", "no"],
                                                  "probabilities": [[0.07, 0.93], [0.92, 0.08]]}
                   {"rows": [{"id": "17",    the same, for inline rows with the local columns
                     "age": 40}]}
                   {"ids": ["17"],           additionally, if the job has explanations,
                    "explain": true}             {"contributions": {"age": [1.4], "income": [0.9]},
                                                  "base": 0.3}
                                             404 {"error": ..., "unknown": {"4": ["shop"]}}
    GET  /live                               200 as long as the process can answer
    GET  /ready                              200, or 503 while a peer is disconnected
    GET  /health                             the same with numbers
    GET  /metrics, /openapi.json, /docs      for Prometheus, for programs, for people

An id of several parts is a list of these. With alignment, no participant learns which others lack
an id, so a 404 does not name them. A request that cannot be served fails immediately: 503 while a
peer is disconnected, 429 while the queue is full; 504 after the deadline.

Metrics contain names of participants, but no ids, features or predictions.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from privet.config.party import EndpointConfig
from privet.errors import InputError
from privet.federation.serving.request_queue import PredictionRequest, RequestQueue
from privet.web.limits import (
    MAX_DISCARDED_BYTES,
    AccessControl,
    ConnectionLimiter,
    discard_body,
    make_error_response,
)
from privet.web.schema import (
    RequestParser,
    TooManyRowsError,
    iter_json,
    make_openapi_document,
    make_response_content,
    render_docs_page,
)

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class LatencyHistogram:
    """Response times, and response counts by HTTP status."""

    def __init__(self) -> None:
        self.counts_by_status: Counter[int] = Counter()
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._sum = 0.0

    def observe(self, code: int, seconds: float) -> None:
        """Record one response."""
        self.counts_by_status[code] += 1
        self._counts[bisect_left(_BOUNDS, seconds)] += 1
        self._sum += seconds

    def format_samples(self, name: str) -> list[str]:
        """Return the samples of the histogram in Prometheus' text format."""
        samples, cumulative = [], 0
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), self._counts, strict=True):
            cumulative += count
            samples.append(f'{name}_bucket{{le="{bound}"}} {cumulative}')
        return [*samples, f"{name}_sum {self._sum!r}", f"{name}_count {cumulative}"]


def format_metrics(queue: RequestQueue, latencies: LatencyHistogram, n_connections: int) -> str:
    """Return all metrics in Prometheus' text format."""
    stats = queue.stats
    text = [
        *_format_metric(
            "privet_up", "gauge", "Whether all participants are there.", queue.status == "ok"
        ),
        *_format_labelled_metric(
            "privet_peer_up",
            "gauge",
            "Whether a participant or dealer is connected.",
            "peer",
            queue.peers,
        ),
        *_format_labelled_metric(
            "privet_http_requests_total",
            "counter",
            "Predictions asked for, by HTTP status.",
            "code",
            {str(code): n for code, n in sorted(latencies.counts_by_status.items())},
        ),
        "# HELP privet_http_request_seconds Time from a request to its answer.",
        "# TYPE privet_http_request_seconds histogram",
        *latencies.format_samples("privet_http_request_seconds"),
    ]
    sessions = max(0, stats.sessions - 1)
    for name, kind, help_text, value in (
        ("privet_http_connections", "gauge", "Clients that are connected.", n_connections),
        ("privet_waiting_requests", "gauge", "Requests that wait.", queue.n_queued),
        ("privet_rows_total", "counter", "Rows asked for.", stats.rows),
        ("privet_batches_total", "counter", "Runs of the protocol.", stats.batches),
        ("privet_batch_seconds_total", "counter", "Time in runs of the protocol.", stats.seconds),
        ("privet_rounds_total", "counter", "Network delays waited for.", stats.rounds),
        ("privet_sent_bytes_total", "counter", "Sent to participants.", stats.bytes_sent),
        ("privet_received_bytes_total", "counter", "Received from them.", stats.bytes_received),
        (
            *("privet_dealer_bytes_total", "counter", "Received from dealers."),
            stats.bytes_from_dealer,
        ),
        ("privet_meetings_total", "counter", "Attempts to meet the others.", stats.meetings),
        ("privet_reconnections_total", "counter", "Sessions after the first.", sessions),
        ("privet_lost_sessions_total", "counter", "Sessions that ended early.", stats.lost),
        ("privet_model_changes_total", "counter", "Models that replaced another.", stats.models),
        (
            *("privet_refused_models_total", "counter", "New models of ours that are of no use."),
            stats.refused_models,
        ),
        ("privet_uptime_seconds", "gauge", "Time since the start.", time.time() - queue.started),
    ):
        text += _format_metric(name, kind, help_text, value)
    return "\n".join(text) + "\n"


def _format_metric(name: str, metric_type: str, help_text: str, value: float) -> Iterable[str]:
    return (*_format_metric_header(name, metric_type, help_text), f"{name} {_format_number(value)}")


def _format_labelled_metric(
    name: str, metric_type: str, help_text: str, label: str, values: Mapping[str, float]
) -> Iterable[str]:
    # Names of participants contain only characters that need no escaping.
    samples = (
        f'{name}{{{label}="{key}"}} {_format_number(value)}' for key, value in values.items()
    )
    return (*_format_metric_header(name, metric_type, help_text), *samples)


def _format_metric_header(name: str, metric_type: str, help_text: str) -> tuple[str, str]:
    return f"# HELP {name} {help_text}", f"# TYPE {name} {metric_type}"


def _format_number(value: float) -> str:
    return repr(float(value)) if isinstance(value, float) else str(int(value))


_RETRY_SECONDS = "2"
"""Value of Retry-After while a peer is disconnected."""


@dataclass
class EndpointApp:
    """The handlers of the endpoint."""

    endpoint: EndpointConfig
    queue: RequestQueue
    request_parser: RequestParser
    job_info: dict[str, Any]
    """Facts about the job in the response of /health."""
    connections: ConnectionLimiter
    latencies: LatencyHistogram = field(default_factory=LatencyHistogram)

    def make_asgi_app(self) -> ASGIApp:
        """Return the ASGI application behind access control."""
        routes = [
            Route("/predict", self._predict, methods=["POST"]),
            *(
                Route(path, handler, methods=["GET"])
                for path, handler in (
                    ("/", self._handle_health),
                    ("/health", self._handle_health),
                    ("/live", self._handle_live),
                    ("/ready", self._handle_ready),
                    ("/metrics", self._handle_metrics),
                    ("/openapi.json", self._handle_openapi),
                    ("/docs", self._handle_docs),
                )
            ),
        ]
        handlers = {
            404: _handle_not_found,
            405: _handle_method_not_allowed,
            Exception: _handle_internal_error,
        }
        app = Starlette(routes=routes, exception_handlers=handlers)
        return AccessControl(app, self.endpoint, self.endpoint.read_token())

    async def _predict(self, http: HttpRequest) -> Response:
        started = time.perf_counter()
        try:
            response = await self._respond(http)
        except ClientDisconnect:
            response = make_error_response(400, "hung up before the request was there")
        self.latencies.observe(response.status_code, time.perf_counter() - started)
        return response

    async def _respond(self, http: HttpRequest) -> Response:
        body = await self._read_body(http)
        if body is None:
            return make_error_response(
                413, f"a request has at most {self.endpoint.most_bytes:,} bytes"
            )
        try:
            request = self.request_parser.parse(body)
        except TooManyRowsError as error:
            return make_error_response(413, str(error))
        except InputError as error:
            return make_error_response(400, str(error))
        return await self._respond_to(request)

    async def _respond_to(self, request: PredictionRequest) -> Response:
        if not await self._submit_and_wait(request):
            text = f"not answered within {self.endpoint.deadline:g} s: ask for fewer rows, or later"
            return make_error_response(504, text)
        if request.rejection is not None:
            code = 429 if request.rejection.reason == "full" else 503
            wait = "1" if request.rejection.reason == "full" else _RETRY_SECONDS
            return make_error_response(code, request.rejection.text, Retry_After=wait)
        if request.unknown_ids:
            count = len(request.unknown_ids)
            text = f"{count:,} {'id is' if count == 1 else 'ids are'} not known to all participants"
            return await _make_json_response({"error": text, "unknown": request.unknown_ids}, 404)
        return await _make_json_response(make_response_content(request))

    async def _read_body(self, http: HttpRequest) -> bytes | None:
        """Return the request body; None, without keeping any of it, if it is too long."""
        max_bytes, body, n_read = self.endpoint.most_bytes, bytearray(), 0
        declared = http.headers.get("content-length")
        if declared is not None and int(declared) > max_bytes:
            await discard_body(http.receive)
            return None
        # Only the stream knows its end: a read after the last piece would block.
        async for piece in http.stream():
            n_read += len(piece)
            if n_read <= max_bytes:
                body += piece
            else:
                body.clear()
            if n_read > max_bytes + MAX_DISCARDED_BYTES:
                break
        return bytes(body) if n_read <= max_bytes else None

    async def _submit_and_wait(self, request: PredictionRequest) -> bool:
        """Submit a request; return whether it is done before the deadline."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        request.on_done = _make_done_callback(loop, done)
        self.queue.submit(request)
        try:
            await asyncio.wait_for(done, self.endpoint.deadline)
        except asyncio.TimeoutError:
            return False
        finally:
            if not request.is_done:
                self.queue.withdraw(request)
        return True

    async def _handle_live(self, _: HttpRequest) -> Response:
        return JSONResponse({"status": "ok"})

    async def _handle_ready(self, _: HttpRequest) -> Response:
        return self._make_status_response({})

    async def _handle_health(self, _: HttpRequest) -> Response:
        uptime = time.time() - self.queue.started
        return self._make_status_response(
            {
                **self.job_info,
                "model": self.queue.model_id,
                "peers": self.queue.peers,
                **vars(self.queue.stats),
                "uptime": uptime,
            }
        )

    def _make_status_response(self, more: dict[str, Any]) -> Response:
        ready = self.queue.status == "ok"
        headers = None if ready else {"Retry-After": _RETRY_SECONDS}
        return JSONResponse({"status": self.queue.status, **more}, 200 if ready else 503, headers)

    async def _handle_metrics(self, _: HttpRequest) -> Response:
        text = format_metrics(self.queue, self.latencies, self.connections.count)
        return Response(text, headers={"Content-Type": METRICS_CONTENT_TYPE})

    async def _handle_openapi(self, _: HttpRequest) -> Response:
        return JSONResponse(
            make_openapi_document(self.request_parser, self.endpoint, self.job_info)
        )

    async def _handle_docs(self, _: HttpRequest) -> Response:
        content = render_docs_page(
            make_openapi_document(self.request_parser, self.endpoint, self.job_info)
        )
        # The page loads no resources and runs no scripts.
        policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
        return HTMLResponse(content, headers={"Content-Security-Policy": policy})


async def _make_json_response(content: dict[str, Any], status: int = 200) -> Response:
    """Encode a response that may be long in a thread, so that other requests are not delayed."""
    body = await asyncio.to_thread(lambda: b"".join(iter_json(content)))
    return Response(body, status, media_type="application/json")


def _make_done_callback(
    loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]
) -> Callable[[], None]:
    def set_done() -> None:
        if not done.done():
            done.set_result(None)

    def on_done() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(set_done)

    return on_done


async def _handle_not_found(http: HttpRequest, _: Exception) -> Response:
    await discard_body(http.receive)
    return make_error_response(
        404, "there are POST /predict, and GET /ready, /live, /health, /metrics, /docs"
    )


async def _handle_method_not_allowed(http: HttpRequest, error: Exception) -> Response:
    await discard_body(http.receive)
    assert isinstance(error, HTTPException)
    allowed = (error.headers or {}).get("Allow", "")
    return make_error_response(
        405, f"{http.url.path} takes {allowed}, and not {http.method}", Allow=allowed
    )


async def _handle_internal_error(_: HttpRequest, __: Exception) -> Response:
    return make_error_response(500, "an error that nobody expected: please report it")
