"""The queue between clients and the protocol."""

from __future__ import annotations

from typing import Any

from privet.federation.serving.request_queue import (
    MAX_BATCH_BYTES,
    MAX_BATCH_ROWS,
    PredictionRequest,
    RequestQueue,
)


def make_available(**settings: Any) -> RequestQueue:
    queue = RequestQueue(**settings)
    queue.set_available(["bank", "dealer"])
    return queue


def test_requests_over_the_row_limit_wait() -> None:
    queue = make_available()
    for size in (1, MAX_BATCH_ROWS - 1, 1, 2 * MAX_BATCH_ROWS):
        queue.submit(PredictionRequest(["x"] * size))
    batches = [[len(request.ids) for request in queue.take_batch(1.0)] for _ in range(3)]
    assert batches == [[1, MAX_BATCH_ROWS - 1], [1], [2 * MAX_BATCH_ROWS]]
    assert queue.take_batch(0.0) == []


def test_requests_over_the_byte_limit_wait() -> None:
    queue = make_available()
    for _ in range(2):
        queue.submit(PredictionRequest(["\u00e9" * (MAX_BATCH_BYTES // 3)]))  # of two bytes each
    assert [len(queue.take_batch(1.0)) for _ in range(2)] == [1, 1]


def test_requests_are_rejected_while_peers_are_absent() -> None:
    queue = RequestQueue()
    assert queue.status == "waiting"
    assert queue.submit_and_wait(["a"]).rejection == (
        "absent",
        "waiting for the other participants",
    )
    queue.set_available(["bank"])
    assert (queue.status, queue.peers) == ("ok", {"bank": True})


def test_lost_session_rejects_running_and_waiting_requests() -> None:
    queue, settled = make_available(), list[str]()
    for name in ("taken", "answered", "waiting"):
        queue.submit(PredictionRequest([name], on_done=lambda name=name: settled.append(name)))  # type: ignore[misc]
        if name == "answered":
            batch = queue.take_batch(1.0)
    batch[1].mark_done()
    queue.set_unavailable("bank was lost")
    assert settled == ["answered", "taken", "waiting"]
    assert batch[0].rejection == ("absent", "bank was lost")
    assert batch[1].rejection is None
    assert (queue.status, queue.peers) == ("waiting", {"bank": False, "dealer": False})
    assert queue.stats.lost == 1
    queue.set_available(["bank", "dealer"])
    assert queue.take_batch(0.0) == []
    assert (queue.status, queue.stats.sessions) == ("ok", 2)


def test_full_queue_rejects_requests() -> None:
    queue = make_available(max_queued=2)
    for _ in range(2):
        queue.submit(PredictionRequest(["a"]))
    refused = queue.submit_and_wait(["b"]).rejection
    assert refused is not None
    assert refused.reason == "full"
    assert len(queue.take_batch(1.0)) == 2


def test_withdrawn_request_is_removed() -> None:
    queue = make_available()
    first, second = PredictionRequest(["a"]), PredictionRequest(["b"])
    for request in (first, second):
        queue.submit(request)
    queue.withdraw(first)
    assert queue.take_batch(1.0) == [second]
    queue.withdraw(second)  # too late, without effect
    assert not second.is_done


def test_closed_queue_serves_waiting_requests() -> None:
    queue = make_available()
    waiting = PredictionRequest(["a"])
    queue.submit(waiting)
    queue.close("the service was stopped")
    assert queue.submit_and_wait(["b"]).rejection == ("ended", "the service was stopped")
    assert (queue.status, queue.take_batch(1.0)) == ("ended", [waiting])
    queue.set_unavailable("the service has ended")
    assert queue.take_batch(60.0) == []  # at once
    assert waiting.rejection == ("ended", "the service was stopped")
    assert queue.stats.lost == 0
