"""The queue between those who ask and the protocol."""

from __future__ import annotations

from typing import Any

from privet.federation.serving.request_queue import MOST_BYTES, MOST_ROWS, Request, RequestQueue


def opened(**terms: Any) -> RequestQueue:
    queue = RequestQueue(**terms)
    queue.open(["bank", "dealer"])
    return queue


def test_what_does_not_fit_into_one_run_waits() -> None:
    queue = opened()
    for size in (1, MOST_ROWS - 1, 1, 2 * MOST_ROWS):
        queue.submit(Request(["x"] * size))
    taken = [[len(request.ids) for request in queue.take(1.0)] for _ in range(3)]
    assert taken == [[1, MOST_ROWS - 1], [1], [2 * MOST_ROWS]]
    assert queue.take(0.0) == []


def test_so_do_ids_of_too_many_bytes() -> None:
    queue = opened()
    for _ in range(2):
        queue.submit(Request(["\u00e9" * (MOST_BYTES // 3)]))  # of two bytes each
    assert [len(queue.take(1.0)) for _ in range(2)] == [1, 1]


def test_nothing_is_taken_while_the_federation_is_not_there() -> None:
    queue = RequestQueue()
    assert queue.status == "waiting"
    assert queue.ask(["a"]).refused == ("absent", "waiting for the other participants")
    queue.open(["bank"])
    assert (queue.status, queue.peers) == ("ok", {"bank": True})


def test_a_lost_session_refuses_what_was_taken_and_what_waits() -> None:
    queue, settled = opened(), list[str]()
    for name in ("taken", "answered", "waiting"):
        queue.submit(Request([name], on_answered=lambda name=name: settled.append(name)))  # type: ignore[misc]
        if name == "answered":
            taken = queue.take(1.0)
    taken[1].settle()
    queue.suspend("bank was lost")
    assert settled == ["answered", "taken", "waiting"]
    assert taken[0].refused == ("absent", "bank was lost")
    assert taken[1].refused is None
    assert (queue.status, queue.peers) == ("waiting", {"bank": False, "dealer": False})
    assert queue.served.lost == 1
    queue.open(["bank", "dealer"])
    assert queue.take(0.0) == []
    assert (queue.status, queue.served.sessions) == ("ok", 2)


def test_too_many_do_not_wait() -> None:
    queue = opened(most_waiting=2)
    for _ in range(2):
        queue.submit(Request(["a"]))
    refused = queue.ask(["b"]).refused
    assert refused is not None
    assert refused.why == "full"
    assert len(queue.take(1.0)) == 2


def test_whoever_gives_up_does_not_wait_any_more() -> None:
    queue = opened()
    first, second = Request(["a"]), Request(["b"])
    for request in (first, second):
        queue.submit(request)
    queue.withdraw(first)
    assert queue.take(1.0) == [second]
    queue.withdraw(second)  # too late, and no harm
    assert not second.answered


def test_what_waits_when_the_queue_closes_is_still_taken() -> None:
    queue = opened()
    waiting = Request(["a"])
    queue.submit(waiting)
    queue.close("the service was stopped")
    assert queue.ask(["b"]).refused == ("ended", "the service was stopped")
    assert (queue.status, queue.take(1.0)) == ("ended", [waiting])
    queue.suspend("the service has ended")
    assert queue.take(60.0) == []  # at once
    assert waiting.refused == ("ended", "the service was stopped")
    assert queue.served.lost == 0
