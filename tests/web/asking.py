"""An endpoint for tests, and ways to ask it."""

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
"""What makes features of the columns of rows that come with requests."""


def _fail(event: Event) -> None:
    raise AssertionError(event.text)


@contextlib.contextmanager
def endpoint(
    queue: RequestQueue,
    about: dict[str, Any] | None = None,
    parts: Sequence[str] = ("id",),
    tell: EventHandler = _fail,
    encoders: Sequence[Encoder] = ENCODERS,
    **terms: Any,
) -> Iterator[int]:
    """Have an endpoint on some free port, which has no errors to tell, or tells somebody."""
    said = EndpointConfig(**{"address": "127.0.0.1:0", **terms})
    reader = RequestParser(
        parts,
        said.most_rows,
        queue.has_explanations,
        table_spec=TableSpec(path="table.csv", decimal=","),
        get_encoders=lambda: encoders,
    )
    with run_endpoint(said, queue, reader, about or {}, tell) as port:
        yield port


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: http.client.HTTPMessage

    @property
    def told(self) -> Any:
        return json.loads(self.body)


def ask(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    context: ssl.SSLContext | None = None,
    **headers: Any,
) -> Answer:
    """Ask with headers of our own."""
    line: http.client.HTTPConnection
    if context is None:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    else:
        line = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
    with contextlib.closing(line):
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        line.request(method, path, body, named)
        answer = line.getresponse()
        return Answer(answer.status, answer.read(), answer.headers)


def post(port: int, content: Any, path: str = "/predict", **headers: Any) -> tuple[int, Any]:
    """Ask for something, and return what is told."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    answer = ask(port, "POST", path, body, **{"Content_Type": JSON, **headers})
    return answer.status, answer.told


def get(port: int, path: str, **headers: Any) -> tuple[int, Any]:
    """Ask for a page of JSON."""
    answer = ask(port, "GET", path, **headers)
    return answer.status, answer.told
