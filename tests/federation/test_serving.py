"""Prediction as a service: requests by id over HTTP, batched into one run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from privet.boosting.model import Model
from privet.config.party import PartyConfig
from privet.data.reader import InlineRows
from privet.errors import PeerError
from privet.experiments.local_federation import LocalFederation
from privet.federation.monitoring.events import Event
from privet.federation.serving.model import ServedModel
from privet.federation.serving.request_queue import PredictionRequest, RequestQueue
from privet.transport.sockets import SocketChannel
from tests.federation.harness import Run, model_of, prepare, rows, run
from tests.web.client import endpoint, get, post


class Service:
    """A federation that serves, and its endpoint."""

    def __init__(self, local: LocalFederation, *, explains: bool = False) -> None:
        self.queue = RequestQueue(has_explanations=explains)
        self.model: Model = model_of(local)
        self.found: Run | None = None
        ready = threading.Barrier(1 + len(local.party_names))

        def handle(event: Event) -> None:
            if event.kind == "serving":
                ready.wait(20)

        def serve() -> None:
            handlers = dict.fromkeys(local.party_names, handle)
            self.found = run(local, "serve", queue=self.queue, handlers=handlers)

        self.thread = threading.Thread(target=serve, daemon=True)
        self.thread.start()
        ready.wait(20)

    @classmethod
    def until_the_test_is_over(cls, local: LocalFederation) -> Iterator[Service]:
        """Yield a service, and check that it ends without errors."""
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


def expected(model: Model, numbers: list[int]) -> Any:
    return pytest.approx(model.predict(rows(1).columns[:, numbers]), abs=1e-4)


def positive(answer: dict[str, Any]) -> list[float]:
    """Return the probabilities of class 1, after checking the answer's consistency."""
    assert answer["classes"] == ["0", "1"]
    for name, pair in zip(answer["predictions"], answer["probabilities"], strict=True):
        assert sum(pair) == pytest.approx(1.0, abs=1e-12)
        assert name == ("1" if pair[1] >= 0.5 else "0")
    return [pair[1] for pair in answer["probabilities"]]


def test_predictions_by_id(service: Service) -> None:
    with endpoint(service.queue, {"job": "rehearsal"}) as port:
        status, answer = post(port, {"ids": ["1-7", "1-0", "1-7"]})
        assert (status, positive(answer)) == (200, expected(service.model, [7, 0, 7]))
        status, answer = post(port, {"ids": ["1-7", "moon"]})
        assert (status, answer["unknown"]) == (404, {"moon": ["bank", "shop"]})
        assert positive(post(port, {"ids": ["1-1"]})[1]) == expected(service.model, [1])
        _, health = get(port, "/health")
    assert (health["status"], health["job"], health["requests"], health["rows"]) == (
        "ok",
        "rehearsal",
        3,
        6,
    )


def test_concurrent_requests_are_batched(service: Service) -> None:
    requests = [[number, (3 * number) % 40] for number in range(30)]
    with ThreadPoolExecutor(30) as pool:
        answers = list(
            pool.map(
                lambda n: service.queue.submit_and_wait([f"1-{i}" for i in n]).predictions, requests
            )
        )
    for numbers, answer in zip(requests, answers, strict=True):
        assert answer == expected(service.model, numbers)
    assert service.queue.stats.requests == 30
    assert service.queue.stats.batches < 30


def test_ids_of_any_script_and_length(service: Service) -> None:
    with endpoint(service.queue) as port:
        ids = ["\u00e9" * 900 + str(number) for number in range(2000)]
        status, answer = post(port, {"ids": [*ids, "1-0"]})
        assert status == 413  # JSON escapes take 6 bytes per character
        body = json.dumps({"ids": [*ids, "1-0"]}, ensure_ascii=False).encode()
        status, answer = post(port, body)
        assert (status, len(answer["unknown"])) == (404, 2000)
        assert positive(post(port, {"ids": ["1-1"]})[1]) == expected(service.model, [1])


def test_only_the_recipient_learns_who_lacks_an_id(tmp_path: Path) -> None:
    """A third participant learns only which requested ids all participants have."""
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
        request = service.queue.submit_and_wait(["1-1", "1-2", "1-3"])
        service.queue.close("the test is over")
        service.ended().checked()
    assert request.unknown_ids == {"1-2": ["bank"], "1-3": ["shop"]}
    assert seen == [("shop", [1, 0, 0])]


def test_inline_rows(tmp_path: Path) -> None:
    """The request contains the recipient's columns; the other participants find theirs by id."""
    local = prepare(tmp_path, tables=2)
    run(local, "train").checked()
    table = tmp_path / "shop" / "train.csv"
    lines = table.read_text().splitlines(True)
    table.write_text("".join(line for line in lines if not line.startswith("1-7,")))
    data, columns = PartyConfig.load(tmp_path / "shop" / "party.toml").data, rows(1).columns
    cells_of_known = [
        dict(zip("de", columns[3:, number].tolist(), strict=True)) for number in (7, 0)
    ]
    changed = columns[:, [0]].copy()
    changed[4] -= 10.0
    other = [dict(zip("de", changed[3:, 0].tolist(), strict=True))]
    service, answers = Service(local), []
    for ids, cells in ((["1-7", "1-0"], cells_of_known), (["1-0"], other), (["moon"], other)):
        settled = threading.Event()
        request = PredictionRequest(ids, inline_rows=InlineRows(data, cells), on_done=settled.set)
        service.queue.submit(request)
        assert settled.wait(20)
        answers.append(request)
    missing = service.queue.submit_and_wait(["1-7"])
    service.queue.close("the test is over")
    service.ended().checked()
    assert missing.unknown_ids == {"1-7": ["shop"]}
    assert answers[0].predictions == expected(service.model, [7, 0])
    assert answers[1].predictions == pytest.approx(service.model.predict(changed), abs=1e-4)
    assert abs(answers[1].predictions[0] - answers[0].predictions[1]) > 0.01
    assert answers[2].unknown_ids == {"moon": ["bank"]}


def test_all_members_end_if_one_fails(
    trained: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = ServedModel.find_rows

    def fail(self: ServedModel, ids: Sequence[str]) -> Any:
        if ids and self.part_file.part.party == "bank":
            raise RuntimeError("no more")
        return find(self, ids)

    monkeypatch.setattr(ServedModel, "find_rows", fail)
    service = Service(trained)
    request = service.queue.submit_and_wait(["1-0"])
    found = service.ended()
    assert isinstance(found.errors["bank"], RuntimeError)
    assert isinstance(found.errors["shop"], PeerError)
    assert isinstance(found.errors["dealer"], PeerError)
    assert "bank" in str(found.errors["shop"])
    assert request.rejection == ("absent", "bank was lost: meeting the others again")
    assert service.queue.status == "waiting"
