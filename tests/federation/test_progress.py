"""What is said of groups while a training goes on: which one is waited for, what they sent."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from privet.errors import PeerError, PeerMisbehavedError
from privet.federation.monitoring.progress import describe_shard_groups
from privet.runtime.accounting import Meter, MeterTotals
from privet.runtime.workers import Command, CommandLoop, WorkerHandle, receive_responses
from privet.transport import channel
from privet.transport.memory import create_memory_channels


def in_groups(count: int) -> tuple[list[WorkerHandle], list[CommandLoop]]:
    """Return the heads' and the workers' ends of so many groups."""
    links = [create_memory_channels(["head", "worker"]) for _ in range(count)]
    heads = [WorkerHandle(link["head"], "worker", k) for k, link in enumerate(links)]
    return heads, [CommandLoop(link["worker"], "head") for link in links]


def order(heads: list[WorkerHandle], workers: list[CommandLoop]) -> threading.Thread:
    """Have something done by all; return the thread that waits for what they answer."""
    for head in heads:
        head.send_command(Command("setup"))
    for worker in workers:
        assert worker.receive_command().name == "setup"
    thread = threading.Thread(target=receive_responses, args=(heads, [[] for _ in heads]))
    thread.start()
    return thread


def wait_for(heads: list[WorkerHandle], number: int) -> dict[str, Any]:
    """Wait until a group is waited for; return what is said then."""
    until = time.monotonic() + 10
    while (seen := describe_shard_groups(heads))["waits_for_group"] != number:
        assert time.monotonic() < until
        time.sleep(0.001)
    return seen


def test_the_group_that_is_waited_for() -> None:
    assert describe_shard_groups(()) == {}
    heads, workers = in_groups(2)
    thread = order(heads, workers)
    wait_for(heads, 1)
    time.sleep(0.1)
    workers[0].send_result()
    assert wait_for(heads, 2)["waits_seconds"] >= 0
    time.sleep(0.05)
    workers[1].send_result()
    thread.join(10)
    found = describe_shard_groups(heads)
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
            workers[number].send_result()
        thread.join(10)
    waited = [head.wait_seconds for head in heads]
    assert waited[0] == waited[2] == 0.0
    assert waited[1] >= 0.12


def test_whoever_answers_before_it_is_asked_for_keeps_nobody_waiting() -> None:
    heads, workers = in_groups(2)
    for head in heads:
        head.send_command(Command("setup"))
    for worker in workers:
        worker.receive_command()
        worker.send_result()
    receive_responses(heads, [[], []])
    assert [head.wait_seconds for head in heads] == [0.0, 0.0]


@pytest.mark.parametrize("peak", ["NaN", "Infinity", "null", "[]", '"much"', ""])
def test_memory_of_a_worker_is_a_number(peak: str) -> None:
    (head,), (worker,) = in_groups(1)
    worker.send_meter(Meter(), 12.5)
    assert head.receive_meter() == Meter()
    assert head.peak_rss_mb == 12.5
    worker.send_result()
    told = '{"online": {}, "offline": {}' + (f', "peak_rss_mb": {peak}' if peak else "") + "}"
    channel.send_message(worker.channel, ["head"], told.encode())
    with pytest.raises(PeerMisbehavedError, match="has no meter"):
        head.receive_meter()


def test_what_workers_have_sent_as_of_their_last_answers() -> None:
    """Delays are those of one of them; a failure tells nothing new."""
    heads, workers = in_groups(2)
    for metered in (
        (MeterTotals(1, 10, 100, 1000), MeterTotals(1, 20, 200, 2000)),
        (MeterTotals(5, 11),),
    ):
        for head, worker, figures in zip(heads, workers, metered, strict=False):
            worker.send_result(totals=figures)
            head.receive_response([])
    expected = {"rounds": 5, "sent": 31, "received": 200, "dealt": 2000}
    assert describe_shard_groups(heads)["by_workers"] == expected
    workers[1].send_failure(OSError("gone"), "table 1")
    with pytest.raises(PeerError):
        heads[1].receive_response([])
    assert describe_shard_groups(heads)["by_workers"] == expected
