"""The recipient's local endpoint: asks for predictions in HTTP, and a page that tells its health.

    POST /predict   {"ids": ["17", "4"]}     200 {"predictions": [0.93, 0.08]}
                                             404 {"error": ..., "unknown": {"4": ["shop"]}}
    GET  /health                             200 {"status": "ok", ...}

It listens on this machine alone unless told otherwise, and knows no passwords: whoever reaches it
may ask.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import Field, ValidationError

from privet.config import explain
from privet.errors import UnavailableError
from privet.service.desk import Desk
from privet.service.records import Name, Record

_MAX_BODY = 1 << 24


class _Ask(Record):
    ids: list[Name] = Field(min_length=1, max_length=100_000)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # of clients that come at the same moment


@contextlib.contextmanager
def endpoint(host: str, port: int, desk: Desk, about: dict[str, Any]) -> Iterator[int]:
    """Answer HTTP requests through a desk while the context lasts; yield the port."""

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
            status = HTTPStatus.SERVICE_UNAVAILABLE if desk.closed else HTTPStatus.OK
            served = vars(desk.served)
            told = "ended" if desk.closed else "ok"
            uptime = time.time() - desk.started
            self._answer(status, {"status": told, **about, **served, "uptime": uptime})

        def do_POST(self) -> None:
            if self.path != "/predict":
                self._answer(HTTPStatus.NOT_FOUND, {"error": "there are /predict and /health"})
                return
            length = self.headers.get("Content-Length", "")
            if not length.isdigit() or int(length) > _MAX_BODY:
                self.close_connection = True  # what follows is not to be read
                self._answer(HTTPStatus.LENGTH_REQUIRED, {"error": "a body of a given length"})
                return
            try:
                asked = _Ask.model_validate_json(self.rfile.read(int(length)))
            except ValidationError as error:
                self._answer(HTTPStatus.BAD_REQUEST, {"error": explain(error)})
                return
            request = desk.ask(asked.ids)
            if request.failed:
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": request.failed})
            elif request.unknown:
                text = f"{len(request.unknown)} ids are not known to all participants"
                self._answer(HTTPStatus.NOT_FOUND, {"error": text, "unknown": request.unknown})
            else:
                self._answer(HTTPStatus.OK, {"predictions": request.predictions})

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
        server = _Server((host, port), Handler)
    except OSError as error:
        raise UnavailableError(f"http: cannot listen on {host}:{port}: {error.strerror}") from None
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        desk.abandon("the service has ended")
        server.shutdown()
        server.server_close()
        thread.join()
