"""A service of a job with shards: only large batches use workers."""

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
"""The minimum size of a large batch in these tests."""
MANY = [f"1-{number}" for number in (*range(6, 40), 17, 17)]


@pytest.fixture(autouse=True)
def small_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
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


def submit(queue: RequestQueue, ids: list[str], *, explain: bool = False) -> PredictionRequest:
    found = queue.submit_and_wait(ids, explain=explain)
    assert (found.rejection, found.unknown_ids) == (None, {})
    return found


def submit_in_small_batches(queue: RequestQueue, ids: list[str]) -> Any:
    starts = range(0, len(ids), LARGE - 1)
    return np.concatenate([submit(queue, ids[k : k + LARGE - 1]).predictions for k in starts])


def count_pool_starts(service: Service) -> dict[str, int]:
    """Return how often each member started its workers, once the service has ended."""
    service.queue.close("the test is over")
    events = service.ended().events
    return {name: [e.kind for e in emitted].count("workers") for name, emitted in events.items()}


def test_large_batches_use_workers(trained: LocalFederation) -> None:
    """The predictions are identical, explained or not, and the cost is as estimated."""
    service = Service(trained, explains=True)
    queue = service.queue
    small = submit_in_small_batches(queue, MANY)
    before = copy(queue.stats)
    assert np.array_equal(submit(queue, MANY).predictions, small)
    job, now = Job.read(trained.job_path), queue.stats
    counter = CostCounter(2)
    query = job.make_prediction_query(len(MANY), 2)
    answer_query(counter, query, job.party_names, None, None, None, BatchWorkers(job.shards))
    cost = counter.total
    # With two participants, the bytes that one receives are those that the other sends.
    sent = now.bytes_sent - before.bytes_sent + now.bytes_received - before.bytes_received
    assert (now.rounds - before.rounds, sent) == (cost.rounds, cost.online_bytes)
    assert (
        0 < now.bytes_from_dealer - before.bytes_from_dealer < cost.offline_bytes
    )  # the local part of it
    # Again with the same workers, with explanations, and with inline rows.
    found = submit(queue, MANY[:20], explain=True)
    assert np.array_equal(found.predictions, small[:20])
    few = submit(queue, MANY[:5], explain=True)
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
    assert count_pool_starts(service) == {"bank": 1, "shop": 1, "dealer": 1}
    service.ended().checked()


def test_small_batches_start_no_workers(trained: LocalFederation) -> None:
    service = Service(trained)
    submit_in_small_batches(service.queue, MANY)
    assert set(count_pool_starts(service).values()) == {0}
    service.ended().checked()


@contextlib.contextmanager
def reconnecting_service(local: LocalFederation) -> Iterator[tuple[RequestQueue, list[Event]]]:
    """Serve until the test ends, and reconnect after failures."""
    job, queue = Job.read(local.job_path), RequestQueue()
    events: list[Event] = []
    failures: list[BaseException] = []

    def role(name: str) -> None:
        folder = local.folder / name
        keys = str(folder / f"{name}.key"), str(folder / f"{name}.crt")

        def open_member(wait: float) -> contextlib.AbstractContextManager[LocalMember]:
            return open_session(job, name, *keys, timeout=wait, emit=events.append)

        def session(member: LocalMember) -> None:
            if server is None:
                run_dealer_session(member)
            else:
                server.run_session(member)

        server: ServiceRunner | None = None
        if name not in local.dealer_names:
            party = PartyConfig.load(folder / "party.toml")
            file = load_local_part(party, local.get_part_path(name), None)
            frame = party.read_new_rows(job, file.encoders, folder / "train.csv")
            model = ServedModel(file, frame)
            local_queue = queue if name == local.recipient else None
            server = ServiceRunner(lambda: model, party.folder, local_queue, party.cluster)
        try:
            run_with_retry(open_member, session, 20.0, events.append, is_service=server is not None)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=role, args=(n,), daemon=True) for n in local.member_names]
    for thread in threads:
        thread.start()
    wait_for(queue)
    yield queue, events
    queue.close("the test is over")
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert failures == []


def wait_for(queue: RequestQueue, sessions: int = 1) -> None:
    """Wait until this many sessions have started, and the last one is serving."""
    until = time.monotonic() + 20
    while queue.stats.sessions < sessions or queue.status != "ok":
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("owner", ["bank", "shop", "dealer"])
def test_failed_worker_ends_the_session_but_not_the_service(
    trained: LocalFederation, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ShardInference.execute
    fails = threading.Semaphore(1)
    index = {"bank": 0, "shop": 1, "dealer": -1}[owner]

    def fail_once(self: ShardInference, command: Command) -> list[Share]:
        runtime = self._runtime
        is_local = runtime.index == index and not isinstance(runtime, CostCounter)
        if is_local and command.name == "scores" and fails.acquire(blocking=False):
            raise OSError("this machine is on fire")
        return original(self, command)

    monkeypatch.setattr(ShardInference, "execute", fail_once)
    with reconnecting_service(trained) as (queue, events):
        small = submit_in_small_batches(queue, MANY)
        started = time.monotonic()
        rejection = queue.submit_and_wait(MANY).rejection
        assert rejection is not None
        assert rejection.reason == "absent"
        wait_for(queue, 2)
        assert time.monotonic() - started < 15
        assert np.array_equal(submit(queue, MANY).predictions, small)
        assert queue.stats.lost == 1
    assert any("on fire" in event.text for event in events if event.kind == "lost")


def test_killed_idle_worker_is_noticed(tmp_path: Path) -> None:
    """Members notice it within seconds, without a request; with three dealers and alignment."""
    local = training(tmp_path, aligned=True, dealers=3)
    change(local.folder / "bank" / "party.toml", ("[data]", "[cluster]\nlocal = 1\n\n[data]"))
    with reconnecting_service(local) as (queue, _):
        small = submit_in_small_batches(queue, MANY)
        assert np.array_equal(submit(queue, MANY).predictions, small)
        (process,) = multiprocessing.active_children()
        process.kill()
        wait_for(queue, 2)
        assert np.array_equal(submit(queue, MANY).predictions, small)


@pytest.mark.parametrize("owner", ["bank", "dealer"])
def test_worker_lost_at_the_end_is_ignored(
    trained: LocalFederation, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No member needs the worker any more: all members end without reconnecting."""
    index = {"bank": 0, "dealer": -1}[owner]
    original = sharding.run_inference_worker
    lost = threading.Event()

    def fail_at_end(runtime: Runtime, suite: Any, tests: Any, commands: CommandLoop) -> None:
        original(runtime, suite, tests, commands)
        if runtime.index == index:
            lost.set()
            raise OSError("this machine is on fire")

    monkeypatch.setattr(worker, "run_inference_worker", fail_at_end)
    with reconnecting_service(trained) as (queue, events):
        submit(queue, MANY)
    assert lost.is_set()
    assert [event.text for event in events if event.kind == "lost"] == []
