"""What is said of groups while a training goes on: which one is waited for, what they sent."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from privet.errors import PeerError, PeerMisbehavedError
from privet.federation.monitoring.progress import groups
from privet.runtime.accounting import Figures, Meter
from privet.runtime.workers import Head, Order, Worker, answers
from privet.transport import channel
from privet.transport.memory import memory_channels


def in_groups(count: int) -> tuple[list[Head], list[Worker]]:
    """Return the heads' and the workers' ends of so many groups."""
    links = [memory_channels(["head", "worker"]) for _ in range(count)]
    heads = [Head(link["head"], "worker", k) for k, link in enumerate(links)]
    return heads, [Worker(link["worker"], "head") for link in links]


def order(heads: list[Head], workers: list[Worker]) -> threading.Thread:
    """Have something done by all; return the thread that waits for what they answer."""
    for head in heads:
        head.give(Order("setup"))
    for worker in workers:
        assert worker.next().name == "setup"
    thread = threading.Thread(target=answers, args=(heads, [[] for _ in heads]))
    thread.start()
    return thread


def wait_for(heads: list[Head], number: int) -> dict[str, Any]:
    """Wait until a group is waited for; return what is said then."""
    until = time.monotonic() + 10
    while (seen := groups(heads))["waits_for_group"] != number:
        assert time.monotonic() < until
        time.sleep(0.001)
    return seen


def test_the_group_that_is_waited_for() -> None:
    assert groups(()) == {}
    heads, workers = in_groups(2)
    thread = order(heads, workers)
    wait_for(heads, 1)
    time.sleep(0.1)
    workers[0].done()
    assert wait_for(heads, 2)["waits_seconds"] >= 0
    time.sleep(0.05)
    workers[1].done()
    thread.join(10)
    found = groups(heads)
    # Group 1 was waited for longer, and yet it is group 2 that all had to wait for.
    assert (found["groups"], found["slowest_group"], found["waits_for_group"]) == (2, 2, None)
    assert found["seconds_waited"] >= 0.15


def test_the_slowest_of_several_groups() -> None:
    """The middle one, whichever of the others comes before the other."""
    heads, workers = in_groups(3)
    for early, late in ((0, 2), (2, 0)):
        thread = order(heads, workers)
        wait_for(heads, 1)
        for number in (early, late, 1):
            time.sleep(0.02)
            workers[number].done()
        thread.join(10)
    waited = [head.waited for head in heads]
    assert waited[0] == waited[2] == 0.0
    assert waited[1] >= 0.12


def test_whoever_answers_before_it_is_asked_for_keeps_nobody_waiting() -> None:
    heads, workers = in_groups(2)
    for head in heads:
        head.give(Order("setup"))
    for worker in workers:
        worker.next()
        worker.done()
    answers(heads, [[], []])
    assert [head.waited for head in heads] == [0.0, 0.0]


@pytest.mark.parametrize("peak", ["NaN", "Infinity", "null", "[]", '"much"', ""])
def test_memory_of_a_worker_is_a_number(peak: str) -> None:
    (head,), (worker,) = in_groups(1)
    worker.metered(Meter(), 12.5)
    assert head.metered() == Meter()
    assert head.peak_rss_mb == 12.5
    worker.done()
    told = '{"online": {}, "offline": {}' + (f', "peak_rss_mb": {peak}' if peak else "") + "}"
    channel.send(worker.channel, ["head"], told.encode())
    with pytest.raises(PeerMisbehavedError, match="has no meter"):
        head.metered()


def test_what_workers_have_sent_as_of_their_last_answers() -> None:
    """Delays are those of one of them; a failure tells nothing new."""
    heads, workers = in_groups(2)
    for metered in ((Figures(1, 10, 100, 1000), Figures(1, 20, 200, 2000)), (Figures(5, 11),)):
        for head, worker, figures in zip(heads, workers, metered, strict=False):
            worker.done(metered=figures)
            head.answer([])
    expected = {"rounds": 5, "sent": 31, "received": 200, "dealt": 2000}
    assert groups(heads)["by_workers"] == expected
    workers[1].failed(OSError("gone"), "table 1")
    with pytest.raises(PeerError):
        heads[1].answer([])
    assert groups(heads)["by_workers"] == expected
