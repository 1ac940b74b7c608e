"""Prediction as a service: by ids, over HTTP, many requests in one run."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from privet.boosting.model import Model
from privet.errors import PeerError, UnavailableError
from privet.federation.events import Event
from privet.federation.http import endpoint
from privet.federation.request_queue import MOST_ROWS, RequestQueue
from privet.laboratory.local_federation import LocalFederation
from privet.transport.sockets import SocketChannel
from tests.federation.harness import Run, model_of, prepare, rows, run


class Service:
    """A federation that serves, and its endpoint."""

    def __init__(self, local: LocalFederation, *, explains: bool = False) -> None:
        self.queue = RequestQueue(explains=explains)
        self.model: Model = model_of(local)
        self.found: Run | None = None
        ready = threading.Barrier(1 + len(local.names))

        def tell(event: Event) -> None:
            if event.kind == "serving":
                ready.wait(20)

        def serve() -> None:
            tells = dict.fromkeys(local.names, tell)
            self.found = run(local, "serve", queue=self.queue, tells=tells)

        self.thread = threading.Thread(target=serve, daemon=True)
        self.thread.start()
        ready.wait(20)

    @classmethod
    def until_the_test_is_over(cls, local: LocalFederation) -> Iterator[Service]:
        """Yield a service, and see that it ends well."""
        found = cls(local)
        yield found
        found.queue.close("the test is over")
        found.ended().checked()

    def ended(self) -> Run:
        self.thread.join(20)
        assert self.found is not None
        return self.found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> LocalFederation:
    local = prepare(tmp_path_factory.mktemp("serving"), tables=2)
    run(local, "train").checked()
    return local


@pytest.fixture
def service(trained: LocalFederation) -> Iterator[Service]:
    yield from Service.until_the_test_is_over(trained)


def post(port: int, content: Any, path: str = "/predict") -> tuple[int, Any]:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def expected(model: Model, numbers: list[int]) -> Any:
    return pytest.approx(model.predict(rows(1).columns[:, numbers]), abs=1e-4)


def positive(answer: dict[str, Any]) -> list[float]:
    """Return the probabilities of class 1, from an answer that fits together."""
    assert answer["classes"] == ["0", "1"]
    for name, pair in zip(answer["predictions"], answer["probabilities"], strict=True):
        assert sum(pair) == pytest.approx(1.0, abs=1e-12)
        assert name == ("1" if pair[1] >= 0.5 else "0")
    return [pair[1] for pair in answer["probabilities"]]


def test_predictions_by_id(service: Service) -> None:
    with endpoint("127.0.0.1", 0, service.queue, {"job": "rehearsal"}) as port:
        status, answer = post(port, {"ids": ["1-7", "1-0", "1-7"]})
        assert (status, positive(answer)) == (200, expected(service.model, [7, 0, 7]))
        status, answer = post(port, {"ids": ["1-7", "moon"]})
        assert (status, answer["unknown"]) == (404, {"moon": ["bank", "shop"]})
        assert positive(post(port, {"ids": ["1-1"]})[1]) == expected(service.model, [1])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=20) as page:
            told = json.load(page)
    assert (told["status"], told["job"], told["requests"], told["rows"]) == (
        "ok",
        "rehearsal",
        3,
        6,
    )


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/predict", b"", 400),
        ("/predict", b"[", 400),
        ("/predict", {"ids": []}, 400),
        ("/predict", {"ids": [3]}, 400),
        ("/predict", {"names": ["a"]}, 400),
        ("/predict", {"ids": ["a"], "more": 1}, 400),
        ("/moon", {"ids": ["a"]}, 404),
    ],
)
def test_bad_requests(path: str, body: Any, code: int) -> None:
    with endpoint("127.0.0.1", 0, RequestQueue(), {}) as port:
        status, answer = post(port, body, path)
    assert status == code
    assert answer["error"]


def test_a_port_that_is_taken() -> None:
    with (
        endpoint("127.0.0.1", 0, RequestQueue(), {}) as port,
        pytest.raises(UnavailableError, match=f"cannot listen on 127.0.0.1:{port}"),
        endpoint("127.0.0.1", port, RequestQueue(), {}),
    ):
        pass


def test_many_at_once_are_one_run(service: Service) -> None:
    asked = [[number, (3 * number) % 40] for number in range(30)]
    with ThreadPoolExecutor(30) as pool:
        answers = list(
            pool.map(lambda n: service.queue.ask([f"1-{i}" for i in n]).predictions, asked)
        )
    for numbers, answer in zip(asked, answers, strict=True):
        assert answer == expected(service.model, numbers)
    assert service.queue.served.requests == 30
    assert service.queue.served.batches < 30


def test_ids_of_any_script_and_length(service: Service) -> None:
    with endpoint("127.0.0.1", 0, service.queue, {}) as port:
        strange = ["\u00e9" * 900 + str(number) for number in range(2000)]
        status, answer = post(port, {"ids": [*strange, "1-0"]})
        assert status == 413  # a body of 6 bytes for each letter
        body = json.dumps({"ids": [*strange, "1-0"]}, ensure_ascii=False).encode()
        status, answer = post(port, body)
        assert (status, len(answer["unknown"])) == (404, 2000)
        assert positive(post(port, {"ids": ["1-1"]})[1]) == expected(service.model, [1])


def ask(port: int, method: str, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
    """Ask with headers of our own."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as line:
        line.request(method, path, body, {key.replace("_", "-"): v for key, v in headers.items()})
        answer = line.getresponse()
        return answer.status, json.load(answer)


def test_a_page_elsewhere_is_not_answered() -> None:
    with endpoint("127.0.0.1", 0, RequestQueue(), {}) as port:
        body = b'{"ids": ["a"]}'
        assert ask(port, "POST", "/predict", body, Host=f"evil.example:{port}")[0] == 403
        assert ask(port, "POST", "/predict", b"", Content_Length="\u00b2")[0] == 413
        status, told = ask(port, "GET", "/health", b"", Host=f"localhost:{port}")
        assert (status, told["status"]) == (503, "waiting")


def test_who_has_whom_goes_to_the_recipient_alone(tmp_path: Path) -> None:
    """A third participant is told which ids all have, and nothing by those who lack some."""
    local = prepare(tmp_path, tables=1, names=("bank", "telecom", "shop"))
    run(local, "train").checked()
    for name, lacking in (("bank", "1-2,"), ("shop", "1-3,")):
        path = tmp_path / name / "train.csv"
        lines = path.read_text().splitlines(True)
        path.write_text("".join(line for line in lines if not line.startswith(lacking)))
    seen: list[tuple[str, list[int]]] = []
    original = SocketChannel.receive

    def receive(self: SocketChannel, peer: str, *arguments: Any) -> Any:
        array = original(self, peer, *arguments)
        if self.name == "telecom" and array.shape == (3,):
            seen.append((peer, array.tolist()))
        return array

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SocketChannel, "receive", receive)
        service = Service(local)
        asked = service.queue.ask(["1-1", "1-2", "1-3"])
        service.queue.close("the test is over")
        service.ended().checked()
    assert asked.unknown == {"1-2": ["bank"], "1-3": ["shop"]}
    assert seen == [("shop", [1, 0, 0])]


def test_what_does_not_fit_into_one_run_waits() -> None:
    queue = RequestQueue()
    sizes = [1, MOST_ROWS - 1, 1, 2 * MOST_ROWS]
    threads = []
    for size in sizes:
        threads.append(threading.Thread(target=queue.ask, args=(["x"] * size,), daemon=True))
        threads[-1].start()
        while sum(len(r.ids) for r in queue._waiting) < sum(sizes[: len(threads)]):
            pass
    taken = [[len(request.ids) for request in queue.take(1.0)] for _ in range(3)]
    assert taken == [[1, MOST_ROWS - 1], [1], [2 * MOST_ROWS]]
    assert queue.take(0.0) == []
    queue.close("")


def test_whoever_asks_after_the_end_is_told(trained: LocalFederation) -> None:
    queue = RequestQueue()
    queue.close("the service has ended")
    with endpoint("127.0.0.1", 0, queue, {}) as port:
        assert post(port, {"ids": ["a"]}) == (503, {"error": "the service has ended"})
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=20)


def test_everybody_ends_when_one_is_gone(trained: LocalFederation, tmp_path: Path) -> None:
    queue = RequestQueue()
    failing = threading.Event()

    class Broken(dict[str, int]):
        def get(self, *_: object) -> int:
            raise RuntimeError("no more")

    from privet.federation import serving

    original = serving._Service.__init__

    def broken(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        if arguments[-1] is None:
            self._rows = Broken(self._rows)
            failing.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving._Service, "__init__", broken)
        asking = ThreadPoolExecutor(1).submit(queue.ask, ["1-0"])
        found = run(trained, "serve", queue=queue)
    assert failing.is_set()
    assert isinstance(found.errors["bank"], RuntimeError)
    assert isinstance(found.errors["shop"], PeerError)
    assert isinstance(found.errors["dealer"], PeerError)
    assert "bank" in str(found.errors["shop"])
    assert asking.result(20).failed == "the service has ended"
