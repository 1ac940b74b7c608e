"""A service of a job with shards: large batches go through workers, small ones never do."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.shares import Share
from privet.boosting import sharding
from privet.boosting.prediction import answer
from privet.boosting.sharding import Crowd, ShardInference
from privet.config.job import Job
from privet.config.party import PartyFile
from privet.data.reader import GivenRows
from privet.experiments.local_federation import LocalFederation
from privet.federation.cluster import worker
from privet.federation.dealer import deal
from privet.federation.monitoring.events import Event
from privet.federation.prediction.prediction import load_own_part
from privet.federation.serving.model import ServedModel
from privet.federation.serving.request_queue import Request, RequestQueue
from privet.federation.serving.server import Server
from privet.federation.session.retry import persist
from privet.federation.session.session import Seat, seated
from privet.runtime.cost import Counter
from privet.runtime.runtime import Runtime
from privet.runtime.workers import Order, Worker
from tests.federation.harness import align, change, rows, run
from tests.federation.test_serving import Service
from tests.federation.test_shards import prepare

LARGE = 9
"""Rows of a batch that is large, in these tests."""
MANY = [f"1-{number}" for number in (*range(6, 40), 17, 17)]


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privet.boosting.sharding.WORTHWHILE", LARGE)


def training(folder: Path, *, aligned: bool = False, dealers: int = 1) -> LocalFederation:
    local = prepare(folder, 3, tables=2, dealers=dealers)
    change(local.job, ("\n[params]", 'explain = "feature"\n\n[params]'))
    if aligned:
        align(local)
    run(local, "train").checked()
    return local


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> LocalFederation:
    return training(tmp_path_factory.mktemp("shards"))


def asked(queue: RequestQueue, ids: list[str], *, explain: bool = False) -> Request:
    found = queue.ask(ids, explain=explain)
    assert (found.refused, found.unknown) == (None, {})
    return found


def asked_in_small_batches(queue: RequestQueue, ids: list[str]) -> Any:
    starts = range(0, len(ids), LARGE - 1)
    return np.concatenate([asked(queue, ids[k : k + LARGE - 1]).predictions for k in starts])


def called(service: Service) -> dict[str, int]:
    """Return how often everybody has called its workers, once the service has ended."""
    service.queue.close("the test is over")
    events = service.ended().events
    return {who: [e.kind for e in told].count("workers") for who, told in events.items()}


def test_large_batches_go_through_workers(trained: LocalFederation) -> None:
    """The same predictions to the last bit, explained or not, at the cost that is counted."""
    service = Service(trained, explains=True)
    queue = service.queue
    small = asked_in_small_batches(queue, MANY)
    before = copy(queue.served)
    assert np.array_equal(asked(queue, MANY).predictions, small)
    job, now = Job.read(trained.job), queue.served
    counter = Counter(2)
    query = job.query(len(MANY), 2)
    answer(counter, query, job.names, None, None, None, Crowd(job.shards))
    cost = counter.total
    # Of two, one sends what the other receives.
    sent = now.bytes_sent - before.bytes_sent + now.bytes_received - before.bytes_received
    assert (now.rounds - before.rounds, sent) == (cost.rounds, cost.online)
    assert 0 < now.bytes_from_dealer - before.bytes_from_dealer < cost.offline  # our part of it
    # Again, by the same workers; and with what came with the request, which is in no table.
    found = asked(queue, MANY[:20], explain=True)
    assert np.array_equal(found.predictions, small[:20])
    few = asked(queue, MANY[:5], explain=True)
    assert found.explained is not None
    assert few.explained is not None
    shown = found.explained.take(np.arange(5)).explanation
    assert np.array_equal(shown.contributions, few.explained.explanation.contributions)
    columns = rows(1).columns[3:, 6:26]
    described = PartyFile.load(trained.folder / "shop" / "party.toml").data
    cells = [dict(zip("de", pair, strict=True)) for pair in columns.T.tolist()]
    settled = threading.Event()
    request = Request(MANY[:20], given=GivenRows(described, cells), on_answered=settled.set)
    queue.submit(request)
    assert settled.wait(20)
    assert np.array_equal(request.predictions, small[:20])
    assert called(service) == {"bank": 1, "shop": 1, "dealer": 1}
    service.ended().checked()


def test_small_batches_call_nobody(trained: LocalFederation) -> None:
    service = Service(trained)
    asked_in_small_batches(service.queue, MANY)
    assert set(called(service).values()) == {0}
    service.ended().checked()


@contextlib.contextmanager
def healing(local: LocalFederation) -> Iterator[tuple[RequestQueue, list[Event]]]:
    """Serve, and meet again whoever was lost, until the test is over."""
    job, queue = Job.read(local.job), RequestQueue()
    told: list[Event] = []
    failures: list[BaseException] = []

    def role(name: str) -> None:
        folder = local.folder / name
        keys = str(folder / f"{name}.key"), str(folder / f"{name}.crt")

        def sit(wait: float) -> contextlib.AbstractContextManager[Seat]:
            return seated(job, name, *keys, wait=wait, tell=told.append)

        def session(seat: Seat) -> None:
            if server is None:
                deal(seat)
            else:
                server.serve(seat)

        server: Server | None = None
        if name not in local.dealers:
            party = PartyFile.load(folder / "party.toml")
            file = load_own_part(party, local.part(name), None)
            frame = party.read_new_rows(job, file.encoders, folder / "train.csv")
            model = ServedModel(file, frame)
            mine = queue if name == local.recipient else None
            server = Server(lambda: model, party.folder, mine, party.cluster)
        try:
            persist(sit, session, 20.0, told.append, service=server is not None)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=role, args=(n,), daemon=True) for n in local.everybody]
    for thread in threads:
        thread.start()
    wait_for(queue)
    yield queue, told
    queue.close("the test is over")
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert failures == []


def wait_for(queue: RequestQueue, sessions: int = 1) -> None:
    """Wait until so many sessions have begun, the last of which is up."""
    until = time.monotonic() + 20
    while queue.served.sessions < sessions or queue.status != "ok":
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("whose", ["bank", "shop", "dealer"])
def test_a_worker_that_fails_ends_the_session_and_not_the_service(
    trained: LocalFederation, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ShardInference.carry_out
    fails = threading.Semaphore(1)
    index = {"bank": 0, "shop": 1, "dealer": -1}[whose]

    def carry_out(self: ShardInference, order: Order) -> list[Share]:
        runtime = self._runtime
        mine = runtime.index == index and not isinstance(runtime, Counter)
        if mine and order.name == "scores" and fails.acquire(blocking=False):
            raise OSError("this machine is on fire")
        return original(self, order)

    monkeypatch.setattr(ShardInference, "carry_out", carry_out)
    with healing(trained) as (queue, told):
        small = asked_in_small_batches(queue, MANY)
        started = time.monotonic()
        refused = queue.ask(MANY).refused
        assert refused is not None
        assert refused.why == "absent"
        wait_for(queue, 2)
        assert time.monotonic() - started < 15
        assert np.array_equal(asked(queue, MANY).predictions, small)
        assert queue.served.lost == 1
    assert any("on fire" in event.text for event in told if event.kind == "lost")


def test_a_worker_that_is_killed_while_nobody_asks(tmp_path: Path) -> None:
    """It is missed within seconds, not by the next who asks; here with three dealers, aligned."""
    local = training(tmp_path, aligned=True, dealers=3)
    change(local.folder / "bank" / "party.toml", ("[data]", "[cluster]\nlocal = 1\n\n[data]"))
    with healing(local) as (queue, _):
        small = asked_in_small_batches(queue, MANY)
        assert np.array_equal(asked(queue, MANY).predictions, small)
        (process,) = multiprocessing.active_children()
        process.kill()
        wait_for(queue, 2)
        assert np.array_equal(asked(queue, MANY).predictions, small)


@pytest.mark.parametrize("whose", ["bank", "dealer"])
def test_a_worker_that_is_lost_when_the_service_ends(
    trained: LocalFederation, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody needs it any more: all end, and nobody meets again to wait for the others."""
    index = {"bank": 0, "dealer": -1}[whose]
    original = sharding.infer_shard
    lost = threading.Event()

    def infer_shard(runtime: Runtime, suite: Any, tests: Any, orders: Worker) -> None:
        original(runtime, suite, tests, orders)
        if runtime.index == index:
            lost.set()
            raise OSError("this machine is on fire")

    monkeypatch.setattr(worker, "infer_shard", infer_shard)
    with healing(trained) as (queue, told):
        asked(queue, MANY)
    assert lost.is_set()
    assert [event.text for event in told if event.kind == "lost"] == []
