"""The recipient's local endpoint: asks for predictions in HTTP, and a page that tells its health.

    POST /predict   {"ids": ["17", "4"]}     200 {"predictions": [0.93, 0.08]}, of a classification
                                                 {"classes": ["no", "yes"],
                                                  "predictions": ["yes", "no"],
                                                  "probabilities": [[0.07, 0.93], [0.92, 0.08]]}
                   {"ids": ["17"],           beside these, if the job has explanations,
                    "explain": true}             {"contributions": {"age": [1.4], "income": [0.9]},
                                                  "base": 0.3}
                                             404 {"error": ..., "unknown": {"4": ["shop"]}}
    GET  /health                             200 {"status": "ok", ...}

An id of several parts is a list of these. Where rows were aligned, nobody knows who lacks an id.

It listens on this machine alone unless told otherwise, and knows no passwords: whoever reaches it
may ask.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import Field, ValidationError

from privet.config import Checked
from privet.config import explain as complaint
from privet.errors import ParameterError, UnavailableError
from privet.federation.classes import ByClass
from privet.federation.explanations import as_json
from privet.federation.request_queue import MOST_BYTES, Id, Request, RequestQueue
from privet.files.records import Name

_LOCAL = ("127.0.0.1", "localhost", "::1")


class _Ask(Checked):
    ids: list[Name] = Field(min_length=1, max_length=100_000)
    explain: bool = False


class _AskByParts(Checked):
    ids: list[list[Name]] = Field(min_length=1, max_length=100_000)
    explain: bool = False


def _read(body: bytes, parts: Sequence[str]) -> tuple[Sequence[Id], bool]:
    """Return the ids that somebody asks for, and whether it wants explanations."""
    if len(parts) == 1:
        asked = _Ask.model_validate_json(body)
        return asked.ids, asked.explain
    by_parts = _AskByParts.model_validate_json(body)
    if any(len(identity) != len(parts) for identity in by_parts.ids):
        raise ParameterError(f"ids: each is a list of {', '.join(parts)}")
    return by_parts.ids, by_parts.explain


def _told(request: Request, classes: tuple[str, ...]) -> dict[str, Any]:
    told: dict[str, Any] = {"predictions": request.predictions.tolist()}
    if classes:
        found = ByClass.of(classes, request.predictions)
        told = {
            "classes": list(classes),
            "predictions": found.likeliest(),
            "probabilities": found.probabilities.tolist(),
        }
    if request.explain and request.explained is not None:
        told |= as_json(request.explained)
    return told


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # of clients that come at the same moment

    def handle_error(self, *_: object) -> None:
        """Say nothing of a client that hung up: the log is for the service."""


class _Server6(_Server):
    address_family = socket.AF_INET6


@contextlib.contextmanager
def endpoint(
    host: str, port: int, queue: RequestQueue, about: dict[str, Any], parts: Sequence[str] = ("id",)
) -> Iterator[int]:
    """Answer HTTP requests through a queue while the context lasts; yield the port.

    `parts` are those of an id.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body leave in one piece, not waiting for each other.
        wbufsize = -1
        disable_nagle_algorithm = True
        timeout = 60

        def do_GET(self) -> None:
            if self.path not in ("/", "/health"):
                self._answer(HTTPStatus.NOT_FOUND, {"error": "there are /predict and /health"})
                return
            if not self._is_meant():
                return
            status = HTTPStatus.OK if queue.status == "ok" else HTTPStatus.SERVICE_UNAVAILABLE
            uptime = time.time() - queue.started
            told = {"status": queue.status, **about, **vars(queue.served), "uptime": uptime}
            self._answer(status, told)

        def do_POST(self) -> None:
            if self.path != "/predict":
                self._answer(HTTPStatus.NOT_FOUND, {"error": "there are /predict and /health"})
                return
            length = self.headers.get("Content-Length", "")
            if not self._is_meant():
                return
            if not re.fullmatch("[0-9]{1,12}", length) or int(length) > MOST_BYTES:
                self._discard(length)
                text = f"a Content-Length of at most {MOST_BYTES} is needed"
                self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": text})
                return
            try:
                ids, explain = _read(self.rfile.read(int(length)), parts)
                if explain and not queue.explains:
                    raise ParameterError("explain: the job has no explanations")
            except ValidationError as error:
                self._answer(HTTPStatus.BAD_REQUEST, {"error": complaint(error)})
                return
            except ParameterError as error:
                self._answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
                return
            request = queue.ask(ids, explain=explain)
            if request.failed:
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": request.failed})
            elif request.unknown:
                text = f"{len(request.unknown)} ids are not known to all participants"
                self._answer(HTTPStatus.NOT_FOUND, {"error": text, "unknown": request.unknown})
            else:
                self._answer(HTTPStatus.OK, _told(request, queue.classes))

        def _discard(self, length: str) -> None:
            """Take in a body that is too long, up to a point: who still sends does not listen."""
            left = min(int(length), 1 << 26) if length.isascii() and length.isdigit() else 0
            while left > 0 and (piece := self.rfile.read(min(left, 1 << 16))):
                left -= len(piece)
            self.close_connection = True

        def _is_meant(self) -> bool:
            """Refuse what a web page elsewhere makes a browser ask under a name of its own."""
            named = self.headers.get("Host", host).rpartition(":")[0].strip("[]") or host
            if host in _LOCAL and named not in _LOCAL:
                self.close_connection = True
                self._answer(HTTPStatus.FORBIDDEN, {"error": "this is not the host you asked for"})
                return False
            return True

        def _answer(self, status: HTTPStatus, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Log nothing: which ids were asked for is nobody's business."""

    try:
        server = (_Server6 if ":" in host else _Server)((host, port), Handler)
    except OSError as error:
        raise UnavailableError(f"http: cannot listen on {host}:{port}: {error.strerror}") from None
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        queue.abandon("the service has ended")
        server.shutdown()
        server.server_close()
        thread.join()
