"""The endpoint without a federation: invalid requests, responses, limits and access control."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.responses import JSONResponse

from privet.config.party import EndpointConfig
from privet.data.encoding import Encoder
from privet.errors import ParameterError, UnavailableError
from privet.federation.serving.request_queue import PredictionRequest, RequestQueue
from privet.spec.column_types import ColumnType
from privet.transport.tls import create_identity
from privet.web import limits
from privet.web import schema as web_schema
from tests.web.client import ENCODERS, JSON, endpoint, get, post, send_request

TOKEN = "0123456789abcdef"  # noqa: S105


class AnsweringQueue(RequestQueue):
    """Queue in which a thread answers each request with the length of each id."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.set_available(["bank", "dealer"])
        self.model_id = "some model"
        self.pause = threading.Event()
        self.pause.set()
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        while True:
            for request in self.take_batch(1.0):
                self.pause.wait()
                request.predictions = np.array([float(len(each)) for each in request.ids])
                if request.inline_rows is not None:
                    request.predictions = np.nansum(request.inline_rows.encode(ENCODERS), axis=0)
                self.stats.requests += 1
                self.stats.rows += len(request.ids)
                request.mark_done()


@pytest.fixture
def queue() -> AnsweringQueue:
    return AnsweringQueue()


@pytest.fixture
def secret(tmp_path: Path) -> str:
    (tmp_path / "token").write_text(TOKEN + "\n")
    return str(tmp_path / "token")


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/predict", b"", 400),
        ("/predict", b"[", 400),
        ("/predict", {}, 400),
        ("/predict", {"ids": []}, 400),
        ("/predict", {"ids": [3]}, 400),
        ("/predict", {"names": ["a"]}, 400),
        ("/predict", {"ids": ["a"], "more": 1}, 400),
        ("/predict", {"ids": ["a"] * 6}, 413),
        ("/moon", {"ids": ["a"]}, 404),
        ("/ready", {"ids": ["a"]}, 405),
    ],
)
def test_invalid_requests_are_rejected(
    queue: AnsweringQueue, path: str, body: Any, code: int
) -> None:
    with endpoint(queue, most_rows=5) as port:
        status, answer = post(port, body, path)
        assert post(port, {"ids": ["abc"]}) == (200, {"predictions": [3.0]})
    assert status == code
    assert answer["error"]


def test_inline_rows(queue: AnsweringQueue) -> None:
    rows = [
        {"id": "a", "age": 40, "since": "1970-01-03", "colour": "blue"},
        {"id": "b", "age": 1.5, "since": "1970-01-02", "colour": "green"},
    ]
    with endpoint(queue) as port:
        assert post(port, {"rows": rows}) == (200, {"predictions": [43.0, 4.5]})
        # Text is read as the cells of the table are, which has decimal commas.
        texts = [{**row, "age": "1,5"} for row in rows]
        assert post(port, {"rows": texts}) == (200, {"predictions": [4.5, 4.5]})
        assert post(port, {"rows": [{**rows[0], "age": None}]}) == (200, {"predictions": [3.0]})


def test_responses_are_encoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces join to the same bytes; no piece has more rows than the limit."""
    monkeypatch.setattr(web_schema, "_PIECE", 3)
    numbers = np.array([1.0, 0.1, 1e-300, -2.5, 1e22, 3.0, 1 / 3])
    answer = {
        "classes": ["nö", 'a "yes"'],
        "predictions": ["nö"] * 7,
        "probabilities": np.stack([numbers, numbers], axis=1),
        "contributions": {"age": numbers, "Größe": numbers[:3], "": numbers[:0]},
        "base": 0.3,
        "unknown": {"4": ["shop"]},
    }

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        return value.tolist() if isinstance(value, np.ndarray) else value

    pieces = list(web_schema.iter_json(answer))
    assert b"".join(pieces) == JSONResponse(plain(answer)).body
    assert max(piece.count(b",") for piece in pieces) <= 6  # of three rows of two classes
    with pytest.raises(ValueError, match="not JSON compliant"):
        list(web_schema.iter_json({"predictions": np.array([np.nan])}))


def test_response_with_many_rows(queue: AnsweringQueue) -> None:
    ids = [str(number) for number in range(25_000)]
    with endpoint(queue) as port:
        found = send_request(
            port, "POST", "/predict", json.dumps({"ids": ids}).encode(), Content_Type=JSON
        )
    assert found.headers["Content-Type"] == JSON
    assert int(found.headers["Content-Length"]) == len(found.body)
    assert found.content == {"predictions": [float(len(each)) for each in ids]}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"id": None}, "row 1 has no 'id', which is text"),
        ({"id": 7}, "row 1 has no 'id', which is text"),
        ({"id": ["a"]}, "row 1 has no 'id', which is text"),
        (
            {"size": 3},
            "row 1: 'size' is no column of the model; there are 'age', 'since', 'colour'",
        ),
        ({"age": "many"}, "column 'age', row 1: 'many' is not a number"),
        ({"age": True}, "column 'age' holds bool, and number was expected"),
        ({"age": [1]}, "rows: row 1: 'age' is [1]: write text, a number that is finite, true or"),
        ({"id": [1]}, "rows: row 1 has no 'id', which is text"),
        ({"age": ["a"]}, "rows: row 1: 'age' is a list"),
        ({"age": 1e999}, "rows: row 1: 'age' is inf: write text, a number that is finite, true"),
        ({"age": "1e999"}, "row 1 is infinite; write a finite number, or write null where"),
        ({"since": 3}, "column 'since' holds int64, and date was expected"),
        ({"since": "yesterday"}, "column 'since', row 1: 'yesterday' is not a date"),
        ({"colour": {}}, "rows: row 1: 'colour' is {}: write text, "),
    ],
)
def test_invalid_inline_rows_are_rejected(
    queue: AnsweringQueue, change: dict[str, Any], complaint: str
) -> None:
    row = {"id": "a", "age": 40, "since": "1970-01-03", "colour": "blue"}
    with endpoint(queue) as port:
        status, answer = post(port, {"rows": [{**row, **change}]})
        assert status == 400
        assert complaint in answer["error"]
        # A client can change neither party.toml nor the table.
        for word in ("categorical", "types", "missing =", "declar", "decimal", "the table", ".str"):
            assert word not in answer["error"]
        incomplete = {key: cell for key, cell in row.items() if key != "since"}
        assert post(port, {"rows": [incomplete]}) == (
            400,
            {"error": "row 1: 'since' is required; null where it is missing"},
        )
        mixed = {"rows": [row, {**row, "age": "40"}]}
        assert "column 'age' mixes text" in post(port, mixed)[1]["error"]
        assert post(port, {"rows": [row], "ids": ["a"]})[0] == 400


def test_error_advice_is_for_the_client(queue: AnsweringQueue) -> None:
    row = {"id": "a", "age": 40, "since": "1970-01-03", "colour": "blue"}
    with endpoint(queue) as port:
        for change, advice in (
            ({"age": "many"}, "; write a number, as 12.5, or null where it is missing"),
            ({"since": "31.12.70"}, "; write text, as 2020-12-31, or null where it is missing"),
            ({"since": 3}, ": write text, as 2020-12-31, or null where it is missing"),
        ):
            assert post(port, {"rows": [{**row, **change}]})[1]["error"].endswith(advice)
    column_types = {"yes": ColumnType("boolean"), "at": ColumnType("time", "%H:%M")}
    encoders = tuple(Encoder(name, column_type) for name, column_type in column_types.items())
    with endpoint(queue, encoders=encoders) as port:
        for change, advice in (
            ({"yes": "perhaps"}, "; write true or false, or null where it is missing"),
            ({"at": "noon"}, "; write text of the form %H:%M, or null where it is missing"),
        ):
            row_sent = {"id": "a", "yes": True, "at": "12:00", **change}
            assert post(port, {"rows": [row_sent]})[1]["error"].endswith(advice)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/predict", "POST"), ("PUT", "/predict", "POST"), ("POST", "/ready", "GET, HEAD")],
)
def test_unsupported_methods_are_rejected(
    queue: AnsweringQueue, method: str, path: str, allowed: str
) -> None:
    with endpoint(queue) as port:
        answer = send_request(
            port, method, path, b"{}" if method != "GET" else None, Content_Type=JSON
        )
    assert answer.status == 405
    assert sorted(answer.headers["Allow"].split(", ")) == allowed.split(", ")
    assert answer.content["error"].endswith(f", and not {method}")


@pytest.mark.parametrize(
    ("count", "start"), [(1, "1 id is not known"), (2, "2 ids are not known to all participants")]
)
def test_unknown_ids_are_reported(count: int, start: str) -> None:
    class RejectingQueue(AnsweringQueue):
        def submit(self, request: PredictionRequest) -> None:
            request.unknown_ids = {each: [] for each in request.ids if isinstance(each, str)}
            request.mark_done()

    with endpoint(RejectingQueue()) as port:
        status, answer = post(port, {"ids": list("ab"[:count])})
    assert (status, answer["error"].startswith(start)) == (404, True)


def test_used_port_is_reported(queue: AnsweringQueue) -> None:
    with (
        endpoint(queue) as port,
        pytest.raises(UnavailableError, match=f"cannot listen on 127.0.0.1:{port}"),
        endpoint(queue, address=f"127.0.0.1:{port}"),
    ):
        pass


def test_readiness_and_liveness_differ() -> None:
    queue = RequestQueue()
    with endpoint(queue, {"job": "rehearsal"}) as port:
        assert get(port, "/live") == (200, {"status": "ok"})
        answer = send_request(port, "GET", "/ready")
        assert (answer.status, answer.content) == (503, {"status": "waiting"})
        assert int(answer.headers["Retry-After"]) > 0
        queue.set_available(["bank"])
        assert get(port, "/ready") == (200, {"status": "ok"})
        status, content = get(port, "/health")
        assert (status, content["job"], content["peers"]) == (200, "rehearsal", {"bank": True})
        queue.set_unavailable("bank was lost")
        assert get(port, "/ready")[0] == 503
        assert get(port, "/live")[0] == 200


def test_disconnected_federation_answers_503_immediately() -> None:
    with endpoint(RequestQueue()) as port:
        started = time.monotonic()
        answer = send_request(port, "POST", "/predict", b'{"ids": ["a"]}', Content_Type=JSON)
        assert time.monotonic() - started < 2
    assert (answer.status, answer.content) == (503, {"error": "waiting for the other participants"})
    assert int(answer.headers["Retry-After"]) > 0


def test_a_request_has_a_deadline(queue: AnsweringQueue) -> None:
    queue.pause.clear()
    with endpoint(queue, deadline=0.2) as port:
        status, answer = post(port, {"ids": ["a"]})
        assert (status, answer["error"][:26]) == (504, "not answered within 0.2 s:")
        # The first is in progress; this one is queued, and withdrawn at its deadline.
        assert post(port, {"ids": ["b"]})[0] == 504
        assert queue.n_queued == 0
        queue.pause.set()


def test_full_queue_rejects_requests(queue: AnsweringQueue) -> None:
    queue = AnsweringQueue(max_queued=1)
    queue.pause.clear()
    with endpoint(queue) as port:
        threads = [threading.Thread(target=post, args=(port, {"ids": ["a"]})) for _ in range(2)]
        for thread in threads:  # one is in progress, one is queued
            thread.start()
            time.sleep(0.2)
        answer = send_request(port, "POST", "/predict", b'{"ids": ["a"]}', Content_Type=JSON)
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        assert "1 requests wait already" in answer.content["error"]
        queue.pause.set()
        for thread in threads:
            thread.join(20)


def test_rate_limit(queue: AnsweringQueue) -> None:
    with endpoint(queue, most_per_second=3) as port:
        codes = [post(port, {"ids": ["a"]})[0] for _ in range(5)]
        assert codes[:3] == [200] * 3
        assert 429 in codes
        assert get(port, "/ready")[0] == 200  # without a limit
        time.sleep(0.5)
        assert post(port, {"ids": ["a"]})[0] == 200


def test_only_json_is_accepted(queue: AnsweringQueue) -> None:
    body = b'{"ids": ["a"]}'
    with endpoint(queue) as port:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            assert send_request(port, "POST", "/predict", body, Content_Type=kind).status == 415
        assert send_request(port, "POST", "/predict", body).status == 415
        kind = "Application/JSON; charset=utf-8"
        assert send_request(port, "POST", "/predict", body, Content_Type=kind).status == 200


def test_other_hosts_and_origins_are_rejected(queue: AnsweringQueue) -> None:
    body = {"ids": ["a"]}
    with endpoint(queue, hosts=["desk.example"], origins=["https://page.example"]) as port:
        for host in (f"evil.example:{port}", "evil.example", "", "[::2]", "127.0.0.1.evil.example"):
            assert post(port, body, Host=host)[0] == 403
        for host in (f"localhost:{port}", "[::1]:80", "DESK.example", f"127.0.0.1:{port}"):
            assert post(port, body, Host=host)[0] == 200
        others = f"http://127.0.0.1:{port + 1}", "http://[", "http://[x]"
        for origin in ("https://evil.example", "null", *others):
            assert post(port, body, Origin=origin)[0] == 403
            assert get(port, "/live", Origin=origin)[0] == 403
        for origin in ("https://page.example", f"http://127.0.0.1:{port}"):
            assert post(port, body, Origin=origin)[0] == 200


def test_token_is_required(queue: AnsweringQueue, secret: str) -> None:
    body = {"ids": ["a"]}
    with endpoint(queue, token=secret) as port:
        for shown in ("", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}0", f"Bearer {TOKEN[:-1]}"):
            assert post(port, body, Authorization=shown)[0] == 401
        assert post(port, body)[0] == 401
        assert post(port, body, Authorization=f"Bearer {TOKEN}")[0] == 200
        assert [get(port, path)[0] for path in ("/live", "/ready")] == [200, 200]
        for path in ("/health", "/metrics", "/docs", "/openapi.json"):
            assert send_request(port, "GET", path).status == 401
            assert send_request(port, "GET", path, Authorization=f"bearer {TOKEN}").status == 200


def test_public_address_requires_a_token(queue: AnsweringQueue, secret: str) -> None:
    with pytest.raises(ParameterError, match=r"token: 0\.0\.0\.0:8000 can be asked from other"):
        EndpointConfig(address="0.0.0.0:8000")
    with endpoint(queue, address="0.0.0.0:0", token=secret) as port:
        assert post(port, {"ids": ["a"]}, Host="desk.example")[0] == 403
        assert post(port, {"ids": ["a"]}, Authorization=f"Bearer {TOKEN}")[0] == 200
    Path(secret).write_text("short")
    with pytest.raises(ParameterError, match="holds no secret of 16 characters"):
        EndpointConfig(token=secret).read_token()
    Path(secret).unlink()
    with pytest.raises(ParameterError, match="No such file"):
        EndpointConfig(token=secret).read_token()


def make_tls_files(folder: Path) -> tuple[ssl.SSLContext, dict[str, Any]]:
    """Return an SSL context that trusts an endpoint, and the endpoint's settings."""
    identity = create_identity("shop", folder)
    files: dict[str, Any] = {
        "certificate": str(identity.certificate_file),
        "key": str(identity.key_file),
    }
    context = ssl.create_default_context(cafile=files["certificate"])
    context.check_hostname = False
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context, files


def test_tls(queue: AnsweringQueue, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    context, files = make_tls_files(tmp_path)
    with endpoint(queue, **files) as port:
        body = b'{"ids": ["a"]}'
        answer = send_request(port, "POST", "/predict", body, context=context, Content_Type=JSON)
        assert (answer.status, answer.content) == (200, {"predictions": [1.0]})
        with pytest.raises(OSError, match=r".*"):
            send_request(port, "GET", "/live")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        assert send_request(port, "GET", "/live", context=context).status == 200
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(ssl.SSLError):
            send_request(port, "GET", "/live", context=context)
    assert not caplog.records  # errors of clients are not logged
    with pytest.raises(ParameterError, match="TLS takes both"):
        EndpointConfig(key="shop.key")
    with (
        pytest.raises(ParameterError, match=r"cannot be used: .*: no certificate: it holds none"),
        endpoint(queue, certificate=files["key"], key=files["key"]),
    ):
        pass


@contextlib.contextmanager
def connect(port: int, sent: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(sent)
        yield connection


def read_to_end(connection: socket.socket) -> bytes:
    """Return all bytes until the peer closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            received += piece
    return received


def read_response(connection: socket.socket) -> bytes:
    """Return one response, and keep the connection open."""
    response = b""
    while b"\r\n\r\n" not in response:
        response += connection.recv(1 << 16)
    head, _, body = response.partition(b"\r\n\r\n")
    (length,) = re.findall(rb"content-length: ([0-9]+)", head)
    while len(body) < int(length):
        body += connection.recv(1 << 16)
    return response


LIVE_REQUEST = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"POST /moon HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n",
        b"POST /predict HTTP/1.1\r\nHost: evil.example\r\nContent-Type: application/json\r\n",
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n",
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n",
        b"GET /ready HTTP/1.1\r\nHost: localhost\r\n",
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
def test_rejected_body_is_not_parsed_as_a_request(
    queue: AnsweringQueue, head: bytes, chunked: bool
) -> None:
    """The body of a rejected request may contain a request, which must not be answered."""
    framed_body = (
        b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
        % (len(LIVE_REQUEST), LIVE_REQUEST)
        if chunked
        else b"Content-Length: %d\r\n\r\n%s" % (len(LIVE_REQUEST), LIVE_REQUEST)
    )
    last = b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with endpoint(queue) as port, connect(port, head + framed_body + last) as connection:
        answers = read_to_end(connection).count(b"HTTP/1.1 ")
    assert answers == 2  # to the rejected and the last one, and not to the hidden one


def test_conflicting_lengths_are_rejected(queue: AnsweringQueue) -> None:
    sent = (
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + LIVE_REQUEST
    )
    with endpoint(queue) as port, connect(port, sent) as connection:
        answer = read_to_end(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("declared", [True, False])
def test_too_long_body_is_rejected(queue: AnsweringQueue, declared: bool) -> None:
    body = b" " * 300_000
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    framed = b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    if not declared:
        framed = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with endpoint(queue, most_bytes=1000) as port, connect(port, head + framed) as connection:
        assert read_response(connection).startswith(b"HTTP/1.1 413 ")
        connection.sendall(LIVE_REQUEST)
        assert read_response(connection).startswith(b"HTTP/1.1 200 ")


def _chunked(size: int, chunk: int) -> list[bytes]:
    """Return a body of blanks in chunks, and its end."""
    sizes = [min(chunk, size - start) for start in range(0, size, chunk)]
    return [b"%x\r\n%s\r\n" % (each, b" " * each) for each in sizes] + [b"0\r\n\r\n"]


@pytest.mark.parametrize("sends", ["at once", "by chunk", "end with last", "by 8,000 bytes"])
def test_bodies_near_the_size_limit_are_answered(queue: AnsweringQueue, sends: str) -> None:
    """For all ways to split them: the piece above the limit can be the last one."""
    head = (
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    with endpoint(queue, most_bytes=100_000) as port:
        for size in (90_000, 99_999, 100_000, 100_001, 120_000, 130_000, 400_000):
            for chunk in (16_000, 50_000, 65_000, 100_000, 100_001, 120_000):
                pieces = [head, *_chunked(size, chunk)]
                if sends == "at once":
                    pieces = [b"".join(pieces)]
                elif sends == "end with last":
                    pieces[-2:] = [b"".join(pieces[-2:])]
                elif sends == "by 8,000 bytes":
                    whole = b"".join(pieces)
                    pieces = [whole[at : at + 8000] for at in range(0, len(whole), 8000)]
                with connect(port) as connection:
                    connection.settimeout(5)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    for piece in pieces:
                        connection.sendall(piece)
                        time.sleep(0.002)
                    code = b"400" if size <= 100_000 else b"413"
                    answer = read_response(connection)
                    assert answer.startswith(b"HTTP/1.1 " + code), (size, chunk)
                    connection.sendall(LIVE_REQUEST)
                    assert read_response(connection).startswith(b"HTTP/1.1 200 "), (size, chunk)


def test_too_long_headers_are_rejected(queue: AnsweringQueue) -> None:
    sent = b"GET /live HTTP/1.1\r\nX-More: " + b"x" * (1 << 15)
    with endpoint(queue) as port, connect(port, sent) as connection:
        assert read_to_end(connection).startswith(b"HTTP/1.1 431 ")


def test_slow_requests_are_closed(queue: AnsweringQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECEIVE_TIMEOUT_SECONDS", 0.5)
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for sent in (b"", b"GET /li", head + b"Content-Length: 20\r\n\r\n{"):
        with endpoint(queue) as port, connect(port, sent) as connection:
            assert read_to_end(connection).startswith(b"HTTP/1.1 408 ")


def test_a_connection_is_kept_between_requests(
    queue: AnsweringQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RECEIVE_TIMEOUT_SECONDS", 0.5)
    with endpoint(queue) as port, connect(port) as connection:
        for _ in range(2):
            connection.sendall(LIVE_REQUEST)
            assert read_response(connection).startswith(b"HTTP/1.1 200 ")
            time.sleep(2.1)


def test_slow_clients_do_not_block_others(queue: AnsweringQueue) -> None:
    """1,500 clients send half a request; this is above the connection limit."""
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(endpoint(queue))
        slow = []
        for number in range(1500):
            sent = b"GET /rea" if number % 2 else head + b"Content-Length: 20\r\n\r\n{"
            slow.append(stack.enter_context(connect(port, sent)))
        for _ in range(3):
            started = time.monotonic()
            assert get(port, "/ready")[0] == 200
            assert post(port, {"ids": ["abc"]}) == (200, {"predictions": [3.0]})
            assert time.monotonic() - started < 2
        assert read_to_end(slow[0]).startswith(b"HTTP/1.1 408 ")


def test_unfinished_tls_handshakes_do_not_block_others(
    queue: AnsweringQueue, tmp_path: Path
) -> None:
    context, files = make_tls_files(tmp_path)
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(endpoint(queue, most_connections=50, **files))
        for _ in range(300):
            stack.enter_context(connect(port))
        started = time.monotonic()
        assert send_request(port, "GET", "/ready", context=context).status == 200
        assert time.monotonic() - started < 2


def test_connection_limit_answers_429(queue: AnsweringQueue) -> None:
    queue.pause.clear()
    body = b'{"ids": ["a"]}'
    sent = (
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    with endpoint(queue, most_connections=2) as port, connect(port, sent), connect(port, sent):
        time.sleep(0.3)
        with connect(port) as third:
            assert read_to_end(third).startswith(b"HTTP/1.1 429 ")
        queue.pause.set()


def test_metrics(queue: AnsweringQueue) -> None:
    with endpoint(queue) as port:
        post(port, {"ids": ["a", "b"]})
        post(port, {"ids": []})
        answer = send_request(port, "GET", "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = answer.body.decode().splitlines()
    found = dict(each.rsplit(" ", 1) for each in lines if not each.startswith("#"))
    for name, value in {
        "privet_up": "1",
        'privet_peer_up{peer="bank"}': "1",
        'privet_http_requests_total{code="200"}': "1",
        'privet_http_requests_total{code="400"}': "1",
        'privet_http_request_seconds_bucket{le="+Inf"}': "2",
        "privet_http_request_seconds_count": "2",
        "privet_rows_total": "2",
        "privet_reconnections_total": "0",
        "privet_http_connections": "1",
    }.items():
        assert found[name] == value, name
    assert {float(value) >= 0 for value in found.values()} == {True}
    # Every family has one HELP and one TYPE line before its samples.
    kinds = [each.split()[2] for each in lines if each.startswith("# TYPE")]
    helps = [each.split()[2] for each in lines if each.startswith("# HELP")]
    assert kinds == helps == list(dict.fromkeys(kinds))
    stems = {name.partition("{")[0] for name in found}
    histogram = {"_bucket", "_sum", "_count"}
    for stem in stems:
        assert stem in kinds or any(stem.removesuffix(end) in kinds for end in histogram)


def test_openapi_document_and_docs_page(queue: AnsweringQueue, secret: str) -> None:
    headers: dict[str, Any] = {"Authorization": f"Bearer {TOKEN}"}
    with endpoint(queue, {"job": "<churn>"}, parts=["table", "row"], token=secret) as port:
        _, document = get(port, "/openapi.json", **headers)
        answer = send_request(port, "GET", "/docs", **headers)
    assert document["openapi"].startswith("3.")
    schema = document["paths"]["/predict"]["post"]["requestBody"]["content"][JSON]["schema"]
    assert schema["properties"]["ids"]["items"]["maxItems"] == 2
    assert "explain" not in schema["properties"]
    row = schema["properties"]["rows"]["items"]
    assert row["required"] == ["id", "age", "since", "colour"]
    assert row["properties"]["since"]["description"] == "2020-12-31"
    assert document["paths"]["/ready"]["get"]["security"] == []
    text = answer.body.decode()
    assert "Predictions of &lt;churn&gt;" in text
    for path in document["paths"]:
        assert f"<code>{path}</code>" in text
    # The page loads no resources and runs no scripts.
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert not [word for word in ("<script", "src=", "href=", "url(", "@import") if word in text]


def test_internal_errors_are_logged(queue: AnsweringQueue) -> None:
    """An unexpected error is logged in full, and the client receives a general error."""
    texts: list[str] = []

    def fail(request: PredictionRequest) -> None:
        raise RuntimeError("no more")

    queue.submit = fail  # type: ignore[method-assign]
    with endpoint(queue, emit=lambda event: texts.append(event.text)) as port:
        status, answer = post(port, {"ids": ["a"]})
    assert (status, json.dumps(answer)) == (
        500,
        '{"error": "an error that nobody expected: please report it"}',
    )
    assert "RuntimeError: no more" in "".join(texts)
