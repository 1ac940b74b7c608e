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
from privet.boosting.prediction import answer_query
from privet.boosting.sharding import BatchWorkers, ShardInference
from privet.config.job import Job
from privet.config.party import PartyConfig
from privet.data.reader import InlineRows
from privet.experiments.local_federation import LocalFederation
from privet.federation.cluster import worker
from privet.federation.dealer import run_dealer_session
from privet.federation.monitoring.events import Event
from privet.federation.prediction.prediction import load_local_part
from privet.federation.serving.model import ServedModel
from privet.federation.serving.request_queue import PredictionRequest, RequestQueue
from privet.federation.serving.server import ServiceRunner
from privet.federation.session.retry import run_with_retry
from privet.federation.session.session import LocalMember, open_session
from privet.runtime.cost import CostCounter
from privet.runtime.runtime import Runtime
from privet.runtime.workers import Command, CommandLoop
from tests.federation.harness import align, change, rows, run
from tests.federation.test_serving import Service
from tests.federation.test_shards import prepare

LARGE = 9
"""Rows of a batch that is large, in these tests."""
MANY = [f"1-{number}" for number in (*range(6, 40), 17, 17)]


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privet.boosting.sharding.MIN_SHARDED_ROWS", LARGE)


def training(folder: Path, *, aligned: bool = False, dealers: int = 1) -> LocalFederation:
    local = prepare(folder, 3, tables=2, dealers=dealers)
    change(local.job_path, ("\n[params]", 'explain = "feature"\n\n[params]'))
    if aligned:
        align(local)
    run(local, "train").checked()
    return local


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> LocalFederation:
    return training(tmp_path_factory.mktemp("shards"))


def asked(queue: RequestQueue, ids: list[str], *, explain: bool = False) -> PredictionRequest:
    found = queue.submit_and_wait(ids, explain=explain)
    assert (found.rejection, found.unknown_ids) == (None, {})
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
    before = copy(queue.stats)
    assert np.array_equal(asked(queue, MANY).predictions, small)
    job, now = Job.read(trained.job_path), queue.stats
    counter = CostCounter(2)
    query = job.make_prediction_query(len(MANY), 2)
    answer_query(counter, query, job.party_names, None, None, None, BatchWorkers(job.shards))
    cost = counter.total
    # Of two, one sends what the other receives.
    sent = now.bytes_sent - before.bytes_sent + now.bytes_received - before.bytes_received
    assert (now.rounds - before.rounds, sent) == (cost.rounds, cost.online_bytes)
    assert (
        0 < now.bytes_from_dealer - before.bytes_from_dealer < cost.offline_bytes
    )  # our part of it
    # Again, by the same workers; and with what came with the request, which is in no table.
    found = asked(queue, MANY[:20], explain=True)
    assert np.array_equal(found.predictions, small[:20])
    few = asked(queue, MANY[:5], explain=True)
    assert found.explanation is not None
    assert few.explanation is not None
    shown = found.explanation.take(np.arange(5)).explanation
    assert np.array_equal(shown.contributions, few.explanation.explanation.contributions)
    columns = rows(1).columns[3:, 6:26]
    described = PartyConfig.load(trained.folder / "shop" / "party.toml").data
    cells = [dict(zip("de", pair, strict=True)) for pair in columns.T.tolist()]
    settled = threading.Event()
    request = PredictionRequest(
        MANY[:20], inline_rows=InlineRows(described, cells), on_done=settled.set
    )
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
    job, queue = Job.read(local.job_path), RequestQueue()
    told: list[Event] = []
    failures: list[BaseException] = []

    def role(name: str) -> None:
        folder = local.folder / name
        keys = str(folder / f"{name}.key"), str(folder / f"{name}.crt")

        def sit(wait: float) -> contextlib.AbstractContextManager[LocalMember]:
            return open_session(job, name, *keys, timeout=wait, emit=told.append)

        def session(seat: LocalMember) -> None:
            if server is None:
                run_dealer_session(seat)
            else:
                server.run_session(seat)

        server: ServiceRunner | None = None
        if name not in local.dealer_names:
            party = PartyConfig.load(folder / "party.toml")
            file = load_local_part(party, local.get_part_path(name), None)
            frame = party.read_new_rows(job, file.encoders, folder / "train.csv")
            model = ServedModel(file, frame)
            mine = queue if name == local.recipient else None
            server = ServiceRunner(lambda: model, party.folder, mine, party.cluster)
        try:
            run_with_retry(sit, session, 20.0, told.append, is_service=server is not None)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=role, args=(n,), daemon=True) for n in local.member_names]
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
    while queue.stats.sessions < sessions or queue.status != "ok":
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("whose", ["bank", "shop", "dealer"])
def test_a_worker_that_fails_ends_the_session_and_not_the_service(
    trained: LocalFederation, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ShardInference.execute
    fails = threading.Semaphore(1)
    index = {"bank": 0, "shop": 1, "dealer": -1}[whose]

    def carry_out(self: ShardInference, order: Command) -> list[Share]:
        runtime = self._runtime
        mine = runtime.index == index and not isinstance(runtime, CostCounter)
        if mine and order.name == "scores" and fails.acquire(blocking=False):
            raise OSError("this machine is on fire")
        return original(self, order)

    monkeypatch.setattr(ShardInference, "execute", carry_out)
    with healing(trained) as (queue, told):
        small = asked_in_small_batches(queue, MANY)
        started = time.monotonic()
        refused = queue.submit_and_wait(MANY).rejection
        assert refused is not None
        assert refused.reason == "absent"
        wait_for(queue, 2)
        assert time.monotonic() - started < 15
        assert np.array_equal(asked(queue, MANY).predictions, small)
        assert queue.stats.lost == 1
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
    original = sharding.run_inference_worker
    lost = threading.Event()

    def infer_shard(runtime: Runtime, suite: Any, tests: Any, orders: CommandLoop) -> None:
        original(runtime, suite, tests, orders)
        if runtime.index == index:
            lost.set()
            raise OSError("this machine is on fire")

    monkeypatch.setattr(worker, "run_inference_worker", infer_shard)
    with healing(trained) as (queue, told):
        asked(queue, MANY)
    assert lost.is_set()
    assert [event.text for event in told if event.kind == "lost"] == []
