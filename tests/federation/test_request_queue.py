"""The queue between those who ask and the protocol."""

from __future__ import annotations

from typing import Any

from privet.federation.serving.request_queue import (
    MAX_BATCH_BYTES,
    MAX_BATCH_ROWS,
    PredictionRequest,
    RequestQueue,
)


def opened(**terms: Any) -> RequestQueue:
    queue = RequestQueue(**terms)
    queue.set_available(["bank", "dealer"])
    return queue


def test_what_does_not_fit_into_one_run_waits() -> None:
    queue = opened()
    for size in (1, MAX_BATCH_ROWS - 1, 1, 2 * MAX_BATCH_ROWS):
        queue.submit(PredictionRequest(["x"] * size))
    taken = [[len(request.ids) for request in queue.take_batch(1.0)] for _ in range(3)]
    assert taken == [[1, MAX_BATCH_ROWS - 1], [1], [2 * MAX_BATCH_ROWS]]
    assert queue.take_batch(0.0) == []


def test_so_do_ids_of_too_many_bytes() -> None:
    queue = opened()
    for _ in range(2):
        queue.submit(PredictionRequest(["\u00e9" * (MAX_BATCH_BYTES // 3)]))  # of two bytes each
    assert [len(queue.take_batch(1.0)) for _ in range(2)] == [1, 1]


def test_nothing_is_taken_while_the_federation_is_not_there() -> None:
    queue = RequestQueue()
    assert queue.status == "waiting"
    assert queue.submit_and_wait(["a"]).rejection == (
        "absent",
        "waiting for the other participants",
    )
    queue.set_available(["bank"])
    assert (queue.status, queue.peers) == ("ok", {"bank": True})


def test_a_lost_session_refuses_what_was_taken_and_what_waits() -> None:
    queue, settled = opened(), list[str]()
    for name in ("taken", "answered", "waiting"):
        queue.submit(PredictionRequest([name], on_done=lambda name=name: settled.append(name)))  # type: ignore[misc]
        if name == "answered":
            taken = queue.take_batch(1.0)
    taken[1].mark_done()
    queue.set_unavailable("bank was lost")
    assert settled == ["answered", "taken", "waiting"]
    assert taken[0].rejection == ("absent", "bank was lost")
    assert taken[1].rejection is None
    assert (queue.status, queue.peers) == ("waiting", {"bank": False, "dealer": False})
    assert queue.stats.lost == 1
    queue.set_available(["bank", "dealer"])
    assert queue.take_batch(0.0) == []
    assert (queue.status, queue.stats.sessions) == ("ok", 2)


def test_too_many_do_not_wait() -> None:
    queue = opened(max_queued=2)
    for _ in range(2):
        queue.submit(PredictionRequest(["a"]))
    refused = queue.submit_and_wait(["b"]).rejection
    assert refused is not None
    assert refused.reason == "full"
    assert len(queue.take_batch(1.0)) == 2


def test_whoever_gives_up_does_not_wait_any_more() -> None:
    queue = opened()
    first, second = PredictionRequest(["a"]), PredictionRequest(["b"])
    for request in (first, second):
        queue.submit(request)
    queue.withdraw(first)
    assert queue.take_batch(1.0) == [second]
    queue.withdraw(second)  # too late, and no harm
    assert not second.is_done


def test_what_waits_when_the_queue_closes_is_still_taken() -> None:
    queue = opened()
    waiting = PredictionRequest(["a"])
    queue.submit(waiting)
    queue.close("the service was stopped")
    assert queue.submit_and_wait(["b"]).rejection == ("ended", "the service was stopped")
    assert (queue.status, queue.take_batch(1.0)) == ("ended", [waiting])
    queue.set_unavailable("the service has ended")
    assert queue.take_batch(60.0) == []  # at once
    assert waiting.rejection == ("ended", "the service was stopped")
    assert queue.stats.lost == 0
