"""An endpoint for tests, and HTTP requests to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from privet.config.party import EndpointConfig
from privet.config.table import TableSpec
from privet.data.encoding import Encoder
from privet.federation.monitoring.events import Event, EventHandler
from privet.federation.serving.request_queue import RequestQueue
from privet.spec.column_types import ColumnType
from privet.web.schema import RequestParser
from privet.web.server import run_endpoint

JSON = "application/json"
ENCODERS = (
    Encoder("age", ColumnType("number")),
    Encoder("since", ColumnType("date")),
    Encoder("colour", ColumnType("category"), ("red", "blue")),
)
"""Encoders of the columns of inline rows."""


def _fail_on_event(event: Event) -> None:
    raise AssertionError(event.text)


@contextlib.contextmanager
def endpoint(
    queue: RequestQueue,
    job_info: dict[str, Any] | None = None,
    parts: Sequence[str] = ("id",),
    emit: EventHandler = _fail_on_event,
    encoders: Sequence[Encoder] = ENCODERS,
    **settings: Any,
) -> Iterator[int]:
    """Run an endpoint on a free port; by default, any event fails the test."""
    endpoint_config = EndpointConfig(**{"address": "127.0.0.1:0", **settings})
    parser = RequestParser(
        parts,
        endpoint_config.most_rows,
        queue.has_explanations,
        table_spec=TableSpec(path="table.csv", decimal=","),
        get_encoders=lambda: encoders,
    )
    with run_endpoint(endpoint_config, queue, parser, job_info or {}, emit) as port:
        yield port


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: http.client.HTTPMessage

    @property
    def content(self) -> Any:
        return json.loads(self.body)


def send_request(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    context: ssl.SSLContext | None = None,
    **headers: Any,
) -> Answer:
    """Send a request with given headers."""
    connection: http.client.HTTPConnection
    if context is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    else:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
    with contextlib.closing(connection):
        fields = {key.replace("_", "-"): value for key, value in headers.items()}
        connection.request(method, path, body, fields)
        response = connection.getresponse()
        return Answer(response.status, response.read(), response.headers)


def post(port: int, data: Any, path: str = "/predict", **headers: Any) -> tuple[int, Any]:
    """Send a POST request; return the status and the parsed JSON."""
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    response = send_request(port, "POST", path, body, **{"Content_Type": JSON, **headers})
    return response.status, response.content


def get(port: int, path: str, **headers: Any) -> tuple[int, Any]:
    """Send a GET request; return the status and the parsed JSON."""
    response = send_request(port, "GET", path, **headers)
    return response.status, response.content
